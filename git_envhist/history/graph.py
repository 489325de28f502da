"""The list as a graph: where a restore went back to, where a fork began, which states were left behind (pure).

A timeline is one chain, but the states it holds are a tree: what a restore brought back goes on from the moment it
came from, and what was undone by it stands on a branch beside. Where a part alone came back, a moment has two parents.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import NamedTuple

from git_envhist.diff.summary import changes_phrase, describe_counts
from git_envhist.history.timeline import own_verdict
from git_envhist.history.work import EFFECT, TASK
from git_envhist.model import ChangeCount, IntentSource, RestoreRole, Snapshot, Trigger

# Fold snapshots into the lines of a list (pure).
#
# One line shows all captures of one turn of an agent; a restore with the copy saved before it, if that held nothing
# new; and the captures of one day that followed each other automatically and changed only files. A snapshot that
# changed nothing, and for which nobody gave a reason, has no line unless it is the newest.
#
# A snapshot with a name, a note, a verdict of its own, a task, an effect or a missing path keeps its line. So does the
# first of all: a turn's changes are counted from it. The newest of a run represents it: the turn's intent finds it.

TURN = "agent-turn"
NOTHING = ChangeCount()

Turn = tuple[str, str | None, str | None, str]
"""(timeline, agent, session, number) of a turn."""


class LogLine(NamedTuple):
    """One line of a list: the newest moment, and those before it that it stands for, newest first."""

    newest: Snapshot
    earlier: tuple[Snapshot, ...] = ()

    @property
    def is_turn(self) -> bool:
        """Whether several captures of a turn are one line, which tells of all of them."""
        return bool(self.earlier) and _turn(self.newest) is not None

    @property
    def is_run(self) -> bool:
        """Whether it shows several automatic captures."""
        return bool(self.earlier) and _is_routine(self.newest)

    @property
    def changed(self) -> ChangeCount:
        """The counts of all its captures together."""
        all_of_it = [snapshot.changed for snapshot in (self.newest, *self.earlier)]
        return ChangeCount(
            sum(one.added for one in all_of_it),
            sum(one.modified for one in all_of_it),
            sum(one.removed for one in all_of_it),
        )

    @property
    def step(self) -> tuple[str, str | None]:
        """Its commit, and the one before all that it stands for."""
        return self.newest.commit, (self.earlier or (self.newest,))[-1].parent


def fold_turns(newest_first: Iterable[Snapshot], zone: tzinfo | None = None) -> list[LogLine]:
    """Return the lines of a list; `zone` says where a day begins. Snapshots of several timelines may alternate."""
    lines: list[LogLine] = []
    latest: dict[str, int] = {}
    for snapshot in newest_first:
        place = latest.get(snapshot.timeline)
        if place is not None and _belongs(lines[place], snapshot, zone):
            lines[place] = LogLine(lines[place].newest, (*lines[place].earlier, snapshot))
        else:
            latest[snapshot.timeline] = len(lines)
            lines.append(LogLine(snapshot))
    return lines


def _belongs(line: LogLine, snapshot: Snapshot, zone: tzinfo | None) -> bool:
    # Chosen ones may have others between them, which no line of theirs tells of.
    follows = (line.earlier or (line.newest,))[-1].parent == snapshot.commit
    return (
        follows
        and (
            _same_turn(line, snapshot)
            or _saved_nothing(line, snapshot)
            or _is_idle(line, snapshot)
            or _same_run(line, snapshot, zone)
        )
        and not _stands_alone(snapshot)
    )


def _same_turn(line: LogLine, snapshot: Snapshot) -> bool:
    turn = _turn(snapshot)
    return turn is not None and turn == _turn(line.newest)


def _saved_nothing(line: LogLine, snapshot: Snapshot) -> bool:
    """Whether it is what a restore saved first, and the moment before holds all of it."""
    arrived = not line.earlier and line.newest.restore not in (None, RestoreRole.BEFORE)
    return arrived and snapshot.restore is RestoreRole.BEFORE and _changed_nothing(snapshot)


def _is_idle(line: LogLine, snapshot: Snapshot) -> bool:
    """Return whether a snapshot changed nothing, and only a program or a command caused it."""
    if _turn(line.newest) is not None or snapshot.restore is not None or _turn(snapshot) is not None:
        return False
    return (_has_no_words(snapshot) or snapshot.trigger is Trigger.RUN) and _changed_nothing(snapshot)


def _same_run(line: LogLine, snapshot: Snapshot, zone: tzinfo | None) -> bool:
    same_day = line.newest.at.astimezone(zone).date() == snapshot.at.astimezone(zone).date()
    return same_day and _is_routine(line.newest) and _is_routine(snapshot)


def _is_routine(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is automatic, and neither its intent nor its summary says more than which files."""
    automatic = snapshot.trigger.automatic and snapshot.restore is None and _has_no_words(snapshot)
    only_files = changes_phrase(snapshot) == describe_counts(snapshot.changed)
    return automatic and only_files and _turn(snapshot) is None and not _stands_alone(snapshot)


def _has_no_words(snapshot: Snapshot) -> bool:
    return snapshot.intent_source in (IntentSource.COMMIT, IntentSource.NONE)


def _changed_nothing(snapshot: Snapshot) -> bool:
    return snapshot.parent is not None and changes_phrase(snapshot) == describe_counts(NOTHING)


def _turn(snapshot: Snapshot) -> Turn | None:
    number = dict(snapshot.meta).get(TURN)
    if snapshot.trigger is not Trigger.AGENT or number is None:
        return None
    return snapshot.timeline, snapshot.actor.agent, snapshot.actor.session, number


def _stands_alone(snapshot: Snapshot) -> bool:
    doings = any(record.kind in (TASK, EFFECT) for record in snapshot.records)
    told = snapshot.names or snapshot.remarks or own_verdict(snapshot)
    return bool(told) or doings or not snapshot.complete or snapshot.parent is None


Parents = Mapping[str, tuple[str, ...]]


class GraphRow(NamedTuple):
    """The lines of a graph at one moment: those before it, its own, what goes on beside its further lines."""

    before: tuple[str, ...]
    mark: str
    beside: str
    after: tuple[str, ...]

    @property
    def indent(self) -> int:
        """Where the words at this moment begin."""
        return len(self.mark) + 1


def parents_of(snapshots: Iterable[Snapshot]) -> dict[str, tuple[str, ...]]:
    """The states that each moment's state goes on from, by their ids."""
    everything = list(snapshots)
    by_id: dict[str, Snapshot] = {one.id: one for one in everything}
    id_of: dict[str, str] = {one.commit: one.id for one in everything}
    return {one.id: tuple(_states_before(one, by_id, id_of)) for one in everything}


def _states_before(one: Snapshot, by_id: Mapping[str, Snapshot], id_of: Mapping[str, str]) -> Iterator[str]:
    source = by_id.get(one.restored_from or one.forked_from or "")
    before = id_of.get(one.parent or "")
    if source is None:
        if before is not None:
            yield before
        return
    yield source.id
    # A part of it: the rest goes on from what was here.
    if one.forked_from is None and before not in (None, source.id) and source.content != one.content:
        assert before is not None
        yield before


def connected(start: Iterable[str], parents: Parents) -> frozenset[str]:
    """All moments that hang together with some of them, by parents or children."""
    beside: dict[str, set[str]] = {}
    for one, before in parents.items():
        for other in before:
            beside.setdefault(one, set()).add(other)
            beside.setdefault(other, set()).add(one)
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += beside.get(one, ())
    return frozenset(seen)


def ordered(snapshots: Sequence[Snapshot], parents: Parents) -> list[Snapshot]:
    """The newest first, none before what goes on from it."""
    shown: dict[str, tuple[float, int, Snapshot]] = {
        one.id: (-one.at.timestamp(), place, one) for place, one in enumerate(snapshots)
    }
    children: dict[str, int] = dict.fromkeys(shown, 0)
    for one in shown:
        for before in parents[one]:
            if before in children:
                children[before] += 1
    ready = [shown[one] for one, number in children.items() if not number]
    heapq.heapify(ready)
    found = []
    while ready:
        _, _, snapshot = heapq.heappop(ready)
        found.append(snapshot)
        for before in parents[snapshot.id]:
            if before in children:
                children[before] -= 1
                if not children[before]:
                    heapq.heappush(ready, shown[before])
    return found


def shown_parents(shown: Sequence[str], parents: Parents) -> dict[str, tuple[str, ...]]:
    """For each that is shown the nearest ones that are shown, too."""
    wanted = set(shown)
    nearest: dict[str, tuple[str, ...]] = {}
    for one in shown:
        found: dict[str, None] = {}
        for before in parents[one]:
            at: str | None = before
            while at is not None and at not in wanted:
                at = next(iter(parents.get(at, ())), None)
            if at is not None:
                found[at] = None
        nearest[one] = tuple(found)
    return nearest


def draw(shown: Sequence[str], parents: Parents) -> Iterator[GraphRow]:
    """The rows, in the manner of git."""
    lanes: list[str] = []
    for one in shown:
        if one not in lanes:
            lanes.append(one)
        at = lanes.index(one)
        before: list[str] = []
        while (last := len(lanes) - 1 - lanes[::-1].index(one)) != at:
            before += _join(len(lanes), last, at)
            del lanes[last]
        mark = _cells(len(lanes), at, "*")
        first, *others = parents[one] or ("",)
        lanes[at] = first
        after: list[str] = []
        for other in others:
            lanes.insert(at + 1, other)
            after.append(_opened(len(lanes), at))
        beside = _cells(len(lanes), -1, "|")
        if not first:
            after += _closed(len(lanes), at)
            del lanes[at]
        yield GraphRow(tuple(before), mark, beside, tuple(after))


def _cells(number: int, at: int, mark: str) -> str:
    return " ".join(mark if place == at else "|" for place in range(number))


def _line(marks: Mapping[int, str]) -> str:
    return "".join(marks.get(column, " ") for column in range(max(marks, default=-1) + 1))


def _join(number: int, last: int, at: int) -> Iterator[str]:
    """One lane runs into another on its left; those on its right move up."""
    for step in range(last, at, -1):
        marks = {2 * place: "|" for place in range(last)}
        for place in range(last + 1, number):
            marks[2 * place - (1 if step == last else 2)] = "/" if step == last else "|"
        yield _line({**marks, 2 * step - 1: "/"})


def _opened(number: int, at: int) -> str:
    """A lane begins to the right of another; those on its right make room."""
    marks = {2 * place: "|" for place in range(at + 1)}
    return _line({**marks, 2 * at + 1: "\\", **{2 * place - 1: "\\" for place in range(at + 2, number)}})


def _closed(number: int, at: int) -> list[str]:
    """A lane ends; those on its right move up."""
    if at == number - 1:
        return []
    marks = {2 * place: "|" for place in range(at)}
    return [_line({**marks, **{2 * place - 1: "/" for place in range(at + 1, number)}})]
