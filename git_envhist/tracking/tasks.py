"""Tasks of a timeline: steps of a piece of work, recorded in notes.

A new process, e.g. the next version of an agent, resumes at the first task that is not done: from the snapshot where it
began, with the conversation attached there. The fingerprint of an agent's definition (prompts, tools, settings) tells
it whether the agent that began was defined the same.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from git_envhist.context import HistoryContext
from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.history.tasks_and_effects import (
    newest_attached,
    next_task,
    start_of_task,
    task_record,
    tasks_of,
)
from git_envhist.history.timeline import subject
from git_envhist.lazy import replace
from git_envhist.model import (
    AgentName,
    ResumePoint,
    Snapshot,
    Task,
    TaskStatus,
)
from git_envhist.platform import open_file_only
from git_envhist.secrets.masking import mask_text
from git_envhist.tracking.attachments import conversation_of, encode_values

if TYPE_CHECKING:
    pass


# Fingerprints of definitions.

DIGITS = 16


def definition_of(*parts: object) -> str:
    """Return the fingerprint of plain values; the order of dictionary keys does not matter.

    >>> definition_of("You are careful.", {"tools": ["shell", "edit"]})
    '8f5a33169c83ca10'
    """
    return hashlib.sha256(encode_values([_ordered(part) for part in parts])).hexdigest()[:DIGITS]


def definition_of_files(paths: Iterable[str]) -> str | None:
    """Return the fingerprint of the contents of files; None without files."""
    contents = [_read(path) for path in paths]
    return definition_of(*contents) if contents else None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", opener=open_file_only) as file:
            return file.read()
    except OSError as error:
        raise EnvhistError(f"cannot read '{path}': {os.strerror(error.errno or 0).lower()}") from error


def _ordered(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _ordered(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_ordered(one) for one in value]
    return value


MAX_LENGTH = 10_000
"""Characters of a task or an effect."""


CaptureNow = Callable[[str], Snapshot]
"""Capture the environment under an intent if something changed, and return its newest snapshot."""


class DefinitionDiffers(Refused):
    """The agent that resumes has another definition than the one that recorded the task."""

    code = "definition-differs"

    def __init__(self, task: Task) -> None:
        agent = " ".join(word for word in (task.agent, task.agent_version) if word)
        by = f" by '{agent}'" if agent else ""
        super().__init__(
            f"task {task.number} was recorded{by} under another definition: '{task.definition}'",
            hint="git envlog resume --force, if the task can be continued anyway",
        )
        self.task = task


class Tasks:
    """The tasks of a timeline."""

    def __init__(self, history: HistoryContext, capture: CaptureNow) -> None:
        self._history = history
        self._capture = capture

    def all(self) -> tuple[Task, ...]:
        """Return all tasks in the order in which they were added."""
        return tasks_of(self._history.log(), whole=True)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.all())

    def add(self, text: str, *, definition: str | None = None) -> Task:
        """Add a pending task and return it."""
        mark = new_mark()
        newest = self._history.log(1)
        base = newest[0] if newest else self._capture(f"before: {subject(text)}")
        self._record(base, (mark, mark), masked_text(text), TaskStatus.PENDING, definition)
        return self._by_mark(mark)

    def set(self, number: int, status: TaskStatus, *, definition: str | None = None) -> Task:
        """Record the status of a task and return it; capture first, so that a resume can start there.

        `definition`: the fingerprint of the caller, if the agent of this history has none.
        """
        task = self._by_number(number)
        snapshot = self._capture(f"task {number} {status.value}: {subject(task.text)}")
        self._record(snapshot, (task.mark, new_mark()), task.text, status, definition)
        return self._by_mark(task.mark)

    def resume(self, *, definition: str | None = None, force: bool = False) -> ResumePoint | None:
        """Return the first task neither completed nor skipped, the snapshot that it starts from and its conversation.

        None if no task is left. `DefinitionDiffers` if another definition than the caller's noted it, unless forced.
        """
        tasks = self.all()
        task = next_task(tasks)
        if task is None:
            return None
        recorded = task if task.definition else max(tasks, key=lambda one: (bool(one.definition), one.at))
        wanted = definition or self._agent_definition
        if wanted and recorded.definition and wanted != recorded.definition and not force:
            raise DefinitionDiffers(recorded)
        start = self._history.resolve(start_of_task(task, tasks))
        attached = newest_attached(self._history.log(), start.id)
        return ResumePoint(task, start, attached, self._conversation(attached))

    def _conversation(self, attached: Snapshot | None) -> list[object] | None:
        try:
            return None if attached is None else conversation_of(self._history, attached)
        except (EnvhistError, ValueError):
            # The task can be resumed without it.
            return None

    @property
    def _agent_definition(self) -> str | None:
        return self._history.agent.definition if self._history.agent else None

    def _record(
        self,
        snapshot: Snapshot,
        marks: tuple[str, str],
        text: str,
        status: TaskStatus,
        definition: str | None,
    ) -> None:
        agent = self._history.agent
        if definition:
            agent = replace(agent or AgentName(""), definition=definition)
        self._history.add_records(snapshot, task_record(*marks, text, status, self._history.now, agent))

    def _by_mark(self, mark: str) -> Task:
        return next(task for task in self.all() if task.mark == mark)

    def _by_number(self, number: int) -> Task:
        tasks = self.all()
        if not 1 <= number <= len(tasks):
            raise Refused(f"no such task: '{number}'", hint="git envlog task list")
        return tasks[number - 1]


def new_mark() -> str:
    """Return a unique mark that sorts after all earlier ones."""
    return f"{time.time_ns():016x}{os.urandom(3).hex()}"


def masked_text(text: str) -> str:
    """Return a text with its tokens masked; raise `UsageError` if it is empty or too long."""
    if not text.strip():
        raise UsageError("empty text", hint="describe it in a few words")
    if len(text) > MAX_LENGTH:
        raise UsageError(
            f"too long: {len(text):,} characters", hint=f"the limit is {MAX_LENGTH:,} characters"
        )
    return mask_text(text)
