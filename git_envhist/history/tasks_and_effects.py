"""Read tasks, effects and checkpoints of a platform from the notes of a timeline (pure).

A record is one event; the events of one task or effect share a mark, and marks sort by the time at which they were
made. Notes may come from a remote, so records of another form are skipped.
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
"""A capture puts a number before the name of each attachment."""
TASK, EFFECT, OBSERVED = "task", "effect", "observed"
TASK_FORMAT = 1
"""The version of task records; records without a version have the same form."""
AGENT_FIELDS = ("agent", "version", "definition")
STATUSES = {status.value: status for status in TaskStatus}
ENDED = (TaskStatus.COMPLETED, TaskStatus.SKIPPED)


class _Event(NamedTuple):
    """A record, and the snapshot with the note."""

    event: str
    mark: str
    text: str
    at: datetime
    snapshot: SnapshotId
    record: NoteRecord


class NewerRecord(Damaged):
    """A later version of this program wrote a record of a task."""

    code = "newer-format"

    def __init__(self, version: object) -> None:
        super().__init__(
            f"the tasks have format '{version}', this program reads up to '{TASK_FORMAT}'",
            hint="upgrade git-envhist",
        )


def task_record(
    task: str, event: str, text: str, status: TaskStatus, at: datetime, agent: AgentName | None = None
) -> NoteRecord:
    """Return the record of an event of a task; the event of a new task is its mark."""
    fields: dict[str, object] = {"mark": task, "event": event, "text": text, "status": status.value}
    fields["format"] = TASK_FORMAT
    values = (agent.name, agent.version, agent.definition) if agent else ()
    fields |= {key: value for key, value in zip(AGENT_FIELDS, values, strict=False) if value}
    return NoteRecord(TASK, at, fields)


def effect_record(effect: Effect, event: str) -> NoteRecord:
    """Return the record of an effect that is about to happen, or has ended."""
    fields: dict[str, object] = {"mark": effect.mark, "event": event, "text": effect.text}
    fields |= {name: True for name in ("irreversible", "refused") if getattr(effect, name)}
    known = {"command": effect.command, "exit_code": effect.exit_code}
    return NoteRecord(
        EFFECT, effect.at, fields | {key: value for key, value in known.items() if value is not None}
    )


def observed_record(observed: ObservedCheckpoint, event: str) -> NoteRecord:
    """Return the record of a checkpoint of the platform."""
    fields: dict[str, object] = {"mark": observed.external_id, "event": event, "text": observed.comment}
    fields["taken_at"] = observed.taken_at.isoformat()
    return NoteRecord(
        OBSERVED, observed.at, fields | ({"source": observed.source} if observed.source else {})
    )


def observed_of(snapshots: Iterable[Snapshot]) -> tuple[ObservedCheckpoint, ...]:
    """Return the recorded checkpoints by the time at which they were taken; the first record of each counts."""
    found: dict[str, ObservedCheckpoint] = {}
    for event in _events(snapshots, OBSERVED):
        taken, source = event.record.fields.get("taken_at"), event.record.fields.get("source")
        taken_at = _read_time(taken)
        if taken_at is not None and event.mark not in found:
            named = source if isinstance(source, str) else ""
            found[event.mark] = ObservedCheckpoint(
                event.mark, taken_at, event.at, event.text, named, event.snapshot
            )
    return tuple(sorted(found.values(), key=lambda one: one.taken_at))


def _read_time(text: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


def tasks_of(snapshots: Iterable[Snapshot], *, whole: bool = False) -> tuple[Task, ...]:
    """Return the tasks of a timeline, in the order in which they were added.

    Records of a later version are skipped; `whole`: raise `NewerRecord` for them, since a part cannot be resumed.
    """
    tasks: dict[str, Task] = {}
    for event in _events(snapshots, TASK):
        fields = event.record.fields
        version, status = fields.get("format", 1), STATUSES.get(str(fields.get("status")))
        if not isinstance(version, int) or version > TASK_FORMAT:
            if whole:
                raise NewerRecord(version)
            continue
        if status is None:
            continue
        before = tasks.get(event.mark)
        begun_at = before.started_id if before else None
        if status is TaskStatus.IN_PROGRESS:
            begun_at = event.snapshot
        tasks[event.mark] = Task(
            before.number if before else len(tasks) + 1,
            event.mark,
            before.text if before else event.text,
            status,
            event.at,
            event.snapshot,
            begun_at,
            *(value if isinstance(value := fields.get(key), str) else None for key in AGENT_FIELDS),
        )
    return tuple(tasks.values())


def next_task(tasks: Sequence[Task]) -> Task | None:
    """Return the first task that is neither completed nor skipped."""
    return next((task for task in tasks if task.status not in ENDED), None)


def start_of_task(task: Task, tasks: Sequence[Task]) -> SnapshotId:
    """Return the snapshot that a task starts from: where it began, else where the last task before it ended."""
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
    """Return the names of a snapshot's attachments, without the numbers that a capture gives."""
    names = (*snapshot.attachments, *(one.name for one in snapshot.attached))
    return {NUMBERED.sub("", name) for name in names}


def effects_of(snapshots: Iterable[Snapshot]) -> tuple[Effect, ...]:
    """Return the effects, oldest first; the last record of each counts."""
    effects: dict[str, Effect] = {}
    for event in _events(snapshots, EFFECT):
        fields, before = event.record.fields, effects.get(event.mark)
        command, code = fields.get("command"), fields.get("exit_code")
        effects[event.mark] = Effect(
            event.mark,
            before.text if before else event.text,
            before.at if before else event.at,
            fields.get("irreversible") is True or (before is not None and before.irreversible),
            command if isinstance(command, str) else None,
            code if isinstance(code, int) else None,
            before.snapshot_id if before else event.snapshot,
            fields.get("refused") is True,
        )
    return tuple(effects.values())


def effects_since(line: Sequence[Snapshot], target: SnapshotId) -> tuple[Effect, ...]:
    """Return the effects at or after a snapshot; none if it is not on the timeline (newest first)."""
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
