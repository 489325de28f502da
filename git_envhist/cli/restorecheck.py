"""The check after a restore: what the moment was judged by is run on what came of it, and undo is offered."""

from __future__ import annotations

import os
import sys

from git_envhist.cli.checking import verdict_line, warn_of, watching
from git_envhist.cli.command import Session
from git_envhist.cli.failure import ask_for, print_error_line, warn
from git_envhist.cli.progress import shown_progress
from git_envhist.cli.restoreview import WAY_BACK
from git_envhist.model import CheckResult, RestoreResult, VerdictStatus
from git_envhist.restoring.wish import RestoreOptions
from git_envhist.verifying.outcome import answer_status

YES = ("y", "yes")


def check(session: Session, restored: RestoreResult, command: str) -> CheckResult:
    """Run it; whatever it says of itself goes to standard error."""
    return session.history.checks.after_restore(restored, command, watching(session))


def tell_check(session: Session, checked: CheckResult, restored: RestoreResult, status: int) -> int:
    """Say what it came to, offer the way back where it did not pass; the status to end with."""
    for warning in checked.warnings:
        warn(warning)
    if checked.verdict.status is VerdictStatus.PASS:
        if not session.json:
            session.line(verdict_line(checked.verdict))
        return status
    warn_of(checked.verdict)
    if restored.safety is None:
        return answer_status(checked.verdict)
    if not session.json and _is_wanted(session):
        with shown_progress("reading what is here") as progress:
            undone = session.history.going.undo(1, RestoreOptions(progress=progress))
        session.line(f"taken back: the environment is as it was, {undone.target.id[:7]}")
    else:
        print_error_line(f"hint: take it back: {WAY_BACK}")
    return answer_status(checked.verdict)


def _is_wanted(session: Session) -> bool:
    """Whether somebody who was asked says yes."""
    if not (os.isatty(0) and os.isatty(2)):
        return False
    session.output.flush()
    ask_for("take the restore back? [y/N] ")
    return sys.stdin.readline().strip().lower() in YES
