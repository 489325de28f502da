"""Commands that rewrite a history end with an error when another process never releases a lock."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from git_envhist import EnvHistory, SnapshotNotFound, locks
from git_envhist.locks import StillLocked
from git_envhist.snapshots import staging
from tests.end_to_end.captures import capture
from tests.support.repository import Repo

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
LOCKS = ("lock.shared", "lock.upkeep", "staging/turn")


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Start a process that holds a lock, and return its pid."""
    words = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield holder.pid
        holder.communicate()


@pytest.mark.parametrize("name", LOCKS)
def test_purge_names_the_process_that_holds_a_lock(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for module in (locks, staging):
        monkeypatch.setattr(module, "LOCK_TIMEOUT", 0.1)
    repo.write("tab\t", b"1")
    capture(repo, "one")
    history = EnvHistory.open(str(repo.path), environ=repo.env)
    with held(repo.path / ".git/envhist" / name) as pid, pytest.raises(StillLocked) as raised:
        history.purge("tab\t")
    assert f"{name}' is still locked by python" in raised.value.message
    assert f"({pid})" in raised.value.message
    # The same command completes the purge; then no snapshot contains the path.
    with suppress(SnapshotNotFound):
        history.purge("tab\t")
    with pytest.raises(SnapshotNotFound):
        history.purge("tab\t")


def test_lock_that_is_released_in_time_is_taken(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as file:
        assert locks.lock_within(file.fileno(), fcntl.LOCK_EX, "lock", 0.0)
        with open(tmp_path / "lock") as other, pytest.raises(StillLocked, match=f"\\({os.getpid()}\\)"):
            locks.lock_within(other.fileno(), fcntl.LOCK_EX, "lock", 0.0)
