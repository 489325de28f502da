"""The lock files that git puts beside a ref while it moves it: whose they are when they do not go away.

A git that is killed in that moment leaves its lock for ever, and every later capture would fail. Nothing in the file
says who made it: git closes it before it renames it, so that no open file tells either. Taken away is only a lock on
a ref of ours, by who holds the kernel's lock of the working tree (no other capture moves the ref), when it has stood
for a while (git holds one for milliseconds), and no git that may have made it is at work in this repository. Where the
system does not tell, it stays, and a person is told.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from git_envhist.errors import EnvhistError
from git_envhist.store.atwork import RunningGit, is_hidden

STALE_AFTER = 5.0
"""Seconds. A git that we cannot see (in another container, on another machine) has long moved its ref by then."""
LONG_AGO = 3600.0
"""Seconds, where nobody is waiting for it to go."""
GRAIN = 0.05
"""Processes are dated by the ticks of another clock than files."""
INTERVAL = 0.1
WAIT = (
    *("-c", "core.filesRefLockTimeout=2000"),
    *("-c", "core.packedRefsTimeout=5000"),
    *("-c", "reftable.lockTimeout=2000"),
)
"""How long git itself waits for another git: what packs refs holds each for a moment, and whoever moves one in tables
(reftable) holds all of them."""
TABLES_LOCK = "reftable/tables.list.lock"
"""It stands for the user's refs as well as ours: left by a git that was killed, it is a person's to remove."""
# fmt: off
ONLY_READ = frozenset((
    "blame", "cat-file", "credential-cache--daemon", "daemon", "diff", "diff-files", "diff-index", "diff-tree",
    "for-each-ref", "fsmonitor--daemon", "grep", "log", "ls-files", "ls-tree", "rev-list", "rev-parse", "shortlog",
    "show", "status",
))
# fmt: on
"""Commands that lock no ref; some of them run for hours, below an editor or a pager."""

AtWork = Callable[[], Sequence[RunningGit] | None]


class Lock(NamedTuple):
    """A lock file: the time and the user that made it."""

    made: float
    uid: int


class RefLocked(EnvhistError):
    """Somebody holds the lock of a ref, or died with it."""

    code = "ref-locked"

    def __init__(self, lock: str) -> None:
        super().__init__(
            f"a ref is locked by '{lock}'",
            hint="another git is at work there, or was killed: run the command again; "
            "if no git runs in this repository, remove that file",
        )


def remove_stale_lock(path: str, at_work: AtWork) -> bool:
    """Take away a lock whose git is dead; whether it went. For refs of ours, with the working tree locked.

    A lock that no living git can have made is waited for until it is old enough.
    """
    lock = _look(path)
    while lock is not None and not may_be_held(lock, at_work()):
        if _age(lock.made) >= STALE_AFTER:
            return _unlink(path)
        time.sleep(INTERVAL)
        if (now := _look(path)) != lock:
            return now is None
    return False


def sweep_locks(places: Iterable[str], at_work: AtWork) -> int:
    """Take away the locks that killed gits left below some directories, an hour ago or longer; how many went."""
    found = [
        (path, lock)
        for place in places
        for directory, _, names in os.walk(place)
        for path in (os.path.join(directory, name) for name in names if name.endswith(".lock"))
        if (lock := _look(path)) is not None and _age(lock.made) >= LONG_AGO
    ]
    if not found:
        return 0
    gits = at_work()
    return sum(not may_be_held(lock, gits) and _unlink(path) for path, lock in found)


def may_be_held(lock: Lock, gits: Sequence[RunningGit] | None) -> bool:
    """Return whether one of these gits may have made a lock; True where the processes are not known."""
    return gits is None or any(_may_have_made(lock, git) for git in gits)


def _may_have_made(lock: Lock, git: RunningGit) -> bool:
    if git.started > lock.made + GRAIN or git.command in ONLY_READ:
        return False
    # A file belongs to the user of the process that made it.
    return not is_hidden(git) or (git.writes and git.uid == lock.uid)


def _look(path: str) -> Lock | None:
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return Lock(seen.st_mtime, seen.st_uid) if stat.S_ISREG(seen.st_mode) else None


def _age(made: float) -> float:
    # One from the future, a clock having been set back, is old.
    age = time.time() - made
    return age if age >= 0 else LONG_AGO


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # as good
    except OSError:
        return False
    return True
