"""The system calls by which a restore changes a disk, one method each; no other module of the package makes any.

Names are always relative to an open directory, and no call follows a link. Tests replace `DiskCalls` with versions that
fail after a number of changes, or that change the file system in between.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import sys
from contextlib import suppress
from typing import Any

from git_envhist.lazy import once
from git_envhist.platform import DIRECTORY, NOFOLLOW, SYSTEM, open_nofollow

NOREPLACE, EXCHANGE = 1, 2
OPENAT2 = 437
"""openat2, which C libraries do not wrap yet; new system calls have one number on all architectures since 2020."""
NO_LINKS_BENEATH = 0x04 | 0x08
"""RESOLVE_NO_SYMLINKS and RESOLVE_BENEATH."""
WRITE = 2
"""SYNC_FILE_RANGE_WRITE: start to write dirty pages."""
FICLONE = 0x40049409
NO_FLAGS = frozenset((errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY))
NO_LINKS = frozenset((errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV))
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | NOFOLLOW
PATH_ONLY = getattr(os, "O_PATH", 0)


class OpenHow(ctypes.Structure):
    """`struct open_how`: flags, mode, and resolve flags."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class ExchangeUnsupported(Exception):
    """Raised if two names cannot be exchanged atomically."""


class DiskCalls:
    """System calls that change a disk."""

    def exchange(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        """Exchange two names atomically; raise `ExchangeUnsupported` if the file system cannot."""
        if not self._rename(one, name, other, other_name, EXCHANGE):
            raise ExchangeUnsupported

    def move(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        """Rename without replacing; raise FileExistsError if the new name exists."""
        if self._rename(one, name, other, other_name, NOREPLACE):
            return
        if stat.S_ISDIR(os.stat(name, dir_fd=one, follow_symlinks=False).st_mode):
            # rename(2) replaces only an empty directory by a directory.
            _refuse_to_replace(other, other_name)
            self.rename(one, name, other, other_name)
            return
        try:
            self.link(one, name, other, other_name)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            _refuse_to_replace(other, other_name)
            self.rename(one, name, other, other_name)
        else:
            self.unlink(one, name)

    def rename(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        os.rename(name, other_name, src_dir_fd=one, dst_dir_fd=other)

    def link(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        os.link(name, other_name, src_dir_fd=one, dst_dir_fd=other, follow_symlinks=False)

    def unlink(self, directory: int, name: bytes) -> None:
        os.unlink(name, dir_fd=directory)

    def rmdir(self, directory: int, name: bytes) -> None:
        os.rmdir(name, dir_fd=directory)

    def mkdir(self, directory: int, name: bytes) -> None:
        os.mkdir(name, 0o700, dir_fd=directory)

    def create(self, directory: int, name: bytes, mode: int = 0o600) -> int:
        """Create a file that only this user can open, for reading and writing; its final mode is set later."""
        return os.open(name, NEW_FILE, mode, dir_fd=directory)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write all bytes, also if the kernel takes fewer at a time."""
        done = os.pwrite(descriptor, data, offset)
        while done < len(data):
            done += os.pwrite(descriptor, data[done:], offset + done)

    def clone(self, source: int, descriptor: int, *, share: bool) -> bool:
        """Fill a new file from an open one, sharing blocks if possible. Return False if that is impossible: with
        `share` sharing, otherwise any copy by the kernel."""
        if sys.platform != "linux":
            return False
        try:
            fcntl.ioctl(descriptor, FICLONE, source)
        except OSError:
            # The reason does not matter: the caller writes the file, and reports errors.
            return not share and _copy(source, descriptor)
        return True

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def symlink(self, target: bytes, directory: int, name: bytes) -> None:
        os.symlink(target, name, dir_fd=directory)

    def mknod(self, directory: int, name: bytes, kind: int, device: int) -> None:
        """Create a pipe, a socket file or a device."""
        os.mknod(name, kind | 0o600, device, dir_fd=directory)

    def chown(self, directory: int, name: bytes, uid: int, gid: int) -> None:
        os.chown(name, uid, gid, dir_fd=directory, follow_symlinks=False)

    def fchown(self, descriptor: int, uid: int, gid: int) -> None:
        os.fchown(descriptor, uid, gid)

    def fchmod(self, descriptor: int, mode: int) -> None:
        os.fchmod(descriptor, mode)

    def chmod(self, directory: int, name: bytes, mode: int) -> None:
        """Set the mode of anything but a link, also of entries without permissions."""
        if not SYSTEM.proc or not PATH_ONLY:
            self._chmod_opened(directory, name, mode)
            return
        descriptor = open_nofollow(name, PATH_ONLY | os.O_CLOEXEC, dir_fd=directory)
        try:
            # No system call changes a mode without following links; this path refers to the open entry.
            os.chmod(f"/proc/self/fd/{descriptor}", mode)
        finally:
            os.close(descriptor)

    def _chmod_opened(self, directory: int, name: bytes, mode: int) -> None:
        descriptor = open_nofollow(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)

    def utime(self, directory: int, name: bytes, mtime_ns: int) -> None:
        os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=directory, follow_symlinks=False)

    def futime(self, descriptor: int, mtime_ns: int) -> None:
        os.utime(descriptor, ns=(mtime_ns, mtime_ns))

    def set_xattr(self, what: int | str | bytes, name: bytes, value: bytes) -> None:
        """Set an attribute of an open file, or of a path whose last name is not followed."""
        if isinstance(what, int):
            os.setxattr(what, name, value)
        else:
            os.setxattr(what, name, value, follow_symlinks=False)

    def remove_xattr(self, what: int | str | bytes, name: bytes) -> None:
        if isinstance(what, int):
            os.removexattr(what, name)
        else:
            os.removexattr(what, name, follow_symlinks=False)

    def open_beneath(self, base: int, path: bytes) -> int | None:
        """Open a directory below another atomically and without following links; return None if impossible."""
        if self._openat2 is None or not path:
            return None
        opened = self._openat2(OPENAT2, base, path, self._how_beneath, ctypes.sizeof(OpenHow))
        return opened if opened >= 0 else None

    @once
    def _openat2(self) -> Any:
        return getattr(self._libc, "syscall", None) if SYSTEM.openat2 else None

    @once
    def _how_beneath(self) -> Any:
        return ctypes.byref(OpenHow(DIRECTORY | NOFOLLOW, 0, NO_LINKS_BENEATH))

    def sync(self, descriptor: int) -> None:
        """Sync the file system of an open directory."""
        syncfs = getattr(self._libc, "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def start_writeback(self, descriptor: int) -> None:
        """Start to write a file's dirty pages, without waiting."""
        begin = getattr(self._libc, "sync_file_range", None)
        if begin is not None:
            begin(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), WRITE)

    def sync_file(self, descriptor: int) -> None:
        """Sync one open file or directory."""
        os.fsync(descriptor)

    @once
    def _libc(self) -> Any:
        return ctypes.CDLL(None, use_errno=True)

    def _rename(self, one: int, name: bytes, other: int, other_name: bytes, flags: int) -> bool:
        """Rename with flags; return False if the system or the file system does not support them."""
        call = getattr(self._libc, "renameat2", None)
        if call is None:
            return False
        if call(one, name, other, other_name, ctypes.c_uint(flags)) == 0:
            return True
        code = ctypes.get_errno()
        if code in NO_FLAGS:
            return False
        raise OSError(code, os.strerror(code), name, None, other_name)


def _refuse_to_replace(directory: int, name: bytes) -> None:
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=directory, follow_symlinks=False)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)


def open_directory(base: int, path: bytes, *, forbidden: frozenset[tuple[int, int]] = frozenset()) -> int:
    """Open a directory below another, name by name and without following links; return a descriptor.

    Raise NotADirectoryError if a link or another entry is in the way, or a forbidden directory.
    """
    here = os.open(b".", DIRECTORY, dir_fd=base)
    try:
        for name in path.split(b"/") if path else ():
            # Rebind before closing, so that a signal in between cannot lead to a second close.
            above, here = here, open_nofollow(name, DIRECTORY, dir_fd=here)
            os.close(above)
            if forbidden and (seen := os.fstat(here)) and (seen.st_dev, seen.st_ino) in forbidden:
                raise NotADirectoryError(errno.ENOTDIR, "not a part of the environment", name)
    except BaseException:
        os.close(here)
        raise
    return here


def _copy(source: int, descriptor: int) -> bool:
    size = done = 0
    with suppress(OSError):
        size = os.fstat(source).st_size
        while done < size and (copied := os.copy_file_range(source, descriptor, size - done, done, done)):
            done += copied
    return 0 < done == size
