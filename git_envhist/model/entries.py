"""The words for what stands in an environment, and for what differs between two moments of it."""

from __future__ import annotations

from enum import Enum
from typing import NewType

from git_envhist.lazy import dataclass

EnvPath = NewType("EnvPath", bytes)
"""A path below the top of the environment, as the kernel spells it: ``b"src/app.py"``; the top itself is ``b""``."""

ObjectId = NewType("ObjectId", bytes)
"""The raw hash of a git object, 20 or 32 bytes."""

SnapshotId = NewType("SnapshotId", str)
"""The hash, in hex, of the first commit that held a snapshot: its id for ever."""

TOP = EnvPath(b"")

SQLITE_HEADER = b"SQLite format 3\0"
"""How a database of SQLite begins."""
SQLITE_SIDECARS = (b"-wal", b"-journal", b"-shm")
"""How the names end of what belongs to one: its log, its journal, the memory that its users share."""

UNREAD = "?"
"""The name of a fact that says why nothing else is told of its place."""


class EntryKind(Enum):
    """What stands at a path; the value is its letter in a manifest."""

    FILE = "f"
    LINK = "l"
    DIRECTORY = "d"
    FIFO = "p"
    SOCKET = "s"
    CHARACTER_DEVICE = "c"
    BLOCK_DEVICE = "b"
    BOUNDARY = "w"
    """Another working tree of the same repository: seen, never entered."""


class StoredAs(Enum):
    """How a file's bytes are kept; the value is its word in a manifest."""

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
    """One path of the environment as it was at one moment."""

    path: EnvPath
    kind: EntryKind
    mode: int
    """The twelve permission bits."""
    mtime_ns: int
    oid: ObjectId | None = None
    """The blob in the snapshot's tree (the pointer, where `stored` is not plain); None where a tree holds none."""
    stored: StoredAs = StoredAs.PLAIN
    uid: int | None = None
    """None: the owner of the directory it stands in."""
    gid: int | None = None
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    link_group: int | None = None
    """Entries of one snapshot with the same number are hard links to one file."""
    device: int | None = None
    notes: tuple[tuple[str, str], ...] = ()
    """Further words of the manifest line, e.g. ``("via", "backup")``."""


@dataclass(frozen=True, slots=True)
class MissingPath:
    """A path of the environment that is not in the snapshot, and why."""

    path: EnvPath
    why: MissingReason
    detail: str = ""


class ChangeKind(Enum):
    """The letter git uses for it."""

    ADDED = "A"
    MODIFIED = "M"
    REMOVED = "D"
    RENAMED = "R"
    TYPE = "T"


@dataclass(frozen=True, slots=True)
class ChangeSide:
    """One side of a change: what the path was."""

    path: EnvPath
    kind: EntryKind
    mode: int
    """The twelve permission bits; where the manifest is not known, those that git's mode implies."""
    oid: ObjectId | None
    stored: StoredAs = StoredAs.PLAIN


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two moments."""

    before: ChangeSide | None
    after: ChangeSide | None
    similarity: int | None = None
    """Percent, where it is a rename."""
    attributes: tuple[str, ...] = ()
    """What else differs: ``mode``, ``owner``, ``xattr``."""

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
    """How many paths differ from the snapshot before."""

    added: int = 0
    modified: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.modified + self.removed


@dataclass(frozen=True, slots=True)
class GitChange:
    """One path as git's own view has it: a letter and the path."""

    status: str
    path: EnvPath


@dataclass(frozen=True, slots=True)
class Fact:
    """One derived statement about a snapshot."""

    probe: str
    key: str
    value: str
    at: EnvPath = TOP
    """The directory that says so; the top for what is said of the machine."""
    by: str = ""
    """Who manages it, where the probe's name does not say that: `dpkg`, `rpm`, `brew`."""
    auto: bool = False
    """It came along with something else; nobody asked for it."""


class Role(Enum):
    """The role of a changed thing: packages that a list or the user names come before those that came along."""

    DIRECT = "direct"
    DEVELOPMENT = "development"
    """Named for development, tests or an extra."""
    TRANSITIVE = "transitive"
    """Another package needs it, and no list names it."""
    NESTED = "nested"
    """In the `node_modules` of another package."""


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that differs between two moments."""

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
    """Two moments side by side."""

    before: str
    after: str
    files: tuple[Change, ...]
    facts: tuple[FactChange, ...] = ()
