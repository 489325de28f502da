"""The end of a restore: what went is thrown away, but for what somebody wrote to while it was put away.

Until here nothing that stood in the environment is lost, whatever happens. What is removed now is either held by the
snapshot taken before or was staged from one, and is looked at a last time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import groupby

from git_envhist.lazy import dataclass
from git_envhist.model import (
    TOP,
    Entry,
    EntryKind,
    EnvPath,
    PlanAction,
    PlannedDirectory,
    SkippedPath,
    shown_path,
)
from git_envhist.platform import list_directory
from git_envhist.restore.attributes import Lose
from git_envhist.restore.disk import RestoreDisk
from git_envhist.restore.disk_entry import DiskEntry, is_same_thing, is_untouched, look
from git_envhist.restore.fs import DiskCalls, open_directory
from git_envhist.restore.journal import Phase, RestoreJournal, remove_journal, set_phase, written_at
from git_envhist.restore.replaced import UNIT
from git_envhist.restore.slots import ASIDE, Slots
from git_envhist.restore.swap import CHANGED, GONE, Prove, StagedStep, StepSkipped, Swap, no_proof
from git_envhist.restore.sync import sync_changed, sync_kept, sync_tops

# Carries a journal out, or takes it back: both can be begun again from wherever a kill left them.
#
# First directories that are closed to us are opened; then each step's two sides change places; then the directories get
# what their own lines say, the deepest first. A step whose path is not as the plan knows it is left out and told.

OnStep = Callable[[int, int], None]
"""(steps done, steps in all)."""


def nobody_listens(done: int, total: int) -> None:
    """For callers that show no progress."""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What was left out, and what could not be had here."""

    left_alone: tuple[SkippedPath, ...]
    losses: tuple[tuple[bytes, str], ...] = ()


def apply(
    journal: RestoreJournal,
    door: RestoreDisk,
    on_step: OnStep = nobody_listens,
    *,
    fresh: bool = False,
    prove: Prove = no_proof,
) -> ApplyResult:
    """Bring the environment to the target; `fresh`: the journal was written just now, and nothing has been done.

    Else somebody may have been at work since, and what a look cannot tell is to be proven.
    """
    applier = _Applier(journal, door, fresh, prove)
    applier.open_up()
    for done, staged in enumerate(journal.staged):
        applier.forward(staged)
        on_step(done + 1, len(journal.staged))
    applier.dress(lambda own: own.after)
    return applier.applied()


def abort(journal: RestoreJournal, door: RestoreDisk, on_step: OnStep = nobody_listens) -> ApplyResult:
    """Bring the environment back to where it was."""
    applier = _Applier(journal, door, False, no_proof)
    applier.open_up()
    for done, staged in enumerate(reversed(journal.staged)):
        applier.backward(staged)
        on_step(done + 1, len(journal.staged))
    applier.dress(lambda own: own.before)
    return applier.applied()


class _Applier:
    def __init__(self, journal: RestoreJournal, door: RestoreDisk, fresh: bool, prove: Prove) -> None:
        self._journal = journal
        self._door = door
        self._fresh = fresh
        self._prove = prove
        self._left: list[SkippedPath] = []
        self._left_paths: set[tuple[bytes, EnvPath]] = set()
        self._losses: list[tuple[bytes, str]] = []
        self._broken_units: set[int] = set()
        self._units: dict[int, list[StagedStep]] = {}

    def open_up(self) -> None:
        """Let us into every directory that one of the sides closes, those above first."""
        for own in reversed(self._journal.directories):
            sides = [side for side in (own.before, own.after) if side is not None]
            if any(side.mode & 0o700 != 0o700 for side in sides):
                self._door.open_up(own.root, own.path)

    def forward(self, staged: StagedStep) -> None:
        unit = staged.step.unit
        if unit is not None and unit in self._broken_units:
            self._leave(staged, UNIT)
            return
        why = self._try(lambda: self._advance(staged))
        if why is not None:
            self._leave(staged, why)
            if unit is not None:
                self._take_back(unit)
        elif unit is not None:
            self._units.setdefault(unit, []).append(staged)

    def backward(self, staged: StagedStep) -> None:
        why = self._try(lambda: self._retreat(staged))
        if why is not None:
            self._leave(staged, why)

    def dress(self, side_of: Callable[[PlannedDirectory], Entry | None]) -> None:
        """Give the directories what their own lines say: nothing here moves their times any more."""
        for own in self._journal.directories:
            entry = side_of(own)
            if entry is None:
                # It goes; where it could not, it stays as it was.
                self._dress(own, own.before)
            elif not self._is_left(own):
                why = self._dress(own, entry)
                if why is not None:
                    self._left.append(SkippedPath(shown_path(own.root, own.path), why))

    def applied(self) -> ApplyResult:
        return ApplyResult(tuple(self._left), tuple(self._losses))

    def _advance(self, staged: StagedStep) -> None:
        if staged.step.action is PlanAction.ADJUST:
            assert staged.step.after is not None
            self._adjust(staged, staged.step.after)
        else:
            Swap(self._door, staged, self._prove).forward(strictly=self._fresh)

    def _retreat(self, staged: StagedStep) -> None:
        if staged.step.action is PlanAction.ADJUST:
            assert staged.step.before is not None
            self._adjust(staged, staged.step.before)
        else:
            Swap(self._door, staged).backward()

    def _adjust(self, staged: StagedStep, entry: Entry) -> None:
        step, known = staged.step, staged.victim
        assert known is not None
        assert step.before is not None
        assert step.after is not None
        with self._door.parent(step.root, step.path) as (directory, name):
            now = look(directory, name)
            if now is None:
                raise StepSkipped(GONE)
            if not _is_between(now, known, step.before, step.after):
                raise StepSkipped(CHANGED)
            self._door.dresser.named(directory, name, entry, self._losing(step.shown))

    def _dress(self, own: PlannedDirectory, entry: Entry | None) -> str | None:
        if entry is None:
            return None
        losing = self._losing(shown_path(own.root, own.path))
        return self._try(lambda: self._door.dress_directory(own.root, own.path, entry, losing))

    def _take_back(self, unit: int) -> None:
        """A unit of which one step cannot be made is not touched at all."""
        self._broken_units.add(unit)
        for staged in reversed(self._units.pop(unit, [])):
            why = self._try(lambda staged=staged: self._retreat(staged))  # type: ignore[misc]
            self._leave(staged, why or UNIT)

    def _try(self, do: Callable[[], None]) -> str | None:
        try:
            do()
        except StepSkipped as reason:
            return reason.why
        except OSError as error:
            return error.strerror or str(error)
        return None

    def _leave(self, staged: StagedStep, why: str) -> None:
        self._left.append(SkippedPath(staged.step.shown, why))
        self._left_paths.add((staged.step.root, staged.step.path))

    def _is_left(self, own: PlannedDirectory) -> bool:
        # What somebody else put where a directory should have come is not ours to dress.
        return own.before is None and (own.root, own.path) in self._left_paths

    def _losing(self, shown: bytes) -> Lose:
        return lambda what: self._losses.append((shown, what))


def _is_between(now: DiskEntry, known: DiskEntry, before: Entry, after: Entry) -> bool:
    """Whether it is the thing that was looked at, with some of its attributes those of one side, some of the other."""
    if (now.device, now.inode, now.kind, now.size) != (known.device, known.inode, known.kind, known.size):
        return False
    if now.kind is not EntryKind.LINK and now.links != 1:
        return False
    # Set-id bits may have been beyond us, and a closed file is opened while its attributes are set.
    modes = {mode & 0o1777 for mode in (before.mode, after.mode, before.mode | 0o200)}
    return now.mtime_ns in (before.mtime_ns, after.mtime_ns, known.mtime_ns) and now.mode & 0o1777 in modes


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
    asides = {root: slots.asides() for root, slots in door.roots.items()}
    for staged in journal.staged:
        is_aside = staged.slot in asides[staged.step.root]
        slots = door.slots(staged.step.root)
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
            door.dress_directory(own.root, own.path, entry, lambda what: None)
