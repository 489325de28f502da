"""A restore that was broken off comes to one of its ends, and that is recorded."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.capturing.request import Request
from git_envhist.errors import EnvhistError, in_words
from git_envhist.model import TOP, LeftAlone, RestorePart, SnapshotId
from git_envhist.restore.journal import Journal
from git_envhist.restoring.carrying import Carried
from git_envhist.restoring.course import LESS, PART, Beside
from git_envhist.restoring.ending import SAFETY, TARGET, end, forget_way, settle
from git_envhist.restoring.here import Here
from git_envhist.restoring.recording import NOT_RECORDED, publish_now
from git_envhist.restoring.restore import Restoring
from git_envhist.restoring.wish import Wish


def go_on(restoring: Restoring) -> Carried:
    """Finish it."""
    return _end(restoring, TARGET)


def take_back(restoring: Restoring) -> Carried:
    """Bring back what stood here before."""
    return _end(restoring, SAFETY)


def _end(restoring: Restoring, goal: str) -> Carried:
    here = restoring.here
    capturing = here.unbounded()
    with capturing.locked(Request()):
        place = here.place(capturing.survey(None))
        late: list[str] = []

        def last(journal: Journal) -> None:
            late.extend(settle(capturing, here.find, journal, goal))

        carried, way = end(place, goal, last)
        part = RestorePart.UNDO if goal == SAFETY else RestorePart.TO
        if way is not None:
            wish, beside = Wish(foreign=True, force=True, links=way.links), Beside(way, last)
            done = restoring.go(capturing, wish, part, lambda _: here.find(way.source), beside)
            kept = (*(carried.kept if carried is not None else ()), *done.kept)
            carried = Carried(done.verified, kept, done.losses, goal == SAFETY, way.notes)
        else:
            assert carried is not None
            carried = carried._replace(undone=goal == SAFETY)
            late += _record_end(here, carried, goal, part)
        forget_way(place.private)
    return carried._replace(kept=(*carried.kept, *(LeftAlone(TOP, why) for why in late)))


def _record_end(here: Here, carried: Carried, goal: str, part: RestorePart) -> Iterator[str]:
    """Record what is finished; what could not be had."""
    told = dict(carried.notes)
    if goal == TARGET:
        part = RestorePart(told.get(PART, part.value))
    source = SnapshotId(told[goal]) if told.get(goal) else None
    try:
        paths = "in part" if goal == TARGET and LESS in told else ""
        undone = SnapshotId(told[TARGET]) if part is RestorePart.UNDO and told.get(TARGET) else None
        publish_now(here.unbounded(), source, part, undone=undone, paths=paths)
    except (EnvhistError, OSError) as error:
        yield f"{NOT_RECORDED}: {in_words(error)}"
