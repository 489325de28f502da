"""Captures of one turn of an agent, as one line of a list; likewise a restore and the copy saved before it, where
that held nothing new (pure).

Whatever is told of a single moment keeps a line of its own: a name, a note, a verdict that was reached there, a task
begun, an effect, a path that is missing. So does the first of all: it changed nothing, it is what a turn's changes are
counted from. The newest of a run stands for it, as everywhere: the turn's intent finds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from git_envhist.history.doings import EFFECT, TASK
from git_envhist.history.story import changes_phrase, describe_counts
from git_envhist.history.timeline import own_verdict
from git_envhist.model import ChangeCount, RestorePart, Snapshot, Trigger

TURN = "agent-turn"
NOTHING = ChangeCount()

Turn = tuple[str, str | None, str | None, str]
"""(timeline, agent, session, number) of a turn."""


class Line(NamedTuple):
    """One line of a list: the newest moment, and those before it that it stands for, newest first."""

    newest: Snapshot
    earlier: tuple[Snapshot, ...] = ()

    @property
    def is_turn(self) -> bool:
        """Whether several captures of a turn are one line, which tells of all of them."""
        return bool(self.earlier) and _turn(self.newest) is not None

    @property
    def step(self) -> tuple[str, str | None]:
        """Its commit, and the one before all that it stands for."""
        return self.newest.commit, (self.earlier or (self.newest,))[-1].parent


def fold(newest_first: Iterable[Snapshot]) -> list[Line]:
    """The lines of a list; moments of other timelines may stand between those of one."""
    lines: list[Line] = []
    latest: dict[str, int] = {}
    for snapshot in newest_first:
        place = latest.get(snapshot.timeline)
        if place is not None and _belongs(lines[place], snapshot):
            lines[place] = Line(lines[place].newest, (*lines[place].earlier, snapshot))
        else:
            latest[snapshot.timeline] = len(lines)
            lines.append(Line(snapshot))
    return lines


def _belongs(line: Line, snapshot: Snapshot) -> bool:
    # Chosen ones may have others between them, which no line of theirs tells of.
    follows = (line.earlier or (line.newest,))[-1].parent == snapshot.commit
    return (
        follows
        and (_same_turn(line, snapshot) or _saved_nothing(line, snapshot))
        and not _stands_alone(snapshot)
    )


def _same_turn(line: Line, snapshot: Snapshot) -> bool:
    turn = _turn(snapshot)
    return turn is not None and turn == _turn(line.newest)


def _saved_nothing(line: Line, snapshot: Snapshot) -> bool:
    """Whether it is what a restore saved first, and the moment before holds all of it."""
    arrived = not line.earlier and line.newest.restore not in (None, RestorePart.BEFORE)
    nothing_new = snapshot.parent is not None and changes_phrase(snapshot) == describe_counts(NOTHING)
    return arrived and snapshot.restore is RestorePart.BEFORE and nothing_new


def _turn(snapshot: Snapshot) -> Turn | None:
    number = dict(snapshot.meta).get(TURN)
    if snapshot.trigger is not Trigger.AGENT or number is None:
        return None
    return snapshot.timeline, snapshot.actor.agent, snapshot.actor.session, number


def _stands_alone(snapshot: Snapshot) -> bool:
    doings = any(record.kind in (TASK, EFFECT) for record in snapshot.records)
    told = snapshot.names or snapshot.remarks or own_verdict(snapshot)
    return bool(told) or doings or not snapshot.complete or snapshot.parent is None
