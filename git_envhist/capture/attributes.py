"""What a manifest line says of a path beyond its mode and time: owner, extended attributes, hard links."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Sequence
from typing import Protocol

from git_envhist.model import StoredAs
from git_envhist.system import SYSTEM

SKIPPED_XATTRS = (b"security.selinux", b"security.ima", b"security.evm", b"system.nfs4_acl")
"""Attributes that belong to the machine's policy, not to the environment."""
SPREAD = 0x9E3779B97F4A7C15
"""An odd number without pattern: multiples of it lie far apart."""


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


def own_extras(extras: ExtrasFormat, own: os.stat_result, *, entered: bool) -> bytes:
    """What the manifest line of a directory itself says: its owner and, where it is the current one, its attributes."""
    return extras(uid=own.st_uid, gid=own.st_gid, xattrs=read_xattrs(b".") if entered else ())


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


def read_xattrs(what: int | bytes) -> list[tuple[bytes, bytes]]:
    """The extended attributes of an open file, or of a name in the current directory."""
    if not SYSTEM.xattr:
        return []
    follow = isinstance(what, int)
    try:
        names = os.listxattr(what) if follow else os.listxattr(what, follow_symlinks=False)
    except OSError:
        return []  # a file system without them
    if not names:
        return []
    found = []
    for name in sorted(map(os.fsencode, names)):
        if name in SKIPPED_XATTRS:
            continue
        with contextlib.suppress(OSError):  # gone since it was listed, or closed to us
            value = os.getxattr(what, name) if follow else os.getxattr(what, name, follow_symlinks=False)
            found.append((name, value))
    return found
