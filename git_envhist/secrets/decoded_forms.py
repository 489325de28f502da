"""Decode other representations of bytes, within limits: UTF-16, compressed data, base64.

A token in a compressed log, in a Windows script or in a Kubernetes manifest is as secret as in plain text. Each form
is decoded once inside another, at most three levels deep, and at most 64 MiB are produced per object.
"""

from __future__ import annotations

import base64
import bz2
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import cache

MAX_DEPTH = 3
MADE = 64 << 20
"""Maximum of bytes produced per object."""
MEMBERS = 2000
GZIP = b"\x1f\x8b"
MAX_TEXT = 16 << 20
"""Longer data is not searched for base64, because the search copies it."""


class _Budget:
    """The number of bytes that may still be produced."""

    def __init__(self) -> None:
        self.left = MADE

    def take(self, data: bytes) -> bytes:
        data = data[: self.left]
        self.left -= len(data)
        return data


def decoded_forms(data: bytes) -> Iterator[bytes]:
    """Yield the bytes as they are, then decoded from every other form that they contain."""
    yield from _decoded_forms(data, _Budget(), 0)


def _decoded_forms(data: bytes, budget: _Budget, depth: int) -> Iterator[bytes]:
    yield data
    if depth == MAX_DEPTH:
        return
    for read in (_inflated, _wide, _decoded):
        for found in read(data, budget):
            if found:
                yield from _decoded_forms(found, budget, depth + 1)


def _inflated(data: bytes, budget: _Budget) -> Iterator[bytes]:
    for magic, opened in _OPENED.items():
        if data.startswith(magic) and budget.left:
            try:
                yield budget.take(opened(data, budget.left))
            except (zlib.error, OSError, ValueError, EOFError, lzma.LZMAError):
                return
    if data.startswith(b"PK\x03\x04"):
        yield from _members(data, budget)


def _members(data: bytes, budget: _Budget) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist()[:MEMBERS]:
                if budget.left and not member.is_dir() and not member.flag_bits & 1:
                    with archive.open(member) as file:
                        yield budget.take(file.read(budget.left))
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, RuntimeError):
        return


def _wide(data: bytes, budget: _Budget) -> Iterator[bytes]:
    """Yield text in UTF-16 that is ASCII, in either byte order and at any offset."""
    if b"\0" in data:
        found = b"\n".join(match[0][::2] for match in _pairs().finditer(data))
        yield budget.take(found)


def _decoded(data: bytes, budget: _Budget) -> Iterator[bytes]:
    if len(data) > MAX_TEXT:
        return
    found = []
    for match in _base64().finditer(data):
        letters = match[0].translate(_URL_SAFE, b"\r\n \t")
        letters = letters.rstrip(b"=")
        letters = letters[: len(letters) - (len(letters) % 4 == 1)]
        made = base64.b64decode(letters + b"=" * (-len(letters) % 4))
        # Compressed or nested data is decoded separately; everything else is searched together.
        if made.startswith(tuple(_OPENED)):
            yield budget.take(made)
        else:
            found.append(made)
    yield budget.take(b"\n".join(found))


def _gunzip(data: bytes, most: int) -> bytes:
    return zlib.decompressobj(31).decompress(data, most)


def _inflate(data: bytes, most: int) -> bytes:
    return zlib.decompressobj().decompress(data, most)


def _bunzip(data: bytes, most: int) -> bytes:
    return bz2.BZ2Decompressor().decompress(data, most)


def _unxz(data: bytes, most: int) -> bytes:
    return lzma.LZMADecompressor(memlimit=256 << 20).decompress(data, most)


_OPENED: dict[bytes, Callable[[bytes, int], bytes]] = {
    GZIP: _gunzip,
    b"\x78\x01": _inflate,
    b"\x78\x9c": _inflate,
    b"\x78\xda": _inflate,
    b"BZh": _bunzip,
    b"\xfd7zXZ\0": _unxz,
}
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


@cache
def _pairs() -> re.Pattern[bytes]:
    return re.compile(rb"(?:[\t\r\n\x20-\x7e]\x00){16,}[\x20-\x7e]?")


@cache
def _base64() -> re.Pattern[bytes]:
    return re.compile(rb"[A-Za-z0-9+/_-]{40,}(?:\r?\n[ \t]{0,8}[A-Za-z0-9+/_-]{4,})*={0,2}")


class StreamDecompressor:
    """Decompress a file that arrives in parts, until the limit is reached."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(31)
        self._room = _Budget()

    def add(self, piece: bytes) -> bytes:
        """Return the bytes that another part decompresses to, or none after damage or at the limit."""
        if not self._room.left:
            return b""
        try:
            return self._room.take(
                self._stream.decompress(self._stream.unconsumed_tail + piece, self._room.left)
            )
        except zlib.error:
            self._room.left = 0
            return b""
