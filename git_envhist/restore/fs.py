"""The calls by which a restore changes a disk, one method each: nothing else in this room makes any.

Names are always given below an open directory, and no call follows a link. A test hands in others: hands that stop
after so many changes, or that find the file system changed under them.
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
from git_envhist.platform import DIRECTORY, NOFOLLOW, SYSTEM, open_itself

NOREPLACE, EXCHANGE = 1, 2
OPENAT2 = 437
"""The number of the call, which no C library has a name for yet; since 2020 new calls have one number everywhere."""
NO_LINKS_BENEATH = 0x04 | 0x08
"""No link on the way, and nothing above where it begins."""
WRITE = 2
"""For `sync_file_range`: what is dirty begins to be written."""
FICLONE = 0x40049409
NO_FLAGS = frozenset((errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY))
NO_LINKS = frozenset((errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV))
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | NOFOLLOW
PATH_ONLY = getattr(os, "O_PATH", 0)


class OpenHow(ctypes.Structure):
    """`struct open_how`: the flags, the mode, and what may be on the way."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class ExchangeUnsupported(Exception):
    """Two names cannot be exchanged at once here."""


class DiskCalls:
    """Changes a disk."""

    def exchange(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        """Let two names change places at one moment; `ExchangeUnsupported` where that cannot be had."""
        if not self._rename(one, name, other, other_name, EXCHANGE):
            raise ExchangeUnsupported

    def move(self, one: int, name: bytes, other: int, other_name: bytes) -> None:
        """Give a thing another name; FileExistsError where something bears that name already."""
        if self._rename(one, name, other, other_name, NOREPLACE):
            return
        if stat.S_ISDIR(os.stat(name, dir_fd=one, follow_symlinks=False).st_mode):
            # The system itself puts a directory on nothing but an empty one.
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
        """A new file, nobody's but ours until it is dressed; what it holds can be read back."""
        return os.open(name, NEW_FILE, mode, dir_fd=directory)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """All of the bytes, however few the kernel takes at a time."""
        done = os.pwrite(descriptor, data, offset)
        while done < len(data):
            done += os.pwrite(descriptor, data[done:], offset + done)

    def clone(self, source: int, descriptor: int, *, share: bool) -> bool:
        """Give a new file the bytes of an open one; where they can share blocks until either is written to, they do.
        False where that cannot be had: with `share` alone, or at all."""
        if sys.platform != "linux":
            return False
        try:
            fcntl.ioctl(descriptor, FICLONE, source)
        except OSError:
            # Whatever the reason is: the file is written then, and that tells of it where it matters.
            return not share and _copy(source, descriptor)
        return True

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def symlink(self, target: bytes, directory: int, name: bytes) -> None:
        os.symlink(target, name, dir_fd=directory)

    def mknod(self, directory: int, name: bytes, kind: int, device: int) -> None:
        """A pipe, a socket that nobody listens on, a device."""
        os.mknod(name, kind | 0o600, device, dir_fd=directory)

    def chown(self, directory: int, name: bytes, uid: int, gid: int) -> None:
        os.chown(name, uid, gid, dir_fd=directory, follow_symlinks=False)

    def fchown(self, descriptor: int, uid: int, gid: int) -> None:
        os.fchown(descriptor, uid, gid)

    def fchmod(self, descriptor: int, mode: int) -> None:
        os.fchmod(descriptor, mode)

    def chmod(self, directory: int, name: bytes, mode: int) -> None:
        """The mode of what is no link, also where it is closed to us."""
        if not SYSTEM.proc or not PATH_ONLY:
            self._chmod_opened(directory, name, mode)
            return
        descriptor = open_itself(name, PATH_ONLY | os.O_CLOEXEC, dir_fd=directory)
        try:
            # The kernel has no call that changes a mode and follows no link; this name means what is open.
            os.chmod(f"/proc/self/fd/{descriptor}", mode)
        finally:
            os.close(descriptor)

    def _chmod_opened(self, directory: int, name: bytes, mode: int) -> None:
        descriptor = open_itself(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)

    def utime(self, directory: int, name: bytes, mtime_ns: int) -> None:
        os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=directory, follow_symlinks=False)

    def futime(self, descriptor: int, mtime_ns: int) -> None:
        os.utime(descriptor, ns=(mtime_ns, mtime_ns))

    def set_xattr(self, what: int | str | bytes, name: bytes, value: bytes) -> None:
        """On an open file, or on a path whose last name is not followed."""
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
        """A descriptor of a directory below another, through no link and at one moment; None where there is none."""
        if self._openat2 is None or not path:
            return None
        opened = self._openat2(OPENAT2, base, path, self._way_beneath, ctypes.sizeof(OpenHow))
        return opened if opened >= 0 else None

    @once
    def _openat2(self) -> Any:
        return getattr(self._libc, "syscall", None) if SYSTEM.openat2 else None

    @once
    def _way_beneath(self) -> Any:
        return ctypes.byref(OpenHow(DIRECTORY | NOFOLLOW, 0, NO_LINKS_BENEATH))

    def sync(self, descriptor: int) -> None:
        """Return when all that was written to the file system of an open directory is on the medium."""
        syncfs = getattr(self._libc, "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def begin_to_sync(self, descriptor: int) -> None:
        """Have what was written to a file go to the medium; nobody waits for it."""
        begin = getattr(self._libc, "sync_file_range", None)
        if begin is not None:
            begin(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), WRITE)

    def sync_one(self, descriptor: int) -> None:
        """Return when an open file or directory is on the medium."""
        os.fsync(descriptor)

    @once
    def _libc(self) -> Any:
        return ctypes.CDLL(None, use_errno=True)

    def _rename(self, one: int, name: bytes, other: int, other_name: bytes, flags: int) -> bool:
        """Rename with flags; False where the system or the file system knows none."""
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
    """A descriptor of a directory below another, reached name by name and through no link; to be closed.

    NotADirectoryError where a link or something else stands in the way, or a directory that must not be entered.
    """
    here = os.open(b".", DIRECTORY, dir_fd=base)
    try:
        for name in path.split(b"/") if path else ():
            # Let go of by its name before it is closed: a signal between the two would have it closed twice.
            above, here = here, open_itself(name, DIRECTORY, dir_fd=here)
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
