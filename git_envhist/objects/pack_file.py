"""Read objects from one pack with all checks: inflate, resolve deltas (which a later repack makes), verify the id.

Packs are read by `pread`, never mapped: a truncated pack is then an error and not a signal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from git_envhist.disk import read_exactly
from git_envhist.errors import FSCK_HINT, Damaged
from git_envhist.objects.deflate import InflateError, crc32, decompressobj
from git_envhist.objects.pack_index import PackIndex

WITHOUT_DELTA = frozenset((1, 2, 3, 4))


def read_entries(pack_path: str, hash_length: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield (id, packed entry, its checksum) of every object of a pack, in pack order."""
    index = PackIndex(pack_path.removesuffix(".pack") + ".idx", hash_length)
    if not index.is_whole():
        # A changed id would be copied into the merged pack, and the object would be lost with this one.
        raise Damaged(f"the pack index '{index.path}' is damaged")
    descriptor = os.open(pack_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        rows = sorted((index.offset(number), number) for number in range(index.count))
        ends = [*(offset for offset, _ in rows), os.fstat(descriptor).st_size - hash_length]
        for (_, number), (start, end) in zip(rows, pairwise(ends), strict=True):
            entry, checksum = read_exactly(descriptor, end - start, start), index.checksum(number)
            if not entry or entry[0] >> 4 & 7 not in WITHOUT_DELTA or crc32(entry) != checksum:
                raise Damaged(f"'{pack_path}' cannot be merged")
            yield index.name(number), entry, checksum
    finally:
        os.close(descriptor)
        index.close()


KINDS = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
OFFSET_DELTA, ID_DELTA = 6, 7
WINDOW = 1 << 15
"""Most entries fit into one read of this size: with 8 KiB, half of them need a second one, and 10 % more time."""
CHUNK = 1 << 18
JOINED = 1 << 20
"""Packs up to this size are written once more, with the commit: each pack slows down every git of the user."""
MAX_HEAD = 64
MAX_INFLATION = 1040
"""The largest factor by which deflate can expand data."""
MAX_CHAIN = 4096
"""git makes chains of at most 50 by default, and never more than 4095."""


class EntryHeader(NamedTuple):
    """The header of a packed entry."""

    code: int
    size: int
    base: int
    """The offset of the base of an offset delta or id delta."""
    data_at: int


@lru_cache(1 << 14)
def entry_header(code: int, size: int) -> bytes:
    """Return the header of a packed entry: its type and the size of its content."""
    if size < 16:
        return bytes((code << 4 | size,))
    parts = bytearray((0x80 | code << 4 | size & 15,))
    size >>= 4
    while size > 127:
        parts.append(0x80 | size & 127)
        size >>= 7
    parts.append(size)
    return bytes(parts)


class PackFile:
    """A pack and its index."""

    def __init__(self, path: str, index: PackIndex, object_format: str) -> None:
        self.path = path
        self.index = index
        self._format = object_format
        self._hash_length = 20 if object_format == "sha1" else 32
        self._file = -1
        self._size = 0

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return os.stat(self.path).st_size

    def read(self, oid: bytes) -> tuple[bytes, bytes] | None:
        """Return the type and content of an object, verified by its id; None if the pack does not have it."""
        number = self.index.find(oid)
        if number is None:
            return None
        try:
            kind, data = self._read_at(self.index.offset(number))
        except OSError as error:
            raise Damaged(f"cannot read the pack '{self.path}': {error.strerror}", hint=FSCK_HINT) from error
        import hashlib  # loaded late: a comparison verifies no ids

        digest = hashlib.new(self._format, b"%b %d\0" % (kind, len(data)), usedforsecurity=False)
        digest.update(data)
        if digest.digest() != oid:
            raise self._damaged(f"object {oid.hex()} does not match its id")
        return kind, data

    def bases(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (id, id of its delta base) for all objects stored as deltas."""
        names, offsets = self.index.names(), self.index.offsets()
        at = dict(zip(offsets, names, strict=True))
        start, read = 0, b""
        for offset in sorted(at):
            if offset + MAX_HEAD > start + len(read):
                start, read = offset, self._window(offset)
            head = self._parse_head(offset, read[offset - start : offset - start + MAX_HEAD])
            if head.code not in KINDS and head.base in at:
                yield at[offset], at[head.base]

    def close(self) -> None:
        self.index.close()
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _read_at(self, offset: int) -> tuple[bytes, bytes]:
        deltas: list[bytes] = []
        while True:
            window = self._window(offset)
            head = self._parse_head(offset, window)
            data = self._inflate(head, window[head.data_at - offset :])
            if head.code in KINDS:
                break
            deltas.append(data)
            if len(deltas) > MAX_CHAIN:
                raise self._damaged("a chain of deltas has no end")
            offset = head.base
        for delta in reversed(deltas):
            data = self._apply(data, delta)
        return KINDS[head.code], data

    def _window(self, offset: int) -> bytes:
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._size = os.fstat(self._file).st_size
        if not 12 <= offset < self._size - self._hash_length:
            raise self._damaged("an object lies outside the file")
        return read_exactly(self._file, WINDOW, offset)

    def _parse_head(self, offset: int, window: bytes) -> EntryHeader:
        try:
            code, size, at = _read_size(window)
            base = 0
            if code == OFFSET_DELTA:
                back, at = _read_distance(window, at)
                base = offset - back
            elif code == ID_DELTA:
                base = self._offset_of_base(window[at : at + self._hash_length])
                at += self._hash_length
            elif code not in KINDS:
                raise self._damaged(f"an entry at {offset} has an unknown type")
        except IndexError as cut:
            raise self._damaged(f"the entry at {offset} is cut off") from cut
        if size > self._size * MAX_INFLATION:
            raise self._damaged(f"the entry at {offset} claims an impossible size")
        return EntryHeader(code, size, base, offset + at)

    def _offset_of_base(self, oid: bytes) -> int:
        number = self.index.find(oid) if len(oid) == self._hash_length else None
        if number is None:
            raise self._damaged(f"a delta's base {oid.hex()} is missing")
        return self.index.offset(number)

    def _inflate(self, head: EntryHeader, chunk: bytes) -> bytes:
        inflater = decompressobj()
        parts, missing = [], head.size
        reading_at = head.data_at + len(chunk)
        while not inflater.eof:
            if not chunk:
                chunk = read_exactly(self._file, CHUNK, reading_at)
                reading_at += len(chunk)
                if not chunk:
                    raise self._damaged("an object is cut off")
            try:
                part = inflater.decompress(chunk, missing + 1)
            except InflateError as error:
                raise self._damaged(f"an object does not inflate ({error})") from error
            parts.append(part)
            missing -= len(part)
            if missing < 0:
                break
            chunk = inflater.unconsumed_tail
        if missing:
            raise self._damaged("an object does not have the size it claims")
        return b"".join(parts)

    def _apply(self, base: bytes, delta: bytes) -> bytes:
        try:
            return apply_delta(base, delta)
        except (IndexError, ValueError) as error:
            raise self._damaged("a delta does not fit its base") from error

    def _damaged(self, what: str) -> Damaged:
        return Damaged(f"the pack '{self.path}' is damaged: {what}", hint=FSCK_HINT)


def open_entry(entry: bytes) -> tuple[bytes, bytes]:
    """Return the type and content of a packed entry; raise Damaged if it is a delta or invalid."""
    try:
        code, size, at = _read_size(entry)
    except IndexError as error:
        raise Damaged("an entry of a pack is cut off", hint=FSCK_HINT) from error
    try:
        data = decompressobj().decompress(entry[at:], size + 1)
    except InflateError as error:
        raise Damaged(f"an entry of a pack does not inflate ({error})", hint=FSCK_HINT) from error
    if code not in KINDS or len(data) != size:
        raise Damaged("an entry of a pack has another type or size than it claims", hint=FSCK_HINT)
    return KINDS[code], data


def _read_size(window: bytes) -> tuple[int, int, int]:
    byte = window[0]
    code, size, at, shift = byte >> 4 & 7, byte & 15, 1, 4
    while byte & 0x80:
        byte = window[at]
        size |= (byte & 0x7F) << shift
        at += 1
        shift += 7
    return code, size, at


def _read_distance(window: bytes, at: int) -> tuple[int, int]:
    byte = window[at]
    distance = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = window[at]
        distance = (distance + 1) << 7 | byte & 0x7F
    return distance, at + 1


def apply_delta(base: bytes, delta: bytes) -> bytes:
    """Return the result of a delta applied to its base; raise ValueError or IndexError if it is invalid."""
    base_size, at = _delta_number(delta, 0)
    wanted, at = _delta_number(delta, at)
    if base_size != len(base):
        raise ValueError("a base of another size")
    parts, made = [], 0
    while at < len(delta):
        command = delta[at]
        at += 1
        if command & 0x80:
            start, size, at = _copy_range(delta, at, command)
            part = base[start : start + size]
        else:
            size = command
            part = delta[at : at + size]
            at += size
        made += size
        if not size or len(part) != size or made > wanted:
            raise ValueError("a command outside its bounds")
        parts.append(part)
    if made != wanted:
        raise ValueError("another size than promised")
    return b"".join(parts)


def _delta_number(delta: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = delta[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number, at


def _copy_range(delta: bytes, at: int, command: int) -> tuple[int, int, int]:
    numbers = 0
    for bit in range(7):
        if command >> bit & 1:
            numbers |= delta[at] << 8 * bit
            at += 1
    return numbers & 0xFFFFFFFF, numbers >> 32 or 0x10000, at
