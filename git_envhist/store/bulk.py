"""Many objects in one go, read in this process; git's own reader answers where that cannot.

The pieces of one big file are thousands of blobs: a pipe to git and back for each of them costs more than the bytes.
dulwich reads packs and loose objects in place. What it does not know (an object format other than SHA-1, a partial
clone, an object that came meanwhile) is asked of git.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile

if TYPE_CHECKING:
    from dulwich.object_store import DiskObjectStore

SHA1_HEX = 40
BLOB = 3


class BulkReader:
    """Reads blobs by their ids, in the order asked for."""

    def __init__(self, git: Git, objects_dir: str) -> None:
        self._objects_dir = objects_dir
        self._fallback = CatFile(git)
        self._store: DiskObjectStore | None = None

    def read(self, ids: Iterable[str]) -> Iterator[bytes | None]:
        """The bytes of each blob; None for what is missing."""
        for oid in ids:
            data = self._read_here(oid) if len(oid) == SHA1_HEX else None
            if data is None:
                answer = self._fallback.read(oid)
                data = answer[1] if answer is not None and answer[0] == "blob" else None
            yield data

    def close(self) -> None:
        self._fallback.close()
        if self._store is not None:
            self._store.close()
            self._store = None

    def _read_here(self, oid: str) -> bytes | None:
        from dulwich.objects import ObjectID  # loaded late: only big files are read in bulk

        try:
            kind, data = self._opened().get_raw(ObjectID(oid.encode("ascii")))
        except Exception:
            # Whatever it cannot read (damage included), git reads or says why it cannot.
            return None
        return data if kind == BLOB else None

    def _opened(self) -> DiskObjectStore:
        if self._store is None:
            from dulwich.object_store import DiskObjectStore  # loaded late: only big files are read in bulk

            self._store = DiskObjectStore(self._objects_dir)
        return self._store
