"""`git envrestore --continue` and `--abort`: the end of a restore that was broken off."""

from __future__ import annotations

import os

from git_envhist.cli.command import Session
from git_envhist.cli.failure import warn
from git_envhist.errors import UsageError
from git_envhist.restoring.wish import STOPPED

NOT_EXACT = 5


def end(session: Session, mode: str, revision: str | None, spelled: str) -> int:
    """Finish what was broken off, or take it back."""
    if revision is not None:
        raise UsageError(f"nothing is expected behind {spelled}: '{revision}'")
    going = session.history.going
    carried = going.finish() if mode == "go_on" else going.take_back()
    session.done("the restore is taken back" if carried.undone else "the restore is finished")
    for item in (*carried.kept, *carried.losses):
        warn(f"'{os.fsdecode(item.path) or '.'}': {item.why}")
    stopped = dict(carried.notes).get(STOPPED)
    if stopped:
        warn(f"services were stopped for that restore, and still are: {stopped}")
    if session.json:
        from git_envhist.cli.jsonrestore import ended_json  # loaded late: only --json needs it

        session.print_json(ended_json(carried))
    elif carried.undone:
        session.line("taken back: the environment is as it was before the restore")
    else:
        session.line("finished; go back with: git envrestore --undo")
    return 0 if not carried.kept and not carried.losses else NOT_EXACT
