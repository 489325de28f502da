"""A disk that records every write and flush, so that a power failure can be simulated at any of them.

`python -m tests.crash.disk IMAGE LOG PLACE` serves the image as the file `disk` below a directory; a loop device uses
it as a disk. Every write is appended to the log: a header and the bytes. A simulated failure keeps everything up to
the last flush, and an arbitrary part of later writes in arbitrary order, as a drive's cache may.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.fuse import ENTRY, READ_IN, ROOT, Server

RECORD = struct.Struct("<QI")
FLUSHED = (1 << 64) - 1
DISK = 2
SECTOR = 512


class LoggedDisk(Server):
    """A file that writes to an image and to a log."""

    def __init__(self, image: str, log: str) -> None:
        super().__init__(os.path.dirname(image))
        self._paths[DISK] = os.fsencode(image)
        self._image = os.open(image, os.O_RDWR)
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def lookup(self, node: int, words: bytes) -> bytes:
        if node != ROOT or words != b"disk\0":
            raise FileNotFoundError(errno.ENOENT, "not here")
        return ENTRY.pack(DISK, 0, 0, 0, 0, 0) + self.attributes(self.path(DISK))

    def read(self, node: int, words: bytes) -> bytes:
        _, offset, size, _ = READ_IN.unpack_from(words)
        return os.pread(self._image, size, offset)

    def write(self, node: int, words: bytes) -> bytes:
        _, offset, size, _ = READ_IN.unpack_from(words)
        data = words[-size:]
        os.write(self._log, RECORD.pack(offset, size) + data)
        os.pwrite(self._image, data, offset)
        return struct.pack("<II", size, 0)

    def fsync(self, node: int, words: bytes) -> bytes:
        os.write(self._log, RECORD.pack(FLUSHED, 0))
        return b""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written at an offset; None: a flush. `end` is the position in the log."""

    offset: int | None
    data: bytes
    end: int


def read_log(path: Path) -> Iterator[Write]:
    """Return the entries of the log in order."""
    log = path.read_bytes()
    at = 0
    while at < len(log):
        offset, size = RECORD.unpack_from(log, at)
        data = log[at + RECORD.size : at + RECORD.size + size]
        at += RECORD.size + size
        yield Write(None if offset == FLUSHED else offset, data, at)


class Platter:
    """The contents that are certainly on disk at a position of the log; later writes are in the drive's cache."""

    def __init__(self, image: Path, log: list[Write]) -> None:
        self._file = os.open(image, os.O_RDWR)
        self._log = log
        self._flushed = 0

    def cut(self, at: int, chance: random.Random) -> list[tuple[int, bytes]]:
        """Reset the image to the last flush before the n-th entry; return some of the later writes, as if these
        reached the disk."""
        pending: list[Write] = []
        for entry in self._log[self._flushed : at]:
            if entry.offset is not None:
                pending.append(entry)
                continue
            for write in pending:
                os.pwrite(self._file, write.data, write.offset or 0)
            self._flushed += len(pending) + 1
            pending = []
        manner = chance.choice(("all of it", "none of it", "some of it"))
        if manner == "none of it":
            return []
        lucky = [one for write in pending for one in _sectors(write)]
        if manner == "some of it":
            lucky = [one for one in lucky if chance.random() < 0.5]
        return lucky

    def close(self) -> None:
        os.close(self._file)


def _sectors(write: Write) -> Iterator[tuple[int, bytes]]:
    # No drive tears a sector; ext4 relies only on whole sectors.
    for at in range(0, len(write.data), 4096):
        yield (write.offset or 0) + at, write.data[at : at + 4096]


def apply(image: Path, writes: list[tuple[int, bytes]]) -> None:
    """Apply other writes that reached the disk."""
    with open(image, "r+b") as file:
        for offset, data in writes:
            os.pwrite(file.fileno(), data, offset)


if __name__ == "__main__":
    assert stat.S_ISREG(os.stat(sys.argv[1]).st_mode)
    LoggedDisk(sys.argv[1], sys.argv[2]).serve(sys.argv[3])
