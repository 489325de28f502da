"""The stat cache: one packed record per directory, stored in shards.

A record has the directory's stat, the names and stat columns of its entries, the ids of their blobs, their
manifest words, and the trees of its subdirectories, so that a change only affects the records of its
ancestors. Comparing a directory with its record is one comparison of two byte strings in C.

The encoding is a fixed header with length-prefixed sections. It contains no code, so a manipulated cache can
at worst be wrong, and a wrong checksum discards it. Losing the cache only costs time.
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
HALF_RANGE = 1 << 63
CTIME, MTIME, SIZE, INODE, MODE = range(WIDTH)

# Total length; ctime, mtime, inode, device; flags, mode, uid, gid; section lengths; shard and mode digests.
HEADER = struct.Struct("<IqqQQIIII9I32s32s")
# The part of the header needed for a comparison, up to the lengths of path, names and columns.
SHORT_HEADER = struct.Struct("<IqqQQI12x3I")
PIECE = struct.Struct("<I32s")
NO_ID = bytes(32)
BELOW = 64
"""Bytes per subdirectory: its tree and a digest of its modes."""

INCOMPLETE = 1
"""Flag: an entry could not be captured, so the directory must be scanned again."""
HARD_LINK = b" l="
"""The manifest word of a file with several hard links."""


@dataclass(slots=True)
class DirectoryRecord:
    """A directory; `names` and `columns` are parallel over entries that are not directories."""

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
    """Blob ids of equal width; zeros for entries without a blob."""
    subdirectories: list[bytes] = field(default_factory=list)
    extras: dict[int, bytes] = field(default_factory=dict)
    """Entry number -> manifest words beyond the plain case; -1 is the directory itself."""
    pieces: dict[int, bytes] = field(default_factory=dict)
    """Entry number -> chunk tree of a big file."""
    boundaries: list[bytes] = field(default_factory=list)
    """Names of directories that are listed but not entered."""
    below: bytes = b""
    """For each subdirectory its tree and a digest of all modes at and below it."""
    shard: bytes = NO_ID
    leaf_modes: bytes = NO_ID
    """Digest of the modes of the directory and its entries."""
    times: dict[int, int] = field(default_factory=dict)
    """Entry number -> modification time that does not fit in 64 bits of nanoseconds (before 1677, after
    2262)."""

    @property
    def cells(self) -> array[int]:
        return array("q", self.columns)

    @property
    def modes(self) -> array[int]:
        """Return the mode of each entry."""
        return self.cells[MODE::WIDTH]

    @property
    def mtimes(self) -> Sequence[int]:
        """Return the modification time of each entry."""
        found = self.cells[MTIME::WIDTH]
        return found if not self.times else [self.times.get(index, time) for index, time in enumerate(found)]

    def id_at(self, index: int, width: int) -> bytes:
        return self.ids[index * width : (index + 1) * width]

    def below_by_name(self) -> dict[bytes, bytes]:
        """Return tree and digest of each subdirectory by name."""
        cut = (self.below[at : at + BELOW] for at in range(0, len(self.below), BELOW))
        return dict(zip(self.subdirectories, cut, strict=True))

    def encode(self) -> bytes:
        """Return the record as bytes, starting with its length."""
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
    """Return the record encoded in `data`."""
    (_, ctime, mtime, inode, device, flags, mode, uid, gid, *rest) = HEADER.unpack_from(data)
    lengths, (shard, leaf_modes) = rest[:9], rest[9:]
    at = HEADER.size
    sections = []
    for length in lengths:
        sections.append(data[at : at + length])
        at += length
    path, names, columns, ids, subdirectories, boundaries, extras, pieces, below = sections
    times: dict[int, int] = {}
    # Few records have times that do not fit in cells, and this is called for each directory.
    if b"\0" in extras:
        extras, _, wide = extras.partition(b"\0")
        times = {number: int(time) for number, time in _decode_extras(wide).items()}
        mtime = times.pop(-1, mtime)
    # Positional arguments in the order of the fields, because this is called for each directory.
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
    """Yield (directory, encoded record) of concatenated records without decoding them."""
    at, end = 0, len(data)
    read_short_header, size = SHORT_HEADER.unpack_from, HEADER.size
    while at < end:
        length, *_, path, _, _ = read_short_header(data, at)
        if length < size or at + length > end:
            raise ValueError("record with an invalid length")
        yield data[at + size : at + size + path], data[at : at + length]
        at += length


def must_be_looked_at(record: DirectoryRecord) -> bool:
    """Return whether a directory can change without an event in it: an entry is missing, or has several hard links."""
    return bool(record.flags & INCOMPLETE) or any(HARD_LINK in words for words in record.extras.values())


def count_names(encoded: bytes) -> int:
    """Return the number of entries of an encoded record without decoding it."""
    return int(SHORT_HEADER.unpack_from(encoded)[-1]) // (CELL * WIDTH)


def stat_columns(names: Sequence[bytes]) -> bytes:
    """Return the stat columns of names in the current directory, in one pass through C."""
    return pack_columns(map(COLUMNS, map(os.lstat, names)))


def pack_columns(rows: Iterable[tuple[int, ...]]) -> bytes:
    """Return (ctime, mtime, size, inode, mode) rows as packed columns."""
    return pack_rows(rows)[0]


def pack_rows(rows: Iterable[tuple[int, ...]]) -> tuple[bytes, dict[int, int]]:
    """Return packed columns, and by row the modification times that do not fit in a cell."""
    flat = list(chain.from_iterable(rows))
    try:
        return array("q", flat).tobytes(), {}
    except OverflowError:  # an inode above 63 bits (some network file systems), or a distant time
        times = {index: time for index, time in enumerate(flat[MTIME::WIDTH]) if _is_wide(time)}
        return array("q", list(map(_wrapped, flat))).tobytes(), times


def _is_wide(mtime_ns: int) -> bool:
    """Return whether a modification time does not fit in a cell."""
    return not -HALF_RANGE <= mtime_ns < HALF_RANGE


def _wrapped(cell: int) -> int:
    """Return a number wrapped to the 64 bits of a cell."""
    return (cell + HALF_RANGE) % (2 * HALF_RANGE) - HALF_RANGE


def _wide_times(record: DirectoryRecord) -> dict[int, int]:
    """Return the times that do not fit in cells; -1 is the directory itself."""
    return {-1: record.mtime_ns, **record.times} if _is_wide(record.mtime_ns) else record.times


def differing(old: bytes, new: bytes, width: int) -> list[int]:
    """Return the indexes of cells that differ between two runs of equal length; fast if few differ."""
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


# Compare records with the file system: most of the time of a capture with few changes.
# Processor time for 100,000 files in 11,900 directories: 0.17 s for `lstat` of every file, 0.03 for entering
# and examining directories, 0.035 for comparing, 0.02 for records and names. A loop over `scandir` takes
# twice that. A directory with unchanged time stamps has the same entries, so it is not listed. Measured by
# tests/benchmarks/scan.py.

Enter = Callable[[bytes], object]


def differing_records(data: bytes, bases: Mapping[bytes, bytes], enter: Enter) -> Iterator[bytes]:
    """Yield the encoded records of a shard that differ from their directories."""
    read_short_header, size, bound = SHORT_HEADER.unpack_from, HEADER.size, len(data)
    change_directory, at = _make_chdir(bases, enter), 0
    while at < bound:
        length, ctime, mtime, inode, device, flags, path_size, names_size, columns_size = read_short_header(
            data, at
        )
        if length < size or at + length > bound:
            raise ValueError("record with an invalid length")
        start = at + size
        names_at = start + path_size
        columns_at = names_at + names_size
        try:
            change_directory(data[start:names_at])
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
    """Yield the tops of roots that have a record in the shard."""
    # Paths of additional roots sort before all others.
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


def _make_chdir(bases: Mapping[bytes, bytes], enter: Enter) -> Callable[[bytes], None]:
    """Return a function that changes to a directory by its full path.

    The path may lead through a link created meanwhile. That is safe: the directory is only compared, and
    unless it is the very one recorded (by inode and times), it is entered again without following links.
    """
    top = bases.get(b"", b"")

    def change_directory(path: bytes) -> None:
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

    return change_directory


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection: millions of short-lived objects without cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# The cache files. The head names the shards, and the rules and snapshot they are valid for.
# A shard has the records of a range of directories. Unchanged shards are kept. The head is replaced last and
# no file name is reused, so a crash leaves the old cache valid. Every file has a checksum.

VERSION = 4
HEAD = "head"
COMPRESSED = b"\x28\xb5\x2f\xfd"
"""First bytes of the head in versions 1 and 2: zstd."""
Checksum = Callable[[bytes], int]


class CacheShard(NamedTuple):
    """A file of records."""

    first: bytes
    """Its first directory, or one before that."""
    name: str
    checksum: int


class CachedFacts(NamedTuple):
    """A probe's fact text in the snapshot that the cache belongs to."""

    version: int
    """Version of the probe that wrote it."""
    stamp: str
    """Identifies the state of the source."""
    oid: str


@dataclass(frozen=True, slots=True)
class CacheHeader:
    """Conditions under which the records of a cache are valid."""

    naming: str
    """Digest of the rules that determine the extent of the environment."""
    keeping: str
    """Digest of the rules that determine how content is stored."""
    base: str
    """The commit that contains every id in the records."""
    shards: tuple[CacheShard, ...] = ()
    pieces: dict[bytes, list[bytes]] = field(default_factory=dict)
    """Directory -> chunk trees of its big files."""
    elsewhere: dict[bytes, bytes] = field(default_factory=dict)
    """Nested repositories and additional roots: tree and digest of modes."""
    files: int = 0
    facts: dict[str, CachedFacts] = field(default_factory=dict)
    """Fact texts of the snapshot by probe."""
    id: str = ""
    """A new one with each write, by which a watcher knows the cache."""
    again: tuple[bytes, ...] | None = None
    """Directories that each capture looks at, whatever a watcher reports; None if they were not determined."""


class StatCache:
    """The cache of one working tree."""

    def __init__(self, directory: str, checksum: Checksum) -> None:
        self.directory = directory
        self._checksum = checksum

    def read_head(self) -> CacheHeader | None:
        """Return the head, or None if there is no valid cache."""
        try:
            with open(os.path.join(self.directory, HEAD), "rb", opener=open_file_only) as file:
                checksum, _, text = file.read().partition(b"\n")
            if int(checksum) != self._checksum(text):
                return None
            fields = json.loads(text)
            if fields["version"] != VERSION:
                return None
            return CacheHeader(
                naming=fields["naming"],
                keeping=fields["keeping"],
                base=fields["base"],
                shards=tuple(
                    CacheShard(bytes.fromhex(first), name, int(crc)) for first, name, crc in fields["shards"]
                ),
                pieces={_raw(path): list(map(_raw, oids)) for path, oids in fields["pieces"].items()},
                elsewhere={_raw(path): _raw(below) for path, below in fields["elsewhere"].items()},
                files=int(fields["files"]),
                facts={
                    name: CachedFacts(int(version), stamp, oid)
                    for name, (version, stamp, oid) in fields.get("facts", {}).items()
                },
                id=str(fields.get("id", "")),
                again=None if fields.get("again") is None else tuple(map(_raw, fields["again"])),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def is_torn(self) -> bool:
        """Return whether the head has a wrong checksum, in any version of the format."""
        try:
            with open(os.path.join(self.directory, HEAD), "rb", opener=open_file_only) as file:
                data = file.read()
            checksum, _, text = data.partition(b"\n")
            return not data.startswith(COMPRESSED) and int(checksum) != self._checksum(text)
        except (OSError, ValueError):
            return True

    def read_shard(self, shard: CacheShard) -> bytes | None:
        """Return the records of a shard, or None if the file is missing or has a wrong checksum."""
        try:
            with open(
                os.path.join(self.directory, os.path.basename(shard.name)), "rb", opener=open_file_only
            ) as file:
                data = file.read()
        except (OSError, ValueError):
            return None
        return data if self._checksum(data) == shard.checksum else None

    def write(self, head: CacheHeader, shards: Iterable[tuple[bytes, bytes] | CacheShard]) -> None:
        """Replace the cache. Unchanged shards are given as `CacheShard`, others as (first, records)."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.directory, 0o700)
        fields = _head_fields(
            head, [item if isinstance(item, CacheShard) else self._write(*item) for item in shards]
        )
        text = json.dumps(fields).encode("ascii")
        path, data = os.path.join(self.directory, HEAD), b"%d\n%b" % (self._checksum(text), text)
        # Not synced: after a power failure the checksum fails and the next capture reads everything.
        replace_file(path, data, durability=Durability.NONE, temporary=f"{path}.{os.getpid()}")
        kept = {HEAD, *(name for _, name, _ in fields["shards"])}
        for name in os.listdir(self.directory):
            if name not in kept:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.directory, name))

    def forget(self) -> None:
        """Remove the head, so that there is no cache."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.directory, HEAD))

    def clear(self) -> None:
        """Remove the cache with all its files."""
        self.forget()
        with contextlib.suppress(OSError):
            for name in os.listdir(self.directory):
                os.unlink(os.path.join(self.directory, name))

    def _write(self, first: bytes, records: bytes) -> CacheShard:
        name = f"shard-{os.urandom(12).hex()}"
        path = os.path.join(self.directory, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(records)
        return CacheShard(first, name, self._checksum(records))


_raw = bytes.fromhex


def _head_fields(head: CacheHeader, shards: list[CacheShard]) -> dict[str, Any]:
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
        "id": head.id,
        "again": None if head.again is None else [path.hex() for path in head.again],
    }


# Records by path, read from the cache on demand.
# Most captures need few directories, so only their shards are read and only changed shards are written.

SHARD_SIZE = 1 << 17
"""Maximum size of a shard. Smaller shards make the head larger, larger ones cost more per change."""


class CacheDamaged(Exception):
    """A shard does not have the checksum in the head; read everything again."""


class DirectoryRecords:
    """Records of all directories; changes stay in memory until `to_write`."""

    def __init__(self, cache: StatCache, shards: Sequence[CacheShard] = (), files: int = 0) -> None:
        self.files = files
        """Number of entries of all directories."""
        self._cache = cache
        self._shards = list(shards) or [CacheShard(b"", "", 0)]
        self._firsts = [shard.first for shard in self._shards]
        self._read: dict[int, dict[bytes, bytes | DirectoryRecord]] = {} if shards else {0: {}}
        self._touched = set() if shards else {0}

    def __contains__(self, path: bytes) -> bool:
        return path in self._shard_of(path)

    def __iter__(self) -> Iterator[bytes]:
        for number in range(len(self._shards)):
            yield from list(self._open(number))

    def get(self, path: bytes) -> DirectoryRecord | None:
        shard = self._shard_of(path)
        found = shard.get(path)
        if isinstance(found, bytes):
            found = shard[path] = _decode(found)
        return found

    def peek(self, path: bytes) -> DirectoryRecord | None:
        """Return a record for reading only, without keeping it decoded in memory."""
        found = self._shard_of(path).get(path)
        return _decode(found) if isinstance(found, bytes) else found

    def keep(self, record: DirectoryRecord) -> None:
        """Add or replace a record."""
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
        """Return the directories at and below a path."""
        prefix = path + b"/"
        # Paths are sorted, so all with the prefix are consecutive.
        first = self._number(prefix)
        last = max(first, bisect_left(self._firsts, path + b"0") - 1)
        found = [
            one for number in range(first, last + 1) for one in self._open(number) if one.startswith(prefix)
        ]
        return [path, *found] if path in self else found

    def to_write(self) -> Iterator[tuple[bytes, bytes] | CacheShard]:
        """Yield the shards for `StatCache.write`: unchanged ones as they are, others rewritten."""
        for number, shard in enumerate(self._shards):
            if number in self._touched:
                yield from _cut_evenly(shard.first, self._open(number))
            else:
                yield shard

    def _shard_of(self, path: bytes) -> dict[bytes, bytes | DirectoryRecord]:
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
    """Return the shards that contain the records of these directories."""
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
    """Yield records in the order of their directories, split into shards unless they fit in two."""
    ordered = [
        (path, one if isinstance(one, bytes) else one.encode()) for path, one in sorted(records.items())
    ]
    whole = sum(len(encoded) for _, encoded in ordered) <= 2 * SHARD_SIZE
    batch: list[bytes] = []
    size = 0
    for path, encoded in ordered:
        if batch and not whole and size + len(encoded) > SHARD_SIZE:
            yield first, b"".join(batch)
            first, batch, size = path, [], 0
        batch.append(encoded)
        size += len(encoded)
    if batch:
        yield first, b"".join(batch)
