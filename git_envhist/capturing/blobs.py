"""Where a worker's bytes go: into its own pack, counted where all workers can see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from git_envhist.capture.pool import Shared
from git_envhist.store.packs import PackWriter
from git_envhist.store.pieces import store_pieces
from git_envhist.store.pointers import write_pointer


class Blobs:
    """The store, as far as what is taken from the environment needs it."""

    def __init__(self, writer: PackWriter, shared: Shared, number: int) -> None:
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

    def add_big(self, blocks: Iterator[bytes]) -> tuple[int, bytes, bytes]:
        """Keep a big file in pieces: its size, the id of the pointer that stands for it, and of its pieces' tree."""
        self._files += 1
        size, tree = store_pieces(self._writer, self._counted(blocks))
        return size, self._writer.add(b"blob", write_pointer(size, tree)), tree

    def forget(self) -> Callable[[], None]:
        """What undoes everything added from here on."""
        mark = self._writer.mark()

        def undo() -> None:
            self._writer.rollback(mark)
            # What was forgotten may not count against what the others still want to add.
            self._count()

        return undo

    def added_bytes(self) -> int:
        """How many bytes all workers have stored so far."""
        return self._shared.totals()[2]

    def _counted(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self._bytes += len(block)
            yield block
            self._count()

    def _count(self) -> None:
        self._shared.count(self._number, self._files, self._bytes, self._writer.stored_bytes)
