"""What to type next: one hint, which `advice.envhist<Word>` switches off, as with git's own.

After what went well it is said to a person only, where standard error is a terminal: a script has no use for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from git_envhist.cli.failure import print_error_line

if TYPE_CHECKING:
    from git_envhist.cli.command import Session
    from git_envhist.model import CaptureResult, Verdict

CAPTURE = "envhistCapture"
"""After a capture."""
VERDICT = "envhistVerdict"
"""After a check that did not pass."""
RESTORE = "envhistRestore"
"""How to come back from a restore."""
EMPTY = "envhistEmpty"
"""How to take the first snapshot."""
REFUSAL = "envhistRefusal"
"""The option that overrides what was refused."""
KEYS = (CAPTURE, VERDICT, RESTORE, EMPTY, REFUSAL)
NO = ("false", "no", "off", "0", "")
STDERR = 2


def is_wanted(session: Session, key: str) -> bool:
    """Whether a hint is to be given: GIT_ADVICE for all of them, the configuration for each."""
    if os.environ.get("GIT_ADVICE", "1").lower() in NO:
        return False
    said = dict(session.history.repository.read_config()).get(f"advice.{key.lower()}", "true")
    return said is None or said.lower() not in NO


def print_hint(session: Session, key: str, text: str | Callable[[], str]) -> None:
    """Give the hint, and say how to be rid of it."""
    if session.json or not is_wanted(session, key):
        return
    session.output.flush()
    print_error_line(f"hint: {text if isinstance(text, str) else text()}")
    if os.isatty(STDERR):
        print_error_line(f"hint: (not again: git config --global advice.{key} false)")


def hint_if_empty(session: Session) -> None:
    """How to begin, where a list is empty because nothing was captured."""
    if not session.history.log(limit=1) and is_wanted(session, EMPTY):
        from git_envhist.history.hints import (
            nothing_captured,
        )  # loaded late: nearly every history holds something

        print_error_line(f"hint: {nothing_captured(session.history.world)}")


def after_capture(session: Session, captured: CaptureResult) -> None:
    """Where one can go from a moment that was just taken."""
    if captured.snapshot is None or captured.verdict is not None or not os.isatty(STDERR):
        return
    back = f"back to it at any time: git envrestore {captured.snapshot.id[:7]}"
    more = "'git envlog' lists the moments" if captured.first else "what changes from here: git envdiff"
    print_hint(session, CAPTURE, f"{back}; {more}")


def after_verdict(session: Session, verdict: Verdict) -> None:
    """How to find what broke it."""
    from git_envhist.history.timeline import by_verdict  # loaded late: most checks pass
    from git_envhist.model import VerdictStatus  # loaded late: likewise

    if verdict.status is VerdictStatus.PASS:
        return

    def words() -> str:
        if by_verdict(session.history.world.own, VerdictStatus.PASS):
            return "what changed since it last passed: git envdiff good; which moment broke it: git envlog bisect"
        return "what it said: git envlog show; what changed before: git envdiff @~1..@"

    print_hint(session, VERDICT, words)
