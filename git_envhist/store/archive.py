"""The file of an export: a tar of two members, compressed with zstd, that other programs can open too.

    envhist-export     one line: the version of this form
    history.bundle     a bundle of git's: chosen timelines with their notes, and all objects they lead to

`tar --zstd -xf FILE` and `git fetch history.bundle 'refs/*:refs/*'` read it without us. Reading it here takes nothing
on trust: these two members, plain files, in this order, and no more bytes than were told.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Protocol

from git_envhist.errors import Damaged, EnvhistError, Refused
from git_envhist.store.bounds import DecompressionBomb
from git_envhist.store.compression import packing, unpacking
from git_envhist.store.durable import cannot_write, remove_if_present, sync, sync_directory

VERSION_NAME, BUNDLE_NAME = "envhist-export", "history.bundle"
VERSION = b"envhist-export 1\n"
BLOCK = tarfile.BLOCKSIZE
AT_ONCE = 1 << 20
LEVEL = 3
"""What a bundle holds is deflated already: it is names that are left to be made smaller."""
WINDOW = 1 << 27
"""No reader of ours gives more memory to what a file asks for."""

NEVER_A_BOMB, MOST_UNPACKED = 64 << 20, 100
"""So many times itself, at most, comes out of a file that is not small. Of a bundle, deflated already, hardly twice."""


class ArchiveUnreadable(EnvhistError):
    """The file cannot be read."""

    code = "cannot-read"
    usual_hint = "git envlog import <file>, as 'git envlog export' wrote it"


class FileExists(Refused):
    """Something stands where an export is to go."""

    code = "file-exists"

    def __init__(self, path: str) -> None:
        super().__init__(f"there is a file already: '{path}'", hint="to write over it: --force")


class Readable(Protocol):
    """Gives some more bytes, none at the end."""

    def read(self, size: int = -1, /) -> bytes: ...


def write_archive(path: str, bundle: str, *, force: bool = False) -> int:
    """Write the file, whole or not at all, for its owner's eyes; how many bytes it has."""
    if not force and os.path.lexists(path):
        raise FileExists(path)
    new = f"{path}.new-{os.urandom(6).hex()}"
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file, open(bundle, "rb") as source:
            _write_members(file, source, os.fstat(source.fileno()).st_size)
            file.flush()
            sync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        _put(new, path, force)
    except OSError as error:
        remove_if_present(new)
        raise cannot_write(error, path) from error
    except BaseException:
        remove_if_present(new)
        raise
    return size


def _put(new: str, path: str, force: bool) -> None:
    if force:
        os.replace(new, path)
    else:
        try:
            _put_beside(new, path)
        except FileExistsError as there:
            raise FileExists(path) from there
    sync_directory(os.path.dirname(path) or ".")


def _put_beside(new: str, path: str) -> None:
    """Never over what came meanwhile."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise
    except OSError:
        # Many a stick has no links. Then the name is taken first, empty, and by nobody else.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.replace(new, path)
    else:
        os.unlink(new)


def _write_members(file: IO[bytes], bundle: Readable, size: int) -> None:
    with packing(file, LEVEL) as write:
        write(_head(VERSION_NAME, len(VERSION)) + VERSION + _padding(len(VERSION)))
        write(_head(BUNDLE_NAME, size))
        while part := bundle.read(AT_ONCE):
            write(part)
        write(_padding(size) + bytes(2 * BLOCK))


def _head(name: str, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


@contextmanager
def read_archive(path: str) -> Iterator[BundleStream]:
    """The bundle in a file, to be read from its beginning."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ArchiveUnreadable(f"cannot read '{path}': {(error.strerror or str(error)).lower()}") from error
    with file:
        try:
            with unpacking(file, WINDOW) as read:
                yield _open_bundle(_told_as_damage(read), os.fstat(file.fileno()).st_size)
        except IsADirectoryError as error:
            raise ArchiveUnreadable(f"cannot read '{path}': it is a directory") from error


class BundleStream:
    """The bytes of a bundle, one after the other; `Damaged` where the file ends before it does."""

    def __init__(self, read: Callable[[int], bytes], size: int) -> None:
        self.size = size
        self._read = read
        self._left = size

    def line(self, longest: int) -> bytes:
        """A line without its line feed."""
        line = b""
        while len(line) <= longest and self._left:
            # A byte at a time: what follows the last line is not ours to take.
            one = self._exactly(1)
            if one == b"\n":
                return line
            line += one
        raise Damaged("the bundle's head cannot be read")

    def rest(self) -> Iterator[bytes]:
        """What is left, in parts; the file has to end with it."""
        while self._left:
            yield self._exactly(min(self._left, AT_ONCE))
        end = read_exactly(self._read, -self.size % BLOCK + 2 * BLOCK)
        if end.strip(b"\0") or self._read(1):
            raise Damaged("the file of an export goes on behind its end")

    def _exactly(self, size: int) -> bytes:
        found = read_exactly(self._read, size)
        if len(found) != size:
            raise Damaged("the file of an export was cut short")
        self._left -= size
        return found


def read_exactly(read: Callable[[int], bytes], size: int) -> bytes:
    """So many bytes; fewer only at the end."""
    parts = []
    while size and (part := read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _open_bundle(read: Callable[[int], bytes], packed: int) -> BundleStream:
    """The bundle that a file of so many bytes (0: nobody knows) tells of."""
    size = _member(read, VERSION_NAME)
    version = read_exactly(read, min(size, BLOCK)) if size <= BLOCK else b""
    if version != VERSION:
        raise Damaged(
            "the file of an export is in a form that this version does not read",
            hint="a newer git-envhist reads it",
        )
    read_exactly(read, -size % BLOCK)
    size = _member(read, BUNDLE_NAME)
    if packed and size > max(NEVER_A_BOMB, MOST_UNPACKED * packed):
        raise DecompressionBomb(f"the file of an export has {packed:,} bytes and tells of {size:,}")
    return BundleStream(read, size)


def _member(read: Callable[[int], bytes], name: str) -> int:
    """The size of the member that has to come next."""
    head = read_exactly(read, BLOCK)
    try:
        member = tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError as broken:
        raise _no_export() from broken
    if member.name != name or not member.isreg() or member.type != tarfile.REGTYPE or member.size < 0:
        raise _no_export()
    return member.size


def _told_as_damage(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    def told(size: int) -> bytes:
        try:
            return read(size)
        except ValueError as broken:
            raise _no_export() from broken

    return told


def _no_export() -> Damaged:
    hint = "'git envlog export' writes one; one that was cut off on its way is none"
    return Damaged("this is not the file of an export", hint=hint)
