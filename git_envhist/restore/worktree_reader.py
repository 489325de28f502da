"""Read contents of a snapshot from the working tree where it was captured, if the files are unchanged.

Opening and reading a file of 20 KiB takes 8 µs, finding and inflating its object in a pack 30. A file is tried if its
mtime matches, and used only if its hash does. Only cached pages are read, because reading packs from start to end costs
a disk less than reading 100,000 files.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Self

from git_envhist.disk import read_exactly
from git_envhist.git.repository import Repository
from git_envhist.model import Entry, StoredAs
from git_envhist.objects.object_readers import ObjectReader, OpenSealed, Verify
from git_envhist.platform import DIRECTORY, SYSTEM
from git_envhist.restore.compare_files import open_to_read
from git_envhist.restore.disk_calls import open_directory

MAX_SIZE = 1 << 26
MAX_MISMATCHES = 256
"""The working tree is not tried after this many more mismatches than matches."""
WITHOUT_WAITING = os.RWF_NOWAIT if SYSTEM.nowait else 0


class WorktreeReader(ObjectReader):
    """Reads a snapshot, and unchanged files from the working tree it was captured from."""

    _top = -1
    _above: tuple[bytes, int] | None = None
    """The last opened directory; a negative descriptor if it does not exist."""
    _tries_left = MAX_MISMATCHES

    @classmethod
    def of(
        cls, repository: Repository, unseal: OpenSealed, made: Mapping[bytes, bytes], verify: Verify
    ) -> Self:
        """Return a reader of a repository's snapshots; `made`: blobs that are in no snapshot."""
        contents = cls(
            repository.git, repository.pack_dir, repository.object_format, unseal, verify=verify, made=made
        )
        contents.use_directory(repository.root)
        return contents

    def use_directory(self, root: str) -> None:
        """Also read from this directory from now on."""
        with suppress(OSError):
            self._top = os.open(root, DIRECTORY)

    def plain(self, entry: Entry) -> bytes:
        assert entry.oid is not None
        if self._top >= 0 and self._tries_left > 0 and WITHOUT_WAITING and entry.stored is StoredAs.PLAIN:
            data = self._read_from_tree(entry)
            if data is not None and self._id(data) == entry.oid:
                self._tries_left = min(self._tries_left + 1, MAX_MISMATCHES)
                return data
            self._tries_left -= 1
        return self.blob(entry.oid)

    def close(self) -> None:
        super().close()
        self._leave_directory()
        top, self._top = self._top, -1
        if top >= 0:
            os.close(top)

    def _read_from_tree(self, entry: Entry) -> bytes | None:
        """Return the contents of the file at an entry's path if its mtime matches."""
        try:
            source = self._open(entry.path)
        except OSError:
            return None
        try:
            status = os.fstat(source)
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_mtime_ns != entry.mtime_ns
                or status.st_size > MAX_SIZE
            ):
                return None
            if status.st_size:
                # Fails if the page is not cached.
                os.preadv(source, [bytearray(1)], status.st_size - 1, WITHOUT_WAITING)
            return read_exactly(source, status.st_size, 0)
        except OSError:
            return None
        finally:
            os.close(source)

    def _id(self, data: bytes) -> bytes:
        # hashlib.sha1 is twice as fast as hashlib.new("sha1").
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


# Cloned files share blocks with the original until one of them is changed (`cp --reflink` on Btrfs, XFS and others);
# elsewhere the kernel copies big files. A file is tried if its mtime matches; the caller reads back the clone.

BLOCK = 512


class CloningReader(WorktreeReader):
    """Reads a snapshot, and offers unchanged files of the working tree for cloning."""

    _shares = True
    """True if the file system can share blocks, as far as is known."""

    def use_directory(self, root: str) -> None:
        """Offer the files of this directory for cloning from now on."""
        super().use_directory(root)
        self.lends = self._top >= 0

    def lend(self, entry: Entry, take: Callable[[int, bool], bool]) -> bool:
        """Return whether `take` accepted the open file at an entry's path, which must not have changed meanwhile."""
        is_big = entry.stored is StoredAs.PIECES
        # A secret file is small, and must not be read in more places than necessary.
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
            # A copy of a sparse file would not be sparse.
            is_full = before.st_blocks * BLOCK >= before.st_size
            if not take(source, not (is_big and is_full)):
                # After one refusal, the file system is not tried again.
                self._shares = False
                return False
            return _stat_key(os.fstat(source)) == _stat_key(before)
        finally:
            os.close(source)


def _stat_key(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns
