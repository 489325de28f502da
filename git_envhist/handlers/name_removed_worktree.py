"""Name the last snapshot of a worktree that an agent removes, so that its state can be found."""

from __future__ import annotations

import os
import re

from git_envhist.api import EnvHistory
from git_envhist.errors import Refused, SnapshotNotFound
from git_envhist.model import Snapshot

MAX_NAME = 60
REMOVED = "removed-"
MAX_TRIES = 100


def name_removed_worktree(history: EnvHistory, directory: str, snapshot: Snapshot | None) -> str:
    """Give the snapshot, or the newest one, the name `removed-<directory>`; return the name."""
    name = _free_name(history, f"{REMOVED}{worktree_slug(os.path.basename(directory))}")
    history.name(name, snapshot or "@")
    return name


def worktree_slug(value: object) -> str:
    """Return a word for names of branches, directories and snapshots."""
    text = value if isinstance(value, str) else ""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:MAX_NAME].strip("-") or "worktree"


def _free_name(history: EnvHistory, base: str) -> str:
    """Return a name that no snapshot has."""
    for number in range(1, MAX_TRIES):
        name = base if number == 1 else f"{base}-{number}"
        try:
            history.resolve(name)
        except SnapshotNotFound:
            return name
    raise Refused(f"too many snapshots are called '{base}'", hint="git envlog name -d <name>")
