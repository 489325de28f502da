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
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self

from git_envhist.git.repository import Repository
from git_envhist.model import Entry, StoredAs
from git_envhist.objects.reader import ObjectReader, OpenSealed
from git_envhist.platform import DIRECTORY, SYSTEM
from git_envhist.restore.compare_files import open_to_read
from git_envhist.restore.fs import open_directory

MAX_SIZE = 1 << 26
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
            if (
                not stat.S_ISREG(seen.st_mode)
                or seen.st_mtime_ns != entry.mtime_ns
                or seen.st_size > MAX_SIZE
            ):
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


# Contents that know the original: what stands there unchanged is cloned, not written.
#
# Two files share their blocks then until one of them is written to (`cp --reflink`, on Btrfs, XFS and others); where
# that cannot be had, big files are copied by the kernel. A file is taken for unchanged by its time, and believed by its
# bytes: whoever borrows it reads back what came of that.

BLOCK = 512


class CloningReader(WorktreeReader):
    """Reads a snapshot, and lends the files of the working tree it was made of."""

    _shares = True
    """Whether two files can share their blocks there, as far as is known."""

    def look_below(self, root: str) -> None:
        """From now on, what stands in this directory is lent."""
        super().look_below(root)
        self.lends = self._top >= 0

    def lend(self, entry: Entry, take: Callable[[int, bool], bool]) -> bool:
        """Whether `take` was given an open file that should have the bytes of an entry, and took them."""
        is_big = entry.stored is StoredAs.PIECES
        # A secret file is small, and is not to be read in more places than needs be.
        if entry.stored is StoredAs.SEALED or entry.oid in (self._made or {}) or not (self._shares or is_big):
            return False
        try:
            source = self._open(entry.path)
        except OSError:
            return False
        try:
            before = os.fstat(source)
            if not stat.S_ISREG(before.st_mode) or before.st_mtime_ns != entry.mtime_ns or not before.st_size:
                return False
            # Copied, a file that holds less than it is long would hold it all.
            is_full = before.st_blocks * BLOCK >= before.st_size
            if not take(source, not (is_big and is_full)):
                # One refusal is enough: a file system that cannot costs nothing more.
                self._shares = False
                return False
            return _look(os.fstat(source)) == _look(before)
        finally:
            os.close(source)


def _look(seen: os.stat_result) -> tuple[int, int, int]:
    return seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
