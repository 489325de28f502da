"""Reads one living file truthfully.

A file is opened without following a link and without waiting for anybody, asked who it is before and after the last
byte, and read again while the two answers differ. A file written within the clock's grain of our look can change
again and keep its time stamps, so such a file is read only after the clock has moved on. What never stands still is
kept as it was read last, and said to be unstable. No file is mapped into memory: one that shrinks meanwhile would
kill us. No size is trusted: reading goes on to the end, within a bound.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from git_envhist.capture.byname import open_compared
from git_envhist.capture.records import COLUMNS
from git_envhist.model import WhyMissing
from git_envhist.system import NOFOLLOW, SYSTEM

TRIES = 10
CLOCK_GRAIN_NS = 20_000_000
"""More than a kernel tick (at most 10 ms): two changes within it can share a time stamp."""
SECOND_NS = 1_000_000_000
BLOCK = 1 << 20
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | NOFOLLOW
open_here = os.open if SYSTEM.nofollow else open_compared
NO_ATIME = getattr(os, "O_NOATIME", 0)
SEEK_DATA: int | None = getattr(os, "SEEK_DATA", None)


class Unreadable(Exception):
    """The bytes of a path cannot be had, and why."""

    def __init__(self, why: WhyMissing, detail: str) -> None:
        super().__init__(detail)
        self.why = why
        self.detail = detail


class Vanished(Exception):
    """The path is no longer there."""


class OtherKind(Exception):
    """The path is no longer what it was: look at it again."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file's bytes, and the stat that they were true for."""

    data: bytes
    stat: os.stat_result
    stable: bool


def open_file(name: bytes) -> int:
    """A descriptor on a regular file of the current directory, with its atime left alone where we may."""
    try:
        descriptor = _open(name)
    except FileNotFoundError as gone:
        raise Vanished from gone
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR):
            raise OtherKind from error
        raise unreadable(error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OtherKind
    return descriptor


def _open(name: bytes) -> int:
    if NO_ATIME:
        try:
            return open_here(name, OPEN_FLAGS | NO_ATIME)
        except PermissionError:
            pass  # only the owner may leave an atime alone; reading is allowed to more
    return open_here(name, OPEN_FLAGS)


def read_file(descriptor: int, *, grows: bool = False) -> FileRead:
    """The whole of an open file as it was at one moment; marked where no such moment was to be had.

    `grows`: the file is only ever appended to as long as we look, so that what was there at first is such a moment.
    """
    data = b""
    before = os.fstat(descriptor)
    for attempt in range(TRIES):
        before, settled = _past_the_grain(descriptor, before)
        data = _read_to_end(descriptor, before.st_size)
        after = os.fstat(descriptor)
        if grows and len(data) >= before.st_size:
            return FileRead(data[: before.st_size], before, stable=True)
        if settled and COLUMNS(before) == COLUMNS(after) and len(data) == after.st_size:
            return FileRead(data, after, stable=True)
        before = after
        time.sleep(0.001 * attempt)
    return FileRead(data, before, stable=False)


def read_streamed(
    descriptor: int, consume: Callable[[Iterator[bytes]], None], *, grows: bool = False
) -> tuple[os.stat_result, bool]:
    """Hand a large file block by block to `consume`, from the start again while it changes; its stat, and whether
    it stood still. `consume` must forget what it was given before each time it is called."""
    before = os.fstat(descriptor)
    for attempt in range(TRIES):
        before, settled = _past_the_grain(descriptor, before)
        counted = _Counted(_blocks(descriptor, before.st_size if grows else before.st_size + 1))
        consume(counted)
        after = os.fstat(descriptor)
        if grows and counted.size == before.st_size:
            return before, True
        if settled and COLUMNS(before) == COLUMNS(after) and counted.size == after.st_size:
            return after, True
        before = after
        time.sleep(0.01 * attempt)
    return before, False


class _Counted:
    """An iterator of blocks that knows how many bytes went by."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks = blocks
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        block = next(self.blocks)
        self.size += len(block)
        return block


def _read_to_end(descriptor: int, size: int) -> bytes:
    # One byte more than expected tells a file that grew; twice the size bounds one that never ends.
    os.lseek(descriptor, 0, os.SEEK_SET)
    chunks = []
    left = size + 1
    try:
        chunk = os.read(descriptor, left)
        if len(chunk) == size:
            return chunk
        chunks.append(chunk)
        left -= len(chunk)
        while left > 0 and (chunk := os.read(descriptor, left)):
            chunks.append(chunk)
            left -= len(chunk)
    except OSError as error:
        raise unreadable(error) from error
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _blocks(descriptor: int, left: int) -> Iterator[bytes]:
    os.lseek(descriptor, 0, os.SEEK_SET)
    while left > 0:
        try:
            block = os.read(descriptor, min(BLOCK, left))
        except OSError as error:
            raise unreadable(error) from error
        if not block:
            return
        left -= len(block)
        yield block


def _past_the_grain(descriptor: int, seen: os.stat_result) -> tuple[os.stat_result, bool]:
    """The stat once the clock has moved on, and whether a change from now on cannot but show in it."""
    wait = _youth(seen)
    if wait:
        time.sleep(wait / SECOND_NS)
        seen = os.fstat(descriptor)
    _let_writer_end(descriptor)
    return seen, not wait or not _youth(seen)


def _let_writer_end(descriptor: int) -> None:
    # A write shows in the time stamps when it begins, and a long one goes on for longer than any grain. To look for
    # data takes the lock that a writer holds until its call ends (ext4, btrfs, f2fs, tmpfs); XFS reads take it anyway.
    if SEEK_DATA is not None:
        try:  # noqa: SIM105 -- once for each file: a context manager costs more than the call
            os.lseek(descriptor, 0, SEEK_DATA)
        except OSError:
            pass  # no data: the lock was taken all the same


def _youth(seen: os.stat_result) -> int:
    """For how long a file can still change and keep its time stamps."""
    now = time.time_ns()
    # A time to come is none that a change would keep.
    young = [when + grain(when) - now for when in (seen.st_ctime_ns, seen.st_mtime_ns) if when <= now]
    return max([0, *young])


def grain(time_ns: int) -> int:
    """Within what time two changes can share this time stamp."""
    # A whole second is hardly ever chance: some file systems keep no more.
    return CLOCK_GRAIN_NS if time_ns % SECOND_NS else SECOND_NS + CLOCK_GRAIN_NS


def unreadable(error: OSError) -> Unreadable:
    """The reason that a snapshot gives for an error of the file system."""
    why = WhyMissing.UNREADABLE if error.errno in (errno.EACCES, errno.EPERM) else WhyMissing.IO_ERROR
    return Unreadable(why, os.strerror(error.errno or 0).lower())
