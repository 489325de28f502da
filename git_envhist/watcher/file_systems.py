"""Decide whether inotify reports every change of an environment, by its file systems and mounts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

from git_envhist.platform import SYSTEM, Mount, list_mounts

LOCAL = frozenset((
    *(b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"f2fs", b"bcachefs", b"jfs", b"reiserfs"),
    *(b"tmpfs", b"ramfs"),
))  # fmt: skip
"""File systems that only calls to this system's kernel change.

An overlay's lower directories can change beside it, and `zfs rollback` changes a mounted dataset.
"""

EXPORTS = "/proc/fs/nfsd/exports", "/var/lib/nfs/etab"
"""The kernel's list has only what clients asked for, the other one all that `exportfs` set."""
EXPORTED = "this system exports file systems by NFS, and changes of its clients are not reported"
Points = frozenset[tuple[bytes, bytes]]
"""Mount points in an environment, each with the number of its mount."""


def why_unwatchable(bases: Mapping[bytes, bytes]) -> str:
    """Return why changes of these directories would not all be reported; empty if they are."""
    if not SYSTEM.proc:
        return "the system does not list its mounts"
    real = [os.path.realpath(base) for base in bases.values()]
    for one in real:
        if any(other is not one and (other + b"/").startswith(one.rstrip(b"/") + b"/") for other in real):
            return "one root of the environment contains another"
    try:
        mounts = list_mounts()
    except (OSError, IndexError, ValueError):
        return "the table of mounts cannot be read"
    if exports_files():
        return EXPORTED
    kinds = {mount.file_system for base in real if (mount := mount_of(base, mounts)) is not None}
    foreign = b", ".join(sorted(kinds - LOCAL)).decode("utf-8", "replace")
    return f"the file system '{foreign}' does not report all changes" if foreign else ""


def points_in(bases: Iterable[bytes]) -> Points:
    """Return the mounts at and below some directories, and those that these are on."""
    real = [os.path.realpath(base) for base in bases]
    try:
        mounts = list_mounts()
    except (OSError, IndexError, ValueError):
        return frozenset()
    below = {
        (mount.point, mount.number)
        for mount in mounts
        if any(mount.point.startswith(base.rstrip(b"/") + b"/") for base in real)
    }
    own = {(found.point, found.number) for base in real if (found := mount_of(base, mounts)) is not None}
    return frozenset(below | own)


def mount_of(path: bytes, mounts: list[Mount]) -> Mount | None:
    """Return the mount that a path is on: the last one of the longest mount point above it."""
    found = None
    for mount in mounts:
        if (path + b"/").startswith(mount.point.rstrip(b"/") + b"/") and (
            found is None or len(mount.point) >= len(found.point)
        ):
            found = mount
    return found


def exports_files() -> bool:
    """Return whether the kernel serves files to other machines: some of their writes give no event."""
    for table in EXPORTS:
        with suppress(OSError), open(table, "rb") as file:
            if any(line.strip() and not line.startswith(b"#") for line in file):
                return True
    return False
