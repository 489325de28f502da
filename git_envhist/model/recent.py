"""Values for changes that were found without a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from git_envhist.lazy import dataclass
from git_envhist.model.entries import Change, EnvPath, FactChange


class LogEvent(NamedTuple):
    """An action found in a log, e.g. a command of the shell."""

    at: datetime
    what: str
    commit: str = ""


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """The changes since a point in time, found without a snapshot."""

    root: str
    since: datetime
    until: datetime
    facts: tuple[FactChange, ...]
    changes: tuple[Change, ...]
    times: Mapping[EnvPath, datetime]
    """The time of each path's change."""
    lost: tuple[EnvPath, ...]
    """Directories from which entries were removed."""
    unread: tuple[EnvPath, ...]
    commands: tuple[LogEvent, ...]
    head: tuple[LogEvent, ...]
    """Movements of HEAD."""
    examined: int
    """The number of entries that were examined."""
