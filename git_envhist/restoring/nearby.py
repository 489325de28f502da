"""Contents that know where a snapshot was taken: what still stands there is read from there, not inflated anew.

To open and read a file of 20 KiB takes 8 µs, to find its object in a pack and inflate it 30. A file is taken for the
one that was captured by its time, and believed by its bytes alone: they have the hash that the snapshot names, or the
store is asked. Only what the system has in memory is read: a store that is read from end to end costs a disk
less than a hundred thousand files do.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from git_envhist.model import Entry, StoredAs
from git_envhist.restore.hands import open_directory
from git_envhist.restore.proof import open_to_read
from git_envhist.store.contents import ObjectReader, OpenSealed
from git_envhist.store.repository import Repository
from git_envhist.system import DIRECTORY, SYSTEM

LARGEST = 1 << 26
PATIENCE = 256
"""So many files more may be other ones than are the same, before nobody looks at the rest."""
WITHOUT_WAITING = os.RWF_NOWAIT if SYSTEM.nowait else 0


class WorktreeReader(ObjectReader):
    """Reads a snapshot, and of the working tree that it was made of what is as it was."""

    _top = -1
    _above: tuple[bytes, int] | None = None
    """The directory that was opened last; below zero where it is not there."""
    _patience = PATIENCE

    @classmethod
    def of(cls, repository: Repository, unseal: OpenSealed, made: Mapping[bytes, bytes]) -> Self:
        """What is read of the snapshots of a working tree; `made`: blobs that stand in none."""
        contents = cls(repository.git, repository.pack_dir, repository.object_format, unseal, made=made)
        contents.look_below(repository.root)
        return contents

    def look_below(self, root: str) -> None:
        """From now on, what stands in this directory is looked at."""
        with suppress(OSError):
            self._top = os.open(root, DIRECTORY)

    def plain(self, entry: Entry) -> bytes:
        assert entry.oid is not None
        if self._top >= 0 and self._patience > 0 and WITHOUT_WAITING and entry.stored is StoredAs.PLAIN:
            data = self._read_here(entry)
            if data is not None and self._id(data) == entry.oid:
                self._patience = min(self._patience + 1, PATIENCE)
                return data
            self._patience -= 1
        return self.blob(entry.oid)

    def close(self) -> None:
        super().close()
        self._leave_directory()
        top, self._top = self._top, -1
        if top >= 0:
            os.close(top)

    def _read_here(self, entry: Entry) -> bytes | None:
        """What stands at the path of an entry, if it is likely to be the same."""
        try:
            source = self._open(entry.path)
        except OSError:
            return None
        try:
            seen = os.fstat(source)
            if not stat.S_ISREG(seen.st_mode) or seen.st_mtime_ns != entry.mtime_ns or seen.st_size > LARGEST:
                return None
            if seen.st_size:
                # Refused where the disk would have to be waited for.
                os.preadv(source, [bytearray(1)], seen.st_size - 1, WITHOUT_WAITING)
            return os.pread(source, seen.st_size, 0)
        except OSError:
            return None
        finally:
            os.close(source)

    def _id(self, data: bytes) -> bytes:
        # Asked for by its own name a hash is made twice as fast.
        new = hashlib.sha1 if self._format == "sha1" else hashlib.sha256
        digest = new(b"blob %d\0" % len(data), usedforsecurity=False)
        digest.update(data)
        return digest.digest()

    def _open(self, path: bytes) -> int:
        above, _, name = path.rpartition(b"/")
        if self._above is None or self._above[0] != above:
            self._leave_directory()
            opened = -1
            with suppress(OSError):
                opened = open_directory(self._top, above)
            self._above = (above, opened)
        if self._above[1] < 0:
            raise FileNotFoundError
        return open_to_read(self._above[1], name)

    def _leave_directory(self) -> None:
        before, self._above = self._above, None
        if before is not None and before[1] >= 0:
            os.close(before[1])
