"""The words for the work on a timeline: tasks, checks, effects, checkpoints that others made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from git_envhist.lazy import dataclass
from git_envhist.model.entries import Change, EnvPath, FactChange, SnapshotId
from git_envhist.model.snapshots import CaptureResult, Snapshot, Verdict

# The words for what captures by itself, and for what changed while nothing did: files of others, hooks, logs.

FILE_MODE = 0o644


@dataclass(frozen=True, slots=True)
class FileState:
    """What stands at a path: the bytes of a file and its mode, or where a link leads (mode None)."""

    data: bytes
    mode: int | None = FILE_MODE


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One path, before and after; None where nothing stands."""

    path: str
    before: FileState | None
    after: FileState | None


@dataclass(frozen=True, slots=True)
class IntegrationChange:
    """What was changed for one integration, or would be."""

    name: str
    edits: tuple[FileEdit, ...]
    remarks: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Directories of ours that nobody needs any more."""


@dataclass(frozen=True, slots=True)
class InstalledPart:
    """One thing that is, or should be, in somebody's file."""

    event: str
    active: bool
    place: str
    """The file that it is in, or should be in."""
    remark: str = ""
    """What is the matter with it."""


@dataclass(frozen=True, slots=True)
class PendingHook:
    """A hook has called; `seen` tells one mark from the next."""

    event: str
    at: float
    seen: tuple[int, int]


@dataclass(frozen=True, slots=True)
class HookRun:
    """What one run of a worker came to."""

    event: str
    at: float
    result: str
    """captured, unchanged, off, waiting, failed."""
    seconds: float = 0.0
    snapshot: str | None = None
    message: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class IntegrationStatus:
    """What captures by itself in one repository."""

    enabled: bool
    program: str
    git: tuple[int, ...]
    here: dict[str, tuple[InstalledPart, ...]]
    """By integration, what is installed for this repository."""
    everywhere: dict[str, tuple[InstalledPart, ...]]
    """Likewise for every repository of this user."""
    outcomes: tuple[HookRun, ...]
    """What hooks came to, oldest first."""
    waiting: PendingHook | None
    warnings: tuple[str, ...]
    watching: bool = False
    """Whether `git envlog watch` runs here."""


class LogEvent(NamedTuple):
    """Something that somebody did, as a log has it."""

    at: datetime
    what: str
    commit: str = ""


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """What can be told of the time since a moment."""

    root: str
    since: datetime
    until: datetime
    facts: tuple[FactChange, ...]
    changes: tuple[Change, ...]
    times: Mapping[EnvPath, datetime]
    """When each of the paths changed."""
    lost: tuple[EnvPath, ...]
    """Directories that lost something."""
    unread: tuple[EnvPath, ...]
    commands: tuple[LogEvent, ...]
    head: tuple[LogEvent, ...]
    """What moved HEAD."""
    looked: int
    """How many entries were looked at."""


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


# What whoever waits for a check is told; by itself, since every capture passes here.


class CheckListener(NamedTuple):
    """What whoever waits for a check is told."""

    running: Callable[[str], None] | None = None
    """The command, before it runs."""
    through: Callable[[bytes], None] | None = None
    """What it writes, as it comes."""
    waiting: Callable[[], None] | None = None
    """That another check comes first."""
    trying: Callable[[Snapshot, int, int], None] | None = None
    """The moment that is to be checked next, how many may be the first bad one, how many checks that takes at most."""
    tried: Callable[[CheckResult], None] | None = None
    """What that check came to."""


UNWATCHED = CheckListener()
