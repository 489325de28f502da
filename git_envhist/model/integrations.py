"""Values for hooks of git and agents: the files that they change, their runs and their state."""

from __future__ import annotations

from enum import Enum

from git_envhist.lazy import dataclass

FILE_MODE = 0o644


@dataclass(frozen=True, slots=True)
class FileState:
    """The content of a path: the bytes and mode of a file, or the target of a link (mode None)."""

    data: bytes
    mode: int | None = FILE_MODE


@dataclass(frozen=True, slots=True)
class FileEdit:
    """A path before and after a change; None if it does not exist."""

    path: str
    before: FileState | None
    after: FileState | None


@dataclass(frozen=True, slots=True)
class IntegrationChange:
    """The changes of one integration, made or planned."""

    name: str
    edits: tuple[FileEdit, ...]
    remarks: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Empty directories of ours, to be removed."""


class HookApproval(Enum):
    """Whether a person approved a hook of ours in the program that calls it."""

    APPROVED = "approved"
    MISSING = "not approved"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class InstalledPart:
    """A hook or setting of ours that is, or should be, in a file of another program."""

    event: str
    active: bool
    place: str
    """The file that contains it, or should."""
    remark: str = ""
    """A problem with it, or the result of its last event."""
    approval: HookApproval | None = None
    """None if the program asks nobody to approve it."""
    step: str = ""
    """What a person must do before the program calls it."""


@dataclass(frozen=True, slots=True)
class PendingHook:
    """A call by a hook that is not answered yet; `seen` identifies the mark file."""

    event: str
    at: float
    seen: tuple[int, int]


@dataclass(frozen=True, slots=True)
class HookRun:
    """The result of one run of a hook's worker."""

    event: str
    at: float
    result: str
    """captured, unchanged, off, waiting, failed."""
    seconds: float = 0.0
    snapshot: str | None = None
    message: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class IntegrationStatus:
    """The installed integrations of one repository, and the results of its hooks."""

    enabled: bool
    program: str
    git: tuple[int, ...]
    here: dict[str, tuple[InstalledPart, ...]]
    """By integration, the parts installed for this repository."""
    everywhere: dict[str, tuple[InstalledPart, ...]]
    """By integration, the parts installed for every repository of this user."""
    outcomes: tuple[HookRun, ...]
    """The latest runs of hooks, oldest first."""
    waiting: PendingHook | None
    warnings: tuple[str, ...]
    watching: bool = False
    """True while `git envlog watch` is running."""
