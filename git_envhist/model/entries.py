"""Values for the paths of an environment, and for the differences between two snapshots."""

from __future__ import annotations

from enum import Enum
from typing import NewType

from git_envhist.lazy import dataclass

EnvPath = NewType("EnvPath", bytes)
"""A path below the top of the environment, as the kernel spells it: ``b"src/app.py"``; the top itself is ``b""``."""

ObjectId = NewType("ObjectId", bytes)
"""The raw hash of a git object, 20 or 32 bytes."""

SnapshotId = NewType("SnapshotId", str)
"""The hash, in hex, of the first commit of a snapshot. It stays the id after a rewrite."""

TOP = EnvPath(b"")

SQLITE_HEADER = b"SQLite format 3\0"
"""The first bytes of an SQLite database."""
SQLITE_SIDECARS = (b"-wal", b"-journal", b"-shm")
"""The endings of an SQLite database's other files: write-ahead log, rollback journal, shared memory."""


def database_of_sidecar(path: bytes) -> bytes | None:
    """Return the SQLite database that a sidecar file belongs to, by its name; None for any other name."""
    if not path.endswith(SQLITE_SIDECARS):
        return None
    database = path[: path.rindex(b"-")]
    return database if database and not database.endswith(b"/") else None


UNREAD = "?"
"""The key of a fact that gives the reason why a place has no other facts."""


class EntryKind(Enum):
    """The kind of a path; the value is its letter in a manifest."""

    FILE = "f"
    LINK = "l"
    DIRECTORY = "d"
    FIFO = "p"
    SOCKET = "s"
    CHARACTER_DEVICE = "c"
    BLOCK_DEVICE = "b"
    BOUNDARY = "w"
    """Another working tree of the same repository; it is never entered."""


class StoredAs(Enum):
    """The storage of a file's bytes; the value is its word in a manifest."""

    PLAIN = "plain"
    SEALED = "sealed"
    PIECES = "pieces"
    FINGERPRINT = "fingerprint"


class MissingReason(Enum):
    """Why the bytes of a path are not in a snapshot."""

    UNREADABLE = "unreadable"
    UNSTABLE = "unstable"
    BUDGET = "budget"
    DISK = "disk"
    MOUNT = "mount"
    NO_KEY = "no-key"
    TOO_DEEP = "too-deep"
    IO_ERROR = "io-error"
    ATTRIBUTES = "attributes"
    """Extended attributes could not be read; everything else of the path is in the snapshot."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A path of the environment in one snapshot."""

    path: EnvPath
    kind: EntryKind
    mode: int
    """The twelve permission bits."""
    mtime_ns: int
    oid: ObjectId | None = None
    """The blob in the snapshot's tree, a pointer unless `stored` is plain; None if the tree has no entry."""
    stored: StoredAs = StoredAs.PLAIN
    uid: int | None = None
    """None: the owner of its directory."""
    gid: int | None = None
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    link_group: int | None = None
    """Entries of one snapshot with the same number are hard links to one file."""
    device: int | None = None
    notes: tuple[tuple[str, str], ...] = ()
    """Additional words of the manifest line, e.g. ``("via", "backup")``."""


@dataclass(frozen=True, slots=True)
class MissingPath:
    """A path of the environment that is not in the snapshot, and why."""

    path: EnvPath
    why: MissingReason
    detail: str = ""


class ChangeKind(Enum):
    """The kind of a change; the value is git's letter for it."""

    ADDED = "A"
    MODIFIED = "M"
    REMOVED = "D"
    RENAMED = "R"
    TYPE = "T"


@dataclass(frozen=True, slots=True)
class ChangeSide:
    """A side of a change: the path before or after it."""

    path: EnvPath
    kind: EntryKind
    mode: int
    """The twelve permission bits; those of git's mode if the manifest is not known."""
    oid: ObjectId | None
    stored: StoredAs = StoredAs.PLAIN


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between two snapshots."""

    before: ChangeSide | None
    after: ChangeSide | None
    similarity: int | None = None
    """Percent, for a rename."""
    attributes: tuple[str, ...] = ()
    """Other differences: ``mode``, ``owner``, ``xattr``."""

    @property
    def kind(self) -> ChangeKind:
        if self.before is None:
            return ChangeKind.ADDED
        if self.after is None:
            return ChangeKind.REMOVED
        if self.before.path != self.after.path:
            return ChangeKind.RENAMED
        if self.before.kind is not self.after.kind:
            return ChangeKind.TYPE
        return ChangeKind.MODIFIED

    @property
    def path(self) -> EnvPath:
        side = self.after or self.before
        assert side is not None
        return side.path


@dataclass(frozen=True, slots=True)
class ChangeCount:
    """The number of paths that differ from the previous snapshot."""

    added: int = 0
    modified: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.modified + self.removed


@dataclass(frozen=True, slots=True)
class GitChange:
    """A path in git's own status: its letter and the path."""

    status: str
    path: EnvPath


@dataclass(frozen=True, slots=True)
class Fact:
    """A derived statement about a snapshot."""

    probe: str
    key: str
    value: str
    at: EnvPath = TOP
    """The directory that the fact is about; the top for facts about the machine."""
    by: str = ""
    """The package manager, if the probe's name does not give it: `dpkg`, `rpm`, `brew`."""
    auto: bool = False
    """A dependency: installed for another package, not on request."""


class Role(Enum):
    """The reason why a package is installed. Packages that a list or the user names are shown before dependencies."""

    DIRECT = "direct"
    DEVELOPMENT = "development"
    """Named for development, tests or an extra."""
    TRANSITIVE = "transitive"
    """A dependency of another package that no list names."""
    NESTED = "nested"
    """In the `node_modules` of another package."""


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that differs between two snapshots."""

    probe: str
    key: str
    before: str | None
    after: str | None
    at: EnvPath = TOP
    by: str = ""
    auto: bool = False
    role: Role = Role.DIRECT


@dataclass(frozen=True, slots=True)
class SnapshotDiff:
    """All differences between two snapshots."""

    before: str
    after: str
    files: tuple[Change, ...]
    facts: tuple[FactChange, ...] = ()
