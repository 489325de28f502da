"""Compare files on disk with the contents of a snapshot."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable

from git_envhist.errors import EnvhistError
from git_envhist.model import Entry, EntryKind, PlanStep, StoredAs, shown_path
from git_envhist.platform import open_nofollow
from git_envhist.restore.write_entry import Contents, file_blocks

BLOCK = 1 << 20
READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
NO_ATIME = getattr(os, "O_NOATIME", 0)


def open_to_read(directory: int, name: bytes) -> int:
    """Open a file for reading, without changing its access time if permitted."""
    if NO_ATIME:
        try:
            return open_nofollow(name, READ_FLAGS | NO_ATIME, dir_fd=directory)
        except PermissionError:
            pass  # O_NOATIME is permitted only to the owner
    return open_nofollow(name, READ_FLAGS, dir_fd=directory)


def is_link_to(directory: int, name: bytes, entry: Entry) -> bool:
    """Return whether a symbolic link has the target that the snapshot has."""
    target = os.fsencode(os.readlink(name, dir_fd=directory))
    return entry.oid is not None and _blob_id([target], len(target), len(entry.oid)) == entry.oid


def has_bytes(descriptor: int, size: int, root: bytes, entry: Entry, contents: Contents) -> bool:
    """Return whether an open file of this size has the contents of an entry."""
    if entry.oid is None or entry.stored is StoredAs.FINGERPRINT:
        return False
    if entry.stored is StoredAs.PLAIN:
        if size < BLOCK:
            # Read one byte more than expected, instead of a second read for the end of the file.
            data = os.pread(descriptor, size + 1, 0)
            if len(data) == size:
                return _blob_id((data,), size, len(entry.oid)) == entry.oid
        return _blob_id(_blocks(descriptor), size, len(entry.oid)) == entry.oid
    offset = 0
    for block in file_blocks(contents, shown_path(root, entry.path), entry, contents.blob(entry.oid)):
        if not file_equals(descriptor, block, offset):
            return False
        offset += len(block)
    return offset == size and not os.pread(descriptor, 1, offset)


def file_equals(descriptor: int, data: bytes, offset: int) -> bool:
    """Return whether an open file has these bytes at an offset; the system may return fewer bytes at a time."""
    found = os.pread(descriptor, len(data), offset)
    while 0 < len(found) < len(data) and (
        more := os.pread(descriptor, len(data) - len(found), offset + len(found))
    ):
        found += more
    return found == data


def content_matches(directory: int, name: bytes, root: bytes, entry: Entry, contents: Contents) -> bool:
    """Return whether the file of a name has the contents of an entry; False if it cannot be read."""
    if entry.kind is EntryKind.LINK:
        return is_link_to(directory, name, entry)
    if entry.kind is not EntryKind.FILE:
        return True
    try:
        descriptor = open_to_read(directory, name)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        return stat.S_ISREG(found.st_mode) and has_bytes(descriptor, found.st_size, root, entry, contents)
    finally:
        os.close(descriptor)


def content_checker(contents: Contents) -> Callable[[PlanStep, int, bytes], bool]:
    """Return a function that compares a file with the contents of a step's side `before`."""

    def check(step: PlanStep, directory: int, name: bytes) -> bool:
        try:
            return step.before is not None and content_matches(
                directory, name, step.root, step.before, contents
            )
        except EnvhistError:
            return False

    return check


def _blocks(descriptor: int) -> Iterable[bytes]:
    while block := os.read(descriptor, BLOCK):
        yield block


def _blob_id(blocks: Iterable[bytes], size: int, length: int) -> bytes | None:
    # hashlib.sha1 is twice as fast as hashlib.new("sha1").
    new = hashlib.sha1 if length == 20 else hashlib.sha256
    digest = new(b"blob %d\0" % size, usedforsecurity=False)
    read = 0
    for block in blocks:
        digest.update(block)
        read += len(block)
    return digest.digest() if read == size else None
