"""Read back everything that a restore wrote: contents, kinds, modes, times, owners, attributes and hard links.

Another process may have changed files meanwhile, so differences are returned, and the caller judges them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from operator import attrgetter
from typing import NamedTuple

from git_envhist.lazy import dataclass
from git_envhist.model import Entry, EntryKind, EnvPath, shown_path
from git_envhist.platform import SYSTEM
from git_envhist.restore.compare_files import has_bytes, is_link_to, open_to_read
from git_envhist.restore.disk_calls import open_directory
from git_envhist.restore.disk_entry import KINDS
from git_envhist.restore.environment_disk import EnvironmentDisk
from git_envhist.restore.journal import RestoreJournal
from git_envhist.restore.plan_steps import link_class
from git_envhist.restore.set_metadata import read_xattrs
from git_envhist.restore.storable_times import NOT_STORABLE, StorableTimes
from git_envhist.restore.write_entry import Contents
from git_envhist.workers import portion_size, share_out

_COLUMNS = attrgetter("st_ctime_ns", "st_mtime_ns", "st_size", "st_ino", "st_mode")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A difference between the disk and the target snapshot."""

    path: EnvPath
    """The displayed path."""
    field: str
    """`missing`, `kind`, `content`, `mode`, `mtime`, `owner`, `attributes`, `device`, `hard links`, `unreadable`, or
    NOT_STORABLE instead of `mtime`."""


class ExpectedEntry(NamedTuple):
    """The entry that a path must have."""

    root: bytes
    path: EnvPath
    entry: Entry


Row = tuple[int, int, int, int, int]
"""Change time, modification time, size, inode and mode."""


class VerifyResult(NamedTuple):
    """The differences, and the stat data of all verified paths."""

    differences: tuple[Mismatch, ...]
    rows: dict[tuple[bytes, EnvPath], Row]
    """Stat data by root and path, taken before the contents were read; without directories."""


class _CheckedBatch(NamedTuple):
    differences: list[Mismatch]
    inodes: list[tuple[ExpectedEntry, tuple[int, int]]]
    rows: list[tuple[tuple[bytes, EnvPath], Row]]


def verify_restored_files(
    journal: RestoreJournal,
    disk: EnvironmentDisk,
    open_contents: Callable[[], Contents],
    *,
    skipped: frozenset[EnvPath] = frozenset(),
    how: str = "fork",
) -> VerifyResult:
    """Return the differences from the target; `skipped`: displayed paths that were skipped."""
    expected = [item for item in _expected(journal) if shown_path(item.root, item.path) not in skipped]
    size = portion_size(len(expected))
    batches = [expected[start : start + size] for start in range(0, len(expected), size)]
    results, _ = share_out(
        batches, lambda: _Verifier(disk, open_contents()), _Verifier.check, _Verifier.end, how=how
    )
    found = [difference for checked in results for difference in checked.differences]
    found += _links(pair for checked in results for pair in checked.inodes)
    found += _directories(journal, disk, skipped)
    rows = {place: row for checked in results for place, row in checked.rows}
    return VerifyResult(
        tuple(sorted(found, key=lambda difference: (difference.path, difference.field))), rows
    )


def _expected(journal: RestoreJournal) -> Iterator[ExpectedEntry]:
    for staged in journal.staged:
        step = staged.step
        if step.after is None:
            continue
        for entry in (step.after, *step.below):
            # The attributes of a new directory are set, and verified, with those of all others.
            if entry is not step.after or entry.kind is not EntryKind.DIRECTORY:
                yield ExpectedEntry(step.root, entry.path, entry)


class _Verifier:
    """Verifies paths in one process, directory by directory."""

    def __init__(self, disk: EnvironmentDisk, contents: Contents) -> None:
        self._disk = disk
        self._contents = contents
        self._times = StorableTimes(disk)
        self._open: tuple[bytes, bytes] | None = None
        self._descriptor = -1

    def check(self, batch: list[ExpectedEntry]) -> _CheckedBatch:
        checked = _CheckedBatch([], [], [])
        for expected in batch:
            try:
                fields = list(self._compare(expected, checked))
            except FileNotFoundError:
                fields = ["missing"]
            except NotADirectoryError:
                fields = ["kind"]
            except OSError:
                fields = ["unreadable"]
            shown = shown_path(expected.root, expected.path)
            checked.differences.extend(Mismatch(shown, field) for field in fields)
        return checked

    def end(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._times.close()
        self._contents.close()

    def _compare(self, expected: ExpectedEntry, checked: _CheckedBatch) -> Iterator[str]:
        above, _, name = expected.path.rpartition(b"/")
        directory = self._enter(expected.root, above)
        entry = expected.entry
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        checked.rows.append(((expected.root, expected.path), _COLUMNS(found)))
        for field in differing_fields(directory, name, expected.root, entry, self._contents):
            yield _classify(field, found, expected.root, entry, self._times)
        if entry.link_group is not None:
            checked.inodes.append((expected, (found.st_dev, found.st_ino)))

    def _enter(self, root: bytes, path: bytes) -> int:
        if self._open != (root, path):
            if self._descriptor >= 0:
                before, self._descriptor, self._open = self._descriptor, -1, None
                os.close(before)
            with self._disk.directory(root, EnvPath(path)) as descriptor:
                self._descriptor = open_directory(descriptor, b"")
            self._open = (root, path)
        return self._descriptor


def differing_fields(
    directory: int, name: bytes, root: bytes, entry: Entry, contents: Contents
) -> Iterator[str]:
    """Yield the fields in which an entry differs from the file of this name in an open directory."""
    if entry.kind is EntryKind.FILE:
        descriptor = open_to_read(directory, name)
        try:
            found = os.fstat(descriptor)
            yield from compare_stat(found, entry)
            if stat.S_ISREG(found.st_mode) and not has_bytes(
                descriptor, found.st_size, root, entry, contents
            ):
                yield "content"
            if read_xattrs(descriptor) != dict(entry.xattrs):
                yield "attributes"
        finally:
            os.close(descriptor)
        return
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    yield from compare_stat(found, entry)
    if entry.kind is EntryKind.LINK and not is_link_to(directory, name, entry):
        yield "content"
    place = b"/proc/self/fd/%d/%b" % (directory, name)
    if SYSTEM.proc and read_xattrs(place) != dict(entry.xattrs):
        yield "attributes"


def compare_stat(found: os.stat_result, entry: Entry) -> Iterator[str]:
    """Yield the fields in which an entry differs from stat data."""
    if KINDS[stat.S_IFMT(found.st_mode)] is not entry.kind:
        yield "kind"
        return
    if entry.kind is not EntryKind.LINK and found.st_mode & 0o7777 != entry.mode:
        yield "mode"
    if found.st_mtime_ns != entry.mtime_ns:
        yield "mtime"
    if entry.uid not in (None, found.st_uid) or entry.gid not in (None, found.st_gid):
        yield "owner"
    if entry.device is not None and found.st_rdev != entry.device:
        yield "device"


def _classify(field: str, found: os.stat_result, root: bytes, entry: Entry, times: StorableTimes) -> str:
    if field == "mtime" and times.stores_as(root, entry.mtime_ns, found.st_mtime_ns):
        return NOT_STORABLE
    return field


def _links(pairs: Iterable[tuple[ExpectedEntry, tuple[int, int]]]) -> Iterator[Mismatch]:
    """Yield names that should be one file and are not."""
    first: dict[object, tuple[int, int]] = {}
    for expected, inode in pairs:
        if first.setdefault(link_class(expected.entry), inode) != inode:
            yield Mismatch(shown_path(expected.root, expected.path), "hard links")


def _directories(
    journal: RestoreJournal, disk: EnvironmentDisk, skipped: frozenset[EnvPath]
) -> Iterator[Mismatch]:
    with closing(StorableTimes(disk)) as times:
        yield from _directories_that_differ(journal, disk, skipped, times)


def _directories_that_differ(
    journal: RestoreJournal, disk: EnvironmentDisk, skipped: frozenset[EnvPath], times: StorableTimes
) -> Iterator[Mismatch]:
    for own in journal.directories:
        shown = shown_path(own.root, own.path)
        if own.after is None or shown in skipped:
            continue
        try:
            with disk.directory(own.root, own.path) as descriptor:
                seen = os.fstat(descriptor)
                fields = [
                    _classify(field, seen, own.root, own.after, times)
                    for field in compare_stat(seen, own.after)
                ]
                if read_xattrs(descriptor) != dict(own.after.xattrs):
                    fields.append("attributes")
        except FileNotFoundError:
            fields = ["missing"]
        except PermissionError:
            fields = ["unreadable"]
        except OSError:
            fields = ["kind"]
        yield from (Mismatch(shown, field) for field in fields)
