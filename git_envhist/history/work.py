"""What is being done, read from the notes of a timeline: its tasks, and what happened outside the machine (pure).

Each record tells one event. Those of one task, or of one effect, share a mark; marks sort by the time at which they
were made. Notes may come from anywhere: what is not such a record is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.lazy import pattern
from git_envhist.model import (
    AgentName,
    Effect,
    NoteRecord,
    ObservedCheckpoint,
    Snapshot,
    SnapshotId,
    Task,
    TaskStatus,
)

CONVERSATION = "conversation.json"
NUMBERED = pattern(r"[0-9]+-(?=.)")
"""What a capture attaches has a number before its name."""
TASK, EFFECT, OBSERVED = "task", "effect", "observed"
TASK_FORMAT = 1
"""Of what is told of a task; before it had a number, it was the same."""
AGENT_FIELDS = ("agent", "version", "definition")
STATUSES = {status.value: status for status in TaskStatus}
ENDED = (TaskStatus.COMPLETED, TaskStatus.SKIPPED)


class _Event(NamedTuple):
    """One record, and the snapshot that it stands on."""

    event: str
    mark: str
    text: str
    at: datetime
    snapshot: SnapshotId
    record: NoteRecord


class NewerRecord(Damaged):
    """What is told of a task was told by a later version of this program."""

    code = "newer-format"

    def __init__(self, version: object) -> None:
        super().__init__(
            f"the tasks are told in format '{version}', this program reads up to '{TASK_FORMAT}'",
            hint="upgrade git-envhist to go on with them",
        )


def task_record(
    task: str, event: str, text: str, status: TaskStatus, at: datetime, agent: AgentName | None = None
) -> NoteRecord:
    """An event of a task; it is the task's first one where `event` is its mark."""
    fields: dict[str, object] = {"mark": task, "event": event, "text": text, "status": status.value}
    fields["format"] = TASK_FORMAT
    told = (agent.name, agent.version, agent.definition) if agent else ()
    fields |= {key: value for key, value in zip(AGENT_FIELDS, told, strict=False) if value}
    return NoteRecord(TASK, at, fields)


def effect_record(effect: Effect, event: str) -> NoteRecord:
    """An event of an effect: that it is about to happen, or how it ended."""
    fields: dict[str, object] = {"mark": effect.mark, "event": event, "text": effect.text}
    fields |= {name: True for name in ("irreversible", "refused") if getattr(effect, name)}
    known = {"command": effect.command, "exit_code": effect.exit_code}
    return NoteRecord(
        EFFECT, effect.at, fields | {key: value for key, value in known.items() if value is not None}
    )


def observed_record(observed: ObservedCheckpoint, event: str) -> NoteRecord:
    """That a checkpoint of the platform was found."""
    fields: dict[str, object] = {"mark": observed.external_id, "event": event, "text": observed.comment}
    fields["taken_at"] = observed.taken_at.isoformat()
    return NoteRecord(
        OBSERVED, observed.at, fields | ({"source": observed.source} if observed.source else {})
    )


def observed_of(snapshots: Iterable[Snapshot]) -> tuple[ObservedCheckpoint, ...]:
    """The checkpoints of the platform that were found, by the time at which they were made; each as told first."""
    found: dict[str, ObservedCheckpoint] = {}
    for told in _events(snapshots, OBSERVED):
        taken, source = told.record.fields.get("taken_at"), told.record.fields.get("source")
        taken_at = _moment(taken)
        if taken_at is not None and told.mark not in found:
            named = source if isinstance(source, str) else ""
            found[told.mark] = ObservedCheckpoint(
                told.mark, taken_at, told.at, told.text, named, told.snapshot
            )
    return tuple(sorted(found.values(), key=lambda one: one.taken_at))


def _moment(text: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


def tasks_of(snapshots: Iterable[Snapshot], *, whole: bool = False) -> tuple[Task, ...]:
    """The tasks of a timeline, in the order in which they were added.

    What a later version told is passed over; `whole`: it is `NewerRecord`, since one cannot go on from a part.
    """
    tasks: dict[str, Task] = {}
    for told in _events(snapshots, TASK):
        fields = told.record.fields
        version, status = fields.get("format", 1), STATUSES.get(str(fields.get("status")))
        if not isinstance(version, int) or version > TASK_FORMAT:
            if whole:
                raise NewerRecord(version)
            continue
        if status is None:
            continue
        before = tasks.get(told.mark)
        begun = before.started_id if before else None
        if status is TaskStatus.IN_PROGRESS:
            begun = told.snapshot
        tasks[told.mark] = Task(
            before.number if before else len(tasks) + 1,
            told.mark,
            before.text if before else told.text,
            status,
            told.at,
            told.snapshot,
            begun,
            *(value if isinstance(value := fields.get(key), str) else None for key in AGENT_FIELDS),
        )
    return tuple(tasks.values())


def next_task(tasks: Sequence[Task]) -> Task | None:
    """The first one that is neither completed nor skipped."""
    return next((task for task in tasks if task.status not in ENDED), None)


def start_of_task(task: Task, tasks: Sequence[Task]) -> SnapshotId:
    """The moment that a task starts from: where it was begun, else where the last one before it ended."""
    if task.started_id is not None and task.status is not TaskStatus.PENDING:
        return task.started_id
    ended = [one for one in tasks if one.number < task.number and one.status in ENDED]
    return max(ended, key=lambda one: (one.at, one.number)).snapshot_id if ended else task.snapshot_id


def newest_attached(line: Sequence[Snapshot], start: SnapshotId) -> Snapshot | None:
    """Return the newest snapshot with a conversation that is not after `start`, else the newest with any attachment."""
    ids = [one.id for one in line]
    older = [one for one in line[ids.index(start) if start in ids else 0 :] if attachment_names(one)]
    with_conversation = [one for one in older if CONVERSATION in attachment_names(one)]
    return next(iter(with_conversation or older), None)


def attachment_names(snapshot: Snapshot) -> set[str]:
    """Return the names of what is attached to a snapshot, without the numbers that a capture gives."""
    names = (*snapshot.attachments, *(one.name for one in snapshot.attached))
    return {NUMBERED.sub("", name) for name in names}


def effects_of(snapshots: Iterable[Snapshot]) -> tuple[Effect, ...]:
    """What happened outside the machine, the oldest first; each as it was told last."""
    effects: dict[str, Effect] = {}
    for told in _events(snapshots, EFFECT):
        fields, before = told.record.fields, effects.get(told.mark)
        command, code = fields.get("command"), fields.get("exit_code")
        effects[told.mark] = Effect(
            told.mark,
            before.text if before else told.text,
            before.at if before else told.at,
            fields.get("irreversible") is True or (before is not None and before.irreversible),
            command if isinstance(command, str) else None,
            code if isinstance(code, int) else None,
            before.snapshot_id if before else told.snapshot,
            fields.get("refused") is True,
        )
    return tuple(effects.values())


def effects_since(line: Sequence[Snapshot], target: SnapshotId) -> tuple[Effect, ...]:
    """What happened at a moment of a timeline, the newest first, or after it; nothing where it stands on another."""
    for number, snapshot in enumerate(line):
        if snapshot.id == target:
            return tuple(one for one in effects_of(line[: number + 1]) if not one.refused)
    return ()


def _events(snapshots: Iterable[Snapshot], kind: str) -> list[_Event]:
    found = [event for snapshot in snapshots for event in _read(snapshot, kind)]
    return sorted(found, key=lambda event: event.event)


def _read(snapshot: Snapshot, kind: str) -> Iterator[_Event]:
    for record in snapshot.records:
        fields = record.fields
        event, mark, text = fields.get("event"), fields.get("mark"), fields.get("text")
        if record.kind == kind and isinstance(event, str) and isinstance(mark, str) and isinstance(text, str):
            yield _Event(event, mark, text, record.at, snapshot.id, record)
