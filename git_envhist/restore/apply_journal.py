"""Carry out a journal step by step, undo it, and clean up afterwards.

`apply` and `abort` make directories accessible, swap the two sides of each step, then set the attributes of
directories, deepest first; a step whose path is not as planned is skipped and reported. `finish` removes the replaced
files and the journal: until then no file of the environment is lost. All of them can be started again after a kill.
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
from git_envhist.restore.check_replaced import UNIT
from git_envhist.restore.disk_calls import DiskCalls, open_directory
from git_envhist.restore.disk_entry import DiskEntry, is_same_file, is_unchanged, stat_entry
from git_envhist.restore.environment_disk import EnvironmentDisk
from git_envhist.restore.journal import Phase, RestoreJournal, remove_journal, set_phase, written_at
from git_envhist.restore.set_metadata import Lose
from git_envhist.restore.slots import ASIDE, Slots
from git_envhist.restore.swap import (
    CHANGED,
    GONE,
    ContentCheck,
    StagedStep,
    StepSkipped,
    Swap,
    no_content_check,
)
from git_envhist.restore.sync import sync_changed, sync_kept, sync_roots_with_slots

OnStep = Callable[[int, int], None]
"""Called with the number of completed steps and of all steps."""


def no_progress(done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The skipped paths, and metadata that could not be set."""

    skipped: tuple[SkippedPath, ...]
    losses: tuple[tuple[bytes, str], ...] = ()


def apply(
    journal: RestoreJournal,
    disk: EnvironmentDisk,
    on_step: OnStep = no_progress,
    *,
    fresh: bool = False,
    check_content: ContentCheck = no_content_check,
) -> ApplyResult:
    """Execute the steps; `fresh`: the journal has just been written, and nothing was done yet.

    Otherwise other processes may have changed files since, and `check_content` compares what stat data cannot show.
    """
    applier = _Applier(journal, disk, fresh, check_content)
    applier.make_accessible()
    for done, staged in enumerate(journal.staged):
        applier.forward(staged)
        on_step(done + 1, len(journal.staged))
    applier.set_attributes(lambda own: own.after)
    return applier.applied()


def abort(journal: RestoreJournal, disk: EnvironmentDisk, on_step: OnStep = no_progress) -> ApplyResult:
    """Undo the steps."""
    applier = _Applier(journal, disk, False, no_content_check)
    applier.make_accessible()
    for done, staged in enumerate(reversed(journal.staged)):
        applier.backward(staged)
        on_step(done + 1, len(journal.staged))
    applier.set_attributes(lambda own: own.before)
    return applier.applied()


class _Applier:
    def __init__(
        self, journal: RestoreJournal, disk: EnvironmentDisk, fresh: bool, check_content: ContentCheck
    ) -> None:
        self._journal = journal
        self._disk = disk
        self._fresh = fresh
        self._check_content = check_content
        self._skipped: list[SkippedPath] = []
        self._skipped_paths: set[tuple[bytes, EnvPath]] = set()
        self._losses: list[tuple[bytes, str]] = []
        self._broken_units: set[int] = set()
        self._units: dict[int, list[StagedStep]] = {}

    def make_accessible(self) -> None:
        """Make every directory accessible that one of the sides closes, parents first."""
        for own in reversed(self._journal.directories):
            sides = [side for side in (own.before, own.after) if side is not None]
            if any(side.mode & 0o700 != 0o700 for side in sides):
                self._disk.make_accessible(own.root, own.path)

    def forward(self, staged: StagedStep) -> None:
        unit = staged.step.unit
        if unit is not None and unit in self._broken_units:
            self._skip(staged, UNIT)
            return
        reason = self._try(lambda: self._swap_forward(staged))
        if reason is not None:
            self._skip(staged, reason)
            if unit is not None:
                self._undo_unit(unit)
        elif unit is not None:
            self._units.setdefault(unit, []).append(staged)

    def backward(self, staged: StagedStep) -> None:
        reason = self._try(lambda: self._swap_backward(staged))
        if reason is not None:
            self._skip(staged, reason)

    def set_attributes(self, side_of: Callable[[PlannedDirectory], Entry | None]) -> None:
        """Set the attributes of directories, after which no step changes their mtimes."""
        for own in self._journal.directories:
            entry = side_of(own)
            if entry is None:
                # A directory to be removed; if that failed, it keeps its attributes.
                self._try_attributes(own, own.before)
            elif not self._is_skipped(own):
                reason = self._try_attributes(own, entry)
                if reason is not None:
                    self._skipped.append(SkippedPath(shown_path(own.root, own.path), reason))

    def applied(self) -> ApplyResult:
        return ApplyResult(tuple(self._skipped), tuple(self._losses))

    def _swap_forward(self, staged: StagedStep) -> None:
        if staged.step.action is PlanAction.ADJUST:
            assert staged.step.after is not None
            self._adjust(staged, staged.step.after)
        else:
            Swap(self._disk, staged, self._check_content).forward(strictly=self._fresh)

    def _swap_backward(self, staged: StagedStep) -> None:
        if staged.step.action is PlanAction.ADJUST:
            assert staged.step.before is not None
            self._adjust(staged, staged.step.before)
        else:
            Swap(self._disk, staged).backward()

    def _adjust(self, staged: StagedStep, entry: Entry) -> None:
        step, known = staged.step, staged.replaced
        assert known is not None
        assert step.before is not None
        assert step.after is not None
        with self._disk.parent(step.root, step.path) as (directory, name):
            now = stat_entry(directory, name)
            if now is None:
                raise StepSkipped(GONE)
            if not _is_between(now, known, step.before, step.after):
                raise StepSkipped(CHANGED)
            self._disk.setter.named(directory, name, entry, self._lose(step.shown))

    def _try_attributes(self, own: PlannedDirectory, entry: Entry | None) -> str | None:
        if entry is None:
            return None
        lose = self._lose(shown_path(own.root, own.path))
        return self._try(lambda: self._disk.set_directory_attributes(own.root, own.path, entry, lose))

    def _undo_unit(self, unit: int) -> None:
        """Undo the other steps of a unit that has a skipped step."""
        self._broken_units.add(unit)
        for staged in reversed(self._units.pop(unit, [])):
            reason = self._try(lambda staged=staged: self._swap_backward(staged))  # type: ignore[misc]
            self._skip(staged, reason or UNIT)

    def _try(self, do: Callable[[], None]) -> str | None:
        try:
            do()
        except StepSkipped as skip:
            return skip.reason
        except OSError as error:
            return error.strerror or str(error)
        return None

    def _skip(self, staged: StagedStep, reason: str) -> None:
        self._skipped.append(SkippedPath(staged.step.shown, reason))
        self._skipped_paths.add((staged.step.root, staged.step.path))

    def _is_skipped(self, own: PlannedDirectory) -> bool:
        # An entry of another process in the place of a new directory is not changed.
        return own.before is None and (own.root, own.path) in self._skipped_paths

    def _lose(self, shown: bytes) -> Lose:
        return lambda what: self._losses.append((shown, what))


def _is_between(now: DiskEntry, known: DiskEntry, before: Entry, after: Entry) -> bool:
    """Return whether this is the checked entry, with attributes of one side or the other."""
    if (now.device, now.inode, now.kind, now.size) != (known.device, known.inode, known.kind, known.size):
        return False
    if now.kind is not EntryKind.LINK and now.links != 1:
        return False
    # Set-id bits may not have been permitted, and a file may be writable while its attributes are set.
    modes = {mode & 0o1777 for mode in (before.mode, after.mode, before.mode | 0o200)}
    return now.mtime_ns in (before.mtime_ns, after.mtime_ns, known.mtime_ns) and now.mode & 0o1777 in modes


def finish(
    journal: RestoreJournal,
    disk: EnvironmentDisk,
    directory: str,
    *,
    undone: bool = False,
    final_action: Callable[[], None] = lambda: None,
    check_content: ContentCheck | None = None,
) -> tuple[SkippedPath, ...]:
    """Remove the replaced files and the journal; return files that had to be kept, with their new paths.

    `undone`: the restore was undone. `final_action`: called while the journal still exists. `check_content`: compares
    files with their saved contents before they are removed. Can be started again after a kill.
    """
    sync_changed(disk, journal)
    set_phase(directory, Phase.UNDONE if undone else Phase.DONE)
    kept, started = [], written_at(directory)
    asides = {root: slots.asides() for root, slots in disk.roots.items()}
    for staged in journal.staged:
        is_aside = staged.slot in asides[staged.step.root]
        slots = disk.slots(staged.step.root)
        if is_aside:
            _keep_aside(slots, staged)
        if not _is_removable(slots, staged, undone, started, check_content):
            kept.append(SkippedPath(staged.step.shown, _keep(slots, staged)))
    if kept or any(asides.values()):
        # Without a journal, nothing refers to the files left in a slot.
        sync_kept(disk)
    disk.clear()
    _set_root_attributes(journal, disk, lambda own: own.before if undone else own.after)
    sync_roots_with_slots(disk)
    final_action()
    remove_journal(directory)
    return tuple(kept)


def discard(disk: EnvironmentDisk) -> None:
    """Remove what was staged by a restore that never started."""
    disk.clear()


def _keep_aside(slots: Slots, staged: StagedStep) -> None:
    directory, name = slots.at(staged.slot)
    slots.keep_named(directory, name + ASIDE, _file_name(staged))


def _keep(slots: Slots, staged: StagedStep) -> str:
    return os.fsdecode(slots.keep(staged.slot, _file_name(staged)))


def _file_name(staged: StagedStep) -> bytes:
    return staged.step.path.rpartition(b"/")[2]


def _is_removable(
    slots: Slots, staged: StagedStep, undone: bool, started: int, check_content: ContentCheck | None
) -> bool:
    """Return whether the entry of a slot may be removed: a snapshot has it, or it was staged and never changed.

    Directories are removed here, because a process can add files to one until it is gone.
    """
    inside = slots.stat(staged.slot)
    if inside is None:
        return True
    if is_same_file(inside, staged.replaced):
        # After an abort it should be at its path; if not, another process took that path.
        assert staged.replaced is not None
        if undone or not is_unchanged(staged.replaced, inside):
            return False
        if inside.is_directory:
            return _try_rmdir(slots.calls, *slots.at(staged.slot))
        return _has_saved_contents(slots, staged, check_content)
    if not is_same_file(inside, staged.new):
        return False
    assert staged.new is not None
    if inside.is_directory:
        return _has_only_staged_entries(slots, staged, started) and _remove_entries(slots, staged)
    return is_unchanged(staged.new, inside)


def _has_saved_contents(slots: Slots, staged: StagedStep, check_content: ContentCheck | None) -> bool:
    """A process that has the file mapped can change it without changing its mtime."""
    before = staged.step.before
    # Captured contents of a live database may differ from the file's bytes.
    if check_content is None or before is None or before.notes:
        return True
    return check_content(staged.step, *slots.at(staged.slot))


def _try_rmdir(calls: DiskCalls, directory: int, name: bytes) -> bool:
    """Remove a directory; return False if it is not empty."""
    try:
        calls.rmdir(directory, name)
    except OSError:
        return False
    return True


def _has_only_staged_entries(slots: Slots, staged: StagedStep, started: int) -> bool:
    """Return whether a directory contains exactly what was staged, after being in the environment for a while."""
    top = staged.step.path
    known = {entry.path: entry for entry in staged.step.below}
    todo = [top]
    while todo:
        path = todo.pop()
        descriptor = _open_below(slots, staged.slot, path[len(top) :].lstrip(b"/"))
        try:
            for name in list_directory(descriptor):
                below = EnvPath(path + b"/" + name)
                if not _is_staged_entry(stat_entry(descriptor, name), known.get(below), started):
                    return False
                if known[below].kind is EntryKind.DIRECTORY:
                    todo.append(below)
        finally:
            os.close(descriptor)
    return True


def _is_staged_entry(found: DiskEntry | None, entry: Entry | None, started: int) -> bool:
    if found is None:
        return True
    if entry is None or found.kind is not entry.kind:
        return False
    if entry.kind is EntryKind.DIRECTORY:
        return True
    # Removing one name of a file changes the ctime of the others.
    untouched = found.ctime_ns <= started or entry.link_group is not None
    return untouched and found.mtime_ns == entry.mtime_ns


def _remove_entries(slots: Slots, staged: StagedStep) -> bool:
    """Remove a directory entry by entry; return False if it contains anything else, which is kept."""
    cut = len(staged.step.path) + 1
    # Entries come after their directory, so the reverse order removes contents first.
    for path, entries in groupby(
        reversed(staged.step.below), lambda entry: entry.path[cut:].rpartition(b"/")[0]
    ):
        try:
            directory = _open_below(slots, staged.slot, path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed by another process
        try:
            for entry in entries:
                _remove_entry(slots.calls, directory, entry)
        finally:
            os.close(directory)
    return _try_rmdir(slots.calls, *slots.at(staged.slot))


def _remove_entry(calls: DiskCalls, directory: int, entry: Entry) -> None:
    name = entry.path.rpartition(b"/")[2]
    found = stat_entry(directory, name)
    if found is None or found.kind is not entry.kind:
        return
    if found.is_directory:
        _try_rmdir(calls, directory, name)
    elif found.mtime_ns == entry.mtime_ns:
        calls.unlink(directory, name)


def _open_below(slots: Slots, number: int, path: bytes) -> int:
    """Open a directory inside a slot, making directories accessible on the way."""
    directory, name = slots.at(number)
    opened = os.dup(directory)
    for part in [name, *path.split(b"/")] if path else [name]:
        try:
            found = stat_entry(opened, part)
            if found is not None and found.mode & 0o700 != 0o700:
                slots.calls.chmod(opened, part, 0o700)
            below = open_directory(opened, part)
        finally:
            os.close(opened)
        opened = below
    return opened


def _set_root_attributes(
    journal: RestoreJournal, disk: EnvironmentDisk, side_of: Callable[[PlannedDirectory], Entry | None]
) -> None:
    """Set the attributes of roots that contained slots: removing these changed the mtime."""
    for own in journal.directories:
        entry = side_of(own)
        if own.path == TOP and entry is not None:
            disk.set_directory_attributes(own.root, own.path, entry, lambda what: None)
