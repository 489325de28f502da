"""What a manifest line says of a path beyond its mode and time: owner, extended attributes, hard links."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from git_envhist.model import StoredAs
from git_envhist.platform import SYSTEM

SKIPPED_XATTRS = (b"security.selinux", b"security.ima", b"security.evm", b"system.nfs4_acl")
"""Attributes that belong to the machine's policy, not to the environment."""
NONE_THERE = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODATA, errno.ENOENT))
"""Errors of a file system without attributes, and of an attribute or a name that was removed since it was listed."""
SPREAD = 0x9E3779B97F4A7C15
"""An odd number without pattern: multiples of it lie far apart."""


class Attributes(NamedTuple):
    """The extended attributes of a path, and why some could not be read (empty: all were)."""

    found: list[tuple[bytes, bytes]]
    unread: str = ""


class ExtrasFormat(Protocol):
    """Writes what a manifest line says beyond the plain case."""

    def __call__(
        self,
        *,
        uid: int | None = None,
        gid: int | None = None,
        link_group: int | None = None,
        device: int | None = None,
        stored: StoredAs = StoredAs.PLAIN,
        xattrs: Iterable[tuple[bytes, bytes]] = (),
        notes: Sequence[tuple[str, str]] = (),
    ) -> bytes: ...


def link_group(seen: os.stat_result, home_device: int) -> int:
    """A number that the hard links to one file share, and that no other file of the environment has."""
    if seen.st_dev == home_device:
        return seen.st_ino
    # On another file system (a further root) the same number means another file.
    return (seen.st_ino + (seen.st_dev + 1) * SPREAD) % (1 << 64)


def leaf_extras(
    extras: ExtrasFormat,
    own: os.stat_result,
    seen: os.stat_result,
    home_device: int,
    xattrs: list[tuple[bytes, bytes]],
    stored: StoredAs,
    digest: bytes | None,
) -> bytes:
    """Return what the manifest line of an entry says; `own` is the stat of its directory. Nothing where it is plain."""
    is_device = stat.S_IFMT(seen.st_mode) in (stat.S_IFCHR, stat.S_IFBLK)
    if (
        not xattrs
        and stored is StoredAs.PLAIN
        and seen.st_nlink == 1
        and not is_device
        and seen.st_uid == own.st_uid
        and seen.st_gid == own.st_gid
    ):
        return b""
    return extras(
        uid=seen.st_uid if seen.st_uid != own.st_uid else None,
        gid=seen.st_gid if seen.st_gid != own.st_gid else None,
        link_group=link_group(seen, home_device) if seen.st_nlink > 1 else None,
        device=seen.st_rdev if is_device else None,
        stored=stored,
        xattrs=xattrs,
        notes=(("h", digest.hex()),) if digest else (),
    )


def read_xattrs(what: int | bytes) -> Attributes:
    """Return the extended attributes of an open file, or of a name in the current directory."""
    if not SYSTEM.xattr:
        return Attributes([])
    follow = isinstance(what, int)
    try:
        names = os.listxattr(what) if follow else os.listxattr(what, follow_symlinks=False)
    except OSError as error:
        return Attributes([], _why(error))
    if not names:
        return Attributes([])
    found, unread = [], ""
    for name in sorted(map(os.fsencode, names)):
        if name in SKIPPED_XATTRS:
            continue
        try:
            value = os.getxattr(what, name) if follow else os.getxattr(what, name, follow_symlinks=False)
            found.append((name, value))
        except OSError as error:
            unread = unread or _why(error)
    return Attributes(found, unread)


def _why(error: OSError) -> str:
    return "" if error.errno in NONE_THERE else os.strerror(error.errno or 0).lower()
