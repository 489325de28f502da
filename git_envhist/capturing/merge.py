"""What the workers found, taken into what was known: which directories changed, which are gone, what is counted."""

from __future__ import annotations

import stat
from collections.abc import Mapping

from git_envhist.capture.descent import join
from git_envhist.capture.known import DirectoryRecords
from git_envhist.capture.records import (
    BELOW,
    CELL,
    INCOMPLETE,
    SIZE,
    WIDTH,
    DirectoryRecord,
    decode,
    differing,
)
from git_envhist.capturing.gather import ScanResult
from git_envhist.capturing.stored import is_inside_git_directory
from git_envhist.model import ChangeCount
from git_envhist.values import dataclass, field

UNKNOWN = bytes(BELOW)
"""No tree is known of a subdirectory."""


@dataclass(slots=True)
class RecordChanges:
    """How the records differ from those of the snapshot before."""

    changed: dict[bytes, DirectoryRecord] = field(default_factory=dict)
    """Directories that were looked into, as they are now."""
    before: dict[bytes, DirectoryRecord] = field(default_factory=dict)
    """The same as they were, as far as they were known."""
    gone: set[bytes] = field(default_factory=set)

    def count(self) -> ChangeCount | None:
        """How many paths differ, where only files and links did that stayed where they are: those that any history
        has most of; None where the two trees have to be compared."""
        if self.gone or self.before.keys() != self.changed.keys():
            return None
        modified = 0
        for path, new in self.changed.items():
            found = None if is_inside_git_directory(path) else _count_modified(self.before[path], new)
            if found is None:
                return None
            modified += found
        return ChangeCount(modified=modified)

    def fresh(self) -> tuple[int, int]:
        """How many files stand there with other bytes than before, or for the first time; and their bytes.

        What was only read again, because it was touched or is as young as the clock's tick, is none of them.
        """
        files = size = 0
        for path, new in self.changed.items():
            sizes = new.cells[SIZE::WIDTH]
            old = self.before.get(path)
            found = range(len(new.names)) if old is None else _other_bytes(old, new)
            files += len(found)
            size += sum(sizes[index] for index in found)
        return files, size


def merge(records: DirectoryRecords, gathered: ScanResult) -> RecordChanges:
    """Take in what changed, and let go what is no longer below any directory."""
    merged = RecordChanges()
    lost = set(gathered.gone)
    for path, encoded in gathered.directories.items():
        before, after = records.get(path), decode(encoded)
        if before is not None:
            merged.before[path] = before
            vanished = set(before.subdirectories).difference(after.subdirectories)
            lost.update(join(path, name) for name in vanished)
        _carry_below(after, before)
        merged.changed[path] = after
        records.keep(after)
    for path in list(lost):
        merged.gone.update(records.below(path))
    for path in merged.gone:
        records.drop(path)
    merged.gone |= lost
    return merged


def merge_pieces(
    before: Mapping[bytes, list[bytes]], gathered: ScanResult, merged: RecordChanges, width: int
) -> dict[bytes, list[bytes]]:
    """The trees of the pieces of big files, by directory, as they are now; `width`: of an id."""
    # An id of any length stands in 32 bytes there.
    return {
        path: [tree[:width] for tree in trees]
        for path, trees in {**before, **gathered.pieces}.items()
        if trees and path not in merged.gone
    }


def _carry_below(after: DirectoryRecord, before: DirectoryRecord | None) -> None:
    if before is not None and before.subdirectories == after.subdirectories:
        after.below = before.below
        return
    known = before.below_by_name() if before is not None else {}
    after.below = b"".join(known.get(name, UNKNOWN) for name in after.subdirectories)


def _other_bytes(old: DirectoryRecord, new: DirectoryRecord) -> list[int]:
    """The entries that have other bytes than before, or were not there."""
    width = len(new.ids) // len(new.names) if new.names else 1
    if old.names == new.names:
        return differing(old.ids, new.ids, width)
    known = {name: old.id_at(index, width) for index, name in enumerate(old.names)}
    return [index for index, name in enumerate(new.names) if known.get(name) != new.id_at(index, width)]


def _count_modified(old: DirectoryRecord, new: DirectoryRecord) -> int | None:
    """How many entries have other bytes or modes; None where there is more to it."""
    if (old.flags | new.flags) & INCOMPLETE:
        return None
    for name in ("mode", "uid", "gid", "names", "subdirectories", "boundaries", "extras"):
        if getattr(old, name) != getattr(new, name):
            return None
    old_modes, new_modes = old.modes, new.modes
    remoded = differing(old_modes.tobytes(), new_modes.tobytes(), CELL)
    if any(stat.S_IFMT(old_modes[index]) != stat.S_IFMT(new_modes[index]) for index in remoded):
        return None
    width = len(old.ids) // len(old.names) if old.names else 1
    return len({*remoded, *differing(old.ids, new.ids, width)})
