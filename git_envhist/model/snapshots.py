"""Values for a snapshot, for the notes added to it, and for the result of a capture."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum

from git_envhist.lazy import dataclass, field
from git_envhist.model.entries import ChangeCount, EnvPath, GitChange, MissingPath, SnapshotId


class Trigger(Enum):
    """The cause of a capture."""

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
    """The role of a snapshot in a restore. Undo and redo skip snapshots that have one."""

    BEFORE = "before"
    """The state before the restore, captured before anything was changed."""
    TO = "to"
    """The state after the restore."""
    UNDO = "undo"
    REDO = "redo"
    REVERT = "revert"
    """The state after a step was taken out of it."""
    MERGE = "merge"
    """The state after the changes of another timeline joined it."""


class IntentSource(Enum):
    """The origin of a snapshot's intent."""

    GIVEN = "given"
    AGENT = "agent"
    COMMIT = "commit"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Actor:
    """The person or agent that took a snapshot."""

    name: str
    email: str
    agent: str | None = None
    agent_version: str | None = None
    session: str | None = None
    tool: str | None = None
    """The agent's tool that was about to run."""


@dataclass(frozen=True, slots=True)
class AgentName:
    """The agent that a history is opened for."""

    name: str
    version: str | None = None
    session: str | None = None
    definition: str | None = None
    """A fingerprint of its prompts and tools (see `git_envhist.tracking.tasks`)."""


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
    """The end of its output, with tokens masked; empty while it is sealed."""
    tree_before: str | None = None
    tree_after: str | None = None
    carried_from: str | None = None
    """The snapshot that the check ran on, if this one has the same content and took the verdict over."""
    claimed_by: str | None = None
    """The author of an unsigned verdict; None if one of your keys signed it."""
    sealed_output: str = field(default="", repr=False)
    """`output_tail` as the note stores it: sealed, in base64."""
    timed_out: bool = False
    """The check exceeded its timeout and was killed."""
    services: str | None = None
    """Set on a verdict taken over: `differ` if services had another state then, `unknown` if none is known now."""

    @property
    def changed_something(self) -> bool:
        """Return whether the check changed the environment."""
        return self.tree_after is not None and self.tree_before != self.tree_after


@dataclass(frozen=True, slots=True)
class TextNote:
    """A remark that was added to a snapshot later."""

    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment added to an existing snapshot: its name, and its sealed blob."""

    name: str
    blob: str


@dataclass(frozen=True, slots=True)
class NoteRecord:
    """A line of a note: its kind, its time, and its other fields as parsed JSON."""

    kind: str
    at: datetime
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of an agent's tool, as the hooks of the agent reported it."""

    tool: str
    agent: str
    session: str = ""
    id: str | None = None
    """The agent's own id of the call."""
    subagent: str | None = None
    """The agent's own id of the subagent that made the call, if one did."""
    subagent_type: str | None = None
    intent: str = ""
    """The title of the prompt of its turn; secrets are masked."""
    command: str | None = None
    """The command line, if the tool ran one; secrets are masked."""
    paths: tuple[str, ...] = ()
    """The paths of the environment that the arguments name."""
    changes_only_paths: bool = False
    """The tool changes no other path: it edits files, or runs commands that only read."""
    wrote: tuple[str, ...] = ()
    """The paths whose bytes in this snapshot are exactly those that the call was to write."""
    trace: str | None = None
    """The trace context that the agent gave (W3C traceparent)."""
    began: float | None = None
    """Seconds since 1970; None if the call had not begun."""
    ended: float | None = None
    """None if no hook reported the end, or if the call had not ended."""
    may_continue: bool = False
    """The command may leave a process in the background."""
    failed: bool | None = None
    """The agent reported that the tool failed; None if it did not report a result."""


@dataclass(frozen=True, slots=True)
class CallWindow:
    """The time for which a snapshot lists every call that a hook reported: since the capture before it."""

    after: str
    """The id of the snapshot before."""
    start: float
    """The start of the newest capture before, also of one that found no change; seconds since 1970."""
    end: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot: its commit, parsed, and the notes on it."""

    id: SnapshotId
    commit: str
    """The hash in git; it differs from `id` after a rewrite of the timeline."""
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
    """`Env-Content`, the digest that a verdict is bound to."""
    changed: ChangeCount = ChangeCount()
    story: str = ""
    meta: tuple[tuple[str, str], ...] = ()
    external_id: str | None = None
    attachments: tuple[str, ...] = ()
    restored_from: str | None = None
    restore: RestoreRole | None = None
    forked_from: str | None = None
    merged: str | None = None
    """The snapshot whose changes a merge added; None if only a part of them."""
    applied: tuple[tuple[str, str], ...] = ()
    """For a revert or a merge: the ids of snapshots (from, to) whose differences were applied."""
    format: int = 1
    window: CallWindow | None = None
    """Set if `calls` are all calls since the snapshot before."""
    calls: tuple[ToolCall, ...] = ()
    """The calls of agents' tools since the capture before; those without `began` were about to run."""
    key: str | None = None
    mac: str | None = None
    """The unchecked value of `Env-Mac`."""
    trusted: bool | None = None
    """True if one of your keys signed it; if not, nothing in it is verified. None: not checked yet."""
    author: bytes = field(default=b"", repr=False, compare=False)
    """The author line of the commit. A key signs this line, the message and the tree."""
    message: bytes = field(default=b"", repr=False, compare=False)
    """The message of the commit, byte for byte."""
    names: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    remarks: tuple[TextNote, ...] = ()
    records: tuple[NoteRecord, ...] = field(default=(), repr=False)
    attached: tuple[Attachment, ...] = ()
    """Attachments that were added later, the last one of each name."""

    @property
    def earlier_hashes(self) -> tuple[str, ...]:
        """Return the abbreviated hashes of its commits between the first one and this one."""
        return hashes_before_rewrites(self.message)

    @property
    def verdict(self) -> Verdict | None:
        """Return the latest verdict, signed ones before unsigned ones; None if nothing was checked.

        A check that ended with an error does not replace an earlier verdict.
        """
        return latest_judged(self._counted_verdicts)

    @property
    def unfinished_check(self) -> Verdict | None:
        """Return the error of the latest check if an earlier verdict is valid in spite of it, else None."""
        latest = self._counted_verdicts[-1:]
        return latest[0] if latest and latest[0] is not self.verdict else None

    @property
    def _counted_verdicts(self) -> Sequence[Verdict]:
        """Return the signed verdicts; without a signed one, the unsigned ones."""
        return [one for one in self.verdicts if one.claimed_by is None] or self.verdicts


def latest_judged(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the last verdict that passes or fails, else the last one; None where there is none."""
    judged = [one for one in verdicts if one.status is not VerdictStatus.ERROR] or verdicts
    return judged[-1] if judged else None


def hashes_before_rewrites(message: bytes) -> tuple[str, ...]:
    """Return the abbreviated earlier commit hashes in the `Env-Were` trailer of a message."""
    _, found, rest = message[message.rfind(b"\n\n") + 1 :].partition(b"\nEnv-Were: ")
    words = rest.partition(b"\n")[0].decode("ascii", "replace").split() if found else ()
    return tuple(word for word in words if word.isalnum())


@dataclass(frozen=True, slots=True)
class KeptService:
    """The state of a service that a capture stored."""

    name: str
    bytes: int
    summary: str
    """`3 tables, 5,210 rows`; empty if the format of the dump is not known."""


@dataclass(frozen=True, slots=True)
class CaptureResult:
    """The result of a capture."""

    snapshot: Snapshot | None
    """None if nothing changed, and after a dry run."""
    files: int
    new_files: int
    """New files and files with other bytes; after a dry run, the files that would be read to find out."""
    new_bytes: int
    stored_bytes: int
    seconds: float
    missing: tuple[MissingPath, ...] = ()
    warnings: tuple[str, ...] = ()
    directories: tuple[tuple[EnvPath, int, int], ...] = ()
    """(directory, files, bytes), largest first; set by a dry run and by the first capture."""
    first: bool = False
    sealed_first: bool = False
    """This capture sealed the first file and created the key."""
    verdict: Verdict | None = None
    """The result of the check that ran after the capture."""
    services: tuple[KeptService, ...] = ()

    @property
    def id(self) -> SnapshotId | None:
        """Return the id of the snapshot, or None if none was taken."""
        return None if self.snapshot is None else self.snapshot.id


SnapshotRef = str | Snapshot | CaptureResult
"""A snapshot as arguments accept it: a revision (`@~2`, `good`, an id, a name), or a value that a verb returned."""


@dataclass(frozen=True, slots=True)
class SnapshotExtras:
    """A snapshot, and everything stored with it."""

    snapshot: Snapshot
    conversation: list[object] | None = None
    """The conversation as it was given; None if there is none."""
    tool_outputs: list[object] | None = None
    attachments: tuple[tuple[str, bytes], ...] = ()
    """(name, bytes) of every attachment, these two included; names from the capture begin with a number."""
    missing: tuple[MissingPath, ...] = ()
    """Paths of the environment that are not in the snapshot, and why."""
    git_changed: tuple[GitChange, ...] = ()
    """Files that differed from HEAD at the time, in git's own status."""


@dataclass(frozen=True, slots=True)
class CaptureProgress:
    """The progress of a running capture."""

    files: int
    bytes: int
    total_files: int
    total_bytes: int
