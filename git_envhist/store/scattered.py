"""Reads objects that lie here and there in our packs, as a comparison does: small ones mostly, each once.

A hot path: 450 trees and shards of two snapshots of 100,000 files take 7 ms, a `git cat-file` 12
(`python -m tests.benchmarks --only diff`). As git does when it reads a pack, this trusts the checksum of the deflated
bytes; no id is computed. Read by `pread`, never mapped: a pack that was cut short is then an error to report. What is
not plain (a delta, damage) is left to the pack's own reader.
"""

from __future__ import annotations

import os

from git_envhist.errors import Damaged
from git_envhist.store.deflate import InflateError, decompressobj
from git_envhist.store.ownpacks import OwnPacks
from git_envhist.store.packfile import KINDS, PackFile

WINDOW = 1 << 13
"""Most trees and shards lie in one reading of this size."""
WIDE, HALVED = 1 << 16, 2
"""What is larger is read once more, by so much of its size that it is inflated at one go: text is."""
LARGEST = 1 << 26
"""What claims to be larger is read by those who doubt it."""
SLACK = 256
"""What deflate may add to bytes that it cannot make smaller, beside a part of their number: tables of its codes."""


class Scattered:
    """The objects of our packs."""

    def __init__(self, own: OwnPacks) -> None:
        self._own = own
        self._open: list[_Pack] | None = None

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
            found = pack.read(number)
            if found is not None:
                return found
            break
        return self._own.read(oid)

    def close(self) -> None:
        for pack in self._open or ():
            pack.close()
        self._open = None
        self._own.close()

    def _open_all(self) -> list[_Pack]:
        # The fullest pack is the likeliest to have what is looked for.
        self._open = [_Pack(pack) for pack in sorted(self._own.packs, key=lambda pack: -pack.index.count)]
        return self._open


class _Pack:
    """One pack, opened when something is read."""

    def __init__(self, pack: PackFile) -> None:
        self.find = pack.index.find
        self._offset = pack.index.offset
        self._path = pack.path
        self._file = -1

    def read(self, number: int) -> tuple[bytes, bytes] | None:
        """The kind and the bytes of an object; None where the pack's own reader is to be asked."""
        try:
            offset = self._offset(number)
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            window = os.pread(self._file, WINDOW, offset)
            byte, at, shift = window[0], 1, 4
            code, size = byte >> 4 & 7, byte & 15
            while byte & 0x80:
                byte = window[at]
                size |= (byte & 0x7F) << shift
                at += 1
                shift += 7
            kind = KINDS.get(code)
            if kind is None or size > LARGEST:
                return None
            asked = WINDOW
            if size > WIDE:
                asked = size // HALVED
                window = os.pread(self._file, asked, offset)
            inflater = decompressobj()
            data = inflater.decompress(window[at:], size + 1)
            if not inflater.eof and len(window) == asked:
                # Bytes without a pattern take nine bits each in a code that was made for others.
                rest = os.pread(self._file, size + (size >> 3) + SLACK, offset + asked)
                data += inflater.decompress(inflater.unconsumed_tail + rest, size + 1 - len(data))
        except (OSError, IndexError, Damaged):
            return None
        except InflateError:
            return None
        return (kind, data) if inflater.eof and len(data) == size else None

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
