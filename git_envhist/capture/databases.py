"""Holds a SQLite database still while it is read, by the very locks that SQLite's own readers take.

The files themselves are what a snapshot keeps, raw and exact: the database and its log or journal as one unit. Opening
the database through SQLite instead would write into the user's files (even a read-only connection rewrites the
`-shm`), or would keep a copy that is no longer the same bytes.

- In rollback mode a writer changes the database only under an exclusive lock. With the shared one held, the file is
  as the last commit left it; a journal next to it belongs to a transaction that has changed nothing yet, unless
  nobody holds the reserved lock: then it is hot, left by a crash, and belongs to the unit.
- In WAL mode the database changes only while somebody checkpoints, and the log is only appended to unless somebody
  starts it over. Both need locks in the `-shm` that a shared one on the same bytes keeps from them. Writers go on
  writing; what was committed before we looked is in what we read, and a torn tail is what recovery drops.
- What is not there cannot be locked: a database without a log may be opened, and get one, while we read. So it is
  asked afterwards whether everything still is what it was.

The `-shm` holds no data and is never part of a snapshot. Locks belong to a process and go when it closes any
descriptor of the file: this must run in a worker of our own, never inside a program that uses the database itself.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from git_envhist.model import SQLITE_HEADER, SQLITE_SIDECARS
from git_envhist.system import open_itself
from git_envhist.values import dataclass

SMALLEST_PAGE = 512
LOG, JOURNAL, SHARED_MEMORY = SIDECARS = SQLITE_SIDECARS
LOG_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"

PENDING_BYTE = 0x40000000
RESERVED_BYTE = PENDING_BYTE + 1
SHARED_FIRST, SHARED_SIZE = PENDING_BYTE + 2, 510
CHECKPOINT_BYTE = 121
READER_BYTE = 127
"""The lock of one reader of the log. It keeps the log from being started over, for which all of them are needed; the
others are left to readers, who wait for us where they find none."""

PATIENCE_SECONDS = 5.0
"""For how long a database is waited for."""
DATABASES_WAITED_FOR, LEAST_SECONDS = 2, 0.05
"""So many may cost all of that; each further one that is kept from us costs no more than a look."""
LINUX, BSD = struct.Struct("hhqqi4x"), struct.Struct("qqihh")
"""`struct flock`, as the C libraries lay it out."""
BUSY = (errno.EAGAIN, errno.EACCES)


Identity = tuple[int, int]


class DatabaseBusy(Exception):
    """The database could not be held still, and why."""


@dataclass(frozen=True, slots=True)
class DatabaseLock:
    """A database that stands still."""

    is_hot: bool
    """A journal is there that a crash has left. One that comes later, or that somebody is writing, belongs to a
    transaction that has changed nothing yet, and is of no use to anybody else."""
    memory: Identity | None
    """The shared memory whose locks are held."""


def is_sidecar(descriptor: int, name: bytes) -> bool:
    """Whether an open file is the log or the journal of a database, by its first bytes: those of an encrypted
    database, which cannot be told by its own, stand in the clear."""
    if name.endswith(LOG):
        return _first_bytes(descriptor, 4) in LOG_MAGIC
    return name.endswith(JOURNAL) and _first_bytes(descriptor, len(JOURNAL_MAGIC)) == JOURNAL_MAGIC


def is_database(descriptor: int, size: int) -> bool:
    """Whether an open file is a SQLite database, by its first bytes."""
    if size < SMALLEST_PAGE or size % SMALLEST_PAGE:
        return False
    return _first_bytes(descriptor, len(SQLITE_HEADER)) == SQLITE_HEADER


def _first_bytes(descriptor: int, size: int) -> bytes:
    try:
        return os.pread(descriptor, size, 0)
    except OSError:
        return b""  # whoever reads the whole of it will say what is wrong


def base_of(name: bytes) -> bytes | None:
    """The database that a sidecar would belong to, by its name."""
    for suffix in SIDECARS:
        if name.endswith(suffix) and len(name) > len(suffix):
            return name.removesuffix(suffix)
    return None


class WaitBudget:
    """What is left of the time that a capture waits for databases."""

    def __init__(self) -> None:
        self._left = PATIENCE_SECONDS * DATABASES_WAITED_FOR

    @contextmanager
    def waiting(self) -> Iterator[float]:
        """Until when to wait; how long it was is counted."""
        started = time.monotonic()
        try:
            yield started + max(LEAST_SECONDS, min(PATIENCE_SECONDS, self._left))
        finally:
            self._left -= time.monotonic() - started


@contextmanager
def locked_database(descriptor: int, name: bytes, patience: WaitBudget) -> Iterator[DatabaseLock]:
    """Hold the database that is open on `descriptor` and called `name` here; `DatabaseBusy` where somebody else won't
    let go of it in time, or where the file system knows no locks."""
    with patience.waiting() as deadline:
        _patiently(lambda: _share_database(descriptor), deadline)
    memory = -1
    try:
        memory = _open_memory(name)
        if memory >= 0:
            with patience.waiting() as deadline:
                _patiently(lambda: _share_log(memory), deadline)
        # In this order: a journal that is there although nobody writes was there before we came.
        has_journal = os.path.lexists(name + JOURNAL)
        is_hot = has_journal and not is_locked(descriptor, RESERVED_BYTE)
        yield DatabaseLock(is_hot, _identity(os.fstat(memory)) if memory >= 0 else None)
    finally:
        if memory >= 0:
            os.close(memory)
        with suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_UN, SHARED_SIZE, SHARED_FIRST)


def changed_during_lock(descriptor: int, name: bytes, hold: DatabaseLock) -> str | None:
    """What has happened, to be asked at the end of the hold, that the locks could not keep away."""
    if _identity_of(name) != _identity(os.fstat(descriptor)):
        return "another one took its place"
    if _identity_of(name + SHARED_MEMORY) != hold.memory:
        return "somebody opened it"
    return None


def _identity_of(name: bytes) -> Identity | None:
    try:
        return _identity(os.lstat(name))
    except OSError:
        return None


def _identity(seen: os.stat_result) -> Identity:
    return seen.st_dev, seen.st_ino


def _share_database(descriptor: int) -> None:
    # Through the pending byte, as SQLite does: a writer that waits for readers to end lets no new one in.
    fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, PENDING_BYTE)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, SHARED_SIZE, SHARED_FIRST)
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, PENDING_BYTE)


def _share_log(memory: int) -> None:
    fcntl.lockf(memory, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, CHECKPOINT_BYTE)
    try:
        fcntl.lockf(memory, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, READER_BYTE)
    except OSError:
        fcntl.lockf(memory, fcntl.LOCK_UN, 1, CHECKPOINT_BYTE)
        raise


def _open_memory(name: bytes) -> int:
    try:
        return open_itself(name + SHARED_MEMORY, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise DatabaseBusy(
            f"its shared memory cannot be opened: {os.strerror(error.errno or 0).lower()}"
        ) from error


def _patiently(lock: object, deadline: float) -> None:
    assert callable(lock)
    wait = 0.000_1
    while True:
        try:
            lock()
            return
        except OSError as error:
            if error.errno not in BUSY:
                raise DatabaseBusy(f"it cannot be locked: {os.strerror(error.errno or 0).lower()}") from error
            if time.monotonic() > deadline:
                raise DatabaseBusy("another program keeps it locked") from error
        time.sleep(wait)
        # Programs that write and checkpoint one after the other let a reader in for moments only: look often.
        wait = min(wait * 2, 0.000_4)


def is_locked(descriptor: int, byte: int, length: int = 1) -> bool:
    """Whether another process has a lock on some bytes that would keep us from writing them; 0: all from there on."""
    is_linux = sys.platform.startswith("linux")
    asked = (
        LINUX.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, length, 0)
        if is_linux
        else BSD.pack(byte, length, 0, fcntl.F_WRLCK, os.SEEK_SET)
    )
    try:
        told = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    except OSError:
        return False
    kind = LINUX.unpack(told)[0] if is_linux else BSD.unpack(told)[3]
    return bool(kind != fcntl.F_UNLCK)
