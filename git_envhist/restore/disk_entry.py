"""What stands at a name, and whether it is still the same thing."""

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
    """A thing on the disk, as one look had it."""

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


def look(directory: int, name: bytes) -> DiskEntry | None:
    """What stands at a name; None where nothing does."""
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


def is_same_thing(one: DiskEntry | None, other: DiskEntry | None) -> bool:
    """Whether it is the same file, whatever became of it."""
    if one is None or other is None:
        return False
    # The cheapest first, and no kind is looked up: this is asked five times for each path.
    same = one.inode == other.inode and one.device == other.device
    return same and stat.S_IFMT(one.mode) == stat.S_IFMT(other.mode)


def is_untouched(known: DiskEntry, now: DiskEntry | None, *, strictly: bool = False) -> bool:
    """Whether a thing is as it was known; `strictly`: nothing of ours has renamed it since, so its ctime tells."""
    if now is None or not is_same_thing(known, now):
        return False
    if known.is_directory:
        # Its time moves with its entries, and these are looked at one by one.
        return True
    same = (known.size, known.mtime_ns, known.mode) == (now.size, now.mtime_ns, now.mode)
    # Each rename of one name of a file moves the time of all its names.
    return same and (not strictly or known.links > 1 or known.ctime_ns == now.ctime_ns)


def may_match_entry(entry: Entry, now: DiskEntry) -> bool:
    """Whether a thing can be what a snapshot says, as far as a look tells."""
    if now.kind is not entry.kind:
        return False
    if entry.kind is EntryKind.DIRECTORY:
        return True
    owned = (entry.uid in (None, now.uid)) and (entry.gid in (None, now.gid))
    return owned and now.mtime_ns == entry.mtime_ns and (now.mode & 0o7777 == entry.mode)
