"""The one change that a restore makes: what stands at a path and what lies in a slot change places.

It is its own undoing, and how far it came can be told by looking at who lies in the slot. What stands at the path is
looked at right before, and what came into the slot right after: where that is not what the plan knows, it goes back.
Where the system cannot exchange two names at one moment, three renames do, by way of a third name beside the slot.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum

from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass
from git_envhist.model import EntryKind, PlanStep
from git_envhist.platform import DIRECTORY, list_directory, open_itself
from git_envhist.restore.disk import RestoreDisk
from git_envhist.restore.disk_entry import DiskEntry, is_same_thing, is_untouched, look
from git_envhist.restore.fs import ExchangeUnsupported
from git_envhist.restore.slots import ASIDE

CAME = "something came here meanwhile"
CHANGED = "changed meanwhile"
NOT_EMPTY = "something came into it meanwhile"
GONE = "it is gone"


@dataclass(frozen=True, slots=True)
class StagedStep:
    """A step with all that it needs: who is to come, and who stands there."""

    step: PlanStep
    slot: int
    new: DiskEntry | None
    victim: DiskEntry | None


class StepSkipped(Exception):
    """A step that is not made, and why; nothing is changed by it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


Prove = Callable[[PlanStep, int, bytes], bool]
"""Whether what bears a name in an open directory has the bytes that the side before of a step says."""


def no_proof(step: PlanStep, directory: int, name: bytes) -> bool:
    """For whoever has nothing to read a snapshot with."""
    return False


class SwapSide(Enum):
    """Which of the two stands at the path, as far as this restore has to do with it."""

    BEFORE = "before"
    AFTER = "after"


class Swap:
    """One step at the door."""

    def __init__(self, door: RestoreDisk, staged: StagedStep, prove: Prove = no_proof) -> None:
        self._door = door
        self._prove = prove
        self._staged = staged
        self._slots = door.slots(staged.step.root)
        self._hands = door.hands

    def side(self) -> SwapSide:
        """Where this step stands; what was broken off between renames is put in order first."""
        self._settle()
        return self._side()

    def _side(self) -> SwapSide:
        new, victim = self._staged.new, self._staged.victim
        inside = self._slots.look(self._staged.slot)
        if new is None:
            return SwapSide.BEFORE if inside is None else SwapSide.AFTER
        if is_same_thing(inside, new):
            return SwapSide.BEFORE
        if inside is None and victim is not None:
            raise Damaged(
                "what a restore had put away is gone", hint="'git envrestore' the moment saved before it"
            )
        return SwapSide.AFTER

    def forward(self, *, strictly: bool = False) -> None:
        """Let the new thing stand at the path; `StepSkipped` where what stands there is not what the plan knows.

        `strictly`: nothing was begun before, so that what is to come lies in its slot.
        """
        victim, new, step = self._staged.victim, self._staged.new, self._staged.step
        if strictly or self.side() is SwapSide.BEFORE:
            above, _, name = step.path.rpartition(b"/")
            directory = self._door.reach(step.root, above)
            try:
                now = look(directory, name)
                self._check(victim, now, strictly)
                if not strictly and not self._is_proven(now, directory, name):
                    raise StepSkipped(CHANGED)
                if victim is not None and victim.is_directory:
                    self._check_empty(directory, name)
                self._change(directory, name, leaves=victim, comes=new)
            finally:
                os.close(directory)
        self._check_slot(victim, back_to=new)

    def backward(self) -> None:
        """Let what stood at the path stand there again."""
        victim, new = self._staged.victim, self._staged.new
        if self.side() is SwapSide.AFTER:
            with self._door.parent(self._staged.step.root, self._staged.step.path) as (directory, name):
                now = look(directory, name)
                if new is None:
                    self._check(None, now, False)
                elif not is_same_thing(new, now):
                    raise StepSkipped(GONE if now is None else CHANGED)
                self._change(directory, name, leaves=new, comes=victim)
        inside = self._slots.look(self._staged.slot)
        if new is not None and not is_same_thing(inside, new):
            # Somebody's thing was there in the moment of the swap: it is the one that stays.
            self._put_back(victim)
            raise StepSkipped(CHANGED)

    def _check(self, known: DiskEntry | None, now: DiskEntry | None, strictly: bool) -> None:
        if known is None:
            if now is not None:
                raise StepSkipped(CAME)
        elif now is None:
            raise StepSkipped(GONE)
        elif not is_untouched(known, now, strictly=strictly):
            raise StepSkipped(CHANGED)

    def _is_proven(self, now: DiskEntry | None, directory: int, name: bytes) -> bool:
        """Whether it holds what it held: size and time can be forged, and our renames move its change time, too."""
        victim, before = self._staged.victim, self._staged.step.before
        if victim is None or before is None or now is None or victim.kind is not EntryKind.FILE:
            return True
        # What was read from a database at work need not be its bytes.
        same = now.ctime_ns == victim.ctime_ns or bool(before.notes)
        return same or self._prove(self._staged.step, directory, name)

    def _check_empty(self, directory: int, name: bytes) -> None:
        if not _is_empty(directory, name):
            raise StepSkipped(NOT_EMPTY)

    def _check_slot(self, victim: DiskEntry | None, back_to: DiskEntry | None) -> None:
        """What came into the slot must be what was looked at; else it belongs where it was."""
        inside = self._slots.look(self._staged.slot)
        if victim is None:
            return
        if not is_untouched(victim, inside):
            self._put_back(back_to)
            raise StepSkipped(CHANGED)
        if victim.is_directory and not _is_empty(*self._slots.at(self._staged.slot)):
            self._put_back(back_to)
            raise StepSkipped(NOT_EMPTY)

    def _put_back(self, stands: DiskEntry | None) -> None:
        """Undo a swap that took what it should not have; where the path was taken meanwhile, it stays in the slot."""
        with self._door.parent(self._staged.step.root, self._staged.step.path) as (directory, name):
            now = look(directory, name)
            slot, slot_name = self._slots.at(self._staged.slot)
            if now is None:
                self._hands.move(slot, slot_name, directory, name)
            elif is_same_thing(stands, now):
                self._exchange(directory, name)

    def _change(
        self, directory: int, name: bytes, *, leaves: DiskEntry | None, comes: DiskEntry | None
    ) -> None:
        slot, slot_name = self._slots.at(self._staged.slot)
        try:
            if leaves is None:
                self._hands.move(slot, slot_name, directory, name)
            elif comes is None:
                self._hands.move(directory, name, slot, slot_name)
            else:
                self._exchange(directory, name)
        except FileExistsError:
            raise StepSkipped(CAME) from None
        except FileNotFoundError:
            raise StepSkipped(GONE) from None

    def _exchange(self, directory: int, name: bytes) -> None:
        slot, slot_name = self._slots.at(self._staged.slot)
        try:
            self._hands.exchange(directory, name, slot, slot_name)
        except ExchangeUnsupported:
            self._hands.move(directory, name, slot, slot_name + ASIDE)
            try:
                self._hands.move(slot, slot_name, directory, name)
            except FileExistsError:
                self._settle()
                raise
            self._hands.move(slot, slot_name + ASIDE, slot, slot_name)

    def _settle(self) -> None:
        """Finish or undo what a kill between two renames left."""
        aside = self._slots.look_aside(self._staged.slot)
        inside = self._slots.look(self._staged.slot)
        if aside is not None:
            self._settle_aside(aside, inside)
        elif inside is not None:
            self._settle_twins(inside)

    def _settle_aside(self, aside: DiskEntry, inside: DiskEntry | None) -> None:
        slot, slot_name = self._slots.at(self._staged.slot)
        if is_same_thing(aside, inside):
            self._hands.unlink(slot, slot_name + ASIDE)
            return
        with self._door.parent(self._staged.step.root, self._staged.step.path) as (directory, name):
            now = look(directory, name)
            if is_same_thing(aside, now):
                self._hands.unlink(slot, slot_name + ASIDE)
                return
            if inside is not None and is_same_thing(inside, now):
                self._hands.unlink(slot, slot_name)
                inside = None
            if inside is None:
                self._hands.move(slot, slot_name + ASIDE, slot, slot_name)
            elif now is None:
                self._hands.move(slot, slot_name + ASIDE, directory, name)
            else:
                # The path was taken in between: what stood there stays ours to keep.
                self._keep_aside()

    def _settle_twins(self, inside: DiskEntry) -> None:
        """A rename made of a link and a removal may have left both names."""
        if inside.kind is EntryKind.DIRECTORY or inside.links < 2:
            return
        step = self._staged.step
        if is_same_thing(inside, self._door.look(step.root, step.path)):
            slot, slot_name = self._slots.at(self._staged.slot)
            self._hands.unlink(slot, slot_name)

    def _keep_aside(self) -> None:
        slot, slot_name = self._slots.at(self._staged.slot)
        self._slots.keep_named(slot, slot_name + ASIDE, self._staged.step.path.rpartition(b"/")[2])


def _is_empty(directory: int, name: bytes) -> bool:
    descriptor = open_itself(name, DIRECTORY, dir_fd=directory)
    try:
        return not list_directory(descriptor)
    finally:
        os.close(descriptor)
