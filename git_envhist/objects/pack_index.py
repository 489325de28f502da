"""The index of a pack (git's version 2): written from arrays at once, read in place.

An index is a header, a fan-out table (the number of ids up to each first byte), the sorted ids, a CRC of each packed
entry, its offset in 31 bits or, with the top bit set, a position in a second table of 64-bit offsets; then the hash
of the pack, and a hash of the whole index. Ids and hashes have 20 bytes with SHA-1 and 32 with SHA-256.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from git_envhist.disk import read_exactly
from git_envhist.errors import Damaged

MAGIC = b"\xfftOc\0\0\0\2"
FAN_OUT_SIZE = 256 * 4
LARGE = 1 << 31
SMALL = 1 << 16
"""Up to this size an index is read instead of mapped: a mapping uses a file descriptor, and small packs are many."""


def encode_index(
    numbers: Mapping[bytes, int],
    offsets: Sequence[int],
    checksums: Sequence[int],
    pack_hash: bytes,
    object_format: str,
    *,
    large_from: int = LARGE,
) -> bytes:
    """Return the index of entries whose offsets and CRCs are in pack order; `numbers` maps an id to its entry."""
    import hashlib  # loaded late: reading an index does not need it

    names = sorted(numbers)
    order = [numbers[name] for name in names]
    near, far = _split_offsets([offsets[number] for number in order], large_from)
    body = b"".join(
        (
            MAGIC,
            _big_endian("I", _fan_out(names)),
            b"".join(names),
            _big_endian("I", [checksums[number] for number in order]),
            _big_endian("I", near),
            _big_endian("Q", far),
            pack_hash,
        )
    )
    return body + hashlib.new(object_format, body).digest()


def _fan_out(names: Sequence[bytes]) -> list[int]:
    starts = [bisect_left(names, bytes((first,))) for first in range(1, 256)]
    return [*starts, len(names)]


def _split_offsets(offsets: Sequence[int], large_from: int) -> tuple[list[int], list[int]]:
    far = [offset for offset in offsets if offset >= large_from]
    if not far:
        return list(offsets), far
    near, place = [], 0
    for offset in offsets:
        if offset < large_from:
            near.append(offset)
        else:
            near.append(LARGE | place)
            place += 1
    return near, far


def _big_endian(letter: str, values: Sequence[int]) -> bytes:
    packed = array(letter, values)
    if sys.byteorder == "little":
        packed.byteswap()
    return packed.tobytes()


class PackIndex:
    """An index of ours, mapped into memory; a lookup takes one or two microseconds."""

    def __init__(self, path: str, hash_length: int) -> None:
        """Open an index; raise Damaged if its size or its first table is invalid."""
        self.path = path
        self._length = hash_length
        self._map = _map_file(path)
        try:
            self._fan_out = self._read_fan_out()
            self._lay_out()
        except Damaged:
            self.close()
            raise

    def _read_fan_out(self) -> list[int]:
        start = len(MAGIC)
        head = self._map[: start + FAN_OUT_SIZE]
        if not head.startswith(MAGIC) or len(head) != start + FAN_OUT_SIZE:
            raise Damaged(f"'{self.path}' is not a pack index")
        table = array("I", head[start:])
        if sys.byteorder == "little":
            table.byteswap()
        counts = table.tolist()
        if counts != sorted(counts):
            raise Damaged(f"the pack index '{self.path}' is damaged: its first table is out of order")
        return [0, *counts]

    def _lay_out(self) -> None:
        self.count = self._fan_out[-1]
        self._names = len(MAGIC) + FAN_OUT_SIZE
        self._offsets = self._names + self.count * (self._length + 4)
        self._far = self._offsets + self.count * 4
        self._end = len(self._map) - 2 * self._length
        if self._end < self._far or (self._end - self._far) % 8 or self._end - self._far > self.count * 8:
            raise Damaged(f"the pack index '{self.path}' is damaged: {self.count} objects need another size")

    @property
    def pack_hash(self) -> bytes:
        """The hash at the end of the pack."""
        return self._map[self._end : self._end + self._length]

    def is_whole(self) -> bool:
        """Return whether the index matches the hash at its end."""
        import hashlib  # loaded late: reading an index rarely needs it

        new = hashlib.sha1 if self._length == 20 else hashlib.sha256
        end = self._end + self._length
        with memoryview(self._map) as view, view[:end] as body:
            return new(body, usedforsecurity=False).digest() == self._map[end:]

    def find(self, oid: bytes) -> int | None:
        """Return the number of an id in sorted order; None if it is not in the pack."""
        first = oid[0]
        low, high = self._fan_out[first], self._fan_out[first + 1]
        length, names, mapped = self._length, self._names, self._map
        while low < high:
            middle = (low + high) >> 1
            start = names + middle * length
            found = mapped[start : start + length]
            if found == oid:
                return middle
            if found < oid:
                low = middle + 1
            else:
                high = middle
        return None

    def name(self, number: int) -> bytes:
        """Return the id with this number."""
        start = self._names + number * self._length
        return self._map[start : start + self._length]

    def checksum(self, number: int) -> int:
        """Return the CRC of the packed entry with this number."""
        start = self._names + self.count * self._length + number * 4
        return int.from_bytes(self._map[start : start + 4], "big")

    def offset(self, number: int) -> int:
        """Return the offset of the entry with this number."""
        start = self._offsets + number * 4
        near = int.from_bytes(self._map[start : start + 4], "big")
        if near < LARGE:
            return near
        start = self._far + (near - LARGE) * 8
        if start + 8 > self._end:
            raise Damaged(f"the pack index '{self.path}' is damaged: an offset points outside it")
        return int.from_bytes(self._map[start : start + 8], "big")

    def checksums(self) -> list[int]:
        """Return the CRC of each packed entry, in the order of ids."""
        found = array("I", self._map[self._names + self.count * self._length : self._offsets])
        if sys.byteorder == "little":
            found.byteswap()
        return found.tolist()

    def names(self) -> list[bytes]:
        """Return all ids, in order."""
        length, block = self._length, self._map[self._names : self._names + self.count * self._length]
        return [block[at : at + length] for at in range(0, len(block), length)]

    def offsets(self) -> list[int]:
        """Return the offset of each entry, in the order of ids."""
        near = array("I", self._map[self._offsets : self._far])
        if sys.byteorder == "little":
            near.byteswap()
        if max(near, default=0) < LARGE:
            return near.tolist()
        return [self.offset(number) for number in range(self.count)]

    def close(self) -> None:
        if isinstance(self._map, mmap.mmap):
            self._map.close()
        self._map = b""


def _map_file(path: str) -> mmap.mmap | bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size <= SMALL:
            return read_exactly(descriptor, size, 0)
        # An index is never changed in place, so a mapping stays valid.
        return map_or_read(descriptor, size)
    finally:
        os.close(descriptor)


def map_or_read(descriptor: int, size: int) -> mmap.mmap | bytes:
    """Return the bytes of an open file that is not empty: mapped, or read if the file system cannot map files."""
    try:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except OSError as error:
        # Some mounts of FUSE and 9p cannot map files.
        if error.errno not in (errno.ENODEV, errno.ENOSYS, errno.EINVAL, errno.EACCES):
            raise
        return read_exactly(descriptor, size, 0)
