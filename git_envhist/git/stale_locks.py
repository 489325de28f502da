"""Locks of refs that a dead git left."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from git_envhist.errors import EnvhistError
from git_envhist.git.running_git import LONG_AGO, STALE_AFTER, AtWork, RunningGit, is_hidden

GRAIN = 0.05
"""Seconds. The start of a process is measured in ticks of another clock than the time of a file."""
INTERVAL = 0.1
# fmt: off
ONLY_READ = frozenset((
    "blame", "cat-file", "credential-cache--daemon", "daemon", "diff", "diff-files", "diff-index", "diff-tree",
    "for-each-ref", "fsmonitor--daemon", "grep", "log", "ls-files", "ls-tree", "rev-list", "rev-parse", "shortlog",
    "show", "status",
))
# fmt: on
"""Commands that lock no ref; some run for hours, under an editor or a pager."""


class Lock(NamedTuple):
    """A lock file: the time and the user of its creation."""

    made: float
    uid: int


class RefLocked(EnvhistError):
    """The lock file of a ref exists."""

    code = "ref-locked"

    def __init__(self, lock: str) -> None:
        super().__init__(
            f"a ref is locked by '{lock}'",
            hint="another git holds it, or was killed while it did: run the command again; "
            "if no git runs in this repository, remove that file",
        )


def remove_stale_lock(path: str, at_work: AtWork) -> bool:
    """Remove a lock whose git is dead and return whether it is gone. For our own refs, with the working tree locked.

    A lock that no running git can have created is waited for until it is old enough.
    """
    lock = _read_lock(path)
    while lock is not None and not may_be_in_use(lock, at_work()):
        if _age(lock.made) >= STALE_AFTER:
            return _unlink(path)
        time.sleep(INTERVAL)
        if (now := _read_lock(path)) != lock:
            return now is None
    return False


def sweep_locks(places: Iterable[str], at_work: AtWork) -> int:
    """Remove locks that killed gits left below some directories at least an hour ago; return their number."""
    found = [
        (path, lock)
        for place in places
        for directory, _, names in os.walk(place)
        for path in (os.path.join(directory, name) for name in names if name.endswith(".lock"))
        if (lock := _read_lock(path)) is not None and _age(lock.made) >= LONG_AGO
    ]
    if not found:
        return 0
    gits = at_work()
    return sum(not may_be_in_use(lock, gits) and _unlink(path) for path, lock in found)


def may_be_in_use(lock: Lock, gits: Sequence[RunningGit] | None) -> bool:
    """Return whether one of these gits may have created a lock; True if the processes are not known."""
    return gits is None or any(_may_have_made(lock, git) for git in gits)


def _may_have_made(lock: Lock, git: RunningGit) -> bool:
    if git.started > lock.made + GRAIN or git.command in ONLY_READ:
        return False
    # A file belongs to the user of the process that made it.
    return not is_hidden(git) or (git.writes and git.uid == lock.uid)


def _read_lock(path: str) -> Lock | None:
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return Lock(seen.st_mtime, seen.st_uid) if stat.S_ISREG(seen.st_mode) else None


def _age(made: float) -> float:
    # A time in the future means that the clock was set back.
    age = time.time() - made
    return age if age >= 0 else LONG_AGO


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True
