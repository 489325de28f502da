"""Reads back whatever a restore wrote: bytes, kinds, modes, times, owners, attributes, links and which of them are one.

Another process may have gone on meanwhile, so that a difference is told and judged by whoever asked.
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
from git_envhist.restore.attributes import read_xattrs
from git_envhist.restore.compare_files import has_bytes, is_link_to, open_to_read
from git_envhist.restore.disk import RestoreDisk
from git_envhist.restore.disk_entry import KINDS
from git_envhist.restore.fs import open_directory
from git_envhist.restore.held_times import UNHELD, HeldTimes
from git_envhist.restore.journal import RestoreJournal
from git_envhist.restore.plan import link_class
from git_envhist.restore.write_entry import Contents
from git_envhist.workers import portion, share_out

_COLUMNS = attrgetter("st_ctime_ns", "st_mtime_ns", "st_size", "st_ino", "st_mode")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that is not as the target says."""

    path: EnvPath
    """As people see it."""
    what: str
    """`missing`, `kind`, `content`, `mode`, `mtime`, `owner`, `attributes`, `device`, `hard links`, `unreadable`, or
    UNHELD in the place of `mtime`."""


class ExpectedEntry(NamedTuple):
    """What must stand at a path."""

    root: bytes
    path: EnvPath
    entry: Entry


Row = tuple[int, int, int, int, int]
"""Change time, modification time, size, inode and mode."""


class VerifyResult(NamedTuple):
    """What came of it."""

    differences: tuple[Mismatch, ...]
    rows: dict[tuple[bytes, EnvPath], Row]
    """By root and path, how what is no directory looked right before its bytes were read."""


class _CheckedBatch(NamedTuple):
    differences: list[Mismatch]
    inodes: list[tuple[ExpectedEntry, tuple[int, int]]]
    rows: list[tuple[tuple[bytes, EnvPath], Row]]


def verify(
    journal: RestoreJournal,
    door: RestoreDisk,
    open_contents: Callable[[], Contents],
    *,
    without: frozenset[EnvPath] = frozenset(),
    how: str = "fork",
) -> VerifyResult:
    """What differs from the target, less the paths (as people see them) that were left alone."""
    wanted = [item for item in _wanted(journal) if shown_path(item.root, item.path) not in without]
    size = portion(len(wanted))
    batches = [wanted[start : start + size] for start in range(0, len(wanted), size)]
    results, _ = share_out(
        batches, lambda: _Verifier(door, open_contents()), _Verifier.check, _Verifier.end, how=how
    )
    found = [difference for checked in results for difference in checked.differences]
    found += _links(pair for checked in results for pair in checked.inodes)
    found += _directories(journal, door, without)
    rows = {place: row for checked in results for place, row in checked.rows}
    return VerifyResult(tuple(sorted(found, key=lambda difference: (difference.path, difference.what))), rows)


def _wanted(journal: RestoreJournal) -> Iterator[ExpectedEntry]:
    for staged in journal.staged:
        step = staged.step
        if step.after is None:
            continue
        for entry in (step.after, *step.below):
            # A new directory's own line is set, and looked at, with the others.
            if entry is not step.after or entry.kind is not EntryKind.DIRECTORY:
                yield ExpectedEntry(step.root, entry.path, entry)


class _Verifier:
    """Looks at paths, one directory after another."""

    def __init__(self, door: RestoreDisk, contents: Contents) -> None:
        self._door = door
        self._contents = contents
        self._times = HeldTimes(door)
        self._open: tuple[bytes, bytes] | None = None
        self._descriptor = -1

    def check(self, batch: list[ExpectedEntry]) -> _CheckedBatch:
        checked = _CheckedBatch([], [], [])
        for wanted in batch:
            try:
                whats = list(self._compare(wanted, checked))
            except FileNotFoundError:
                whats = ["missing"]
            except NotADirectoryError:
                whats = ["kind"]
            except OSError:
                whats = ["unreadable"]
            shown = shown_path(wanted.root, wanted.path)
            checked.differences.extend(Mismatch(shown, what) for what in whats)
        return checked

    def end(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._times.close()
        self._contents.close()

    def _compare(self, wanted: ExpectedEntry, checked: _CheckedBatch) -> Iterator[str]:
        above, _, name = wanted.path.rpartition(b"/")
        directory = self._enter(wanted.root, above)
        entry = wanted.entry
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        checked.rows.append(((wanted.root, wanted.path), _COLUMNS(found)))
        for what in compare(directory, name, wanted.root, entry, self._contents):
            yield _why_differs(what, found, wanted.root, entry, self._times)
        if entry.link_group is not None:
            checked.inodes.append((wanted, (found.st_dev, found.st_ino)))

    def _enter(self, root: bytes, path: bytes) -> int:
        if self._open != (root, path):
            if self._descriptor >= 0:
                before, self._descriptor, self._open = self._descriptor, -1, None
                os.close(before)
            with self._door.directory(root, EnvPath(path)) as descriptor:
                self._descriptor = open_directory(descriptor, b"")
            self._open = (root, path)
        return self._descriptor


def compare(directory: int, name: bytes, root: bytes, entry: Entry, contents: Contents) -> Iterator[str]:
    """What of an entry is not as what bears its name in an open directory."""
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
    """What of an entry is not as one look has it."""
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


def _why_differs(what: str, found: os.stat_result, root: bytes, entry: Entry, times: HeldTimes) -> str:
    if what == "mtime" and times.is_held_as(root, entry.mtime_ns, found.st_mtime_ns):
        return UNHELD
    return what


def _links(pairs: Iterable[tuple[ExpectedEntry, tuple[int, int]]]) -> Iterator[Mismatch]:
    """Names that should be one file and are not."""
    first: dict[object, tuple[int, int]] = {}
    for wanted, inode in pairs:
        if first.setdefault(link_class(wanted.entry), inode) != inode:
            yield Mismatch(shown_path(wanted.root, wanted.path), "hard links")


def _directories(
    journal: RestoreJournal, door: RestoreDisk, without: frozenset[EnvPath]
) -> Iterator[Mismatch]:
    with closing(HeldTimes(door)) as times:
        yield from _directories_that_differ(journal, door, without, times)


def _directories_that_differ(
    journal: RestoreJournal, door: RestoreDisk, without: frozenset[EnvPath], times: HeldTimes
) -> Iterator[Mismatch]:
    for own in journal.directories:
        shown = shown_path(own.root, own.path)
        if own.after is None or shown in without:
            continue
        try:
            with door.directory(own.root, own.path) as descriptor:
                seen = os.fstat(descriptor)
                whats = [
                    _why_differs(what, seen, own.root, own.after, times)
                    for what in compare_stat(seen, own.after)
                ]
                if read_xattrs(descriptor) != dict(own.after.xattrs):
                    whats.append("attributes")
        except FileNotFoundError:
            whats = ["missing"]
        except PermissionError:
            whats = ["unreadable"]
        except OSError:
            whats = ["kind"]
        yield from (Mismatch(shown, what) for what in whats)
