"""What is shown of a check: its output as it comes, on standard error, and what it came to."""

from __future__ import annotations

import os
from contextlib import suppress

from git_envhist.cli.command import Session
from git_envhist.cli.failure import print_error_line, warn
from git_envhist.cli.terminal import escape
from git_envhist.cli.words import first_line, seconds, symbol, verdict_cause
from git_envhist.model import Verdict, VerdictStatus
from git_envhist.verifying.watching import CheckListener

STDERR = 2


def watching(session: Session) -> CheckListener:
    """Shows a check to whoever waits for it."""
    return CheckListener(
        running=lambda command: _say_what_runs(session, command), through=_pass, waiting=_say_who_waits
    )


def verdict_line(verdict: Verdict) -> str:
    """`✓ npm test (1.2 s)`, `✗ npm test exit 1 (0.81 s)`."""
    told = verdict_cause(verdict) or first_line(verdict.command)
    if verdict.duration_ms is not None:
        told += f" ({seconds(verdict.duration_ms / 1000)})"
    if verdict.changed_something:
        told += ", it changed the environment"
    return f"{symbol(verdict)} {escape(told)}"


def warn_of(verdict: Verdict) -> None:
    """A check that did not pass costs a warning, and nothing else."""
    if verdict.status is not VerdictStatus.PASS:
        what = "the check failed" if verdict.status is VerdictStatus.FAIL else "the check could not tell"
        warn(f"{what}: {verdict_cause(verdict)}")


def _say_what_runs(session: Session, command: str) -> None:
    # What was answered so far comes before what the check says.
    session.output.flush()
    if os.isatty(STDERR):
        print_error_line(f"check: {escape(first_line(command))}")


def _pass(chunk: bytes) -> None:
    with suppress(OSError):
        view = memoryview(chunk)
        while view:
            view = view[os.write(STDERR, view) :]


def _say_who_waits() -> None:
    print_error_line("waiting for another check of this working tree to end")
