"""Watch an environment and capture after changes: wait for a change, wait until it is quiet, capture.

`Inotify` reports changes on Linux, `PollingWatcher` everywhere else. `Pace` decides when a capture is due. A lock per
working tree ensures that only one process watches it.
"""

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

from git_envhist.disk import state_directory
from git_envhist.errors import EnvhistError, NotARepository, Refused
from git_envhist.locks import try_lock
from git_envhist.model import CaptureResult

if TYPE_CHECKING:
    from git_envhist.context import HistoryContext


# Linux inotify: one watch per directory, all events through one descriptor.

MODIFY, ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
OVERFLOW, IGNORED, IS_DIRECTORY = 0x4000, 0x8000, 0x40000000
ONLY_DIRECTORY, NO_FOLLOW, NO_UNLINKED = 0x01000000, 0x02000000, 0x04000000
WANTED = MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
HEAD = struct.Struct("iIII")
READ_SIZE = 1 << 16
CLOSE_ON_EXEC, NO_WAIT = os.O_CLOEXEC, os.O_NONBLOCK
UNWATCHABLE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP))


class WatchUnavailable(Exception):
    """inotify does not exist, or has no free watches."""


class Inotify:
    """Report changes below a directory; raises `WatchUnavailable` if inotify cannot."""

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
        """Return whether something changed within this many seconds; all events up to then are read."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if not poll.poll(None if seconds is None else max(1, round(seconds * 1000))):
            return False
        handled = [self._handle(*event) for event in self._events()]
        return True in handled

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _events(self) -> Iterator[tuple[int, int, bytes]]:
        while True:
            try:
                data = os.read(self._descriptor, READ_SIZE)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, length = HEAD.unpack_from(data, at)
                at += HEAD.size
                yield watch, mask, data[at : at + length].rstrip(b"\0")
                at += length

    def _handle(self, watch: int, mask: int, name: bytes) -> bool:
        """Handle one event: watch new directories, and return whether the environment changed."""
        if mask & IGNORED:
            self._paths.pop(watch, None)
            return False
        if mask & OVERFLOW:
            # The queue overflowed, so directories may exist that were not reported.
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
        """Watch a directory; return whether it exists and is readable."""
        watch = self._libc.inotify_add_watch(
            self._descriptor, path, WANTED | ONLY_DIRECTORY | NO_FOLLOW | NO_UNLINKED
        )
        if watch < 0:
            if ctypes.get_errno() in UNWATCHABLE:
                return False
            raise WatchUnavailable
        self._paths[watch] = path
        return True


class PollingWatcher:
    """Report a possible change at fixed intervals, where the system reports none."""

    def __init__(self, every: float) -> None:
        self._every = every

    def wait(self, seconds: float | None) -> bool:
        """Wait; with no limit given, a change must be assumed after the interval."""
        select.select([], [], [], self._every if seconds is None else seconds)
        return seconds is None

    def close(self) -> None:
        """Do nothing: no descriptor is open."""


# The lock of a running `git envlog watch`: one per working tree.

NAME = "watch"


def watch_lock_path(state: str) -> str:
    """Return the path of the lock file."""
    return os.path.join(state, NAME)


def is_watched(state: str) -> bool:
    """Return whether a process watches a working tree; nothing is created."""
    path = watch_lock_path(state)
    if not os.path.isfile(path):
        return False
    try:
        with try_lock(path) as acquired:
            return not acquired
    except (OSError, EnvhistError):
        return False


# When a capture is due: once changes have stopped, not too often, and within a limit of stored bytes.

SETTLE = 2.0
"""Seconds without a change after which an environment has settled."""
MAX_UNSETTLED = 60.0
"""Seconds after which an environment that never settles is captured."""
MIN_APART = 2.5
"""Minimum time between two captures, as a multiple of the settle time."""
MIN_PAUSE = 5
"""Minimum pause after a capture, as a multiple of its duration."""
MAX_ADDED = 1 << 30
LIMIT_SECONDS = 3600.0
"""Seconds in which at most MAX_ADDED bytes are stored."""


class Pace:
    """Return how long to wait for the next capture; times are seconds of any one clock."""

    def __init__(self, settle: float = SETTLE, max_added: int = MAX_ADDED) -> None:
        self._settle = settle
        self._max_added = max_added
        self._first: float | None = None
        self._last = 0.0
        self._rest_until = 0.0
        self._added: deque[tuple[float, int]] = deque()

    def changed(self, now: float) -> None:
        """Record that something changed."""
        self._first = now if self._first is None else self._first
        self._last = now

    def captured(self, now: float, took: float, added: int) -> None:
        """Record that a capture ended or failed."""
        self._first = None
        self._rest_until = now + max(MIN_APART * self._settle, MIN_PAUSE * took)
        self._added.append((now, added))

    def wait(self, now: float) -> float | None:
        """Return the seconds until a capture is due: 0 if it is due now, None if nothing changed."""
        if self._first is None:
            return None
        settled = min(self._last + self._settle, self._first + MAX_UNSETTLED)
        return max(0.0, settled - now, self._rest_until - now, self._full_until(now) - now)

    def is_full(self, now: float) -> bool:
        """Return whether too many bytes were added recently."""
        return self._full_until(now) > now

    def _full_until(self, now: float) -> float:
        while self._added and self._added[0][0] <= now - LIMIT_SECONDS:
            self._added.popleft()
        over, until = sum(added for _, added in self._added) - self._max_added, now
        for at, added in self._added:
            if over < 0:
                break
            over -= added
            until = at + LIMIT_SECONDS
        return until


POLL_FACTOR = 5
"""Polling interval without inotify, as a multiple of the settle time."""
PRIVATE = b".envhist-restore"
NO_WATCHES = "the system reports no changes here (fs.inotify.max_user_watches): polling instead"
TOO_MUCH = "more than 1 GiB was stored within an hour: the next capture is delayed"


class Watcher(Protocol):
    """Report file system changes (inotify or polling)."""

    def wait(self, seconds: float | None) -> bool: ...
    def close(self) -> None: ...


class WatchCallbacks(NamedTuple):
    """Callbacks for the results of a watching process."""

    captured: Callable[[CaptureResult], None]
    warn: Callable[[str], None]


Capture = Callable[[], CaptureResult]
"""Open the history again, because its settings may have changed, and capture if something changed."""


def watch(
    history: HistoryContext, capture: Capture, callbacks: WatchCallbacks, settle: float = SETTLE
) -> None:
    """Capture whenever the environment has settled, until a signal."""
    for _ in _steps(history, capture, callbacks, settle):
        pass


def watch_captures(
    history: HistoryContext,
    capture: Capture,
    warn: Callable[[str], None],
    settle: float = SETTLE,
    longest: float | None = None,
) -> Generator[CaptureResult | None]:
    """Yield each capture that made a snapshot, until the caller closes the generator.

    With `longest`, also yield None at least this often in seconds, so that a waiting caller can be stopped.
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
    callbacks: WatchCallbacks,
    settle: float,
    longest: float | None = None,
) -> Iterator[None]:
    if not history.settings.enabled:
        raise Refused(
            "automatic captures are disabled",
            hint="git config envhist.enabled true, or capture manually",
        )
    lock = watch_lock_path(state_directory(history.repository.state))
    with try_lock(lock) as acquired:
        if not acquired:
            raise Refused("another process already watches this environment", hint="git envlog status")
        yield from _Loop(capture, callbacks, settle, longest).run(history)


def _open_inotify(history: HistoryContext) -> Watcher:
    """Return an inotify watcher; raises `WatchUnavailable` if there is none."""
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
        callbacks: WatchCallbacks,
        settle: float,
        longest: float | None,
    ) -> None:
        self._longest = longest
        self._take = capture
        self._callbacks = callbacks
        self._poller = PollingWatcher(POLL_FACTOR * settle)
        self._watcher: Watcher = self._poller
        self._pace = Pace(settle)
        self._full_reported = False
        self._failed = ""
        """The last error, which is reported once."""

    def run(self, history: HistoryContext) -> Iterator[None]:
        try:
            self._watcher = _open_inotify(history)
        except WatchUnavailable:
            self._callbacks.warn(NO_WATCHES)
        try:
            # Capture changes from the time without a watching process.
            self._capture()
            while True:
                yield
                self._step()
        finally:
            self._watcher.close()

    def _step(self) -> None:
        now = time.monotonic()
        due = self._pace.wait(now)
        if due == 0.0:
            self._capture()
            return
        if due is not None and self._pace.is_full(now) and not self._full_reported:
            self._callbacks.warn(TOO_MUCH)
            self._full_reported = True
        try:
            if self._watcher.wait(_shortest(due, self._longest)):
                self._pace.changed(time.monotonic())
        except WatchUnavailable:
            self._callbacks.warn(NO_WATCHES)
            self._watcher.close()
            self._watcher = self._poller

    def _capture(self) -> None:
        started, added, failed = time.monotonic(), 0, ""
        try:
            captured = self._take()
        except NotARepository:
            raise
        except (EnvhistError, OSError) as error:
            failed = str(error)
            if failed != self._failed:
                self._callbacks.warn(f"capture failed, trying again: {failed}")
        else:
            added = captured.stored_bytes
            self._callbacks.captured(captured)
        now = time.monotonic()
        self._full_reported, self._failed = False, failed
        self._pace.captured(now, now - started, added)
        if failed:
            # The change is in no snapshot yet, so a capture is due even if nothing else changes.
            self._pace.changed(now)


def _shortest(*seconds: float | None) -> float | None:
    """Return the shortest of some waits; None is unlimited."""
    return min((one for one in seconds if one is not None), default=None)
