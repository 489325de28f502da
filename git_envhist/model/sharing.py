"""Values for push, fetch, export and import."""

from __future__ import annotations

from enum import Enum

from git_envhist.lazy import dataclass, pattern
from git_envhist.model.snapshots import Snapshot

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
