"""A command between two moments: what was there before, what it wrote and how it ended, and what is there after it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from git_envhist.capture.masking import mask_text
from git_envhist.errors import EnvhistError, in_words
from git_envhist.history.timeline import subject
from git_envhist.model import CaptureResult, RunResult, Trigger
from git_envhist.triggers.passing import HeadAndTail, Take

if TYPE_CHECKING:
    from git_envhist.capturing.request import CaptureKeywords

Capture = Callable[[str, "CaptureKeywords"], CaptureResult]
"""Takes a snapshot with this intent."""
Through = Callable[[Sequence[str], Take], int]
"""Runs a command and gives what it writes to whoever keeps it; its status."""
LONGEST = 1000
"""So much of a command line stands with the moment."""
OUTPUT = "output"
"""What the command wrote is kept under this name."""
NOT_CAPTURED = "what came after the command is not captured"


def run_with_snapshots(
    capture: Capture, words: Sequence[str], intent: str | None, verify: str | None, through: Through
) -> RunResult:
    """Capture, run a command, capture again; `through` runs it and gives its status.

    Nothing is run where the moment before it cannot be had: it is what the command may destroy. Whatever becomes of the
    moment after it, the command's status is the answer.
    """
    command = mask_text(shlex.join(words))[:LONGEST]
    intent = intent or command
    before = capture(f"before: {subject(intent)}", {"trigger": Trigger.RUN, "if_changed": True, "verify": ""})
    kept, started = HeadAndTail(), time.monotonic()
    status = through(words, kept.take)
    duration = round((time.monotonic() - started) * 1000)
    text = kept.text
    asked: CaptureKeywords = {
        "trigger": Trigger.RUN,
        "verify": verify,
        "meta": (("command", command), ("exit", str(status)), ("duration-ms", str(duration))),
        "attached": ((OUTPUT, text),) if text else (),
    }
    try:
        return RunResult(status, before, capture(intent, asked), (), text)
    except (EnvhistError, OSError) as error:
        return RunResult(status, before, None, (f"{NOT_CAPTURED}: {in_words(error)}",), text)
