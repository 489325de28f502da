"""The end of a restore: what went is thrown away, but for what somebody wrote to while it was put away.

Until here nothing that stood in the environment is lost, whatever happens. What is removed now is either held by the
snapshot taken before or was staged from one, and is looked at a last time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import groupby

from git_envhist.model import TOP, Entry, EntryKind, EnvPath, PlannedDirectory, SkippedPath
from git_envhist.restore.disk import RestoreDisk
from git_envhist.restore.durable import sync_changed, sync_kept, sync_tops
from git_envhist.restore.hands import DiskCalls, open_directory
from git_envhist.restore.journal import Phase, RestoreJournal, remove_journal, set_phase, written_at
from git_envhist.restore.looks import DiskEntry, is_same_thing, is_untouched, look
from git_envhist.restore.slots import ASIDE, Slots
from git_envhist.restore.swap import Prove, StagedStep
from git_envhist.system import list_directory


def finish(
    journal: RestoreJournal,
    door: RestoreDisk,
    directory: str,
    *,
    undone: bool = False,
    last: Callable[[], None] = lambda: None,
    prove: Prove | None = None,
) -> tuple[SkippedPath, ...]:
    """Throw away what a restore has put away, and its journal; what had to be kept, and where.

    `undone`: the restore was taken back. `last`: what is to be done while there is still a journal that says so.
    `prove`: what goes is held to the bytes that were saved of it. Can be begun again from wherever a kill left it.
    """
    sync_changed(door, journal)
    set_phase(directory, Phase.UNDONE if undone else Phase.DONE)
    kept, begun = [], written_at(directory)
    asides = {realm: slots.asides() for realm, slots in door.realms.items()}
    for staged in journal.staged:
        is_aside = staged.slot in asides[staged.step.realm]
        slots = door.slots(staged.step.realm)
        if is_aside:
            _keep_aside(slots, staged)
        if not _is_gone(slots, staged, undone, begun, prove):
            kept.append(SkippedPath(staged.step.shown, _keep(slots, staged)))
    if kept or any(asides.values()):
        # Once the journal is gone, what still lies in a slot is nobody's.
        sync_kept(door)
    door.clear()
    _dress_tops(journal, door, lambda own: own.before if undone else own.after)
    sync_tops(door)
    last()
    remove_journal(directory)
    return tuple(kept)


def discard(door: RestoreDisk) -> None:
    """Throw away what was staged by a restore that never began."""
    door.clear()


def _keep_aside(slots: Slots, staged: StagedStep) -> None:
    directory, name = slots.at(staged.slot)
    slots.keep_named(directory, name + ASIDE, _called(staged))


def _keep(slots: Slots, staged: StagedStep) -> str:
    return os.fsdecode(slots.keep(staged.slot, _called(staged)))


def _called(staged: StagedStep) -> bytes:
    return staged.step.path.rpartition(b"/")[2]


def _is_gone(slots: Slots, staged: StagedStep, undone: bool, begun: int, prove: Prove | None) -> bool:
    """Whether what lies in a slot may be thrown away: a snapshot holds it, or it was made of one and never changed.

    Directories are gone then: whoever stands in one can still put something there, until it is.
    """
    inside = slots.look(staged.slot)
    if inside is None:
        return True
    if is_same_thing(inside, staged.victim):
        # After an abort it should stand at its path; that it does not means that somebody is in its place.
        assert staged.victim is not None
        if undone or not is_untouched(staged.victim, inside):
            return False
        if inside.is_directory:
            return _is_removed(slots.hands, *slots.at(staged.slot))
        return _is_as_saved(slots, staged, prove)
    if not is_same_thing(inside, staged.new):
        return False
    assert staged.new is not None
    if inside.is_directory:
        return _is_as_staged(slots, staged, begun) and _is_taken_apart(slots, staged)
    return is_untouched(staged.new, inside)


def _is_as_saved(slots: Slots, staged: StagedStep, prove: Prove | None) -> bool:
    """Whoever has a file mapped may write to it and move no time."""
    before = staged.step.before
    # What was read from a database at work need not be its bytes.
    if prove is None or before is None or before.notes:
        return True
    return prove(staged.step, *slots.at(staged.slot))


def _is_removed(hands: DiskCalls, directory: int, name: bytes) -> bool:
    """Remove a directory; False where something is in it."""
    try:
        hands.rmdir(directory, name)
    except OSError:
        return False
    return True


def _is_as_staged(slots: Slots, staged: StagedStep, begun: int) -> bool:
    """Whether a directory that was in the environment for a while holds what it came with, and nothing else."""
    top = staged.step.path
    known = {entry.path: entry for entry in staged.step.below}
    todo = [top]
    while todo:
        path = todo.pop()
        descriptor = _open_below(slots, staged.slot, path[len(top) :].lstrip(b"/"))
        try:
            for name in list_directory(descriptor):
                below = EnvPath(path + b"/" + name)
                if not _is_as_told(look(descriptor, name), known.get(below), begun):
                    return False
                if known[below].kind is EntryKind.DIRECTORY:
                    todo.append(below)
        finally:
            os.close(descriptor)
    return True


def _is_as_told(found: DiskEntry | None, entry: Entry | None, begun: int) -> bool:
    if found is None:
        return True
    if entry is None or found.kind is not entry.kind:
        return False
    if entry.kind is EntryKind.DIRECTORY:
        return True
    # One name less of a file moves the time of the others.
    untouched = found.ctime_ns <= begun or entry.link_group is not None
    return untouched and found.mtime_ns == entry.mtime_ns


def _is_taken_apart(slots: Slots, staged: StagedStep) -> bool:
    """Remove a directory, name by name what it came with; False where something else is in it, which is left then."""
    cut = len(staged.step.path) + 1
    # Whatever stands in a directory comes behind it.
    for path, entries in groupby(
        reversed(staged.step.below), lambda entry: entry.path[cut:].rpartition(b"/")[0]
    ):
        try:
            directory = _open_below(slots, staged.slot, path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # somebody was quicker
        try:
            for entry in entries:
                _take_away(slots.hands, directory, entry)
        finally:
            os.close(directory)
    return _is_removed(slots.hands, *slots.at(staged.slot))


def _take_away(hands: DiskCalls, directory: int, entry: Entry) -> None:
    name = entry.path.rpartition(b"/")[2]
    found = look(directory, name)
    if found is None or found.kind is not entry.kind:
        return
    if found.is_directory:
        _is_removed(hands, directory, name)
    elif found.mtime_ns == entry.mtime_ns:
        hands.unlink(directory, name)


def _open_below(slots: Slots, number: int, path: bytes) -> int:
    """A directory of what lies in a slot, opened to us on the way."""
    directory, name = slots.at(number)
    here = os.dup(directory)
    for part in [name, *path.split(b"/")] if path else [name]:
        try:
            found = look(here, part)
            if found is not None and found.mode & 0o700 != 0o700:
                slots.hands.chmod(here, part, 0o700)
            below = open_directory(here, part)
        finally:
            os.close(here)
        here = below
    return here


def _dress_tops(
    journal: RestoreJournal, door: RestoreDisk, side_of: Callable[[PlannedDirectory], Entry | None]
) -> None:
    """Where the slots stood at a top, taking them away has moved its time."""
    for own in journal.directories:
        entry = side_of(own)
        if own.path == TOP and entry is not None:
            door.dress_directory(own.realm, own.path, entry, lambda what: None)
