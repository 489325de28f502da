"""The private directory of a restore on one file system: what is to come, and what went.

Each step has a slot, found by its number. Before the step it holds what is to come, afterwards what stood at its path:
so nothing ever leaves the environment but into a slot. What nobody foresaw, and what somebody wrote to meanwhile, goes
on to `kept/` before the slots are emptied.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from git_envhist.errors import Refused
from git_envhist.platform import DIRECTORY, list_directory, open_nofollow
from git_envhist.restore.disk_entry import DiskEntry, look
from git_envhist.restore.fs import DiskCalls, open_directory

SLOTS = b"slots"
KEPT = b"kept"
ASIDE = b".aside"
"""Behind the name of a slot: where two names change places by way of a third."""
FAN_OUT = 9
MAX_NAME = 200
DEFAULT_LIST = b"system.posix_acl_default"


class Slots:
    """The slots on one file system."""

    def __init__(self, private: int, hands: DiskCalls, path: bytes = b"") -> None:
        """`path`: what people call the directory."""
        self.private = private
        self.hands = hands
        self.path = path
        self._open: tuple[bytes, int] | None = None

    def prepare(self, numbers: Iterable[int]) -> None:
        """Make the directories of the slots, and the one of kept files: no inode is needed for it later."""
        make_directory(self.hands, self.private, KEPT)
        make_directory(self.hands, self.private, SLOTS)
        slots = open_nofollow(SLOTS, DIRECTORY, dir_fd=self.private)
        try:
            for group in sorted({number >> FAN_OUT for number in numbers}):
                make_directory(self.hands, slots, b"%x" % group)
        finally:
            os.close(slots)

    def at(self, number: int) -> tuple[int, bytes]:
        """The open directory of a slot, and the slot's name in it."""
        path = slot_directory(number)
        if self._open is None or self._open[0] != path:
            self.close()
            self._open = (path, open_directory(self.private, path))
        return self._open[1], slot_name(number)

    def look(self, number: int) -> DiskEntry | None:
        try:
            return look(*self.at(number))
        except FileNotFoundError:
            return None

    def look_aside(self, number: int) -> DiskEntry | None:
        try:
            directory, name = self.at(number)
        except FileNotFoundError:
            return None
        return look(directory, name + ASIDE)

    def asides(self) -> set[int]:
        """The numbers of the slots beside which a thing lies under a third name."""
        found = set()
        for group in _names(self.private, SLOTS):
            for name in _names(self.private, SLOTS + b"/" + group):
                if name.endswith(ASIDE):
                    with suppress(ValueError):
                        found.add((int(group, 16) << FAN_OUT) + int(name.removesuffix(ASIDE), 16))
        return found

    def keep(self, number: int, called: bytes) -> bytes:
        """Put what lies in a slot where it stays; where that is."""
        return self.keep_named(*self.at(number), called)

    def keep_named(self, directory: int, name: bytes, called: bytes) -> bytes:
        """Put a thing of ours where it stays; where that is."""
        make_directory(self.hands, self.private, KEPT)
        kept = open_nofollow(KEPT, DIRECTORY, dir_fd=self.private)
        try:
            for attempt in range(1, 1 << 20):
                place = b"%d-%b" % (attempt, called[:MAX_NAME])
                with suppress(FileExistsError):
                    self.hands.move(directory, name, kept, place)
                    return os.path.join(self.path, KEPT, place)
        finally:
            os.close(kept)
        raise Refused(
            "there is no room for what has to be kept", hint="look into the directory of kept files"
        )

    def set_aside(self) -> bytes | None:
        """Put the slots, with all in them, where they stay; where that is, None where there are none."""
        self.close()
        if look(self.private, SLOTS) is None:
            return None
        return self.keep_named(self.private, SLOTS, SLOTS)

    def empty(self) -> None:
        """Remove the slots and all in them, and the directory of kept files if it is empty."""
        self.close()
        # The slots are removed last: a later command looks for them to remove the rest.
        with suppress(OSError):
            self.hands.rmdir(self.private, KEPT)
        remove_tree(self.hands, self.private, SLOTS)

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


def make_directory(hands: DiskCalls, directory: int, name: bytes) -> None:
    with suppress(FileExistsError):
        hands.mkdir(directory, name)


def open_private(hands: DiskCalls, parent: int, name: bytes) -> int:
    """A directory that is ours alone, made where it is missing; a descriptor, to be closed."""
    make_directory(hands, parent, name)
    try:
        private = open_nofollow(name, DIRECTORY, dir_fd=parent)
    except NotADirectoryError as planted:
        raise _not_ours(name) from planted
    found = os.fstat(private)
    if found.st_uid != os.geteuid():
        os.close(private)
        raise _not_ours(name)
    # What is made here shall be as it is told to be, whatever the directory above hands down.
    hands.fchmod(private, 0o700)
    with suppress(OSError):
        hands.remove_xattr(private, DEFAULT_LIST)
    return private


def remove_tree(hands: DiskCalls, directory: int, name: bytes) -> None:
    """Remove what bears a name, and all below it; deep trees too, and those that are closed to us."""
    try:
        hands.unlink(directory, name)
        return
    except FileNotFoundError:
        return
    except OSError as error:
        found = look(directory, name)
        if found is None:
            return
        if not found.is_directory:
            raise error from None
        if found.mode & 0o700 != 0o700:
            hands.chmod(directory, name, 0o700)
    _remove_directory(hands, directory, name)


def _remove_directory(hands: DiskCalls, directory: int, name: bytes) -> None:
    # The way down stays open, so that no path grows longer than the system takes.
    way = [(directory, name, open_nofollow(name, DIRECTORY, dir_fd=directory))]
    try:
        while way:
            _, _, here = way[-1]
            below = _remove_entries(hands, here)
            if below is not None:
                way.append((here, below, open_nofollow(below, DIRECTORY, dir_fd=here)))
                continue
            above, gone, here = way.pop()
            os.close(here)
            hands.rmdir(above, gone)
    finally:
        for _, _, here in way:
            os.close(here)


def _remove_entries(hands: DiskCalls, directory: int) -> bytes | None:
    """Remove all that is no directory; the name of one that is left, entered next."""
    for name in list_directory(directory):
        with suppress(FileNotFoundError):
            if not _is_removed(hands, directory, name):
                return name
    return None


def _is_removed(hands: DiskCalls, directory: int, name: bytes) -> bool:
    """Remove it, unless it is a directory: that is opened to us."""
    try:
        hands.unlink(directory, name)
        return True
    except FileNotFoundError:
        raise
    except OSError:
        # Mostly it is none: nobody asks before.
        found = look(directory, name)
        if found is None or not found.is_directory:
            raise
    if found.mode & 0o700 != 0o700:
        hands.chmod(directory, name, 0o700)
    return False


def _not_ours(name: bytes) -> Refused:
    return Refused(
        f"somebody else's '{os.fsdecode(name)}' stands where a restore would work", hint="move it away"
    )
