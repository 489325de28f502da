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

The `-shm` holds no data and is never part of a snapshot. Locks belong to a process and go when it closes any
descriptor of the file: this must run in a worker of our own, never inside a program that uses the database itself.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

MAGIC = b"SQLite format 3\0"
SMALLEST_PAGE = 512
LOG, JOURNAL, SHARED_MEMORY = b"-wal", b"-journal", b"-shm"
SIDECARS = (LOG, JOURNAL, SHARED_MEMORY)

PENDING_BYTE = 0x40000000
RESERVED_BYTE = PENDING_BYTE + 1
SHARED_FIRST, SHARED_SIZE = PENDING_BYTE + 2, 510
CHECKPOINT_BYTE = 121
READER_BYTES, READERS = 124, 4
"""The locks of readers that use the log; they keep it from being started over."""

PATIENCE_SECONDS = 5.0
FLOCK = struct.Struct("hhqqi4x")
BUSY = (errno.EAGAIN, errno.EACCES)


class Restless(Exception):
    """The database could not be held still, and why."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A database that stands still."""

    writer_at_work: bool
    """Somebody is writing a transaction right now; its rollback journal is of no use to anybody else."""


def is_database(descriptor: int, size: int) -> bool:
    """Whether an open file is a SQLite database, by its first bytes."""
    if size < SMALLEST_PAGE or size % SMALLEST_PAGE:
        return False
    return os.pread(descriptor, len(MAGIC), 0) == MAGIC


def base_of(name: bytes) -> bytes | None:
    """The database that a sidecar would belong to, by its name."""
    for suffix in SIDECARS:
        if name.endswith(suffix) and len(name) > len(suffix):
            return name.removesuffix(suffix)
    return None


@contextmanager
def held_still(descriptor: int, name: bytes) -> Iterator[Hold]:
    """Hold the database that is open on `descriptor` and called `name` here; `Restless` where somebody else won't
    let go of it in time, or where the file system knows no locks."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    _patiently(lambda: _share_database(descriptor), deadline)
    memory = -1
    try:
        memory = _open_memory(name)
        if memory >= 0:
            _patiently(lambda: _share_log(memory), deadline)
        yield Hold(_is_locked(descriptor, RESERVED_BYTE))
    finally:
        if memory >= 0:
            os.close(memory)
        with suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_UN, SHARED_SIZE, SHARED_FIRST)


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
        fcntl.lockf(memory, fcntl.LOCK_SH | fcntl.LOCK_NB, READERS, READER_BYTES)
    except OSError:
        fcntl.lockf(memory, fcntl.LOCK_UN, 1, CHECKPOINT_BYTE)
        raise


def _open_memory(name: bytes) -> int:
    try:
        return os.open(name + SHARED_MEMORY, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise Restless(
            f"its shared memory cannot be opened: {os.strerror(error.errno or 0).lower()}"
        ) from error


def _patiently(lock: object, deadline: float) -> None:
    assert callable(lock)
    wait = 0.001
    while True:
        try:
            lock()
            return
        except OSError as error:
            if error.errno not in BUSY:
                raise Restless(f"it cannot be locked: {os.strerror(error.errno or 0).lower()}") from error
            if time.monotonic() > deadline:
                raise Restless("another program keeps it locked") from error
        time.sleep(wait)
        # A busy writer lets readers in for moments only: look often.
        wait = min(wait * 2, 0.004)


def _is_locked(descriptor: int, byte: int) -> bool:
    """Whether another process holds a lock on a byte that would keep us from writing it."""
    asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    try:
        kind, *_ = FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return False
    return bool(kind != fcntl.F_UNLCK)
