"""What has to be on the medium before the next thing is done.

A whole file system is synced by one call, which waits for all that anybody wrote there: for seconds, where somebody
installs packages meanwhile. Where a restore has to do with few paths, these and the directories that they stand in are
synced one by one: on a quiet disk 8 of them take as long as the one call, 64 ten times, a thousand twenty times as long
(decision 39). What cannot be opened, a link or a file that is closed to us, cannot be synced by itself, nor can a
directory on some file systems of networks and guests: then all is.
"""

from __future__ import annotations

import errno
import os
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from git_envhist.model import EntryKind, PlanAction, PlannedDirectory, PlanStep
from git_envhist.platform import list_directory
from git_envhist.restore.compare_files import open_to_read
from git_envhist.restore.disk import RestoreDisk
from git_envhist.restore.disk_entry import look
from git_envhist.restore.fs import DiskCalls, open_directory
from git_envhist.restore.journal import RestoreJournal
from git_envhist.restore.slots import KEPT, SLOTS, Slots, slot_directory, slot_name
from git_envhist.restore.swap import StagedStep

FEW = 16
"""So many paths, at most, are synced one by one."""


class CannotSyncSingly(Exception):
    """Something that cannot be synced by itself."""


def sync_staged(door: RestoreDisk, steps: Iterable[PlanStep]) -> None:
    """Return when all that lies in the slots is on the medium, with the names that lead there."""
    by_root: dict[bytes, list[tuple[int, PlanStep]]] = {root: [] for root in door.roots}
    for number, step in enumerate(steps):
        by_root[step.root].append((number, step))
    for root, mine in by_root.items():
        paths = sum(1 + len(step.below) for _, step in mine)
        _sync(door, root, paths, lambda: _staged(door, root, mine))  # noqa: B023


def sync_changed(door: RestoreDisk, journal: RestoreJournal) -> None:
    """Return when all that changed places, and all that was set where it stands, is on the medium."""
    for root in door.roots:
        staged = [one for one in journal.staged if one.step.root == root]
        own = [one for one in journal.directories if one.root == root]
        _sync(door, root, len(staged) + len(own), lambda: _changed(door, root, staged, own))  # noqa: B023


def sync_kept(door: RestoreDisk) -> None:
    """Return when all that was put where it stays is there for good; hardly ever is there anything."""
    for slots in door.all_slots:
        door.hands.sync(slots.private)


def sync_tops(door: RestoreDisk) -> None:
    """Return when it is on the medium that no slots stand in a top any more, and how that was dressed: the journal, on
    another file system, may be gone for good before that."""
    for top in door.tops_with_slots:
        if not _sync_each(door.hands, (top,)):
            door.hands.sync(top)


def _sync(door: RestoreDisk, root: bytes, paths: int, opened: Callable[[], Iterator[int]]) -> None:
    if paths > FEW or not _one_by_one(door.hands, opened):
        door.hands.sync(door.slots(root).private)


def _one_by_one(hands: DiskCalls, opened: Callable[[], Iterator[int]]) -> bool:
    """Sync what is opened for it; False where not all of it can be."""
    if sys.platform != "linux":
        return False  # a file that is synced may still lie in the drive's cache
    descriptors: list[int] = []
    try:
        try:
            for descriptor in opened():
                descriptors.append(descriptor)  # noqa: PERF402
        except (OSError, CannotSyncSingly):
            return False
        for descriptor in descriptors:
            hands.begin_to_sync(descriptor)
        return _sync_each(hands, descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _sync_each(hands: DiskCalls, descriptors: Iterable[int]) -> bool:
    """False where a file system knows no such call; what else fails has failed, and is not tried in another way."""
    for descriptor in descriptors:
        try:
            hands.sync_one(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
    return True


def _staged(door: RestoreDisk, root: bytes, steps: list[tuple[int, PlanStep]]) -> Iterator[int]:
    slots = door.slots(root)
    for number, step in steps:
        if step.after is not None and step.action is not PlanAction.ADJUST:
            top = slot_directory(number) + b"/" + slot_name(number)
            for entry in (step.after, *step.below):
                yield _open(slots.private, top + entry.path[len(step.path) :], entry.kind)
    yield from _slots(slots, {slot_directory(number) for number, _ in steps})
    yield os.dup(door.home_of(root))


def _changed(
    door: RestoreDisk, root: bytes, staged: list[StagedStep], own: list[PlannedDirectory]
) -> Iterator[int]:
    for one in staged:
        if one.step.action is PlanAction.ADJUST:
            assert one.step.after is not None
            with door.parent(root, one.step.path) as (directory, name):
                yield _open(directory, name, one.step.after.kind)
    for each in own:
        yield door.reach(root, each.path)
    slots = door.slots(root)
    kept = open_directory(slots.private, KEPT) if look(slots.private, KEPT) is not None else None
    if kept is not None:
        # It holds something only if another process took a path between two renames.
        if list_directory(kept):
            yield kept
        else:
            os.close(kept)
    yield from _slots(slots, {slot_directory(one.slot) for one in staged})


def _slots(slots: Slots, groups: Iterable[bytes]) -> Iterator[int]:
    for path in (*groups, SLOTS, b""):
        yield open_directory(slots.private, path)


def _open(base: int, path: bytes, kind: EntryKind) -> int:
    if kind is EntryKind.DIRECTORY:
        return open_directory(base, path)
    if kind is not EntryKind.FILE:
        raise CannotSyncSingly
    above, _, name = path.rpartition(b"/")
    directory = open_directory(base, above)
    try:
        return open_to_read(directory, name)
    finally:
        os.close(directory)


# Something is waited for while something else is done: by a thread that does nothing but wait in the kernel.


@contextmanager
def in_background_thread(wait: Callable[[], None]) -> Iterator[None]:
    """Wait while the body runs; what failed of the waiting is raised behind it. The body must start no process of
    ours: a copy would not have the thread."""
    ended, failed = allocate_lock(), list[BaseException]()
    ended.acquire()

    def run() -> None:
        try:
            wait()
        except BaseException as error:  # whatever it is, it is raised where it is waited for
            failed.append(error)
        finally:
            ended.release()

    try:
        start_new_thread(run, ())
    except RuntimeError:  # the system has no more, or the interpreter ends
        run()
    try:
        yield
    finally:
        ended.acquire()
    if failed:
        raise failed[0]
