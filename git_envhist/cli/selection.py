"""Which snapshots a list is about: the timeline, a range of it, or every one; those that changed some paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from git_envhist.cli.entry import is_slip, unknown_subcommand
from git_envhist.errors import SnapshotNotFound, UsageError
from git_envhist.history.choice import Choice, choose
from git_envhist.history.timeline import Timeline
from git_envhist.model import Snapshot
from git_envhist.values import dataclass

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What was asked for, in the order in which it is applied."""

    revisions: tuple[str, ...]
    every: bool
    pathspecs: tuple[bytes, ...]
    choice: Choice
    limit: int | None
    reverse: bool

    @property
    def seeks(self) -> bool:
        """Whether the very moments are meant where something changed or was reached."""
        choice = self.choice
        searches = choice.summary is not None or choice.searches_content
        return bool(self.pathspecs or searches or choice.verdicts or choice.triggers)


def select(history: EnvHistory, wanted: LogQuery) -> list[Snapshot]:
    """The snapshots that were asked for, in the order in which they are shown."""
    whole = not (wanted.revisions or wanted.pathspecs or wanted.choice.restricts or wanted.every)
    # Names stand where they were given last, which only the whole timeline tells; a note may stand anywhere.
    found = _recent(history, wanted.limit) if whole else _reached(history, wanted)
    if wanted.pathspecs:
        changed = _that_changed(history, found, wanted.pathspecs)
        found = [snapshot for snapshot in found if snapshot.commit in changed]
    shown = choose(found, wanted.choice, history.now) if wanted.choice.restricts else found
    if wanted.choice.summary is not None:
        from git_envhist.capturing.telling import filter_by_summary  # loaded late: keeps envlog fast

        shown = filter_by_summary(history.repository.git, shown, wanted.choice.summary, history.keys.opening)
    if wanted.choice.searches_content:
        from git_envhist.capturing.searching import those_with_content  # loaded late: likewise

        shown = those_with_content(history, shown, wanted.choice, wanted.pathspecs)
    if wanted.limit is not None and wanted.limit >= 0:
        shown = shown[: wanted.limit]
    return shown[::-1] if wanted.reverse else shown


def _recent(history: EnvHistory, limit: int | None) -> list[Snapshot]:
    name = history.timeline
    if name is None:
        return []
    return list(Timeline.of(name, history.log(limit if limit is None or limit >= 0 else None)).snapshots)


def _reached(history: EnvHistory, wanted: LogQuery) -> list[Snapshot]:
    if wanted.every:
        if wanted.revisions:
            raise UsageError("--all and a range exclude each other")
        if (
            wanted.limit is not None
            and wanted.limit >= 0
            and not (wanted.pathspecs or wanted.choice.restricts)
        ):
            newest = history.newest(wanted.limit)
            if newest is not None:
                return newest
        # What was fetched may be ours: it is told once, by our own copy.
        everything: dict[str, Snapshot] = {}
        for line in history.world.timelines():
            for snapshot in line.snapshots:
                everything.setdefault(snapshot.id, snapshot)
        return sorted(everything.values(), key=lambda snapshot: snapshot.at, reverse=True)
    if not wanted.revisions:
        return list(history.world.own.snapshots)
    return _range(history, wanted.revisions)


def _range(history: EnvHistory, revisions: tuple[str, ...]) -> list[Snapshot]:
    from git_envhist.history.ranges import resolve_range, snapshots_in_range  # loaded late: keeps envlog fast

    try:
        span = resolve_range(revisions[0], history.world, history.now)
    except SnapshotNotFound:
        if is_slip(revisions[0]):
            raise unknown_subcommand(revisions[0]) from None
        raise
    if len(revisions) > 1:
        raise UsageError(f"one range at a time: '{revisions[1]}'", hint="paths stand after '--'")
    return list(snapshots_in_range(span, history.world.own))


def _that_changed(
    history: EnvHistory, found: Sequence[Snapshot], pathspecs: tuple[bytes, ...]
) -> frozenset[str]:
    from git_envhist.core import refuse_endless_trees  # loaded late: keeps envlog fast
    from git_envhist.store.series import commits_changing_paths  # loaded late: likewise

    refuse_endless_trees(history, found)
    steps = [(snapshot.commit, snapshot.parent) for snapshot in found]
    return commits_changing_paths(history.repository.git, steps, pathspecs)
