"""Compare the check of a merged environment with the checks of its two sides."""

from __future__ import annotations

from git_envhist.context import HistoryContext
from git_envhist.errors import SnapshotNotFound
from git_envhist.model import CheckResult, RestoreResult, Snapshot, VerdictStatus


def merged_check_warning(history: HistoryContext, merged: RestoreResult, checked: CheckResult) -> str | None:
    """Return a warning if a check passed on both sides and does not pass on the result, else None."""
    if checked.verdict.status is VerdictStatus.PASS or merged.safety is None:
        return None
    if not (_passed(history, merged.safety) and _passed(history, merged.target)):
        return None
    return (
        f"a check passed in {merged.safety.id[:7]} (your files before) and in {merged.target.id[:7]}, "
        "but not in both together; to go back: git envrestore --undo"
    )


def _passed(history: HistoryContext, snapshot: Snapshot) -> bool:
    """Return whether the newest check of this state passed; unsigned results do not count."""
    try:
        found = history.judge(history.resolve(snapshot.id))
    except SnapshotNotFound:
        found = snapshot
    same = [one for one in history.log() if one.content == found.content]
    verdicts = [one.verdict for one in (found, *same) if one.verdict is not None]
    return bool(verdicts) and verdicts[0].status is VerdictStatus.PASS and verdicts[0].claimed_by is None
