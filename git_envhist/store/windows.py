"""Reads many objects of our own packs one after another, as a restore does: most lie beside the last one.

A hot path: the bytes of 100,000 files, 20 KiB each, take 33 µs a file, of which 30 go into inflating and hashing
(tests/restore/measure.py measures restores). Read by `pread`, never mapped: a pack that was cut short is then an error
to report. Whatever is not plain (a delta, damage) is left to the pack's own reader.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from git_envhist.errors import Damaged
from git_envhist.store.deflate import InflateError, crc32, decompress, decompressobj
from git_envhist.store.ownpacks import OwnPacks
from git_envhist.store.packfile import KINDS, PackFile

BLOCK = 1 << 17
"""Blocks begin at multiples of this."""
OVERLAP = 1 << 14
"""So much of the next is read with each: an object that begins in a block mostly ends in what is read of it."""
MOST_BLOCKS = 24
"""So many of a pack stay in memory. The files of a directory follow one another; its manifest lies elsewhere."""
LARGEST = 1 << 26
"""What claims to be larger is read by those who doubt it."""
SLACK = 256
"""What deflate may add to bytes that it cannot make smaller, beside a part of their number: tables of its codes."""
WORTH_A_LIST = 1 << 10
"""Who has read so many objects of a pack, and a sixteenth of it, will read most: where all are is learned by heart."""
SURELY = 4
"""Who reads a whole snapshot surely will: so much sooner."""
MOST_LISTED = 1 << 19
"""So many are learned, at 150 bytes each, in a process."""
QUICK = 1 << 18
"""What claims to be smaller is inflated at one go, which spares what a stream needs between two. It may turn out to be
more, by no more than deflate can make of as many bytes."""
DEFLATED, FRAME = 0x78, 2
"""How the frame of git's streams begins, and how long it is."""
CHECKSUM = 4
"""So long is what the frame ends with."""
BARE = -15
"""Without the frame's checksum: what an object is held to is its id, or what its pack's index has of all its bytes."""
BLOB = 3
"""What an entry of a pack says that holds one."""
NOWHERE = 0
"""Where a pack begins there is no object."""


class PackReader:
    """The objects of our packs."""

    def __init__(self, own: OwnPacks, object_format: str, *, reads_most: bool = False) -> None:
        """`reads_most`: a whole snapshot is going to be read."""
        self._own = own
        self._new = getattr(hashlib, object_format)
        self._open: list[_PackCursor] | None = None
        self._reads_most = reads_most

    def packed(self, oid: bytes) -> bytes | None:
        """A blob of which the packed bytes have the checksum that was taken when the id was; None where nothing tells
        so. To hash what comes of them takes a third of the time that it takes to inflate it."""
        packs = self._open if self._open is not None else self._open_all()
        for place, pack in enumerate(packs):
            offset = pack.find(oid)
            if offset is None:
                continue
            if place:
                packs.insert(0, packs.pop(place))
            return pack.packed(offset)
        return None

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """The kind and the bytes of an object; `KeyError` where no pack has it, `Damaged` where none has it whole."""
        packs = self._open if self._open is not None else self._open_all()
        for place, pack in enumerate(packs):
            offset = pack.find(oid)
            if offset is None:
                continue
            if place:
                # What is asked for next most likely lies there, too.
                packs.insert(0, packs.pop(place))
            found = pack.read(offset)
            if found is None:
                break
            # Asked for by its own name a hash is made twice as fast.
            digest = self._new(b"%b %d\0" % (found[0], len(found[1])), usedforsecurity=False)
            digest.update(found[1])
            if digest.digest() == oid:
                return found
            break
        return self._own.read(oid)

    def close(self) -> None:
        for pack in self._open or ():
            pack.close()
        self._open = None
        self._own.close()

    def _open_all(self) -> list[_PackCursor]:
        # The fullest pack is the likeliest to have what is looked for.
        packs = sorted(self._own.packs, key=lambda pack: -pack.index.count)
        listed, self._open = 0, []
        for pack in packs:
            listed += pack.index.count
            self._open.append(_PackCursor(pack, listed <= MOST_LISTED, self._reads_most))
        return self._open


class _PackCursor:
    """One pack, opened when something is read."""

    def __init__(self, pack: PackFile, may_list: bool, reads_most: bool) -> None:
        self.find: Callable[[bytes], int | None] = self._look_up
        self._index = pack.index
        self._path = pack.path
        self._file = -1
        self._blocks: dict[int, memoryview] = {}
        self._ends: dict[int, int] = {}
        self._checksums: dict[int, int] = {}
        """By where they begin: where objects end, and what their packed bytes sum up to; learned when that is asked."""
        self._is_listed = False
        worth = max(WORTH_A_LIST, pack.index.count // 16) // (SURELY if reads_most else 1)
        self._until_listed = max(1, worth) if may_list else 0

    def packed(self, offset: int) -> bytes | None:
        """The bytes of a blob, if its entry has its checksum; None where that is not known, or it has not."""
        start = offset & -BLOCK
        try:
            if self._is_listed and not self._ends:
                self._learn_ends()
            end = self._ends.get(offset)
            if not end or end - offset > LARGEST:
                return None
            entry = (self._blocks.get(start) or self._read_block(start))[offset - start : end - start]
            if len(entry) < end - offset:
                entry = memoryview(os.pread(self._file, end - offset, offset))
            if crc32(entry) != self._checksums[offset]:
                return None
            byte, at = entry[0], 0
            code, size = byte >> 4 & 7, byte & 15
            if byte & 0x80:
                size, at = _rest_of_size(entry, at, size)
            if code != BLOB or size > LARGEST or entry[at + 1] != DEFLATED:
                return None
            data = decompress(entry[at + 1 + FRAME : -CHECKSUM], BARE, size + 1)
        except (OSError, IndexError):
            return None
        except InflateError:
            return None
        return data if len(data) == size else None

    def read(self, offset: int) -> tuple[bytes, bytes] | None:
        """The kind and the bytes of an object, unchecked; None where its pack's own reader is to be asked."""
        start = offset & -BLOCK
        try:
            view = self._blocks.get(start) or self._read_block(start)
            at = offset - start
            byte = view[at]
            code, size = byte >> 4 & 7, byte & 15
            if byte & 0x80:
                size, at = _rest_of_size(view, at, size)
            kind = KINDS.get(code)
            if kind is None or size > LARGEST:
                return None
            at += 1
            # Bytes without a pattern take nine bits each in a code that was made for others.
            most = size + (size >> 3) + SLACK
            if view[at] != DEFLATED:
                return None
            if size < QUICK and at + most <= len(view):
                data = decompress(view[at + FRAME : at + most], BARE, size + 1)
                return (kind, data) if len(data) == size else None
            inflater = decompressobj(BARE)
            data = inflater.decompress(view[at + FRAME : at + most], size + 1)
            if not inflater.eof and at + most > len(view):
                data += self._inflate_more(inflater, start, at + most - len(view), size + 1 - len(data))
        except (OSError, IndexError):
            return None
        except InflateError:
            return None
        return (kind, data) if inflater.eof and len(data) == size else None

    def close(self) -> None:
        self._blocks.clear()
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _inflate_more(self, inflater: Any, start: int, most: int, missing: int) -> bytes:
        """What follows in the next blocks, as far as it goes."""
        parts = []
        while most > 0 and missing > 0 and not inflater.eof:
            start += BLOCK
            view = (self._blocks.get(start) or self._read_block(start))[OVERLAP : OVERLAP + most]
            if not view:
                break
            parts.append(inflater.decompress(view, missing))
            missing -= len(parts[-1])
            most -= len(view)
        return b"".join(parts)

    def _look_up(self, oid: bytes) -> int | None:
        """Where an object begins, as the index says it; None where the pack has none of that name."""
        number = self._index.find(oid)
        if number is None:
            return None
        self._until_listed -= 1
        if not self._until_listed:
            self.find = self._list().get
        return self._offset(number)

    def _list(self) -> dict[bytes, int]:
        self._is_listed = True
        return dict(zip(self._index.names(), self._offsets(), strict=True))

    def _learn_ends(self) -> None:
        self._ends = {NOWHERE: NOWHERE}
        # Here an index alone says which bytes are whose. One bit of it that has changed since can lead to another
        # object, whole and with the right checksum; and it must be the index of this very pack.
        if not self._index.is_whole() or not self._is_of_this_pack():
            return
        offsets = self._offsets()
        # What ends the last one is not told: it is left to those who find out.
        self._ends = {**dict(pairwise(sorted(offsets))), NOWHERE: NOWHERE}
        self._checksums = dict(zip(offsets, self._index.checksums(), strict=True))

    def _is_of_this_pack(self) -> bool:
        """Whether the pack ends as its index says that it does."""
        wanted = self._index.pack_hash
        end = os.fstat(self._opened()).st_size
        return end > len(wanted) and os.pread(self._file, len(wanted), end - len(wanted)) == wanted

    def _offsets(self) -> list[int]:
        try:
            return self._index.offsets()
        except Damaged:
            return [*map(self._offset, range(self._index.count))]

    def _offset(self, number: int) -> int:
        try:
            return self._index.offset(number)
        except Damaged:
            return NOWHERE

    def _read_block(self, start: int) -> memoryview:
        if len(self._blocks) >= MOST_BLOCKS:
            del self._blocks[next(iter(self._blocks))]
        found = self._blocks[start] = memoryview(os.pread(self._opened(), BLOCK + OVERLAP, start))
        return found

    def _opened(self) -> int:
        if self._file < 0:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return self._file


def _rest_of_size(data: memoryview, at: int, size: int) -> tuple[int, int]:
    """The size of an entry's object, and where the last byte of what says it stands."""
    shift, byte = 4, 0x80
    while byte & 0x80:
        at += 1
        byte = data[at]
        size |= (byte & 0x7F) << shift
        shift += 7
    return size, at
