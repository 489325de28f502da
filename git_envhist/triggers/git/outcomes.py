"""What hooks left to do, and what came of it: a mark and a short log in the git directory of the working tree.

The mark is written before anything else and goes when a capture holds what it stands for: whatever kills a worker, the
next hook makes up for it. The log is bounded; it is written by the worker that holds the lock, and may be lost.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any

from git_envhist.model.causing import HookRun, PendingHook
from git_envhist.store.locks import state_directory
from git_envhist.system import open_file_only

MOST = 50
"""So many outcomes are kept."""
LONGEST = 500
"""So much is kept of what went wrong."""


UNREADABLE = (0, 0)


def place_of(state: str) -> str:
    """The directory of hooks in a working tree's state."""
    return os.path.join(state, "hooks")


def leave_mark(place: str, event: str) -> None:
    """Say that a capture is wanted."""
    state_directory(place)
    new = os.path.join(place, f"pending.{os.getpid()}")
    with open(new, "w", encoding="ascii") as file:
        json.dump([event, time.time()], file)
    os.rename(new, os.path.join(place, "pending"))


def read_mark(place: str) -> PendingHook | None:
    """The latest mark that nobody has answered."""
    path = os.path.join(place, "pending")
    try:
        with open(path, encoding="ascii", opener=open_file_only) as file:
            seen = os.fstat(file.fileno())
            event, at = json.load(file)
        return PendingHook(str(event), float(at), (seen.st_ino, seen.st_mtime_ns))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        # A mark that cannot be read wants a capture all the same.
        return PendingHook("post-commit", time.time(), UNREADABLE) if os.path.exists(path) else None


def take_mark(place: str, mark: PendingHook) -> bool:
    """Remove a mark that was answered; False where a newer one has come."""
    path, taken = os.path.join(place, "pending"), os.path.join(place, "taken")
    with suppress(FileNotFoundError):
        # Out of the way first, then looked at: what comes between the two is not removed for the one before.
        os.rename(path, taken)
        seen = os.stat(taken)
        newer = mark.seen not in (UNREADABLE, (seen.st_ino, seen.st_mtime_ns))
        if newer:
            with suppress(FileExistsError):
                os.link(taken, path)
        os.unlink(taken)
        return not newer
    return True


def write_outcome(place: str, outcome: HookRun) -> None:
    """Add to the log; the oldest go."""
    rows = [_row(one) for one in read_outcomes(place)[-(MOST - 1) :]]
    text = "".join(json.dumps(row) + "\n" for row in [*rows, _row(outcome)])
    path = os.path.join(place, "log")
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(f"{path}.new", path)


def read_outcomes(place: str) -> tuple[HookRun, ...]:
    """The log, oldest first; a line that cannot be read is passed over."""
    try:
        with open(
            os.path.join(place, "log"), encoding="utf-8", errors="replace", opener=open_file_only
        ) as file:
            lines = file.read().splitlines()
    except OSError:
        return ()
    return tuple(outcome for line in lines if (outcome := _read(line)) is not None)


def _row(outcome: HookRun) -> dict[str, Any]:
    row = {name: getattr(outcome, name) for name in ("event", "at", "result", "seconds", "snapshot")}
    return {**row, "message": outcome.message[:LONGEST], "hint": outcome.hint[:LONGEST]}


def _read(line: str) -> HookRun | None:
    try:
        row = json.loads(line)
        texts = {name: str(row[name]) for name in ("event", "result", "message", "hint")}
        snapshot = row["snapshot"]
        return HookRun(
            at=float(row["at"]),
            seconds=float(row["seconds"]),
            snapshot=None if snapshot is None else str(snapshot),
            **texts,
        )
    except (ValueError, KeyError, TypeError):
        return None
