"""What a caller wants of a restore."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from git_envhist.diff.classes import CLASSES
from git_envhist.errors import UsageError
from git_envhist.history.catalog import as_sequence, refuse_unknown
from git_envhist.lazy import dataclass, replace
from git_envhist.model import CaptureProgress, RestoreResult, Snapshot, SnapshotId
from git_envhist.services import NONE

if TYPE_CHECKING:
    from git_envhist.services import Dumps

STOPPED = "stopped"
"""The word of a journal for the services that do not run while it is not at its end."""


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """One restore, as it was asked for."""

    pathspecs: tuple[bytes, ...] = ()
    """Spelled as from the top."""
    classes: frozenset[str] | None = None
    keep_new: bool = False
    keep_tracked: bool = False
    head: bool = False
    relocate: bool = False
    """What comes of another working tree and names its place is to name this one."""
    force: bool = False
    foreign: bool = False
    roots: bool = False
    """With `foreign`: additional roots too."""
    links: bool = True
    """With `force`: links of others may lead anywhere."""
    dry_run: bool = False
    services: bool = False
    """With the state of the services that are configured."""
    dumps: Dumps = NONE
    """What these gave: it is saved with what is here."""
    stopped: tuple[str, ...] = ()
    """The services that do not run meanwhile."""
    planned: Callable[[RestoreResult], None] | None = None
    """Told the plan, before anything is saved."""
    saved: Callable[[Snapshot], None] | None = None
    """Told the moment that holds what was here."""
    progress: Callable[[CaptureProgress], None] | None = None
    waiting: Callable[[], None] | None = None
    left: Callable[[], SnapshotId | None] | None = None
    """Returns the snapshot of the state that an undo leaves, once that is known; None if no snapshot had that state."""

    @property
    def is_part(self) -> bool:
        """Whether less was asked for than a whole moment."""
        return bool(self.pathspecs) or self.classes is not None or self.keep_new or self.keep_tracked


NO_WISH = RestoreOptions()


class RestoreKeywords(TypedDict, total=False):
    """What can be asked of a restore, as `EnvHistory.restore` takes it; `git-envrestore(1)` says what each means."""

    paths: Sequence[str | bytes]
    """git's pathspecs, as from the top; everything, where none is said."""
    only: Iterable[str]
    """Classes of things: packages, env, databases, files."""
    keep_new: bool
    keep_tracked: bool
    head: bool
    relocate: bool
    services: bool
    force: bool
    foreign: bool
    roots: bool
    """With `foreign`: additional roots too."""
    progress: Callable[[CaptureProgress], None] | None
    waiting: Callable[[], None] | None
    planned: Callable[[RestoreResult], None] | None
    """Told the plan, before anything is saved; what it raises stops the restore."""
    saved: Callable[[Snapshot], None] | None


def restore_options(wish: RestoreOptions | None, wished: RestoreKeywords, dry_run: bool) -> RestoreOptions:
    """The restore that some words ask for."""
    chosen = wish or NO_WISH
    if dry_run:
        chosen = replace(chosen, dry_run=True)
    if not wished:
        return chosen
    refuse_unknown("restore", wished, RestoreKeywords.__annotations__)
    told: dict[str, Any] = dict(wished)
    if "paths" in told:
        told["pathspecs"] = tuple(map(os.fsencode, as_sequence(told.pop("paths"))))
    if "only" in told:
        told["classes"] = checked_classes(as_sequence(told.pop("only")))
    return replace(chosen, **told)


def checked_classes(words: Iterable[str]) -> frozenset[str] | None:
    """Classes of things by their words; None where all are meant."""
    found = frozenset(words)
    wrong = sorted(found.difference(CLASSES))
    if wrong:
        raise UsageError(f"no such class of things: '{wrong[0]}'", hint=f"there are: {', '.join(CLASSES)}")
    return found or None
