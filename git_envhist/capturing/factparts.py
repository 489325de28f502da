"""Captured files as sources to be read here and there: a leaf says what it wants of those that are too large to show.

Of a file in pieces only the pieces are read that are asked for: a database is cut at every 16 KiB, any other where its
content says so, and is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from git_envhist.errors import EnvhistError
from git_envhist.facts.probe import LargeFileProbeModule, Parts, RandomAccessFile
from git_envhist.model import SQLITE_HEADER
from git_envhist.store.pieces import SQLITE_BLOCK
from git_envhist.store.trees import decode_tree

REMEMBERED = 512
"""Pieces: the pages of a table lie near each other."""
LARGEST_PARTS = 128 << 20

ReadBlob = Callable[[bytes], bytes]


class WholeFile(NamedTuple):
    """A file that is kept as one blob; read when it is asked for."""

    size: int
    data: Callable[[], bytes | None]

    def read(self, offset: int, length: int) -> bytes:
        return (self.data() or b"")[offset : offset + length]


class ChunkedFile:
    """A file that is kept in pieces."""

    def __init__(self, read_blob: ReadBlob, tree: bytes, size: int) -> None:
        self.size = size
        self._pieces = [
            piece
            for _, _, run in decode_tree(read_blob(tree), len(tree))
            for _, _, piece in decode_tree(read_blob(run), len(tree))
        ]
        self._blob = lru_cache(REMEMBERED)(read_blob)
        self._is_even = bool(self._pieces) and self._blob(self._pieces[0]).startswith(SQLITE_HEADER)

    def read(self, offset: int, length: int) -> bytes:
        if not self._is_even:
            return self._beginning(offset + length)[offset:]
        first, last = offset // SQLITE_BLOCK, (offset + length - 1) // SQLITE_BLOCK
        data = b"".join(map(self._blob, self._pieces[first : last + 1]))
        start = offset - first * SQLITE_BLOCK
        return data[start : start + length]

    def _beginning(self, length: int) -> bytes:
        parts: list[bytes] = []
        left = length
        for piece in self._pieces:
            if left <= 0:
                break
            parts.append(self._blob(piece))
            left -= len(parts[-1])
        return b"".join(parts)[:length]


def wanted_parts(leaf: LargeFileProbeModule, sources: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
    """What a leaf wants of some files."""
    try:
        wanted = leaf.parts_of(sources)
    except EnvhistError:
        raise
    except Exception as wrong:  # the files may come from anywhere: it may cost a warning and no snapshot
        raise EnvhistError(f"{type(wrong).__name__}: {wrong}") from wrong
    if sum(len(data) for parts in wanted.values() for _, data in parts) > LARGEST_PARTS:
        raise EnvhistError("more is wanted of its files than can be shown")
    return wanted
