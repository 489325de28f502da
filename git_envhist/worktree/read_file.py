"""Read one file that other programs may be writing.

The file is opened without following links and without blocking. Its stat is compared before and after the
read, and the read is repeated until both are equal. A file changed within the clock granularity is read only
after the clock has moved on. A file that keeps changing is returned as read last and marked unstable. No file
is mapped into memory, because a truncation would kill the process; no size is trusted, so reading continues
to the end of file within a limit.
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

READ_TRIES = 10
CLOCK_GRANULARITY_NS = 20_000_000
"""More than a kernel tick (at most 10 ms), within which two changes can have the same time stamp."""
SECOND_NS = 1_000_000_000
MAX_GRANULARITY_NS = 2 * SECOND_NS + CLOCK_GRANULARITY_NS
BLOCK = 1 << 20
Block = bytes | int
"""Bytes, or the length of a hole (zero bytes not stored on disk)."""
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | NOFOLLOW
open_here = os.open if SYSTEM.nofollow else open_compared
NO_ATIME = getattr(os, "O_NOATIME", 0)
SEEK_DATA: int | None = getattr(os, "SEEK_DATA", None)
SEEK_HOLE: int | None = getattr(os, "SEEK_HOLE", None)
HUGE = 1 << 40
DISK_BLOCK = 512
"""Unit of `st_blocks`."""


class Unreadable(Exception):
    """The content of a path cannot be read, with the reason."""

    def __init__(self, why: MissingReason, detail: str) -> None:
        super().__init__(detail)
        self.why = why
        self.detail = detail


class FileVanished(Exception):
    """The path does not exist anymore."""


class KindChanged(Exception):
    """The type of the path changed; examine it again."""


class GrewTooLarge(Exception):
    """The file is too large for memory."""


class FileRead(NamedTuple):
    """The bytes of a file and the stat they belong to."""

    data: bytes
    stat: os.stat_result
    stable: bool


def open_file(name: bytes) -> int:
    """Return a descriptor of a regular file in the current directory, without changing its atime if
    permitted."""
    return open_with_stat(name)[0]


def open_with_stat(name: bytes) -> tuple[int, os.stat_result]:
    """Return the same descriptor and its stat."""
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
    """Return the stat of a name in the current directory. Raise `FileVanished` or `Unreadable`."""
    try:
        return os.lstat(name)
    except FileNotFoundError as gone:
        raise FileVanished from gone
    except OSError as error:
        raise unreadable(error) from error


def stat_of(descriptor: int) -> os.stat_result:
    """Return the stat of an open file. Raise `Unreadable` on an I/O error."""
    try:
        return os.fstat(descriptor)
    except OSError as error:
        raise unreadable(error) from error


def _open(name: bytes) -> int:
    if NO_ATIME:
        try:
            return open_here(name, OPEN_FLAGS | NO_ATIME)
        except PermissionError:
            pass  # only the owner may use O_NOATIME
    return open_here(name, OPEN_FLAGS)


def read_file(
    descriptor: int,
    seen: os.stat_result | None = None,
    *,
    is_append_only: bool = False,
    limit: int | None = None,
) -> FileRead:
    """Return a consistent copy of an open file, marked unstable if none could be read.

    `seen` is its current stat. `is_append_only` means that the file is only appended to, so the bytes up to its first
    size are consistent. Raise `GrewTooLarge` if it has `limit` bytes or more.
    """
    data = b""
    before = stat_of(descriptor) if seen is None else seen
    for attempt in range(READ_TRIES):
        before, settled = _wait_until_settled(descriptor, before)
        if limit is not None and before.st_size >= limit:
            raise GrewTooLarge
        data = _read_to_end(descriptor, before.st_size)
        after = stat_of(descriptor)
        if is_append_only and len(data) >= before.st_size:
            return FileRead(data[: before.st_size], before, stable=True)
        if settled and COLUMNS(before) == COLUMNS(after) and len(data) == after.st_size:
            return FileRead(data, after, stable=True)
        before = after
        time.sleep(0.001 * attempt)
    return FileRead(data, before, stable=False)


def read_streamed(
    descriptor: int, consume: Callable[[Iterator[Block]], None], *, is_append_only: bool = False
) -> tuple[os.stat_result, bool]:
    """Pass a large file in blocks to `consume`; return its stat and whether it was stable.

    `consume` is called again from the start while the file changes, and must drop what it got before.
    """
    before = stat_of(descriptor)
    for attempt in range(READ_TRIES):
        before, settled = _wait_until_settled(descriptor, before)
        counted = _CountingIterator(
            _blocks(descriptor, before.st_size if is_append_only else before.st_size + 1)
        )
        consume(counted)
        after = stat_of(descriptor)
        if is_append_only and counted.size == before.st_size:
            return before, True
        if settled and COLUMNS(before) == COLUMNS(after) and counted.size == after.st_size:
            return after, True
        before = after
        time.sleep(0.01 * attempt)
    return before, False


class _CountingIterator:
    """Iterate over blocks and count their bytes."""

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
    # Reading one byte more than expected detects growth, and limits a file without end.
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
    if _has_hidden_holes(descriptor, size):
        raise Unreadable(MissingReason.BUDGET, f"{size} bytes, and its file system does not report holes")
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


def _has_hidden_holes(descriptor: int, size: int) -> bool:
    """Return whether a huge sparse file would take days to read, because its file system does not report
    holes."""
    if size < HUGE or stat_of(descriptor).st_blocks * DISK_BLOCK > size // 64:
        return False
    try:
        return SEEK_HOLE is None or os.lseek(descriptor, 0, SEEK_HOLE) >= size
    except OSError:
        return True


def _end_of_hole(descriptor: int, at: int, size: int) -> int:
    """Return where data starts at or after `at`; the end of the file if no data follow."""
    if SEEK_DATA is None:
        return at
    try:
        return min(size, os.lseek(descriptor, at, SEEK_DATA))
    except OSError as error:
        if error.errno != errno.ENXIO:
            return at  # the file system does not support SEEK_DATA
    # The caller reads one byte past the end to detect growth; that byte is not part of the hole.
    return min(size, max(at, stat_of(descriptor).st_size))


def _wait_until_settled(descriptor: int, seen: os.stat_result) -> tuple[os.stat_result, bool]:
    """Return the stat after the clock moved on, and whether any later change must show in it."""
    wait = _young_ns(seen)
    if wait:
        time.sleep(wait / SECOND_NS)
        seen = stat_of(descriptor)
    # A write changes the time stamps when it starts, and may take longer than the granularity. SEEK_DATA
    # waits for the lock that a writer holds during its call (ext4, btrfs, f2fs, tmpfs); on XFS read does.
    _end_of_hole(descriptor, 0, seen.st_size)
    return seen, not wait or not _young_ns(seen)


def _young_ns(seen: os.stat_result) -> int:
    """Return for how many nanoseconds the file can still change without changing its time stamps."""
    now = time.time_ns()
    if seen.st_ctime_ns <= now - MAX_GRANULARITY_NS and seen.st_mtime_ns <= now - MAX_GRANULARITY_NS:
        return 0
    # A time stamp in the future would change.
    young = [
        when + timestamp_granularity(when) - now
        for when in (seen.st_ctime_ns, seen.st_mtime_ns)
        if when <= now
    ]
    return max([0, *young])


def timestamp_granularity(time_ns: int) -> int:
    """Return within how many nanoseconds two changes can have the same time stamp."""
    # A whole second is rarely chance: some file systems store whole seconds, FAT only even ones.
    if time_ns % SECOND_NS:
        return CLOCK_GRANULARITY_NS
    return SECOND_NS + CLOCK_GRANULARITY_NS if time_ns // SECOND_NS % 2 else MAX_GRANULARITY_NS


def is_gone(error: OSError) -> bool:
    """Return whether the error means that the path does not exist with the expected type."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def unreadable(error: OSError) -> Unreadable:
    """Return the reason to record in the snapshot for a file system error."""
    why = MissingReason.UNREADABLE if error.errno in (errno.EACCES, errno.EPERM) else MissingReason.IO_ERROR
    return Unreadable(why, os.strerror(error.errno or 0).lower())
