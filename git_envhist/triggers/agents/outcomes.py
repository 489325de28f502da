"""Runs what is due and keeps what came of it: nobody is told at the moment, `git envlog status` tells later."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

from git_envhist.capturing.attendance import NOT_APPROVED
from git_envhist.model import CaptureResult
from git_envhist.store.locks import state_directory
from git_envhist.system import open_file_only
from git_envhist.triggers.agents.called import DONE, Tell
from git_envhist.triggers.agents.events import AgentEvent
from git_envhist.triggers.agents.moments import AgentHistories
from git_envhist.triggers.agents.turns import Job

LAST = "last-"


class HookOutcomes:
    """What came of the captures of one process."""

    def __init__(self, agents: AgentHistories) -> None:
        self._agents = agents

    def run(self, job: Job, tell: Tell | None) -> None:
        """Take a capture; who waits for it is told as soon as it stands, the card that they did not wait for it."""
        waited = []

        def stands(_captured: CaptureResult) -> None:
            if tell is not None:
                waited.append(tell(DONE))

        try:
            captured = self._agents.capture(job, stands)
            if captured.snapshot is not None and False in waited:
                self._agents.tell_late(job, captured.snapshot)
            result = "captured" if captured.snapshot is not None else "nothing changed"
            why_not = next((f": {one}" for one in captured.warnings if NOT_APPROVED in one), "")
            self._keep(job.event, result + why_not)
        except Exception as error:
            self.failed(job.event, error)

    def failed(self, event: AgentEvent, error: Exception) -> None:
        """Keep why it failed; where there is no environment at all there is nobody to tell."""
        with suppress(Exception):
            self._keep(event, f"failed: {error}")

    def _keep(self, event: AgentEvent, outcome: str) -> None:
        place = state_directory(os.path.join(self._agents.history(event).repository.state, "agents"))
        at = time.strftime("%Y-%m-%d %H:%M:%S")
        with open(
            _path(place, event.registered, event.kind), "w", encoding="utf-8", errors="replace"
        ) as file:
            file.write(f"{outcome} ({at})\n")


def last_outcome(state: str, agent: str, kind: str) -> str | None:
    """What came of the last event of that kind in a working tree, and when."""
    try:
        path = _path(os.path.join(state, "agents"), agent, kind)
        with open(path, encoding="utf-8", errors="replace", opener=open_file_only) as file:
            return file.read().strip() or None
    except OSError:
        return None


def last_outcomes(state: str) -> Iterator[tuple[str, str, str, float]]:
    """(agent, kind, what came of it, when) of the last event of each kind in a working tree."""
    place = os.path.join(state, "agents")
    with suppress(OSError):
        for name in sorted(os.listdir(place)):
            agent, _, kind = name.removeprefix(LAST).rpartition("-")
            told = last_outcome(state, agent, kind) if name.startswith(LAST) and agent else None
            if told is not None:
                yield agent, kind, told.rpartition(" (")[0], os.stat(os.path.join(place, name)).st_mtime


def _path(place: str, agent: str, kind: str) -> str:
    return os.path.join(place, f"{LAST}{agent}-{kind}")
