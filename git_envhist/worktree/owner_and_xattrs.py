"""Manifest words of an entry beyond mode and time: owner, extended attributes, hard links.

The words are empty for the plain case: the owner of the directory, one link, stored unsealed. Attributes that
cannot be read are reported, and the entry is read again by the next capture.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from git_envhist.model import StoredAs
from git_envhist.platform import SYSTEM

SKIPPED_XATTRS = (b"security.selinux", b"security.ima", b"security.evm", b"system.nfs4_acl")
"""Attributes of the machine's security policy, not of the environment."""
ABSENT_ERRNOS = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODATA, errno.ENOENT))
"""Errors that mean "no such attribute": unsupported, or removed since it was listed."""
HASH_MULTIPLIER = 0x9E3779B97F4A7C15
"""An odd number without a pattern: its multiples are far apart."""


class Attributes(NamedTuple):
    """The extended attributes of a path, and the reason if some could not be read."""

    found: list[tuple[bytes, bytes]]
    unread: str = ""


class ExtrasFormat(Protocol):
    """Format the manifest words of an entry."""

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
    """Return a number that all hard links of a file share, and no other file of the environment has."""
    if seen.st_dev == home_device:
        return seen.st_ino
    # On another file system (an additional root) the same inode is another file.
    return (seen.st_ino + (seen.st_dev + 1) * HASH_MULTIPLIER) % (1 << 64)


def leaf_extras(
    extras: ExtrasFormat,
    own_stat: os.stat_result,
    seen: os.stat_result,
    home_device: int,
    xattrs: list[tuple[bytes, bytes]],
    stored: StoredAs,
    digest: bytes | None,
) -> bytes:
    """Return the manifest words of an entry, empty if it is plain; `own` is the stat of its directory."""
    is_device = stat.S_IFMT(seen.st_mode) in (stat.S_IFCHR, stat.S_IFBLK)
    if (
        not xattrs
        and stored is StoredAs.PLAIN
        and seen.st_nlink == 1
        and not is_device
        and seen.st_uid == own_stat.st_uid
        and seen.st_gid == own_stat.st_gid
    ):
        return b""
    return extras(
        uid=seen.st_uid if seen.st_uid != own_stat.st_uid else None,
        gid=seen.st_gid if seen.st_gid != own_stat.st_gid else None,
        link_group=link_group(seen, home_device) if seen.st_nlink > 1 else None,
        device=seen.st_rdev if is_device else None,
        stored=stored,
        xattrs=xattrs,
        notes=(("h", digest.hex()),) if digest else (),
    )


def read_xattrs(target: int | bytes) -> Attributes:
    """Return the extended attributes of an open file or of a name in the current directory."""
    if not SYSTEM.xattr:
        return Attributes([])
    follow = isinstance(target, int)
    try:
        names = os.listxattr(target) if follow else os.listxattr(target, follow_symlinks=False)
    except OSError as error:
        return Attributes([], _reason(error))
    if not names:
        return Attributes([])
    found, unread = [], ""
    for name in sorted(map(os.fsencode, names)):
        if name in SKIPPED_XATTRS:
            continue
        try:
            value = os.getxattr(target, name) if follow else os.getxattr(target, name, follow_symlinks=False)
            found.append((name, value))
        except OSError as error:
            unread = unread or _reason(error)
    return Attributes(found, unread)


def _reason(error: OSError) -> str:
    return "" if error.errno in ABSENT_ERRNOS else os.strerror(error.errno or 0).lower()
