"""A directory of key files: the only code that touches a key on disk.

A key file is named by the id of its key and holds two lines, `envhist-key <form>` and the key in hex. It is
written beside its place, synced and renamed, so that a reader meets the whole file or none; it is for its owner's
eyes only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator

from git_envhist.store.locks import lock_file, make_private
from git_envhist.system import DIRECTORY, open_cloexec_guarded
from git_envhist.values import dataclass, pattern

KEY_NAME = pattern(r"[0-9a-f]{12}(?:[0-9a-f]{20})?")
NEW = ".new-"
LOCK = "lock"
STALE_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class KeyDirectory:
    """One directory in which keys are kept."""

    directory: str

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def ids(self) -> tuple[str, ...]:
        """The ids of the keys that have a file here."""
        try:
            names = os.listdir(self.directory)
        except OSError:
            return ()
        return tuple(sorted(name for name in names if KEY_NAME.fullmatch(name)))

    def read(self, name: str) -> bytes | None:
        """The bytes of a file here, or None where there is none; any other failure is the system's own."""
        return read_file(self.path(name))

    def write(self, name: str, content: bytes) -> None:
        """Put a file here so that it is whole, durable and private from the moment it has its name."""
        self._prepare()
        replace_file(self.path(name), content)

    def make_private(self, name: str | None = None) -> bool | None:
        """Close a file (or the directory) to others: None where it was, else whether that could be done."""
        path = self.directory if name is None else self.path(name)
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
            if not mode & 0o077:
                return None
            os.chmod(path, mode & 0o700)
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this directory; a place that takes no lock takes no key either, as storing will report."""
        try:
            make_private(self.directory)
            descriptor = open_cloexec_guarded(self.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield
            return
        try:
            lock_file(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _prepare(self) -> None:
        make_private(self.directory)
        self.make_private()
        # The directories may be as new as the file: each lives in the one above it.
        parent = os.path.dirname(self.directory)
        for directory in (parent, os.path.dirname(parent)):
            _sync_directory(directory)
        self._sweep()

    def _sweep(self) -> None:
        # What a killed writer left holds a whole secret. A younger file may belong to one that still lives.
        for name in os.listdir(self.directory):
            if name.startswith(NEW):
                path = self.path(name)
                try:
                    if os.stat(path).st_mtime < time.time() - STALE_SECONDS:
                        os.unlink(path)
                except OSError:
                    continue


def read_file(path: str) -> bytes | None:
    """Return the bytes of a small file, None where there is none; any other failure is the system's own."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


def replace_file(path: str, content: bytes) -> None:
    """Replace a file by one that its owner alone can read, durably."""
    directory = os.path.dirname(path)
    new = os.path.join(directory, f"{NEW}{os.getpid()}-{os.urandom(6).hex()}")
    try:
        _write_synced(new, content)
        os.replace(new, path)
    except BaseException:
        _remove_quietly(new)
        raise
    _sync_directory(directory)


def _write_synced(path: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_quietly(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
