"""What is known of one directory, as one packed value: the unit of the scan, of the cache and of the trees.

A record holds the directory's own stat, the names of its entries, their stat columns in one array, the ids their
bytes were stored under, and what else a manifest line says. Comparing a directory with its record is one comparison
of two byte strings, made in C. The encoding is a fixed header and length-prefixed sections; nothing in it can
run, so a cache that somebody else wrote can at worst be wrong, and a wrong checksum is no cache at all.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter

from git_envhist.values import dataclass, field

COLUMNS = attrgetter("st_ctime_ns", "st_mtime_ns", "st_size", "st_ino", "st_mode")
WIDTH = 5
CTIME, MTIME, SIZE, INODE, MODE = range(WIDTH)

# own stat: ctime mtime inode device mode uid gid; flags; lengths of the sections; tree, shard and mode digests.
HEADER = struct.Struct("<qqQQIIII8I32s32s32s32s")
PIECE = struct.Struct("<I32s")
NO_ID = bytes(32)

INCOMPLETE = 1
"""Something in here could not be captured: look again next time, whatever the clock says."""


@dataclass(slots=True)
class Record:
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
    tree: bytes = NO_ID
    shard: bytes = NO_ID
    modes: bytes = NO_ID
    """A digest of the modes of everything at and below this directory."""
    leaf_modes: bytes = NO_ID
    """The part of it that the directory's own entries make."""

    @property
    def cells(self) -> array[int]:
        return array("q", self.columns)

    def id_at(self, index: int, width: int) -> bytes:
        return self.ids[index * width : (index + 1) * width]

    def encode(self) -> bytes:
        """The record as bytes, its own length in front."""
        extras = b"\n".join(b"%d %b" % item for item in sorted(self.extras.items()))
        sections = (
            self.path,
            b"\0".join(self.names),
            self.columns,
            self.ids,
            b"\0".join(self.subdirectories),
            b"\0".join(self.boundaries),
            extras,
            b"".join(PIECE.pack(*item) for item in sorted(self.pieces.items())),
        )
        head = HEADER.pack(
            self.ctime_ns, self.mtime_ns, self.inode, self.device, self.mode, self.uid, self.gid, self.flags,
            *map(len, sections),
            self.tree.ljust(32, b"\0"), self.shard.ljust(32, b"\0"), self.modes.ljust(32, b"\0"),
            self.leaf_modes.ljust(32, b"\0"),
        )  # fmt: skip
        return b"".join((head, *sections))


def decode(data: bytes | memoryview, start: int = 0) -> tuple[Record, int]:
    """The record that begins at `start`, and where the next one does."""
    (ctime, mtime, inode, device, mode, uid, gid, flags, *rest) = HEADER.unpack_from(data, start)
    lengths, (tree, shard, modes, leaf_modes) = rest[:8], rest[8:]
    at = start + HEADER.size
    sections = []
    for length in lengths:
        sections.append(bytes(data[at : at + length]))
        at += length
    path, names, columns, ids, subdirectories, boundaries, extras, pieces = sections
    record = Record(
        path, ctime, mtime, inode, device, mode, uid, gid, flags,
        names.split(b"\0") if names else [], columns, ids,
        subdirectories.split(b"\0") if subdirectories else [],
        _decode_extras(extras),
        dict(PIECE.iter_unpack(pieces)),
        boundaries.split(b"\0") if boundaries else [],
        tree, shard, modes, leaf_modes,
    )  # fmt: skip
    return record, at


def decode_all(data: bytes) -> Iterable[Record]:
    """Every record of a run of them."""
    at, end = 0, len(data)
    while at < end:
        record, at = decode(data, at)
        yield record


def count_names(encoded: bytes) -> int:
    """How many entries an encoded record has, without decoding it."""
    lengths = HEADER.unpack_from(encoded)[8:16]
    return int(lengths[2]) // (8 * WIDTH)


def stat_columns(names: Sequence[bytes]) -> bytes:
    """The stat columns of entries of the current directory, in one run through C."""
    return pack_columns(map(COLUMNS, map(os.lstat, names)))


def pack_columns(rows: Iterable[tuple[int, ...]]) -> bytes:
    """Stat columns of (ctime, mtime, size, inode, mode) rows as one run of bytes."""
    flat = list(chain.from_iterable(rows))
    try:
        return array("q", flat).tobytes()
    except OverflowError:  # some network file systems number inodes beyond 63 bits
        return array("q", [(cell + (1 << 63)) % (1 << 64) - (1 << 63) for cell in flat]).tobytes()


def _decode_extras(section: bytes) -> dict[int, bytes]:
    if not section:
        return {}
    found = {}
    for line in section.split(b"\n"):
        number, _, text = line.partition(b" ")
        found[int(number)] = text
    return found
