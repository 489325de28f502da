"""Exchange the entry of a path with the entry of its slot: the only change that a restore makes.

A swap is its own inverse, and its progress can be read from the slot. The path is checked right before, and the slot
right after the swap; if either is not as planned, the swap is undone. On systems without an atomic exchange, three
renames do the same, with a third name next to the slot.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum

from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass
from git_envhist.model import EntryKind, PlanStep
from git_envhist.platform import DIRECTORY, list_directory, open_nofollow
from git_envhist.restore.disk_calls import ExchangeUnsupported
from git_envhist.restore.disk_entry import DiskEntry, is_same_file, is_unchanged, stat_entry
from git_envhist.restore.environment_disk import EnvironmentDisk
from git_envhist.restore.slots import ASIDE

CREATED = "created during the restore"
CHANGED = "changed during the restore"
NOT_EMPTY = "files were added to it during the restore"
GONE = "it no longer exists"


@dataclass(frozen=True, slots=True)
class StagedStep:
    """A planned step with the staged entry and the entry to be replaced."""

    step: PlanStep
    slot: int
    new: DiskEntry | None
    replaced: DiskEntry | None


class StepSkipped(Exception):
    """Raised if a step is skipped; it has changed nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


ContentCheck = Callable[[PlanStep, int, bytes], bool]
"""True if a file has the contents of a step's side `before`."""


def no_content_check(step: PlanStep, directory: int, name: bytes) -> bool:
    """Return False: no snapshot can be read to compare with."""
    return False


class SwapSide(Enum):
    """The side of a step whose entry is at the path."""

    BEFORE = "before"
    AFTER = "after"


class Swap:
    """A step of a restore, with its path and its slot."""

    def __init__(
        self, disk: EnvironmentDisk, staged: StagedStep, check_content: ContentCheck = no_content_check
    ) -> None:
        self._disk = disk
        self._check_content = check_content
        self._staged = staged
        self._slots = disk.slots(staged.step.root)
        self._calls = disk.calls

    def side(self) -> SwapSide:
        """Return the present side, after completing renames that a kill interrupted."""
        self._complete_renames()
        return self._side()

    def _side(self) -> SwapSide:
        new, replaced = self._staged.new, self._staged.replaced
        inside = self._slots.stat(self._staged.slot)
        if new is None:
            return SwapSide.BEFORE if inside is None else SwapSide.AFTER
        if is_same_file(inside, new):
            return SwapSide.BEFORE
        if inside is None and replaced is not None:
            raise Damaged(
                "files that a restore had replaced are missing",
                hint="restore the snapshot taken before that restore",
            )
        return SwapSide.AFTER

    def forward(self, *, strictly: bool = False) -> None:
        """Put the staged entry at the path; raise `StepSkipped` if the path is not as planned.

        `strictly`: the restore has just been staged, so the ctime of the replaced entry must match, too.
        """
        replaced, new, step = self._staged.replaced, self._staged.new, self._staged.step
        if strictly or self.side() is SwapSide.BEFORE:
            above, _, name = step.path.rpartition(b"/")
            directory = self._disk.reach(step.root, above)
            try:
                now = stat_entry(directory, name)
                self._check(replaced, now, strictly)
                if not strictly and not self._is_content_unchanged(now, directory, name):
                    raise StepSkipped(CHANGED)
                if replaced is not None and replaced.is_directory:
                    self._check_empty(directory, name)
                self._change(directory, name, outgoing=replaced, incoming=new)
            finally:
                os.close(directory)
        self._check_slot(replaced, back_to=new)

    def backward(self) -> None:
        """Put the replaced entry back at the path."""
        replaced, new = self._staged.replaced, self._staged.new
        if self.side() is SwapSide.AFTER:
            with self._disk.parent(self._staged.step.root, self._staged.step.path) as (directory, name):
                now = stat_entry(directory, name)
                if new is None:
                    self._check(None, now, False)
                elif not is_same_file(new, now):
                    raise StepSkipped(GONE if now is None else CHANGED)
                self._change(directory, name, outgoing=new, incoming=replaced)
        inside = self._slots.stat(self._staged.slot)
        if new is not None and not is_same_file(inside, new):
            # Another process replaced the path right before the swap: its entry stays.
            self._put_back(replaced)
            raise StepSkipped(CHANGED)

    def _check(self, known: DiskEntry | None, now: DiskEntry | None, strictly: bool) -> None:
        if known is None:
            if now is not None:
                raise StepSkipped(CREATED)
        elif now is None:
            raise StepSkipped(GONE)
        elif not is_unchanged(known, now, strictly=strictly):
            raise StepSkipped(CHANGED)

    def _is_content_unchanged(self, now: DiskEntry | None, directory: int, name: bytes) -> bool:
        """Return whether the contents are as before: size and mtime can be forged, and our renames change the ctime."""
        replaced, before = self._staged.replaced, self._staged.step.before
        if replaced is None or before is None or now is None or replaced.kind is not EntryKind.FILE:
            return True
        # Captured contents of a live database may differ from the file's bytes.
        same = now.ctime_ns == replaced.ctime_ns or bool(before.notes)
        return same or self._check_content(self._staged.step, directory, name)

    def _check_empty(self, directory: int, name: bytes) -> None:
        if not _is_empty(directory, name):
            raise StepSkipped(NOT_EMPTY)

    def _check_slot(self, replaced: DiskEntry | None, back_to: DiskEntry | None) -> None:
        """Check that the swap took the entry that was checked before; otherwise undo it."""
        inside = self._slots.stat(self._staged.slot)
        if replaced is None:
            return
        if not is_unchanged(replaced, inside):
            self._put_back(back_to)
            raise StepSkipped(CHANGED)
        if replaced.is_directory and not _is_empty(*self._slots.at(self._staged.slot)):
            self._put_back(back_to)
            raise StepSkipped(NOT_EMPTY)

    def _put_back(self, expected: DiskEntry | None) -> None:
        """Undo a swap that took the wrong entry; if the path was taken meanwhile, that entry stays in the slot."""
        with self._disk.parent(self._staged.step.root, self._staged.step.path) as (directory, name):
            now = stat_entry(directory, name)
            slot, slot_name = self._slots.at(self._staged.slot)
            if now is None:
                self._calls.move(slot, slot_name, directory, name)
            elif is_same_file(expected, now):
                self._exchange(directory, name)

    def _change(
        self, directory: int, name: bytes, *, outgoing: DiskEntry | None, incoming: DiskEntry | None
    ) -> None:
        slot, slot_name = self._slots.at(self._staged.slot)
        try:
            if outgoing is None:
                self._calls.move(slot, slot_name, directory, name)
            elif incoming is None:
                self._calls.move(directory, name, slot, slot_name)
            else:
                self._exchange(directory, name)
        except FileExistsError:
            raise StepSkipped(CREATED) from None
        except FileNotFoundError:
            raise StepSkipped(GONE) from None

    def _exchange(self, directory: int, name: bytes) -> None:
        slot, slot_name = self._slots.at(self._staged.slot)
        try:
            self._calls.exchange(directory, name, slot, slot_name)
        except ExchangeUnsupported:
            self._calls.move(directory, name, slot, slot_name + ASIDE)
            try:
                self._calls.move(slot, slot_name, directory, name)
            except FileExistsError:
                self._complete_renames()
                raise
            self._calls.move(slot, slot_name + ASIDE, slot, slot_name)

    def _complete_renames(self) -> None:
        """Complete or undo renames that a kill interrupted."""
        aside = self._slots.stat_aside(self._staged.slot)
        inside = self._slots.stat(self._staged.slot)
        if aside is not None:
            self._complete_exchange(aside, inside)
        elif inside is not None:
            self._remove_second_name(inside)

    def _complete_exchange(self, aside: DiskEntry, inside: DiskEntry | None) -> None:
        slot, slot_name = self._slots.at(self._staged.slot)
        if is_same_file(aside, inside):
            self._calls.unlink(slot, slot_name + ASIDE)
            return
        with self._disk.parent(self._staged.step.root, self._staged.step.path) as (directory, name):
            now = stat_entry(directory, name)
            if is_same_file(aside, now):
                self._calls.unlink(slot, slot_name + ASIDE)
                return
            if inside is not None and is_same_file(inside, now):
                self._calls.unlink(slot, slot_name)
                inside = None
            if inside is None:
                self._calls.move(slot, slot_name + ASIDE, slot, slot_name)
            elif now is None:
                self._calls.move(slot, slot_name + ASIDE, directory, name)
            else:
                # The path was taken in between: keep the replaced entry.
                self._keep_aside()

    def _remove_second_name(self, inside: DiskEntry) -> None:
        """Remove the second name left by a rename made of link and unlink."""
        if inside.kind is EntryKind.DIRECTORY or inside.links < 2:
            return
        step = self._staged.step
        if is_same_file(inside, self._disk.stat(step.root, step.path)):
            slot, slot_name = self._slots.at(self._staged.slot)
            self._calls.unlink(slot, slot_name)

    def _keep_aside(self) -> None:
        slot, slot_name = self._slots.at(self._staged.slot)
        self._slots.keep_named(slot, slot_name + ASIDE, self._staged.step.path.rpartition(b"/")[2])


def _is_empty(directory: int, name: bytes) -> bool:
    descriptor = open_nofollow(name, DIRECTORY, dir_fd=directory)
    try:
        return not list_directory(descriptor)
    finally:
        os.close(descriptor)
