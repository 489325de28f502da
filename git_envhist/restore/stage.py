"""Write all new files of a plan into slots: complete, with metadata and synced, before anything is changed.

If staging fails, the slots are removed and no path of the environment has changed.
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
from git_envhist.restore.check_replaced import KnownStat, ReplacedEntries, no_known_stat
from git_envhist.restore.disk_calls import NO_LINKS, open_directory
from git_envhist.restore.disk_entry import DiskEntry, stat_entry
from git_envhist.restore.environment_disk import EnvironmentDisk
from git_envhist.restore.plan_steps import link_class
from git_envhist.restore.set_metadata import Lose, MetadataSetter
from git_envhist.restore.slots import slot_directory, slot_name
from git_envhist.restore.swap import StagedStep
from git_envhist.restore.sync import sync_staged
from git_envhist.restore.write_entry import NOT_MADE, Contents, EntryWriter, same_bytes
from git_envhist.workers import portion_size, share_out

# The items to stage for a plan, grouped for the workers (pure).

NO_STEP = -1


class StagedItem(NamedTuple):
    """A file to write: its slot directory and name, and its step if it is the step's own entry."""

    root: bytes
    directory: bytes
    """Path below the private directory."""
    name: bytes
    entry: Entry
    number: int


class Batch(NamedTuple):
    """Items of a few directories, written by one worker."""

    items: tuple[StagedItem, ...]


def staged_items(steps: Iterable[PlanStep]) -> Iterator[StagedItem]:
    """Yield everything but directories."""
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
    """Yield the wanted entries of a new directory by staging directory, parents first."""
    base = slot_directory(number) + b"/" + slot_name(number)
    found: dict[bytes, list[Entry]] = {}
    for entry in step.below:
        if wanted(entry):
            found.setdefault(entry.path.rpartition(b"/")[0], []).append(entry)
    for path, entries in found.items():
        yield base + path[len(step.path) :], entries


def first_names(items: Iterable[StagedItem]) -> tuple[list[StagedItem], list[tuple[StagedItem, StagedItem]]]:
    """Return the items to write, and the pairs (written item, further hard link to it)."""
    first: dict[Hashable, StagedItem] = {}
    made: list[StagedItem] = []
    links: list[tuple[StagedItem, StagedItem]] = []
    for item in items:
        leader = item
        if item.entry.link_group is not None:
            leader = first.setdefault(link_class(item.entry), item)
        if leader is item:
            made.append(item)
        else:
            links.append((leader, item))
    return made, links


def batches(items: list[StagedItem]) -> Iterator[Batch]:
    """Yield the batches of work."""
    # Big files first and one per batch, so that no worker starts one at the very end.
    big = [item for item in items if item.entry.stored is StoredAs.PIECES]
    yield from (Batch((item,)) for item in big)
    rest = [item for item in items if item.entry.stored is not StoredAs.PIECES] if big else items
    size = portion_size(len(rest))
    for start in range(0, len(rest), size):
        yield Batch(tuple(rest[start : start + size]))


def writes_directory(step: PlanStep) -> bool:
    """Return whether a step writes a new directory with all of its contents."""
    return step.after is not None and step.after.kind is EntryKind.DIRECTORY


def name_of(entry: Entry) -> bytes:
    """Return the last name of an entry's path."""
    return entry.path.rpartition(b"/")[2]


FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
UNSUPPORTED_NAME = frozenset((errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EEXIST))


@dataclass(frozen=True, slots=True)
class StageResult:
    """The staged steps, the skipped paths, and metadata that this file system cannot store."""

    staged: tuple[StagedStep, ...]
    skipped: tuple[SkippedPath, ...] = ()
    losses: tuple[tuple[bytes, str], ...] = ()
    """Pairs of displayed path and `owner`, `attributes`, `device` or `hard link`."""


def stage(
    plan: RestorePlan,
    disk: EnvironmentDisk,
    open_contents: Callable[[], Contents],
    *,
    known: KnownStat = no_known_stat,
    how: str = "fork",
    durable: bool = True,
    meanwhile: Callable[[], None] = lambda: None,
) -> StageResult:
    """Stage all files of the plan; `durable`: sync them as `sync_all_staged` does.

    `open_contents` is called in every process that reads. `known` returns stat data from the capture, so that unchanged
    files in the way need not be read again. While workers write, this process checks the entries that will be replaced,
    and calls `meanwhile`.
    """
    try:
        return _Stager(disk, open_contents, how).run(plan.steps, known, meanwhile, durable)
    except OSError as error:
        raise cannot_stage(error) from error


def sync_all_staged(disk: EnvironmentDisk, steps: Sequence[PlanStep]) -> None:
    """Sync everything staged for these steps."""
    try:
        sync_staged(disk, steps)
    except OSError as error:
        raise cannot_stage(error) from error


class _Stager:
    def __init__(self, disk: EnvironmentDisk, open_contents: Callable[[], Contents], how: str) -> None:
        self._disk = disk
        self._open_contents = open_contents
        self._how = how
        self._losses: list[tuple[bytes, str]] = []
        self._made: dict[int, DiskEntry | None] = {}
        self._replaced: dict[int, DiskEntry | None] = {}
        """By step number, for steps that can be executed."""
        self._skipped: list[SkippedPath] = []

    def run(
        self, steps: Sequence[PlanStep], known: KnownStat, meanwhile: Callable[[], None], durable: bool
    ) -> StageResult:
        def check_replaced() -> None:
            self._check_replaced(steps, known)
            meanwhile()

        self._prepare_slots(steps)
        for number, step in enumerate(steps):
            self._make_directories(number, step)
        first, links = first_names(staged_items(steps))
        self._make(first, check_replaced)
        self._link(links)
        for number, step in enumerate(steps):
            self._finish_directories(number, step)
        if durable:
            sync_staged(self._disk, steps)
        return self._result(steps)

    def _check_replaced(self, steps: Sequence[PlanStep], known: KnownStat) -> None:
        with closing(self._open_contents()) as contents:
            checked = ReplacedEntries(self._disk, contents, known)
            self._replaced = dict(checked.of(steps))
        self._skipped = checked.skipped

    def _prepare_slots(self, steps: Sequence[PlanStep]) -> None:
        numbers: dict[bytes, list[int]] = {}
        for number, step in enumerate(steps):
            numbers.setdefault(step.root, []).append(number)
        for root, wanted in numbers.items():
            self._disk.slots(root).prepare(wanted)

    def _make_directories(self, number: int, step: PlanStep) -> None:
        if not writes_directory(step):
            return
        slots = self._disk.slots(step.root)
        directory, name = slots.at(number)
        self._disk.calls.mkdir(directory, name)
        for path, names in by_directory(number, step, lambda entry: entry.kind is EntryKind.DIRECTORY):
            descriptor = open_directory(slots.private, path)
            try:
                for entry in names:
                    self._disk.calls.mkdir(descriptor, name_of(entry))
            finally:
                os.close(descriptor)

    def _make(self, items: list[StagedItem], meanwhile: Callable[[], None]) -> None:
        def begin() -> _Worker:
            return _Worker(self._disk, self._open_contents())

        results, losses = share_out(
            list(batches(items)), begin, _Worker.make, _Worker.end, how=self._how, meanwhile=meanwhile
        )
        for made in results:
            self._made.update(made)
        for lost in losses:
            self._losses += lost

    def _link(self, links: list[tuple[StagedItem, StagedItem]]) -> None:
        if not links:
            return
        worker = _Worker(self._disk, self._open_contents())
        try:
            for leader, item in links:
                self._made.update(worker.link(leader, item))
        finally:
            self._losses += worker.end()

    def _finish_directories(self, number: int, step: PlanStep) -> None:
        """Set the attributes of new directories after their contents are complete, deepest first."""
        if not writes_directory(step):
            return
        slots = self._disk.slots(step.root)
        setter = MetadataSetter(self._disk.calls)
        base = slot_directory(number) + b"/" + slot_name(number)
        for entry in reversed([entry for entry in step.below if entry.kind is EntryKind.DIRECTORY]):
            descriptor = open_directory(slots.private, base + entry.path[len(step.path) :])
            try:
                setter.directory(descriptor, entry, self._lose(shown_path(step.root, entry.path)))
            finally:
                os.close(descriptor)
        self._made[number] = slots.stat(number)

    def _lose(self, shown: bytes) -> Lose:
        return lambda what: self._losses.append((shown, what))

    def _result(self, steps: Sequence[PlanStep]) -> StageResult:
        staged, not_made = [], []
        for number, replaced in self._replaced.items():
            step = steps[number]
            new = self._made.get(number)
            if new is None and step.after is not None and step.action is not PlanAction.ADJUST:
                not_made.append(SkippedPath(step.shown, NOT_MADE))
            else:
                staged.append(StagedStep(step, number, new, replaced))
        skipped = {item.path for item in (*self._skipped, *not_made)}
        losses = [loss for loss in self._losses if loss[0] not in skipped]
        return StageResult(tuple(staged), (*self._skipped, *not_made), tuple(losses))


class _Worker:
    """Writes the items of a batch in one process."""

    def __init__(self, disk: EnvironmentDisk, contents: Contents) -> None:
        self._disk = disk
        self._contents = contents
        self._maker = EntryWriter(disk.calls, contents)
        self._open: tuple[bytes, bytes] | None = None
        self._descriptor = -1

    def make(self, batch: Batch) -> dict[int, DiskEntry | None]:
        """Write all items of a batch; return the entries that are a step's own."""
        made = {}
        for item in batch.items:
            directory = self._enter(item)
            found = self._maker.make(directory, item.name, item.entry, shown_path(item.root, item.entry.path))
            if item.number != NO_STEP:
                made[item.number] = found
        return made

    def link(self, leader: StagedItem, item: StagedItem) -> dict[int, DiskEntry | None]:
        """Hard-link an item to a file already written, or write it if that is impossible."""
        if not same_bytes(
            self._contents, (leader.root, leader.entry), (item.root, item.entry)
        ) or not self._linked(leader, item):
            return self.make(Batch((item,)))
        found = stat_entry(self._enter(item), item.name)
        return {} if item.number == NO_STEP else {item.number: found}

    def end(self) -> list[tuple[bytes, str]]:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._contents.close()
        return self._maker.losses

    def _linked(self, leader: StagedItem, item: StagedItem) -> bool:
        source = open_directory(self._disk.slots(leader.root).private, leader.directory)
        try:
            self._disk.calls.link(source, leader.name, self._enter(item), item.name)
        except FileNotFoundError:
            return False  # the first name could not be written
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self._maker.losses.append((shown_path(item.root, item.entry.path), "hard link"))
            return False
        finally:
            os.close(source)
        return True

    def _enter(self, item: StagedItem) -> int:
        if self._open != (item.root, item.directory):
            if self._descriptor >= 0:
                descriptor, self._descriptor, self._open = self._descriptor, -1, None
                os.close(descriptor)
            private = self._disk.slots(item.root).private
            self._descriptor = open_directory(private, item.directory)
            self._open = (item.root, item.directory)
        return self._descriptor


def cannot_stage(error: OSError) -> EnvhistError:
    """Convert an OSError of staging into an error with a hint."""
    reason = (error.strerror or str(error)).lower()
    name = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else "the environment"
    if error.errno in FULL:
        return StorageFull(
            f"not enough space to restore: {reason}", hint="free some space; nothing was changed"
        )
    if error.errno in UNSUPPORTED_NAME:
        return Refused(
            f"this file system cannot store '{name}': {reason}", hint="restore to another directory with --to"
        )
    return EnvhistError(f"cannot prepare the restore at '{name}': {reason}", hint="nothing was changed")
