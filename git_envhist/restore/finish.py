"""The end of a restore: what went is thrown away, but for what somebody wrote to while it was put away.

Until here nothing that stood in the environment is lost, whatever happens. What is removed now is either held by the
snapshot taken before or was staged from one, and is looked at a last time.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from git_envhist.model import TOP, Entry, EntryKind, EnvPath, LeftAlone, PlannedDirectory
from git_envhist.restore.disk import Door
from git_envhist.restore.durable import sync_changed
from git_envhist.restore.hands import open_directory
from git_envhist.restore.journal import Journal, Phase, remove_journal, set_phase
from git_envhist.restore.looks import Seen, is_same_thing, is_untouched, look
from git_envhist.restore.slots import ASIDE, Slots
from git_envhist.restore.swap import Staged


def finish(
    journal: Journal,
    door: Door,
    directory: str,
    *,
    undone: bool = False,
    last: Callable[[], None] = lambda: None,
) -> tuple[LeftAlone, ...]:
    """Throw away what a restore has put away, and its journal; what had to be kept, and where.

    `undone`: the restore was taken back. `last`: what is to be done while there is still a journal that says so. Can be
    begun again from wherever a kill left it.
    """
    sync_changed(door, journal)
    set_phase(directory, Phase.UNDONE if undone else Phase.DONE)
    kept = []
    asides = {realm: slots.asides() for realm, slots in door.realms.items()}
    for staged in journal.staged:
        is_aside = staged.slot in asides[staged.step.realm]
        place = _keep(door.slots(staged.step.realm), staged, undone, is_aside=is_aside)
        if place is not None:
            kept.append(LeftAlone(staged.step.shown, place))
    door.clear()
    _dress_tops(journal, door, lambda own: own.before if undone else own.after)
    last()
    remove_journal(directory)
    return tuple(kept)


def discard(door: Door) -> None:
    """Throw away what was staged by a restore that never began."""
    door.clear()


def _keep(slots: Slots, staged: Staged, undone: bool, *, is_aside: bool) -> str | None:
    called = staged.step.path.rpartition(b"/")[2]
    if is_aside:
        directory, name = slots.at(staged.slot)
        slots.keep_named(directory, name + ASIDE, called)
    inside = slots.look(staged.slot)
    if inside is None or _may_go(slots, staged, inside, undone):
        return None
    return os.fsdecode(slots.keep(staged.slot, called))


def _may_go(slots: Slots, staged: Staged, inside: Seen, undone: bool) -> bool:
    """Whether what lies in a slot is held by a snapshot, or was made of one and never changed."""
    if is_same_thing(inside, staged.victim):
        # After an abort it should stand at its path; that it does not means that somebody is in its place.
        assert staged.victim is not None
        return not undone and is_untouched(staged.victim, inside) and _is_bare(slots, staged.slot, inside)
    if not is_same_thing(inside, staged.new):
        return False
    assert staged.new is not None
    if inside.is_directory:
        return _is_as_staged(slots, staged)
    return is_untouched(staged.new, inside)


def _is_bare(slots: Slots, number: int, inside: Seen) -> bool:
    if not inside.is_directory:
        return True
    descriptor = _open(slots, number, inside)
    try:
        return not os.listdir(descriptor)
    finally:
        os.close(descriptor)


def _is_as_staged(slots: Slots, staged: Staged) -> bool:
    """Whether a directory that was in the environment for a while holds what it came with, and nothing else."""
    top = staged.step.path
    known = {entry.path: entry for entry in staged.step.below}
    todo = [top]
    while todo:
        path = todo.pop()
        descriptor = _open_below(slots, staged.slot, path[len(top) :].lstrip(b"/"))
        try:
            for name in map(os.fsencode, os.listdir(descriptor)):
                below = EnvPath(path + b"/" + name)
                if not _is_as_told(look(descriptor, name), known.get(below)):
                    return False
                if known[below].kind is EntryKind.DIRECTORY:
                    todo.append(below)
        finally:
            os.close(descriptor)
    return True


def _is_as_told(found: Seen | None, entry: Entry | None) -> bool:
    if found is None:
        return True
    if entry is None or found.kind is not entry.kind:
        return False
    return entry.kind is EntryKind.DIRECTORY or found.mtime_ns == entry.mtime_ns


def _open(slots: Slots, number: int, inside: Seen) -> int:
    directory, name = slots.at(number)
    if inside.mode & 0o700 != 0o700:
        slots.hands.chmod(directory, name, 0o700)
    return open_directory(directory, name)


def _open_below(slots: Slots, number: int, path: bytes) -> int:
    """A directory of what lies in a slot, opened to us on the way."""
    directory, name = slots.at(number)
    here = os.dup(directory)
    for part in [name, *path.split(b"/")] if path else [name]:
        found = look(here, part)
        if found is not None and found.mode & 0o700 != 0o700:
            slots.hands.chmod(here, part, 0o700)
        below = open_directory(here, part)
        os.close(here)
        here = below
    return here


def _dress_tops(journal: Journal, door: Door, side_of: Callable[[PlannedDirectory], Entry | None]) -> None:
    """Where the slots stood at a top, taking them away has moved its time."""
    for own in journal.directories:
        entry = side_of(own)
        if own.path == TOP and entry is not None:
            door.dress_directory(own.realm, own.path, entry, lambda what: None)
