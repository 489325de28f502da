"""The lock of a running `git envlog watch`: one per working tree."""

from __future__ import annotations

import os

from git_envhist.errors import EnvhistError
from git_envhist.store.locks import locked_now

NAME = "watch"


def watch_lock(state: str) -> str:
    """Return the path of the lock file."""
    return os.path.join(state, NAME)


def is_watched(state: str) -> bool:
    """Return whether a process watches a working tree; nothing is created."""
    path = watch_lock(state)
    if not os.path.isfile(path):
        return False
    try:
        with locked_now(path) as mine:
            return not mine
    except (OSError, EnvhistError):
        return False
