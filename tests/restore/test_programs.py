"""The programs `git envrestore`, `git envlog undo` and `redo`; find, sha256sum and rsync compare the trees."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from git_envhist.model import Snapshot
from tests.crash.faults import needs_strace, traced
from tests.restore.engine import Engine
from tests.support.oracle import Listing, git_fsck, listing
from tests.support.repository import Repo
from tests.support.template import start_from


def capture(repo: Repo, intent: str, *words: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, *words, check=True).out.strip()


def state(repo: Repo) -> Listing:
    return listing(repo.path, top=True)


@pytest.fixture
def two(repo: Repo) -> tuple[Repo, str, Listing, Listing]:
    """Return a repository, its snapshot, the captured files, and the present files, most of which differ."""
    first, then, now = start_from(repo, captured_and_changed)
    return repo, first, then, now


def captured_and_changed(repo: Repo) -> tuple[str, Listing, Listing]:
    """Capture an environment, then change most of its files."""
    repo.write(".gitignore", b"node_modules/\n.env.local\n")
    repo.git("add", ".")
    repo.git("commit", "-q", "-m", "code")
    repo.write(".env.local", b"API=1\n")
    repo.write("node_modules/x/i.js", b"1")
    repo.write("run.sh", b"#!/bin/sh\n")
    (repo.path / "run.sh").chmod(0o755)
    (repo.path / "empty").mkdir()
    (repo.path / "link").symlink_to("app.py")
    first = capture(repo, "clean clone")
    then = state(repo)
    repo.write(".env.local", b"API=2\n")
    repo.write("app.py", b"print('broken')\n")
    (repo.path / "node_modules/x/i.js").unlink()
    (repo.path / "node_modules/x").rmdir()
    (repo.path / "empty").rmdir()
    (repo.path / "link").unlink()
    repo.write("link", b"a file now")
    (repo.path / "run.sh").chmod(0o600)
    repo.write("new/deep/file", b"came later")
    return first, then, state(repo)


def test_restore_and_undo_return_every_file(two: tuple[Repo, str, Listing, Listing]) -> None:
    repo, first, then, now = two
    index, head = repo.read(".git/index"), repo.git("rev-parse", "HEAD")
    done = repo.run("envrestore", first, check=True)
    assert state(repo) == then
    assert "saved your files as" in done.out
    assert done.out.endswith("to undo: git envrestore --undo\n")
    assert (repo.read(".git/index"), repo.git("rev-parse", "HEAD")) == (index, head)
    repo.run("envrestore", "--undo", check=True)
    assert state(repo) == now
    repo.run("envlog", "redo", check=True)
    assert state(repo) == then
    repo.run("envlog", "undo", check=True)
    assert state(repo) == now
    assert git_fsck(repo.path) == ""


def test_printed_undo_command_restores_the_previous_state(two: tuple[Repo, str, Listing, Listing]) -> None:
    repo, _, then, now = two
    capture(repo, "much has changed")
    printed = repo.run("envlog", "undo", check=True).out
    for expected in (now, then, now):
        assert state(repo) != expected
        printed = repo.run(
            *re.split(r"to (?:un|re)do: git ", printed.rstrip("\n"))[-1].split(" "), check=True
        ).out
        assert state(repo) == expected
    repo.write("app.py", b"once more")
    latest = state(repo)
    output = repo.run("envrestore", "-n", "--undo", "2", check=True).out
    assert output.endswith("to redo: git envrestore --redo 2\n")
    done = json.loads(repo.run("envrestore", "--undo", "2", "--json", check=True).out)
    assert (state(repo), done["undo"]) == (then, "git envrestore --redo 2")
    repo.run("envrestore", "--redo", "2", check=True)
    assert state(repo) == latest


def test_undo_reverts_a_restore_when_only_untouched_paths_differ_since(repo: Repo) -> None:
    repo.write("noise.log", b"1\n")
    first = capture(repo, "first")
    repo.write("app.py", b"later")
    repo.run("envrestore", first, check=True)
    assert repo.read("app.py") != b"later"
    repo.git("config", "envhist.exclude", "noise.log")
    repo.run("envrestore", "--undo", check=True)
    assert repo.read("app.py") == b"later"


def test_dry_run_prints_the_plan_and_changes_nothing(two: tuple[Repo, str, Listing, Listing]) -> None:
    repo, first, _, now = two
    tip = repo.git("for-each-ref", "refs/envhist/heads")
    output = repo.run("envrestore", "-n", first, check=True).out
    assert "remove:\n    new\n    new/deep\n    new/deep/file\n" in output
    assert "git envrestore --undo" in output
    plan = json.loads(repo.run("envrestore", "--dry-run", "--json", first, check=True).out)["plan"]
    assert state(repo) == now
    assert repo.git("for-each-ref", "refs/envhist/heads") == tip
    done = json.loads(repo.run("envrestore", "--json", first, check=True).out)
    assert done["plan"] == plan
    assert done["changed"] is True
    assert done["undo"] == "git envrestore --undo"
    assert {"new", "new/deep", "new/deep/file"} <= {
        step["path"] for step in plan["steps"] if step["action"] == "remove"
    }


def test_unchanged_file_is_not_touched_by_the_program(two: tuple[Repo, str, Listing, Listing]) -> None:
    repo, first, _, _ = two
    before = os.stat(repo.path / ".gitignore")
    repo.run("envrestore", first, check=True)
    after = os.stat(repo.path / ".gitignore")
    assert (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns)
    again = repo.run("envrestore", first, check=True)
    assert again.out == "nothing to restore: all files are as in this snapshot\n"


def test_restoring_a_safety_snapshot_prints_the_result_of_that_restore(
    two: tuple[Repo, str, Listing, Listing],
) -> None:
    repo, first, _, now = two
    repo.run("envrestore", first, check=True)
    repo.run("envrestore", "@~1", check=True)
    assert state(repo) == now
    there = repo.run("envrestore", "@~3", check=True).out.splitlines()
    assert there == [
        "nothing to restore: all files are as in this snapshot",
        f"it was saved before a restore of {first[:7]}; to restore that: git envrestore {first[:7]}",
    ]


@needs_strace
def test_restore_stopped_before_it_began_prints_the_target(
    two: tuple[Repo, str, Listing, Listing],
) -> None:
    repo, first, then, now = two
    stopped = repo.run("envrestore", first, prefix=traced("mkdirat", "signal=INT", "1"))
    assert (stopped.status, state(repo)) == (130, now)
    assert "saved your files as" in stopped.out
    again, _, newest = stopped.err.partition("hint: to try again: ")[2].partition(" (")
    assert newest == "'@' is now the snapshot of your files)\n"
    # '@' would now mean the safety snapshot, not the target.
    assert repo.run("envrestore", "@", check=True).out.endswith(f"; to restore that: {again}\n")
    repo.run("envrestore", again.split()[-1], check=True)
    assert state(repo) == then


def test_pathspecs_and_classes_select_paths(two: tuple[Repo, str, Listing, Listing]) -> None:
    repo, first, _, _ = two
    repo.run("envrestore", first, "--", "app.py", check=True)
    assert repo.read("app.py") != b"print('broken')\n"
    assert repo.read(".env.local") == b"API=2\n"
    repo.run("envrestore", first, "--only=packages", check=True)
    assert repo.read("node_modules/x/i.js") == b"1"
    assert repo.read(".env.local") == b"API=2\n"
    repo.run("envrestore", first, "--only=env,databases", check=True)
    assert repo.read(".env.local") == b"API=1\n"
    assert (repo.path / "new/deep/file").exists()
    assert repo.run("envrestore", first, "--only=nonsense").status == 129


def test_path_in_neither_snapshot_is_refused(two: tuple[Repo, str, Listing, Listing]) -> None:
    repo, first, _, now = two
    slip = repo.run("envrestore", first, "--", "apq.py")
    assert (slip.status, state(repo)) == (4, now)
    assert "'apq.py'" in slip.err
    # A known path without changes is no error.
    assert repo.run("envrestore", first, "--", ".gitignore", check=True).out.startswith("nothing to restore")


def test_directory_with_unsaved_contents_is_not_removed(repo: Repo) -> None:
    first = capture(repo, "before")
    repo.write("came/since/huge", b"x" * 100)
    repo.git("config", "envhist.fingerprint", "huge")
    repo.write("came/file", b"y")
    repo.run("envrestore", first, check=True)
    assert repo.read("came/since/huge") == b"x" * 100
    assert not (repo.path / "came/file").exists()


def test_new_files_and_tracked_files_can_be_kept(two: tuple[Repo, str, Listing, Listing]) -> None:
    repo, first, then, _ = two
    output = repo.run("envrestore", "--keep-new", "--keep-tracked", first, check=True).out
    assert repo.read("app.py") == b"print('broken')\n"
    assert repo.read("new/deep/file") == b"came later"
    assert repo.read(".env.local") == b"API=1\n"
    assert "skipped" in output
    repo.run("envrestore", first, check=True)
    assert state(repo) == then


def test_snapshot_is_written_to_another_directory_without_changing_the_environment(
    two: tuple[Repo, str, Listing, Listing], tmp_path: Path
) -> None:
    repo, first, then, now = two
    there = tmp_path / "there"
    done = repo.run("envrestore", "--to", str(there), first, check=True)
    assert "to undo" not in done.out
    found = listing(there, top=True)
    assert found == then
    assert state(repo) == now
    refused = repo.run("envrestore", "--to", str(there), first)
    assert (refused.status, listing(there, top=True)) == (3, found)
    assert repo.run("envrestore", "--to", str(there), "--head", first).status == 129


def test_part_of_a_snapshot_is_written_to_another_directory_after_a_dry_run(
    two: tuple[Repo, str, Listing, Listing], tmp_path: Path
) -> None:
    repo, first, then, _ = two
    there = tmp_path / "there"
    words = ("envrestore", "--to", str(there), first, "--", "node_modules", ".env.local")
    output = repo.run(*words[:1], "-n", *words[1:], check=True).out
    assert output.endswith("nothing was written\n")
    assert "node_modules" in output
    assert not there.exists()
    repo.run(*words, check=True)
    assert set(listing(there)) == {path for path in then if path.startswith((b"node_modules", b".env."))}
    assert repo.run("envrestore", "--to", str(tmp_path / "none"), first, "--", "absent").status == 4


def test_likely_snapshots_are_listed_without_a_revision(two: tuple[Repo, str, Listing, Listing]) -> None:
    repo, first, then, now = two
    output = repo.run("envrestore", check=True).out
    assert f"git envrestore {first[:7]}" in output
    assert state(repo) == now
    # A path alone means the newest snapshot, as in `git restore`.
    repo.run("envrestore", "--", "app.py", check=True)
    assert state(repo)[b"app.py"].sha256 == then[b"app.py"].sha256


def test_path_excluded_from_the_snapshot_is_unchanged(repo: Repo) -> None:
    repo.write(".envhistignore", b"cache/\n")
    repo.write("cache/a", b"1")
    first = capture(repo, "with a rule")
    repo.write("cache/a", b"2")
    repo.write(".envhistignore", b"")
    repo.write("cache/b", b"new")
    output = repo.run("envrestore", first, check=True).out
    assert (repo.read("cache/a"), repo.read("cache/b")) == (b"2", b"new")
    assert repo.read(".envhistignore") == b"cache/\n"
    assert "skipped 1 (not captured)\n" in output


def test_path_excluded_now_is_not_overwritten(repo: Repo) -> None:
    repo.write("data/a", b"1")
    first = capture(repo, "without a rule")
    repo.write("data/a", b"2")
    repo.git("config", "envhist.exclude", "data/")
    repo.write("other", b"x")
    repo.run("envrestore", first, check=True)
    assert repo.read("data/a") == b"2"
    assert not (repo.path / "other").exists()
    for words in ((), ("-n",)):
        again = repo.run("envrestore", *words, first, check=True).out
        assert again == (
            "nothing to restore: the paths that differ are skipped\n"
            "skipped:\n    data: excluded from the environment now\n"
        )


def test_file_that_cannot_be_saved_is_not_replaced(repo: Repo) -> None:
    repo.write("big", b"1")
    first = capture(repo, "small")
    repo.write("big", b"2")
    repo.git("config", "envhist.fingerprint", "big")
    repo.run("envrestore", first, check=True)
    assert repo.read("big") == b"2"


def test_undo_steps_through_snapshots_and_redo_returns_to_the_uncaptured_state(repo: Repo) -> None:
    for word in ("one", "two", "three"):
        repo.write("file", word.encode())
        capture(repo, word)
    repo.write("file", b"unsaved")
    seen = []
    for verb in ("undo", "undo", "undo", "redo", "redo", "redo"):
        repo.run("envlog", verb, check=True)
        seen.append(repo.read("file").decode())
    assert seen == ["three", "two", "one", "two", "three", "unsaved"]
    repo.run("envlog", "undo", "3", check=True)
    assert repo.read("file") == b"one"
    assert repo.run("envlog", "undo").status == 4
    assert repo.run("envlog", "undo", "x").status == 129


@pytest.mark.full
def test_undo_skips_a_state_that_differs_only_in_caches(repo: Repo) -> None:
    repo.write("pkg/a.py", b"1")
    repo.write("node_modules/x/index.js", b"x")
    capture(repo, "one")
    repo.write("pkg/a.py", b"2")
    two = capture(repo, "two")
    # A check compiles a module after the capture.
    repo.write("pkg/__pycache__/a.pyc", b"compiled")
    repo.write("node_modules/.cache/x", b"cached")
    repo.run("envlog", "undo", check=True)
    assert repo.read("pkg/a.py") == b"1"
    assert repo.run("envlog", "-1", "--format=%s").out == f"undo of {two[:7]}\n"
    repo.run("envlog", "redo", check=True)
    assert repo.read("pkg/a.py") == b"2"
    assert repo.read("pkg/__pycache__/a.pyc") == b"compiled"
    assert repo.run("envlog", "redo").status == 4


@pytest.mark.full
def test_undo_returns_a_cache_that_was_removed(repo: Repo) -> None:
    repo.write("a", b"1")
    capture(repo, "one")
    repo.write("a", b"2")
    repo.write(".next/build", b"built")
    capture(repo, "two")
    (repo.path / ".next/build").unlink()
    (repo.path / ".next").rmdir()
    repo.run("envlog", "undo", check=True)
    assert (repo.read("a"), repo.read(".next/build")) == (b"2", b"built")


def test_redo_after_new_work_is_refused_with_a_reason(repo: Repo) -> None:
    for word in ("one", "two"):
        repo.write("file", word.encode())
        last = capture(repo, word)
    repo.run("envlog", "undo", check=True)
    repo.write("file", b"new work")
    refused = repo.run("envlog", "redo")
    assert refused.status == 4
    assert "new work" in refused.err
    assert repo.read("file") == b"new work"
    capture(repo, "three")
    assert f"git envrestore {last[:7]}" in repo.run("envlog", "redo").err


def test_dry_run_of_undo_changes_nothing(repo: Repo) -> None:
    repo.write("file", b"one")
    capture(repo, "one")
    repo.write("file", b"two")
    assert "replace" in repo.run("envlog", "undo", "-n", check=True).out
    assert repo.read("file") == b"two"
    repo.run("envlog", "undo", "-f", check=True)
    repo.run("envlog", "redo", "-n", check=True)
    assert repo.read("file") == b"one"
    repo.run("envlog", "redo", "--force", check=True)
    assert repo.read("file") == b"two"


def test_redo_is_refused_when_its_plan_is_stale(repo: Repo) -> None:
    repo.write("file", b"one")
    capture(repo, "one")
    repo.write("file", b"two")
    repo.run("envlog", "undo", check=True)
    shown = json.loads(repo.run("envlog", "redo", "-n", "--json", check=True).out)["plan_id"]
    done = repo.run("envlog", "redo", "--plan=0123456789abcdef")
    assert (done.status, "is stale" in done.err) == (3, True)
    assert repo.read("file") == b"one"
    repo.run("envlog", "redo", f"--plan={shown}", check=True)
    assert repo.read("file") == b"two"


def test_head_moves_when_requested(repo: Repo) -> None:
    repo.git("commit", "-q", "--allow-empty", "-m", "one")
    first, commit = capture(repo, "at one"), repo.git("rev-parse", "HEAD")
    repo.write("app.py", b"two")
    repo.git("commit", "-qam", "two")
    output = repo.run("envrestore", "--head", first, check=True).out
    assert repo.git("rev-parse", "HEAD") == commit
    assert repo.git("status", "--porcelain") == ""
    assert "HEAD is at" in output


def test_tracked_files_that_differ_from_head_are_counted(repo: Repo) -> None:
    first = capture(repo, "one")
    repo.write("app.py", b"two")
    repo.git("commit", "-qam", "two")
    output = repo.run("envrestore", first, check=True).out
    assert "1 tracked file now differs from HEAD (to keep your code: --keep-tracked)\n" in output
    repo.write("other", b"x")
    output = repo.run("envrestore", first, check=True).out
    assert "1 tracked file differs from HEAD, as before\n" in output
    repo.write("second.py", b"1")
    repo.git("add", "second.py")
    repo.git("commit", "-qm", "three")
    output = repo.run("envrestore", first, check=True).out
    assert (
        "2 tracked files now differ from HEAD (1 did before; to keep your code: --keep-tracked)\n" in output
    )


def test_attachments_are_written_back(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "talk").write_bytes(b"words")
    first = capture(repo, "with a talk", "--attach", str(tmp_path / "talk"))
    repo.run("envrestore", "--attachments", str(tmp_path / "out"), first, check=True)
    assert (tmp_path / "out" / "1-talk").read_bytes() == b"words"


def test_unsigned_snapshot_is_refused_without_option(repo: Repo, tmp_path: Path) -> None:
    repo.write("file", b"one")
    first = capture(repo, "one")
    repo.write("file", b"two")
    for keys in (repo.path / ".git/envhist/keys", Path(repo.env["XDG_CONFIG_HOME"]) / "git-envhist/keys"):
        for key in keys.iterdir():
            key.unlink()
    refused = repo.run("envrestore", first)
    assert (refused.status, repo.read("file")) == (3, b"two")
    assert "--allow-unsigned" in refused.err
    repo.run("envrestore", "--allow-unsigned", first, check=True)
    assert repo.read("file") == b"one"


HOLD = "import sys; f = open(sys.argv[1], 'r+b'); print('open', flush=True); sys.stdin.read()"


def test_open_database_is_refused_by_name(repo: Repo) -> None:
    def put(value: int) -> None:
        with closing(sqlite3.connect(repo.path / "app.db")) as database:
            database.execute("create table if not exists t (v)")
            database.execute("insert into t values (?)", (value,))
            database.commit()

    put(1)
    first = capture(repo, "one row")
    put(2)
    two_rows = repo.read("app.db")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(repo.path / "app.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as guest:
        assert guest.stdout is not None
        assert guest.stdout.readline() == "open\n"
        refused = repo.run("envrestore", first)
        assert (refused.status, repo.read("app.db")) == (3, two_rows)
        assert f"({guest.pid})" in refused.err
        repo.run("envrestore", "--force", first, check=True)
        assert repo.read("app.db") != two_rows
        guest.send_signal(signal.SIGKILL)


def test_home_directory_is_not_restored_without_force(repo: Repo) -> None:
    repo.env["HOME"] = str(repo.path)
    first = capture(repo, "home", "--force")
    repo.write("file", b"x")
    assert repo.run("envrestore", first).status == 3
    assert (repo.path / "file").exists()


@pytest.mark.parametrize("words", [(), ("-n",), ("--", "etc")])
def test_whole_machine_is_not_restored_without_force(
    repo: Repo, tmp_path: Path, words: tuple[str, ...]
) -> None:
    first = capture(repo, "one")
    (tmp_path / "slash").symlink_to("/")
    for root in ("/", str(tmp_path / "slash")):
        env = {**repo.env, "GIT_DIR": str(repo.path / ".git"), "GIT_WORK_TREE": root}
        done = repo.run("envrestore", first, *words, env=env)
        assert (done.status, "the whole machine" in done.err) == (3, True)
        assert "--force" in done.err


def test_partial_restore_has_its_own_exit_status(repo: Repo) -> None:
    repo.write("a/file", b"one")
    first = capture(repo, "one")
    repo.write("a/file", b"two")
    engine, before = interrupt_restore(repo, first)
    # Another process writes to the file between the plan and the swap.
    repo.write("a/file", b"three, which nobody has seen")
    done = repo.run("envrestore", "--continue")
    assert done.status == 5
    assert "a/file" in done.err
    assert repo.read("a/file") == b"three, which nobody has seen"
    assert before.id
    assert engine.debris() == []


def interrupt_restore(repo: Repo, first: str) -> tuple[Engine, Snapshot]:
    """Interrupt a restore right after it has written its journal."""
    engine = Engine(repo.path)
    before, target = engine.capture(), engine.history.resolve(first)
    engine.prepare(engine.plan(before, target))
    return engine, before


def test_interrupted_restore_is_reported_by_the_next_command(
    two: tuple[Repo, str, Listing, Listing],
) -> None:
    repo, first, then, now = two
    interrupt_restore(repo, first)
    for words in (["envlog", "capture", "x"], ["envrestore", first], ["envlog", "undo"]):
        refused = repo.run(*words)
        assert refused.status == 128
        assert "--continue" in refused.err
        assert "--abort" in refused.err
    assert state(repo) == now
    assert repo.run("envrestore", "--continue", check=True).out.startswith("finished")
    assert state(repo) == then
    repo.run("envrestore", "--undo", check=True)
    assert state(repo) == now


def test_interrupted_restore_can_be_aborted(two: tuple[Repo, str, Listing, Listing]) -> None:
    repo, first, _, now = two
    interrupt_restore(repo, first)
    output = json.loads(repo.run("envrestore", "--abort", "--json", check=True).out)
    assert output["undone"] is True
    assert state(repo) == now
    capture(repo, "goes on")
    refused = repo.run("envrestore", "--abort")
    assert refused.status == 3
    assert repo.run("envrestore", "--continue", "--abort").status == 129


@pytest.mark.parametrize(
    ("words", "done"),
    [
        (("envrestore", "--json"), b"error: the restore is done, but cannot write the output: No space left"),
        (("envrestore",), b"error: cannot write the output: No space left"),
    ],
)
def test_completed_restore_is_reported_when_the_answer_cannot_be_written(
    two: tuple[Repo, str, Listing, Listing], words: tuple[str, ...], done: bytes
) -> None:
    repo, first, then, now = two
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [f"git-{words[0]}", *words[1:], first],
            cwd=repo.path,
            env=repo.env,
            stdout=full,
            stderr=subprocess.PIPE,
        )
    # The plan is printed before anything is changed, the answer of --json at the end.
    is_done = len(words) > 1
    assert (ended.returncode, state(repo)) == ((5, then) if is_done else (128, now))
    assert done in ended.stderr
