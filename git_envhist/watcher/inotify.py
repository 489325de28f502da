"""The system calls of inotify, by ctypes: one watch per directory, all events through one descriptor."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import struct
import sys
from collections.abc import Iterator

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED, IS_DIRECTORY = 0x2000, 0x4000, 0x8000, 0x40000000
ONLY_DIRECTORY = 0x01000000
WANTED = (
    MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
    | ONLY_DIRECTORY
)  # fmt: skip
HEAD = struct.Struct("iIII")
READ_SIZE = 1 << 18
SHARE = 0.5
"""The part of the watches of a user that one watcher takes: editors and other programs need the same watches."""
LIMITS = "/proc/sys/fs/inotify"

Event = tuple[int, int, int, bytes]
"""Watch, mask, cookie and name."""


class InotifyUnavailable(Exception):
    """The system has no inotify, or gives no more watches."""


class Inotify:
    """An inotify descriptor; raises `InotifyUnavailable` if there is none."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise InotifyUnavailable("the system has no inotify")
        self._libc = ctypes.CDLL(None, use_errno=True)
        start = getattr(self._libc, "inotify_init1", None)
        self.descriptor = -1 if start is None else start(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.descriptor < 0:
            raise InotifyUnavailable("the system gives no more inotify descriptors")

    def watch(self, directory: int) -> int:
        """Watch an open directory and return the number of its watch."""
        # The path of a descriptor is this very directory, whatever has its name meanwhile.
        watch: int = self._libc.inotify_add_watch(self.descriptor, path_of(directory), WANTED)
        if watch >= 0:
            return watch
        number = ctypes.get_errno()
        raise InotifyUnavailable(
            os.strerror(number) if number != errno.ENOSPC else "no inotify watches are left"
        )

    def unwatch(self, watch: int) -> None:
        """End a watch; it may have ended already."""
        self._libc.inotify_rm_watch(self.descriptor, watch)

    def read(self) -> Iterator[bytes]:
        """Yield the pending events as the system gives them, until there are none."""
        while True:
            try:
                yield os.read(self.descriptor, READ_SIZE)
            except BlockingIOError:
                return

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def path_of(descriptor: int) -> bytes:
    """Return a path of an open directory that no other process can change."""
    return b"/proc/self/fd/%d" % descriptor


def events_in(data: bytes) -> Iterator[Event]:
    """Yield the events in bytes that `Inotify.read` returned."""
    size, read_head = HEAD.size, HEAD.unpack_from
    at, end = 0, len(data)
    while at < end:
        watch, mask, cookie, length = read_head(data, at)
        at += size
        yield watch, mask, cookie, data[at : at + length].rstrip(b"\0")
        at += length


def watch_budget() -> float:
    """Return the number of directories that one watcher may watch."""
    limit = read_limit("max_user_watches")
    return math.inf if limit is None else SHARE * limit


def read_limit(name: str) -> int | None:
    """Return a limit of inotify, e.g. `max_user_watches`; None if the system does not tell it."""
    try:
        with open(f"{LIMITS}/{name}", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
