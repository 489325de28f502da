"""Open directories of an environment by their paths, without following a link below its roots."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping
from types import TracebackType

from git_envhist.paths import path_below_root, root_name_of
from git_envhist.platform import DIRECTORY, NOFOLLOW, SYSTEM

OPENAT2 = 437
NO_SYMLINKS = 0x04
HOW = struct.pack("QQQ", DIRECTORY | NOFOLLOW, 0, NO_SYMLINKS)
"""`struct open_how`: flags, mode, and resolve flags."""
REFUSED = frozenset((errno.ENOSYS, errno.EPERM))
"""Errors of a system, or of a filter of system calls, without openat2."""

Identity = tuple[int, int] | None
"""Device and inode of a directory; None if it does not exist."""


class RootMoved(Exception):
    """A root of the environment is another directory, or cannot be opened."""


class DirectoriesBelow:
    """Open directories of some roots; a context manager that keeps the roots open."""

    def __init__(self, bases: Mapping[bytes, bytes], identities: Mapping[bytes, Identity]) -> None:
        self._bases = bases
        self._identities = identities
        self._opened: dict[bytes, int] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)

    def __enter__(self) -> DirectoriesBelow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._opened.values():
            os.close(descriptor)
        self._opened.clear()

    def open(self, path: bytes) -> int:
        """Open a directory. Raise `OSError`, or `RootMoved` if its root is not the one that is watched."""
        base = self._base(root_name_of(path))
        below = path_below_root(path)
        if not below:
            return os.open(b".", DIRECTORY, dir_fd=base)
        if SYSTEM.openat2:
            opened: int = self._libc.syscall(OPENAT2, base, below, HOW, len(HOW))
            if opened >= 0:
                return opened
            number = ctypes.get_errno()
            if number not in REFUSED:
                raise OSError(number, os.strerror(number))
        return _open_by_names(base, below)

    def _base(self, root: bytes) -> int:
        """Return the open root with a name."""
        if root not in self._opened:
            try:
                # A root itself may be named by a link.
                opened = os.open(self._bases[root], DIRECTORY)
            except OSError as error:
                raise RootMoved from error
            if identity_of(os.fstat(opened)) != self._identities[root]:
                os.close(opened)
                raise RootMoved
            self._opened[root] = opened
        return self._opened[root]


def _open_by_names(base: int, path: bytes) -> int:
    """Open a directory name by name, where the system cannot refuse links by itself."""
    opened = os.dup(base)
    for name in path.split(b"/"):
        above = opened
        try:
            opened = os.open(name, DIRECTORY | NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
    return opened


def identity_of(seen: os.stat_result) -> tuple[int, int]:
    return seen.st_dev, seen.st_ino
