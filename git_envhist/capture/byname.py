"""Goes into directories, and opens files, by their names alone, where a system can do neither by descriptors.

What a name leads to may change between two calls. So each step is compared: what stands under the name before, and
where we are, or what we have open, after it. A directory or a file that was swapped for a link to somewhere else
meanwhile is an error; not a byte of it is read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping

from git_envhist.capture.descent import DirectoryCursor, path_below_root, root_name_of
from git_envhist.system import DIRECTORY, SYSTEM

Identity = tuple[int, int]


def descent_into(bases: Mapping[bytes, bytes]) -> DirectoryCursor:
    """The way into directories that this system has."""
    return DirectoryCursor(bases) if SYSTEM.fchdir and SYSTEM.nofollow else PathDirectoryCursor(bases)


class PathDirectoryCursor(DirectoryCursor):
    """Enters directories one name at a time, and knows by their numbers that they are the ones it looked at."""

    def __init__(self, bases: Mapping[bytes, bytes]) -> None:
        super().__init__(bases)
        self._seen: list[Identity] = []

    def enter(self, path: bytes) -> os.stat_result:
        """Go into a directory; its own stat. OSError where it is gone, closed to us, or no directory any more."""
        wanted = path_below_root(path).split(b"/") if path_below_root(path) else []
        try:
            if root_name_of(path) != self._realm or not self._is_here() or not self._went_up(wanted):
                self._start(root_name_of(path))
            for name in wanted[len(self._way) :]:
                self._go_down(name)
        except OSError:
            # Wherever that led: the next way begins at the top again.
            self.close()
            raise
        return os.stat(b".")

    def close(self) -> None:
        self._way, self._seen, self._realm = [], [], None

    def _start(self, realm: bytes) -> None:
        self.close()
        os.chdir(self._base(realm))
        self._seen.append(_identity(os.stat(b".")))
        self._realm = realm

    def _is_here(self) -> bool:
        # Another worker of the same process may have gone elsewhere.
        return _identity(os.stat(b".")) == self._seen[-1]

    def _went_up(self, wanted: list[bytes]) -> bool:
        while self._way != wanted[: len(self._way)]:
            os.chdir(b"..")
            self._way.pop()
            self._seen.pop()
            # What was moved meanwhile has another directory above it.
            if not self._is_here():
                return False
        return True

    def _go_down(self, name: bytes) -> None:
        before = os.lstat(name)
        if not stat.S_ISDIR(before.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        os.chdir(name)
        if _identity(os.stat(b".")) != _identity(before):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        self._way.append(name)
        self._seen.append(_identity(before))


def save_current_directory() -> Callable[[], None]:
    """What brings the process back to its present current directory; to be called once."""
    if not SYSTEM.fchdir:
        here = os.getcwdb()
        return lambda: os.chdir(here)
    descriptor = os.open(".", DIRECTORY)

    def go_back() -> None:
        os.fchdir(descriptor)
        os.close(descriptor)

    return go_back


def _identity(seen: os.stat_result) -> Identity:
    return seen.st_dev, seen.st_ino
