"""State about timelines of a repository: timelines with an unreadable tip, and new ids of rewritten commits.

Two files in the common state: `left-behind` lists timelines with an unreadable tip, and `rewritten` maps old commits to
the commits that replaced them.
"""

from __future__ import annotations

import os
from contextlib import suppress

from git_envhist.disk import (
    Durability,
    append_line,
    cannot_write,
    state_directory,
)
from git_envhist.platform import open_file_only

# Timelines that were restarted because their tip could not be read. Older snapshots may still exist; no ref leads to
# them, so for git they are garbage. Until a repair has recovered them nothing of them is deleted.

RESTARTED_FILE = "left-behind"


def read_restarted(common_state: str) -> list[str]:
    """Return the names of the restarted timelines."""
    try:
        with open(
            os.path.join(common_state, RESTARTED_FILE),
            encoding="utf-8",
            errors="replace",
            opener=open_file_only,
        ) as file:
            return list(dict.fromkeys(file.read().split()))
    except OSError:
        return []


def record_restarted(common_state: str, timeline: str) -> None:
    """Add a timeline, durably, before its ref moves."""
    path = os.path.join(state_directory(common_state), RESTARTED_FILE)
    try:
        append_line(path, os.fsencode(timeline), durability=Durability.FULL)
    except OSError as error:
        raise cannot_write(error, path) from error


def clear_restarted(common_state: str) -> None:
    """Delete the list: nothing is missing from any timeline."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(common_state, RESTARTED_FILE))
