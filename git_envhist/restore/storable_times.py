"""Modification times that a file system cannot store exactly, because of its resolution or range."""

from __future__ import annotations

import os

from git_envhist.restore.environment_disk import EnvironmentDisk

NOT_STORABLE = "mtime not storable"
"""A difference of an mtime that the file system caused, not a process."""


class StorableTimes:
    """Find out how a file system stores an mtime, with a file of our own in the private directory."""

    def __init__(self, disk: EnvironmentDisk) -> None:
        self._disk = disk
        self._scratch: dict[bytes, int] = {}

    def stores_as(self, root: bytes, wanted_ns: int, found_ns: int) -> bool:
        """Return whether a file of a root has the mtime `found_ns` after it was set to `wanted_ns`."""
        try:
            if root not in self._scratch:
                self._scratch[root] = self._make(root)
            self._disk.calls.futime(self._scratch[root], wanted_ns)
            return os.fstat(self._scratch[root]).st_mtime_ns == found_ns
        except OSError:
            return False

    def _make(self, root: bytes) -> int:
        private = self._disk.slots(root).private
        name = b"time-%d" % os.getpid()
        descriptor = self._disk.calls.create(private, name)
        self._disk.calls.unlink(private, name)
        return descriptor

    def close(self) -> None:
        for descriptor in self._scratch.values():
            os.close(descriptor)
        self._scratch.clear()
