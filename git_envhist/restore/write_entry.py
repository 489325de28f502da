"""Makes one thing of an entry, in a directory of ours where nobody else looks.

This is the hot path of a full restore: a file costs seven system calls and the reading of its blob. Measured by
tests/restore/measure.py with files of 20 KiB: 80 µs of work a file, of which 42 go into inflating and hashing it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from git_envhist.model import Entry, EntryKind, EnvPath, StoredAs, shown_path
from git_envhist.restore.attributes import AttributeSetter
from git_envhist.restore.disk_entry import DiskEntry, from_stat
from git_envhist.restore.fs import DiskCalls
from git_envhist.snapshots.chunks import stream_chunks

HOLE = 1 << 16
"""Zeros are left out of a file in blocks of this size."""
ZEROS = bytes(HOLE)
NOT_MADE = "it cannot be made here"

DEVICES = {
    EntryKind.FIFO: stat.S_IFIFO,
    EntryKind.SOCKET: stat.S_IFSOCK,
    EntryKind.CHARACTER_DEVICE: stat.S_IFCHR,
    EntryKind.BLOCK_DEVICE: stat.S_IFBLK,
}


class Contents(Protocol):
    """The bytes of a snapshot, checked; to be closed."""

    def blob(self, oid: bytes) -> bytes: ...
    def plain(self, entry: Entry) -> bytes: ...
    def list_children(self, tree: bytes) -> list[bytes]: ...
    def open_sealed(self, path: EnvPath, blob: bytes) -> bytes: ...
    @property
    def lends(self) -> bool: ...
    def lend(self, entry: Entry, take: Callable[[int, bool], bool]) -> bool: ...
    def close(self) -> None: ...


class EntryWriter:
    """Makes files, links and the rest."""

    def __init__(self, hands: DiskCalls, contents: Contents) -> None:
        self._hands = hands
        self._contents = contents
        self._dresser = AttributeSetter(hands)
        self.losses: list[tuple[bytes, str]] = []

    def make(self, directory: int, name: bytes, entry: Entry, shown: bytes) -> DiskEntry | None:
        """Make it, whole and dressed; None where it cannot be made here."""
        if entry.kind is EntryKind.FILE:
            return self._file(directory, name, entry, shown)
        if entry.kind is EntryKind.LINK:
            assert entry.oid is not None
            self._hands.symlink(self._contents.blob(entry.oid), directory, name)
        else:
            try:
                self._hands.mknod(directory, name, DEVICES[entry.kind], entry.device or 0)
            except PermissionError:
                self._lose(shown, "device")
                return None
        self._dresser.named(directory, name, entry, lambda what: self._lose(shown, what))
        return from_stat(os.stat(name, dir_fd=directory, follow_symlinks=False))

    def _file(self, directory: int, name: bytes, entry: Entry, shown: bytes) -> DiskEntry:
        hands = self._hands
        descriptor = hands.create(directory, name)
        try:
            self._write(descriptor, entry, shown)
            self._dresser.new_file(descriptor, entry, lambda what: self._lose(shown, what))
            return from_stat(os.fstat(descriptor))
        finally:
            os.close(descriptor)

    def _write(self, descriptor: int, entry: Entry, shown: bytes) -> None:
        assert entry.oid is not None
        data = self._contents.blob(entry.oid)
        if entry.stored is StoredAs.PLAIN and len(data) < HOLE:
            if data:
                self._hands.write(descriptor, data, 0)
        else:
            write_sparsely(self._hands, descriptor, file_blocks(self._contents, shown, entry, data))

    def _lose(self, shown: bytes, what: str) -> None:
        self.losses.append((shown, what))


def file_blocks(contents: Contents, shown: bytes, entry: Entry, blob: bytes) -> Iterable[bytes]:
    """The bytes of a file, given what stands in the tree for it; `shown`: its path as people see it, by which it was
    sealed."""
    if entry.stored is StoredAs.SEALED:
        return (contents.open_sealed(EnvPath(shown), blob),)
    if entry.stored is StoredAs.PIECES:
        return stream_chunks(contents, blob)
    return (blob,)


def same_bytes(contents: Contents, a: tuple[bytes, Entry], b: tuple[bytes, Entry]) -> bool:
    """Whether two names of one file, each with its root, hold the same, as a snapshot says it."""
    (_, one), (_, other) = a, b
    if (one.stored, one.oid) == (other.stored, other.oid):
        return True
    if one.stored is other.stored is StoredAs.PLAIN or one.oid is None or other.oid is None:
        return False
    # Each name of a secret file is sealed by itself.
    return _whole(contents, *a) == _whole(contents, *b)


def _whole(contents: Contents, root: bytes, entry: Entry) -> bytes:
    assert entry.oid is not None
    return b"".join(file_blocks(contents, shown_path(root, entry.path), entry, contents.blob(entry.oid)))


def write_sparsely(hands: DiskCalls, descriptor: int, blocks: Iterable[bytes]) -> None:
    """Write a file, with holes where it is long runs of zeros."""
    at = 0
    for block in blocks:
        for start, end in without_zeros(block):
            hands.write(descriptor, block[start:end] if end - start < len(block) else block, at + start)
        at += len(block)
    hands.truncate(descriptor, at)


def without_zeros(block: bytes) -> Iterator[tuple[int, int]]:
    """The stretches of a block that are to be written."""
    start = 0
    for at in range(0, len(block), HOLE):
        # One look at the first byte spares most comparisons.
        if block[at] == 0 and block[at : at + HOLE] == ZEROS[: len(block) - at]:
            if start < at:
                yield start, at
            start = at + HOLE
    if start < len(block):
        yield start, len(block)
