"""A restore that was broken off comes to one of its ends, and that is recorded."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.capture.pipeline import CaptureOptions
from git_envhist.errors import EnvhistError, in_words
from git_envhist.model import TOP, RestoreRole, SkippedPath, SnapshotId
from git_envhist.restore.execute import ExecuteResult
from git_envhist.restore.journal import RestoreJournal
from git_envhist.restore.operation import (
    LESS,
    NOT_RECORDED,
    PART,
    SAFETY,
    TARGET,
    ExtraSteps,
    RestoreContext,
    RestoreRunner,
    end,
    forget_way,
    publish_now,
    settle,
)
from git_envhist.restore.options import RestoreOptions


def go_on(restoring: RestoreRunner) -> ExecuteResult:
    """Finish it."""
    return _end(restoring, TARGET)


def take_back(restoring: RestoreRunner) -> ExecuteResult:
    """Bring back what stood here before."""
    return _end(restoring, SAFETY)


def _end(restoring: RestoreRunner, goal: str) -> ExecuteResult:
    here = restoring.here
    capturing = here.unbounded()
    with capturing.locked(CaptureOptions()):
        place = here.place(capturing.read_scope(None))
        late: list[str] = []

        def last(journal: RestoreJournal) -> None:
            late.extend(settle(capturing, here.find, journal, goal))

        carried, way = end(place, goal, last)
        part = RestoreRole.UNDO if goal == SAFETY else RestoreRole.TO
        if way is not None:
            wish, beside = RestoreOptions(foreign=True, force=True, links=way.links), ExtraSteps(way, last)
            done = restoring.go(capturing, wish, part, lambda _: here.find(way.source), beside)
            kept = (*(carried.kept if carried is not None else ()), *done.kept)
            carried = ExecuteResult(done.verified, kept, done.losses, goal == SAFETY, way.notes)
        else:
            assert carried is not None
            carried = carried._replace(undone=goal == SAFETY)
            late += _record_end(here, carried, goal, part)
        forget_way(place.private)
    return carried._replace(kept=(*carried.kept, *(SkippedPath(TOP, why) for why in late)))


def _record_end(here: RestoreContext, carried: ExecuteResult, goal: str, part: RestoreRole) -> Iterator[str]:
    """Record what is finished; what could not be had."""
    told = dict(carried.notes)
    if goal == TARGET:
        part = RestoreRole(told.get(PART, part.value))
    source = SnapshotId(told[goal]) if told.get(goal) else None
    try:
        paths = "in part" if goal == TARGET and LESS in told else ""
        undone = SnapshotId(told[TARGET]) if part is RestoreRole.UNDO and told.get(TARGET) else None
        publish_now(here.unbounded(), source, part, undone=undone, paths=paths)
    except (EnvhistError, OSError) as error:
        yield f"{NOT_RECORDED}: {in_words(error)}"
