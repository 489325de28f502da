"""The programs: parse, call the API, show."""

from __future__ import annotations

import os
import signal
import sys


def _end_silently_until_heard() -> None:
    """Until `entry` listens, Ctrl-C ends a program of ours as it ends one in C: without a word."""
    name = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    # A host program, or a test, that imports this has ways of its own.
    if name.startswith("git-env") and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def hear_interrupts() -> None:
    """From here on Ctrl-C is told to the code that runs."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_end_silently_until_heard()
