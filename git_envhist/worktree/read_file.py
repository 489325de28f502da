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
from typing import NamedTuple

from git_envhist.model import MissingReason
from git_envhist.platform import NOFOLLOW, SYSTEM, open_compared
from git_envhist.worktree.stat_cache import COLUMNS

TRIES = 10
CLOCK_GRAIN_NS = 20_000_000
"""More than a kernel tick (at most 10 ms): two changes within it can share a time stamp."""
SECOND_NS = 1_000_000_000
MAX_GRAIN_NS = 2 * SECOND_NS + CLOCK_GRAIN_NS
BLOCK = 1 << 20
Block = bytes | int
"""Some bytes; or a number, which stands for so many NULs that no disk holds."""
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | NOFOLLOW
open_here = os.open if SYSTEM.nofollow else open_compared
NO_ATIME = getattr(os, "O_NOATIME", 0)
SEEK_DATA: int | None = getattr(os, "SEEK_DATA", None)
SEEK_HOLE: int | None = getattr(os, "SEEK_HOLE", None)
VAST = 1 << 40
DISK_BLOCK = 512
"""What `st_blocks` counts."""


class Unreadable(Exception):
    """The bytes of a path cannot be had, and why."""

    def __init__(self, why: MissingReason, detail: str) -> None:
        super().__init__(detail)
        self.why = why
        self.detail = detail


class FileVanished(Exception):
    """The path is no longer there."""


class KindChanged(Exception):
    """The path is no longer what it was: look at it again."""


class GrewTooLarge(Exception):
    """The file has become too large to be held in memory."""


class FileRead(NamedTuple):
    """A file's bytes, and the stat that they were true for."""

    data: bytes
    stat: os.stat_result
    stable: bool


def open_file(name: bytes) -> int:
    """A descriptor on a regular file of the current directory, with its atime left alone where we may."""
    return open_with_stat(name)[0]


def open_with_stat(name: bytes) -> tuple[int, os.stat_result]:
    """The same, and the stat of the open file."""
    try:
        descriptor = _open(name)
    except FileNotFoundError as gone:
        raise FileVanished from gone
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENOTDIR):
            raise KindChanged from error
        raise unreadable(error) from error
    try:
        seen = stat_of(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise KindChanged
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, seen


def lstat_of(name: bytes) -> os.stat_result:
    """Return the stat of a name in the current directory; `FileVanished` or `Unreadable` if there is none."""
    try:
        return os.lstat(name)
    except FileNotFoundError as gone:
        raise FileVanished from gone
    except OSError as error:
        raise unreadable(error) from error


def stat_of(descriptor: int) -> os.stat_result:
    """Return the stat of an open file; `Unreadable` if the file system fails."""
    try:
        return os.fstat(descriptor)
    except OSError as error:
        raise unreadable(error) from error


def _open(name: bytes) -> int:
    if NO_ATIME:
        try:
            return open_here(name, OPEN_FLAGS | NO_ATIME)
        except PermissionError:
            pass  # only the owner may leave an atime alone; reading is allowed to more
    return open_here(name, OPEN_FLAGS)


def read_file(
    descriptor: int, seen: os.stat_result | None = None, *, grows: bool = False, limit: int | None = None
) -> FileRead:
    """The whole of an open file as it was at one moment; marked where no such moment was to be had.

    `seen`: its stat of just now. `grows`: the file is only ever appended to as long as we look, so that what was
    there at first is such a moment. `GrewTooLarge` where it has `limit` bytes or more.
    """
    data = b""
    before = stat_of(descriptor) if seen is None else seen
    for attempt in range(TRIES):
        before, settled = _past_the_grain(descriptor, before)
        if limit is not None and before.st_size >= limit:
            raise GrewTooLarge
        data = _read_to_end(descriptor, before.st_size)
        after = stat_of(descriptor)
        if grows and len(data) >= before.st_size:
            return FileRead(data[: before.st_size], before, stable=True)
        if settled and COLUMNS(before) == COLUMNS(after) and len(data) == after.st_size:
            return FileRead(data, after, stable=True)
        before = after
        time.sleep(0.001 * attempt)
    return FileRead(data, before, stable=False)


def read_streamed(
    descriptor: int, consume: Callable[[Iterator[Block]], None], *, grows: bool = False
) -> tuple[os.stat_result, bool]:
    """Hand a large file block by block to `consume`, from the start again while it changes; its stat, and whether
    it stood still. `consume` must forget what it was given before each time it is called."""
    before = stat_of(descriptor)
    for attempt in range(TRIES):
        before, settled = _past_the_grain(descriptor, before)
        counted = _CountingIterator(_blocks(descriptor, before.st_size if grows else before.st_size + 1))
        consume(counted)
        after = stat_of(descriptor)
        if grows and counted.size == before.st_size:
            return before, True
        if settled and COLUMNS(before) == COLUMNS(after) and counted.size == after.st_size:
            return after, True
        before = after
        time.sleep(0.01 * attempt)
    return before, False


class _CountingIterator:
    """An iterator of blocks that knows how many bytes went by."""

    def __init__(self, blocks: Iterator[Block]) -> None:
        self.blocks = blocks
        self.size = 0

    def __iter__(self) -> Iterator[Block]:
        return self

    def __next__(self) -> Block:
        block = next(self.blocks)
        self.size += block if isinstance(block, int) else len(block)
        return block


def _read_to_end(descriptor: int, size: int) -> bytes:
    # One byte more than expected tells a file that grew, and bounds one that never ends.
    try:
        data = os.pread(descriptor, size + 1, 0)
        if len(data) == size:
            return data
        chunks, got = [data], len(data)
        while got <= size and (data := os.pread(descriptor, size + 1 - got, got)):
            chunks.append(data)
            got += len(data)
    except OSError as error:
        raise unreadable(error) from error
    return b"".join(chunks)


def _blocks(descriptor: int, size: int) -> Iterator[Block]:
    if _hides_its_holes(descriptor, size):
        raise Unreadable(
            MissingReason.BUDGET, f"{size} bytes, and its file system does not tell which are none"
        )
    at = 0
    while at < size:
        end = _end_of_hole(descriptor, at, size)
        if end - at >= BLOCK:
            yield end - at
            at = end
            continue
        try:
            block = os.pread(descriptor, min(BLOCK, size - at), at)
        except OSError as error:
            raise unreadable(error) from error
        if not block:
            return
        at += len(block)
        yield block


def _hides_its_holes(descriptor: int, size: int) -> bool:
    """Whether to read a file takes days because nobody says where it holds nothing."""
    if size < VAST or stat_of(descriptor).st_blocks * DISK_BLOCK > size // 64:
        return False
    try:
        return SEEK_HOLE is None or os.lseek(descriptor, 0, SEEK_HOLE) >= size
    except OSError:
        return True


def _end_of_hole(descriptor: int, at: int, size: int) -> int:
    """Where data begin again, at or behind a place in a file; at the end of the file where there are no more."""
    if SEEK_DATA is None:
        return at
    try:
        return min(size, os.lseek(descriptor, at, SEEK_DATA))
    except OSError as error:
        if error.errno != errno.ENXIO:
            return at  # a file system that does not know
    # To ask for one byte more than there is finds a file that grew; it is no part of the hole.
    return min(size, max(at, stat_of(descriptor).st_size))


def _past_the_grain(descriptor: int, seen: os.stat_result) -> tuple[os.stat_result, bool]:
    """The stat once the clock has moved on, and whether a change from now on cannot but show in it."""
    wait = _youth(seen)
    if wait:
        time.sleep(wait / SECOND_NS)
        seen = stat_of(descriptor)
    # A write shows in the time stamps when it begins, and a long one goes on for longer than any grain. To look for
    # data takes the lock that a writer holds until its call ends (ext4, btrfs, f2fs, tmpfs); XFS reads take it anyway.
    _end_of_hole(descriptor, 0, seen.st_size)
    return seen, not wait or not _youth(seen)


def _youth(seen: os.stat_result) -> int:
    """For how long a file can still change and keep its time stamps."""
    now = time.time_ns()
    if seen.st_ctime_ns <= now - MAX_GRAIN_NS and seen.st_mtime_ns <= now - MAX_GRAIN_NS:
        return 0
    # A time to come is none that a change would keep.
    young = [
        when + timestamp_granularity(when) - now
        for when in (seen.st_ctime_ns, seen.st_mtime_ns)
        if when <= now
    ]
    return max([0, *young])


def timestamp_granularity(time_ns: int) -> int:
    """Within what time two changes can share this time stamp."""
    # A whole second is hardly ever chance: some file systems keep no more, and FAT every other one alone.
    if time_ns % SECOND_NS:
        return CLOCK_GRAIN_NS
    return SECOND_NS + CLOCK_GRAIN_NS if time_ns // SECOND_NS % 2 else MAX_GRAIN_NS


def is_gone(error: OSError) -> bool:
    """Return whether the error means that nothing of the expected kind exists at a path."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def unreadable(error: OSError) -> Unreadable:
    """The reason that a snapshot gives for an error of the file system."""
    why = MissingReason.UNREADABLE if error.errno in (errno.EACCES, errno.EPERM) else MissingReason.IO_ERROR
    return Unreadable(why, os.strerror(error.errno or 0).lower())
