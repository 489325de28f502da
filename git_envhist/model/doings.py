"""The words for the work on a timeline: tasks, checks, effects, checkpoints that others made."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from git_envhist.model.entries import SnapshotId
from git_envhist.model.moments import CaptureResult, Snapshot, Verdict
from git_envhist.values import dataclass


class TaskStatus(Enum):
    """How far a task has come."""

    PENDING = "pending"
    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Task:
    """A part of the work on a timeline, as it was told last."""

    number: int
    mark: str
    text: str
    status: TaskStatus
    at: datetime
    """When that was told."""
    stands_on: SnapshotId
    """The newest snapshot at that time."""
    begun_at: SnapshotId | None = None
    """The newest snapshot when it was begun last."""
    agent: str | None = None
    """The agent that told so last, where one did; and its version."""
    agent_version: str | None = None
    definition: str | None = None
    """The fingerprint of what made that agent what it was."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something done outside the machine: no restore undoes it."""

    mark: str
    text: str
    at: datetime
    irreversible: bool = False
    command: str | None = None
    exit_code: int | None = None
    """None where there was no command, or it never ended."""
    stands_on: SnapshotId | None = None
    """The newest snapshot before it happened."""
    refused: bool = False
    """It was not approved, and did not happen."""


@dataclass(frozen=True, slots=True)
class ObservedCheckpoint:
    """A checkpoint of the platform below us that was made without us: nobody told why."""

    external_id: str
    taken_at: datetime
    """When it was made, as the platform says."""
    at: datetime
    """When it was found here."""
    comment: str = ""
    source: str = ""
    """Which platform, where somebody said so."""
    stands_on: SnapshotId | None = None
    """The newest snapshot when it was found."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check of one moment, and what it came to."""

    snapshot: Snapshot
    verdict: Verdict
    ran_at: str | None = None
    """Where it saw the environment; None where it did not run."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BisectResult:
    """Where a check began to fail."""

    command: str
    good: Snapshot
    bad: Snapshot
    """The first moment where it fails, as far as it could be told."""
    suspects: tuple[Snapshot, ...]
    """The moments of which one is the first bad, oldest first; more than one where some could not be judged."""
    tried: tuple[CheckResult, ...]
    """Every check that ran, in this order."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """What is to be done next, and where it starts from."""

    task: Task
    start: Snapshot
    attached: Snapshot | None = None
    """The newest snapshot with a conversation, not after `start`; if there is none, the newest with any attachment."""
    conversation: list[object] | None = None
    """The conversation of `attached`; None if it holds none, or if the key to open it is missing."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a command between two moments."""

    status: int
    before: CaptureResult
    after: CaptureResult | None
    warnings: tuple[str, ...] = ()
    output: bytes = b""
    """What it wrote, as far as that is kept."""
