"""The tasks of a timeline: told as they go, and found again by whoever goes on."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.history.timeline import subject
from git_envhist.history.work import newest_attached, next_task, start_of_task, task_record, tasks_of
from git_envhist.lazy import replace
from git_envhist.model import (
    AgentName,
    CaptureResult,
    NoteRecord,
    ResumePoint,
    Snapshot,
    SnapshotAttachments,
    SnapshotRef,
    Task,
    TaskStatus,
    Trigger,
)
from git_envhist.platform import open_file_only
from git_envhist.secrets.masking import mask_text
from git_envhist.tracking.attachments import encode

if TYPE_CHECKING:
    from typing import Unpack

    from git_envhist.capture.pipeline import CaptureKeywords


# What makes an agent what it is, as a fingerprint: prompts, tools, settings; two are alike or they are not.

DIGITS = 16


def definition_of(*parts: object) -> str:
    """The fingerprint of plain values: text, bytes, numbers, lists, dictionaries in the order of their keys.

    >>> definition_of("You are careful.", {"tools": ["shell", "edit"]})
    '8f5a33169c83ca10'
    """
    return hashlib.sha256(encode([_ordered(part) for part in parts])).hexdigest()[:DIGITS]


def definition_of_files(paths: Iterable[str]) -> str | None:
    """The fingerprint of files, whatever they are called; None where there are none."""
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


class HistoryContext(Protocol):
    """What is needed of a history."""

    @property
    def now(self) -> datetime: ...
    @property
    def agent(self) -> AgentName | None: ...
    def log(self, limit: int | None = None, timeline: str | None = None) -> list[Snapshot]: ...
    def capture(
        self, intent: bytes | str | None = None, **asked: Unpack[CaptureKeywords]
    ) -> CaptureResult: ...
    def resolve(self, text: str) -> Snapshot: ...
    def tell(self, snapshot: Snapshot, *records: NoteRecord) -> None: ...
    def get(self, revision: SnapshotRef = "@") -> SnapshotAttachments: ...


class DefinitionDiffers(Refused):
    """Who wants to go on is defined otherwise than who began."""

    code = "definition-differs"

    def __init__(self, task: Task) -> None:
        agent = " ".join(word for word in (task.agent, task.agent_version) if word)
        by = f" by '{agent}'" if agent else ""
        super().__init__(
            f"task {task.number} was told{by} under another definition: '{task.definition}'",
            hint="git envlog resume --force, if what was begun can be gone on with as it is",
        )
        self.task = task


class Tasks:
    """The tasks of a timeline."""

    def __init__(self, history: HistoryContext) -> None:
        self._history = history

    def all(self) -> tuple[Task, ...]:
        """Return all tasks in the order in which they were added."""
        return tasks_of(self._history.log(), whole=True)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.all())

    def add(self, text: str, *, definition: str | None = None) -> Task:
        """One more; it is pending."""
        mark = new_mark()
        newest = self._history.log(1)
        snapshot_id = newest[0] if newest else current_snapshot(self._history, f"before: {subject(text)}")
        self._tell(snapshot_id, (mark, mark), without_tokens(text), TaskStatus.PENDING, definition)
        return self._by_mark(mark)

    def set(self, number: int, status: TaskStatus, *, definition: str | None = None) -> Task:
        """Say how far one has come; what is here is captured first, so that it can be gone on from there.

        `definition`: the fingerprint of who says so, where the agent of this history has none.
        """
        task = self._by_number(number)
        snapshot = current_snapshot(self._history, f"task {number} {status.value}: {subject(task.text)}")
        self._tell(snapshot, (task.mark, new_mark()), task.text, status, definition)
        return self._by_mark(task.mark)

    def resume(self, *, definition: str | None = None, force: bool = False) -> ResumePoint | None:
        """Return the first task neither completed nor skipped, the snapshot that it starts from and its conversation.

        None if no task is left. `DefinitionDiffers` if another definition than the caller's noted it, unless forced.
        """
        tasks = self.all()
        task = next_task(tasks)
        if task is None:
            return None
        told = task if task.definition else max(tasks, key=lambda one: (bool(one.definition), one.at))
        wanted = definition or self._agent_definition
        if wanted and told.definition and wanted != told.definition and not force:
            raise DefinitionDiffers(told)
        start = self._history.resolve(start_of_task(task, tasks))
        attached = newest_attached(self._history.log(), start.id)
        return ResumePoint(task, start, attached, self._conversation(attached))

    def _conversation(self, attached: Snapshot | None) -> list[object] | None:
        try:
            return None if attached is None else self._history.get(attached).conversation
        except (EnvhistError, ValueError):
            # The task can be resumed without it.
            return None

    @property
    def _agent_definition(self) -> str | None:
        return self._history.agent.definition if self._history.agent else None

    def _tell(
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
        self._history.tell(snapshot, task_record(*marks, text, status, self._history.now, agent))

    def _by_mark(self, mark: str) -> Task:
        return next(task for task in self.all() if task.mark == mark)

    def _by_number(self, number: int) -> Task:
        tasks = self.all()
        if not 1 <= number <= len(tasks):
            raise Refused(f"no such task: '{number}'", hint="git envlog task list")
        return tasks[number - 1]


def current_snapshot(history: HistoryContext, intent: str) -> Snapshot:
    """The newest snapshot, of what is here now."""
    captured = history.capture(intent, if_changed=True, trigger=Trigger.API)
    return captured.snapshot or history.resolve("@")


def new_mark() -> str:
    """Sorts behind those that were made before; two processes do not make the same."""
    return f"{time.time_ns():016x}{os.urandom(3).hex()}"


def without_tokens(text: str) -> str:
    """What is told, without what must not be."""
    if not text.strip():
        raise UsageError("nothing is said", hint="say it in a few words")
    if len(text) > MAX_LENGTH:
        raise UsageError(f"too long: {len(text):,} characters", hint="a few words serve")
    return mask_text(text)
