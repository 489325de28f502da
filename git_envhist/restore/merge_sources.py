"""Find the snapshots that a revert or a merge compares.

- a step: one snapshot against the one before it, or a range `a..b`;
- a turn or a session of an agent: all of its steps, also where steps of others lie between;
- a merge: another timeline against the newest snapshot that both have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from git_envhist.context import HistoryContext
from git_envhist.errors import Refused, SnapshotNotFound, UsageError
from git_envhist.history.graph import turn_of
from git_envhist.history.merge_base import common_snapshot, find_position, is_claimed, position_of
from git_envhist.history.resolve import resolve_range
from git_envhist.history.revisions import WorkingTree
from git_envhist.history.timeline import FIRST_TOOL, PRINTED_ID, RELOCATED, Position, Timeline
from git_envhist.model import RestoreRole, Snapshot, SnapshotRef
from git_envhist.restore.decisions import UNDECIDED, Decisions
from git_envhist.snapshots.message import MAX_APPLIED

MAX_NAMED = 4
"""Runs of steps that an intent names."""
PRINTED_SESSION = 8
MAX_LABEL = 100
"""Characters of a timeline's name in the names of files."""


def short_id(snapshot: Snapshot) -> str:
    """Return an id as it is printed."""
    return snapshot.id[:PRINTED_ID]


def find_step(
    history: HistoryContext, revision: SnapshotRef, decisions: Decisions = UNDECIDED
) -> MergeSources:
    """Return the step of a range, or that of one snapshot: from the snapshot before it."""
    if isinstance(revision, str):
        span = resolve_range(revision, history.catalog, history.now)
        if isinstance(span.end, WorkingTree) or isinstance(span.start, WorkingTree):
            raise _no_snapshot(revision)
        if span.start is not None:
            one = Span(span.end.snapshot, span.start.snapshot)
            return MergeSources((one,), _range_words(one), decisions)
    after = history.snapshot_of(revision)
    try:
        before = history.resolve(f"{after.id}~1")
    except SnapshotNotFound as error:
        raise _nothing_before(after) from error
    return MergeSources((Span(after, before),), short_id(after), decisions)


def _no_snapshot(revision: str) -> UsageError:
    return UsageError(
        f"the files now are no snapshot: '{revision}'", hint="capture them first: git envlog capture"
    )


def _nothing_before(snapshot: Snapshot) -> Refused:
    return Refused(
        f"no snapshot is before '{short_id(snapshot)}', so nothing shows what it changed",
        hint="name another one: git envlog revert <a>..<b>",
    )


def find_revert(
    history: HistoryContext,
    revision: SnapshotRef | None,
    turn: bool,
    session: str | None,
    decisions: Decisions = UNDECIDED,
) -> MergeSources:
    """Return the step, the turn or the session to revert; raise `UsageError` for none or more than one of them."""
    if session is not None:
        if revision is not None or turn:
            raise UsageError("a session is no snapshot", hint=f"git envlog revert --session {session}")
        return find_session(history, session, decisions)
    if revision is None:
        raise UsageError("no snapshot given", hint="revert the newest: git envlog revert @")
    return find_turn(history, revision, decisions) if turn else find_step(history, revision, decisions)


# Turns and sessions of agents.


def find_turn(
    history: HistoryContext, revision: SnapshotRef, decisions: Decisions = UNDECIDED
) -> MergeSources:
    """Return all steps of the turn that a snapshot belongs to; raise `UsageError` if no agent took it."""
    snapshot = history.snapshot_of(revision)
    turn = turn_of(snapshot)
    if turn is None:
        raise UsageError(
            f"'{short_id(snapshot)}' belongs to no turn of an agent",
            hint=f"to revert this step alone: git envlog revert {short_id(snapshot)}",
        )
    position = position_of(history.catalog, snapshot)
    assert position is not None
    spans = steps_of(position.timeline, lambda one: turn_of(one) == turn)
    if not spans:
        raise _nothing_before(snapshot)
    words = _steps_words(f"turn {turn[3]} of session {(turn[2] or '')[:PRINTED_SESSION]}", spans)
    return MergeSources(spans, words, decisions, again=f"--turn {short_id(snapshot)}")


def find_session(history: HistoryContext, session: str, decisions: Decisions = UNDECIDED) -> MergeSources:
    """Return all steps of an agent's session, given the beginning of its id."""
    timeline = history.catalog.own
    found = {one.actor.session for one in timeline.snapshots if _has_session(one, session)}
    if not session or not found:
        raise SnapshotNotFound(
            session,
            hint="list the sessions: git envlog --json",
            message=f"no snapshot is of session '{session}'",
        )
    if len(found) > 1:
        named = ", ".join(sorted(str(one) for one in found)[:MAX_NAMED])
        raise UsageError(
            f"more than one session begins with '{session}': {named}", hint="give more of its id"
        )
    spans = steps_of(timeline, lambda one: _has_session(one, session))
    if not spans:
        raise Refused(
            f"session '{session}' changed nothing that a snapshot shows",
            hint=f"list its snapshots: git envlog --session {session}",
        )
    name = str(found.pop())[:PRINTED_SESSION]
    return MergeSources(
        spans, _steps_words(f"session {name}", spans), decisions, again=f"--session {session}"
    )


def _has_session(snapshot: Snapshot, session: str) -> bool:
    return (snapshot.actor.session or "").startswith(session)


def steps_of(timeline: Timeline, is_own: Callable[[Snapshot], bool]) -> tuple[Span, ...]:
    """Return the steps of some snapshots, newest first; neighbours are one step.

    A snapshot before the first tool of a turn has what others changed, so its step is not included.
    """
    found: list[Span] = []
    chain = timeline.snapshots
    for after, before in pairwise(chain):
        if not is_own(after) or FIRST_TOOL in dict(after.meta):
            continue
        if found and found[-1].other.id == after.id:
            found[-1] = Span(found[-1].base, before)
        else:
            found.append(Span(after, before))
    return tuple(found)


def _steps_words(name: str, spans: Sequence[Span]) -> str:
    words = ", ".join(_span_words(span) for span in spans[:MAX_NAMED])
    more = f" and {len(spans) - MAX_NAMED:,} more" if len(spans) > MAX_NAMED else ""
    return f"{name}: {words}{more}"


def _span_words(span: Span) -> str:
    is_one = span.base.parent == span.other.commit
    return short_id(span.base) if is_one else _range_words(span)


def _range_words(span: Span) -> str:
    return f"{short_id(span.other)}..{short_id(span.base)}"


# Merges.


def find_merge(
    history: HistoryContext,
    revision: SnapshotRef,
    base: SnapshotRef | None = None,
    decisions: Decisions = UNDECIDED,
) -> MergeSources:
    """Return a snapshot to merge, and the newest that it and our newest have in common, or the given one."""
    if revision == "now":
        raise _no_snapshot("now")
    theirs = history.snapshot_of(revision)
    common, warnings = (history.snapshot_of(base), ()) if base is not None else _common(history, theirs)
    own = history.timeline
    is_own = theirs.timeline == own
    # The author of an unsigned snapshot may have written any text into it.
    name = "".join(letter if letter.isprintable() else "?" for letter in theirs.timeline)
    words = short_id(theirs) if is_own else f"{short_id(theirs)} of {name}"
    label = short_id(theirs) if is_own else name.rpartition("/")[2][:MAX_LABEL]
    return MergeSources(
        (Span(common, theirs),),
        words,
        decisions,
        RestoreRole.MERGE,
        _again(theirs, common if base is not None else None),
        label,
        _relocated(history, theirs, common),
        is_whole=base is None,
        warnings=warnings,
    )


def _again(theirs: Snapshot, base: Snapshot | None) -> str:
    return short_id(theirs) if base is None else f"--base {short_id(base)} {short_id(theirs)}"


def _common(history: HistoryContext, theirs: Snapshot) -> tuple[Snapshot, tuple[str, ...]]:
    """Return the newest common snapshot, and a warning if only an unsigned snapshot names it."""
    catalog = history.catalog
    position = position_of(catalog, theirs)
    newest = next(_newest(catalog.own), None)
    find = partial(find_position, catalog)
    common = None
    if position is not None and newest is not None:
        common = common_snapshot(newest, position, find, history.judge)
    if common is None or position is None or newest is None:
        raise Refused(
            f"'{short_id(theirs)}' and this timeline have no snapshot in common",
            hint=f"name the one from which on both changed: git envlog merge --base <rev> {short_id(theirs)}",
        )
    if not is_claimed(common, newest, position, find, history.judge):
        return history.judge(common), ()
    warning = (
        f"only an unsigned snapshot says that both sides changed since '{short_id(common)}'; "
        f"to name another one: git envlog merge --base <rev> {short_id(theirs)}"
    )
    return history.judge(common), (warning,)


def _relocated(history: HistoryContext, theirs: Snapshot, common: Snapshot) -> Relocated:
    """Return how the paths of each side differ from those of the common snapshot because of a fork."""
    position = position_of(history.catalog, theirs)
    chains = (
        position.timeline.snapshots[position.index :] if position is not None else (),
        history.catalog.own.snapshots,
    )
    away, back = [], []
    for chain in chains:
        rewriting = _rewriting(history, chain)
        has_common = any(one.id == common.id for one in chain)
        away.append(None if has_common else rewriting)
        # The common snapshot is the fork's own, so that the other side has the paths from before.
        back.append(Span(rewriting.other, rewriting.base) if rewriting is not None and has_common else None)
    return Relocated(away[0] or back[1], away[1] or back[0])


def _rewriting(history: HistoryContext, chain: Sequence[Snapshot]) -> Span | None:
    """Return the step with which a fork rewrote paths; None for other timelines."""
    if len(chain) <= 1 or chain[-1].forked_from is None:
        return None
    first, second = (history.judge(one) for one in chain[-1:-3:-1])
    is_signed = first.trusted and second.trusted
    return Span(first, second) if is_signed and RELOCATED in dict(second.meta) else None


def _newest(timeline: Timeline) -> Iterator[Position]:
    yield from timeline.newest()


class Span(NamedTuple):
    """Two sides of a comparison: the changes from `base` to `other` are made in the environment."""

    base: Snapshot
    other: Snapshot


class Relocated(NamedTuple):
    """The rewriting of paths with which the fork on a side began; it is no work to merge."""

    theirs: Span | None = None
    ours: Span | None = None


class MergeSources(NamedTuple):
    """The snapshots that a revert or a merge compares, and what its conflicts become."""

    spans: tuple[Span, ...]
    """Merged one after the other, as one restore; for a revert the newest step first."""
    words: str
    """The step or the merged snapshot as it is recorded: `9ac31f2`, or `9ac31f2..be19d7d`."""
    decisions: Decisions = UNDECIDED
    role: RestoreRole = RestoreRole.REVERT
    again: str = ""
    """The arguments that name the same sources; empty: `words`."""
    label: str = ""
    """The name of the other side in markers and in the names of files beside others; empty: its id."""
    relocated: Relocated = Relocated()
    is_whole: bool = True
    """Whether a merge contains all that the merged snapshot has."""
    warnings: tuple[str, ...] = ()
    """Warnings about the choice of the snapshots."""

    @property
    def target(self) -> Snapshot:
        """Return the snapshot whose extent and additional roots bound what is changed."""
        return self.spans[-1].other

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return all snapshots that are read, each once."""
        return tuple({one.id: one for span in self.spans for one in span}.values())

    @property
    def applied(self) -> tuple[tuple[str, str], ...]:
        """Return the ids of the two sides of each span; none if there are too many to record."""
        return tuple((span.base.id, span.other.id) for span in self.spans if len(self.spans) <= MAX_APPLIED)

    @property
    def command(self) -> str:
        """Return the command that names the same sources."""
        return f"git envlog {self.role.value} {self.again or self.words}"
