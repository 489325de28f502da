"""What the end of a command says of the environment it ran in (pure): by its status alone, never by its words."""

from __future__ import annotations

from typing import NamedTuple

from git_envhist.model import Verdict, VerdictStatus

CANNOT_SAY = range(125, 128)
"""125 is how a test says that it cannot tell, as in `git bisect run`; 126 and 127 are a shell's: it could not run."""
BY_SIGNAL = range(129, 193)
"""How a shell tells of a program that a signal ended."""
NOT_JUDGED, NOT_RUN, TOOK_TOO_LONG = 125, 127, 124


class CommandExit(NamedTuple):
    """How a command ended."""

    exit_code: int | None = None
    signal: int | None = None
    duration_ms: int | None = None
    tail: bytes = b""
    too_long: bool = False
    """It was ended because it took longer than it may."""


def status_of(ended: CommandExit) -> VerdictStatus:
    """Pass is 0; an error is whatever says nothing about the environment; all else is a failure."""
    code = ended.exit_code
    if code is None or ended.too_long or ended.signal is not None:
        return VerdictStatus.ERROR
    if code in CANNOT_SAY or code in BY_SIGNAL:
        return VerdictStatus.ERROR
    return VerdictStatus.FAIL if code else VerdictStatus.PASS


def signal_of(ended: CommandExit) -> int | None:
    """The signal that ended it, also where a shell tells of that."""
    if ended.signal is None and ended.exit_code in BY_SIGNAL:
        return (ended.exit_code or 0) - 128
    return ended.signal


def exit_status(verdict: Verdict) -> int:
    """The status of the check itself, as a shell would have it."""
    if verdict.exit_code is not None:
        return verdict.exit_code
    if verdict.signal is not None:
        return 128 + verdict.signal
    return NOT_RUN


def answer_status(verdict: Verdict) -> int:
    """The status of a question about it: 0 it passes, 1 it fails, 125 it cannot be judged."""
    known = {VerdictStatus.PASS: 0, VerdictStatus.FAIL: 1}
    return known.get(verdict.status, NOT_JUDGED)
