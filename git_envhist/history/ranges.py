"""Ranges: cuts `a..b` where both ends mean something, and takes the snapshots between them."""

from __future__ import annotations

from datetime import datetime

from git_envhist.errors import AmbiguousRevision, EnvhistError, SnapshotNotFound, UsageError
from git_envhist.history.hints import refuse_as_range
from git_envhist.history.resolve import End, find_end, no_match_error, resolve_end
from git_envhist.history.revisions import Now, RangeSplit, range_cuts
from git_envhist.history.timeline import Catalog, Position, Timeline, by_name
from git_envhist.model import Snapshot
from git_envhist.values import dataclass


@dataclass(frozen=True, slots=True)
class ResolvedRange:
    """A resolved range; `start` None where a single revision was given."""

    start: End | None
    end: End


def resolve_range(text: str, world: Catalog, now: datetime) -> ResolvedRange:
    """The two ends of `a..b`, or the single end of a text that means one snapshot as a whole."""
    if ".." not in text:
        return ResolvedRange(None, resolve_end(text, world, now))
    if whole := _find_whole(text, world, now):
        return ResolvedRange(None, whole)
    return _only_cut(text, range_cuts(text), world, now)


def snapshots_in_range(span: ResolvedRange, own: Timeline) -> tuple[Snapshot, ...]:
    """The snapshots of a range, newest first: up to its end, without its start and what is older."""
    end = _spot(span.end, own)
    if end is None:
        return ()
    reached = end.timeline.snapshots[end.index :]
    start = None if span.start is None else _spot(span.start, own)
    if start is None:
        return reached
    # As in git, what the start can reach is left out; a start on another timeline reaches nothing here.
    older = {snapshot.id for snapshot in start.timeline.snapshots[start.index :]}
    return tuple(snapshot for snapshot in reached if snapshot.id not in older)


def _spot(end: Position | Now, own: Timeline) -> Position | None:
    if isinstance(end, Now):
        return next(own.spots(), None)
    return end


# --- where to cut


def _find_whole(text: str, world: Catalog, now: datetime) -> End | None:
    """An intent may hold dots: where a text means something as it stands, it is no range."""
    # No ref and no name holds two of them: unless git is asked for a message or a time, it need not be asked.
    if not text.startswith(":/") and "{" not in text and not by_name(world.own, text):
        return None
    try:
        return find_end(text, world, now)
    except UsageError:
        return None


def _only_cut(text: str, cuts: tuple[RangeSplit, ...], world: Catalog, now: datetime) -> ResolvedRange:
    if not cuts:
        raise refuse_as_range(text)
    spans: dict[RangeSplit, ResolvedRange] = {}
    problems: list[EnvhistError] = []
    for cut in cuts:
        try:
            spans[cut] = _resolve_cut(cut, world, now)
        except (SnapshotNotFound, AmbiguousRevision, UsageError) as problem:
            problems.append(problem)
    if not spans:
        raise no_match_error(text, world, now) if world.is_path(text) else problems[0]
    if len({_ids(span) for span in spans.values()}) > 1:
        raise AmbiguousRevision(text, tuple(f"'{cut.before}' .. '{cut.after}'" for cut in spans))
    return next(iter(spans.values()))


def _resolve_cut(cut: RangeSplit, world: Catalog, now: datetime) -> ResolvedRange:
    start = resolve_end(cut.before or "@", world, now)
    return ResolvedRange(start, resolve_end(cut.after or "@", world, now))


def _ids(span: ResolvedRange) -> tuple[str, str]:
    return _id_of(span.start), _id_of(span.end)


def _id_of(end: End | None) -> str:
    return end.snapshot.id if isinstance(end, Position) else "now"
