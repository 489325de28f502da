"""What is known of one directory, as one packed value: the unit of the scan, of the cache and of the trees.

A record holds the directory's own stat, the names of its entries, their stat columns in one array, the ids their
bytes were stored under, and what else a manifest line says; and what trees stand below it, so that a change far down
concerns the records on the way to it and no others. Comparing a directory with its record is one comparison of two
byte strings, made in C. The encoding is a fixed header and length-prefixed sections; nothing in it can run, so a
cache that somebody else wrote can at worst be wrong, and a wrong checksum is no cache at all.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter

from git_envhist.values import dataclass, field

COLUMNS = attrgetter("st_ctime_ns", "st_mtime_ns", "st_size", "st_ino", "st_mode")
WIDTH = 5
CELL = 8
HALF = 1 << 63
CTIME, MTIME, SIZE, INODE, MODE = range(WIDTH)

# Length of it all; ctime mtime inode device; flags mode uid gid; lengths of the sections; shard and mode digests.
HEADER = struct.Struct("<IqqQQIIII9I32s32s")
# As much of it as a comparison with the directory asks for: up to the lengths of path, names and columns.
GLANCE = struct.Struct("<IqqQQI12x3I")
PIECE = struct.Struct("<I32s")
NO_ID = bytes(32)
BELOW = 64
"""The tree of a subdirectory, and the digest of its modes."""

INCOMPLETE = 1
"""Something in here could not be captured: look again next time, whatever the clock says."""


@dataclass(slots=True)
class DirectoryRecord:
    """One directory: `names` and `columns` run in parallel over its entries that are not directories."""

    path: bytes
    ctime_ns: int = 0
    mtime_ns: int = 0
    inode: int = 0
    device: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    flags: int = 0
    names: list[bytes] = field(default_factory=list)
    columns: bytes = b""
    ids: bytes = b""
    """The blob of each entry, all of one width; zeros where the tree holds none."""
    subdirectories: list[bytes] = field(default_factory=list)
    extras: dict[int, bytes] = field(default_factory=dict)
    """Entry number -> what its manifest line says beyond the plain case; -1 is the directory itself."""
    pieces: dict[int, bytes] = field(default_factory=dict)
    """Entry number -> the tree of the pieces of that big file."""
    boundaries: list[bytes] = field(default_factory=list)
    """Names of directories that are seen and not entered."""
    below: bytes = b""
    """For each subdirectory its tree and a digest of the modes of everything at and below it."""
    shard: bytes = NO_ID
    leaf_modes: bytes = NO_ID
    """A digest of the modes of the directory and of its own entries."""
    times: dict[int, int] = field(default_factory=dict)
    """Entry number -> its modification time, if 64 bits of nanoseconds do not hold it: before 1677, after 2262."""

    @property
    def cells(self) -> array[int]:
        return array("q", self.columns)

    @property
    def modes(self) -> array[int]:
        """The mode of each entry."""
        return self.cells[MODE::WIDTH]

    @property
    def mtimes(self) -> Sequence[int]:
        """The modification time of each entry."""
        found = self.cells[MTIME::WIDTH]
        return found if not self.times else [self.times.get(index, time) for index, time in enumerate(found)]

    def id_at(self, index: int, width: int) -> bytes:
        return self.ids[index * width : (index + 1) * width]

    def below_by_name(self) -> dict[bytes, bytes]:
        """What stands below, by the names of the subdirectories."""
        cut = (self.below[at : at + BELOW] for at in range(0, len(self.below), BELOW))
        return dict(zip(self.subdirectories, cut, strict=True))

    def encode(self) -> bytes:
        """The record as bytes, its own length in front."""
        sections = (
            self.path,
            b"\0".join(self.names),
            self.columns,
            self.ids,
            b"\0".join(self.subdirectories),
            b"\0".join(self.boundaries),
            _encode_extras(self.extras, _wide_times(self)),
            b"".join(PIECE.pack(*item) for item in sorted(self.pieces.items())),
            self.below,
        )
        lengths = list(map(len, sections))
        head = HEADER.pack(
            HEADER.size + sum(lengths), _wrapped(self.ctime_ns), _wrapped(self.mtime_ns), self.inode, self.device,
            self.flags, self.mode, self.uid, self.gid, *lengths,
            self.shard.ljust(32, b"\0"), self.leaf_modes.ljust(32, b"\0"),
        )  # fmt: skip
        return b"".join((head, *sections))


def decode(data: bytes) -> DirectoryRecord:
    """The record that `encode` made these bytes of."""
    (_, ctime, mtime, inode, device, flags, mode, uid, gid, *rest) = HEADER.unpack_from(data)
    lengths, (shard, leaf_modes) = rest[:9], rest[9:]
    at = HEADER.size
    sections = []
    for length in lengths:
        sections.append(data[at : at + length])
        at += length
    path, names, columns, ids, subdirectories, boundaries, extras, pieces, below = sections
    extras, _, told = extras.partition(b"\0")
    times = {number: int(time) for number, time in _decode_extras(told).items()}
    return DirectoryRecord(
        path, ctime, times.pop(-1, mtime), inode, device, mode, uid, gid, flags,
        names.split(b"\0") if names else [], columns, ids,
        subdirectories.split(b"\0") if subdirectories else [],
        _decode_extras(extras),
        dict(PIECE.iter_unpack(pieces)),
        boundaries.split(b"\0") if boundaries else [],
        below, shard, leaf_modes, times,
    )  # fmt: skip


def cut(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(directory, encoded record) of each record of a run of them, without decoding them."""
    at, end = 0, len(data)
    glance, size = GLANCE.unpack_from, HEADER.size
    while at < end:
        length, *_, path, _, _ = glance(data, at)
        if length < size or at + length > end:
            raise ValueError("a record of an impossible length")
        yield data[at + size : at + size + path], data[at : at + length]
        at += length


def count_names(encoded: bytes) -> int:
    """How many entries an encoded record has, without decoding it."""
    return int(GLANCE.unpack_from(encoded)[-1]) // (CELL * WIDTH)


def stat_columns(names: Sequence[bytes]) -> bytes:
    """The stat columns of entries of the current directory, in one run through C."""
    return pack_columns(map(COLUMNS, map(os.lstat, names)))


def pack_columns(rows: Iterable[tuple[int, ...]]) -> bytes:
    """Stat columns of (ctime, mtime, size, inode, mode) rows as one run of bytes."""
    return pack_rows(rows)[0]


def pack_rows(rows: Iterable[tuple[int, ...]]) -> tuple[bytes, dict[int, int]]:
    """Return the same, and by their rows the modification times that cells do not hold."""
    flat = list(chain.from_iterable(rows))
    try:
        return array("q", flat).tobytes(), {}
    except OverflowError:  # an inode beyond 63 bits, as some network file systems have; a time far away
        times = {index: time for index, time in enumerate(flat[MTIME::WIDTH]) if _is_wide(time)}
        return array("q", list(map(_wrapped, flat))).tobytes(), times


def _is_wide(mtime_ns: int) -> bool:
    """Whether a cell does not hold a modification time."""
    return not -HALF <= mtime_ns < HALF


def _wrapped(cell: int) -> int:
    """Return a number as the 64 bits of a cell hold it."""
    return (cell + HALF) % (2 * HALF) - HALF


def _wide_times(record: DirectoryRecord) -> dict[int, int]:
    """Return the times that cells do not hold; -1 is the directory itself."""
    return {-1: record.mtime_ns, **record.times} if _is_wide(record.mtime_ns) else record.times


def differing(old: bytes, new: bytes, width: int) -> list[int]:
    """Which cells of a width differ in two runs of equal length; quick where they are few."""
    found = []
    stack = [(0, len(old) // width)]
    while stack:
        first, last = stack.pop()
        if old[first * width : last * width] == new[first * width : last * width]:
            continue
        if last - first == 1:
            found.append(first)
        else:
            middle = (first + last) // 2
            stack += ((middle, last), (first, middle))
    return found


def _encode_extras(extras: dict[int, bytes], times: dict[int, int]) -> bytes:
    section = b"\n".join(b"%d %b" % item for item in sorted(extras.items()))
    if times:
        section += b"\0" + b"\n".join(b"%d %d" % item for item in sorted(times.items()))
    return section


def _decode_extras(section: bytes) -> dict[int, bytes]:
    if not section:
        return {}
    found = {}
    for line in section.split(b"\n"):
        number, _, text = line.partition(b" ")
        found[int(number)] = text
    return found
