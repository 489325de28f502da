"""What is known of one directory, as one packed value: the unit of the scan, of the cache and of the trees.

A record holds the directory's own stat, the names of its entries, their stat columns in one array, the ids their
bytes were stored under, and what else a manifest line says; and what trees stand below it, so that a change far down
concerns the records on the way to it and no others. Comparing a directory with its record is one comparison of two
byte strings, made in C. The encoding is a fixed header and length-prefixed sections; nothing in it can run, so a
cache that somebody else wrote can at worst be wrong, and a wrong checksum is no cache at all.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

from git_envhist.disk import Durability, replace_file
from git_envhist.lazy import dataclass, field
from git_envhist.paths import ROOT_PREFIX, is_root_top, path_below_root, root_name_of
from git_envhist.platform import open_file_only

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
    times: dict[int, int] = {}
    # Hardly any record has times that its cells do not hold, and this is called for each directory.
    if b"\0" in extras:
        extras, _, wide = extras.partition(b"\0")
        times = {number: int(time) for number, time in _decode_extras(wide).items()}
        mtime = times.pop(-1, mtime)
    return DirectoryRecord(
        path, ctime, mtime, inode, device, mode, uid, gid, flags,
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


# Compares the records of directories with what is there: most of the time of a capture after which little changed.
#
# Measured on 100,000 files in 11,900 directories, by the processor: 0.17 s for `lstat` of every file, 0.03 for going
# into every directory and looking at it, 0.035 for comparing, 0.02 for records and names. A loop over `scandir` takes
# twice that. A directory whose own time stamps are unchanged has the entries it had, so that it is not listed.
# tests/benchmarks/scan.py measures it again.

Enter = Callable[[bytes], object]


def differing_records(data: bytes, bases: Mapping[bytes, bytes], enter: Enter) -> Iterator[bytes]:
    """The encoded records of a shard that are not, entry by entry, as their directories are."""
    glance, size, bound = GLANCE.unpack_from, HEADER.size, len(data)
    go, at = _goer(bases, enter), 0
    while at < bound:
        length, ctime, mtime, inode, device, flags, path_size, names_size, columns_size = glance(data, at)
        if length < size or at + length > bound:
            raise ValueError("a record of an impossible length")
        start = at + size
        names_at = start + path_size
        columns_at = names_at + names_size
        try:
            go(data[start:names_at])
            own = os.lstat(b".")
            same = (
                own.st_ctime_ns == ctime
                and own.st_mtime_ns == mtime
                and own.st_ino == inode
                and own.st_dev == device
                and not flags & INCOMPLETE
                and (
                    not names_size
                    or _columns(data[names_at:columns_at].split(b"\0"))
                    == data[columns_at : columns_at + columns_size]
                )
            )
        except OSError:
            same = False
        if not same:
            yield data[at : at + length]
        at += length


def root_directories_in(data: bytes) -> Iterator[bytes]:
    """The tops of roots that a shard has a record of."""
    # They are rare, and stand where the paths that begin with their mark do: first of all.
    for path, _ in cut(data):
        if is_root_top(path):
            yield path
        elif not path.startswith(ROOT_PREFIX):
            return


def _columns(names: list[bytes]) -> bytes:
    try:
        return array("q", list(chain.from_iterable(map(COLUMNS, map(os.lstat, names))))).tobytes()
    except OverflowError:
        return stat_columns(names)


def _goer(bases: Mapping[bytes, bytes], enter: Enter) -> Callable[[bytes], None]:
    """Goes into a directory by its whole name.

    That may lead through a link which somebody made meanwhile. What it leads to is only compared: unless it is the
    very directory that the record tells of, by its numbers and times, the record counts as changed, and then the
    directory is entered step by step through no link.
    """
    top = bases.get(b"", b"")

    def go(path: bytes) -> None:
        base = top
        if path.startswith(ROOT_PREFIX):
            base, path = bases.get(root_name_of(path), b""), path_below_root(path)
        if not base:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        try:
            os.chdir(base + b"/" + path if path else base)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            enter(path)

    return go


@contextmanager
def gc_paused() -> Iterator[None]:
    """Millions of short-lived values and no cycle among them: looking for garbage is lost time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# What was seen at the last capture, so that unchanged files are not read again; losing it costs time, nothing else.
#
# A head names the shards and says under which rules, on which snapshot and on which files they are true. A shard holds
# the records of a range of directories, and is small, so that a change writes little; one that did not change stays.
# The head is replaced last, and no name is used twice: a crash between the two leaves the old cache. Each file has a
# checksum. Whatever cannot be read, or belongs to other rules, is no cache.

VERSION = 4
HEAD = "head"
COMPRESSED = b"\x28\xb5\x2f\xfd"
"""How the head of the first two versions of the cache began: zstd."""
Checksum = Callable[[bytes], int]


class CacheShard(NamedTuple):
    """One file of records."""

    first: bytes
    """The first directory in it, or one before that."""
    name: str
    checksum: int


class CachedFacts(NamedTuple):
    """The text of a probe in the snapshot that the cache relies on."""

    version: int
    """That of the probe that wrote it."""
    stamp: str
    """By what its source is known again."""
    oid: str


@dataclass(frozen=True, slots=True)
class CacheHeader:
    """What the records of a cache are true for."""

    naming: str
    """A digest of the rules that say what is part of the environment."""
    keeping: str
    """A digest of the rules that say how content is kept."""
    base: str
    """The commit whose trees hold every id in the records."""
    shards: tuple[CacheShard, ...] = ()
    pieces: dict[bytes, list[bytes]] = field(default_factory=dict)
    """Directory -> the trees of the pieces of its big files."""
    elsewhere: dict[bytes, bytes] = field(default_factory=dict)
    """Nested repositories and further roots: their trees, and digests of their modes."""
    files: int = 0
    facts: dict[str, CachedFacts] = field(default_factory=dict)
    """By probe, what the snapshot says beside the files."""


class StatCache:
    """The cache of one working tree."""

    def __init__(self, directory: str, checksum: Checksum) -> None:
        self.directory = directory
        self._checksum = checksum

    def read_head(self) -> CacheHeader | None:
        """The head, or None where there is no cache that can be trusted."""
        try:
            with open(os.path.join(self.directory, HEAD), "rb", opener=open_file_only) as file:
                checksum, _, text = file.read().partition(b"\n")
            if int(checksum) != self._checksum(text):
                return None
            told = json.loads(text)
            if told["version"] != VERSION:
                return None
            return CacheHeader(
                told["naming"],
                told["keeping"],
                told["base"],
                tuple(
                    CacheShard(bytes.fromhex(first), name, int(crc)) for first, name, crc in told["shards"]
                ),
                {_raw(path): list(map(_raw, oids)) for path, oids in told["pieces"].items()},
                {_raw(path): _raw(below) for path, below in told["elsewhere"].items()},
                int(told["files"]),
                {
                    name: CachedFacts(int(version), stamp, oid)
                    for name, (version, stamp, oid) in told.get("facts", {}).items()
                },
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def is_torn(self) -> bool:
        """Whether the head is not what was written, by whatever version."""
        try:
            with open(os.path.join(self.directory, HEAD), "rb", opener=open_file_only) as file:
                data = file.read()
            checksum, _, text = data.partition(b"\n")
            return not data.startswith(COMPRESSED) and int(checksum) != self._checksum(text)
        except (OSError, ValueError):
            return True

    def read_shard(self, shard: CacheShard) -> bytes | None:
        """The records of one shard, or None where they are not what the head promised."""
        try:
            with open(
                os.path.join(self.directory, os.path.basename(shard.name)), "rb", opener=open_file_only
            ) as file:
                data = file.read()
        except (OSError, ValueError):
            return None
        return data if self._checksum(data) == shard.checksum else None

    def write(self, head: CacheHeader, shards: Iterable[tuple[bytes, bytes] | CacheShard]) -> None:
        """Replace the cache; a shard that did not change is given as it stands, the others as (first, records)."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.directory, 0o700)
        told = _told(head, [item if isinstance(item, CacheShard) else self._write(*item) for item in shards])
        text = json.dumps(told).encode("ascii")
        path, data = os.path.join(self.directory, HEAD), b"%d\n%b" % (self._checksum(text), text)
        # Not synced: after a power cut a torn file fails its checksum, and the next capture reads everything once.
        replace_file(path, data, durability=Durability.NONE, temporary=f"{path}.{os.getpid()}")
        kept = {HEAD, *(name for _, name, _ in told["shards"])}
        for name in os.listdir(self.directory):
            if name not in kept:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.directory, name))

    def forget(self) -> None:
        """Have no cache."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.directory, HEAD))

    def clear(self) -> None:
        """Have no cache, and no file that was part of one."""
        self.forget()
        with contextlib.suppress(OSError):
            for name in os.listdir(self.directory):
                os.unlink(os.path.join(self.directory, name))

    def _write(self, first: bytes, records: bytes) -> CacheShard:
        name = f"shard-{os.urandom(12).hex()}"
        with open(os.path.join(self.directory, name), "xb") as file:
            file.write(records)
        return CacheShard(first, name, self._checksum(records))


_raw = bytes.fromhex


def _told(head: CacheHeader, shards: list[CacheShard]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "naming": head.naming,
        "keeping": head.keeping,
        "base": head.base,
        "shards": [(first.hex(), name, checksum) for first, name, checksum in shards],
        "pieces": {path.hex(): [oid.hex() for oid in oids] for path, oids in head.pieces.items()},
        "elsewhere": {path.hex(): below.hex() for path, below in head.elsewhere.items()},
        "files": head.files,
        "facts": head.facts,
    }


# Every directory of the environment by its path, read from the cache as far as somebody asks.
#
# Most captures concern a few directories and those above them. Only the shards that these stand in are read, and only
# those in which something changed are written again.

SHARD_SIZE = 1 << 17
"""Shards are cut at this size. With smaller ones the head grows, with larger ones each change writes more."""


class CacheDamaged(Exception):
    """A part of the cache is not what its head promised: look at everything afresh."""


class DirectoryRecords:
    """The records of all directories; changes are kept in memory until `to_write` gives them."""

    def __init__(self, cache: StatCache, shards: Sequence[CacheShard] = (), files: int = 0) -> None:
        self.files = files
        """How many entries they have together."""
        self._cache = cache
        self._shards = list(shards) or [CacheShard(b"", "", 0)]
        self._firsts = [shard.first for shard in self._shards]
        self._read: dict[int, dict[bytes, bytes | DirectoryRecord]] = {} if shards else {0: {}}
        self._touched = set() if shards else {0}

    def __contains__(self, path: bytes) -> bool:
        return path in self._around(path)

    def __iter__(self) -> Iterator[bytes]:
        for number in range(len(self._shards)):
            yield from list(self._open(number))

    def get(self, path: bytes) -> DirectoryRecord | None:
        shard = self._around(path)
        found = shard.get(path)
        if isinstance(found, bytes):
            found = shard[path] = _decode(found)
        return found

    def peek(self, path: bytes) -> DirectoryRecord | None:
        """Return a record to be read only, which is not kept in memory in its larger, decoded form."""
        found = self._around(path).get(path)
        return _decode(found) if isinstance(found, bytes) else found

    def keep(self, record: DirectoryRecord) -> None:
        """Take in a new record, or take back one that was changed."""
        number = self._number(record.path)
        shard = self._open(number)
        self.files += len(record.names) - _count(shard.get(record.path))
        shard[record.path] = record
        self._touched.add(number)

    def drop(self, path: bytes) -> None:
        number = self._number(path)
        found = self._open(number).pop(path, None)
        if found is not None:
            self.files -= _count(found)
            self._touched.add(number)

    def below(self, path: bytes) -> list[bytes]:
        """The directories at and below a path."""
        prefix = path + b"/"
        # In the order of the paths, all that begin with the prefix stand together.
        first = self._number(prefix)
        last = max(first, bisect_left(self._firsts, path + b"0") - 1)
        found = [
            one for number in range(first, last + 1) for one in self._open(number) if one.startswith(prefix)
        ]
        return [path, *found] if path in self else found

    def to_write(self) -> Iterator[tuple[bytes, bytes] | CacheShard]:
        """The shards for `StatCache.write`: as they stand, or anew."""
        for number, shard in enumerate(self._shards):
            if number in self._touched:
                yield from _cut_evenly(shard.first, self._open(number))
            else:
                yield shard

    def _around(self, path: bytes) -> dict[bytes, bytes | DirectoryRecord]:
        return self._open(self._number(path))

    def _number(self, path: bytes) -> int:
        return max(0, bisect_right(self._firsts, path) - 1)

    def _open(self, number: int) -> dict[bytes, bytes | DirectoryRecord]:
        if number not in self._read:
            data = self._cache.read_shard(self._shards[number])
            if data is None:
                raise CacheDamaged
            try:
                self._read[number] = dict(cut(data))
            except (struct.error, ValueError) as wrong:
                raise CacheDamaged from wrong
        return self._read[number]


def shards_of(shards: Sequence[CacheShard], paths: Iterable[bytes]) -> list[CacheShard]:
    """The shards in which the records of some directories stand, if there are any."""
    firsts = [shard.first for shard in shards]
    return [shards[number] for number in sorted({max(0, bisect_right(firsts, path) - 1) for path in paths})]


def _decode(encoded: bytes) -> DirectoryRecord:
    try:
        return decode(encoded)
    except (struct.error, ValueError) as wrong:
        raise CacheDamaged from wrong


def _count(found: bytes | DirectoryRecord | None) -> int:
    if found is None:
        return 0
    return count_names(found) if isinstance(found, bytes) else len(found.names)


def _cut_evenly(first: bytes, records: dict[bytes, bytes | DirectoryRecord]) -> Iterator[tuple[bytes, bytes]]:
    """Records in the order of their directories; twice the size of a shard is one too many."""
    ordered = [
        (path, one if isinstance(one, bytes) else one.encode()) for path, one in sorted(records.items())
    ]
    whole = sum(len(encoded) for _, encoded in ordered) <= 2 * SHARD_SIZE
    held: list[bytes] = []
    size = 0
    for path, encoded in ordered:
        if held and not whole and size + len(encoded) > SHARD_SIZE:
            yield first, b"".join(held)
            first, held, size = path, [], 0
        held.append(encoded)
        size += len(encoded)
    if held:
        yield first, b"".join(held)
