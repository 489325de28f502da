"""The words for what leaves and what comes: a remote, what a push moves there, what a fetch or a file brought."""

from __future__ import annotations

from enum import Enum

from git_envhist.model.moments import Snapshot
from git_envhist.values import dataclass, pattern

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
