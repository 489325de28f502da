"""Writes one thing of a moment where nothing is, and reads it back.

A file is created with its name and written at once; it is dressed by its descriptor, and every byte is read back
through that and compared while it is still in memory: nothing is opened twice, and nothing hashed twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from git_envhist.errors import EnvhistError
from git_envhist.model import Entry, EntryKind, EnvPath, SkippedPath, StoredAs
from git_envhist.restore.dress import AttributeSetter, Lose, read_xattrs
from git_envhist.restore.hands import NO_LINKS, DiskCalls
from git_envhist.restore.make import (
    HOLE,
    NOT_MADE,
    Contents,
    EntryWriter,
    file_blocks,
    same_bytes,
    without_zeros,
)
from git_envhist.restore.proof import file_equals, has_bytes
from git_envhist.restore.verify import compare, compare_stat

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
