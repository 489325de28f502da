"""A purged path is gone: from every object of the repository, and from every file of git-envhist."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from git_envhist.api import EnvHistory
from git_envhist.capture.verdict_log import VerdictLog
from git_envhist.checks.sandbox import unmounted_base
from tests.cli.test_json import validate
from tests.support.depth import examples
from tests.support.repository import Repo, make_repo


def capture(repo: Repo, *words: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", *words, check=True).out.strip()


def purge(repo: Repo, *words: str | bytes) -> Any:
    output = json.loads(repo.run("envlog", "purge", "--json", *words, check=True).out)
    validate("purged", output)
    return output


def objects(git_dir: Path) -> dict[str, bytes]:
    """Return every object of a repository, reachable or not."""
    words = ["git", "--git-dir", str(git_dir), "cat-file", "--batch-all-objects", "--batch"]
    data = subprocess.run(words, capture_output=True, check=True).stdout
    found, at = {}, 0
    while at < len(data):
        end = data.index(b"\n", at)
        oid, _, size = data[at:end].split(b" ")
        found[oid.decode()] = data[end + 1 : end + 1 + int(size)]
        at = end + 2 + int(size)
    return found


def holding(repo: Repo, *words: bytes) -> list[str]:
    """Return git-envhist's objects and files that contain any of these words."""
    git_dir = repo.path / ".git"
    found = [oid for oid, data in objects(git_dir).items() if any(word in data for word in words)]
    state = git_dir / "envhist"
    files = [path for path in state.rglob("*") if path.is_file() and "keys" not in path.parts]
    return found + [str(path) for path in files if any(word in path.read_bytes() for word in words)]


def tree(repo: Repo, snapshot: str) -> dict[str, str]:
    """Return the environment of a snapshot by path, as plain git reads it."""
    now = json.loads(repo.run("envlog", "show", snapshot, "--json", check=True).out)["commit"]
    rows = repo.git("ls-tree", "-r", "-z", now).split("\0")
    split = (row.partition("\t") for row in rows if row and "\t.envhist/" not in row)
    return {path: head for head, _, path in split}


def test_purged_file_is_nowhere_and_all_else_is_unchanged(repo: Repo) -> None:
    repo.write("credentials.txt", "the word is xyzzy-1")
    repo.write("kept/file", "one")
    first = capture(repo, "one", "--name", "start")
    repo.write("credentials.txt", "the word is xyzzy-2")
    repo.write("kept/file", "two")
    second = capture(repo, "two")
    repo.run("envlog", "verify", "--", "true", check=True)
    (repo.path / "credentials.txt").unlink()
    third = capture(repo, "three")
    before = {one: tree(repo, one) for one in (first, second, third)}
    told = purge(repo, "credentials.txt")
    assert (told["snapshots"], told["in_trash"], told["left"], told["here"]) == (2, 0, [], [])
    assert holding(repo, b"credentials.txt", b"xyzzy") == []
    for one, listing in before.items():
        assert tree(repo, one) == {path: row for path, row in listing.items() if path != "credentials.txt"}
    assert repo.git("fsck", "--strict", "--no-dangling") == ""
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    assert [one.id for one in history.log()] == [third, second, first]
    assert [one.story for one in history.log()] == ["nothing changed", "~1 file", "2 files in all"]
    assert (history.resolve("start").id, history.resolve("good").id) == (first, second)
    assert all(history.judge(one).trusted for one in history.log())
    for one, content in ((first, b"one"), (second, b"two")):
        repo.run("envrestore", one, check=True)
        assert repo.read("kept/file") == content
        assert not (repo.path / "credentials.txt").exists()


def test_path_below_a_link_is_the_path_that_was_typed(repo: Repo) -> None:
    for name in ("src/notes", "other/notes"):
        repo.write(name, f"of {name}")
    first = capture(repo, "one")
    shutil.rmtree(repo.path / "src")
    (repo.path / "src").symlink_to("other")
    assert purge(repo, "src/notes")["snapshots"] == 1
    assert {"src/notes", "other/notes"} & tree(repo, first).keys() == {"other/notes"}


STANDING = {
    "secret/.env.local": (b"API_KEY", b".env.local"),
    "secret": (b"secret",),
    "big.bin": (b"big.bin", b"0123456789abcdef" * 100),
    "app.db": (b"app.db", b"sessions"),
    ".gitattributes": (b"gitattributes",),
    "odd %41 name": (b"odd", b"%41"),
    "empty": (b" empty", b"empty "),
    "link": (b"\nlink ", b"somewhere"),
    "nested/inner-file": (b"inner-file f",),
    "nested": (b"nested", b"inner-file"),
    "staged.txt": (b"staged.txt", b"only in the index"),
    ".python-version": (b".python-version",),
}
STORED = {".gitattributes": "%2egitattributes", "odd %41 name": "odd %2541 name"}


def test_purge_erases_every_kind_of_entry(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "64k")
    repo.write("secret/.env.local", "API_KEY=1234567890abcdef\n")
    repo.write("big.bin", b"0123456789abcdef" * 20_000 + os.urandom(200_000))
    with closing(sqlite3.connect(repo.path / "app.db")) as connection, connection:
        connection.execute("create table sessions (a)")
    connection.close()
    repo.write(".gitattributes", "* -text\n")
    repo.write("odd %41 name", "x")
    (repo.path / "empty").mkdir()
    (repo.path / "link").symlink_to("somewhere")
    nested = make_repo(repo.path / "nested")
    nested.write("inner-file", "inner")
    nested.write("app.py", "of the nested one")
    nested.commit()
    repo.write("staged.txt", "only in the index")
    repo.git("add", "staged.txt")
    repo.write("staged.txt", "another")
    repo.write(".python-version", "3.12.1\n")
    first = capture(repo, "one")
    repo.write("kept", "2")
    capture(repo, "two")
    before = tree(repo, first)
    # Objects that git stored are not erased, e.g. staged content.
    repo.git("rm", "-q", "-f", "--cached", "staged.txt")
    repo.git("prune", "--expire=now")
    gone: set[str] = set()
    for path, words in STANDING.items():
        told = purge(repo, path)
        assert told["snapshots"] == 2, path
        assert [one for one in told["left"] if one["where"] != "history"] == [], path
        assert holding(repo, *words) == [], path
        gone |= {one for one in before if one.startswith(path + "/")} | {STORED.get(path, path)}
        assert set(tree(repo, first)) == set(before) - gone, path
    assert repo.git("fsck", "--strict", "--no-dangling") == ""
    elsewhere = repo.path.parent / "elsewhere"
    repo.run("envrestore", "--to", str(elsewhere), first, check=True)
    assert {one.name for one in elsewhere.iterdir()} == {"app.py"}
    # The next capture works and contains the current files.
    capture(repo, "three")
    assert repo.run("envdiff", "--exit-code", "@", "now").status == 0
    assert set(before) <= set(tree(repo, "@"))
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_purge_keeps_chunks_that_another_file_uses(repo: Repo) -> None:
    repo.git("config", "envhist.bigFile", "64k")
    content = os.urandom(300_000)
    repo.write("one.bin", content)
    repo.write("two.bin", content)
    first = capture(repo)
    told = purge(repo, "one.bin")
    assert {one["where"] for one in told["left"]} == {"history"}
    repo.run("envrestore", "--to", "../elsewhere", first, check=True)
    assert (repo.path.parent / "elsewhere/two.bin").read_bytes() == content
    purge(repo, "two.bin")
    assert holding(repo, b"one.bin", b"two.bin", content[:1000]) == []


def test_purge_covers_the_trash_and_every_timeline(repo: Repo) -> None:
    repo.write("creds", "xyzzy-1")
    first = capture(repo, "one")
    repo.write("other", "1")
    capture(repo, "two")
    repo.git("worktree", "add", "-q", "../other")
    other = Repo(repo.path.parent / "other", repo.env)
    other.write("creds", "xyzzy-2")
    capture(other, "there")
    other.write("creds", "xyzzy-3")
    capture(other, "there again")
    repo.run("envlog", "drop", first, check=True)
    told = purge(repo, "creds")
    assert (told["snapshots"], told["in_trash"]) == (3, 1)
    assert holding(repo, b"creds", b"xyzzy") == []
    repo.run("envlog", "undrop", first, check=True)
    assert [one.story for one in EnvHistory.open(str(repo.path), one_command=True).log()] == [
        "+1 file",
        "1 file in all",
    ]
    assert holding(repo, b"creds", b"xyzzy") == []


def test_purge_reports_and_keeps_objects_of_others(repo: Repo) -> None:
    repo.write("creds", "xyzzy")
    repo.write("copy", "xyzzy")
    repo.commit("with it")
    capture(repo)
    (left,) = purge(repo, "creds")["left"]
    assert (left["where"], left["path"]) == ("history", "copy")
    (left,) = purge(repo, "copy")["left"]
    assert (left["where"], left["oid"]) == ("git", repo.git("rev-parse", "HEAD:creds"))
    assert repo.git("show", "HEAD:creds") == "xyzzy"
    repo.write("loose", "only loose")
    repo.git("add", "loose")
    capture(repo)
    repo.git("rm", "-q", "-f", "--cached", "loose")
    done = repo.run("envlog", "purge", "loose", check=True)
    assert "erased 'loose' from 1 snapshot" in done.out
    assert "delete them: git gc --prune=now" in done.err
    assert "contain it again (to prevent that, name it in .envhistignore)" in done.err


def test_dry_run_erases_nothing_and_reports_unknown_paths(repo: Repo) -> None:
    repo.write("sub/creds", "xyzzy")
    capture(repo, "-m", "before sub/creds changes")
    before = repo.git("for-each-ref")
    told = purge(repo, "--dry-run", "sub/creds")
    assert (told["dry_run"], told["snapshots"], told["mentioned"]) == (True, 1, 1)
    assert repo.git("for-each-ref") == before
    missed = repo.run("envlog", "purge", "nothing/here")
    assert (missed.status, missed.err.splitlines()[0]) == (4, "error: no snapshot contains 'nothing/here'")
    assert repo.run("envlog", "purge").status == 129
    assert purge(repo, "--dry-run", "sub/creds", "nowhere")["warnings"] == ["no snapshot contains 'nowhere'"]
    assert repo.run("envlog", "purge", "../outside").status == 129
    # Relative to the current directory, also after `--`.
    done = repo.run("envlog", "purge", "--", "creds", check=True, cwd="sub")
    assert "the intents or notes of 1 snapshot may mention it" in done.err
    assert holding(repo, b"xyzzy", b"\ncreds") == []


def test_purge_deletes_fetched_timelines_and_reports_pushed_ones(repo: Repo, tmp_path: Path) -> None:
    bare = make_repo(tmp_path / "bare", bare=True)
    repo.git("remote", "add", "origin", str(bare.path))
    repo.write("creds", "xyzzy")
    first = capture(repo, "one")
    repo.write("more", "1")
    second = capture(repo, "two")
    capture(repo, "three")
    repo.run("envlog", "push", "--yes", check=True)
    # A fetch skips complete timelines.
    timeline = (repo.path / ".git/envhist/timeline").read_text().strip()
    repo.git("update-ref", f"refs/envhist/heads/{timeline}", second)
    repo.run("envlog", "fetch", "--full", check=True)
    told = purge(repo, "creds")
    assert told["pushed"] == [{"remote": "origin", "url": str(bare.path), "timeline": timeline}]
    assert told["fetched"] is True
    assert holding(repo, b"creds", b"xyzzy") == []
    repo.run("envlog", "push", check=True)
    # On the remote no ref leads to it either; on another machine the ids are unchanged.
    bare.git("gc", "-q", "--prune=now")
    assert not [oid for oid, data in objects(bare.path).items() if b"xyzzy" in data]
    clone = make_repo(tmp_path / "clone")
    clone.git("remote", "add", "origin", str(bare.path))
    clone.run("envlog", "fetch", check=True)
    for one in (first, second):
        (shown,) = [json.loads(clone.run("envlog", "show", one, "--json", check=True).out)]
        assert shown["id"] == one
    assert purge(repo, "more")["pushed"][0]["remote"] == "origin"


STEPS = ("capture", "drop", "undrop", "prune", "purge", "gc", "push")


@settings(max_examples=examples(2, 8))
@given(
    st.lists(
        st.sampled_from(("capture", "drop", "undrop", "prune", "purge", "gc", "push")), min_size=3, max_size=9
    ),
    st.randoms(),
)
def test_purged_path_is_nowhere_after_any_series(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], random: Random
) -> None:
    """Every remaining snapshot is restorable byte for byte, under its original id."""
    place = tmp_path_factory.mktemp("series")
    repo, bare = make_repo(place / "repo"), make_repo(place / "bare", bare=True)
    repo.git("remote", "add", "origin", str(bare.path))
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    held: dict[str, dict[str, bytes]] = {}
    gone: dict[str, dict[str, bytes]] = {}
    erased: set[bytes] = set()
    for number, step in enumerate(["capture", "capture", *steps]):
        some = random.choice(sorted(held)) if held else None
        if step == "capture":
            repo.write(f"file-{random.randrange(4)}", b"content-%d." % number * random.randrange(1, 3))
            taken = history.capture(f"step {number}").snapshot
            assert taken is not None
            held[taken.id] = {one.name: one.read_bytes() for one in repo.path.iterdir() if one.is_file()}
        elif step == "drop" and some is not None:
            history.drop(some)
            gone[some] = held.pop(some)
        elif step == "undrop" and gone:
            back = random.choice(sorted(gone))
            history.undrop(back)
            held[back] = gone.pop(back)
        elif step == "prune" and held:
            told = history.prune(keep_last=random.randrange(1, 4))
            for decision in told.timelines[0].decisions:
                if not decision.keep:
                    gone[decision.snapshot.id] = held.pop(decision.snapshot.id)
        elif step == "purge" and some is not None:
            name = random.choice(sorted(held[some]))
            if name != "app.py":
                every = [*held.values(), *gone.values()]
                erased |= {files[name] for files in every if name in files}
                (repo.path / name).unlink(missing_ok=True)
                history.purge(str(repo.path / name))
                for files in every:
                    files.pop(name, None)
                    erased -= set(files.values())
        elif step == "gc":
            history.gc("now")
        elif step == "push" and held:
            history.push(yes=True)
    assert {one.id for one in history.log()} == held.keys()
    assert {one.snapshot.id for one in history.dropper.trash()} == gone.keys()
    for one, files in held.items():
        elsewhere = place / one
        history.restorer.write_to(history.resolve(one), str(elsewhere))
        assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == files
    assert not erased.intersection(objects(repo.path / ".git").values())
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_purge_refuses_while_a_restore_is_unfinished(repo: Repo) -> None:
    repo.write("creds", "xyzzy")
    capture(repo)
    place = repo.path / ".git/envhist/restore"
    place.mkdir()
    (place / "journal").write_bytes(b"")
    refused = repo.run("envlog", "purge", "creds")
    assert refused.status == 128
    assert "git envrestore --continue" in refused.err


def test_purge_clears_leftovers_of_killed_commands(repo: Repo) -> None:
    repo.write("creds", "xyzzy")
    capture(repo)
    state = repo.path / ".git/envhist"
    cache = Path(unmounted_base(repo.env)) / "one"
    left = ("fetched.git.going-0123", "export/work", "import/work/objects", "aside/one")
    for place in (*(state / name for name in left), cache):
        place.mkdir(parents=True)
        (place / "held").write_text("xyzzy")
    purge(repo, "creds")
    assert holding(repo, b"xyzzy") == []
    assert not cache.exists()


def test_purge_deletes_reflogs_of_own_refs(repo: Repo) -> None:
    repo.git("config", "core.logAllRefUpdates", "always")
    repo.write("creds", "xyzzy")
    capture(repo)
    ref = repo.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads")
    repo.git("update-ref", ref, repo.git("commit-tree", f"{ref}^{{tree}}", "-m", "x"))
    repo.git("update-ref", ref, f"{ref}@{{1}}")
    assert repo.git("reflog", "show", ref) != ""
    purge(repo, "creds")
    assert holding(repo, b"creds", b"xyzzy") == []


def test_purge_replaces_digests_in_verdicts(repo: Repo) -> None:
    """The digest of an environment with a short secret allows testing guesses of it."""
    repo.write("creds", "1234")
    first = capture(repo, "one")
    repo.run("envlog", "verify", "--", "true", check=True)
    # A check that changes something: the digest after it does not matter.
    repo.run("envlog", "verify", "--", "echo 2 >> other", check=True)
    repo.git("worktree", "add", "-q", "../other-tree")
    elsewhere = Repo(repo.path.parent / "other-tree", repo.env)
    capture(elsewhere, "there")
    elsewhere.run("envlog", "verify", "--", "true", check=True)
    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    before = {one.tree_before for one in history.log()[0].verdicts}
    after = {one.tree_after for one in history.log()[0].verdicts}
    untouched = EnvHistory.open(str(elsewhere.path), one_command=True).log()[0].verdicts[0].tree_before
    digests = [one.encode() for one in before | after if one is not None]
    assert len(digests) == 2
    assert holding(repo, *digests) != []

    purge(repo, "creds")

    assert holding(repo, *digests) == []
    snapshot = EnvHistory.open(str(repo.path), one_command=True).log()[0]
    assert [one.tree_before for one in snapshot.verdicts] == [snapshot.content] * 2
    assert [one.changed_something for one in snapshot.verdicts] == [False, True]
    # The verdict is still signed, and its command is known.
    assert [one.claimed_by for one in snapshot.verdicts] == [None, None]
    assert EnvHistory.open(str(repo.path), one_command=True).resolve("good").id == first
    assert VerdictLog(str(repo.path / ".git/envhist")).typed("true") == "true"
    assert (
        EnvHistory.open(str(elsewhere.path), one_command=True).log()[0].verdicts[0].tree_before == untouched
    )
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_purge_names_imports_that_it_deletes(repo: Repo, tmp_path: Path) -> None:
    repo.write("creds", "xyzzy")
    capture(repo, "one")
    repo.run("envlog", "export", str(tmp_path / "file"), "@", check=True)
    there = make_repo(tmp_path / "there")
    there.run("envlog", "import", str(tmp_path / "file"), check=True)
    (imported,) = EnvHistory.open(str(there.path), one_command=True).timelines()
    assert purge(there, "--dry-run", "creds")["imported"] == [imported]
    assert EnvHistory.open(str(there.path), one_command=True).timelines() == (imported,)
    done = there.run("envlog", "purge", "creds", check=True)
    assert f"removed for good: '{imported}', an imported timeline that no remote has" in done.out
    assert EnvHistory.open(str(there.path), one_command=True).timelines() == ()


def killing(repo: Repo, place: Path, command: str) -> dict[str, str]:
    """Return an environment in which every git with this option is killed in the middle of its output."""
    place.mkdir()
    script = place / "git"
    real = repo.execute("sh", "-c", "command -v git").out.strip()
    script.write_text(
        f"""#!/bin/sh
case " $* " in
*' {command} '*) '{real}' "$@" | head -c 30; kill -9 $$;;
esac
exec '{real}' "$@"
"""
    )
    script.chmod(0o755)
    return {**repo.env, "PATH": f"{place}:{repo.env['PATH']}"}


@pytest.mark.parametrize("command", ["for-each-ref", "ls-tree", "rev-parse"])
def test_purge_ignores_the_output_of_a_killed_git(repo: Repo, tmp_path: Path, command: str) -> None:
    repo.write("creds", "xyzzy")
    capture(repo, "one")
    repo.git("worktree", "add", "-q", "../other")
    capture(Repo(repo.path.parent / "other", repo.env), "there")
    before = [one.id for one in EnvHistory.open(str(repo.path), one_command=True).log()]
    done = repo.run("envlog", "purge", "creds", env=killing(repo, tmp_path / "bin", command))
    if done.status != 0:
        assert (done.status, done.out) == (128, "")
        assert "ended by signal 9" in done.err.splitlines()[0]
        # Paths erased by then are not found again; the others are erased.
        assert repo.run("envlog", "purge", "creds").status in (0, 4)
    assert holding(repo, b"creds", b"xyzzy") == []
    assert [one.id for one in EnvHistory.open(str(repo.path), one_command=True).log()] == before
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_list_of_remaining_objects_is_complete_or_missing(repo: Repo, tmp_path: Path) -> None:
    repo.write("creds", "xyzzy")
    repo.commit("with it")
    capture(repo, "one")
    env = killing(repo, tmp_path / "bin", "--exclude=refs/envhist/*")
    done = repo.run("envlog", "purge", "creds", check=True, env=env)
    assert "your own objects with the same content cannot be listed" in done.err
    assert "nothing needs them" not in done.err
