"""A lock that git left beside a ref of ours: waited for, told, and removed only where its git is surely dead."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from git_envhist.store.reflocks import STALE_AFTER, oldest_git
from tests.end_to_end.captures import assert_holds, capture, history
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

LONG_AGO = STALE_AFTER + 60


def lock_beside(repo: Repo, prefix: str, age: float) -> Path:
    ref = repo.git("for-each-ref", "--format=%(refname)", prefix)
    lock = repo.path / ".git" / f"{ref}.lock"
    lock.touch()
    os.utime(lock, (time.time() - age,) * 2)
    return lock


def test_a_young_lock_is_told_and_left(repo: Repo) -> None:
    capture(repo, "first")
    known = history(repo)
    lock = lock_beside(repo, "refs/envhist", 1)
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


@pytest.mark.skipif(oldest_git() is None, reason="this system does not tell of its processes")
def test_an_old_lock_of_a_dead_git_goes(repo: Repo) -> None:
    if (oldest_git() or 0) < time.time() - LONG_AGO:
        pytest.skip("a git has been running on this machine for long")
    capture(repo, "first")
    locks = [lock_beside(repo, prefix, LONG_AGO) for prefix in ("refs/envhist", "refs/notes/envhist")]
    done = repo.run("envlog", "capture", "-m", "second", check=True)
    assert done.err == ""
    assert not any(lock.exists() for lock in locks)
    assert len(history(repo)) == 2


def test_an_old_lock_stays_while_a_git_of_its_time_runs(repo: Repo) -> None:
    capture(repo, "first")
    reader = subprocess.Popen(
        ["git", "cat-file", "--batch"], cwd=repo.path, stdin=subprocess.PIPE, env=repo.env
    )
    try:
        lock = lock_beside(repo, "refs/envhist", 0)
        # As if both had been there for long: the lock is younger than the git that runs.
        at = time.time() + 3600
        assert not _removed(lock, at)
        assert lock.exists()
    finally:
        reader.communicate()


def _removed(lock: Path, now: float) -> bool:
    from git_envhist.store.reflocks import remove_stale_lock

    return remove_stale_lock(str(lock), now)


def test_a_lock_that_goes_soon_is_waited_for(repo: Repo) -> None:
    capture(repo, "first")
    lock = lock_beside(repo, "refs/envhist", 0)
    threading.Timer(0.8, lock.unlink).start()
    assert_holds(repo, capture(repo, "second"))


def test_a_locked_notes_ref_costs_the_note_alone(repo: Repo) -> None:
    capture(repo, "first")
    lock = lock_beside(repo, "refs/notes/envhist", 1)
    done = repo.run("envlog", "capture", "--porcelain", "-m", "second", check=True)
    assert "the note could not be written, the snapshot is whole" in done.err
    lock.unlink()
    assert_holds(repo, done.out.strip())


def test_other_locks_of_the_users_are_never_touched(repo: Repo) -> None:
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
