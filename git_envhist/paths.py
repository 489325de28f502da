"""Paths inside an environment, and a cursor that enters directories without leaving the environment.

A directory is named by its path below the top of the working tree. The name of one in an additional root begins with
a NUL and the root's name, which no path of a file system can: ``b"\\0nginx/conf.d"``.

`DirectoryCursor` opens a path one component at a time, each below the descriptor of the one before and never through
a link. If a directory is replaced by a link meanwhile, that is an error, not a way out of the environment.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from git_envhist.platform import DIRECTORY, NOFOLLOW

ROOT_PREFIX = b"\0"
DOT_GIT = b".git"
MAX_OPEN = 64


def join(directory: bytes, name: bytes) -> bytes:
    """Return the path of a name in a directory; the top is the empty path."""
    return directory + b"/" + name if directory else name


def root_name_of(path: bytes) -> bytes:
    """Return the name of the additional root that a path is in; empty for the working tree."""
    return path[1:].partition(b"/")[0] if path.startswith(ROOT_PREFIX) else b""


def is_root_top(path: bytes) -> bool:
    return not path or (path.startswith(ROOT_PREFIX) and b"/" not in path)


def path_below_root(path: bytes) -> bytes:
    """Return the path without its root's name."""
    return path.partition(b"/")[2] if path.startswith(ROOT_PREFIX) else path


def display_path(path: bytes) -> bytes:
    """Return the path as it is displayed: one in an additional root as ``nginx://conf.d``."""
    return root_name_of(path) + b"://" + path_below_root(path) if path.startswith(ROOT_PREFIX) else path


class DirectoryCursor:
    """Make directories of the environment the process's current directory.

    The opened ancestors stay open, so that visiting directories in order costs one `open` each. Of a deep path only
    the `MAX_OPEN` innermost stay open, because a process may have only a few hundred descriptors.
    """

    def __init__(self, bases: Mapping[bytes, bytes]) -> None:
        self._bases = bases
        self._root: bytes | None = None
        self._names: list[bytes] = []
        self._open: list[int] = []

    def enter(self, path: bytes) -> os.stat_result:
        """Enter a directory and return its stat; OSError if it does not exist, cannot be entered or is no directory."""
        root, rest = root_name_of(path), path_below_root(path)
        if root != self._root:
            self._start(root)
        wanted = rest.split(b"/") if rest else []
        self._go_up(wanted)
        if not self._open:
            self._start(root)
        for name in wanted[len(self._names) :]:
            self._go_down(name)
        os.fchdir(self._open[-1])
        return os.fstat(self._open[-1])

    def base(self, root: bytes) -> os.stat_result:
        """Return the stat of a root's top, even if it cannot be entered."""
        return os.stat(self._base(root))

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())
        self._names = []
        self._root = None

    def _start(self, root: bytes) -> None:
        self.close()
        self._open.append(os.open(self._base(root), DIRECTORY))
        self._root = root

    def _base(self, root: bytes) -> bytes:
        try:
            return self._bases[root]
        except KeyError:  # a root that is not configured any more
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None

    def _go_up(self, wanted: list[bytes]) -> None:
        shared = 0
        for old, new in zip(self._names, wanted, strict=False):
            if old != new:
                break
            shared += 1
        while len(self._names) > shared:
            self._names.pop()
            if self._open:
                os.close(self._open.pop())

    def _go_down(self, name: bytes) -> None:
        descriptors = self._open
        descriptors.append(os.open(name, DIRECTORY | NOFOLLOW, dir_fd=descriptors[-1]))
        self._names.append(name)
        if len(descriptors) > MAX_OPEN:
            os.close(descriptors.pop(0))
