"""Sync written files before the next step.

syncfs also waits for what other processes wrote, which may take seconds. So a restore of few paths syncs them and their
directories one by one: on a quiet disk, 8 take as long as one syncfs, 64 take ten times and 1,000 twenty times as long
(decision 39). If a path cannot be synced by itself (a link, a file without permissions, a directory on some network
file systems), the whole file system is synced.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator

from git_envhist.model import EntryKind, PlanAction, PlannedDirectory, PlanStep
from git_envhist.platform import list_directory
from git_envhist.restore.compare_files import open_to_read
from git_envhist.restore.disk_calls import DiskCalls, open_directory
from git_envhist.restore.disk_entry import stat_entry
from git_envhist.restore.environment_disk import EnvironmentDisk
from git_envhist.restore.journal import RestoreJournal
from git_envhist.restore.slots import KEPT, SLOTS, Slots, slot_directory, slot_name
from git_envhist.restore.swap import StagedStep

FEW = 16
"""The maximum number of paths that are synced one by one."""


class CannotSyncSingly(Exception):
    """Raised for an entry that cannot be synced by itself."""


def sync_staged(disk: EnvironmentDisk, steps: Iterable[PlanStep]) -> None:
    """Sync everything in the slots, and the names that lead to it."""
    by_root: dict[bytes, list[tuple[int, PlanStep]]] = {root: [] for root in disk.roots}
    for number, step in enumerate(steps):
        by_root[step.root].append((number, step))
    for root, of_root in by_root.items():
        paths = sum(1 + len(step.below) for _, step in of_root)
        _sync(disk, root, paths, lambda: _staged(disk, root, of_root))  # noqa: B023


def sync_changed(disk: EnvironmentDisk, journal: RestoreJournal) -> None:
    """Sync the files that the restore exchanged, and the directories whose metadata it changed."""
    for root in disk.roots:
        staged = [one for one in journal.staged if one.step.root == root]
        own = [one for one in journal.directories if one.root == root]
        _sync(disk, root, len(staged) + len(own), lambda: _changed(disk, root, staged, own))  # noqa: B023


def sync_kept(disk: EnvironmentDisk) -> None:
    """Sync the files moved to `kept/`; most restores have none."""
    for slots in disk.all_slots:
        disk.calls.sync(slots.private)


def sync_roots_with_slots(disk: EnvironmentDisk) -> None:
    """Sync the roots that contained slots.

    The journal may be on another file system, where its removal reaches the disk earlier.
    """
    for top in disk.tops_with_slots:
        if not _sync_each(disk.calls, (top,)):
            disk.calls.sync(top)


def _sync(disk: EnvironmentDisk, root: bytes, paths: int, opened: Callable[[], Iterator[int]]) -> None:
    if paths > FEW or not _one_by_one(disk.calls, opened):
        disk.calls.sync(disk.slots(root).private)


def _one_by_one(calls: DiskCalls, opened: Callable[[], Iterator[int]]) -> bool:
    """Sync the opened descriptors; return False if they cannot be synced one by one."""
    if sys.platform != "linux":
        return False  # On macOS, fsync leaves data in the drive's cache.
    descriptors: list[int] = []
    try:
        try:
            for descriptor in opened():
                descriptors.append(descriptor)  # noqa: PERF402
        except (OSError, CannotSyncSingly):
            return False
        for descriptor in descriptors:
            calls.start_writeback(descriptor)
        return _sync_each(calls, descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _sync_each(calls: DiskCalls, descriptors: Iterable[int]) -> bool:
    """Return False if the file system does not support fsync here; other errors are raised."""
    for descriptor in descriptors:
        try:
            calls.sync_file(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
    return True


def _staged(disk: EnvironmentDisk, root: bytes, steps: list[tuple[int, PlanStep]]) -> Iterator[int]:
    slots = disk.slots(root)
    for number, step in steps:
        if step.after is not None and step.action is not PlanAction.ADJUST:
            top = slot_directory(number) + b"/" + slot_name(number)
            for entry in (step.after, *step.below):
                yield _open(slots.private, top + entry.path[len(step.path) :], entry.kind)
    yield from _slots(slots, {slot_directory(number) for number, _ in steps})
    yield os.dup(disk.slots_parent(root))


def _changed(
    disk: EnvironmentDisk, root: bytes, staged: list[StagedStep], own: list[PlannedDirectory]
) -> Iterator[int]:
    for one in staged:
        if one.step.action is PlanAction.ADJUST:
            assert one.step.after is not None
            with disk.parent(root, one.step.path) as (directory, name):
                yield _open(directory, name, one.step.after.kind)
    for each in own:
        yield disk.reach(root, each.path)
    slots = disk.slots(root)
    kept = open_directory(slots.private, KEPT) if stat_entry(slots.private, KEPT) is not None else None
    if kept is not None:
        # It contains something only if another process took a path between two renames.
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
