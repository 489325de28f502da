"""The programs: parse, call the API, show."""

from __future__ import annotations

import os
import signal
import sys
import time

ONCE = 1.0
"""Seconds. `git envlog` has what is typed at a terminal from there, and from git, which passes it on."""
_heard: dict[int, float] = {}


def _end_silently_until_heard() -> None:
    """Until `entry` listens, Ctrl-C ends a program of ours as it ends one in C: without a word."""
    name = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    # A host program, or a test, that imports this has ways of its own.
    if name.startswith("git-env") and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def hear_interrupts() -> None:
    """From here on Ctrl-C is told to the code that runs."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, _interrupt)


def is_echo(number: int) -> bool:
    """Whether a signal only says again what was heard just now: whoever clears up because of it is not broken off."""
    now = time.monotonic()
    if number in _heard and now - _heard[number] < ONCE:
        return True
    _heard[number] = now
    return False


def _interrupt(number: int, frame: object) -> None:
    if not is_echo(number):
        raise KeyboardInterrupt


_end_silently_until_heard()
