"""Fold the lines of a list, and draw a list as a graph of states (pure).

A timeline is a chain of snapshots, but their states form a tree: a restored state continues from the snapshot that was
restored, and the states undone by it are another branch. A restore of some paths only gives a state two parents.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import NamedTuple

from git_envhist.diff.summary import changes_phrase, describe_counts
from git_envhist.history.tasks_and_effects import EFFECT, TASK
from git_envhist.history.timeline import own_verdict
from git_envhist.model import ChangeCount, IntentSource, RestoreRole, Snapshot, Trigger

# Fold snapshots into the lines of a list.
#
# One line shows all captures of one turn of an agent; a restore with the snapshot taken before it, if that has no
# changes; and the captures of one day that followed each other automatically and changed only files. A snapshot that
# changed nothing and has no intent of a person has no line unless it is the newest.
#
# A snapshot with a name, a note, a verdict of its own, a task, an effect or a missing path keeps its line. So does the
# first of all: a turn's changes are counted from it. The newest of a run represents it: the turn's intent finds it.

TURN = "agent-turn"
NOTHING = ChangeCount()

Turn = tuple[str, str | None, str | None, str]
"""(timeline, agent, session, number) of a turn."""


class LogLine(NamedTuple):
    """A line of a list: its newest snapshot, and the earlier ones folded into it, newest first."""

    newest: Snapshot
    earlier: tuple[Snapshot, ...] = ()

    @property
    def is_turn(self) -> bool:
        """True if the line shows several captures of one turn of an agent."""
        return bool(self.earlier) and turn_of(self.newest) is not None

    @property
    def is_run(self) -> bool:
        """True if the line shows several automatic captures."""
        return bool(self.earlier) and _is_routine(self.newest)

    @property
    def changed(self) -> ChangeCount:
        """The changes of all its snapshots together."""
        counts = [snapshot.changed for snapshot in (self.newest, *self.earlier)]
        return ChangeCount(
            sum(one.added for one in counts),
            sum(one.modified for one in counts),
            sum(one.removed for one in counts),
        )

    @property
    def step(self) -> tuple[str, str | None]:
        """The commit of the newest snapshot, and the parent of the oldest."""
        return self.newest.commit, (self.earlier or (self.newest,))[-1].parent


def fold_snapshots(newest_first: Iterable[Snapshot], zone: tzinfo | None = None) -> list[LogLine]:
    """Return the lines of a list; days begin as in `zone`. Snapshots of several timelines may alternate."""
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
    # A selection may leave out snapshots between two others; these are not folded.
    follows = (line.earlier or (line.newest,))[-1].parent == snapshot.commit
    return (
        follows
        and (
            _same_turn(line, snapshot)
            or _is_safety_copy(line, snapshot)
            or _is_idle(line, snapshot)
            or _same_run(line, snapshot, zone)
        )
        and not _has_own_line(snapshot)
    )


def _same_turn(line: LogLine, snapshot: Snapshot) -> bool:
    turn = turn_of(snapshot)
    return turn is not None and turn == turn_of(line.newest)


def _is_safety_copy(line: LogLine, snapshot: Snapshot) -> bool:
    """Return whether a snapshot was taken before a restore and equals the one before it."""
    is_restore = not line.earlier and line.newest.restore not in (None, RestoreRole.BEFORE)
    return is_restore and snapshot.restore is RestoreRole.BEFORE and _changed_nothing(snapshot)


def _is_idle(line: LogLine, snapshot: Snapshot) -> bool:
    """Return whether a snapshot changed nothing, and only a program or a command caused it."""
    if turn_of(line.newest) is not None or snapshot.restore is not None or turn_of(snapshot) is not None:
        return False
    return (_has_no_intent(snapshot) or snapshot.trigger is Trigger.RUN) and _changed_nothing(snapshot)


def _same_run(line: LogLine, snapshot: Snapshot, zone: tzinfo | None) -> bool:
    same_day = line.newest.at.astimezone(zone).date() == snapshot.at.astimezone(zone).date()
    return same_day and _is_routine(line.newest) and _is_routine(snapshot)


def _is_routine(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is automatic, and its intent and summary show nothing but changed files."""
    automatic = snapshot.trigger.automatic and snapshot.restore is None and _has_no_intent(snapshot)
    only_files = changes_phrase(snapshot) == describe_counts(snapshot.changed)
    return automatic and only_files and turn_of(snapshot) is None and not _has_own_line(snapshot)


def _has_no_intent(snapshot: Snapshot) -> bool:
    return snapshot.intent_source in (IntentSource.COMMIT, IntentSource.NONE)


def _changed_nothing(snapshot: Snapshot) -> bool:
    return snapshot.parent is not None and changes_phrase(snapshot) == describe_counts(NOTHING)


def turn_of(snapshot: Snapshot) -> Turn | None:
    """Return the turn of an agent in which a snapshot was taken, or None."""
    number = dict(snapshot.meta).get(TURN)
    if snapshot.trigger is not Trigger.AGENT or number is None:
        return None
    return snapshot.timeline, snapshot.actor.agent, snapshot.actor.session, number


def _has_own_line(snapshot: Snapshot) -> bool:
    has_work = any(record.kind in (TASK, EFFECT) for record in snapshot.records)
    has_notes = bool(snapshot.names or snapshot.remarks or own_verdict(snapshot))
    return has_notes or has_work or not snapshot.complete or snapshot.parent is None


# Draw the graph.

Parents = Mapping[str, tuple[str, ...]]
"""By id of a snapshot: the ids of the states that it continues."""


class GraphRow(NamedTuple):
    """The graph at one snapshot: rows before it, its own row, the lanes next to its further text, rows after it."""

    before: tuple[str, ...]
    mark: str
    continued: str
    after: tuple[str, ...]

    @property
    def indent(self) -> int:
        """The column at which the text of the snapshot begins."""
        return len(self.mark) + 1


def parents_of(snapshots: Iterable[Snapshot]) -> dict[str, tuple[str, ...]]:
    """Return the ids of the states that each snapshot continues, by its id."""
    everything = list(snapshots)
    by_id: dict[str, Snapshot] = {one.id: one for one in everything}
    id_of: dict[str, str] = {one.commit: one.id for one in everything}
    return {one.id: tuple(_states_before(one, by_id, id_of)) for one in everything}


def _states_before(one: Snapshot, by_id: Mapping[str, Snapshot], id_of: Mapping[str, str]) -> Iterator[str]:
    source = by_id.get(one.restored_from or one.forked_from or "")
    before = id_of.get(one.parent or "")
    if one.merged in by_id:
        assert one.merged is not None
        yield from (before, one.merged) if before is not None else (one.merged,)
        return
    if source is None:
        if before is not None:
            yield before
        return
    yield source.id
    # A restore of some paths: the other paths continue the state before.
    if one.forked_from is None and before not in (None, source.id) and source.content != one.content:
        assert before is not None
        yield before


def connected(start: Iterable[str], parents: Parents) -> frozenset[str]:
    """Return all snapshots that are connected with some of them by parents or children."""
    neighbours: dict[str, set[str]] = {}
    for one, before in parents.items():
        for other in before:
            neighbours.setdefault(one, set()).add(other)
            neighbours.setdefault(other, set()).add(one)
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += neighbours.get(one, ())
    return frozenset(seen)


def sort_for_graph(snapshots: Sequence[Snapshot], parents: Parents) -> list[Snapshot]:
    """Return the snapshots newest first, each after all snapshots that continue it."""
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
    """Return for each listed snapshot its nearest ancestors that are listed."""
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
    """Yield the rows of the graph, drawn as git does."""
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
        continued = _cells(len(lanes), -1, "|")
        if not first:
            after += _closed(len(lanes), at)
            del lanes[at]
        yield GraphRow(tuple(before), mark, continued, tuple(after))


def _cells(number: int, at: int, mark: str) -> str:
    return " ".join(mark if place == at else "|" for place in range(number))


def _line(marks: Mapping[int, str]) -> str:
    return "".join(marks.get(column, " ") for column in range(max(marks, default=-1) + 1))


def _join(number: int, last: int, at: int) -> Iterator[str]:
    """Yield the rows in which a lane joins another on its left and those on its right close up."""
    for step in range(last, at, -1):
        marks = {2 * place: "|" for place in range(last)}
        for place in range(last + 1, number):
            marks[2 * place - (1 if step == last else 2)] = "/" if step == last else "|"
        yield _line({**marks, 2 * step - 1: "/"})


def _opened(number: int, at: int) -> str:
    """Return the row in which a lane begins to the right of another and the lanes on its right move over."""
    marks = {2 * place: "|" for place in range(at + 1)}
    return _line({**marks, 2 * at + 1: "\\", **{2 * place - 1: "\\" for place in range(at + 2, number)}})


def _closed(number: int, at: int) -> list[str]:
    """Return the row in which a lane ends and those on its right close up."""
    if at == number - 1:
        return []
    marks = {2 * place: "|" for place in range(at)}
    return [_line({**marks, **{2 * place - 1: "/" for place in range(at + 1, number)}})]
