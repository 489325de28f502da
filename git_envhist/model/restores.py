"""The words for going back: what a restore plans, does and leaves alone; what a fork comes to."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from git_envhist.lazy import dataclass
from git_envhist.model.entries import Entry, EnvPath, FactChange
from git_envhist.model.snapshots import Snapshot
from git_envhist.model.work import CheckResult, Effect


class DirectoryListing(NamedTuple):
    """One directory of a snapshot: what it is, and its entries by their true names, with owners and ids filled in."""

    own: Entry
    entries: dict[bytes, Entry]


class DirectoryPair(NamedTuple):
    """One directory on the two sides of a restore; None where it is no directory there."""

    realm: bytes
    """Empty: the working tree, the `.git` of nested repositories included; else the name of a further root."""
    path: EnvPath
    before: DirectoryListing | None
    after: DirectoryListing | None


class PlanAction(Enum):
    """What a restore does at one path."""

    WRITE = "write"
    REPLACE = "replace"
    REMOVE = "remove"
    ADJUST = "adjust"
    """The bytes stay where they are: only mode, time, owner or attributes differ."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One path that a restore changes; a new directory comes with all that is in it."""

    realm: bytes
    path: EnvPath
    action: PlanAction
    before: Entry | None
    after: Entry | None
    below: Sequence[Entry] = ()
    """What a new directory holds, each directory before its entries."""
    unit: int | None = None
    """Steps with the same number are all done or none: a database and what belongs to it."""

    @property
    def shown(self) -> EnvPath:
        """The path as people see it: one of a further root has the root's name in front."""
        return shown_path(self.realm, self.path)


@dataclass(frozen=True, slots=True)
class PlannedDirectory:
    """A directory whose own line is set at the end, because it differs or because its entries change."""

    realm: bytes
    path: EnvPath
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True)
class SkippedPath:
    """A path that differs from the moment and stays as it is, with all that lies below it; and why."""

    path: EnvPath
    why: str


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Everything that a restore is going to do, in this order."""

    steps: tuple[PlanStep, ...]
    directories: tuple[PlannedDirectory, ...]
    left_alone: tuple[SkippedPath, ...] = ()

    @property
    def counts(self) -> dict[PlanAction, int]:
        """How many paths each action touches, those in new directories included."""
        counts = dict.fromkeys(PlanAction, 0)
        for step in self.steps:
            counts[step.action] += 1
            counts[PlanAction.WRITE] += len(step.below)
        return counts


def shown_path(realm: bytes, path: EnvPath) -> EnvPath:
    """A path as people see it: one of a further root has the root's name and `://` in front."""
    return EnvPath(realm + b"://" + path) if realm else path


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What a restore did; after a dry run, and where nothing differs, what it would do."""

    target: Snapshot
    plan: RestorePlan
    files: int = 0
    """How many files the environment had before."""
    safety: Snapshot | None = None
    """What was here, saved before anything was changed; None where nothing was."""
    moment: Snapshot | None = None
    """The environment as it is now, on the timeline."""
    verified: int = 0
    """So many paths were read again and are what the moment says."""
    seconds: float = 0.0
    kept: tuple[SkippedPath, ...] = ()
    """Paths that somebody changed meanwhile: they stay as they were found."""
    losses: tuple[SkippedPath, ...] = ()
    """What of a path cannot be had here, e.g. an attribute that the file system does not know."""
    tracked_differing: int | None = None
    """How many tracked files differ from HEAD now; None where git could not tell."""
    tracked_differed: int | None = None
    """How many of these differed before, too."""
    edits_replaced: tuple[EnvPath, ...] = ()
    """Tracked files whose uncommitted changes went with what was replaced: `safety` holds them."""
    head: str | None = None
    """Where HEAD went, where it was to move."""
    relocated: tuple[EnvPath, ...] = ()
    """What came and named another working tree, and names this one now."""
    story: tuple[FactChange, ...] = ()
    """After a dry run: the packages, databases, variables that it would change, from what is here to the moment."""
    outside: tuple[FactChange, ...] = ()
    """What of the machine is not as it was: from what is here to the moment."""
    effects: tuple[Effect, ...] = ()
    """What was done outside the machine since: no restore undoes it."""
    running: tuple[str, ...] = ()
    """Processes that were at work in the environment, and still run what was there."""
    services: tuple[str, ...] = ()
    """What was done with the state of services, in order; after a dry run what would be."""
    roots: tuple[tuple[str, str], ...] = ()
    """The additional roots in which something changes: name and directory."""
    warnings: tuple[str, ...] = ()
    checked: CheckResult | None = None
    """What the check came to that was to run then."""

    @property
    def undo(self) -> Snapshot | None:
        """The moment to restore so that what was here comes back; None where nothing was changed."""
        return self.safety

    @property
    def exact(self) -> bool:
        """Whether everything that was to change is as it was."""
        return not self.kept and not self.losses


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """How a restore that was broken off came to its end."""

    undone: bool
    """Taken back; else finished."""
    kept: tuple[SkippedPath, ...] = ()
    losses: tuple[SkippedPath, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether everything is as it is to be."""
        return not self.kept and not self.losses


@dataclass(frozen=True, slots=True)
class OutsideReference:
    """A path of a fork that names the place it was made of: what is run or read there is the original's."""

    path: EnvPath
    what: str
    """`link`, `text`, or why it is not rewritten."""


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """What a fork would do."""

    source: Snapshot
    root: str
    """The directory that would be made, absolute and without links."""
    branch: str | None
    relocate: bool
    plan_id: str
    """Equal for two plans of the same fork; `git envlog fork --plan` takes it."""


@dataclass(frozen=True, slots=True)
class ForkResult:
    """What a fork came to."""

    source: Snapshot
    root: str
    timeline: str
    moment: Snapshot
    """The first of its own timeline."""
    head: str | None
    """The code commit it stands at; None where that is gone, and for a plain directory."""
    branch: str | None
    """The branch that was made for it."""
    orphan: bool
    verified: int
    seconds: float
    pointing: tuple[OutsideReference, ...] = ()
    """What still names the place it was made of."""
    relocated: tuple[EnvPath, ...] = ()
    left_alone: tuple[SkippedPath, ...] = ()
    kept: tuple[SkippedPath, ...] = ()
    losses: tuple[SkippedPath, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether everything is as it was."""
        return not self.kept and not self.losses
