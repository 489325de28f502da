"""Contents that know the original: what stands there unchanged is cloned, not written.

Two files share their blocks then until one of them is written to (`cp --reflink`, on Btrfs, XFS and others); where that
cannot be had, big files are copied by the kernel. A file is taken for unchanged by its time, and believed by its bytes:
whoever borrows it reads back what came of that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from git_envhist.model import Entry, StoredAs
from git_envhist.restoring.nearby import WorktreeReader

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
