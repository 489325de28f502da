"""A watcher in a forked process, and captures with it and without."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple
from unittest.mock import patch

from git_envhist.api import EnvHistory
from git_envhist.capture import environment_trees
from git_envhist.capture.environment_trees import CaptureWatch
from git_envhist.handlers.watcher_process import watched_scope
from git_envhist.watcher.client import exchange
from git_envhist.watcher.server import WatcherProcess


class Look(NamedTuple):
    """What a look at the environment found."""

    content: str
    manifest: bytes | None
    missing: tuple[tuple[bytes, str], ...]


def open_history(path: str) -> EnvHistory:
    return EnvHistory.open(path, workers="here", one_command=True)


def full_look(path: str) -> Look:
    """Return what a capture without a watcher finds."""
    with patch.object(environment_trees, "ask_changes", return_value=None):
        return look(path)


def look(path: str) -> Look:
    """Return what a capture finds now, with the watcher if one runs."""
    with open_history(path).capturing.current_tree() as found:
        environment = found.environment
        missing = sorted((bytes(one.path), one.why.value) for one in environment.scan_result.missing)
        return Look(environment.assembled.content, environment.assembled.manifest, tuple(missing))


@contextmanager
def asked() -> Iterator[list[object]]:
    """Collect what each capture was told to scan: a list of directories, or None for all."""
    told: list[object] = []
    ask = CaptureWatch.directories_to_scan

    def noted(self: CaptureWatch, scope: object, head: object) -> object:
        found = ask(self, scope, head)  # type: ignore[arg-type]
        told.append(None if found is None else sorted(found))
        return found

    with patch.object(CaptureWatch, "directories_to_scan", noted):
        yield told


class RunningWatcher:
    """A watcher of a working tree, in a forked process."""

    def __init__(self, path: str, idle: float = 600.0) -> None:
        self.state = open_history(path).repository.state
        self.process = os.fork()
        if self.process == 0:
            try:
                WatcherProcess(self.state, lambda: watched_scope(open_history(path)), idle).run()
            finally:
                os._exit(0)
        until = time.monotonic() + 60
        while exchange(self.state, {"op": "status"}) is None:
            assert time.monotonic() < until
            time.sleep(0.01)

    def status(self) -> dict[str, object]:
        return exchange(self.state, {"op": "status"}) or {}

    def signal(self, number: int) -> None:
        os.kill(self.process, number)
        if number == signal.SIGSTOP:
            os.waitpid(self.process, os.WUNTRACED)

    def wait(self) -> None:
        """Return when the process has ended."""
        with suppress(ChildProcessError):
            os.waitpid(self.process, 0)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        self.wait()


@contextmanager
def running(path: str) -> Iterator[RunningWatcher]:
    """Run a watcher for the block."""
    watcher = RunningWatcher(path)
    try:
        yield watcher
    finally:
        watcher.close()
