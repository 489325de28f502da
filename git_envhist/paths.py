"""Goes into directories without ever leaving the environment.

A path is opened one component at a time, each below the descriptor of the one before and never through a link: a
directory that is swapped for a link to somewhere else meanwhile is an error, not a way out. The way down stays open,
so that directories visited in order cost one `open` each; of a very long way only the end does, because a process
may have no more than a few hundred descriptors.

Directories are named by their path below the top of the working tree. Those of a further root begin with a NUL and
the root's name, which no path of a file system can: ``b"\\0nginx/conf.d"``.
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
    return directory + b"/" + name if directory else name


def root_name_of(path: bytes) -> bytes:
    """The name of the further root that a directory belongs to; empty for the working tree itself."""
    return path[1:].partition(b"/")[0] if path.startswith(ROOT_PREFIX) else b""


def is_root_top(path: bytes) -> bool:
    return not path or (path.startswith(ROOT_PREFIX) and b"/" not in path)


def path_below_root(path: bytes) -> bytes:
    """The path without the root's name in front."""
    return path.partition(b"/")[2] if path.startswith(ROOT_PREFIX) else path


def display_path(path: bytes) -> bytes:
    """A path as people see it: one of a further root has the root's name in front, ``nginx://conf.d``."""
    return root_name_of(path) + b"://" + path_below_root(path) if path.startswith(ROOT_PREFIX) else path


class DirectoryCursor:
    """Enters directories: the process's current directory becomes the one that was asked for."""

    def __init__(self, bases: Mapping[bytes, bytes]) -> None:
        self._bases = bases
        self._root: bytes | None = None
        self._way: list[bytes] = []
        self._open: list[int] = []

    def enter(self, path: bytes) -> os.stat_result:
        """Go into a directory; its own stat. OSError where it is gone, closed to us, or no directory any more."""
        root, rest = root_name_of(path), path_below_root(path)
        if root != self._root:
            self._start(root)
        wanted = rest.split(b"/") if rest else []
        self._go_up(wanted)
        if not self._open:
            self._start(root)
        for name in wanted[len(self._way) :]:
            self._go_down(name)
        os.fchdir(self._open[-1])
        return os.fstat(self._open[-1])

    def base(self, root: bytes) -> os.stat_result:
        """What stands where a root has its top, also if that cannot be entered."""
        return os.stat(self._base(root))

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())
        self._way = []
        self._root = None

    def _start(self, root: bytes) -> None:
        self.close()
        self._open.append(os.open(self._base(root), DIRECTORY))
        self._root = root

    def _base(self, root: bytes) -> bytes:
        try:
            return self._bases[root]
        except KeyError:  # what was a root of the environment once
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None

    def _go_up(self, wanted: list[bytes]) -> None:
        way = self._way
        shared = 0
        for mine, theirs in zip(way, wanted, strict=False):
            if mine != theirs:
                break
            shared += 1
        while len(way) > shared:
            way.pop()
            if self._open:
                os.close(self._open.pop())

    def _go_down(self, name: bytes) -> None:
        descriptors = self._open
        descriptors.append(os.open(name, DIRECTORY | NOFOLLOW, dir_fd=descriptors[-1]))
        self._way.append(name)
        if len(descriptors) > MAX_OPEN:
            os.close(descriptors.pop(0))
