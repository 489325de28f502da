"""Create one entry in a private directory.

This is the hot path of a full restore: a file costs seven system calls and reading its blob. tests/restore/measure.py
measures 80 µs per file of 20 KiB, 42 of them for inflating and hashing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from git_envhist.model import Entry, EntryKind, EnvPath, StoredAs, shown_path
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.disk_entry import DiskEntry, from_stat
from git_envhist.restore.set_metadata import MetadataSetter
from git_envhist.snapshots.chunks import stream_chunks

HOLE = 1 << 16
"""Blocks of this size are skipped if they are zero."""
ZEROS = bytes(HOLE)
NOT_MADE = "cannot be created here"

DEVICES = {
    EntryKind.FIFO: stat.S_IFIFO,
    EntryKind.SOCKET: stat.S_IFSOCK,
    EntryKind.CHARACTER_DEVICE: stat.S_IFCHR,
    EntryKind.BLOCK_DEVICE: stat.S_IFBLK,
}


class Contents(Protocol):
    """Reads the verified contents of a snapshot; must be closed."""

    def blob(self, oid: bytes) -> bytes: ...
    def plain(self, entry: Entry) -> bytes: ...
    def list_children(self, tree: bytes) -> list[bytes]: ...
    def open_sealed(self, path: EnvPath, blob: bytes) -> bytes: ...
    @property
    def lends(self) -> bool: ...
    def lend(self, entry: Entry, take: Callable[[int, bool], bool]) -> bool: ...
    def close(self) -> None: ...


class EntryWriter:
    """Writes files, links and special files."""

    def __init__(self, calls: DiskCalls, contents: Contents) -> None:
        self._calls = calls
        self._contents = contents
        self._metadata = MetadataSetter(calls)
        self.losses: list[tuple[bytes, str]] = []

    def make(self, directory: int, name: bytes, entry: Entry, shown: bytes) -> DiskEntry | None:
        """Create an entry with its metadata; return None if that is impossible here."""
        if entry.kind is EntryKind.FILE:
            return self._file(directory, name, entry, shown)
        if entry.kind is EntryKind.LINK:
            assert entry.oid is not None
            self._calls.symlink(self._contents.blob(entry.oid), directory, name)
        else:
            try:
                self._calls.mknod(directory, name, DEVICES[entry.kind], entry.device or 0)
            except PermissionError:
                self._lose(shown, "device")
                return None
        self._metadata.named(directory, name, entry, lambda what: self._lose(shown, what))
        return from_stat(os.stat(name, dir_fd=directory, follow_symlinks=False))

    def _file(self, directory: int, name: bytes, entry: Entry, shown: bytes) -> DiskEntry:
        calls = self._calls
        descriptor = calls.create(directory, name)
        try:
            self._write(descriptor, entry, shown)
            self._metadata.new_file(descriptor, entry, lambda what: self._lose(shown, what))
            return from_stat(os.fstat(descriptor))
        finally:
            os.close(descriptor)

    def _write(self, descriptor: int, entry: Entry, shown: bytes) -> None:
        assert entry.oid is not None
        data = self._contents.blob(entry.oid)
        if entry.stored is StoredAs.PLAIN and len(data) < HOLE:
            if data:
                self._calls.write(descriptor, data, 0)
        else:
            write_sparsely(self._calls, descriptor, file_blocks(self._contents, shown, entry, data))

    def _lose(self, shown: bytes, what: str) -> None:
        self.losses.append((shown, what))


def read_content(contents: Contents, shown: bytes, entry: Entry) -> None:
    """Read everything that an entry refers to; raise an error if something is damaged or missing."""
    if entry.oid is not None:
        for _ in file_blocks(contents, shown, entry, contents.blob(entry.oid)):
            pass


def file_blocks(contents: Contents, shown: bytes, entry: Entry, blob: bytes) -> Iterable[bytes]:
    """Return the contents of a file, given its blob; `shown`: the displayed path, needed for sealed contents."""
    if entry.stored is StoredAs.SEALED:
        return (contents.open_sealed(EnvPath(shown), blob),)
    if entry.stored is StoredAs.PIECES:
        return stream_chunks(contents, blob)
    return (blob,)


def same_bytes(contents: Contents, a: tuple[bytes, Entry], b: tuple[bytes, Entry]) -> bool:
    """Return whether two hard links, each given with its root, have the same contents in the snapshot."""
    (_, one), (_, other) = a, b
    if (one.stored, one.oid) == (other.stored, other.oid):
        return True
    if one.stored is other.stored is StoredAs.PLAIN or one.oid is None or other.oid is None:
        return False
    # Each name of a secret file is sealed separately.
    return _whole(contents, *a) == _whole(contents, *b)


def _whole(contents: Contents, root: bytes, entry: Entry) -> bytes:
    assert entry.oid is not None
    return b"".join(file_blocks(contents, shown_path(root, entry.path), entry, contents.blob(entry.oid)))


def write_sparsely(calls: DiskCalls, descriptor: int, blocks: Iterable[bytes]) -> None:
    """Write a file, with holes for long runs of zeros."""
    offset = 0
    for block in blocks:
        for start, end in without_zeros(block):
            calls.write(descriptor, block[start:end] if end - start < len(block) else block, offset + start)
        offset += len(block)
    calls.truncate(descriptor, offset)


def without_zeros(block: bytes) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a block that are not zero."""
    start = 0
    for offset in range(0, len(block), HOLE):
        # Testing the first byte avoids most comparisons.
        if block[offset] == 0 and block[offset : offset + HOLE] == ZEROS[: len(block) - offset]:
            if start < offset:
                yield start, offset
            start = offset + HOLE
    if start < len(block):
        yield start, len(block)
