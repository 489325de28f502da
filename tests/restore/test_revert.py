"""A revert takes out what one step changed and keeps what came later; overlaps are conflicts."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import UsageError
from git_envhist.restore import apply_journal, execute
from git_envhist.restore.merge_pairs import RevertConflicts
from tests.cli.test_json import validate
from tests.restore.unsigned import make_stranger
from tests.support.oracle import Listing, listing
from tests.support.repository import Repo

LINES = b"".join(b"%d\n" % number for number in range(1, 31))
SITE = ".venv/lib/python3.11/site-packages"


def opened(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


def state(repo: Repo) -> Listing:
    return listing(repo.path, top=True)


@pytest.fixture
def three(repo: Repo) -> Repo:
    """A history of three snapshots; the second is the step to take out, the third overlaps it nowhere."""
    repo.write("lines", LINES)
    repo.write("old", b"old")
    repo.write("dir/file", b"file", mode=0o644)
    (repo.path / "link").symlink_to("old")
    history = opened(repo)
    history.capture("one")
    repo.write("lines", LINES.replace(b"\n3\n", b"\nthree\n"))
    repo.write("new/deep/file", b"new")
    (repo.path / "old").unlink()
    (repo.path / "dir/file").chmod(0o600)
    (repo.path / "link").unlink()
    (repo.path / "link").symlink_to("new")
    history.capture("two")
    repo.write("lines", repo.read("lines").replace(b"\n25\n", b"\ntwenty-five\n"))
    repo.write("later", b"later")
    repo.write("dir/file", b"file, edited", mode=0o600)
    history.capture("three")
    return repo


def test_revert_takes_out_one_step_and_keeps_later_changes(three: Repo) -> None:
    before = state(three)
    done = three.run("envlog", "revert", ":/two", check=True).out
    assert three.read("lines") == LINES.replace(b"\n25\n", b"\ntwenty-five\n")
    assert three.read("old") == b"old"
    assert not (three.path / "new").exists()
    assert os.readlink(three.path / "link") == "old"
    assert (three.read("later"), three.read("dir/file")) == (b"later", b"file, edited")
    assert (three.path / "dir/file").stat().st_mode & 0o777 == 0o644
    assert done.endswith("to undo: git envrestore --undo\n")
    listed = three.run("envlog", "--no-fold", check=True).out
    step = opened(three).resolve(":/two").id[:7]
    assert f"revert of {step} " in listed
    assert f"before the revert of {step} " in listed
    three.run("envrestore", "--undo", check=True)
    assert state(three) == before


def test_output_about_tracked_files_names_no_option_that_a_revert_lacks(three: Repo) -> None:
    three.git("add", "lines")
    three.git("commit", "-q", "-m", "lines")
    three.write("lines", three.read("lines").replace(b"\n20\n", b"\ntwenty\n"))
    shown = three.run("envlog", "revert", ":/two", "--", "lines", check=True).out
    assert "uncommitted changes of lines were replaced; they are saved in" in shown
    assert "--keep-tracked" not in shown


def test_range_is_reverted_as_one_step(three: Repo) -> None:
    three.write("after", b"after")
    three.run("envlog", "revert", ":/one..:/three", check=True)
    assert three.read("lines") == LINES
    assert (three.read("old"), three.read("dir/file")) == (b"old", b"file")
    assert not (three.path / "later").exists()
    assert three.read("after") == b"after"


def test_dry_run_of_a_revert_changes_nothing_and_lists_conflicts(three: Repo) -> None:
    three.write("new/deep/file", b"edited")
    before, tip = state(three), opened(three).resolve("@").id
    shown = three.run("envlog", "revert", "-n", ":/two", check=True).out
    assert "conflict: new/deep/file: changed since, and would be removed\n" in shown
    told = json.loads(three.run("envlog", "revert", "-n", "--json", ":/two", check=True).out)
    validate("restored", told)
    assert told["conflicts"] == [{"path": "new/deep/file", "why": "changed since, and would be removed"}]
    assert told["reverted"] == opened(three).resolve(":/two").id[:7]
    assert (state(three), opened(three).resolve("@").id) == (before, tip)


def test_conflict_changes_nothing_and_each_one_is_printed(three: Repo) -> None:
    three.write("new/deep/file", b"edited")
    three.write("lines", repo_lines := three.read("lines").replace(b"three", b"III"))
    three.write("old", b"other")
    before = state(three)
    refused = three.run("envlog", "revert", ":/two")
    assert refused.status == 3
    assert refused.out == (
        "conflict: lines: its contents changed on both sides\n"
        "conflict: new/deep/file: changed since, and would be removed\n"
        "conflict: old: removed there, created again since\n"
    )
    assert "3 conflicts; nothing was changed" in refused.err
    assert state(three) == before
    assert three.read("lines") == repo_lines
    answer = json.loads(three.run("envlog", "revert", "--json", ":/two").out)
    assert (answer["error"]["code"], answer["error"]["status"]) == ("conflicts", 3)


@pytest.mark.parametrize(
    ("option", "line", "new"),
    [("--ours", b"III", b"edited"), ("--theirs", b"3", None)],
)
def test_conflicts_take_the_chosen_side_and_the_rest_is_reverted(
    three: Repo, option: str, line: bytes, new: bytes | None
) -> None:
    three.write("lines", three.read("lines").replace(b"three", b"III"))
    three.write("new/deep/file", b"edited")
    three.run("envlog", "revert", option, ":/two", check=True)
    assert three.read("lines") == LINES.replace(b"\n3\n", b"\n" + line + b"\n").replace(
        b"\n25\n", b"\ntwenty-five\n"
    )
    file = three.path / "new/deep/file"
    assert (file.read_bytes() if file.exists() else None) == new
    assert three.read("old") == b"old"


def test_markers_show_both_sides_of_text_and_other_conflicts_remain(three: Repo) -> None:
    three.write("lines", three.read("lines").replace(b"three", b"III"))
    done = three.run("envlog", "revert", "--conflict=markers", ":/two", check=True)
    assert "warning: markers in 'lines': choose the lines to keep" in done.err
    text = three.read("lines")
    assert text.index(b"<<<<<<< now\nIII\n") < text.index(b"=======\n3\n>>>>>>> ")
    three.run("envlog", "undo", check=True)
    three.write("new/deep/file", b"edited")
    assert three.run("envlog", "revert", "--conflict=markers", ":/two").status == 3


def test_pathspecs_and_classes_choose_what_is_reverted(three: Repo) -> None:
    three.write("new/deep/file", b"edited")
    three.run("envlog", "revert", ":/two", "--", "old", "lines", check=True)
    assert three.read("old") == b"old"
    assert b"three" not in three.read("lines")
    assert three.read("new/deep/file") == b"edited"
    assert os.readlink(three.path / "link") == "new"
    nothing = three.run("envlog", "revert", "--only=packages", ":/two", check=True).out
    assert nothing.startswith("nothing to revert: ")


def test_reverted_step_has_nothing_left_to_revert(three: Repo) -> None:
    three.run("envlog", "revert", ":/two", check=True)
    tip = opened(three).resolve("@").id
    step = opened(three).resolve("@~3").id
    assert three.run("envlog", "revert", step, check=True).out.startswith("nothing to revert: ")
    assert opened(three).resolve("@").id == tip


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((":/one",), 3),
        ((), 129),
        (("--ours", "--theirs", "@"), 129),
        (("--conflict=diff3", "@"), 129),
        ((":/one..now",), 129),
        (("no-such-name",), 4),
    ],
)
def test_revert_that_means_no_step_is_an_error(three: Repo, words: tuple[str, ...], status: int) -> None:
    assert three.run("envlog", "revert", *words).status == status


def test_cache_that_changed_since_is_no_conflict(repo: Repo) -> None:
    history = opened(repo)
    repo.write("kept/module.py", b"1")
    repo.write("kept/__pycache__/module.pyc", b"1")
    history.capture("one")
    repo.write("kept/module.py", b"2")
    repo.write("kept/__pycache__/module.pyc", b"2")
    repo.write("made/module.py", b"2")
    history.capture("two")
    repo.write("kept/__pycache__/module.pyc", b"3")
    repo.write("made/__pycache__/module.pyc", b"3")
    history.revert(":/two")
    assert repo.read("kept/module.py") == b"1"
    assert not (repo.path / "made").exists()


def install(repo: Repo, version: str, *, node: bool = False) -> None:
    """Write a package as pip and npm do: files, metadata, and the list of files."""
    if node:
        repo.write("node_modules/left/package.json", f'{{"version": "{version}"}}\n')
        repo.write("node_modules/left/lib/index.js", f"// {version[0]}\n")
        return
    for old in repo.path.glob(f"{SITE}/left-*"):
        shutil.rmtree(old)
    info = f"left-{version}.dist-info"
    repo.write(f"{SITE}/left/__init__.py", LINES + version.encode())
    repo.write(f"{SITE}/left/same.py", f"# {version[0]}\n")
    repo.write(f"{SITE}/{info}/METADATA", f"Metadata-Version: 2.1\nName: left\nVersion: {version}\n")
    repo.write(
        f"{SITE}/{info}/RECORD", f"left/__init__.py,,\nleft/same.py,,\n{info}/METADATA,,\n{info}/RECORD,,\n"
    )


@pytest.mark.parametrize("node", [False, True])
def test_versions_of_a_package_are_not_mixed(repo: Repo, *, node: bool) -> None:
    history = opened(repo)
    install(repo, "1.0", node=node)
    history.capture("one")
    install(repo, "2.0", node=node)
    repo.write("other", b"two")
    history.capture("two")
    install(repo, "2.1", node=node)
    before = state(repo)
    place = "node_modules/left" if node else f"{SITE}/left"
    with pytest.raises(RevertConflicts) as raised:
        history.revert(":/two")
    assert [(one.path, one.why) for one in raised.value.conflicts] == [
        (place.encode(), "the package changed on both sides")
    ]
    assert state(repo) == before
    with pytest.raises(RevertConflicts):
        history.revert(":/two", conflict="theirs")
    history.revert(":/two", conflict="ours")
    after = state(repo)
    assert not (repo.path / "other").exists()
    inside = place.encode().rpartition(b"/")[0] + b"/"
    assert {path: one for path, one in after.items() if path.startswith(inside)} == {
        path: one for path, one in before.items() if path.startswith(inside)
    }


def test_package_that_only_the_step_changed_is_reverted_whole(repo: Repo) -> None:
    history = opened(repo)
    install(repo, "1.0")
    history.capture("one")
    there = listing(repo.path / ".venv")
    install(repo, "2.0")
    history.capture("two")
    repo.write("later", b"later")
    history.revert(":/two")
    assert listing(repo.path / ".venv") == there


def test_api_returns_the_result_and_refuses_unknown_words(three: Repo) -> None:
    history = opened(three)
    planned = history.revert(":/two", dry_run=True)
    assert (planned.snapshot, planned.conflicts) == (None, ())
    done = history.revert(":/two", paths=["old"])
    assert done.exact
    assert done.snapshot is not None
    assert (done.snapshot.restored_from, done.safety is not None) == (None, True)
    with pytest.raises(UsageError):
        history.revert(":/two", conflict="none")
    with pytest.raises(TypeError):
        history.revert(":/two", services=True)  # type: ignore[call-arg]


def test_sealed_variables_are_reverted_by_name_or_conflict_and_are_not_printed(repo: Repo) -> None:
    history = opened(repo)
    values = ["TOKEN=one-xyzzy", "TOKEN=two-xyzzy", "TOKEN=three-xyzzy"]
    repo.write(".env", values[0] + "\nMODE=a\n")
    history.capture("one")
    repo.write(".env", values[1] + "\nMODE=a\n")
    history.capture("two")
    repo.write("later", b"later")
    history.revert(":/two")
    assert repo.read(".env").decode() == values[0] + "\nMODE=a\n"
    history.undo()
    repo.write(".env", values[1] + "\nMODE=b\n")
    repo.run("envlog", "revert", ":/two", check=True)
    assert repo.read(".env").decode() == values[0] + "\nMODE=b\n"
    history.undo()
    repo.write(".env", values[2] + "\nMODE=b\n")
    refused = repo.run("envlog", "revert", ":/two")
    assert refused.out == "conflict: .env: variable TOKEN changed on both sides\n"
    assert "xyzzy" not in refused.out + refused.err
    assert repo.run("envlog", "revert", "--conflict=markers", ":/two").status == 3
    loose = repo.git("cat-file", "--batch-check", "--batch-all-objects", "--unordered").splitlines()
    blobs = [line.split()[0] for line in loose if " blob " in line]
    assert "xyzzy" not in repo.git("cat-file", "--batch", input="\n".join(blobs))


def test_names_of_one_file_are_reverted_together(repo: Repo) -> None:
    history = opened(repo)
    repo.write("a", b"one")
    os.link(repo.path / "a", repo.path / "b")
    history.capture("one")
    there = {name: one for name, one in listing(repo.path).items() if name in (b"a", b"b")}
    with open(repo.path / "a", "r+b") as file:
        file.write(b"two")
    history.capture("two")
    repo.write("c", b"later")
    os.link(repo.path / "c", repo.path / "d")
    history.revert(":/two")
    now = listing(repo.path)
    assert {name: now[name] for name in there} == there
    assert now[b"c"].linked == (b"d",)


# Interruptions.


def die(*_: object, **__: object) -> None:
    os._exit(9)


def revert_two(history: EnvHistory) -> object:
    return history.revert(":/two")


def interrupt(
    repo: Repo, module: ModuleType, function: str, work: Callable[[EnvHistory], object] = revert_two
) -> None:
    """Kill a revert, or its abort, at the call of a function."""
    process = os.fork()
    if not process:
        setattr(module, function, die)
        work(opened(repo))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9


def test_interrupted_revert_is_continued_or_aborted(three: Repo) -> None:
    before = state(three)
    interrupt(three, execute, "apply")
    assert three.run("envlog", "revert", ":/two").status == 128
    three.run("envrestore", "--abort", check=True)
    assert state(three) == before
    interrupt(three, execute, "apply")
    three.run("envrestore", "--continue", check=True)
    assert three.read("lines") == LINES.replace(b"\n25\n", b"\ntwenty-five\n")
    assert three.read("old") == b"old"
    step = opened(three).resolve(":/two").id[:7]
    assert opened(three).resolve("@").intent == f"revert of {step}"
    three.run("envrestore", "--undo", check=True)
    assert state(three) == before


@pytest.mark.parametrize("words", [("--continue",), ("--abort",)])
def test_revert_that_was_undone_or_done_already_ends_at_a_known_state(
    three: Repo, words: tuple[str, ...]
) -> None:
    before = state(three)
    if words == ("--continue",):
        interrupt(three, execute, "apply")
        interrupt(three, apply_journal, "remove_journal", lambda history: history.abort_restore())
        refused = three.run("envrestore", "--continue")
        assert (refused.status, "its result is in no snapshot" in refused.err) == (3, True)
    else:
        interrupt(three, apply_journal, "remove_journal")
        assert three.read("old") == b"old"
    three.run("envrestore", "--abort", check=True)
    assert state(three) == before


# Random histories: taking a step out equals the same history without it.

FILES = ("a", "b", "dir/c", "dir/deep/d")


class Edit(NamedTuple):
    """A change of one path, which can be made in any tree that has the path."""

    path: str
    make: Callable[[Path], None]


def random_edit(choose: random.Random, number: int) -> Edit:
    """Return a change of one line, a new file or link, a mode that no other step sets, or a removal."""
    line = choose.randrange(30)
    kind = choose.choice(("line", "line", "line", "file", "mode", "link", "remove"))
    path = choose.choice(FILES) if kind in ("line", "mode", "remove") else f"new/{number}"

    def make(root: Path) -> None:
        place = root / path
        if kind == "line":
            lines = place.read_bytes().splitlines(keepends=True)
            lines[line] = b"%d of %d\n" % (line, number)
            place.write_bytes(b"".join(lines))
        elif kind == "mode":
            place.chmod(0o600 + number)
        elif kind == "remove":
            place.unlink()
        else:
            place.parent.mkdir(exist_ok=True)
            place.write_text(f"{number}") if kind == "file" else place.symlink_to(f"{number}")

    return Edit(path, make)


def start(root: Path) -> None:
    for name in FILES:
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"".join(b"%d\n" % number for number in range(30)))


def replay(edits: list[Edit], root: Path) -> bool:
    """Make all edits in a new tree; return False if one cannot be made."""
    start(root)
    try:
        for edit in edits:
            edit.make(root)
    except FileNotFoundError:
        return False
    return True


def differences(one: Path, other: Path) -> str:
    """Return what `diff` and `find` see, without git's files."""
    diff = subprocess.run(
        ["diff", "-r", "--no-dereference", "--exclude=.git", one, other], capture_output=True, text=True
    )
    modes = [
        subprocess.run(
            ["find", ".", "-name", ".git", "-prune", "-o", "!", "-type", "d", "-printf", "%P %y %m %l\n"],
            cwd=place,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for place in (one, other)
    ]
    changed = sorted(set(modes[0].splitlines()) ^ set(modes[1].splitlines()))
    return diff.stdout + "\n".join(changed)


@pytest.mark.parametrize("seed", range(3))
def test_reverted_step_of_a_random_history_equals_a_history_without_it(
    repo: Repo, tmp_path: Path, seed: int
) -> None:
    choose = random.Random(seed)
    (repo.path / "app.py").unlink(missing_ok=True)
    start(repo.path)
    history = opened(repo)
    history.capture("start")
    edits: list[Edit] = []
    while len(edits) < 20:
        edit = random_edit(choose, len(edits) + 1)
        try:
            edit.make(repo.path)
        except FileNotFoundError:
            continue
        edits.append(edit)
        history.capture(f"step {len(edits)}")
    last = history.resolve("@")
    clean = 0
    for number in range(len(edits)):
        rest = edits[:number] + edits[number + 1 :]
        there = tmp_path / f"without-{number}"
        is_possible = replay(rest, there)
        refused: RevertConflicts | None = None
        try:
            history.revert(snapshot_of(history, number + 1))
        except RevertConflicts as error:
            refused = error
        if refused is not None:
            assert [one.path.decode() for one in refused.conflicts] == [edits[number].path]
            assert any(one.path == edits[number].path for one in edits[number + 1 :])
            continue
        assert is_possible
        assert differences(repo.path, there) == ""
        clean += 1
        history.restore(last)
    assert clean >= 8


def snapshot_of(history: EnvHistory, number: int) -> str:
    return next(one.id for one in history.log() if one.intent == f"step {number}")


def test_unsigned_step_is_refused(tmp_path: Path, hermetic: object) -> None:
    stranger = make_stranger(tmp_path)
    commit = stranger.plant(stranger.repo.git("rev-parse", f"{stranger.tip}^{{tree}}").strip())
    before = stranger.state()
    refused = stranger.repo.run("envlog", "revert", commit)
    assert (refused.status, "is unsigned" in refused.err) == (3, True)
    assert stranger.state() == before


def test_forced_revert_changes_an_open_database(three: Repo) -> None:
    with closing(sqlite3.connect(three.path / "data.db")) as made:
        made.execute("create table t (n)")
        made.commit()
    history = opened(three)
    history.capture("four")
    code = "import sqlite3, sys; one = sqlite3.connect('data.db'); one.execute('begin'); one.execute('select * from t')"
    code += "; print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=three.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        refused = three.run("envlog", "revert", ":/four")
        assert (refused.status, "--force" in refused.err) == (3, True)
        three.run("envlog", "revert", "--force", ":/four", check=True)
        assert reader.stdin is not None
        reader.stdin.close()
    assert not (three.path / "data.db").exists()


@pytest.mark.parametrize("option", ["--ours", "--skip-conflicts"])
def test_directory_that_was_a_file_is_kept_with_all_below_it(repo: Repo, option: str) -> None:
    repo.write("d", b"file")
    history = opened(repo)
    history.capture("one")
    (repo.path / "d").unlink()
    repo.write("d/sub/deep/x", b"x")
    repo.write("d/y", b"y")
    history.capture("two")
    repo.write("d/later", b"later")
    before = listing(repo.path)
    repo.run("envlog", "revert", option, ":/two")
    assert listing(repo.path) == before


@pytest.mark.parametrize("words", ["--plan=0000000 :/two", "-n :/two", ":/two -- new"])
def test_merged_text_that_is_not_written_is_not_stored(three: Repo, words: str) -> None:
    merged = three.git("hash-object", "--stdin", input=LINES.replace(b"\n25\n", b"\ntwenty-five\n"))
    three.run("envlog", "revert", *words.split())
    assert three.run_git("cat-file", "-e", merged, check=False).status != 0
    three.run("envlog", "revert", ":/two", "--", "lines", check=True)
    assert three.run_git("cat-file", "-e", merged).status == 0
