"""Ends a restore that was broken off: at its target, or where it began, whichever is asked for, however often.

Most often the journal leads there. Where the restore had come to its other end already and only its rest was to be
thrown away, the way leads back from there by a restore of its own; that this is under way is written down first, so
that whoever comes after a kill knows which end was meant.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.errors import Refused
from git_envhist.model import Snapshot
from git_envhist.restore.journal import Phase, RestoreJournal, read_journal, read_phase
from git_envhist.restoring.carrying import (
    ExecuteResult,
    JournalElsewhere,
    Last,
    RestoreTarget,
    discard_journal,
    finish_interrupted,
    revert_interrupted,
)
from git_envhist.restoring.rest import FollowUp
from git_envhist.store.durable import sync_directory
from git_envhist.store.locks import state_directory
from git_envhist.system import open_file_only

WAY = "way"
TARGET, SAFETY, GOAL = "target", "safety", "goal"
LINKS = "links"
"""Says that links of others may lead anywhere, as whoever began it wished."""
Notes = tuple[tuple[str, str], ...]


class RecoveryGoal(NamedTuple):
    """Which end is meant, and the moments at both."""

    goal: str
    target: str
    safety: str
    links: bool = False
    head: str = ""
    origin: str = ""

    @property
    def source(self) -> str:
        """The moment to go to."""
        return self.target if self.goal == TARGET else self.safety

    @property
    def rest(self) -> FollowUp:
        """What belongs to the target besides the files."""
        return FollowUp(self.head, self.origin)

    @property
    def notes(self) -> Notes:
        """What the journal of this way has to say."""
        told = ((TARGET, self.target), (SAFETY, self.safety), (GOAL, self.goal), *self.rest.notes)
        return (*told, (LINKS, "any")) if self.links else told


class RecoveryStep(NamedTuple):
    """What came of the journal; and the way that is still to be gone."""

    carried: ExecuteResult | None
    way: RecoveryGoal | None


def end(place: RestoreTarget, goal: str, last: Last) -> RecoveryStep:
    """Follow the journal to one of its ends; `Refused` where nothing was broken off."""
    journal = read_journal(place.private)
    if journal is None:
        way = read_way(place.private)
        if way is None:
            raise Refused(
                "no restore was broken off here", hint="'git envrestore --undo' takes back one that is done"
            )
        # How far that way was gone is told by what is here now.
        return RecoveryStep(None, way._replace(goal=goal))
    told = dict(journal.notes)
    way = RecoveryGoal(goal, told.get(TARGET, ""), told.get(SAFETY, ""), LINKS in told, *FollowUp.read(told))
    leads_to = told.get(GOAL, TARGET)
    at = _stands_at(read_phase(place.private), leads_to)
    try:
        if at is None or at == goal:
            return RecoveryStep(
                finish_interrupted(place, last) if leads_to == goal else revert_interrupted(place, last), None
            )
        write_way(place.private, way)
        return RecoveryStep(finish_interrupted(place), way)
    except JournalElsewhere:
        # The bytes that both ends need are in the snapshots: whatever stands here, a way leads from it.
        write_way(place.private, way)
        return RecoveryStep(discard_journal(place), way)


def settle(
    here: CapturePipeline, find: Callable[[str], Snapshot], journal: RestoreJournal, goal: str
) -> Iterator[str]:
    """Bring what belongs to a restore besides the files to the same end; what could not be had."""
    told, steps = dict(journal.notes), [staged.step for staged in journal.staged]
    if goal == TARGET:
        yield from FollowUp.read(told).catch_up(here, steps)
    elif told.get(SAFETY):
        yield from FollowUp.read(told).take_back(here, find(told[SAFETY]))


def _stands_at(phase: Phase, leads_to: str) -> str | None:
    """The end that a restore has come to; None where it is between them."""
    if phase is Phase.DONE:
        return leads_to
    if phase is Phase.UNDONE:
        return SAFETY if leads_to == TARGET else TARGET
    return None


def write_way(private: str, way: RecoveryGoal) -> None:
    """Make it durable that a way is being gone."""
    path = os.path.join(state_directory(private), WAY)
    with open(path + ".new", "w", encoding="ascii") as file:
        json.dump(way._asdict(), file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)
    sync_directory(private)


def read_way(private: str) -> RecoveryGoal | None:
    """The way that is being gone; None where there is none, or none that can be read."""
    try:
        with open(os.path.join(private, WAY), encoding="ascii", opener=open_file_only) as file:
            told = json.load(file)
        ends = (str(told["goal"]), str(told["target"]), str(told["safety"]))
        return RecoveryGoal(*ends, told.get("links") is True, *FollowUp.read(told))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget_way(private: str) -> None:
    """It came to its end."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(private, WAY))
        # Back from a power cut it would lead away from whatever was made here since.
        sync_directory(private)
