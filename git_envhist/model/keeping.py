"""The words for what is kept and what goes: a policy and its decisions, what was let go, what was erased."""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

from git_envhist.model.entries import EnvPath
from git_envhist.model.moments import Snapshot
from git_envhist.values import dataclass

BY_POLICY = ("last", "hour", "day", "week")
NOT_KEPT = "nothing keeps it"


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How much of a timeline is kept beside what always is."""

    last: int = 200
    hourly: int = 0
    daily: int = 30
    weekly: int = 26


@dataclass(frozen=True, slots=True)
class PruneDecision:
    """What becomes of one snapshot, and why."""

    snapshot: Snapshot
    reasons: tuple[str, ...]
    """Why it is kept; none: it goes."""
    why_not: str = NOT_KEPT

    @property
    def keep(self) -> bool:
        return bool(self.reasons)

    @property
    def always(self) -> bool:
        """Whether no policy lets it go."""
        return any(reason.partition(" ")[0] not in BY_POLICY for reason in self.reasons)

    @property
    def why(self) -> str:
        return ", ".join(self.reasons) or self.why_not


class PrunedTimeline(NamedTuple):
    """What was decided of one timeline."""

    timeline: str
    decisions: tuple[PruneDecision, ...]
    """Newest first."""


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What a thinning did, or would do."""

    timelines: tuple[PrunedTimeline, ...]
    until: date
    """The first day on which what was let go may be gone for good."""
    expired: int = 0
    """So many left the trash for good."""
    dry_run: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def gone(self) -> int:
        """How many snapshots were let go."""
        return sum(not one.keep for thinned in self.timelines for one in thinned.decisions)


@dataclass(frozen=True, slots=True)
class DropResult:
    """What was let go, or would be."""

    snapshots: tuple[Snapshot, ...]
    until: date
    """The first day on which it may be gone for good."""
    dry_run: bool = False
    warnings: tuple[str, ...] = ()


class TrashedSnapshot(NamedTuple):
    """A snapshot that was let go."""

    snapshot: Snapshot
    since: date
    until: date


class PushedTimeline(NamedTuple):
    """A timeline that was pushed while it held what is erased."""

    remote: str
    """Its name; empty where it has none here any more."""
    shown: str
    timeline: str


class RemainingObject(NamedTuple):
    """An object with the same bytes that is not ours to erase, or stands elsewhere, too."""

    oid: str
    where: str
    """`history`: at another path of a snapshot; `git`: in what git keeps; `unreached`: in git, and nothing needs it."""
    path: bytes


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What an erasure did, or would do."""

    paths: tuple[EnvPath, ...]
    snapshots: int
    """So many held one of them."""
    in_trash: int
    """So many of these in the trash."""
    sent: tuple[PushedTimeline, ...] = ()
    """Where it went before."""
    fetched: bool = False
    """What was fetched held it, and was taken away."""
    left: tuple[RemainingObject, ...] = ()
    """What holds the same bytes still."""
    here: tuple[EnvPath, ...] = ()
    """Paths that stand in the environment: the next capture holds them, unless they are left out."""
    attached: int = 0
    """So many snapshots have attachments, which were not looked into."""
    mentioned: int = 0
    """So many intents name one of the paths: they stay as they were written."""
    dry_run: bool = False
    warnings: tuple[str, ...] = ()
    variable_names: bool = False
    """Whether the names of variables were erased that were stored without being sealed."""
    imported: tuple[str, ...] = ()
    """Timelines among what was fetched that no remote gives again: an import brought them."""
