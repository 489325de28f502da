"""The whole vocabulary, as frozen dataclasses; read this first.

An *environment* is every path under a working tree. A *snapshot* is one captured moment of it, a *timeline* the
chain of snapshots of one working tree. An *entry* is one path as it was; a *change* one difference between two
moments. *Notes* hold what is said about a snapshot afterwards: names, verdicts, remarks. A *fact* is one derived
statement about a snapshot, and a *story* the facts and files that differ between two.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import NamedTuple, NewType

from git_envhist.values import dataclass, field

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


class WhyMissing(Enum):
    """Why the bytes of a path are not in a snapshot."""

    UNREADABLE = "unreadable"
    UNSTABLE = "unstable"
    BUDGET = "budget"
    DISK = "disk"
    MOUNT = "mount"
    NO_KEY = "no-key"
    TOO_DEEP = "too-deep"
    IO_ERROR = "io-error"


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

    @property
    def in_tree(self) -> bool:
        return self.oid is not None


@dataclass(frozen=True, slots=True)
class Missing:
    """A path of the environment that is not in the snapshot, and why."""

    path: EnvPath
    why: WhyMissing
    detail: str = ""


class ChangeKind(Enum):
    """The letter git uses for it."""

    ADDED = "A"
    MODIFIED = "M"
    REMOVED = "D"
    RENAMED = "R"
    TYPE = "T"


@dataclass(frozen=True, slots=True)
class Side:
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

    before: Side | None
    after: Side | None
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


class Trigger(Enum):
    """What caused a capture."""

    MANUAL = "manual"
    COMMIT = "commit"
    MERGE = "merge"
    CHECKOUT = "checkout"
    REWRITE = "rewrite"
    AGENT = "agent"
    RUN = "run"
    WATCH = "watch"
    RESTORE = "restore"
    API = "api"

    @property
    def automatic(self) -> bool:
        return self not in (Trigger.MANUAL, Trigger.API, Trigger.RUN)


class RestorePart(Enum):
    """What part a moment has in a restore; those that have one are no steps of undo and redo by themselves."""

    BEFORE = "before"
    """What was here, saved before anything was changed."""
    TO = "to"
    """Where a restore arrived."""
    UNDO = "undo"
    REDO = "redo"


class IntentSource(Enum):
    """Where the words of an intent come from."""

    GIVEN = "given"
    AGENT = "agent"
    COMMIT = "commit"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who, or which agent, took a snapshot."""

    name: str
    email: str
    agent: str | None = None
    agent_version: str | None = None
    session: str | None = None
    tool: str | None = None
    """The agent's tool that was about to run."""


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent in whose name a history is opened."""

    name: str
    version: str | None = None
    session: str | None = None
    definition: str | None = None
    """A fingerprint of what makes it what it is: its prompts, its tools (`git_envhist.doing.definitions`)."""


class VerdictStatus(Enum):
    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a check, bound to the content it ran on."""

    status: VerdictStatus
    command: str
    at: datetime
    exit_code: int | None = None
    signal: int | None = None
    duration_ms: int | None = None
    output_tail: str = ""
    """The end of what it wrote, with tokens masked; empty while it is sealed."""
    tree_before: str | None = None
    tree_after: str | None = None
    carried_from: str | None = None
    """The moment at which it was reached, where an equal one was captured again."""
    claimed_by: str | None = None
    """Who says so, where no key that is here signed it: then it is no more than that."""
    sealed_output: str = field(default="", repr=False)
    """The same as `output_tail`, as the note holds it: sealed, in base64."""
    timed_out: bool = False
    """It was ended because it took longer than a check may."""

    @property
    def changed_something(self) -> bool:
        """Whether the environment was another one after the check."""
        return self.tree_after is not None and self.tree_before != self.tree_after


@dataclass(frozen=True, slots=True)
class Remark:
    """What was added to the story of a snapshot later."""

    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Attached:
    """What was attached to a snapshot after it was taken: its name, and the sealed blob that holds it."""

    name: str
    blob: str


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a note: its kind, its moment, and its fields as JSON gave them."""

    kind: str
    at: datetime
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One captured moment: its commit, read, and what the notes say of it."""

    id: SnapshotId
    commit: str
    """The hash that plain git shows now; differs from `id` after retention rewrote the chain."""
    tree: str
    timeline: str
    at: datetime
    intent: str
    intent_source: IntentSource
    trigger: Trigger
    actor: Actor
    parent: str | None = None
    head: str | None = None
    branch: str | None = None
    complete: bool = True
    missing_count: int = 0
    content: str = ""
    """`Env-Content`: what a verdict is bound to."""
    changed: ChangeCount = ChangeCount()
    story: str = ""
    meta: tuple[tuple[str, str], ...] = ()
    external_id: str | None = None
    attachments: tuple[str, ...] = ()
    restored_from: str | None = None
    restore: RestorePart | None = None
    forked_from: str | None = None
    format: int = 1
    key: str | None = None
    mac: str | None = None
    """`Env-Mac` as it stands, unchecked."""
    trusted: bool | None = None
    """Whether a key that is here signed it; where none did, all it says is a claim. None: nobody looked."""
    author: bytes = field(default=b"", repr=False, compare=False)
    """The author line of the commit: with `message` and `tree` what a key signs."""
    message: bytes = field(default=b"", repr=False, compare=False)
    """The message of the commit, byte for byte."""
    names: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    remarks: tuple[Remark, ...] = ()
    records: tuple[Record, ...] = field(default=(), repr=False)
    attached: tuple[Attached, ...] = ()
    """What was attached later, of each name the last."""

    @property
    def verdict(self) -> Verdict | None:
        """The latest verdict, own or carried over, else the latest that is claimed; None where nothing was checked."""
        ours = [verdict for verdict in self.verdicts if verdict.claimed_by is None] or self.verdicts
        return ours[-1] if ours else None


class TaskStatus(Enum):
    """How far a task has come."""

    PENDING = "pending"
    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Task:
    """A part of the work on a timeline, as it was told last."""

    number: int
    mark: str
    text: str
    status: TaskStatus
    at: datetime
    """When that was told."""
    stands_on: SnapshotId
    """The newest snapshot at that time."""
    begun_at: SnapshotId | None = None
    """The newest snapshot when it was begun last."""
    agent: str | None = None
    """The agent that told so last, where one did; and its version."""
    agent_version: str | None = None
    definition: str | None = None
    """The fingerprint of what made that agent what it was."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something done outside the machine: no restore undoes it."""

    mark: str
    text: str
    at: datetime
    irreversible: bool = False
    command: str | None = None
    exit_code: int | None = None
    """None where there was no command, or it never ended."""
    stands_on: SnapshotId | None = None
    """The newest snapshot before it happened."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A checkpoint of the platform below us that was made without us: nobody told why."""

    external_id: str
    taken_at: datetime
    """When it was made, as the platform says."""
    at: datetime
    """When it was found here."""
    comment: str = ""
    source: str = ""
    """Which platform, where somebody said so."""
    stands_on: SnapshotId | None = None
    """The newest snapshot when it was found."""


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two moments side by side."""

    before: str
    after: str
    files: tuple[Change, ...]
    facts: tuple[FactChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Captured:
    """What a capture did."""

    snapshot: Snapshot | None
    """None where nothing changed and none was wanted, and after a dry run."""
    files: int
    new_files: int
    new_bytes: int
    stored_bytes: int
    seconds: float
    missing: tuple[Missing, ...] = ()
    warnings: tuple[str, ...] = ()
    directories: tuple[tuple[EnvPath, int, int], ...] = ()
    """(directory, files, bytes), largest first: what a dry run and a first capture tell."""
    first: bool = False
    sealed_first: bool = False
    """The first time that a file was sealed here: the key was made just now."""
    verdict: Verdict | None = None
    """What the check came to that was to run then."""

    @property
    def id(self) -> SnapshotId | None:
        """The id of the snapshot; None where none was made."""
        return None if self.snapshot is None else self.snapshot.id


Moment = str | Snapshot | Captured
"""Whatever a verb takes for a moment: words (`@~2`, `good`, an id, a name), a snapshot, or what a capture gave."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A moment, and what was kept with it."""

    snapshot: Snapshot
    conversation: list[object] | None = None
    """As it was given; None where none was."""
    tool_outputs: list[object] | None = None
    attachments: tuple[tuple[str, bytes], ...] = ()
    """(name, bytes) of everything attached, these two included; those of the capture have a number in front."""
    missing: tuple[Missing, ...] = ()
    """What of the environment is not in it, and why."""
    git_changed: tuple[GitChange, ...] = ()
    """What differed from HEAD then, in git's own view."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One check of one moment, and what it came to."""

    snapshot: Snapshot
    verdict: Verdict
    ran_at: str | None = None
    """Where it saw the environment; None where it did not run."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bisected:
    """Where a check began to fail."""

    command: str
    good: Snapshot
    bad: Snapshot
    """The first moment where it fails, as far as it could be told."""
    suspects: tuple[Snapshot, ...]
    """The moments of which one is the first bad, oldest first; more than one where some could not be judged."""
    tried: tuple[Checked, ...]
    """Every check that ran, in this order."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a capture has come."""

    files: int
    bytes: int
    total_files: int
    total_bytes: int


class Listing(NamedTuple):
    """One directory of a snapshot: what it is, and its entries by their true names, with owners and ids filled in."""

    own: Entry
    entries: dict[bytes, Entry]


class Pair(NamedTuple):
    """One directory on the two sides of a restore; None where it is no directory there."""

    realm: bytes
    """Empty: the working tree, the `.git` of nested repositories included; else the name of a further root."""
    path: EnvPath
    before: Listing | None
    after: Listing | None
    left_out: int = 0
    """So many entries are the same on both sides and in neither listing."""


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
class LeftAlone:
    """A path that differs from the moment and stays as it is, with all that lies below it; and why."""

    path: EnvPath
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a restore is going to do, in this order."""

    steps: tuple[PlanStep, ...]
    directories: tuple[PlannedDirectory, ...]
    unchanged: int
    """Paths that were compared and are the same on both sides."""
    left_alone: tuple[LeftAlone, ...] = ()

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
class Restored:
    """What a restore did; after a dry run, and where nothing differs, what it would do."""

    target: Snapshot
    plan: Plan
    files: int = 0
    """How many files the environment had before."""
    safety: Snapshot | None = None
    """What was here, saved before anything was changed; None where nothing was."""
    moment: Snapshot | None = None
    """The environment as it is now, on the timeline."""
    verified: int = 0
    """So many paths were read again and are what the moment says."""
    seconds: float = 0.0
    kept: tuple[LeftAlone, ...] = ()
    """Paths that somebody changed meanwhile: they stay as they were found."""
    losses: tuple[LeftAlone, ...] = ()
    """What of a path cannot be had here, e.g. an attribute that the file system does not know."""
    tracked_differing: int | None = None
    """How many tracked files differ from HEAD now; None where git could not tell."""
    tracked_differed: int | None = None
    """How many of these differed before, too."""
    head: str | None = None
    """Where HEAD went, where it was to move."""
    relocated: tuple[EnvPath, ...] = ()
    """What came and named another working tree, and names this one now."""
    outside: tuple[FactChange, ...] = ()
    """What of the machine is not as it was: from what is here to the moment."""
    effects: tuple[Effect, ...] = ()
    """What was done outside the machine since: no restore undoes it."""
    running: tuple[str, ...] = ()
    """Processes that were at work in the environment, and still run what was there."""
    services: tuple[str, ...] = ()
    """What was done with the state of services, in order; after a dry run what would be."""
    warnings: tuple[str, ...] = ()

    @property
    def undo(self) -> Snapshot | None:
        """The moment to restore so that what was here comes back; None where nothing was changed."""
        return self.safety

    @property
    def exact(self) -> bool:
        """Whether everything that was to change is as it was."""
        return not self.kept and not self.losses


@dataclass(frozen=True, slots=True)
class Ended:
    """How a restore that was broken off came to its end."""

    undone: bool
    """Taken back; else finished."""
    kept: tuple[LeftAlone, ...] = ()
    losses: tuple[LeftAlone, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether everything is as it is to be."""
        return not self.kept and not self.losses


@dataclass(frozen=True, slots=True)
class PointsBack:
    """A path of a fork that names the place it was made of: what is run or read there is the original's."""

    path: EnvPath
    what: str
    """`link`, `text`, or why it is not rewritten."""


@dataclass(frozen=True, slots=True)
class Forked:
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
    pointing: tuple[PointsBack, ...] = ()
    """What still names the place it was made of."""
    relocated: tuple[EnvPath, ...] = ()
    left_alone: tuple[LeftAlone, ...] = ()
    kept: tuple[LeftAlone, ...] = ()
    losses: tuple[LeftAlone, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether everything is as it was."""
        return not self.kept and not self.losses


@dataclass(frozen=True, slots=True)
class Collected:
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
    """`pack`, `ref`, `notes`, `cache`, `snapshot`, or `gone`: a timeline without its ref."""
    subject: str
    why: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A snapshot that is not whole."""

    commit: str
    timeline: str
    snapshot: Snapshot | None
    """None where the commit itself cannot be read."""
    paths: tuple[str, ...]
    """What of it cannot be had; empty where nothing can."""


@dataclass(frozen=True, slots=True)
class Health:
    """What a check of the history found."""

    quick: bool
    snapshots: int
    packs: int
    objects: int
    bytes: int
    faults: tuple[Fault, ...] = ()
    broken: tuple[Broken, ...] = ()
    repaired: tuple[str, ...] = ()
    """What was done about it, a sentence each."""

    @property
    def is_whole(self) -> bool:
        return not self.faults and not self.broken


@dataclass(frozen=True, slots=True)
class Holder:
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
class Space:
    """What holds the space of a history."""

    bytes: int
    packs: int
    moments: int
    in_trash: int
    trash_frees: int
    by_moment: tuple[Holder, ...]
    """What frees most first."""
    by_directory: tuple[Holder, ...]
    """What holds most first."""
    by_class: tuple[Holder, ...]
    together: int | None = None
    """What was asked for, gone together, would free."""
