"""Options of a restore."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from git_envhist.diff.path_classes import CLASSES
from git_envhist.errors import UsageError
from git_envhist.history.catalog import as_sequence, refuse_unknown
from git_envhist.lazy import dataclass, replace
from git_envhist.model import CaptureProgress, RestoreResult, Snapshot, SnapshotId
from git_envhist.service_dumps import NONE

if TYPE_CHECKING:
    from git_envhist.service_dumps import Dumps

STOPPED = "stopped"
"""The key in a journal's notes for services that are stopped meanwhile."""


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """The options of one restore."""

    pathspecs: tuple[bytes, ...] = ()
    """Relative to the top."""
    classes: frozenset[str] | None = None
    keep_new: bool = False
    keep_tracked: bool = False
    head: bool = False
    relocate: bool = False
    """Replace the path of another working tree in restored files."""
    force: bool = False
    allow_unsigned: bool = False
    roots: bool = False
    """With `allow_unsigned`: additional roots too."""
    links: bool = True
    """With `force`: links of an unsigned snapshot may lead anywhere."""
    dry_run: bool = False
    services: bool = False
    """Also restore the state of configured services."""
    dumps: Dumps = NONE
    """The services' dumps, to be saved in the safety snapshot."""
    stopped: tuple[str, ...] = ()
    """The services that are stopped during the restore."""
    planned: Callable[[RestoreResult], None] | None = None
    """Called with the plan, before anything is saved."""
    saved: Callable[[Snapshot], None] | None = None
    """Called with the safety snapshot."""
    progress: Callable[[CaptureProgress], None] | None = None
    waiting: Callable[[], None] | None = None
    left: Callable[[], SnapshotId | None] | None = None
    """Returns the snapshot of the state that an undo leaves, once that is known; None if no snapshot had that state."""

    @property
    def is_part(self) -> bool:
        """Return whether only a part of the snapshot is restored."""
        return bool(self.pathspecs) or self.classes is not None or self.keep_new or self.keep_tracked


DEFAULT_OPTIONS = RestoreOptions()


class RestoreKeywords(TypedDict, total=False):
    """The keywords of `EnvHistory.restore`; see `git-envrestore(1)` for each."""

    paths: Sequence[str | bytes]
    """git pathspecs relative to the top; default: everything."""
    only: Iterable[str]
    """Classes of paths: packages, env, databases, files."""
    keep_new: bool
    keep_tracked: bool
    head: bool
    relocate: bool
    services: bool
    force: bool
    allow_unsigned: bool
    roots: bool
    """With `allow_unsigned`: additional roots too."""
    progress: Callable[[CaptureProgress], None] | None
    waiting: Callable[[], None] | None
    planned: Callable[[RestoreResult], None] | None
    """Called with the plan, before anything is saved; an exception stops the restore."""
    saved: Callable[[Snapshot], None] | None


class RevertKeywords(TypedDict, total=False):
    """The keywords of `EnvHistory.revert`; see `git-envlog(1)` for each."""

    paths: Sequence[str | bytes]
    """git pathspecs relative to the top; default: everything."""
    only: Iterable[str]
    """Classes of paths: packages, env, databases, files."""
    force: bool
    allow_unsigned: bool
    progress: Callable[[CaptureProgress], None] | None
    waiting: Callable[[], None] | None
    planned: Callable[[RestoreResult], None] | None
    """Called with the plan, before anything is saved; an exception stops it."""
    saved: Callable[[Snapshot], None] | None


class MergeKeywords(RevertKeywords, total=False):
    """The keywords of `EnvHistory.merge`; see `git-envlog(1)` for each."""

    relocate: bool


def restore_options(
    options: RestoreOptions | None, keywords: RestoreKeywords, dry_run: bool
) -> RestoreOptions:
    """Return the options with some keywords applied."""
    chosen = options or DEFAULT_OPTIONS
    if dry_run:
        chosen = replace(chosen, dry_run=True)
    if not keywords:
        return chosen
    refuse_unknown("restore", keywords, RestoreKeywords.__annotations__)
    values: dict[str, Any] = dict(keywords)
    if "paths" in values:
        values["pathspecs"] = tuple(map(os.fsencode, as_sequence(values.pop("paths"))))
    if "only" in values:
        values["classes"] = checked_classes(as_sequence(values.pop("only")))
    return replace(chosen, **values)


def checked_classes(words: Iterable[str]) -> frozenset[str] | None:
    """Return the classes of paths by name; None if there are none."""
    found = frozenset(words)
    wrong = sorted(found.difference(CLASSES))
    if wrong:
        raise UsageError(f"unknown class of paths: '{wrong[0]}'", hint=f"use one of: {', '.join(CLASSES)}")
    return found or None
