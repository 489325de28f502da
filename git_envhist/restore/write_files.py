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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from git_envhist.errors import EnvhistError
from git_envhist.model import TOP, Entry, EntryKind, EnvPath, SkippedPath, StoredAs
from git_envhist.platform import DIRECTORY, open_nofollow
from git_envhist.restore.attributes import AttributeSetter, Lose, read_xattrs
from git_envhist.restore.compare_files import file_equals, has_bytes
from git_envhist.restore.fs import NO_LINKS, DiskCalls, open_directory
from git_envhist.restore.plan import PRIVATE, SKIP_OWN_FILES, check_kinds, skip_reason
from git_envhist.restore.stage import NO_STEP, StagedItem, first_names
from git_envhist.restore.verify import compare, compare_stat
from git_envhist.restore.write_entry import (
    HOLE,
    NOT_MADE,
    Contents,
    EntryWriter,
    file_blocks,
    same_bytes,
    without_zeros,
)
from git_envhist.workers import share_out, share_stream

# Writes one thing of a moment where nothing is, and reads it back.
#
# A file is created with its name and written at once; it is dressed by its descriptor, and every byte is read back
# through that and compared while it is still in memory: nothing is opened twice, and nothing hashed twice.

MAIN = b""
"""What is written elsewhere is the working tree's: roots beside it are not."""


class FileWriter:
    """Makes files, links and the rest in open directories."""

    def __init__(self, hands: DiskCalls, contents: Contents) -> None:
        self._hands = hands
        self._contents = contents
        self._maker = EntryWriter(hands, contents)
        self._dresser = AttributeSetter(hands)
        self.losses = self._maker.losses
        self.left: list[SkippedPath] = []
        self._gives_none = False

    def begin_directory(self) -> None:
        """What is written from now on comes into another directory."""
        self._gives_none = False

    def write(self, directory: int, name: bytes, entry: Entry) -> None:
        """Anything but a directory; EnvhistError where what is read back is not what was written."""
        if entry.kind is EntryKind.FILE:
            self._file(directory, name, entry)
        else:
            self._other(directory, name, entry)

    def directory(self, descriptor: int, path: EnvPath, own: Entry) -> None:
        """What the own line of an open directory says."""
        self.losses.extend(dress_directory(descriptor, path, own, self._dresser))

    def link(
        self, source: int, first: bytes, leader: Entry, directory: int, name: bytes, entry: Entry
    ) -> None:
        """One more name of what is written already; where that cannot be had, a file of its own."""
        if not same_bytes(self._contents, (MAIN, leader), (MAIN, entry)) or not self._linked(
            source, first, directory, name, entry
        ):
            self.write(directory, name, entry)

    def _file(self, directory: int, name: bytes, entry: Entry) -> None:
        hands = self._hands
        # Attributes want a file that its owner may write to; the others have their mode at once.
        descriptor = hands.create(directory, name, 0o600 if entry.xattrs else entry.mode & 0o777)
        try:
            size = self._fill(descriptor, entry)
            hands.futime(descriptor, entry.mtime_ns)
            now = os.fstat(descriptor)
            if (
                now.st_mode & 0o7777 != entry.mode
                or now.st_uid != entry.uid
                or now.st_gid != entry.gid
                or entry.xattrs
            ):
                self._dresser.new_file(descriptor, entry, self._losing(entry))
                now = os.fstat(descriptor)
            if size != now.st_size:
                raise _not_as_written(entry)
            if now.st_mtime_ns != entry.mtime_ns or now.st_mode & 0o7777 != entry.mode:
                self._tell(entry, compare_stat(now, entry))
            if entry.xattrs or not self._gives_none:
                self._check_xattrs(descriptor, entry)
        finally:
            os.close(descriptor)

    def _check_xattrs(self, descriptor: int, entry: Entry) -> None:
        found = read_xattrs(descriptor)
        if found != dict(entry.xattrs):
            self._tell(entry, ("attributes",))
        elif found == {}:
            # What one new file is not given by its directory, an access list say, no other one is.
            self._gives_none = True

    def _fill(self, descriptor: int, entry: Entry) -> int:
        """Write the bytes, and read them back; how many they are."""
        assert entry.oid is not None
        if self._contents.lends and (lent := self._borrow(descriptor, entry)) is not None:
            return lent
        data = self._contents.plain(entry)
        if entry.stored is StoredAs.PLAIN and len(data) < HOLE:
            if data:
                self._hands.write(descriptor, data, 0)
                if not file_equals(descriptor, data, 0):
                    raise _not_as_written(entry)
            return len(data)
        at = 0
        for block in file_blocks(self._contents, entry.path, entry, data):
            self._write_block(descriptor, block, at)
            if not file_equals(descriptor, block, at):
                raise _not_as_written(entry)
            at += len(block)
        return at

    def _borrow(self, descriptor: int, entry: Entry) -> int | None:
        """Take the bytes from where they stand already, if what comes of that is what is wanted."""
        if self._contents.lend(
            entry, lambda source, share: self._hands.clone(source, descriptor, share=share)
        ):
            size = os.fstat(descriptor).st_size
            if has_bytes(descriptor, size, MAIN, entry, self._contents):
                return size
        self._hands.truncate(descriptor, 0)
        return None

    def _write_block(self, descriptor: int, block: bytes, at: int) -> None:
        done = 0
        for start, end in without_zeros(block):
            self._hands.write(descriptor, block[start:end] if end - start < len(block) else block, at + start)
            done = end
        if done < len(block):
            self._hands.truncate(descriptor, at + len(block))

    def _other(self, directory: int, name: bytes, entry: Entry) -> None:
        if self._maker.make(directory, name, entry, entry.path) is None:
            self.left.append(SkippedPath(entry.path, NOT_MADE))
            return
        whats = [*compare(directory, name, MAIN, entry, self._contents)]
        if "content" in whats or "kind" in whats:
            raise _not_as_written(entry)
        self._tell(entry, whats)

    def _linked(self, source: int, first: bytes, directory: int, name: bytes, entry: Entry) -> bool:
        try:
            self._hands.link(source, first, directory, name)
            one = os.stat(first, dir_fd=source, follow_symlinks=False)
        except FileNotFoundError:
            return False  # the first could not be made here
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self._lose(entry, "hard link")
            return False
        if not os.path.samestat(one, os.stat(name, dir_fd=directory, follow_symlinks=False)):
            self._lose(entry, "hard link")
        return True

    def _lose(self, entry: Entry, what: str) -> None:
        self.losses.append((entry.path, what))

    def _losing(self, entry: Entry) -> Lose:
        return lambda what: self._lose(entry, what)

    def _tell(self, entry: Entry, whats: Iterable[str]) -> None:
        lost = self.losses
        # What was lost already explains the rest.
        if not lost or lost[-1][0] != entry.path:
            lost.extend([(entry.path, what) for what in whats])


def dress_directory(
    descriptor: int, path: EnvPath, own: Entry, dresser: AttributeSetter
) -> list[tuple[bytes, str]]:
    """Give a directory what its own line says, and look whether it has it; what it has not."""
    if dresser.plain_directory(descriptor, own):
        return [(path, what) for what in compare_stat(os.fstat(descriptor), own)]
    lost: list[tuple[bytes, str]] = []
    dresser.directory(descriptor, own, lambda what: lost.append((path, what)))
    whats = list(compare_stat(os.fstat(descriptor), own))
    if read_xattrs(descriptor) != dict(own.xattrs):
        whats.append("attributes")
    return lost or [(path, what) for what in whats]


def _not_as_written(entry: Entry) -> EnvhistError:
    return EnvhistError(
        f"what was written is not what the snapshot holds: '{os.fsdecode(entry.path)}'",
        hint="the disk does not keep what is written to it",
    )


# The way down to one directory after another below an open one: what two have in common stays open.

MAX_COUNT = 64
"""So many directories are open at most; the way to those that stand deeper is gone anew each time."""


class OpenPath:
    """Opens directories by their paths, name by name and through no link."""

    def __init__(self, base: int) -> None:
        self.base = base
        self._path: bytes | None = None
        self._names: list[bytes] = []
        self._open: list[int] = []
        self._deep = -1

    def enter(self, path: bytes) -> int:
        """The open directory at a path, which stays open until another one is entered."""
        if path == self._path:
            return self._here
        self._path = None
        names = path.split(b"/") if path else []
        shared = 0
        while shared < min(len(names), len(self._names)) and names[shared] == self._names[shared]:
            shared += 1
        self._leave(shared)
        for name in names[shared:MAX_COUNT]:
            self._open.append(open_nofollow(name, DIRECTORY, dir_fd=self._here))
            self._names.append(name)
        if len(names) > MAX_COUNT:
            self._deep = open_directory(self._here, b"/".join(names[MAX_COUNT:]))
        self._path = path
        return self._here

    def close(self) -> None:
        self._path = None
        self._leave(0)

    @property
    def _here(self) -> int:
        if self._deep >= 0:
            return self._deep
        return self._open[-1] if self._open else self.base

    def _leave(self, kept: int) -> None:
        deep, self._deep = self._deep, -1
        if deep >= 0:
            os.close(deep)
        # Let go of by its name before it is closed: a signal between the two would have it closed twice.
        while len(self._open) > kept:
            self._names.pop()
            os.close(self._open.pop())


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
    skipped: tuple[SkippedPath, ...]
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
        return SKIP_OWN_FILES if entry.path == PRIVATE else skip_reason(entry)

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


# Counts what a restore into a new directory left there, read from the disk and not from what the writers report.


def refuse_if_missing(top: int, directory: bytes, fresh: WrittenTree, kept: Sequence[SkippedPath]) -> None:
    """Raise EnvhistError if a directory holds fewer entries than were written into it."""
    skipped = {item.path for item in kept}
    expected = {path: entry for path, entry in fresh.tops.items() if path not in skipped}
    missing = sum(
        _count_missing(top, path, entry.kind, fresh.counts[path]) for path, entry in expected.items()
    )
    if missing:
        raise EnvhistError(
            f"{missing} of the paths that were written into '{os.fsdecode(directory)}' are not there",
            hint="restore into another directory, and look at the kernel's log for errors of the disk",
        )


def _count_missing(top: int, name: bytes, kind: EntryKind, below: int) -> int:
    try:
        if kind is EntryKind.DIRECTORY:
            return max(0, below - count_entries(top, name))
        os.stat(name, dir_fd=top, follow_symlinks=False)
    except PermissionError:
        # An ordinary user wrote a directory that its owner cannot list.
        return 0
    except FileNotFoundError:
        return below + 1
    return 0


def count_entries(base: int, path: bytes) -> int:
    """Return how many entries are below a directory; PermissionError if one of its directories cannot be listed."""
    fresh_base = os.open(b".", DIRECTORY, dir_fd=base)
    way = OpenPath(fresh_base)
    count, to_visit = 0, [path]
    try:
        while to_visit:
            directory = to_visit.pop()
            with os.scandir(way.enter(directory)) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        to_visit.append(directory + b"/" + os.fsencode(entry.name))
    finally:
        way.close()
        os.close(fresh_base)
    return count
