"""The command line programs: parse the words, call the API, print the result."""

from __future__ import annotations

import os
import signal
import sys
import time

ECHO_SECONDS = 1.0
"""Seconds in which a second signal is an echo: the terminal and `git` both signal `git envlog`."""
_received: dict[int, float] = {}


def _use_default_interrupts() -> None:
    """Let Ctrl-C end the program silently until `main` handles it."""
    name = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    # A host program, or a test, that imports this package keeps its own handler.
    if name.startswith("git-env") and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def enable_interrupts() -> None:
    """Raise KeyboardInterrupt at Ctrl-C from now on."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, _interrupt)


def is_repeated_signal(number: int) -> bool:
    """Return whether a signal repeats one received just before, so that cleaning up is not interrupted."""
    now = time.monotonic()
    if number in _received and now - _received[number] < ECHO_SECONDS:
        return True
    _received[number] = now
    return False


def _interrupt(number: int, frame: object) -> None:
    if not is_repeated_signal(number):
        raise KeyboardInterrupt


_use_default_interrupts()
