"""The loop: wait for a change, let it settle, capture; one process for each environment."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from git_envhist.errors import EnvhistError, NotARepository, Refused
from git_envhist.model import CaptureResult, Trigger
from git_envhist.store.locks import locked_now, state_directory
from git_envhist.triggers.watch.inotify import Inotify, PollingWatcher, WatchUnavailable
from git_envhist.triggers.watch.lock import watch_lock
from git_envhist.triggers.watch.pace import SETTLE, Pace

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory

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


def watch(open_history: Callable[[], EnvHistory], told: WatchCallbacks, settle: float = SETTLE) -> None:
    """Capture whenever the environment has settled, until a signal."""
    for _ in _steps(open_history, told, settle):
        pass


def captures(
    open_history: Callable[[], EnvHistory],
    warn: Callable[[str], None],
    settle: float = SETTLE,
    longest: float | None = None,
) -> Generator[CaptureResult | None]:
    """The same, each capture that made a snapshot as it comes, until nobody wants more.

    `longest`: None comes at least every so many seconds, so that whoever waits can be stopped.
    """
    taken: list[CaptureResult] = []
    for _ in _steps(open_history, WatchCallbacks(taken.append, warn), settle, longest):
        yield from (one for one in taken if one.snapshot is not None)
        taken.clear()
        if longest is not None:
            yield None


def _steps(
    open_history: Callable[[], EnvHistory], told: WatchCallbacks, settle: float, longest: float | None = None
) -> Iterator[None]:
    history = open_history()
    if not history.settings.enabled:
        raise Refused(
            "captures by themselves are switched off",
            hint="git config envhist.enabled true, or capture by hand",
        )
    lock = watch_lock(state_directory(history.repository.state))
    with locked_now(lock) as mine:
        if not mine:
            raise Refused("another process watches this environment already", hint="git envlog status")
        yield from _Loop(open_history, told, settle, longest).run(history)


def _open_eyes(history: EnvHistory) -> Watcher:
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
        open_history: Callable[[], EnvHistory],
        told: WatchCallbacks,
        settle: float,
        longest: float | None,
    ) -> None:
        self._longest = longest
        self._open_history = open_history
        self._told = told
        self._clock = PollingWatcher(LOOK_EVERY * settle)
        self._eyes: Watcher = self._clock
        self._pace = Pace(settle)
        self._is_told = False
        self._failed = ""
        """Why the last capture failed: that is told once."""

    def run(self, history: EnvHistory) -> Iterator[None]:
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
            # Opened anew: settings, and the repository itself, may be others now.
            captured = self._open_history().capture(trigger=Trigger.WATCH, if_changed=True)
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
