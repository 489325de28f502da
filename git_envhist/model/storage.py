"""Values for stored timelines: retention and erasure, sharing with remotes, maintenance."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import NamedTuple

from git_envhist.lazy import dataclass, pattern
from git_envhist.model.entries import EnvPath
from git_envhist.model.snapshots import Snapshot

# Retention and erasure: policies and their decisions, dropped snapshots, purged paths.

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
    """The first day on which it may be gone for good."""
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


USER_PART = pattern(r"\b([A-Za-z][A-Za-z0-9+.-]*)://([^/\s]*)@")
"""The user part of an address, up to the last `@` before the first slash, because a password may contain one."""


def without_password(url: str) -> str:
    """Return an address, or a text with addresses, without passwords.

    Over http the user name is removed as well, because it may be a token.
    """
    return USER_PART.sub(lambda found: f"{found[1]}://{_shown_user(found[1], found[2])}", url)


def _shown_user(scheme: str, user: str) -> str:
    return "" if scheme.lower().startswith("http") else user.partition(":")[0] + "@"


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote repository and its transport settings."""

    name: str
    """The name, which is the prefix of its timelines: `origin`."""
    url: str
    push_url: str
    receive_pack: str | None = None
    upload_pack: str | None = None
    proxy: str | None = None

    @property
    def shown(self) -> str:
        """Return the address without a password."""
        return without_password(self.push_url)


class PushOutcome(Enum):
    """The change of a timeline in the remote repository."""

    NEW = "new"
    UPDATED = "updated"
    REWRITTEN = "rewritten"
    """Replaced by a forced push: the remote has the result of an earlier push, and the timeline was rewritten since."""
    SAME = "up-to-date"
    DELETED = "deleted"
    DIVERGED = "diverged"
    """The remote timeline has snapshots of another repository, so nothing is sent."""


@dataclass(frozen=True, slots=True)
class RefPush:
    """The old and the new value of one ref in the remote repository."""

    ref: str
    old: str | None
    new: str | None

    @property
    def refspec(self) -> str:
        return f"{self.new or ''}:{self.ref}"


@dataclass(frozen=True, slots=True)
class TimelinePush:
    """A timeline of a push, with its notes."""

    timeline: str
    outcome: PushOutcome
    moves: tuple[RefPush, ...]


@dataclass(frozen=True, slots=True)
class ClassSize:
    """The files of one class that would be sent."""

    name: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FoundToken:
    """The path and kind of a token that would be sent unencrypted; never the token itself."""

    path: bytes
    kind: str


@dataclass(frozen=True, slots=True)
class OutgoingScan:
    """The findings in everything that would be sent."""

    shares: tuple[ClassSize, ...] = ()
    databases: tuple[tuple[bytes, int], ...] = ()
    tokens: tuple[FoundToken, ...] = ()
    dumps: tuple[tuple[bytes, int], ...] = ()
    names: tuple[bytes, ...] = ()
    """Paths with secret names that are not sealed."""


@dataclass(frozen=True, slots=True)
class PushResult:
    """The result of a push, or of its dry run."""

    remote: Remote
    timelines: tuple[TimelinePush, ...]
    objects: int
    bytes: int
    """The stored size, which is close to the sent size."""
    parts: int
    scan: OutgoingScan
    first: bool
    """True for the first push to that address."""
    problems: tuple[str, ...] = ()
    """Why it would be refused; set by dry runs only."""
    warnings: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    """Classes, databases, dumps and secret names that the user has not approved in an earlier push."""


class FetchOutcome(Enum):
    """The change of a timeline in this repository."""

    NEW = "new"
    UPDATED = "updated"
    REWRITTEN = "rewritten"
    SAME = "up-to-date"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The result of a fetch."""

    remote: Remote
    timelines: tuple[tuple[str, FetchOutcome], ...]
    """(local name, change)."""
    refused: int
    """The number of remote refs with an invalid name."""
    full: bool
    """True if all contents were fetched."""
    bad: tuple[tuple[str, str], ...] = ()
    """Timelines that were not fetched, each with the reason."""
    heads: tuple[tuple[str, str], ...] = ()
    """The signature of each changed timeline's head: `signed`, `later`, `unknown-key`, `none` or `altered`."""
    pushed: tuple[str, ...] = ()
    """Own timelines that were skipped, because the remote has only what was pushed from this repository."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of an export."""

    file: str
    bytes: int
    objects: int
    timelines: tuple[tuple[str, tuple[Snapshot, ...]], ...]
    """By their names in the file, oldest snapshot first."""
    scan: OutgoingScan


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The result of an import."""

    file: str
    name: str
    timelines: tuple[tuple[str, FetchOutcome, int], ...]
    """(local name, change, number of snapshots)."""


# Maintenance: garbage collection, checks, disk usage.


@dataclass(frozen=True, slots=True)
class GcResult:
    """The result of a garbage collection."""

    packs_before: int
    packs: int
    bytes_before: int
    bytes: int
    removed: int
    """Unreachable objects that were deleted."""
    kept: int
    """Unreachable objects that were kept because they may have been used recently."""
    damaged: tuple[str, ...] = ()
    """Problems of packs that were not changed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A damaged file or object."""

    kind: str
    """`pack`, `ref`, `notes`, `cache`, `snapshot`, `gone`: a timeline without its ref, or
    `timeline`: the file with the name of this working tree's timeline."""
    subject: str
    why: str


@dataclass(frozen=True, slots=True)
class BrokenSnapshot:
    """An incomplete snapshot."""

    commit: str
    timeline: str
    snapshot: Snapshot | None
    """None if the commit itself cannot be read."""
    paths: tuple[str, ...]
    """Paths that cannot be read; empty if nothing can."""


@dataclass(frozen=True, slots=True)
class FsckReport:
    """The result of a check of the history."""

    quick: bool
    snapshots: int
    packs: int
    objects: int
    bytes: int
    faults: tuple[Fault, ...] = ()
    broken: tuple[BrokenSnapshot, ...] = ()
    repaired: tuple[str, ...] = ()
    """Repairs that were made, one sentence each."""
    unreached: int = 0
    """The intact snapshots that no ref leads to, because of damage."""
    damaged_packs: int = 0
    lost_objects: int = 0
    """The objects in damaged packs that cannot be read; `objects` counts the others."""

    @property
    def is_whole(self) -> bool:
        return not self.faults and not self.broken


@dataclass(frozen=True, slots=True)
class SpaceUser:
    """A snapshot, directory or class, and the space it uses."""

    name: str
    """An id, path or class."""
    holds: int
    """Its bytes in the packs, including those shared with others."""
    frees: int
    """The bytes that nothing else uses, which its removal would free."""
    timeline: str = ""
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """The space used by a history."""

    bytes: int
    packs: int
    snapshots: int
    in_trash: int
    trash_frees: int
    by_snapshot: tuple[SpaceUser, ...]
    """Sorted by the space that is freed."""
    by_directory: tuple[SpaceUser, ...]
    """Sorted by the space that is used."""
    by_class: tuple[SpaceUser, ...]
    together: int | None = None
    """The space that removing all requested snapshots together would free."""
