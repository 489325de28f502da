"""Bytes onto a disk, for good: whole writes, fsync that counts, and errors a person can act on."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from git_envhist.errors import EnvhistError, StorageFull
from git_envhist.system import DIRECTORY

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
CLOSED = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
MOVED = "it was moved or removed meanwhile: run the command again where it is now"
MORE_FILES = "raise the limit: ulimit -n 1024"


class CannotWrite(EnvhistError):
    """The git directory cannot be written."""

    code = "read-only"


def write_all(descriptor: int, data: bytes | bytearray, offset: int) -> None:
    """Write every byte at an offset, however few the kernel takes at a time."""
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.pwrite(descriptor, view[done:], offset + done)


def read_exactly(descriptor: int, size: int, offset: int) -> bytes:
    """Read `size` bytes at an offset; fewer only where the file ends before."""
    block = os.pread(descriptor, size, offset)
    if len(block) == size:
        return block
    parts = [block]
    missing = size - len(block)
    while missing and (block := os.pread(descriptor, missing, offset + size - missing)):
        parts.append(block)
        missing -= len(block)
    return b"".join(parts)


def sync(descriptor: int) -> None:
    """Return when the file is on the medium, not only on its way to it."""
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is None:
        os.fsync(descriptor)
    else:  # macOS: fsync stops at the drive's cache
        fcntl.fcntl(descriptor, full_sync)


def sync_directory(path: str) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(paths: Iterable[str]) -> None:
    """Return when these files are on the medium."""
    for path in paths:
        with open(path, "rb") as file:
            sync(file.fileno())


def replace_file(path: str, data: bytes) -> None:
    """Have a private file hold this, or what it held; whoever calls is alone, and writes over what a kill has left."""
    fresh = f"{path}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, data, 0)
        sync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(fresh, path)
    sync_directory(os.path.dirname(path))


def remove_if_present(path: str) -> bool:
    """Remove a file; False where there was none."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def cannot_write(error: OSError, place: str) -> EnvhistError:
    """What a failed write means to the person who waits for it."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    message = f"cannot write below '{place}': {reason.lower()}"
    if error.errno in NO_ROOM:
        return StorageFull(
            message,
            hint="make room there (or raise the quota) and run the command again; nothing was changed",
        )
    if error.errno == errno.EMFILE:
        return EnvhistError(message, hint=MORE_FILES)
    if error.errno == errno.ENOENT:
        return EnvhistError(message, hint=MOVED)
    if error.errno in CLOSED:
        hint = "a sandbox or another owner closes it: allow writing in the git directory"
        return CannotWrite(message, hint=hint)
    return EnvhistError(message)


@contextmanager
def system_errors(place: str) -> Iterator[None]:
    """What the system refused, and nobody foresaw at that very call, is told as an error of ours."""
    try:
        yield
    except OSError as error:
        where = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else place
        if error.errno in NO_ROOM | CLOSED:
            raise cannot_write(error, where) from error
        if error.errno == errno.ENOENT and where == os.curdir:
            raise EnvhistError(
                "the directory that this was called in is gone", hint="cd to one that is there"
            ) from error
        reason = (error.strerror or str(error)).lower()
        hint = {errno.EMFILE: MORE_FILES, errno.ENOENT: MOVED}.get(error.errno or 0)
        raise EnvhistError(f"the system refused '{where}': {reason}", hint=hint) from error
