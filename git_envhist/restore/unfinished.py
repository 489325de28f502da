"""What a restore leaves that was killed: what it had staged before it began, or a journal that says how to go on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing

from git_envhist.disk import remove_if_present

SLOTS, AT_TOP = b"slots", b".envhist-restore"
NO_USE = ("journal.new", "phase.new", "way.new", "phase", "phase.done", "phase.undone")
"""What is half written, and what speaks of a journal that is gone."""


def sweep_staged(private: str, bases: Mapping[bytes, bytes]) -> None:
    """Throw away what one had staged: it holds room, and no more. Whoever asks holds the lock; there is no journal."""
    for name in NO_USE:
        remove_if_present(os.path.join(private, name))
    if not any(map(_is_to_go, _places(private, bases))):
        return
    from git_envhist.restore.disk import open_restore_disk  # loaded late: hardly any capture finds something
    from git_envhist.restore.finish import discard  # loaded late: likewise

    with closing(open_restore_disk(bases, private)) as door:
        discard(door)


def _is_to_go(place: bytes) -> bool:
    """Whether slots stand there, or nothing: what had to be kept stays."""
    try:
        found = os.listdir(place)
    except OSError:
        return False
    return SLOTS in found or not found


def _places(private: str, bases: Mapping[bytes, bytes]) -> list[bytes]:
    beside = [os.path.join(os.fsencode(private), b"realm-" + root.hex().encode()) for root in bases]
    return beside + [os.path.join(base, AT_TOP) for base in bases.values()]
