"""The index of a pack (git's version 2): written from arrays in one go, read in place.

An index is a header, a fan-out table (how many ids begin with a byte up to this one), the ids sorted, a CRC of each
packed entry, its offset in 31 bits or, with the top bit set, a place in a second table of 64-bit offsets; then the
hash that ends the pack, and a hash over all of it. Ids and hashes are 20 bytes in a SHA-1 repository and 32 in a
SHA-256 one; nothing else differs.
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
"""Up to here an index is read instead of mapped: a mapping holds a file descriptor, and small packs are many."""


def encode_index(
    numbers: Mapping[bytes, int],
    offsets: Sequence[int],
    checksums: Sequence[int],
    pack_hash: bytes,
    object_format: str,
    *,
    large_from: int = LARGE,
) -> bytes:
    """The index of the entries whose offsets and CRCs stand in pack order; `numbers` says which id is which entry."""
    import hashlib  # loaded late: whoever reads an index hashes nothing

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
    """An index of ours, mapped into memory; looking an id up takes a microsecond or two."""

    def __init__(self, path: str, hash_length: int) -> None:
        """Open an index; `Damaged` where its size or its first tables cannot be right."""
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
            raise Damaged(f"the pack index '{self.path}' is damaged: {self.count} objects take another size")

    @property
    def pack_hash(self) -> bytes:
        """The hash that the pack ends with."""
        return self._map[self._end : self._end + self._length]

    def is_whole(self) -> bool:
        """Whether it is, byte for byte, what was written: it ends with a hash of all of it."""
        import hashlib  # loaded late: whoever reads an index hashes nothing, mostly

        new = hashlib.sha1 if self._length == 20 else hashlib.sha256
        end = self._end + self._length
        with memoryview(self._map) as view, view[:end] as body:
            return new(body, usedforsecurity=False).digest() == self._map[end:]

    def find(self, oid: bytes) -> int | None:
        """The number of an id in sorted order, or None."""
        first = oid[0]
        low, high = self._fan_out[first], self._fan_out[first + 1]
        length, names, mapped = self._length, self._names, self._map
        while low < high:
            middle = (low + high) >> 1
            start = names + middle * length
            here = mapped[start : start + length]
            if here == oid:
                return middle
            if here < oid:
                low = middle + 1
            else:
                high = middle
        return None

    def name(self, number: int) -> bytes:
        """The id of this number."""
        start = self._names + number * self._length
        return self._map[start : start + self._length]

    def checksum(self, number: int) -> int:
        """The CRC of the packed entry of this number."""
        start = self._names + self.count * self._length + number * 4
        return int.from_bytes(self._map[start : start + 4], "big")

    def offset(self, number: int) -> int:
        """Where in the pack the entry of this number begins."""
        start = self._offsets + number * 4
        near = int.from_bytes(self._map[start : start + 4], "big")
        if near < LARGE:
            return near
        start = self._far + (near - LARGE) * 8
        if start + 8 > self._end:
            raise Damaged(f"the pack index '{self.path}' is damaged: an offset points outside it")
        return int.from_bytes(self._map[start : start + 8], "big")

    def checksums(self) -> list[int]:
        """The CRC of each packed entry, in the order of their ids."""
        found = array("I", self._map[self._names + self.count * self._length : self._offsets])
        if sys.byteorder == "little":
            found.byteswap()
        return found.tolist()

    def names(self) -> list[bytes]:
        """Every id, in order."""
        length, block = self._length, self._map[self._names : self._names + self.count * self._length]
        return [block[at : at + length] for at in range(0, len(block), length)]

    def offsets(self) -> list[int]:
        """Where each entry begins, in the order of their ids."""
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
        # An index is written whole and never changed in place, so that a mapping of it stays good.
        return map_or_read(descriptor, size)
    finally:
        os.close(descriptor)


def map_or_read(descriptor: int, size: int) -> mmap.mmap | bytes:
    """Return the bytes of an open file that is not empty: mapped, or read where the file system maps none."""
    try:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except OSError as error:
        # Some mounts of FUSE and 9p map no file.
        if error.errno not in (errno.ENODEV, errno.ENOSYS, errno.EINVAL, errno.EACCES):
            raise
        return read_exactly(descriptor, size, 0)
