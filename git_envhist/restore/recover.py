"""Continue or abort an interrupted restore.

Both follow the journal to one of its ends; if the restore has already reached the other end, a new restore under the
same locks leads back.
"""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.capture.pipeline import CaptureOptions
from git_envhist.errors import EnvhistError, in_words
from git_envhist.history.titles import MERGES
from git_envhist.model import TOP, RestoreRole, SkippedPath, SnapshotId
from git_envhist.restore.execute import ExecuteResult
from git_envhist.restore.journal import RestoreJournal
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.restore_runner import (
    LESS,
    MERGED,
    NOT_RECORDED,
    PART,
    REVERTED,
    SAFETY,
    TARGET,
    ExtraSteps,
    RestoreContext,
    RestoreRunner,
    capture_restored_state,
    delete_recovery_goal,
    finish_follow_up,
    follow_journal,
)


def continue_restore(runner: RestoreRunner) -> ExecuteResult:
    """Finish the restore."""
    return _recover(runner, TARGET)


def abort_restore(runner: RestoreRunner) -> ExecuteResult:
    """Undo the restore."""
    return _recover(runner, SAFETY)


def _recover(runner: RestoreRunner, goal: str) -> ExecuteResult:
    context = runner.context
    capturing = context.unbounded()
    with capturing.locked(CaptureOptions()):
        place = context.place(capturing.read_scope(None))
        problems: list[str] = []

        def final_action(journal: RestoreJournal) -> None:
            problems.extend(finish_follow_up(capturing, context.find, journal, goal))

        carried, recovery = follow_journal(place, goal, final_action)
        role = RestoreRole.UNDO if goal == SAFETY else RestoreRole.TO
        if recovery is not None:
            options, extra = (
                RestoreOptions(allow_unsigned=True, force=True, links=recovery.links),
                ExtraSteps(recovery, final_action),
            )
            done = runner.run(capturing, options, role, lambda _: context.find(recovery.source), extra)
            kept = (*(carried.kept if carried is not None else ()), *done.kept)
            carried = ExecuteResult(done.verified, kept, done.losses, goal == SAFETY, recovery.notes)
        else:
            assert carried is not None
            carried = carried._replace(undone=goal == SAFETY)
            problems += _record_end(context, carried, goal, role)
        delete_recovery_goal(place.private)
    return carried._replace(kept=(*carried.kept, *(SkippedPath(TOP, why) for why in problems)))


def _record_end(
    context: RestoreContext, carried: ExecuteResult, goal: str, role: RestoreRole
) -> Iterator[str]:
    """Record the recovered restore; yield what failed."""
    notes = dict(carried.notes)
    if goal == TARGET:
        role = RestoreRole(notes.get(PART, role.value))
    source: str | None = notes.get(goal) or None
    if role in MERGES:
        source = notes.get(REVERTED)
    is_whole = goal == TARGET and not (carried.kept or carried.losses)
    merged = notes.get(MERGED) if is_whole else None
    try:
        paths = "in part" if goal == TARGET and LESS in notes else ""
        undone = SnapshotId(notes[TARGET]) if role is RestoreRole.UNDO and notes.get(TARGET) else None
        capture_restored_state(context.unbounded(), source, role, undone=undone, paths=paths, merged=merged)
    except (EnvhistError, OSError) as error:
        yield f"{NOT_RECORDED}: {in_words(error)}"
