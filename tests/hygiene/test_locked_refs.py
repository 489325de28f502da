"""Locks next to our refs: a capture waits for them, reports them, and removes them only if their git has ended."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from git_envhist.git.repository import TIMELINE_REFS, RefUpdate, Repository
from git_envhist.git.running_git import STALE_AFTER, TABLES_LOCK, gits_at_work
from git_envhist.git.stale_locks import Lock, may_be_in_use, sweep_locks
from tests.end_to_end.captures import assert_holds, capture, history
from tests.hygiene.user_data import worktree
from tests.support.gits import git_with_reftable
from tests.support.oracle import git_fsck
from tests.support.repository import Repo, make_repo

LONG_AGO = STALE_AFTER + 60
HAS_PROCESS_LIST = gits_at_work("/", []) is not None
needs_processes = pytest.mark.skipif(not HAS_PROCESS_LIST, reason="this system has no list of processes")


def lock_next_to(repo: Repo, prefix: str, age: float) -> Path:
    ref = repo.git("for-each-ref", "--format=%(refname)", prefix)
    lock = repo.path / ".git" / f"{ref}.lock"
    lock.touch()
    os.utime(lock, (time.time() - age,) * 2)
    return lock


@pytest.fixture
def git_running(repo: Repo) -> Iterator[None]:
    """Run a git in this repository that may hold any lock: it waits for input."""
    words = ["git", "update-ref", "--stdin"]
    waiting = subprocess.Popen(words, cwd=repo.path, stdin=subprocess.PIPE, env=repo.env)
    _until_it_runs(waiting.pid)
    yield
    waiting.communicate()


def _until_it_runs(pid: int) -> None:
    # Between fork and exec a child has the name of its parent.
    while HAS_PROCESS_LIST and Path(f"/proc/{pid}/comm").read_text() != "git\n":
        time.sleep(0.01)


@pytest.mark.usefixtures("git_running")
def test_lock_that_a_running_git_may_hold_is_reported_and_kept(repo: Repo) -> None:
    capture(repo, "first")
    known = history(repo)
    lock = lock_next_to(repo, "refs/envhist", 0)
    done = repo.run("envlog", "capture", "-m", "second")
    assert done.status == 128
    assert done.out == ""
    assert done.err.splitlines()[0] == f"error: a ref is locked by '{lock}'"
    assert done.err.splitlines()[1].startswith("hint: ")
    assert len(done.err.splitlines()) == 2
    assert lock.exists()
    assert history(repo) == known
    lock.unlink()
    assert_holds(repo, capture(repo, "second"))
    assert git_fsck(repo.path) == ""


@needs_processes
@pytest.mark.parametrize("age", [1, LONG_AGO])
def test_lock_of_a_dead_git_is_removed(repo: Repo, age: float) -> None:
    capture(repo, "first")
    locks = [lock_next_to(repo, prefix, age) for prefix in ("refs/envhist", "refs/notes/envhist")]
    done = repo.run("envlog", "capture", "-m", "second", check=True)
    assert done.err == ""
    assert not any(lock.exists() for lock in locks)
    assert len(history(repo)) == 2


@needs_processes
def test_git_in_another_repository_or_a_reading_git_holds_no_lock(repo: Repo) -> None:
    capture(repo, "first")
    elsewhere = make_repo(repo.path / "env" / "elsewhere")
    words: list[tuple[tuple[str, ...], Path]] = [
        (("git", "update-ref", "--stdin"), elsewhere.path),
        (("git", "cat-file", "--batch"), repo.path),
    ]
    others = [subprocess.Popen(w, cwd=cwd, stdin=subprocess.PIPE, env=repo.env) for w, cwd in words]
    lock = lock_next_to(repo, "refs/envhist", 1)
    capture(repo, "second")
    assert not lock.exists()
    assert len(history(repo)) == 2
    for other in others:
        other.communicate()


@needs_processes
@pytest.mark.parametrize("how", ["directory", "below", "word", "environment", "worktree"])
def test_running_git_is_found_however_it_was_given_the_repository(
    repo: Repo, tmp_path: Path, how: str
) -> None:
    (repo.path / "below").mkdir()
    (tmp_path / "outside").mkdir()
    linked = worktree(repo, "linked", "other")
    moved = linked.path.rename(tmp_path / "moved")
    git_dir = str(repo.path / ".git")
    places = {"directory": repo.path, "below": repo.path / "below", "worktree": moved}
    options = [f"--git-dir={git_dir}"] if how == "word" else []
    env = {**repo.env, **({"GIT_DIR": git_dir} if how == "environment" else {})}
    started = subprocess.Popen(
        ["git", *options, "-c", "core.pager=cat", "update-ref", "--stdin"],
        cwd=places.get(how, tmp_path / "outside"),
        env=env,
        stdin=subprocess.PIPE,
    )
    _until_it_runs(started.pid)
    here = gits_at_work(git_dir, [str(repo.path)])
    there = gits_at_work(str(make_repo(tmp_path / "other").path / ".git"), [str(tmp_path / "other")])
    # Other git processes may be listed, too; only this one is checked.
    assert (started.pid, "update-ref") in [(git.pid, git.command) for git in here or []]
    assert started.pid not in [git.pid for git in there or []]
    started.communicate()


@pytest.mark.usefixtures("git_running")
def test_capture_waits_for_a_short_lock(repo: Repo) -> None:
    capture(repo, "first")
    lock = lock_next_to(repo, "refs/envhist", 0)
    threading.Timer(0.8, lock.unlink).start()
    assert_holds(repo, capture(repo, "second"))


@pytest.mark.usefixtures("git_running")
def test_locked_notes_ref_costs_only_the_note(repo: Repo) -> None:
    capture(repo, "first")
    lock = lock_next_to(repo, "refs/notes/envhist", 0)
    done = repo.run("envlog", "capture", "--porcelain", "-m", "second", check=True)
    assert "the note could not be written, the snapshot is whole" in done.err
    lock.unlink()
    assert_holds(repo, done.out.strip())


def test_other_locks_of_the_user_are_not_removed(repo: Repo) -> None:
    capture(repo, "first")
    locks = [
        repo.path / ".git" / name
        for name in ("index.lock", "HEAD.lock", "refs/heads/main.lock", "config.lock")
    ]
    for lock in locks:
        lock.touch()
        os.utime(lock, (time.time() - LONG_AGO,) * 2)
    assert_holds(repo, capture(repo, "second"))
    assert all(lock.exists() for lock in locks)


def trash_locks(repo: Repo, *ages: float) -> list[Path]:
    """Create locks next to refs in the trash, which never move again, as a killed git leaves them."""
    locks = []
    for number, age in enumerate(ages):
        lock = repo.path / f".git/refs/envhist/trash/2026-11-19/{number:040x}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        os.utime(lock, (time.time() - age,) * 2)
        locks.append(lock)
    return locks


@needs_processes
def test_gc_removes_old_locks_of_our_refs(repo: Repo) -> None:
    capture(repo, "first")
    old, young = trash_locks(repo, 2 * 3600, 60)
    users = repo.write(".git/refs/heads/theirs.lock", b"")
    os.utime(users, (time.time() - 2 * 3600,) * 2)
    repo.run("envlog", "gc", check=True)
    assert [lock.exists() for lock in (old, young, users)] == [False, True, True]


@needs_processes
def test_gc_keeps_a_lock_that_a_running_git_may_hold(repo: Repo) -> None:
    capture(repo, "first")
    words = ["git", "update-ref", "--stdin"]
    waiting = subprocess.Popen(words, cwd=repo.path, stdin=subprocess.PIPE, env=repo.env)
    _until_it_runs(waiting.pid)
    [lock] = trash_locks(repo, 0)
    at_work = Repository.open(str(repo.path)).gits_at_work
    assert not may_be_in_use(Lock(0.0, os.getuid()), at_work())
    assert sweep_locks([str(lock.parent)], at_work) == 0
    os.utime(lock, (time.time() + 7200,) * 2)
    assert sweep_locks([str(lock.parent)], at_work) == 0
    waiting.communicate()
    assert sweep_locks([str(lock.parent)], at_work) == 1


@pytest.fixture
def tables(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """Create a repository with reftable: all refs are in tables with one lock."""
    git_with_reftable().put_first(monkeypatch)
    made = Repo(tmp_path / "tables", {**repo.env, "PATH": os.environ["PATH"]})
    made.path.mkdir()
    made.git("init", "-q", "--template=", "--ref-format=reftable")
    made.write("app.py", b"print('hello')\n")
    made.commit("first commit")
    return made


def test_update_waits_for_a_short_lock_on_all_refs(tables: Repo) -> None:
    tip = capture(tables, "first")
    repository = Repository.open(str(tables.path))
    lock = tables.path / ".git" / TABLES_LOCK
    lock.touch()
    # Longer than git's own timeout for this lock.
    threading.Timer(0.5, lock.unlink).start()
    repository.move_refs([RefUpdate(TIMELINE_REFS + "host/more", tip, None)])
    assert repository.resolve_ref(TIMELINE_REFS + "host/more") == tip


def test_leftover_lock_on_all_refs_is_reported_and_kept(tables: Repo) -> None:
    first = capture(tables, "first")
    lock = tables.path / ".git" / TABLES_LOCK
    lock.touch()
    done = tables.run("envlog", "capture", "-m", "second")
    assert (done.status, done.out) == (128, "")
    assert done.err.splitlines()[0] == f"error: a ref is locked by '{lock}'"
    assert "remove that file" in done.err
    assert lock.exists()
    lock.unlink()
    second = capture(tables, "second")
    assert history(tables) == [second, first]
    assert git_fsck(tables.path) == ""
