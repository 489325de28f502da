"""Asks probes, in a process of their own, and waits no longer than their time.

The process is made when there is something to ask, which after most captures' changes there is not. Where a probe does
not answer in time the process is ended, and another one made for the next.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterator
from typing import NamedTuple

from git_envhist.capture.lines import InlineWorker, fork_line, spawn_line
from git_envhist.capture.pool import DONE, FRAME, Frame, Job, SharedCounters, WorkerHandle
from git_envhist.capturing.factworker import ProbeWorker
from git_envhist.errors import EnvhistError
from git_envhist.system import worker_mode

WORKER_MODULE = "git_envhist.capturing.factworker"
SECONDS = 5.0
"""The time that one probe has in one capture."""


class ProbeAnswer(NamedTuple):
    """What came of a question."""

    lines: list[bytes]
    failed: list[tuple[bytes, str]]
    """(directory, why): what could not be read."""
    whole: bool
    """Whether the probe answered to its end."""


class ProbeProcess:
    """One process for all probes, made when it is first asked."""

    def __init__(self, how: str, job: Job, others: list[WorkerHandle]) -> None:
        self._how = worker_mode(how)
        self._job = job
        self._others = others
        self._line: WorkerHandle | None = None
        self._shared: SharedCounters | None = None
        self._asked = 0.0

    def ask(self, method: str, *arguments: object) -> None:
        """Ask now; `answer` is to follow before the next question."""
        self._asked = time.monotonic()
        try:
            if self._line is None:
                self._line = self._make_line()
            self._line.ask(method, arguments)
        except (EnvhistError, OSError):
            # Whoever waits for the answer is told that there is none.
            self.close()

    def answer(self, seconds: float = SECONDS) -> ProbeAnswer:
        """What was answered, `seconds` after the question at the latest."""
        lines: list[bytes] = []
        failed: list[tuple[bytes, str]] = []
        try:
            for kind, *words in self._frames(self._asked + seconds):
                if kind == "lines":
                    lines += words[0]  # type: ignore[arg-type]
                else:
                    failed.append((words[0], words[1]))  # type: ignore[arg-type]
        except (EnvhistError, OSError) as error:
            self.close()
            return ProbeAnswer([], [(b"", str(error))], whole=False)
        return ProbeAnswer(lines, failed, whole=True)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        line, self._line = self._line, None
        if line is not None:
            with contextlib.suppress(OSError):
                line.close()
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()

    def _frames(self, until: float) -> Iterator[Frame]:
        line = self._line
        if line is None:
            raise EnvhistError("it could not be asked")
        while True:
            if line.descriptor is not None and not _has_come(line.descriptor, until):
                raise EnvhistError("it did not answer in its time")
            for kind, *words in line.receive():
                if kind == FRAME:
                    yield tuple(words)
                elif kind == DONE:
                    return
                else:
                    raise EnvhistError(f"{words[0]}: {words[1]}")

    def _make_line(self) -> WorkerHandle:
        if self._how == "fork":
            return fork_line(lambda: ProbeWorker(self._job), self._others)
        if self._how == "spawn":
            self._shared = SharedCounters(1)
            return spawn_line(WORKER_MODULE, self._job, self._shared, 0)
        return InlineWorker(ProbeWorker(self._job))


def _has_come(descriptor: int, until: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))
