"""Reads many objects of our own packs one after another, as a restore does: most lie beside the last one.

A hot path: the bytes of 100,000 files, 20 KiB each, take 35 µs a file, of which 31 go into inflating and hashing
(tests/restore/measure.py measures restores). Read by `pread`, never mapped: a pack that was cut short is then an error
to report. Whatever is not plain (a delta, damage) is left to the pack's own reader.
"""

from __future__ import annotations

import hashlib
import os

from git_envhist.errors import Damaged
from git_envhist.store.deflate import InflateError, decompressobj
from git_envhist.store.ownpacks import OwnPacks
from git_envhist.store.packfile import KINDS, PackFile

BLOCK = 1 << 16
MOST_BLOCKS = 32
"""So many stay in memory. The files of a directory follow one another; its tree and its manifest lie elsewhere."""
LONGEST_HEAD = 16
LARGEST = 1 << 26
"""What claims to be larger is read by those who doubt it."""
SLACK = 256
"""What deflate may add to bytes that it cannot make smaller, beside a part of their number: tables of its codes."""


class Windows:
    """The objects of our packs."""

    def __init__(self, own: OwnPacks, object_format: str) -> None:
        self._own = own
        self._format = object_format
        self._new = getattr(hashlib, object_format)
        self._open: list[_Pack] | None = None
        self._blocks: dict[tuple[int, int], memoryview] = {}

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """The kind and the bytes of an object; `KeyError` where no pack has it, `Damaged` where none has it whole."""
        packs = self._open if self._open is not None else self._open_all()
        for place, pack in enumerate(packs):
            number = pack.find(oid)
            if number is None:
                continue
            if place:
                # What is asked for next most likely lies there, too.
                packs.insert(0, packs.pop(place))
            found = self._read_at(pack, number)
            if found is not None and self._id(*found) == oid:
                return found
            break
        return self._own.read(oid)

    def close(self) -> None:
        for pack in self._open or ():
            pack.close()
        self._open = None
        self._blocks.clear()
        self._own.close()

    def _open_all(self) -> list[_Pack]:
        # The fullest pack is the likeliest to have what is looked for.
        packs = sorted(self._own.packs, key=lambda pack: -pack.index.count)
        self._open = [_Pack(number, pack) for number, pack in enumerate(packs)]
        return self._open

    def _read_at(self, pack: _Pack, number: int) -> tuple[bytes, bytes] | None:
        """The kind and the bytes of an object, unchecked; None where its pack's own reader is to be asked."""
        try:
            offset = pack.offset(number)
            start = offset & ~(BLOCK - 1)
            view = self._block(pack, start)
            if offset - start > BLOCK - LONGEST_HEAD:
                start, view = offset, pack.read(offset, BLOCK)
            code, size, at = _head(view, offset - start)
            kind = KINDS.get(code)
            if kind is None or size > LARGEST:
                return None
            # Bytes without a pattern take nine bits each in a code that was made for others.
            most = size + (size >> 3) + SLACK
            if at + most > BLOCK:
                view, at = pack.read(start + at, most), 0
            inflater = decompressobj()
            data = inflater.decompress(view[at : at + most], size + 1)
        except (OSError, IndexError, Damaged):
            return None
        except InflateError:
            return None
        return (kind, data) if inflater.eof and len(data) == size else None

    def _block(self, pack: _Pack, start: int) -> memoryview:
        key = (pack.number, start)
        found = self._blocks.get(key)
        if found is None:
            if len(self._blocks) >= MOST_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            found = self._blocks[key] = pack.read(start, BLOCK)
        return found

    def _id(self, kind: bytes, data: bytes) -> bytes:
        # Asked for by its own name a hash is made twice as fast.
        digest = self._new(b"%b %d\0" % (kind, len(data)), usedforsecurity=False)
        digest.update(data)
        found: bytes = digest.digest()
        return found


class _Pack:
    """One pack, opened when something is read."""

    def __init__(self, number: int, pack: PackFile) -> None:
        self.number = number
        self.find = pack.index.find
        self.offset = pack.index.offset
        self._path = pack.path
        self._file = -1

    def read(self, offset: int, size: int) -> memoryview:
        if self._file < 0:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        return memoryview(os.pread(self._file, size, offset))

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _head(data: memoryview, at: int) -> tuple[int, int, int]:
    """The code of an entry's kind, the size of its object, and where its deflated bytes begin."""
    byte = data[at]
    code, size, shift = byte >> 4 & 7, byte & 15, 4
    while byte & 0x80:
        at += 1
        byte = data[at]
        size |= (byte & 0x7F) << shift
        shift += 7
    return code, size, at + 1
