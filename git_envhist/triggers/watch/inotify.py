"""Linux's own word that something changed below a directory: a watch for each one, told through one descriptor."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

MODIFY, ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
OVERFLOW, IGNORED, IS_DIRECTORY = 0x4000, 0x8000, 0x40000000
ONLY_DIRECTORY, NO_FOLLOW, UNLINKED_NOT = 0x01000000, 0x02000000, 0x04000000
WANTED = MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
HEAD = struct.Struct("iIII")
PORTION = 1 << 16
CLOSE_ON_EXEC, NO_WAIT = os.O_CLOEXEC, os.O_NONBLOCK
GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP))


class WatchUnavailable(Exception):
    """The system gives no watch, or not so many."""


class Inotify:
    """Tells that something changed below a directory; `WatchUnavailable` where it cannot."""

    def __init__(self, top: bytes, is_left_out: Callable[[bytes], bool]) -> None:
        self._is_left_out = is_left_out
        self._paths: dict[int, bytes] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        start = getattr(self._libc, "inotify_init1", None)
        self._descriptor = -1 if start is None else start(CLOSE_ON_EXEC | NO_WAIT)
        if self._descriptor < 0:
            raise WatchUnavailable
        try:
            self._watch_below(top)
        except BaseException:
            self.close()
            raise

    def wait(self, seconds: float | None) -> bool:
        """Whether something changed within so many seconds; all that is told by then is taken."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if not poll.poll(None if seconds is None else max(1, round(seconds * 1000))):
            return False
        heeded = [self._heed(*event) for event in self._events()]
        return True in heeded

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _events(self) -> Iterator[tuple[int, int, bytes]]:
        while True:
            try:
                data = os.read(self._descriptor, PORTION)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, length = HEAD.unpack_from(data, at)
                at += HEAD.size
                yield watch, mask, data[at : at + length].rstrip(b"\0")
                at += length

    def _heed(self, watch: int, mask: int, name: bytes) -> bool:
        """Watch what came; whether it is a change of the environment."""
        if mask & IGNORED:
            self._paths.pop(watch, None)
            return False
        if mask & OVERFLOW:
            # What came meanwhile may have directories that nobody told of.
            for path in sorted(self._paths.values(), key=len)[:1]:
                self._watch_below(path)
            return True
        path = os.path.join(self._paths.get(watch, b"."), name) if name else self._paths.get(watch, b".")
        if self._is_left_out(path):
            return False
        if mask & IS_DIRECTORY and mask & (CREATE | MOVED_TO):
            self._watch_below(path)
        return True

    def _watch_below(self, top: bytes) -> None:
        todo = [top]
        while todo:
            path = todo.pop()
            if self._watch(path):
                with suppress(OSError), os.scandir(path) as entries:
                    below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
                    todo += [one for one in below if not self._is_left_out(one)]

    def _watch(self, path: bytes) -> bool:
        """Watch a directory; whether it is there and may be seen."""
        watch = self._libc.inotify_add_watch(
            self._descriptor, path, WANTED | ONLY_DIRECTORY | NO_FOLLOW | UNLINKED_NOT
        )
        if watch < 0:
            if ctypes.get_errno() in GONE:
                return False
            raise WatchUnavailable
        self._paths[watch] = path
        return True


class PollingWatcher:
    """Where no change is told: it is looked for each time, as often as looking is cheap."""

    def __init__(self, every: float) -> None:
        self._every = every

    def wait(self, seconds: float | None) -> bool:
        """Wait; where nobody waits for an end, something may have changed after it."""
        select.select([], [], [], self._every if seconds is None else seconds)
        return seconds is None

    def close(self) -> None:
        """Nothing is open."""
