"""Values for tasks and effects on a timeline, and for a command that runs between two snapshots."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from git_envhist.lazy import dataclass
from git_envhist.model.entries import SnapshotId
from git_envhist.model.snapshots import CaptureResult, Snapshot


class TaskStatus(Enum):
    """The state of a task."""

    PENDING = "pending"
    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Task:
    """A part of the work on a timeline, in its latest state."""

    number: int
    mark: str
    text: str
    status: TaskStatus
    at: datetime
    """The time of the latest state."""
    snapshot_id: SnapshotId
    """The newest snapshot when the task got this state."""
    started_id: SnapshotId | None = None
    """The newest snapshot when it was last started."""
    agent: str | None = None
    """The agent that set the latest state, if one did, and its version."""
    agent_version: str | None = None
    definition: str | None = None
    """The fingerprint of that agent's prompts and tools."""


@dataclass(frozen=True, slots=True)
class Effect:
    """An action outside the machine, which no restore undoes."""

    mark: str
    text: str
    at: datetime
    irreversible: bool = False
    command: str | None = None
    exit_code: int | None = None
    """None if there was no command, or it did not end."""
    snapshot_id: SnapshotId | None = None
    """The newest snapshot before it happened."""
    refused: bool = False
    """It was not approved and did not happen."""


@dataclass(frozen=True, slots=True)
class ObservedCheckpoint:
    """A checkpoint of the platform that was made by another program, without an intent."""

    external_id: str
    taken_at: datetime
    """The time of the checkpoint, from the platform."""
    at: datetime
    """The time at which it was found."""
    comment: str = ""
    source: str = ""
    """The name of the platform, if known."""
    snapshot_id: SnapshotId | None = None
    """The newest snapshot when it was found."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The next task, and the snapshot to start from."""

    task: Task
    start: Snapshot
    attached: Snapshot | None = None
    """The newest snapshot with a conversation, not after `start`; if there is none, the newest with any attachment."""
    conversation: list[object] | None = None
    """The conversation of `attached`; None if it holds none, or if the key to open it is missing."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a command that ran between two snapshots."""

    status: int
    before: CaptureResult
    after: CaptureResult | None
    warnings: tuple[str, ...] = ()
    output: bytes = b""
    """Its output, as far as it was recorded."""
