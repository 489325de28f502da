"""Detect an interrupted restore from the files in its state directory."""

from __future__ import annotations

import os

RESTORE_FILES = ("journal", "way")
"""Files that exist while a restore is unfinished."""


def restore_directory(state: str) -> str:
    """Return the directory with the journal of a restore."""
    return os.path.join(state, "restore")


def has_unfinished_restore(state: str) -> bool:
    """Return whether a restore is unfinished: the working tree is then a mix of two snapshots."""
    place = restore_directory(state)
    return any(os.path.lexists(os.path.join(place, name)) for name in RESTORE_FILES)
