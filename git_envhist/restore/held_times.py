"""Modification times that a file system does not hold, because its clock is coarser or its years are fewer."""

from __future__ import annotations

import os

from git_envhist.restore.disk import RestoreDisk

UNHELD = "time that the file system does not hold"
"""A difference between a path and its entry that no process made."""


class HeldTimes:
    """Find out which time a file system makes of another one, with a file of its own in the private directory."""

    def __init__(self, door: RestoreDisk) -> None:
        self._door = door
        self._scratch: dict[bytes, int] = {}

    def is_held_as(self, root: bytes, wanted_ns: int, found_ns: int) -> bool:
        """Whether a file of a root has the time `found_ns` after it was given `wanted_ns`."""
        try:
            if root not in self._scratch:
                self._scratch[root] = self._make(root)
            self._door.hands.futime(self._scratch[root], wanted_ns)
            return os.fstat(self._scratch[root]).st_mtime_ns == found_ns
        except OSError:
            return False

    def _make(self, root: bytes) -> int:
        private = self._door.slots(root).private
        name = b"time-%d" % os.getpid()
        descriptor = self._door.hands.create(private, name)
        self._door.hands.unlink(private, name)
        return descriptor

    def close(self) -> None:
        for descriptor in self._scratch.values():
            os.close(descriptor)
        self._scratch.clear()
