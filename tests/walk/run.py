"""Run one history, and shorten one that fails."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.walk.steps import Step
from tests.walk.world import World


@dataclass(frozen=True)
class Failure:
    """The step and the reason of a failure."""

    at: int
    """The number of the step, counted from 0; the length of the history for the check at its end."""
    message: str


def run_history(steps: list[Step], base: Path) -> Failure | None:
    """Carry out a history in a new directory; return the failure, or None."""
    directory = Path(tempfile.mkdtemp(dir=base))
    at = 0
    try:
        world = World(directory)
        for step in steps:
            world.carry_out(step)
            at += 1
        world.check_all()
    except AssertionError as wrong:
        return Failure(at, str(wrong))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return None


def shorten(
    steps: list[Step], failure: Failure, base: Path, *, tries: int = 200
) -> tuple[list[Step], Failure]:
    """Remove steps for as long as the history still fails; at most `tries` histories are run."""
    steps, size = steps[: failure.at + 1], max(1, len(steps) // 2)
    while size and tries:
        start = 0
        while start < len(steps) and tries:
            shorter = steps[:start] + steps[start + size :]
            tries -= 1
            if shorter and (found := run_history(shorter, base)) is not None:
                steps, failure = shorter[: found.at + 1], found
            else:
                start += size
        size //= 2
    return steps, failure
