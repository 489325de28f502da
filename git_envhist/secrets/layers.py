"""Read what some bytes contain in another form: UTF-16, compressed, base64; within bounds.

A token in a compressed log, in a script of Windows or in a Kubernetes manifest leaves like any other. Each form is
opened once in another, at most three deep, and at most 64 MiB in all are made of one object.
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
"""So many bytes are made of one object, at most."""
MEMBERS = 2000
GZIP = b"\x1f\x8b"
MAX_TEXT = 16 << 20
"""Longer data is not searched for base64: it would be copied."""


class _Room:
    """How many bytes may still be made."""

    def __init__(self) -> None:
        self.left = MADE

    def take(self, data: bytes) -> bytes:
        data = data[: self.left]
        self.left -= len(data)
        return data


def readings(data: bytes) -> Iterator[bytes]:
    """Yield the bytes as they are, and then in every other form that they have."""
    yield from _readings(data, _Room(), 0)


def _readings(data: bytes, room: _Room, depth: int) -> Iterator[bytes]:
    yield data
    if depth == MAX_DEPTH:
        return
    for read in (_inflated, _wide, _decoded):
        for found in read(data, room):
            if found:
                yield from _readings(found, room, depth + 1)


def _inflated(data: bytes, room: _Room) -> Iterator[bytes]:
    for magic, opened in _OPENED.items():
        if data.startswith(magic) and room.left:
            try:
                yield room.take(opened(data, room.left))
            except (zlib.error, OSError, ValueError, EOFError, lzma.LZMAError):
                return
    if data.startswith(b"PK\x03\x04"):
        yield from _members(data, room)


def _members(data: bytes, room: _Room) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist()[:MEMBERS]:
                if room.left and not member.is_dir() and not member.flag_bits & 1:
                    with archive.open(member) as file:
                        yield room.take(file.read(room.left))
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, RuntimeError):
        return


def _wide(data: bytes, room: _Room) -> Iterator[bytes]:
    """Text in UTF-16, as far as it is ASCII, wherever it stands and in whichever order its bytes are."""
    if b"\0" in data:
        found = b"\n".join(match[0][::2] for match in _pairs().finditer(data))
        yield room.take(found)


def _decoded(data: bytes, room: _Room) -> Iterator[bytes]:
    if len(data) > MAX_TEXT:
        return
    found = []
    for match in _base64().finditer(data):
        letters = match[0].translate(_URL_SAFE, b"\r\n \t")
        letters = letters.rstrip(b"=")
        letters = letters[: len(letters) - (len(letters) % 4 == 1)]
        made = base64.b64decode(letters + b"=" * (-len(letters) % 4))
        # A compressed text or another one is opened by itself; the rest is searched together.
        if made.startswith(tuple(_OPENED)):
            yield room.take(made)
        else:
            found.append(made)
    yield room.take(b"\n".join(found))


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


class Unfolding:
    """A compressed file that comes in pieces: what each piece adds to the text, for as long as there is room."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(31)
        self._room = _Room()

    def add(self, piece: bytes) -> bytes:
        """The bytes that a further piece unfolds to; nothing once the stream is damaged, or the room is used up."""
        if not self._room.left:
            return b""
        try:
            return self._room.take(
                self._stream.decompress(self._stream.unconsumed_tail + piece, self._room.left)
            )
        except zlib.error:
            self._room.left = 0
            return b""
