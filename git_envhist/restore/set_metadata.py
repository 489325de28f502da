"""Set owner, extended attributes, mode and mtime of an entry, in the order in which none undoes another.

chown removes set-id bits and capabilities, setting attributes requires a writable file, an ACL changes the mode, and
each of them changes a timestamp.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from git_envhist.model import Entry, EntryKind
from git_envhist.platform import SYSTEM
from git_envhist.restore.disk_calls import DiskCalls

SKIPPED_XATTRS = frozenset((b"security.selinux", b"security.ima", b"security.evm", b"system.nfs4_acl"))
"""Attributes of the machine's security policy: neither captured nor changed."""
NONE_THERE = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODATA, errno.ENOENT))
"""Errors of a file system without attributes, and of an attribute or file removed since it was listed."""
SET_UID, SET_GID = 0o4000, 0o2000

Lose = Callable[[str], None]
"""Called with the name of metadata that could not be set."""


class MetadataSetter:
    """Sets the metadata of new and existing entries."""

    def __init__(self, calls: DiskCalls) -> None:
        self._calls = calls
        self._own_ids = (os.geteuid(), os.getegid())

    def new_file(self, descriptor: int, entry: Entry, lose: Lose) -> None:
        """Set the metadata of a file just created: owned by this user, without attributes, closed to others."""
        mode = entry.mode
        if (entry.uid, entry.gid) != self._own_ids:
            mode = self._set_owner(
                lambda uid, gid: self._calls.fchown(descriptor, uid, gid), entry, self._own_ids, lose
            )
        if entry.xattrs:
            self._set_xattrs(descriptor, entry, {}, lose)
        self._calls.fchmod(descriptor, mode)
        self._calls.futime(descriptor, entry.mtime_ns)

    def plain_directory(self, descriptor: int, entry: Entry) -> bool:
        """Set the metadata of a directory with the right owner and no attributes; return False for any other."""
        now = os.fstat(descriptor)
        if (entry.uid, entry.gid) != (now.st_uid, now.st_gid) or entry.xattrs:
            return False
        if read_xattrs(descriptor) != {}:
            return False
        if now.st_mode & 0o7777 != entry.mode:
            self._calls.fchmod(descriptor, entry.mode)
        if now.st_mtime_ns != entry.mtime_ns:
            self._calls.futime(descriptor, entry.mtime_ns)
        return True

    def directory(self, descriptor: int, entry: Entry, lose: Lose) -> None:
        """Set the metadata of any open directory."""
        now = os.fstat(descriptor)
        mode = entry.mode
        if (entry.uid, entry.gid) != (now.st_uid, now.st_gid):
            current = (now.st_uid, now.st_gid)
            mode = self._set_owner(
                lambda uid, gid: self._calls.fchown(descriptor, uid, gid), entry, current, lose
            )
        known = read_xattrs(descriptor)
        if known is None:
            lose("attributes")
        elif known != dict(entry.xattrs):
            self._set_xattrs(descriptor, entry, known, lose)
        if os.fstat(descriptor).st_mode & 0o7777 != mode:
            self._calls.fchmod(descriptor, mode)
        if os.fstat(descriptor).st_mtime_ns != entry.mtime_ns:
            self._calls.futime(descriptor, entry.mtime_ns)

    def named(self, directory: int, name: bytes, entry: Entry, lose: Lose) -> None:
        """Set the metadata of an entry by its name: also links, pipes, and files without permissions."""
        now = os.stat(name, dir_fd=directory, follow_symlinks=False)
        mode = entry.mode
        mode_is_set = now.st_mode & 0o7777 == mode
        if (entry.uid, entry.gid) != (now.st_uid, now.st_gid):
            current = (now.st_uid, now.st_gid)
            mode = self._set_owner(
                lambda *ids: self._calls.chown(directory, name, *ids), entry, current, lose
            )
            mode_is_set = False
        if SYSTEM.proc:
            place = b"/proc/self/fd/%d/%b" % (directory, name)
            known = read_xattrs(place)
            if known is None:
                lose("attributes")
            elif known != dict(entry.xattrs):
                if entry.kind is EntryKind.FILE and now.st_mode & 0o200 == 0:
                    self._calls.chmod(directory, name, now.st_mode & 0o777 | 0o200)
                self._set_xattrs(place, entry, known, lose)
                mode_is_set = False
        elif entry.xattrs:
            lose("attributes")
        if entry.kind is not EntryKind.LINK and not mode_is_set:
            self._calls.chmod(directory, name, mode)
        self._calls.utime(directory, name, entry.mtime_ns)

    def _set_owner(
        self, chown: Callable[[int, int], None], entry: Entry, current: tuple[int, int], lose: Lose
    ) -> int:
        """Change the owner and return the mode to set."""
        uid, gid = (-1 if wanted is None else wanted for wanted in (entry.uid, entry.gid))
        try:
            chown(uid, gid)
            return entry.mode
        except OSError:
            mode = entry.mode
        if gid not in (-1, current[1]):
            try:
                chown(-1, gid)
            except OSError:
                mode &= ~SET_GID
        lose("owner")
        # A set-uid program must not run as another user than its owner.
        return mode & ~SET_UID if uid not in (-1, current[0]) else mode

    def _set_xattrs(self, file: int | bytes, entry: Entry, known: dict[bytes, bytes], lose: Lose) -> None:
        wanted = dict(entry.xattrs)
        for name in known.keys() - wanted.keys():
            try:
                self._calls.remove_xattr(file, name)
            except OSError:
                lose("attributes")
        for name, value in entry.xattrs:
            if known.get(name) != value:
                try:
                    self._calls.set_xattr(file, name, value)
                except OSError:
                    lose("attributes")


def read_xattrs(file: int | bytes) -> dict[bytes, bytes] | None:
    """Return the attributes of an open file, or of a path that is not followed; None if one is unreadable."""
    if not SYSTEM.xattr:
        return {}
    follow = isinstance(file, int)
    try:
        names = os.listxattr(file) if follow else os.listxattr(file, follow_symlinks=False)
        found = [name for name in map(os.fsencode, names) if name not in SKIPPED_XATTRS]
        if follow:
            return {name: os.getxattr(file, name) for name in found}
        return {name: os.getxattr(file, name, follow_symlinks=False) for name in found}
    except OSError as error:
        return {} if error.errno in NONE_THERE else None
