"""Locks on files of the state directory, shared or exclusive."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from git_envhist.disk import cannot_write
from git_envhist.errors import EnvhistError
from git_envhist.platform import NOFOLLOW, SYSTEM, guard_descriptor, guarded_open

LOCK_TIMEOUT = 600.0
"""Seconds that commands which rewrite or clean a history wait for other processes."""
COMMON_LOCK = "lock.shared"
"""The name of the lock in the common state: captures share it, and removing packs takes it alone."""
UPKEEP_LOCK = "lock.upkeep"
"""The name of the lock for writing merged packs. Captures do not wait for it."""
NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP))
RETRY_INTERVAL = 0.05
NO_LOCKS_HINT = "set XDG_RUNTIME_DIR to a directory of yours on a local disk"


class LocksUnavailable(EnvhistError):
    """The file system has no locks, and no lock can be created in a local directory."""

    code = "no-locks"


class StillLocked(EnvhistError):
    """Another process held a lock longer than the timeout."""

    code = "locked"


def lock_file(descriptor: int, kind: int) -> bool:
    """Lock an open file until its descriptor is closed; return False if the lock is in a local directory instead.

    Raise BlockingIOError if another process holds it and `kind` contains LOCK_NB.
    """
    if SYSTEM.flock:
        try:
            fcntl.flock(descriptor, kind)
            return True
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
    local = _open_local_lock(os.fstat(descriptor))
    try:
        fcntl.flock(local, kind)
        # The lock takes the descriptor's number: closing the number releases it, and a child that inherits it holds
        # it.
        os.dup2(local, descriptor, inheritable=os.get_inheritable(descriptor))
        guard_descriptor(descriptor)
    finally:
        os.close(local)
    return False


def _open_local_lock(seen: os.stat_result) -> int:
    import tempfile  # loaded late: nearly every file system has locks

    place = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    place = os.path.join(place, f"git-envhist-{os.getuid()}")
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        made = os.lstat(place)
        if not stat.S_ISDIR(made.st_mode) or made.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "owned by another user")
        path = os.path.join(place, f"{seen.st_dev:x}-{seen.st_ino:x}")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NOFOLLOW, 0o600)
    except OSError as error:
        raise LocksUnavailable(
            f"the file system has no locks, and none can be created in '{place}'", hint=NO_LOCKS_HINT
        ) from error


def lock_within(descriptor: int, kind: int, path: str, limit: float) -> bool:
    """Lock an open file as `lock_file` does; raise StillLocked with the holders' names after `limit` seconds."""
    until = time.monotonic() + limit
    while True:
        try:
            return lock_file(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise _still_locked(descriptor, path, limit) from None
        time.sleep(RETRY_INTERVAL)


def _still_locked(descriptor: int, path: str, limit: float) -> StillLocked:
    holders = ", ".join(_holders(os.fstat(descriptor))) or "another process"
    return StillLocked(
        f"'{path}' is still locked by {holders} after {limit:g} s",
        hint="run the command again when it has ended",
    )


def _holders(seen: os.stat_result) -> Iterator[str]:
    """Yield the name and pid of each process that /proc/locks lists as a holder of the lock."""
    place = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    # A process that cannot be named is left out.
    with suppress(OSError), open("/proc/locks", encoding="ascii") as file:
        rows = [line.split() for line in file]
        for pid in sorted({row[4] for row in rows if len(row) > 5 and row[5] == place and row[4].isdigit()}):
            with suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as name:
                yield f"{name.read().strip()} ({pid})"


@contextmanager
def locked(
    path: str,
    *,
    shared: bool = False,
    waiting: Callable[[], None] | None = None,
    reading: bool = False,
    limited: bool = False,
) -> Iterator[None]:
    """Hold a lock; `waiting` is called once if another process holds it.

    `reading` is for callers that change nothing: if the lock file cannot be created or opened, they run without a
    lock. `limited` raises StillLocked after `LOCK_TIMEOUT` seconds.
    """
    try:
        descriptor = guarded_open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if not reading:
            raise cannot_write(error, path) from error
        try:
            descriptor = guarded_open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            yield
            return
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        try:
            lock_file(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            if limited:
                lock_within(descriptor, kind, path, LOCK_TIMEOUT)
            else:
                lock_file(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def try_lock(path: str) -> Iterator[bool]:
    """Hold a lock if it is free; yield whether it is held."""
    descriptor = guarded_open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            lock_file(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
