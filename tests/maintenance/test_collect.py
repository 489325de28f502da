"""gc removes unreachable objects and keeps reachable ones, judged by git."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.errors import EnvhistError, GitFailed
from git_envhist.git.repository import Repository
from git_envhist.maintenance import repack
from git_envhist.maintenance.gc import KEEP_NOTHING, collect_garbage
from git_envhist.maintenance.pack_usage import LONG_AGO
from git_envhist.maintenance.repack import RepositoryBusy
from git_envhist.model import GcResult, Snapshot
from git_envhist.objects import own_packs
from tests.end_to_end.captures import assert_holds
from tests.objects.packing import grow_older, noise
from tests.support.repository import Repo, make_repo


def take_snapshot(history: EnvHistory, intent: str) -> Snapshot:
    captured = history.capture(intent)
    assert captured.snapshot is not None
    return captured.snapshot


def clean(repo: Repo, keep_since: float | None = KEEP_NOTHING) -> GcResult:
    return collect_garbage(Repository.open(str(repo.path)), keep_since=keep_since)


def packs_of(repo: Repo) -> list[Path]:
    return sorted((repo.path / ".git/objects/pack").glob("*.pack"))


def size_of(repo: Repo) -> int:
    return sum(pack.stat().st_size for pack in packs_of(repo))


def exists(repo: Repo, oid: str) -> bool:
    return repo.run_git("cat-file", "-e", oid, check=False).status == 0


@pytest.fixture
def history(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


@pytest.fixture(params=["sha1", "sha256"])
def either(tmp_path: Path, request: pytest.FixtureRequest) -> Repo:
    return make_repo(tmp_path / "either", object_format=request.param)


def forget(repo: Repo, history: EnvHistory) -> None:
    """Delete the timeline by hand."""
    for ref in repo.git("for-each-ref", "--format=%(refname)", "refs/envhist", "refs/notes/envhist").split():
        repo.git("update-ref", "-d", ref)


def test_gc_keeps_every_snapshot_and_leaves_one_pack(either: Repo) -> None:
    history = EnvHistory.open(str(either.path), workers="here", one_command=True)
    moments = []
    for number in range(15):
        either.write("app.py", b"".join(b"line %d\n" % line for line in range(500 + number)))
        either.write(f"new/{number}", noise(3_000, number))
        moments.append((take_snapshot(history, f"{number}").commit, either.read("app.py")))
    before = size_of(either)

    done = clean(either)

    assert done.removed == 0
    assert len(packs_of(either)) == done.packs == 1
    assert size_of(either) == done.bytes < before == done.bytes_before
    assert either.git("fsck", "--full", "--strict", "--no-dangling") == ""
    for commit, text in moments:
        assert either.run_git("show", f"{commit}:app.py").stdout == text
    assert_holds(either, moments[-1][0])
    # git-envhist's own readers read deltas, too.
    assert history.read_file(moments[3][0], history.environment_path(b"app.py")) == moments[3][1]
    history.restore(moments[0][0])
    assert either.read("app.py") == moments[0][1]


def test_gc_frees_the_space_of_unreachable_objects(repo: Repo, history: EnvHistory) -> None:
    repo.write("large", noise(2_000_000))
    gone = take_snapshot(history, "large")
    blob = repo.git("rev-parse", f"{gone.commit}:large")
    forget(repo, history)
    (repo.path / "large").unlink()
    kept = take_snapshot(history, "small")

    done = clean(repo)

    assert not exists(repo, gone.commit)
    assert not exists(repo, blob)
    assert done.removed > 2
    assert done.bytes_before - done.bytes > 2_000_000
    assert_holds(repo, kept.commit)
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""


def test_capture_after_gc_stores_removed_objects_again(repo: Repo, history: EnvHistory) -> None:
    repo.write("large", noise(2_000_000))
    take_snapshot(history, "large")
    forget(repo, history)
    clean(repo)

    again = take_snapshot(history, "again")

    assert_holds(repo, again.commit)
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""


def test_unreachable_objects_are_kept_for_two_weeks_by_default(repo: Repo, history: EnvHistory) -> None:
    repo.write("large", noise(200_000))
    gone = take_snapshot(history, "large")
    forget(repo, history)
    (repo.path / "large").unlink()
    take_snapshot(history, "small")
    for pack in packs_of(repo):
        os.utime(pack, (time.time() - 13 * 24 * 3600,) * 2)

    first = clean(repo, keep_since=None)
    assert first.kept > 0
    assert first.removed == 0
    assert exists(repo, gone.commit)

    again = clean(repo, keep_since=None)
    assert (again.packs, again.bytes, again.kept) == (first.packs, first.bytes, first.kept)

    # Copying does not count as use: two days later they are removed.
    grow_older(repo.path / ".git", 2 * 24 * 3600)
    assert clean(repo, keep_since=None).removed == first.kept
    assert not exists(repo, gone.commit)


def test_git_gc_does_not_follow_unreachable_objects_in_own_packs(repo: Repo, history: EnvHistory) -> None:
    repo.write("large", noise(20_000))
    gone = take_snapshot(history, "large")
    forget(repo, history)
    (repo.path / "large").unlink()
    take_snapshot(history, "small")
    assert clean(repo, keep_since=None).kept > 0
    assert {pack.stat().st_mtime for pack in packs_of(repo)} == {LONG_AGO}

    # Without known ages they are kept.
    (repo.path / ".git/envhist/packs.json").unlink()
    assert clean(repo, keep_since=None).removed == 0
    grow_older(repo.path / ".git", 10 * 24 * 3600)
    # git finds an added object there, and sets the time of the pack.
    repo.write("large", noise(20_000))
    repo.git("add", "large")
    repo.git("rm", "-q", "--cached", "large")
    grow_older(repo.path / ".git", 10 * 24 * 3600)
    assert clean(repo, keep_since=None).removed == 0
    assert exists(repo, gone.commit)
    grow_older(repo.path / ".git", 5 * 24 * 3600)
    assert clean(repo, keep_since=None).removed > 0
    assert not exists(repo, gone.commit)


def test_objects_reachable_from_any_user_state_are_kept(repo: Repo, history: EnvHistory) -> None:
    words = [f"the user's {place}\n" * 50 for place in ("commit", "index", "reflog", "stash", "worktree")]
    for number, text in enumerate(words):
        repo.write(f"file{number}", text)
    take_snapshot(history, "all of it, before git has any of it")
    forget(repo, history)
    repo.git("add", "file0")
    repo.git("commit", "-q", "-m", "first")
    repo.git("add", "file2")
    repo.git("commit", "-q", "-m", "in a reflog alone")
    repo.git("reset", "-q", "--hard", "HEAD~1")
    repo.git("add", "file3")
    repo.git("stash", "-q")
    repo.git("worktree", "add", "-q", "--detach", str(repo.path.parent / "linked"))
    linked = Repo(repo.path.parent / "linked", repo.env)
    linked.write("file4", words[4])
    linked.git("add", "file4")
    repo.git("add", "file1")
    ids = [repo.git("hash-object", "--stdin", input=text) for text in words]

    assert clean(repo).removed > 0

    assert [oid for oid in ids if not exists(repo, oid)] == []
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""
    assert linked.git("fsck", "--full", "--strict", "--no-dangling") == ""


def test_objects_of_a_bisect_in_a_linked_worktree_are_kept(repo: Repo, history: EnvHistory) -> None:
    linked = Repo(repo.path.parent / "linked", repo.env)
    repo.git("worktree", "add", "-q", "--detach", str(linked.path))
    linked.write("only here", "text")
    tree = repo.git("write-tree")
    lost = repo.git("commit-tree", tree, "-m", "of a bisect alone")
    linked.git("update-ref", "refs/bisect/bad", lost)
    repo.write("x", "y")
    take_snapshot(history, "one")

    clean(repo)

    assert exists(repo, lost)


def test_unreadable_ref_stops_gc(repo: Repo, history: EnvHistory) -> None:
    repo.write("x", "y")
    before = take_snapshot(history, "one")
    forget(repo, history)
    (repo.path / ".git/refs/heads/broken").write_text("0123456789" * 4 + "\n")

    with pytest.raises(GitFailed):
        clean(repo)

    assert exists(repo, before.commit)


def test_inherited_packs_of_a_clone_are_removed_and_needed_objects_kept(
    repo: Repo, history: EnvHistory
) -> None:
    repo.write("large", noise(500_000))
    repo.write("committed", b"captured first, committed then\n" * 20)
    take_snapshot(history, "before")
    repo.git("add", "committed")
    repo.git("commit", "-q", "-m", "committed")
    repo.git("clone", "-q", "--local", ".", "../clone")
    clone = Repo(repo.path.parent / "clone", repo.env)
    assert list((clone.path / ".git/objects/pack").glob("*.keep"))

    done = clean(clone)

    assert done.bytes < 10_000 < done.bytes_before
    assert clone.git("fsck", "--full", "--strict", "--no-dangling") == ""
    assert clone.git("show", "HEAD:committed").startswith("captured first")


def test_git_gc_and_its_caches_work_after_gc(repo: Repo, history: EnvHistory) -> None:
    for number in range(4):
        repo.write("x", noise(20_000, number))
        take_snapshot(history, f"{number}")
        repo.commit(f"{number}")
    repo.git("multi-pack-index", "write")
    repo.git("commit-graph", "write", "--reachable")
    forget(repo, history)
    take_snapshot(history, "anew")

    assert clean(repo).removed > 0

    for words in (("fsck", "--full", "--strict"), ("gc", "-q", "--prune=now"), ("repack", "-adq"), ("fsck",)):
        repo.git(*words)


def test_gc_removes_nothing_while_a_git_works_from_packs(
    repo: Repo, history: EnvHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write("x", "y")
    take_snapshot(history, "one")
    forget(repo, history)
    (repo.path / ".git/gc.pid").write_text("1 another-machine")
    monkeypatch.setattr("git_envhist.maintenance.repack.PAUSE", 0.0)
    before = {path.name for path in packs_of(repo)}

    with pytest.raises(RepositoryBusy):
        clean(repo)

    assert {path.name for path in packs_of(repo)} == before


def test_git_started_during_removal_misses_no_pack(
    repo: Repo, history: EnvHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write("x", "y")
    take_snapshot(history, "one")
    forget(repo, history)
    missed: list[object] = []
    monkeypatch.setattr(repack, "put_aside", lambda *words: missed.append(words))

    def tell(step: str) -> None:
        if step == "putting them in place":
            (repo.path / ".git/gc.pid").write_text("1 another-machine")

    with pytest.raises(RepositoryBusy):
        collect_garbage(Repository.open(str(repo.path)), keep_since=KEEP_NOTHING, progress=tell)

    assert not missed


def test_open_commit_editor_does_not_block_gc(
    repo: Repo, history: EnvHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        repo.write("x", noise(9_000, number))
        take_snapshot(history, f"{number}")
    repo.git("add", "x")
    opened, go_on = repo.path.parent / "opened", repo.path.parent / "go-on"
    os.mkfifo(opened)
    os.mkfifo(go_on)
    script = repo.path.parent / "editor"
    script.write_text(f'#!/bin/sh\necho here > {opened}\nread word < {go_on}\necho message > "$1"\n')
    script.chmod(0o755)
    commit = subprocess.Popen(
        ["git", "-c", f"core.editor={script}", "commit", "-q"], cwd=repo.path, env=repo.env
    )
    assert opened.read_text() == "here\n"

    assert clean(repo).packs == 1
    monkeypatch.setattr("git_envhist.maintenance.repack.PAUSE", 0.01)
    forget(repo, history)
    with pytest.raises(RepositoryBusy, match="git commit"):
        clean(repo)

    go_on.write_text("\n")
    assert commit.wait() == 0
    assert clean(repo).removed > 0
    repo.git("fsck", "--full", "--strict", "--no-dangling")


def test_object_reused_by_a_concurrent_capture_is_kept(repo: Repo, history: EnvHistory) -> None:
    text = noise(30_000)
    repo.write("large", text)
    take_snapshot(history, "large")
    forget(repo, history)
    repo.write("other", "x")
    (repo.path / "large").unlink()
    take_snapshot(history, "without it")
    found: list[Snapshot] = []

    def tell(step: str) -> None:
        if step == "writing packs":
            repo.write("large again", text)
            found.append(
                take_snapshot(
                    EnvHistory.open(str(repo.path), workers="here", one_command=True), "found again"
                )
            )

    done = collect_garbage(Repository.open(str(repo.path)), keep_since=KEEP_NOTHING, progress=tell)

    assert done.removed > 0
    assert_holds(repo, found[0].commit)
    repo.git("fsck", "--full", "--strict", "--no-dangling")


@pytest.mark.parametrize("when", ["before the last question", "after it"])
def test_object_added_by_git_during_removal_is_kept(
    repo: Repo, history: EnvHistory, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    text = noise(30_000)
    repo.write("large", text)
    take_snapshot(history, "large")
    forget(repo, history)
    repo.write(".envhistignore", "large\n")
    take_snapshot(history, "small")
    oid = repo.git("hash-object", "large")

    def add(*arguments: object) -> None:
        # git finds the object in a pack of git-envhist, and does not store it again.
        repo.git("add", "large")
        if arguments:
            handover_put_aside(*arguments)

    handover_put_aside = repack.put_aside
    if when == "after it":
        monkeypatch.setattr(repack, "put_aside", add)
        with pytest.raises(RepositoryBusy):
            clean(repo)
    else:
        steps = {"putting them in place": add}
        collect_garbage(
            Repository.open(str(repo.path)),
            keep_since=KEEP_NOTHING,
            progress=lambda step: steps.get(step, lambda: None)(),
        )

    assert exists(repo, oid)
    repo.git("fsck", "--full", "--strict", "--no-dangling")
    assert list((repo.path / ".git/objects" / oid[:2]).glob("*")) == []


def test_object_added_again_while_packs_are_written_is_kept(repo: Repo, history: EnvHistory) -> None:
    mine = b"captured once, and forgotten\n"
    repo.write("mine", mine)
    take_snapshot(history, "it holds it")
    forget(repo, history)
    grow_older(repo.path / ".git", 20 * 24 * 3600)
    added = []

    def add(step: str) -> None:
        if step == "writing packs":
            # git finds the object in a pack of git-envhist and does not store it; no index and no ref names it yet.
            told = repo.execute("git", "hash-object", "-w", "--stdin", input=mine)
            added.append(told.out.strip())

    done = collect_garbage(Repository.open(str(repo.path)), progress=add)

    assert exists(repo, added[0])
    assert done.removed == 0
    # The object is removed when its time is over.
    grow_older(repo.path / ".git", 20 * 24 * 3600)
    collect_garbage(Repository.open(str(repo.path)))
    assert not exists(repo, added[0])


def test_object_added_again_right_before_removal_restores_the_packs(
    repo: Repo, history: EnvHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ref reaches the object, so only the time of the pack shows its use."""
    mine = b"captured once, and forgotten\n"
    repo.write("mine", mine)
    take_snapshot(history, "it holds it")
    forget(repo, history)
    grow_older(repo.path / ".git", 20 * 24 * 3600)
    really = repack.put_aside
    added = []

    def put_aside(pack_dir: str, aside: str, bases: Sequence[str]) -> None:
        told = repo.execute("git", "hash-object", "-w", "--stdin", input=mine)
        added.append(told.out.strip())
        really(pack_dir, aside, bases)

    monkeypatch.setattr(repack, "put_aside", put_aside)
    with pytest.raises(RepositoryBusy, match="needed again"):
        collect_garbage(Repository.open(str(repo.path)))
    monkeypatch.undo()
    assert exists(repo, added[0])
    assert collect_garbage(Repository.open(str(repo.path))).removed == 0
    assert exists(repo, added[0])


@pytest.mark.parametrize("comes_back", [True, False])
def test_disk_error_during_removal_loses_no_pack(
    repo: Repo, history: EnvHistory, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    for number in range(2):
        repo.write("file", noise(3_000, number))
        take_snapshot(history, f"{number}")
    forget(repo, history)
    before = {path.name for path in packs_of(repo)}
    moves = 0
    really = os.rename

    def refusing(source: str, target: str) -> None:
        nonlocal moves
        moves += "/aside/" in source + target
        if moves > 2 and not (comes_back and moves > 3):
            raise OSError(errno.EIO, "Input/output error", source, None, target)
        really(source, target)

    monkeypatch.setattr(own_packs.os, "rename", refusing)
    with pytest.raises(EnvhistError, match="cannot access"):
        clean(repo)
    monkeypatch.undo()

    take_snapshot(history, "the next sweep brings back what the disk would not take")
    assert before <= {path.name for path in packs_of(repo)}
    assert all(
        path.with_suffix(".idx").exists() and path.with_suffix(".keep").exists() for path in packs_of(repo)
    )
    assert repo.git("fsck", "--full", "--strict", "--no-dangling") == ""
