"""The stat data of an entry on disk, and comparisons of it."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from git_envhist.model import Entry, EntryKind

KINDS = {
    stat.S_IFREG: EntryKind.FILE,
    stat.S_IFLNK: EntryKind.LINK,
    stat.S_IFDIR: EntryKind.DIRECTORY,
    stat.S_IFIFO: EntryKind.FIFO,
    stat.S_IFSOCK: EntryKind.SOCKET,
    stat.S_IFCHR: EntryKind.CHARACTER_DEVICE,
    stat.S_IFBLK: EntryKind.BLOCK_DEVICE,
}


class DiskEntry(NamedTuple):
    """An entry on disk, as one stat call returned it."""

    device: int
    inode: int
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    links: int
    uid: int
    gid: int

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def kind(self) -> EntryKind:
        return KINDS[stat.S_IFMT(self.mode)]


def stat_entry(directory: int, name: bytes) -> DiskEntry | None:
    """Return the entry of a name; None if there is none."""
    try:
        return from_stat(os.stat(name, dir_fd=directory, follow_symlinks=False))
    except FileNotFoundError:
        return None


def from_stat(found: os.stat_result) -> DiskEntry:
    return DiskEntry(
        found.st_dev,
        found.st_ino,
        found.st_mode,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_nlink,
        found.st_uid,
        found.st_gid,
    )


def is_same_file(one: DiskEntry | None, other: DiskEntry | None) -> bool:
    """Return whether both are the same inode, even if it was changed."""
    if one is None or other is None:
        return False
    # Cheapest first; no enum lookup: called five times per path.
    same = one.inode == other.inode and one.device == other.device
    return same and stat.S_IFMT(one.mode) == stat.S_IFMT(other.mode)


def is_unchanged(known: DiskEntry, now: DiskEntry | None, *, strictly: bool = False) -> bool:
    """Return whether an entry is unchanged.

    `strictly` compares the ctime too. It is for files that the restore has not renamed yet: a rename changes the ctime.
    """
    if now is None or not is_same_file(known, now):
        return False
    if known.is_directory:
        # The mtime of a directory changes with its entries, which are checked one by one.
        return True
    same = (known.size, known.mtime_ns, known.mode) == (now.size, now.mtime_ns, now.mode)
    # Renaming one name of a file changes the ctime of all its names.
    return same and (not strictly or known.links > 1 or known.ctime_ns == now.ctime_ns)


def may_match_entry(entry: Entry, now: DiskEntry) -> bool:
    """Return whether kind, owner, mode and time are those of a snapshot's entry, so only the content may differ."""
    if now.kind is not entry.kind:
        return False
    if entry.kind is EntryKind.DIRECTORY:
        return True
    owner_matches = (entry.uid in (None, now.uid)) and (entry.gid in (None, now.gid))
    return owner_matches and now.mtime_ns == entry.mtime_ns and (now.mode & 0o7777 == entry.mode)
