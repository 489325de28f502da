"""What is said to whoever stops a restore."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from git_envhist.cli.command import Session
from git_envhist.errors import Interrupted
from git_envhist.model import Snapshot


@contextmanager
def stoppable(session: Session, meant: Snapshot | None = None) -> Iterator[None]:
    """Whoever stops a restore is told what became of it; half way, its journal says so.

    What was saved before that is the newest moment then: who says `@` once more would mean that.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        number = getattr(stopped, "number", signal.SIGINT)
        safety = session.history.going.changed
        if safety is None:
            hint = (
                f"again with: git envrestore {meant.id[:7]} ('@' is what was saved here, by now)"
                if meant
                else None
            )
            raise Interrupted(number, hint=hint) from stopped
        raise Interrupted(
            number,
            "the files are restored, but not all that goes with them",
            hint=f"what was here before: git envrestore {safety.id[:7]}",
        ) from stopped
