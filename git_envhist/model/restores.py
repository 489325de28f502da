"""Values for restores and forks: plans and results."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from git_envhist.lazy import dataclass
from git_envhist.model.checks import CheckResult
from git_envhist.model.entries import Entry, EnvPath, FactChange
from git_envhist.model.snapshots import Snapshot
from git_envhist.model.tasks import Effect


class DirectoryListing(NamedTuple):
    """A directory of a snapshot: its own entry and its children by name, with owners and ids filled in."""

    own: Entry
    entries: dict[bytes, Entry]


class DirectoryPair(NamedTuple):
    """A directory before and after a restore; None on a side where it is not a directory."""

    root: bytes
    """The name of an additional root; empty for the working tree, including the `.git` of nested repositories."""
    path: EnvPath
    before: DirectoryListing | None
    after: DirectoryListing | None
    left_out: int = 0
    """The number of entries that are equal on both sides and in neither listing."""


class PlanAction(Enum):
    """The action of a restore at one path."""

    WRITE = "write"
    REPLACE = "replace"
    REMOVE = "remove"
    ADJUST = "adjust"
    """Only mode, time, owner or attributes differ; the bytes are not written."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A path that a restore changes. A new directory is one step, with everything below it."""

    root: bytes
    path: EnvPath
    action: PlanAction
    before: Entry | None
    after: Entry | None
    below: Sequence[Entry] = ()
    """The contents of a new directory, each directory before its entries."""
    unit: int | None = None
    """Steps with the same number are done together or not at all: a database and its sidecar files."""

    @property
    def shown(self) -> EnvPath:
        """Return the path as it is displayed, with the name of its additional root in front."""
        return shown_path(self.root, self.path)


@dataclass(frozen=True, slots=True)
class PlannedDirectory:
    """A directory whose own metadata is set at the end, because it differs or because its entries change."""

    root: bytes
    path: EnvPath
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True)
class SkippedPath:
    """A path that differs from the snapshot and is not changed, with everything below it, and the reason."""

    path: EnvPath
    why: str


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """A path that a revert or a merge cannot decide about, because both sides changed it, and the reason."""

    path: EnvPath
    why: str


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """All changes of a restore, in order."""

    steps: tuple[PlanStep, ...]
    directories: tuple[PlannedDirectory, ...]
    skipped: tuple[SkippedPath, ...] = ()

    @property
    def counts(self) -> dict[PlanAction, int]:
        """Return the number of paths of each action, those in new directories included."""
        counts = dict.fromkeys(PlanAction, 0)
        for step in self.steps:
            counts[step.action] += 1
            counts[PlanAction.WRITE] += len(step.below)
        return counts


def shown_path(root: bytes, path: EnvPath) -> EnvPath:
    """Return a path as it is displayed: `nginx://conf.d` for one of an additional root."""
    return EnvPath(root + b"://" + path) if root else path


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of a restore; after a dry run, or if nothing differs, what it would change."""

    target: Snapshot
    plan: RestorePlan
    files: int = 0
    """The number of files in the environment before the restore."""
    safety: Snapshot | None = None
    """The snapshot of the state before the restore; None if nothing was changed."""
    snapshot: Snapshot | None = None
    """The snapshot of the state after the restore."""
    verified: int = 0
    """The number of paths that were read again and agree with the snapshot."""
    seconds: float = 0.0
    kept: tuple[SkippedPath, ...] = ()
    """Paths that changed while the restore ran, or whose conflict a merge skipped; they were not overwritten."""
    losses: tuple[SkippedPath, ...] = ()
    """Parts that could not be restored, e.g. an attribute that the file system does not support."""
    tracked_differing: int | None = None
    """The number of tracked files that differ from HEAD now; None if git could not list them."""
    tracked_differed: int | None = None
    """The number of them that differed before the restore."""
    edits_replaced: tuple[EnvPath, ...] = ()
    """Tracked files whose uncommitted changes were replaced; `safety` contains them."""
    head: str | None = None
    """The commit or branch that HEAD was moved to, if it was."""
    relocated: tuple[EnvPath, ...] = ()
    """Restored files that contained the path of another working tree; they contain this one's now."""
    story: tuple[FactChange, ...] = ()
    """After a dry run: the packages, databases and variables that it would change."""
    outside: tuple[FactChange, ...] = ()
    """Facts about the machine that differ from the snapshot; a restore does not change them."""
    effects: tuple[Effect, ...] = ()
    """Effects outside the machine since the snapshot; no restore undoes them."""
    running: tuple[str, ...] = ()
    """Processes that run programs of the environment and still use the replaced files."""
    services: tuple[str, ...] = ()
    """The actions on the state of services, in order; after a dry run, the planned ones."""
    roots: tuple[tuple[str, str], ...] = ()
    """The additional roots in which something changes: name and directory."""
    warnings: tuple[str, ...] = ()
    checked: CheckResult | None = None
    """The result of the check that ran after the restore."""
    reverted: str = ""
    """The snapshots or the range that a revert took out."""
    merged: str = ""
    """The snapshot that a merge joined, and its timeline."""
    base: Snapshot | None = None
    """The snapshot from which on a merge compares the two sides."""
    conflicts: tuple[MergeConflict, ...] = ()
    """After a dry run of a revert or a merge: the paths that it cannot decide about."""

    @property
    def undo(self) -> Snapshot | None:
        """Return the snapshot whose restore undoes this one; None if nothing was changed."""
        return self.safety

    @property
    def exact(self) -> bool:
        """Return whether every planned change was made."""
        return not self.kept and not self.losses


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """The result of finishing or undoing an interrupted restore."""

    undone: bool
    """The restore was undone; otherwise it was finished."""
    kept: tuple[SkippedPath, ...] = ()
    losses: tuple[SkippedPath, ...] = ()

    @property
    def exact(self) -> bool:
        """Return whether every planned change was made."""
        return not self.kept and not self.losses


@dataclass(frozen=True, slots=True)
class OutsideReference:
    """A path in a fork that refers to the original directory: running or reading it uses the original's files."""

    path: EnvPath
    what: str
    """`link`, `text`, or the reason why it is not rewritten."""


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """The plan of a fork."""

    source: Snapshot
    root: str
    """The directory that would be made, absolute and without links."""
    branch: str | None
    relocate: bool
    plan_id: str
    """The argument of `git envlog fork --plan`; equal for two plans of the same fork."""


@dataclass(frozen=True, slots=True)
class ForkResult:
    """The result of a fork."""

    source: Snapshot
    root: str
    timeline: str
    snapshot: Snapshot
    """The first snapshot on the fork's timeline."""
    head: str | None
    """The checked-out code commit; None if it is gone, and for a plain directory."""
    branch: str | None
    """The branch that was created for it."""
    orphan: bool
    verified: int
    seconds: float
    pointing: tuple[OutsideReference, ...] = ()
    """Paths that still refer to the original directory."""
    relocated: tuple[EnvPath, ...] = ()
    skipped: tuple[SkippedPath, ...] = ()
    kept: tuple[SkippedPath, ...] = ()
    losses: tuple[SkippedPath, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Return whether every path was restored exactly."""
        return not self.kept and not self.losses
