"""Remove what a killed restore staged before it started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing

from git_envhist.disk import remove_if_present

SLOTS, KEPT, AT_TOP = b"slots", b"kept", b".envhist-restore"
LEFTOVERS = ("journal.new", "phase.new", "way.new", "phase", "phase.done", "phase.undone")
"""Incomplete files, and files that belong to a journal that is gone."""


def sweep_staged(private: str, bases: Mapping[bytes, bytes]) -> None:
    """Remove staged files; the caller holds the lock, and there is no journal."""
    for name in LEFTOVERS:
        remove_if_present(os.path.join(private, name))
    if not any(map(_is_removable, _places(private, bases))):
        return
    from git_envhist.restore.apply_journal import discard  # loaded late: hardly any capture finds something
    from git_envhist.restore.environment_disk import (
        open_environment_disk,
    )  # loaded late: hardly any capture finds something

    with closing(open_environment_disk(bases, private)) as disk:
        discard(disk)


def _is_removable(place: bytes) -> bool:
    """Return whether a private directory contains slots, or no file; kept files stay."""
    try:
        found = os.listdir(place)
        # A restore makes the directory of kept files before its slots.
        return SLOTS in found or not found or (found == [KEPT] and not os.listdir(os.path.join(place, KEPT)))
    except OSError:
        return False


def _places(private: str, bases: Mapping[bytes, bytes]) -> list[bytes]:
    in_private = [os.path.join(os.fsencode(private), b"realm-" + root.hex().encode()) for root in bases]
    return in_private + [os.path.join(base, AT_TOP) for base in bases.values()]
