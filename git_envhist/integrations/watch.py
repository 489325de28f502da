"""The loop: wait for a change, let it settle, capture; one process for each environment."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from git_envhist.disk import locked_now, state_directory
from git_envhist.errors import EnvhistError, NotARepository, Refused
from git_envhist.model import CaptureResult

if TYPE_CHECKING:
    from git_envhist.context import HistoryContext


# Linux's own word that something changed below a directory: a watch for each one, told through one descriptor.

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


# The lock of a running `git envlog watch`: one per working tree.

NAME = "watch"


def watch_lock(state: str) -> str:
    """Return the path of the lock file."""
    return os.path.join(state, NAME)


def is_watched(state: str) -> bool:
    """Return whether a process watches a working tree; nothing is created."""
    path = watch_lock(state)
    if not os.path.isfile(path):
        return False
    try:
        with locked_now(path) as mine:
            return not mine
    except (OSError, EnvhistError):
        return False


# When a capture is due (pure): once it is quiet, not too often, and not too much.

SETTLE = 2.0
"""Seconds without a change after which an environment has settled."""
MAX_LENGTH = 60.0
"""One that never settles is captured all the same, after so many seconds."""
APART = 2.5
"""Two captures are so many times that apart, at least."""
SHARE = 5
"""A capture is followed by a rest so many times as long as it took."""
ROOM = 1 << 30
SPAN = 3600.0
"""In so many seconds no more than ROOM bytes are added."""


class Pace:
    """Told of changes and captures, it says how long there is to wait; times are seconds of any one clock."""

    def __init__(self, settle: float = SETTLE, room: int = ROOM) -> None:
        self._settle = settle
        self._room = room
        self._first: float | None = None
        self._last = 0.0
        self._rest_until = 0.0
        self._added: deque[tuple[float, int]] = deque()

    def changed(self, now: float) -> None:
        """Something has changed."""
        self._first = now if self._first is None else self._first
        self._last = now

    def captured(self, now: float, took: float, added: int) -> None:
        """A capture has ended, or failed."""
        self._first = None
        self._rest_until = now + max(APART * self._settle, SHARE * took)
        self._added.append((now, added))

    def wait(self, now: float) -> float | None:
        """Seconds until a capture is due; 0 is at once, None where nothing has changed."""
        if self._first is None:
            return None
        settled = min(self._last + self._settle, self._first + MAX_LENGTH)
        return max(0.0, settled - now, self._rest_until - now, self._full_until(now) - now)

    def is_full(self, now: float) -> bool:
        """Whether too much was added of late."""
        return self._full_until(now) > now

    def _full_until(self, now: float) -> float:
        while self._added and self._added[0][0] <= now - SPAN:
            self._added.popleft()
        over, until = sum(added for _, added in self._added) - self._room, now
        for at, added in self._added:
            if over < 0:
                break
            over -= added
            until = at + SPAN
        return until


LOOK_EVERY = 5
"""Where no change is told, one is looked for after so many times what it takes to settle."""
PRIVATE = b".envhist-restore"
NO_WATCHES = "the system tells of no change here (fs.inotify.max_user_watches): it is looked for now and then"
TOO_MUCH = "more than 1 GiB was added within an hour: the next capture waits"


class Watcher(Protocol):
    """Whoever sees that something changed."""

    def wait(self, seconds: float | None) -> bool: ...
    def close(self) -> None: ...


class WatchCallbacks(NamedTuple):
    """What whoever runs it is told."""

    captured: Callable[[CaptureResult], None]
    warn: Callable[[str], None]


Capture = Callable[[], CaptureResult]
"""Open the history again, because its settings may have changed, and capture if something changed."""


def watch(history: HistoryContext, capture: Capture, told: WatchCallbacks, settle: float = SETTLE) -> None:
    """Capture whenever the environment has settled, until a signal."""
    for _ in _steps(history, capture, told, settle):
        pass


def captures(
    history: HistoryContext,
    capture: Capture,
    warn: Callable[[str], None],
    settle: float = SETTLE,
    longest: float | None = None,
) -> Generator[CaptureResult | None]:
    """The same, each capture that made a snapshot as it comes, until nobody wants more.

    `longest`: None comes at least every so many seconds, so that whoever waits can be stopped.
    """
    taken: list[CaptureResult] = []
    for _ in _steps(history, capture, WatchCallbacks(taken.append, warn), settle, longest):
        yield from (one for one in taken if one.snapshot is not None)
        taken.clear()
        if longest is not None:
            yield None


def _steps(
    history: HistoryContext,
    capture: Capture,
    told: WatchCallbacks,
    settle: float,
    longest: float | None = None,
) -> Iterator[None]:
    if not history.settings.enabled:
        raise Refused(
            "captures by themselves are switched off",
            hint="git config envhist.enabled true, or capture by hand",
        )
    lock = watch_lock(state_directory(history.repository.state))
    with locked_now(lock) as mine:
        if not mine:
            raise Refused("another process watches this environment already", hint="git envlog status")
        yield from _Loop(capture, told, settle, longest).run(history)


def _open_eyes(history: HistoryContext) -> Watcher:
    """`WatchUnavailable` where the system tells of no change."""
    if sys.platform != "linux":
        raise WatchUnavailable
    top = os.fsencode(history.repository.root)
    own = os.path.realpath(os.fsencode(history.repository.git_dir))
    left_out = {os.path.join(top, b".git"), own, os.path.join(top, PRIVATE)}
    return Inotify(top, left_out.__contains__)


class _Loop:
    def __init__(
        self,
        capture: Capture,
        told: WatchCallbacks,
        settle: float,
        longest: float | None,
    ) -> None:
        self._longest = longest
        self._take = capture
        self._told = told
        self._clock = PollingWatcher(LOOK_EVERY * settle)
        self._eyes: Watcher = self._clock
        self._pace = Pace(settle)
        self._is_told = False
        self._failed = ""
        """Why the last capture failed: that is told once."""

    def run(self, history: HistoryContext) -> Iterator[None]:
        try:
            self._eyes = _open_eyes(history)
        except WatchUnavailable:
            self._told.warn(NO_WATCHES)
        try:
            # What changed while nobody watched.
            self._capture()
            while True:
                yield
                self._step()
        finally:
            self._eyes.close()

    def _step(self) -> None:
        now = time.monotonic()
        left = self._pace.wait(now)
        if left == 0.0:
            self._capture()
            return
        if left is not None and self._pace.is_full(now) and not self._is_told:
            self._told.warn(TOO_MUCH)
            self._is_told = True
        try:
            if self._eyes.wait(_least(left, self._longest)):
                self._pace.changed(time.monotonic())
        except WatchUnavailable:
            self._told.warn(NO_WATCHES)
            self._eyes.close()
            self._eyes = self._clock

    def _capture(self) -> None:
        started, added, failed = time.monotonic(), 0, ""
        try:
            captured = self._take()
        except NotARepository:
            raise
        except (EnvhistError, OSError) as error:
            failed = str(error)
            if failed != self._failed:
                self._told.warn(f"not captured, it is tried again: {failed}")
        else:
            added = captured.stored_bytes
            self._told.captured(captured)
        now = time.monotonic()
        self._is_told, self._failed = False, failed
        self._pace.captured(now, now - started, added)
        if failed:
            # What changed is not in any snapshot yet, whether more changes or not.
            self._pace.changed(now)


def _least(*seconds: float | None) -> float | None:
    """The shortest of some waits; None is for ever."""
    return min((one for one in seconds if one is not None), default=None)
