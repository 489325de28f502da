"""The private directory of a restore on one file system, with one slot per step.

Before its step, a slot contains the new entry; afterwards the entry it replaced. So nothing leaves the environment
except into a slot. Entries that changed unexpectedly are moved to `kept/` before the slots are emptied.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from git_envhist.errors import Refused
from git_envhist.platform import DIRECTORY, list_directory, open_nofollow
from git_envhist.restore.disk_calls import DiskCalls, open_directory
from git_envhist.restore.disk_entry import DiskEntry, stat_entry

SLOTS = b"slots"
KEPT = b"kept"
ASIDE = b".aside"
"""Suffix of a third name, used to exchange two names without an atomic exchange."""
FAN_OUT = 9
MAX_NAME = 200
DEFAULT_LIST = b"system.posix_acl_default"


class Slots:
    """The slots on one file system."""

    def __init__(self, private: int, calls: DiskCalls, path: bytes = b"") -> None:
        """`path`: the directory's path as printed."""
        self.private = private
        self.calls = calls
        self.path = path
        self._open: tuple[bytes, int] | None = None

    def prepare(self, numbers: Iterable[int]) -> None:
        """Create the directories of the slots and `kept/`, so that later steps need no inode for them."""
        make_directory(self.calls, self.private, KEPT)
        make_directory(self.calls, self.private, SLOTS)
        slots = open_nofollow(SLOTS, DIRECTORY, dir_fd=self.private)
        try:
            for group in sorted({number >> FAN_OUT for number in numbers}):
                make_directory(self.calls, slots, b"%x" % group)
        finally:
            os.close(slots)

    def at(self, number: int) -> tuple[int, bytes]:
        """Return the open directory of a slot, and the slot's name in it."""
        path = slot_directory(number)
        if self._open is None or self._open[0] != path:
            self.close()
            self._open = (path, open_directory(self.private, path))
        return self._open[1], slot_name(number)

    def stat(self, number: int) -> DiskEntry | None:
        try:
            return stat_entry(*self.at(number))
        except FileNotFoundError:
            return None

    def stat_aside(self, number: int) -> DiskEntry | None:
        try:
            directory, name = self.at(number)
        except FileNotFoundError:
            return None
        return stat_entry(directory, name + ASIDE)

    def asides(self) -> set[int]:
        """Return the numbers of the slots whose exchange was interrupted: an entry still has its temporary name."""
        found = set()
        for group in _names(self.private, SLOTS):
            for name in _names(self.private, SLOTS + b"/" + group):
                if name.endswith(ASIDE):
                    with suppress(ValueError):
                        found.add((int(group, 16) << FAN_OUT) + int(name.removesuffix(ASIDE), 16))
        return found

    def keep(self, number: int, label: bytes) -> bytes:
        """Move the entry of a slot to `kept/` and return its path."""
        return self.keep_named(*self.at(number), label)

    def keep_named(self, directory: int, name: bytes, label: bytes) -> bytes:
        """Move an entry to `kept/` and return its path."""
        make_directory(self.calls, self.private, KEPT)
        kept = open_nofollow(KEPT, DIRECTORY, dir_fd=self.private)
        try:
            for number in range(1, 1 << 20):
                place = b"%d-%b" % (number, label[:MAX_NAME])
                with suppress(FileExistsError):
                    self.calls.move(directory, name, kept, place)
                    return os.path.join(self.path, KEPT, place)
        finally:
            os.close(kept)
        raise Refused(
            "too many kept files of earlier restores", hint="remove some from the directory of kept files"
        )

    def set_aside(self) -> bytes | None:
        """Move all slots to `kept/` and return the path; None if there are none."""
        self.close()
        if stat_entry(self.private, SLOTS) is None:
            return None
        return self.keep_named(self.private, SLOTS, SLOTS)

    def empty(self) -> None:
        """Remove the slots and all in them, and `kept/` if it is empty."""
        self.close()
        # The slots are removed last: a later command looks for them to remove the rest.
        with suppress(OSError):
            self.calls.rmdir(self.private, KEPT)
        remove_tree(self.calls, self.private, SLOTS)

    def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            os.close(opened[1])


def _names(private: int, path: bytes) -> list[bytes]:
    try:
        directory = open_directory(private, path)
    except FileNotFoundError:
        return []
    try:
        return list_directory(directory)
    finally:
        os.close(directory)


def slot_directory(number: int) -> bytes:
    return SLOTS + b"/%x" % (number >> FAN_OUT)


def slot_name(number: int) -> bytes:
    return b"%x" % (number & ((1 << FAN_OUT) - 1))


def make_directory(calls: DiskCalls, directory: int, name: bytes) -> None:
    with suppress(FileExistsError):
        calls.mkdir(directory, name)


def open_private(calls: DiskCalls, parent: int, name: bytes) -> int:
    """Open a directory that belongs to this user, created if missing; return a descriptor."""
    make_directory(calls, parent, name)
    try:
        private = open_nofollow(name, DIRECTORY, dir_fd=parent)
    except NotADirectoryError as error:
        raise _not_owned(name) from error
    found = os.fstat(private)
    if found.st_uid != os.geteuid():
        os.close(private)
        raise _not_owned(name)
    # Files created in it must not inherit an ACL from the directory above.
    calls.fchmod(private, 0o700)
    with suppress(OSError):
        calls.remove_xattr(private, DEFAULT_LIST)
    return private


def remove_tree(calls: DiskCalls, directory: int, name: bytes) -> None:
    """Remove an entry and everything below it, also deep trees and directories without permissions."""
    try:
        calls.unlink(directory, name)
        return
    except FileNotFoundError:
        return
    except OSError as error:
        found = stat_entry(directory, name)
        if found is None:
            return
        if not found.is_directory:
            raise error from None
        if found.mode & 0o700 != 0o700:
            calls.chmod(directory, name, 0o700)
    _remove_directory(calls, directory, name)


def _remove_directory(calls: DiskCalls, directory: int, name: bytes) -> None:
    # Parent directories stay open, so that no path exceeds the system's limit.
    chain = [(directory, name, open_nofollow(name, DIRECTORY, dir_fd=directory))]
    try:
        while chain:
            _, _, here = chain[-1]
            below = _remove_entries(calls, here)
            if below is not None:
                chain.append((here, below, open_nofollow(below, DIRECTORY, dir_fd=here)))
                continue
            above, removed, here = chain.pop()
            os.close(here)
            calls.rmdir(above, removed)
    finally:
        for _, _, here in chain:
            os.close(here)


def _remove_entries(calls: DiskCalls, directory: int) -> bytes | None:
    """Remove everything but directories; return the name of a remaining directory."""
    for name in list_directory(directory):
        with suppress(FileNotFoundError):
            if not _is_removed(calls, directory, name):
                return name
    return None


def _is_removed(calls: DiskCalls, directory: int, name: bytes) -> bool:
    """Remove an entry unless it is a directory; make a directory accessible."""
    try:
        calls.unlink(directory, name)
        return True
    except FileNotFoundError:
        raise
    except OSError:
        # Most entries are not directories, so unlink is tried before stat.
        found = stat_entry(directory, name)
        if found is None or not found.is_directory:
            raise
    if found.mode & 0o700 != 0o700:
        calls.chmod(directory, name, 0o700)
    return False


def _not_owned(name: bytes) -> Refused:
    return Refused(
        f"'{os.fsdecode(name)}' is in the place of the restore's private directory", hint="move it away"
    )
