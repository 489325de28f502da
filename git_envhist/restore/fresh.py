"""Writes a whole moment where nothing is: into a directory of ours, which nobody else looks into.

What stands in nobody's way needs no slots and no swaps. The directories are made here, one after another; what is in
them is read and written by workers meanwhile, each file at once and whole. Hard links come when all files are there,
and a directory gets its own line when nothing more comes into it.

This is the hot path of a full restore: docs/performance.md says where its time goes, tests/restore/measure.py measures
it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from git_envhist.model import TOP, Entry, EntryKind, EnvPath, SkippedPath
from git_envhist.restore.dress import AttributeSetter
from git_envhist.restore.hands import DiskCalls
from git_envhist.restore.links import check_kinds
from git_envhist.restore.make import Contents
from git_envhist.restore.pen import FileWriter, dress_directory
from git_envhist.restore.plan import OURS, PRIVATE, skip_reason
from git_envhist.restore.spots import NO_STEP, StagedItem, first_names
from git_envhist.restore.way import OpenPath
from git_envhist.restore.workers import share_out, share_stream

PORTION = 256
"""So many entries are given to a worker at a time."""
STRETCH = 2048
"""And of a larger directory so many."""


class NewDirectory(NamedTuple):
    """A directory that is to come."""

    path: EnvPath
    key: Any
    """What the source finds it by."""
    entries: int
    """About how many it holds."""
    directories: tuple[bytes, ...]
    """The names of those in it: they are made before it is handed out."""
    is_made: bool = True
    """Whether it is one of those of the directory above."""


class DirectoryContents(NamedTuple):
    """What stands in a directory."""

    own: Entry
    entries: tuple[Entry, ...]
    """Directories too."""
    is_complete: bool
    """Whether no more directories come into it than were made before it was handed out."""


class TreeSource(Protocol):
    """A moment, as it is to be written."""

    def coming(self) -> Iterator[NewDirectory]:
        """Every directory, the top included, each behind the one it stands in."""

    def holding(self, key: Any, contents: Contents) -> DirectoryContents:
        """What stands in one; asked in any process."""


class EntryRange(NamedTuple):
    """Some of the entries of a directory."""

    coming: NewDirectory
    start: int = 0
    end: int | None = None

    @property
    def is_all(self) -> bool:
        return self.end is None


class WriterReport(NamedTuple):
    """What a worker has to say at its end."""

    counts: Counter[EnvPath]
    tops: dict[EnvPath, Entry]
    late: dict[EnvPath, Entry]
    links: list[tuple[EnvPath, Entry]]
    left: list[SkippedPath]
    losses: list[tuple[bytes, str]]


class WrittenTree(NamedTuple):
    """What stands there now."""

    own: Entry
    """What the top itself is to be."""
    tops: dict[EnvPath, Entry]
    """What stands at the top, by its name; of directories their own lines."""
    counts: Counter[EnvPath]
    """How many entries were brought below each directory at the top, and (under the empty name) at the top."""
    left_alone: tuple[SkippedPath, ...]
    losses: tuple[tuple[bytes, str], ...]


def write_all(
    source: TreeSource, base: int, hands: DiskCalls, open_contents: Callable[[], Contents], how: str
) -> WrittenTree:
    """Write everything below an open directory; EnvhistError where what is read back is not what was written."""
    parent = os.getpid()

    def begin() -> _Writer:
        # A copy of this process has a mask of its own: what it creates has its mode at once.
        if os.getpid() != parent:
            os.umask(0)
        return _Writer(source, base, hands, open_contents())

    wrote = share_stream(_stretches(source, base, hands), begin, _Writer.write, _Writer.end, how=how)
    links = [link for one in wrote for link in one.links]
    losses = [loss for one in wrote for loss in one.losses]
    losses += _write_links(links, begin, how)
    late = {path: own for one in wrote for path, own in one.late.items()}
    losses += _dress_late(late, base, hands)
    counts: Counter[EnvPath] = Counter()
    for one in wrote:
        counts.update(one.counts)
    tops = {path: own for one in wrote for path, own in one.tops.items()}
    left = tuple(sorted((left for one in wrote for left in one.left), key=lambda item: item.path))
    return WrittenTree(late[TOP], tops, counts, left, tuple(losses))


def _stretches(source: TreeSource, base: int, hands: DiskCalls) -> Iterator[list[EntryRange]]:
    """Makes the directories, and hands out what is in them."""
    way = OpenPath(base)
    portion: list[EntryRange] = []
    weight = 0
    try:
        for coming in source.coming():
            if not coming.is_made:
                above, _, name = coming.path.rpartition(b"/")
                hands.mkdir(way.enter(above), name)
            here = way.enter(coming.path) if coming.directories else -1
            for name in coming.directories:
                hands.mkdir(here, name)
            for stretch in _cut(coming):
                portion.append(stretch)
                weight += min(coming.entries, STRETCH) + 1
                if weight >= PORTION:
                    yield portion
                    portion, weight = [], 0
        if portion:
            yield portion
    finally:
        way.close()


def _cut(coming: NewDirectory) -> Iterator[EntryRange]:
    if coming.entries <= STRETCH:
        yield EntryRange(coming)
        return
    for start in range(0, coming.entries, STRETCH):
        # How many there are is not known for sure: the last takes what is left.
        yield EntryRange(coming, start, start + STRETCH if start + STRETCH < coming.entries else 1 << 62)


class _Writer:
    """What one process writes with."""

    def __init__(self, source: TreeSource, base: int, hands: DiskCalls, contents: Contents) -> None:
        self._source = source
        self._contents = contents
        self._way, self._other_way = OpenPath(base), OpenPath(base)
        self._pen = FileWriter(hands, contents)
        self._said = WriterReport(Counter(), {}, {}, [], self._pen.left, self._pen.losses)
        self._read: tuple[EnvPath, DirectoryContents] | None = None

    def write(self, portion: list[EntryRange]) -> None:
        for stretch in portion:
            self._write_stretch(stretch)

    def end(self) -> WriterReport:
        self._way.close()
        self._other_way.close()
        self._contents.close()
        return self._said

    def _write_stretch(self, stretch: EntryRange) -> None:
        path = stretch.coming.path
        own, entries, is_complete = self._holding(stretch)
        linked = self._write_entries(path, entries[stretch.start : stretch.end])
        top, _, below = path.partition(b"/")
        if path and stretch.start == 0:
            self._said.counts[EnvPath(top)] += bool(below)
            if not below:
                self._said.tops[path] = own
        if path and is_complete and stretch.is_all and not linked and own.mode & 0o700 == 0o700:
            self._pen.directory(self._way.enter(path), path, own)
        else:
            self._said.late[path] = own

    def _holding(self, stretch: EntryRange) -> DirectoryContents:
        coming = stretch.coming
        if self._read is not None and self._read[0] == coming.path:
            return self._read[1]
        found = self._source.holding(coming.key, self._contents)
        self._read = None if stretch.is_all else (coming.path, found)
        return found

    def _write_entries(self, path: EnvPath, entries: Iterable[Entry]) -> bool:
        """Whether there are links among them, which come later."""
        directory = self._way.enter(path)
        self._pen.begin_directory()
        cut = len(path) + 1 if path else 0
        written, linked = 0, False
        for entry in entries:
            if entry.kind is EntryKind.DIRECTORY:
                continue
            if (why := self._why_left(entry)) is not None:
                self._said.left.append(SkippedPath(entry.path, why))
                continue
            written += 1
            if not path:
                self._said.tops[entry.path] = entry
            if entry.link_group is not None:
                self._said.links.append((path, entry))
                linked = True
            else:
                self._pen.write(directory, entry.path[cut:], entry)
        self._said.counts[EnvPath(path.partition(b"/")[0])] += written
        return linked

    def _why_left(self, entry: Entry) -> str | None:
        return OURS if entry.path == PRIVATE else skip_reason(entry)

    def make(self, spots: tuple[StagedItem, ...]) -> None:
        """Make what has more names than one, under the first of them."""
        for spot in spots:
            self._pen.begin_directory()
            self._pen.write(self._way.enter(spot.directory), spot.name, spot.entry)

    def link(self, pairs: tuple[tuple[StagedItem, StagedItem], ...]) -> None:
        """Give what is made already one more name."""
        for leader, spot in pairs:
            source = self._other_way.enter(leader.directory)
            here = self._way.enter(spot.directory)
            self._pen.begin_directory()
            self._pen.link(source, leader.name, leader.entry, here, spot.name, spot.entry)


def _write_links(
    links: list[tuple[EnvPath, Entry]], begin: Callable[[], _Writer], how: str
) -> list[tuple[bytes, str]]:
    if not links:
        return []
    links.sort(key=lambda link: link[1].path)
    check_kinds(entry for _, entry in links)
    spots = [StagedItem(b"", path, entry.path.rpartition(b"/")[2], entry, NO_STEP) for path, entry in links]
    first, twins = first_names(spots)
    losses: list[tuple[bytes, str]] = []
    for work, do in ((_batches(first), _Writer.make), (_batches(twins), _Writer.link)):
        _, wrote = share_out(work, begin, do, _Writer.end, how=how)
        losses += [loss for one in wrote for loss in one.losses]
    return losses


def _batches(items: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(items[start : start + PORTION]) for start in range(0, len(items), PORTION)]


def _dress_late(late: dict[EnvPath, Entry], base: int, hands: DiskCalls) -> Iterator[tuple[bytes, str]]:
    """The own lines of the directories that had to wait, the deepest first; the top's is for who puts it in place."""
    way, dresser = OpenPath(base), AttributeSetter(hands)
    try:
        for path in sorted(late, key=lambda path: (path.count(b"/"), path), reverse=True):
            if path:
                yield from dress_directory(way.enter(path), path, late[path], dresser)
    finally:
        way.close()
