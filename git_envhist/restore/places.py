"""Whether a journal speaks of what is here: the numbers of devices are given anew at every mount, those of files stay.

What changed places is told by its number. Where a journal was copied along with an environment, or where a file system
numbers its files anew, these tell nothing, and nobody may go by them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from git_envhist.restore.disk import RestoreDisk
from git_envhist.restore.journal import RestoreJournal, SlotLocation
from git_envhist.restore.looks import DiskEntry
from git_envhist.restore.swap import StagedStep
from git_envhist.values import replace


def spots_of(door: RestoreDisk) -> tuple[SlotLocation, ...]:
    """Where the slots of each realm stand."""
    found = {realm: os.fstat(slots.private) for realm, slots in door.realms.items()}
    return tuple(SlotLocation(realm, seen.st_dev, seen.st_ino) for realm, seen in sorted(found.items()))


def with_current_devices(journal: RestoreJournal, door: RestoreDisk) -> RestoreJournal | None:
    """The journal with the numbers that the devices have now; None where it was not written here."""
    here = {spot.realm: spot for spot in spots_of(door)}
    now: dict[int, int] = {}
    for spot in journal.spots:
        there = here.get(spot.realm)
        # A root that is configured no more is missed by its own steps.
        if there is not None and spot.inode != there.inode:
            return None
        if there is not None:
            now[spot.device] = there.device
    if all(before == device for before, device in now.items()):
        return journal
    return replace(journal, staged=tuple(_renumbered(staged, now) for staged in journal.staged))


def _renumbered(staged: StagedStep, now: Mapping[int, int]) -> StagedStep:
    return replace(staged, new=_seen(staged.new, now), victim=_seen(staged.victim, now))


def _seen(seen: DiskEntry | None, now: Mapping[int, int]) -> DiskEntry | None:
    return None if seen is None else seen._replace(device=now.get(seen.device, seen.device))
