"""Answer whether a restore of a working tree was broken off, from the files in its state directory."""

from __future__ import annotations

import os

LEFT = ("journal", "way")
"""What stands in the directory of restores while one is not at its end."""


def restore_directory(state: str) -> str:
    """Where a restore of a working tree keeps its journal and what it has put away."""
    return os.path.join(state, "restore")


def has_unfinished_restore(state: str) -> bool:
    """Whether one was begun there that nobody ended: what stands in the working tree is neither of two moments."""
    place = restore_directory(state)
    return any(os.path.lexists(os.path.join(place, name)) for name in LEFT)
