"""Everything that is to come, made beside the environment: whole, dressed and durable before anything is touched.

What fails here fails for nothing: the slots are thrown away, and no path of the environment was changed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from git_envhist.errors import EnvhistError, Refused, StorageFull
from git_envhist.lazy import dataclass
from git_envhist.model import (
    Entry,
    EntryKind,
    PlanAction,
    PlanStep,
    RestorePlan,
    SkippedPath,
    StoredAs,
    shown_path,
)
from git_envhist.restore.attributes import AttributeSetter, Lose
from git_envhist.restore.disk import RestoreDisk
from git_envhist.restore.disk_entry import DiskEntry, look
from git_envhist.restore.fs import NO_LINKS, open_directory
from git_envhist.restore.plan import link_class
from git_envhist.restore.replaced import Known, ReplacedEntries, nothing_is_known
from git_envhist.restore.slots import slot_directory, slot_name
from git_envhist.restore.swap import StagedStep
from git_envhist.restore.sync import sync_staged
from git_envhist.restore.write_entry import NOT_MADE, Contents, EntryWriter, same_bytes
from git_envhist.workers import portion, share_out

# What has to be made for a plan, where, and who makes it (pure).

NO_STEP = -1


class StagedItem(NamedTuple):
    """One thing to be made: where, and for which step if it is that step's own."""

    root: bytes
    directory: bytes
    """Below the private directory."""
    name: bytes
    entry: Entry
    number: int


class Batch(NamedTuple):
    """Things to be made in a few directories, by one worker."""

    spots: tuple[StagedItem, ...]


def spots_of(steps: Iterable[PlanStep]) -> Iterator[StagedItem]:
    """Everything but directories."""
    for number, step in enumerate(steps):
        if step.after is None or step.action is PlanAction.ADJUST:
            continue
        if step.after.kind is not EntryKind.DIRECTORY:
            yield StagedItem(step.root, slot_directory(number), slot_name(number), step.after, number)
            continue
        for path, entries in by_directory(number, step, lambda entry: entry.kind is not EntryKind.DIRECTORY):
            for entry in entries:
                yield StagedItem(step.root, path, name_of(entry), entry, NO_STEP)


def by_directory(
    number: int, step: PlanStep, wanted: Callable[[Entry], bool]
) -> Iterator[tuple[bytes, list[Entry]]]:
    """The wanted entries of a new directory, by the directories that they are staged in, those above first."""
    base = slot_directory(number) + b"/" + slot_name(number)
    found: dict[bytes, list[Entry]] = {}
    for entry in step.below:
        if wanted(entry):
            found.setdefault(entry.path.rpartition(b"/")[0], []).append(entry)
    for path, entries in found.items():
        yield base + path[len(step.path) :], entries


def first_names(spots: Iterable[StagedItem]) -> tuple[list[StagedItem], list[tuple[StagedItem, StagedItem]]]:
    """What is to be made, and (what is made, what is one more name of it)."""
    first: dict[Hashable, StagedItem] = {}
    made: list[StagedItem] = []
    twins: list[tuple[StagedItem, StagedItem]] = []
    for spot in spots:
        leader = spot
        if spot.entry.link_group is not None:
            leader = first.setdefault(link_class(spot.entry), spot)
        if leader is spot:
            made.append(spot)
        else:
            twins.append((leader, spot))
    return made, twins


def batches(spots: list[StagedItem]) -> Iterator[Batch]:
    """Portions of work."""
    # Big files first, each by itself: nobody shall be left with one when all else is done.
    big = [spot for spot in spots if spot.entry.stored is StoredAs.PIECES]
    yield from (Batch((spot,)) for spot in big)
    rest = [spot for spot in spots if spot.entry.stored is not StoredAs.PIECES] if big else spots
    size = portion(len(rest))
    for start in range(0, len(rest), size):
        yield Batch(tuple(rest[start : start + size]))


def brings_directory(step: PlanStep) -> bool:
    """Whether a step is a new directory with all that is in it."""
    return step.after is not None and step.after.kind is EntryKind.DIRECTORY


def name_of(entry: Entry) -> bytes:
    """The last name of its path."""
    return entry.path.rpartition(b"/")[2]


FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
CANNOT_HOLD = frozenset((errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EEXIST))


@dataclass(frozen=True, slots=True)
class StageResult:
    """What is staged, what is left alone, and what of the staged things could not be had here."""

    staged: tuple[StagedStep, ...]
    left_alone: tuple[SkippedPath, ...] = ()
    losses: tuple[tuple[bytes, str], ...] = ()
    """(path as people see it, what): `owner`, `attributes`, `device`, `hard link`."""


def stage(
    plan: RestorePlan,
    door: RestoreDisk,
    open_contents: Callable[[], Contents],
    *,
    known: Known = nothing_is_known,
    how: str = "fork",
    durable: bool = True,
    meanwhile: Callable[[], None] = lambda: None,
) -> StageResult:
    """Make all that the plan brings; `durable`: return only when it is on the medium, which `settle` does, too.

    `open_contents` is called in every process that reads; `known` says what the capture of the side before saw, so that
    what stands in the way need not be read again. While workers make what comes, this process looks at what stands in
    the way, and does what is to be done `meanwhile`.
    """
    try:
        return _Stager(door, open_contents, how).run(plan.steps, known, meanwhile, durable)
    except OSError as error:
        raise cannot_stage(error) from error


def settle(door: RestoreDisk, steps: Sequence[PlanStep]) -> None:
    """Return when all that was staged for these steps is on the medium."""
    try:
        sync_staged(door, steps)
    except OSError as error:
        raise cannot_stage(error) from error


class _Stager:
    def __init__(self, door: RestoreDisk, open_contents: Callable[[], Contents], how: str) -> None:
        self._door = door
        self._open_contents = open_contents
        self._how = how
        self._losses: list[tuple[bytes, str]] = []
        self._made: dict[int, DiskEntry | None] = {}
        self._victims: dict[int, DiskEntry | None] = {}
        """By the numbers of the steps that can be made."""
        self._left: list[SkippedPath] = []

    def run(
        self, steps: Sequence[PlanStep], known: Known, meanwhile: Callable[[], None], durable: bool
    ) -> StageResult:
        def look_around() -> None:
            self._look_at_victims(steps, known)
            meanwhile()

        self._prepare_slots(steps)
        for number, step in enumerate(steps):
            self._make_directories(number, step)
        first, twins = first_names(spots_of(steps))
        self._make(first, look_around)
        self._link(twins)
        for number, step in enumerate(steps):
            self._finish_directories(number, step)
        if durable:
            sync_staged(self._door, steps)
        return self._prepared(steps)

    def _look_at_victims(self, steps: Sequence[PlanStep], known: Known) -> None:
        with closing(self._open_contents()) as contents:
            victims = ReplacedEntries(self._door, contents, known)
            self._victims = dict(victims.of(steps))
        self._left = victims.left_alone

    def _prepare_slots(self, steps: Sequence[PlanStep]) -> None:
        numbers: dict[bytes, list[int]] = {}
        for number, step in enumerate(steps):
            numbers.setdefault(step.root, []).append(number)
        for root, wanted in numbers.items():
            self._door.slots(root).prepare(wanted)

    def _make_directories(self, number: int, step: PlanStep) -> None:
        if not brings_directory(step):
            return
        slots = self._door.slots(step.root)
        directory, name = slots.at(number)
        self._door.hands.mkdir(directory, name)
        for path, names in by_directory(number, step, lambda entry: entry.kind is EntryKind.DIRECTORY):
            descriptor = open_directory(slots.private, path)
            try:
                for entry in names:
                    self._door.hands.mkdir(descriptor, name_of(entry))
            finally:
                os.close(descriptor)

    def _make(self, spots: list[StagedItem], meanwhile: Callable[[], None]) -> None:
        def begin() -> _Worker:
            return _Worker(self._door, self._open_contents())

        results, losses = share_out(
            list(batches(spots)), begin, _Worker.make, _Worker.end, how=self._how, meanwhile=meanwhile
        )
        for made in results:
            self._made.update(made)
        for lost in losses:
            self._losses += lost

    def _link(self, twins: list[tuple[StagedItem, StagedItem]]) -> None:
        if not twins:
            return
        worker = _Worker(self._door, self._open_contents())
        try:
            for leader, spot in twins:
                self._made.update(worker.link(leader, spot))
        finally:
            self._losses += worker.end()

    def _finish_directories(self, number: int, step: PlanStep) -> None:
        """The attributes of directories that come, once all is in them; the deepest first."""
        if not brings_directory(step):
            return
        slots = self._door.slots(step.root)
        dresser = AttributeSetter(self._door.hands)
        base = slot_directory(number) + b"/" + slot_name(number)
        for entry in reversed([entry for entry in step.below if entry.kind is EntryKind.DIRECTORY]):
            descriptor = open_directory(slots.private, base + entry.path[len(step.path) :])
            try:
                dresser.directory(descriptor, entry, self._losing(shown_path(step.root, entry.path)))
            finally:
                os.close(descriptor)
        self._made[number] = slots.look(number)

    def _losing(self, shown: bytes) -> Lose:
        return lambda what: self._losses.append((shown, what))

    def _prepared(self, steps: Sequence[PlanStep]) -> StageResult:
        staged, not_made = [], []
        for number, victim in self._victims.items():
            step = steps[number]
            new = self._made.get(number)
            if new is None and step.after is not None and step.action is not PlanAction.ADJUST:
                not_made.append(SkippedPath(step.shown, NOT_MADE))
            else:
                staged.append(StagedStep(step, number, new, victim))
        left = {item.path for item in (*self._left, *not_made)}
        losses = [loss for loss in self._losses if loss[0] not in left]
        return StageResult(tuple(staged), (*self._left, *not_made), tuple(losses))


class _Worker:
    """What one process makes things with."""

    def __init__(self, door: RestoreDisk, contents: Contents) -> None:
        self._door = door
        self._contents = contents
        self._maker = EntryWriter(door.hands, contents)
        self._open: tuple[bytes, bytes] | None = None
        self._descriptor = -1

    def make(self, batch: Batch) -> dict[int, DiskEntry | None]:
        """Make all things of a batch; what came of those that are a step's own."""
        made = {}
        for spot in batch.spots:
            directory = self._enter(spot)
            found = self._maker.make(directory, spot.name, spot.entry, shown_path(spot.root, spot.entry.path))
            if spot.number != NO_STEP:
                made[spot.number] = found
        return made

    def link(self, leader: StagedItem, spot: StagedItem) -> dict[int, DiskEntry | None]:
        """Make one more name of a file that is made already."""
        if not same_bytes(
            self._contents, (leader.root, leader.entry), (spot.root, spot.entry)
        ) or not self._linked(leader, spot):
            return self.make(Batch((spot,)))
        found = look(self._enter(spot), spot.name)
        return {} if spot.number == NO_STEP else {spot.number: found}

    def end(self) -> list[tuple[bytes, str]]:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._contents.close()
        return self._maker.losses

    def _linked(self, leader: StagedItem, spot: StagedItem) -> bool:
        source = open_directory(self._door.slots(leader.root).private, leader.directory)
        try:
            self._door.hands.link(source, leader.name, self._enter(spot), spot.name)
        except FileNotFoundError:
            return False  # the first could not be made here
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self._maker.losses.append((shown_path(spot.root, spot.entry.path), "hard link"))
            return False
        finally:
            os.close(source)
        return True

    def _enter(self, spot: StagedItem) -> int:
        if self._open != (spot.root, spot.directory):
            if self._descriptor >= 0:
                descriptor, self._descriptor, self._open = self._descriptor, -1, None
                os.close(descriptor)
            private = self._door.slots(spot.root).private
            self._descriptor = open_directory(private, spot.directory)
            self._open = (spot.root, spot.directory)
        return self._descriptor


def cannot_stage(error: OSError) -> EnvhistError:
    """What it means to the person who waits for it."""
    reason = (error.strerror or str(error)).lower()
    name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else "the environment"
    if error.errno in FULL:
        return StorageFull(
            f"no room for what is to be restored: {reason}", hint="make room; nothing was changed"
        )
    if error.errno in CANNOT_HOLD:
        return Refused(
            f"this file system cannot hold '{name}': {reason}", hint="restore it elsewhere, with --to"
        )
    return EnvhistError(f"cannot prepare the restore at '{name}': {reason}", hint="nothing was changed")
