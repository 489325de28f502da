"""Owner, attributes, mode and time of one thing, in the order in which none undoes another.

A change of owner takes away set-id bits and capabilities; attributes want a writable file; an access list is part of
the mode; and each of these moves a time stamp.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from git_envhist.model import Entry, EntryKind
from git_envhist.platform import SYSTEM
from git_envhist.restore.fs import DiskCalls

SKIPPED_XATTRS = frozenset((b"security.selinux", b"security.ima", b"security.evm", b"system.nfs4_acl"))
"""Attributes that belong to the machine's policy: neither captured nor touched."""
NONE_THERE = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODATA, errno.ENOENT))
"""Errors of a file system without attributes, and of an attribute or a name that was removed since it was listed."""
SET_UID, SET_GID = 0o4000, 0o2000

Lose = Callable[[str], None]
"""Told what of an entry cannot be had here."""


class AttributeSetter:
    """Dresses what was just made, or what stands already."""

    def __init__(self, hands: DiskCalls) -> None:
        self._hands = hands
        self._mine = (os.geteuid(), os.getegid())

    def new_file(self, descriptor: int, entry: Entry, lose: Lose) -> None:
        """A file that was just made: it is ours, has no attributes and is closed to others."""
        mode = entry.mode
        if (entry.uid, entry.gid) != self._mine:
            mode = self._own(
                lambda uid, gid: self._hands.fchown(descriptor, uid, gid), entry, self._mine, lose
            )
        if entry.xattrs:
            self._set_xattrs(descriptor, entry, {}, lose)
        self._hands.fchmod(descriptor, mode)
        self._hands.futime(descriptor, entry.mtime_ns)

    def plain_directory(self, descriptor: int, entry: Entry) -> bool:
        """Dress an open directory that has its owner already and neither has nor gets attributes; False of others."""
        now = os.fstat(descriptor)
        if (entry.uid, entry.gid) != (now.st_uid, now.st_gid) or entry.xattrs:
            return False
        if read_xattrs(descriptor) != {}:
            return False
        if now.st_mode & 0o7777 != entry.mode:
            self._hands.fchmod(descriptor, entry.mode)
        if now.st_mtime_ns != entry.mtime_ns:
            self._hands.futime(descriptor, entry.mtime_ns)
        return True

    def directory(self, descriptor: int, entry: Entry, lose: Lose) -> None:
        """An open directory, whatever it was."""
        now = os.fstat(descriptor)
        mode = entry.mode
        if (entry.uid, entry.gid) != (now.st_uid, now.st_gid):
            has = (now.st_uid, now.st_gid)
            mode = self._own(lambda uid, gid: self._hands.fchown(descriptor, uid, gid), entry, has, lose)
        known = read_xattrs(descriptor)
        if known is None:
            lose("attributes")
        elif known != dict(entry.xattrs):
            self._set_xattrs(descriptor, entry, known, lose)
        if os.fstat(descriptor).st_mode & 0o7777 != mode:
            self._hands.fchmod(descriptor, mode)
        if os.fstat(descriptor).st_mtime_ns != entry.mtime_ns:
            self._hands.futime(descriptor, entry.mtime_ns)

    def named(self, directory: int, name: bytes, entry: Entry, lose: Lose) -> None:
        """What bears a name: also links, pipes, and files that are closed to us."""
        now = os.stat(name, dir_fd=directory, follow_symlinks=False)
        mode = entry.mode
        is_settled = now.st_mode & 0o7777 == mode
        if (entry.uid, entry.gid) != (now.st_uid, now.st_gid):
            has = (now.st_uid, now.st_gid)
            mode = self._own(lambda *ids: self._hands.chown(directory, name, *ids), entry, has, lose)
            is_settled = False
        if SYSTEM.proc:
            place = b"/proc/self/fd/%d/%b" % (directory, name)
            known = read_xattrs(place)
            if known is None:
                lose("attributes")
            elif known != dict(entry.xattrs):
                if entry.kind is EntryKind.FILE and now.st_mode & 0o200 == 0:
                    self._hands.chmod(directory, name, now.st_mode & 0o777 | 0o200)
                self._set_xattrs(place, entry, known, lose)
                is_settled = False
        elif entry.xattrs:
            lose("attributes")
        if entry.kind is not EntryKind.LINK and not is_settled:
            self._hands.chmod(directory, name, mode)
        self._hands.utime(directory, name, entry.mtime_ns)

    def _own(self, chown: Callable[[int, int], None], entry: Entry, has: tuple[int, int], lose: Lose) -> int:
        """Give it to its owner; the mode it may have then."""
        uid, gid = (-1 if want is None else want for want in (entry.uid, entry.gid))
        try:
            chown(uid, gid)
            return entry.mode
        except OSError:
            mode = entry.mode
        if gid not in (-1, has[1]):
            try:
                chown(-1, gid)
            except OSError:
                mode &= ~SET_GID
        lose("owner")
        # What runs as its owner shall not run as another.
        return mode & ~SET_UID if uid not in (-1, has[0]) else mode

    def _set_xattrs(self, what: int | bytes, entry: Entry, known: dict[bytes, bytes], lose: Lose) -> None:
        wanted = dict(entry.xattrs)
        for name in known.keys() - wanted.keys():
            try:
                self._hands.remove_xattr(what, name)
            except OSError:
                lose("attributes")
        for name, value in entry.xattrs:
            if known.get(name) != value:
                try:
                    self._hands.set_xattr(what, name, value)
                except OSError:
                    lose("attributes")


def read_xattrs(what: int | bytes) -> dict[bytes, bytes] | None:
    """Return the attributes of an open file, or of a path that is not followed; None if one is unreadable."""
    if not SYSTEM.xattr:
        return {}
    follow = isinstance(what, int)
    try:
        names = os.listxattr(what) if follow else os.listxattr(what, follow_symlinks=False)
        found = [name for name in map(os.fsencode, names) if name not in SKIPPED_XATTRS]
        if follow:
            return {name: os.getxattr(what, name) for name in found}
        return {name: os.getxattr(what, name, follow_symlinks=False) for name in found}
    except OSError as error:
        return {} if error.errno in NONE_THERE else None
