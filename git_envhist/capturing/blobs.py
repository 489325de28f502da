"""Where a worker's bytes go: into its own pack, counted where all workers can see it."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.capture.pool import SharedCounters
from git_envhist.capture.reading import Block
from git_envhist.store.packs import PackPosition, PackWriter
from git_envhist.store.pieces import store_pieces
from git_envhist.store.pointers import write_pointer


class Blobs:
    """The store, as far as what is taken from the environment needs it."""

    def __init__(self, writer: PackWriter, shared: SharedCounters, number: int) -> None:
        self._writer = writer
        self._shared = shared
        self._number = number
        self._files = self._bytes = 0

    def add_blob(self, data: bytes) -> bytes:
        """Keep some bytes; their id."""
        self._files += 1
        self._bytes += len(data)
        oid = self._writer.add(b"blob", data)
        self._count()
        return oid

    def add_big(self, blocks: Iterator[Block]) -> tuple[int, bytes, bytes]:
        """Keep a big file in pieces: its size, the id of the pointer that stands for it, and of its pieces' tree."""
        self._files += 1
        size, tree = store_pieces(self._writer, self._counted(blocks))
        pointer = self._writer.add(b"blob", write_pointer(size, tree))
        self._count()
        return size, pointer, tree

    def mark(self) -> PackPosition:
        """This moment, for `forget`."""
        return self._writer.mark()

    def forget(self, mark: tuple[int, int, int]) -> None:
        """Undo everything that was added since."""
        self._writer.rollback(PackPosition(*mark))
        # What was forgotten may not count against what the others still want to add.
        self._count()

    def added_bytes(self) -> int:
        """How many bytes all workers have stored so far."""
        return self._shared.stored()

    def _counted(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            self._bytes += block if isinstance(block, int) else len(block)
            yield block
            self._count()

    def _count(self) -> None:
        self._shared.count(self._number, self._files, self._bytes, self._writer.stored_bytes)
