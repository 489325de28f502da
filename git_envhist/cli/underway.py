"""What a list cannot hold yet: the capture that a hook of git has just asked for."""

from __future__ import annotations

import os
import time

from git_envhist.cli.failure import print_error_line
from git_envhist.store.repository import Repository

FRESH = 60.0
"""A mark older than that tells of a capture that waits or was given up: `git envlog status` says which."""


def report_running_capture(repository: Repository) -> None:
    """Who looks right after `git commit` is told that its moment comes."""
    if not os.path.exists(os.path.join(repository.state, "hooks", "pending")):
        return
    from git_envhist.triggers.git.outcomes import place_of, read_mark, read_outcomes  # loaded late: as said

    place = place_of(repository.state)
    mark = read_mark(place)
    if mark is None or time.time() - mark.at > FRESH:
        return
    last = read_outcomes(place)[-1:]
    if last and last[0].result == "waiting" and last[0].at >= mark.at:
        print_error_line(f"note: {last[0].message}")
    else:
        print_error_line(f"note: a capture is under way ({mark.event}), and is not in this list yet")
