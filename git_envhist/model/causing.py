"""The words for what captures by itself, and for what changed while nothing did: files of others, hooks, logs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from git_envhist.model.entries import Change, EnvPath, FactChange
from git_envhist.values import dataclass

FILE_MODE = 0o644


@dataclass(frozen=True, slots=True)
class FileState:
    """What stands at a path: the bytes of a file and its mode, or where a link leads (mode None)."""

    data: bytes
    mode: int | None = FILE_MODE


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One path, before and after; None where nothing stands."""

    path: str
    before: FileState | None
    after: FileState | None


@dataclass(frozen=True, slots=True)
class IntegrationChange:
    """What was changed for one integration, or would be."""

    name: str
    edits: tuple[FileEdit, ...]
    remarks: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Directories of ours that nobody needs any more."""


@dataclass(frozen=True, slots=True)
class InstalledPart:
    """One thing that is, or should be, in somebody's file."""

    event: str
    active: bool
    place: str
    """The file that it is in, or should be in."""
    remark: str = ""
    """What is the matter with it."""


@dataclass(frozen=True, slots=True)
class PendingHook:
    """A hook has called; `seen` tells one mark from the next."""

    event: str
    at: float
    seen: tuple[int, int]


@dataclass(frozen=True, slots=True)
class HookRun:
    """What one run of a worker came to."""

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
    """What captures by itself in one repository."""

    enabled: bool
    program: str
    git: tuple[int, ...]
    here: dict[str, tuple[InstalledPart, ...]]
    """By integration, what is installed for this repository."""
    everywhere: dict[str, tuple[InstalledPart, ...]]
    """Likewise for every repository of this user."""
    outcomes: tuple[HookRun, ...]
    """What hooks came to, oldest first."""
    waiting: PendingHook | None
    warnings: tuple[str, ...]
    watching: bool = False
    """Whether `git envlog watch` runs here."""


class LogEvent(NamedTuple):
    """Something that somebody did, as a log has it."""

    at: datetime
    what: str
    commit: str = ""


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """What can be told of the time since a moment."""

    root: str
    since: datetime
    until: datetime
    facts: tuple[FactChange, ...]
    changes: tuple[Change, ...]
    times: Mapping[EnvPath, datetime]
    """When each of the paths changed."""
    lost: tuple[EnvPath, ...]
    """Directories that lost something."""
    unread: tuple[EnvPath, ...]
    commands: tuple[LogEvent, ...]
    head: tuple[LogEvent, ...]
    """What moved HEAD."""
    looked: int
    """How many entries were looked at."""
