"""Every directory of the environment by its path, read from the cache as far as somebody asks.

Most captures concern a few directories and those above them. Only the shards that these stand in are read, and only
those in which something changed are written again.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from git_envhist.capture.records import DirectoryRecord, count_names, cut, decode
from git_envhist.capture.statcache import CacheShard, StatCache

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
