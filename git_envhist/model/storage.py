"""The words for what leaves and what comes: a remote, what a push moves there, what a fetch or a file brought."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import NamedTuple

from git_envhist.lazy import dataclass, pattern
from git_envhist.model.entries import EnvPath
from git_envhist.model.snapshots import Snapshot

# The words for what is kept and what goes: a policy and its decisions, what was let go, what was erased.

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


WHO = pattern(r"\b([A-Za-z][A-Za-z0-9+.-]*)://([^/\s]*)@")
"""Of an address, as far as the last @ before the first slash: a password may hold one."""


def without_password(url: str) -> str:
    """An address, or a sentence with some, as it may be shown. Over http a name alone may be a token."""
    return WHO.sub(lambda found: f"{found[1]}://{_shown_user(found[1], found[2])}", url)


def _shown_user(scheme: str, who: str) -> str:
    return "" if scheme.lower().startswith("http") else who.partition(":")[0] + "@"


@dataclass(frozen=True, slots=True)
class Remote:
    """Another repository, and how it is reached."""

    name: str
    """What its timelines have before their names: `origin`."""
    url: str
    push_url: str
    receive_pack: str | None = None
    upload_pack: str | None = None
    proxy: str | None = None

    @property
    def shown(self) -> str:
        """The address without what a password could be."""
        return without_password(self.push_url)


class PushOutcome(Enum):
    """What becomes of a timeline at the other side."""

    NEW = "new"
    UPDATED = "updated"
    REWRITTEN = "rewritten"
    """By lease: what stands there is what we put there, and it was rewritten here since."""
    SAME = "up-to-date"
    DELETED = "deleted"
    DIVERGED = "diverged"
    """Somebody else's moments stand there: nothing is sent."""


@dataclass(frozen=True, slots=True)
class RefPush:
    """One ref of the other side: from where it stands to where it shall."""

    ref: str
    old: str | None
    new: str | None

    @property
    def refspec(self) -> str:
        return f"{self.new or ''}:{self.ref}"


@dataclass(frozen=True, slots=True)
class TimelinePush:
    """One timeline of a push, with its notes."""

    timeline: str
    outcome: PushOutcome
    moves: tuple[RefPush, ...]


@dataclass(frozen=True, slots=True)
class ClassSize:
    """How much of one class leaves."""

    name: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FoundToken:
    """A token that would leave in the clear: where, and of what kind; never which."""

    path: bytes
    kind: str


@dataclass(frozen=True, slots=True)
class OutgoingScan:
    """What was found in all that would leave."""

    shares: tuple[ClassSize, ...] = ()
    databases: tuple[tuple[bytes, int], ...] = ()
    tokens: tuple[FoundToken, ...] = ()
    dumps: tuple[tuple[bytes, int], ...] = ()
    names: tuple[bytes, ...] = ()
    """Paths whose names look secret, and which are not sealed."""


@dataclass(frozen=True, slots=True)
class PushResult:
    """What a push did; after a dry run, what it would do."""

    remote: Remote
    timelines: tuple[TimelinePush, ...]
    objects: int
    bytes: int
    """As they are stored: about what is sent."""
    parts: int
    look: OutgoingScan
    first: bool
    """Whether the owner had never agreed to send there."""
    problems: tuple[str, ...] = ()
    """Why it would be refused; only a dry run gets so far."""
    warnings: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    """What no earlier push to there was agreed to for: classes, databases, dumps, names that look secret."""


class FetchOutcome(Enum):
    """What became of a timeline here."""

    NEW = "new"
    UPDATED = "updated"
    REWRITTEN = "rewritten"
    SAME = "up-to-date"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What a fetch brought."""

    remote: Remote
    timelines: tuple[tuple[str, FetchOutcome], ...]
    """Under their names here."""
    refused: int
    """So many refs there were not spelled as any of ours."""
    full: bool
    """Whether all contents are here."""
    bad: tuple[tuple[str, str], ...] = ()
    """Timelines that could not be taken, each with the reason; all others came."""
    heads: tuple[tuple[str, str], ...] = ()
    """Of each timeline that changed: `signed`, `later`, `unknown-key`, `none` or `altered`."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What was written."""

    file: str
    bytes: int
    objects: int
    timelines: tuple[tuple[str, tuple[Snapshot, ...]], ...]
    """Under the names that they have in the file; oldest first."""
    look: OutgoingScan


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What came."""

    file: str
    name: str
    timelines: tuple[tuple[str, FetchOutcome, int], ...]
    """(name here, what became of it, how many moments it has)."""


# The words for keeping a history: what a cleaning did, what is damaged, what holds the space.


@dataclass(frozen=True, slots=True)
class GcResult:
    """What a cleaning did."""

    packs_before: int
    packs: int
    bytes_before: int
    bytes: int
    removed: int
    """Objects that nothing reached."""
    kept: int
    """Objects that nothing reaches, kept because they may have been used of late."""
    damaged: tuple[str, ...] = ()
    """What is wrong with packs that were left as they are."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something of the store that is not as it was written."""

    kind: str
    """`pack`, `ref`, `notes`, `cache`, `snapshot`, `gone`: a timeline without its ref, or
    `timeline`: the file with the name of this working tree's timeline."""
    subject: str
    why: str


@dataclass(frozen=True, slots=True)
class BrokenSnapshot:
    """A snapshot that is not whole."""

    commit: str
    timeline: str
    snapshot: Snapshot | None
    """None where the commit itself cannot be read."""
    paths: tuple[str, ...]
    """What of it cannot be had; empty where nothing can."""


@dataclass(frozen=True, slots=True)
class FsckReport:
    """What a check of the history found."""

    quick: bool
    snapshots: int
    packs: int
    objects: int
    bytes: int
    faults: tuple[Fault, ...] = ()
    broken: tuple[BrokenSnapshot, ...] = ()
    repaired: tuple[str, ...] = ()
    """What was done about it, a sentence each."""

    @property
    def is_whole(self) -> bool:
        return not self.faults and not self.broken


@dataclass(frozen=True, slots=True)
class SpaceUser:
    """A moment, a directory or a class, and the space that it holds."""

    name: str
    """An id, a path, a class."""
    holds: int
    """Bytes as they stand in the packs, also those that others hold too."""
    frees: int
    """Those that nothing else holds: what goes with it."""
    timeline: str = ""
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """What holds the space of a history."""

    bytes: int
    packs: int
    moments: int
    in_trash: int
    trash_frees: int
    by_moment: tuple[SpaceUser, ...]
    """What frees most first."""
    by_directory: tuple[SpaceUser, ...]
    """What holds most first."""
    by_class: tuple[SpaceUser, ...]
    together: int | None = None
    """What was asked for, gone together, would free."""
