"""The words for a captured moment, and for what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum

from git_envhist.lazy import dataclass, field
from git_envhist.model.entries import ChangeCount, EnvPath, GitChange, MissingPath, SnapshotId


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


class RestoreRole(Enum):
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
class AgentName:
    """The agent in whose name a history is opened."""

    name: str
    version: str | None = None
    session: str | None = None
    definition: str | None = None
    """A fingerprint of what makes it what it is: its prompts, its tools (`git_envhist.tracking.tasks`)."""


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
    services: str | None = None
    """Of a verdict carried over: `differ` where services had another state then, `unknown` where none is known now."""

    @property
    def changed_something(self) -> bool:
        """Whether the environment was another one after the check."""
        return self.tree_after is not None and self.tree_before != self.tree_after


@dataclass(frozen=True, slots=True)
class TextNote:
    """What was added to the story of a snapshot later."""

    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Attachment:
    """What was attached to a snapshot after it was taken: its name, and the sealed blob that holds it."""

    name: str
    blob: str


@dataclass(frozen=True, slots=True)
class NoteRecord:
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
    restore: RestoreRole | None = None
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
    remarks: tuple[TextNote, ...] = ()
    records: tuple[NoteRecord, ...] = field(default=(), repr=False)
    attached: tuple[Attachment, ...] = ()
    """What was attached later, of each name the last."""

    @property
    def were(self) -> tuple[str, ...]:
        """Hashes, cut short, that plain git showed between its first commit and this one."""
        return were_of(self.message)

    @property
    def verdict(self) -> Verdict | None:
        """The latest verdict, own or carried over, else the latest that is claimed; None where nothing was checked.

        A check that could not be judged says nothing of the snapshot: an earlier verdict keeps its place.
        """
        return latest_judged([one for one in self.verdicts if one.claimed_by is None] or self.verdicts)


def latest_judged(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the last verdict that passes or fails, else the last one; None where there is none."""
    judged = [one for one in verdicts if one.status is not VerdictStatus.ERROR] or verdicts
    return judged[-1] if judged else None


def were_of(message: bytes) -> tuple[str, ...]:
    """What the message of a commit says of the hashes that it had."""
    _, found, rest = message[message.rfind(b"\n\n") + 1 :].partition(b"\nEnv-Were: ")
    told = rest.partition(b"\n")[0].decode("ascii", "replace").split() if found else ()
    return tuple(one for one in told if one.isalnum())


@dataclass(frozen=True, slots=True)
class KeptService:
    """The state of a service that a capture kept."""

    name: str
    bytes: int
    summary: str
    """`3 tables, 5,210 rows`; empty where the format of the dump is not known."""


@dataclass(frozen=True, slots=True)
class CaptureResult:
    """What a capture did."""

    snapshot: Snapshot | None
    """None where nothing changed and none was wanted, and after a dry run."""
    files: int
    new_files: int
    """Files that were not there before, or have other bytes; after a dry run those that would be read to know that."""
    new_bytes: int
    stored_bytes: int
    seconds: float
    missing: tuple[MissingPath, ...] = ()
    warnings: tuple[str, ...] = ()
    directories: tuple[tuple[EnvPath, int, int], ...] = ()
    """(directory, files, bytes), largest first: what a dry run and a first capture tell."""
    first: bool = False
    sealed_first: bool = False
    """The first time that a file was sealed here: the key was made just now."""
    verdict: Verdict | None = None
    """What the check came to that was to run then."""
    services: tuple[KeptService, ...] = ()

    @property
    def id(self) -> SnapshotId | None:
        """The id of the snapshot; None where none was made."""
        return None if self.snapshot is None else self.snapshot.id


SnapshotRef = str | Snapshot | CaptureResult
"""Whatever a verb takes for a moment: words (`@~2`, `good`, an id, a name), a snapshot, or what a capture gave."""


@dataclass(frozen=True, slots=True)
class SnapshotAttachments:
    """A moment, and what was kept with it."""

    snapshot: Snapshot
    conversation: list[object] | None = None
    """As it was given; None where none was."""
    tool_outputs: list[object] | None = None
    attachments: tuple[tuple[str, bytes], ...] = ()
    """(name, bytes) of everything attached, these two included; those of the capture have a number in front."""
    missing: tuple[MissingPath, ...] = ()
    """What of the environment is not in it, and why."""
    git_changed: tuple[GitChange, ...] = ()
    """What differed from HEAD then, in git's own view."""


@dataclass(frozen=True, slots=True)
class CaptureProgress:
    """How far a capture has come."""

    files: int
    bytes: int
    total_files: int
    total_bytes: int
