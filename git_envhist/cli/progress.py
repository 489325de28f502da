"""Show progress on a terminal while a command runs for more than half a second.

With GIT_ENVHIST_PROGRESS=json, standard error gets a line of JSON instead, at most two per second; the MCP server reads
them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from git_envhist.cli.errors import is_quiet
from git_envhist.cli.formats import count, size
from git_envhist.cli.terminal import as_bytes

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from git_envhist.model import CaptureProgress


PATIENCE = 0.5
STDERR = 2
FORMAT = "GIT_ENVHIST_PROGRESS"


@contextmanager
def shown_progress(what: str = "capturing") -> Iterator[Callable[[CaptureProgress], None] | None]:
    """Return the callback for the progress of a capture; None without a terminal."""
    if _wants_lines():
        yield ProgressLines(what).update
        return
    if is_quiet() or not os.isatty(STDERR):
        yield None
        return
    display = ProgressBar(time.monotonic(), what=what)
    try:
        yield display.update
    finally:
        display.close()


@contextmanager
def shown_steps() -> Iterator[Callable[[str], None]]:
    """Return the callback for the steps of a long command; a terminal shows the current one on one line."""
    if _wants_lines():
        yield lambda step: _write_line({"step": step})
        return
    if is_quiet() or not os.isatty(STDERR):
        yield lambda step: None
        return
    try:
        yield lambda step: _write_over(f"{step}…")
    finally:
        _write_over("")


def _wants_lines() -> bool:
    return os.environ.get(FORMAT) == "json"


def _write_line(progress: dict[str, str | int]) -> None:
    import json  # loaded late: only a program that reads the lines needs it

    with suppress(OSError):
        os.write(STDERR, json.dumps({"progress": progress}).encode("ascii") + b"\n")


def _write_over(text: str) -> None:
    with suppress(OSError):
        os.write(STDERR, b"\r\x1b[K" + as_bytes(text))


class ProgressLines:
    """Writes the progress of a capture as lines of JSON."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._next = clock() + PATIENCE

    def update(self, progress: CaptureProgress) -> None:
        """Write a line, if half a second has passed since the last one."""
        now = self._clock()
        if now >= self._next:
            self._next = now + PATIENCE
            counts = {"files": progress.files, "bytes": progress.bytes, "total_bytes": progress.total_bytes}
            _write_line({"step": self._what, **counts})


class ProgressBar:
    """A progress bar that appears after half a second and disappears at the end."""

    def __init__(
        self, started: float, clock: Callable[[], float] = time.monotonic, *, what: str = "capturing"
    ) -> None:
        self._started = started
        self._what = what
        self._clock = clock
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def update(self, progress: CaptureProgress) -> None:
        """Show the progress; a terminal that was closed is ignored."""
        with suppress(OSError):
            self._show(progress)

    def close(self) -> None:
        """Remove the bar; only the result line remains."""
        bar, self._bar = self._bar, None
        if bar is not None:
            with suppress(OSError):
                bar.stop()

    def _show(self, progress: CaptureProgress) -> None:
        if self._bar is None:
            if self._clock() - self._started < PATIENCE:
                return
            self._bar, self._task = _open_bar(self._what)
        assert self._task is not None
        self._bar.update(
            self._task,
            completed=progress.bytes,
            total=progress.total_bytes or None,
            files=count(progress.files, "file"),
            bytes=size(progress.bytes),
            refresh=True,
        )


def _open_bar(what: str) -> tuple[Bar, TaskID]:
    from rich.console import Console  # loaded late: only a capture of more than half a second needs it
    from rich.progress import (
        BarColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )  # loaded late: only a capture of more than half a second needs it
    from rich.progress import (
        Progress as Bar,
    )  # loaded late: only a capture of more than half a second needs it

    bar = Bar(
        SpinnerColumn(),
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.fields[files]}  {task.fields[bytes]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        # Without a thread of its own, because the workers of a capture are forked.
        auto_refresh=False,
    )
    bar.start()
    return bar, bar.add_task("", total=None, files="", bytes="")
