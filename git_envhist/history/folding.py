"""Fold snapshots into the lines of a list (pure).

One line shows all captures of one turn of an agent; a restore with the copy saved before it, if that held nothing new;
and the captures of one day that followed each other automatically and changed only files. A snapshot that changed
nothing, and for which nobody gave a reason, has no line unless it is the newest.

A snapshot with a name, a note, a verdict of its own, a task, an effect or a missing path keeps its line. So does the
first of all: a turn's changes are counted from it. The newest of a run represents it: the turn's intent finds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo
from typing import NamedTuple

from git_envhist.history.doings import EFFECT, TASK
from git_envhist.history.story import changes_phrase, describe_counts
from git_envhist.history.timeline import own_verdict
from git_envhist.model import ChangeCount, IntentSource, RestoreRole, Snapshot, Trigger

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
