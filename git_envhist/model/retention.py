"""Values for dropping snapshots and for erasing paths."""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

from git_envhist.lazy import dataclass
from git_envhist.model.entries import EnvPath
from git_envhist.model.snapshots import Snapshot

BY_POLICY = ("among", "kept")
"""The first words of the reasons that a policy gives."""
NOT_KEPT = "no rule keeps it"


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The number of snapshots of a timeline that are kept in addition to protected ones."""

    last: int = 200
    hourly: int = 0
    daily: int = 30
    weekly: int = 26


@dataclass(frozen=True, slots=True)
class PruneDecision:
    """The decision about one snapshot, with its reasons."""

    snapshot: Snapshot
    reasons: tuple[str, ...]
    """Why it is kept; empty if it is dropped."""
    why_not: str = NOT_KEPT

    @property
    def keep(self) -> bool:
        return bool(self.reasons)

    @property
    def always(self) -> bool:
        """Return whether the snapshot is protected from every policy."""
        return any(reason.partition(" ")[0] not in BY_POLICY for reason in self.reasons)

    @property
    def why(self) -> str:
        return ", ".join(self.reasons) or self.why_not


class PrunedTimeline(NamedTuple):
    """The decisions about one timeline."""

    timeline: str
    decisions: tuple[PruneDecision, ...]
    """Newest first."""


@dataclass(frozen=True, slots=True)
class PruneResult:
    """The result of dropping snapshots by policy, or of its dry run."""

    timelines: tuple[PrunedTimeline, ...]
    until: date
    """The first day on which the dropped snapshots may be deleted for good."""
    expired: int = 0
    """The number of snapshots that were deleted from the trash for good."""
    dry_run: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def gone(self) -> int:
        """Return the number of dropped snapshots."""
        return sum(not one.keep for thinned in self.timelines for one in thinned.decisions)


@dataclass(frozen=True, slots=True)
class DropResult:
    """The result of dropping snapshots, or of its dry run."""

    snapshots: tuple[Snapshot, ...]
    until: date
    """The first day on which the dropped snapshots may be deleted for good."""
    dry_run: bool = False
    warnings: tuple[str, ...] = ()


class TrashedSnapshot(NamedTuple):
    """A dropped snapshot in the trash."""

    snapshot: Snapshot
    since: date
    until: date


class PushedTimeline(NamedTuple):
    """A timeline that was pushed while it contained a purged path."""

    remote: str
    """Its name; empty if it is not configured any more."""
    shown: str
    timeline: str


class RemainingObject(NamedTuple):
    """An object with the purged bytes that is still stored: not by us, or also at another path."""

    oid: str
    where: str
    """`history`: at another path of a snapshot; `git`: in git's own objects; `unreached`: in git, unreachable."""
    path: bytes


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """The result of a purge, or of its dry run."""

    paths: tuple[EnvPath, ...]
    snapshots: int
    """The number of snapshots that contained one of the paths."""
    in_trash: int
    """The number of these that are in the trash."""
    sent: tuple[PushedTimeline, ...] = ()
    """Timelines with the paths that were pushed earlier."""
    fetched: bool = False
    """Fetched timelines contained the paths and were removed."""
    left: tuple[RemainingObject, ...] = ()
    """Objects that still contain the same bytes."""
    here: tuple[EnvPath, ...] = ()
    """Paths that exist in the environment; the next capture stores them unless they are excluded."""
    attached: int = 0
    """The number of snapshots with attachments, which were not searched."""
    mentioned: int = 0
    """The number of intents that name one of the paths; they are not changed."""
    dry_run: bool = False
    warnings: tuple[str, ...] = ()
    variable_names: bool = False
    """True if names of variables were erased that were stored unsealed."""
    imported: tuple[str, ...] = ()
    """Removed timelines that came from an import and cannot be fetched again."""
