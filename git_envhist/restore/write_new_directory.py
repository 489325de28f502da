"""Write a whole snapshot into a new private directory.

An empty directory needs no slots and no swaps. This process creates the directories one after another, while workers
write and verify the files in them. Hard links are written after all files, and the metadata of a directory is set when
it is complete.

This is the hot path of a full restore: see docs/internals/performance.md and tests/restore/measure.py.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from git_envhist.errors import EnvhistError
from git_envhist.model import TOP, Entry, EntryKind, EnvPath, SkippedPath, StoredAs
from git_envhist.platform import DIRECTORY, open_nofollow
from git_envhist.restore.compare_files import file_equals, has_bytes
from git_envhist.restore.disk_calls import NO_LINKS, DiskCalls, open_directory
from git_envhist.restore.plan_steps import PRIVATE, SkipReason, check_kinds, skip_reason
from git_envhist.restore.set_metadata import Lose, MetadataSetter, read_xattrs
from git_envhist.restore.stage import NO_STEP, StagedItem, first_names
from git_envhist.restore.verify import compare_stat, differing_fields
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

# A file is created under its final name and written at once; its metadata is set through the same descriptor, and every
# byte is read back and compared while it is in memory, so nothing is opened or hashed twice.

WORKING_TREE = b""
"""The root of the working tree: additional roots are not written to another directory."""


class FileWriter:
    """Writes and verifies files, links and special files in open directories."""

    def __init__(self, calls: DiskCalls, contents: Contents) -> None:
        self._calls = calls
        self._contents = contents
        self._entry_writer = EntryWriter(calls, contents)
        self._metadata = MetadataSetter(calls)
        self.losses = self._entry_writer.losses
        self.skipped: list[SkippedPath] = []
        self._inherits_nothing = False

    def begin_directory(self) -> None:
        """Start to write in another directory."""
        self._inherits_nothing = False

    def write(self, directory: int, name: bytes, entry: Entry) -> None:
        """Write anything but a directory; raise EnvhistError if reading back gives something else."""
        if entry.kind is EntryKind.FILE:
            self._file(directory, name, entry)
        else:
            self._other(directory, name, entry)

    def directory(self, descriptor: int, path: EnvPath, own: Entry) -> None:
        """Set the metadata of an open directory."""
        self.losses.extend(set_directory_metadata(descriptor, path, own, self._metadata))

    def link(
        self, source: int, first: bytes, leader: Entry, directory: int, name: bytes, entry: Entry
    ) -> None:
        """Hard-link a written file, or write a separate file if that is impossible."""
        if not same_bytes(self._contents, (WORKING_TREE, leader), (WORKING_TREE, entry)) or not self._linked(
            source, first, directory, name, entry
        ):
            self.write(directory, name, entry)

    def _file(self, directory: int, name: bytes, entry: Entry) -> None:
        calls = self._calls
        # Attributes require a writable file; other files get their mode at once.
        descriptor = calls.create(directory, name, 0o600 if entry.xattrs else entry.mode & 0o777)
        try:
            size = self._fill(descriptor, entry)
            calls.futime(descriptor, entry.mtime_ns)
            now = os.fstat(descriptor)
            if (
                now.st_mode & 0o7777 != entry.mode
                or now.st_uid != entry.uid
                or now.st_gid != entry.gid
                or entry.xattrs
            ):
                self._metadata.new_file(descriptor, entry, self._lose_of(entry))
                now = os.fstat(descriptor)
            if size != now.st_size:
                raise _not_as_written(entry)
            if now.st_mtime_ns != entry.mtime_ns or now.st_mode & 0o7777 != entry.mode:
                self._report(entry, compare_stat(now, entry))
            if entry.xattrs or not self._inherits_nothing:
                self._check_xattrs(descriptor, entry)
        finally:
            os.close(descriptor)

    def _check_xattrs(self, descriptor: int, entry: Entry) -> None:
        found = read_xattrs(descriptor)
        if found != dict(entry.xattrs):
            self._report(entry, ("attributes",))
        elif found == {}:
            # If one new file inherited no attributes from its directory, for example an ACL, no other one does.
            self._inherits_nothing = True

    def _fill(self, descriptor: int, entry: Entry) -> int:
        """Write the contents and read them back; return the size."""
        assert entry.oid is not None
        if self._contents.lends and (cloned_size := self._clone(descriptor, entry)) is not None:
            return cloned_size
        data = self._contents.plain(entry)
        if entry.stored is StoredAs.PLAIN and len(data) < HOLE:
            if data:
                self._calls.write(descriptor, data, 0)
                if not file_equals(descriptor, data, 0):
                    raise _not_as_written(entry)
            return len(data)
        offset = 0
        for block in file_blocks(self._contents, entry.path, entry, data):
            self._write_block(descriptor, block, offset)
            if not file_equals(descriptor, block, offset):
                raise _not_as_written(entry)
            offset += len(block)
        return offset

    def _clone(self, descriptor: int, entry: Entry) -> int | None:
        """Clone the file of the working tree if it has the right contents; return the size, else None."""
        if self._contents.lend(
            entry, lambda source, share: self._calls.clone(source, descriptor, share=share)
        ):
            size = os.fstat(descriptor).st_size
            if has_bytes(descriptor, size, WORKING_TREE, entry, self._contents):
                return size
        self._calls.truncate(descriptor, 0)
        return None

    def _write_block(self, descriptor: int, block: bytes, offset: int) -> None:
        done = 0
        for start, end in without_zeros(block):
            self._calls.write(
                descriptor, block[start:end] if end - start < len(block) else block, offset + start
            )
            done = end
        if done < len(block):
            self._calls.truncate(descriptor, offset + len(block))

    def _other(self, directory: int, name: bytes, entry: Entry) -> None:
        if self._entry_writer.make(directory, name, entry, entry.path) is None:
            self.skipped.append(SkippedPath(entry.path, NOT_MADE))
            return
        fields = [*differing_fields(directory, name, WORKING_TREE, entry, self._contents)]
        if "content" in fields or "kind" in fields:
            raise _not_as_written(entry)
        self._report(entry, fields)

    def _linked(self, source: int, first: bytes, directory: int, name: bytes, entry: Entry) -> bool:
        try:
            self._calls.link(source, first, directory, name)
            one = os.stat(first, dir_fd=source, follow_symlinks=False)
        except FileNotFoundError:
            return False  # the first name could not be written
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

    def _lose_of(self, entry: Entry) -> Lose:
        return lambda what: self._lose(entry, what)

    def _report(self, entry: Entry, fields: Iterable[str]) -> None:
        lost = self.losses
        # A lost owner or attribute already explains the remaining differences.
        if not lost or lost[-1][0] != entry.path:
            lost.extend([(entry.path, what) for what in fields])


def set_directory_metadata(
    descriptor: int, path: EnvPath, own: Entry, setter: MetadataSetter
) -> list[tuple[bytes, str]]:
    """Set the metadata of a directory and read it back; return what differs."""
    if setter.plain_directory(descriptor, own):
        return [(path, what) for what in compare_stat(os.fstat(descriptor), own)]
    lost: list[tuple[bytes, str]] = []
    setter.directory(descriptor, own, lambda what: lost.append((path, what)))
    fields = list(compare_stat(os.fstat(descriptor), own))
    if read_xattrs(descriptor) != dict(own.xattrs):
        fields.append("attributes")
    return lost or [(path, what) for what in fields]


def _not_as_written(entry: Entry) -> EnvhistError:
    return EnvhistError(
        f"written contents differ from the snapshot: '{os.fsdecode(entry.path)}'",
        hint="check the disk: it returns other bytes than were written",
    )


# Open directories one after another below an open one; common parents stay open.

MAX_COUNT = 64
"""The maximum number of open directories; deeper ones are opened again each time."""


class OpenPath:
    """Opens directories by path, name by name and without following links."""

    def __init__(self, base: int) -> None:
        self.base = base
        self._path: bytes | None = None
        self._names: list[bytes] = []
        self._open: list[int] = []
        self._deepest = -1

    def enter(self, path: bytes) -> int:
        """Return an open directory, valid until another one is entered."""
        if path == self._path:
            return self._here
        self._path = None
        names = path.split(b"/") if path else []
        shared = 0
        while shared < min(len(names), len(self._names)) and names[shared] == self._names[shared]:
            shared += 1
        self._close_below(shared)
        for name in names[shared:MAX_COUNT]:
            self._open.append(open_nofollow(name, DIRECTORY, dir_fd=self._here))
            self._names.append(name)
        if len(names) > MAX_COUNT:
            self._deepest = open_directory(self._here, b"/".join(names[MAX_COUNT:]))
        self._path = path
        return self._here

    def close(self) -> None:
        self._path = None
        self._close_below(0)

    @property
    def _here(self) -> int:
        if self._deepest >= 0:
            return self._deepest
        return self._open[-1] if self._open else self.base

    def _close_below(self, depth: int) -> None:
        deep, self._deepest = self._deepest, -1
        if deep >= 0:
            os.close(deep)
        # Forget a descriptor before closing it, so that a signal in between cannot lead to a second close.
        while len(self._open) > depth:
            self._names.pop()
            os.close(self._open.pop())


PORTION = 256
"""The number of entries in one portion of work."""
RANGE_SIZE = 2048
"""The maximum number of entries in one range of a larger directory."""


class NewDirectory(NamedTuple):
    """A directory to write."""

    path: EnvPath
    key: Any
    """Identifies the directory for the source of its entries."""
    entries: int
    """The approximate number of its entries."""
    directories: tuple[bytes, ...]
    """The names of its subdirectories that are created before it is handed to a worker."""
    is_made: bool = True
    """True if the parent directory created it."""


class DirectoryContents(NamedTuple):
    """The entries of a directory."""

    own: Entry
    entries: tuple[Entry, ...]
    """Directories included."""
    is_complete: bool
    """True if all of its subdirectories were created before it was handed to a worker."""


class TreeSource(Protocol):
    """A snapshot or plan to write."""

    def directories(self) -> Iterator[NewDirectory]:
        """Yield every directory, the top included, parents first."""

    def contents_of(self, key: Any, contents: Contents) -> DirectoryContents:
        """Return the contents of a directory; called in any process."""


class EntryRange(NamedTuple):
    """A range of a directory's entries."""

    directories: NewDirectory
    start: int = 0
    end: int | None = None

    @property
    def is_all(self) -> bool:
        return self.end is None


class WriterReport(NamedTuple):
    """The result of one worker."""

    counts: Counter[EnvPath]
    tops: dict[EnvPath, Entry]
    unfinished: dict[EnvPath, Entry]
    links: list[tuple[EnvPath, Entry]]
    skipped: list[SkippedPath]
    losses: list[tuple[bytes, str]]


class WrittenTree(NamedTuple):
    """The result of writing a tree."""

    own: Entry
    """The entry of the top itself."""
    tops: dict[EnvPath, Entry]
    """The entries at the top, by name."""
    counts: Counter[EnvPath]
    """The number of entries written below each directory at the top, and (under the empty name) at the top."""
    skipped: tuple[SkippedPath, ...]
    losses: tuple[tuple[bytes, str], ...]


def write_directory(
    source: TreeSource, base: int, calls: DiskCalls, open_contents: Callable[[], Contents], how: str
) -> WrittenTree:
    """Write everything below an open directory; raise EnvhistError if reading back gives something else."""
    parent = os.getpid()

    def begin() -> _Writer:
        # A forked worker has a umask of its own, so files can be created with their final mode.
        if os.getpid() != parent:
            os.umask(0)
        return _Writer(source, base, calls, open_contents())

    reports = share_stream(_portions(source, base, calls), begin, _Writer.write, _Writer.end, how=how)
    links = [link for one in reports for link in one.links]
    losses = [loss for one in reports for loss in one.losses]
    losses += _write_links(links, begin, how)
    unfinished = {path: own for one in reports for path, own in one.unfinished.items()}
    losses += _finish_directories(unfinished, base, calls)
    counts: Counter[EnvPath] = Counter()
    for one in reports:
        counts.update(one.counts)
    tops = {path: own for one in reports for path, own in one.tops.items()}
    skipped = tuple(
        sorted((skipped for one in reports for skipped in one.skipped), key=lambda item: item.path)
    )
    return WrittenTree(unfinished[TOP], tops, counts, skipped, tuple(losses))


def _portions(source: TreeSource, base: int, calls: DiskCalls) -> Iterator[list[EntryRange]]:
    """Create the directories, and yield portions of their entries."""
    path_opener = OpenPath(base)
    portion: list[EntryRange] = []
    weight = 0
    try:
        for directories in source.directories():
            if not directories.is_made:
                above, _, name = directories.path.rpartition(b"/")
                calls.mkdir(path_opener.enter(above), name)
            directory = path_opener.enter(directories.path) if directories.directories else -1
            for name in directories.directories:
                calls.mkdir(directory, name)
            for range_ in _ranges(directories):
                portion.append(range_)
                weight += min(directories.entries, RANGE_SIZE) + 1
                if weight >= PORTION:
                    yield portion
                    portion, weight = [], 0
        if portion:
            yield portion
    finally:
        path_opener.close()


def _ranges(directories: NewDirectory) -> Iterator[EntryRange]:
    if directories.entries <= RANGE_SIZE:
        yield EntryRange(directories)
        return
    for start in range(0, directories.entries, RANGE_SIZE):
        # The number is approximate: the last range has no end.
        yield EntryRange(
            directories, start, start + RANGE_SIZE if start + RANGE_SIZE < directories.entries else 1 << 62
        )


class _Writer:
    """Writes entries in one process."""

    def __init__(self, source: TreeSource, base: int, calls: DiskCalls, contents: Contents) -> None:
        self._source = source
        self._contents = contents
        self._path, self._source_path = OpenPath(base), OpenPath(base)
        self._file_writer = FileWriter(calls, contents)
        self._report_so_far = WriterReport(
            Counter(), {}, {}, [], self._file_writer.skipped, self._file_writer.losses
        )
        self._read: tuple[EnvPath, DirectoryContents] | None = None

    def write(self, portion: list[EntryRange]) -> None:
        for range_ in portion:
            self._write_range(range_)

    def end(self) -> WriterReport:
        self._path.close()
        self._source_path.close()
        self._contents.close()
        return self._report_so_far

    def _write_range(self, range_: EntryRange) -> None:
        path = range_.directories.path
        own, entries, is_complete = self._contents_of(range_)
        linked = self._write_entries(path, entries[range_.start : range_.end])
        top, _, below = path.partition(b"/")
        if path and range_.start == 0:
            self._report_so_far.counts[EnvPath(top)] += bool(below)
            if not below:
                self._report_so_far.tops[path] = own
        if path and is_complete and range_.is_all and not linked and own.mode & 0o700 == 0o700:
            self._file_writer.directory(self._path.enter(path), path, own)
        else:
            self._report_so_far.unfinished[path] = own

    def _contents_of(self, range_: EntryRange) -> DirectoryContents:
        directories = range_.directories
        if self._read is not None and self._read[0] == directories.path:
            return self._read[1]
        found = self._source.contents_of(directories.key, self._contents)
        self._read = None if range_.is_all else (directories.path, found)
        return found

    def _write_entries(self, path: EnvPath, entries: Iterable[Entry]) -> bool:
        """Write entries; return whether some are hard links, which are written later."""
        directory = self._path.enter(path)
        self._file_writer.begin_directory()
        cut = len(path) + 1 if path else 0
        written, linked = 0, False
        for entry in entries:
            if entry.kind is EntryKind.DIRECTORY:
                continue
            if (reason := self._skip_reason(entry)) is not None:
                self._report_so_far.skipped.append(SkippedPath(entry.path, reason))
                continue
            written += 1
            if not path:
                self._report_so_far.tops[entry.path] = entry
            if entry.link_group is not None:
                self._report_so_far.links.append((path, entry))
                linked = True
            else:
                self._file_writer.write(directory, entry.path[cut:], entry)
        self._report_so_far.counts[EnvPath(path.partition(b"/")[0])] += written
        return linked

    def _skip_reason(self, entry: Entry) -> str | None:
        return SkipReason.OWN_FILES if entry.path == PRIVATE else skip_reason(entry)

    def make(self, items: tuple[StagedItem, ...]) -> None:
        """Write files with several names under the first name."""
        for item in items:
            self._file_writer.begin_directory()
            self._file_writer.write(self._path.enter(item.directory), item.name, item.entry)

    def link(self, pairs: tuple[tuple[StagedItem, StagedItem], ...]) -> None:
        """Hard-link files that are already written."""
        for leader, item in pairs:
            source = self._source_path.enter(leader.directory)
            directory = self._path.enter(item.directory)
            self._file_writer.begin_directory()
            self._file_writer.link(source, leader.name, leader.entry, directory, item.name, item.entry)


def _write_links(
    links: list[tuple[EnvPath, Entry]], begin: Callable[[], _Writer], how: str
) -> list[tuple[bytes, str]]:
    if not links:
        return []
    links.sort(key=lambda link: link[1].path)
    check_kinds(entry for _, entry in links)
    items = [StagedItem(b"", path, entry.path.rpartition(b"/")[2], entry, NO_STEP) for path, entry in links]
    first, more_names = first_names(items)
    losses: list[tuple[bytes, str]] = []
    for work, do in ((_batches(first), _Writer.make), (_batches(more_names), _Writer.link)):
        _, reports = share_out(work, begin, do, _Writer.end, how=how)
        losses += [loss for one in reports for loss in one.losses]
    return losses


def _batches(items: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(items[start : start + PORTION]) for start in range(0, len(items), PORTION)]


def _finish_directories(
    unfinished: dict[EnvPath, Entry], base: int, calls: DiskCalls
) -> Iterator[tuple[bytes, str]]:
    """Set the metadata of remaining directories, deepest first; the caller sets that of the top."""
    path_opener, setter = OpenPath(base), MetadataSetter(calls)
    try:
        for path in sorted(unfinished, key=lambda path: (path.count(b"/"), path), reverse=True):
            if path:
                yield from set_directory_metadata(path_opener.enter(path), path, unfinished[path], setter)
    finally:
        path_opener.close()


def refuse_if_missing(top: int, directory: bytes, fresh: WrittenTree, depth: Sequence[SkippedPath]) -> None:
    """Raise EnvhistError if the directory on disk contains fewer entries than were written into it."""
    skipped = {item.path for item in depth}
    expected = {path: entry for path, entry in fresh.tops.items() if path not in skipped}
    missing = sum(
        _count_missing(top, path, entry.kind, fresh.counts[path]) for path, entry in expected.items()
    )
    if missing:
        raise EnvhistError(
            f"{missing} of the paths written into '{os.fsdecode(directory)}' are missing",
            hint="restore into another directory, and check the kernel log for disk errors",
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
    path_opener = OpenPath(fresh_base)
    count, to_visit = 0, [path]
    try:
        while to_visit:
            directory = to_visit.pop()
            with os.scandir(path_opener.enter(directory)) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        to_visit.append(directory + b"/" + os.fsencode(entry.name))
    finally:
        path_opener.close()
        os.close(fresh_base)
    return count
