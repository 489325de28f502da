"""Values for checks and bisects: their results, and callbacks that report their progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from git_envhist.lazy import dataclass
from git_envhist.model.snapshots import Snapshot, Verdict


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check of one snapshot, and its verdict."""

    snapshot: Snapshot
    verdict: Verdict
    ran_at: str | None = None
    """The directory in which it ran; None if it did not run."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BisectResult:
    """The result of a search for the first failing snapshot."""

    command: str
    good: Snapshot
    bad: Snapshot
    """The first snapshot that fails, as far as it could be determined."""
    suspects: tuple[Snapshot, ...]
    """The snapshots of which one is the first bad one, oldest first; several if some could not be checked."""
    tried: tuple[CheckResult, ...]
    """Every check that ran, in order."""


class CheckListener(NamedTuple):
    """Callbacks that report the progress of a check."""

    running: Callable[[str], None] | None = None
    """Called with the command before it runs."""
    through: Callable[[bytes], None] | None = None
    """Called with output of the command as it arrives."""
    waiting: Callable[[], None] | None = None
    """Called if another check must end first."""
    trying: Callable[[Snapshot, int, int], None] | None = None
    """Called with the next snapshot to check, the number of suspects, and the maximum number of checks left."""
    tried: Callable[[CheckResult], None] | None = None
    """Called with the result of each check."""


UNWATCHED = CheckListener()
