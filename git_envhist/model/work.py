"""Values for work on a timeline: integrations and hooks, recent changes, tasks, effects, checks."""

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
    """The content of a path: the bytes and mode of a file, or the target of a link (mode None)."""

    data: bytes
    mode: int | None = FILE_MODE


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A path before and after a change; None if it does not exist."""

    path: str
    before: FileState | None
    after: FileState | None


@dataclass(frozen=True, slots=True)
class IntegrationChange:
    """The changes of one integration, made or planned."""

    name: str
    edits: tuple[FileEdit, ...]
    remarks: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Empty directories of ours, to be removed."""


@dataclass(frozen=True, slots=True)
class InstalledPart:
    """A hook or setting of ours that is, or should be, in a file of another program."""

    event: str
    active: bool
    place: str
    """The file that contains it, or should."""
    remark: str = ""
    """A problem with it."""


@dataclass(frozen=True, slots=True)
class PendingHook:
    """A call by a hook that is not answered yet; `seen` identifies the mark file."""

    event: str
    at: float
    seen: tuple[int, int]


@dataclass(frozen=True, slots=True)
class HookRun:
    """The result of one run of a hook's worker."""

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
    """The installed integrations of one repository, and the results of its hooks."""

    enabled: bool
    program: str
    git: tuple[int, ...]
    here: dict[str, tuple[InstalledPart, ...]]
    """By integration, the parts installed for this repository."""
    everywhere: dict[str, tuple[InstalledPart, ...]]
    """By integration, the parts installed for every repository of this user."""
    outcomes: tuple[HookRun, ...]
    """The latest runs of hooks, oldest first."""
    waiting: PendingHook | None
    warnings: tuple[str, ...]
    watching: bool = False
    """True while `git envlog watch` is running."""


class LogEvent(NamedTuple):
    """An action found in a log, e.g. a command of the shell."""

    at: datetime
    what: str
    commit: str = ""


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """The changes since a point in time, found without a snapshot."""

    root: str
    since: datetime
    until: datetime
    facts: tuple[FactChange, ...]
    changes: tuple[Change, ...]
    times: Mapping[EnvPath, datetime]
    """The time of each path's change."""
    lost: tuple[EnvPath, ...]
    """Directories from which entries were removed."""
    unread: tuple[EnvPath, ...]
    commands: tuple[LogEvent, ...]
    head: tuple[LogEvent, ...]
    """Movements of HEAD."""
    examined: int
    """The number of entries that were examined."""


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
class CheckResult:
    """A check of one snapshot, and its verdict."""

    snapshot: Snapshot
    verdict: Verdict
    ran_at: str | None = None
    """The directory in which it ran; None if it did not run."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BisectResult:
    """The result of a search for the first failing snapshot."""

    command: str
    good: Snapshot
    bad: Snapshot
    """The first snapshot that fails, as far as it could be determined."""
    suspects: tuple[Snapshot, ...]
    """The snapshots of which one is the first bad one, oldest first; several if some could not be checked."""
    tried: tuple[CheckResult, ...]
    """Every check that ran, in order."""


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


# Callbacks of a check. They are not in `checks`, because every capture imports this module.


class CheckListener(NamedTuple):
    """Callbacks that report the progress of a check."""

    running: Callable[[str], None] | None = None
    """Called with the command before it runs."""
    through: Callable[[bytes], None] | None = None
    """Called with output of the command as it arrives."""
    waiting: Callable[[], None] | None = None
    """Called if another check must end first."""
    trying: Callable[[Snapshot, int, int], None] | None = None
    """Called with the next snapshot to check, the number of suspects, and the maximum number of checks left."""
    tried: Callable[[CheckResult], None] | None = None
    """Called with the result of each check."""


UNWATCHED = CheckListener()
