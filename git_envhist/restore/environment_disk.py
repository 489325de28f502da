"""The open roots of an environment, and the slots of a restore for each of them.

Every path is opened again for every step, name by name below the root and without following links. If another process
moves a directory away or replaces it by a link between two steps, that step fails with an error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

from git_envhist.disk import can_rename
from git_envhist.model import Entry, EnvPath
from git_envhist.platform import DIRECTORY
from git_envhist.restore.disk_calls import DiskCalls, open_directory
from git_envhist.restore.disk_entry import DiskEntry, stat_entry
from git_envhist.restore.plan_steps import PRIVATE
from git_envhist.restore.set_metadata import Lose, MetadataSetter
from git_envhist.restore.slots import Slots, open_private


class EnvironmentDisk:
    """The open roots of an environment, with the slots on each file system."""

    def __init__(
        self,
        bases: Mapping[bytes, int],
        slots: Mapping[bytes, Slots],
        slot_parents: Mapping[bytes, tuple[int, bytes]],
        calls: DiskCalls,
        *,
        forbidden: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        """`slot_parents`: the directory of each root's private directory, and the name there; `forbidden`: (device,
        inode) of directories that must not be entered."""
        self.calls = calls
        self.setter = MetadataSetter(calls)
        self._bases = bases
        self._homes = slot_parents
        self._slots = slots
        self._forbidden = forbidden
        self._reached: dict[tuple[bytes, bytes], tuple[int, int]] = {}
        """(device, inode) of each directory that was opened name by name."""

    def slots(self, root: bytes) -> Slots:
        return self._slots[root]

    def slots_parent(self, root: bytes) -> int:
        """Return the open parent of the private directory with the slots."""
        return self._homes[root][0]

    @property
    def tops_with_slots(self) -> tuple[int, ...]:
        """The open roots that contain their own private directory, because nothing can be renamed to them from
        elsewhere."""
        return tuple(parent for parent, name in self._homes.values() if name == PRIVATE)

    @property
    def roots(self) -> Mapping[bytes, Slots]:
        return self._slots

    @property
    def all_slots(self) -> tuple[Slots, ...]:
        return tuple(self._slots.values())

    @contextmanager
    def directory(self, root: bytes, path: EnvPath) -> Iterator[int]:
        """Open a directory of the environment; raise OSError if it is gone or not a directory."""
        descriptor = self.reach(root, path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def parent(self, root: bytes, path: EnvPath) -> Iterator[tuple[int, bytes]]:
        """Open the directory of a path; yield the descriptor and the last name."""
        above, _, name = path.rpartition(b"/")
        with self.directory(root, EnvPath(above)) as descriptor:
            yield descriptor, name

    @contextmanager
    def keep_open(self) -> Iterator[Callable[[bytes, EnvPath], tuple[int, bytes]]]:
        """Yield a function that does the same for many paths, keeping the last directory open."""
        opened: tuple[bytes, bytes, int] | None = None

        def parent(root: bytes, path: EnvPath) -> tuple[int, bytes]:
            nonlocal opened
            above, _, name = path.rpartition(b"/")
            if opened is None or opened[:2] != (root, above):
                # Reset before closing, so that a failing open does not lead to a second close.
                last, opened = opened, None
                if last is not None:
                    os.close(last[2])
                below = self.reach(root, above)
                opened = (root, above, below)
            return opened[2], name

        try:
            yield parent
        finally:
            if opened is not None:
                os.close(opened[2])

    def stat(self, root: bytes, path: EnvPath) -> DiskEntry | None:
        """Return the entry of a path; None if there is none."""
        try:
            with self.parent(root, path) as (directory, name):
                return stat_entry(directory, name)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def make_accessible(self, root: bytes, path: EnvPath) -> None:
        """Give the owner access to a directory; the final mode is set at the end of the restore."""
        with suppress(FileNotFoundError, NotADirectoryError):
            if not path:
                self._open_top(self._base(root))
                return
            with self.parent(root, path) as (directory, name):
                found = stat_entry(directory, name)
                if found is not None and found.is_directory and found.mode & 0o700 != 0o700:
                    self.calls.chmod(directory, name, found.mode & 0o7777 | 0o700)

    def _open_top(self, base: int) -> None:
        mode = os.fstat(base).st_mode & 0o7777
        if mode & 0o700 != 0o700:
            self.calls.fchmod(base, mode | 0o700)

    def set_directory_attributes(self, root: bytes, path: EnvPath, entry: Entry, lose: Lose) -> None:
        """Set the attributes of a directory."""
        with self.directory(root, path) as descriptor:
            self.setter.directory(descriptor, entry, lose)

    def clear(self) -> None:
        """Remove all slots, and private directories without kept files."""
        for root, slots in self._slots.items():
            slots.empty()
            with _keeping_mtime(self.calls, *self._homes[root]), suppress(OSError):
                self.calls.rmdir(*self._homes[root])

    def close(self) -> None:
        for slots in self._slots.values():
            slots.close()
        descriptors = {parent for parent, _ in self._homes.values()} | set(self._bases.values())
        for descriptor in descriptors | {slots.private for slots in self._slots.values()}:
            os.close(descriptor)

    def reach(self, root: bytes, path: bytes) -> int:
        """Open a directory and return a descriptor, name by name; if it was opened before, by one call that must find
        the same one."""
        base, known = self._base(root), self._reached.get((root, path))
        if known is not None:
            opened = self.calls.open_beneath(base, path)
            if opened is not None:
                if _identity(opened) == known:
                    return opened
                os.close(opened)
        opened = open_directory(base, path, forbidden=self._forbidden)
        self._reached[root, path] = _identity(opened)
        return opened

    def _base(self, root: bytes) -> int:
        try:
            return self._bases[root]
        except KeyError:  # no longer a configured root
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), root) from None


def _identity(descriptor: int) -> tuple[int, int]:
    seen = os.fstat(descriptor)
    return seen.st_dev, seen.st_ino


def open_environment_disk(
    bases: Mapping[bytes, bytes],
    private: str,
    *,
    calls: DiskCalls | None = None,
    forbidden: frozenset[tuple[int, int]] = frozenset(),
) -> EnvironmentDisk:
    """Open the roots at these paths, with slots in `private`, an existing directory, or at the top of a root to which
    nothing
    can be renamed from there."""
    calls = calls or DiskCalls()
    opened: dict[bytes, int] = {}
    slots: dict[bytes, Slots] = {}
    slot_parents: dict[bytes, tuple[int, bytes]] = {}
    above = os.open(private, DIRECTORY)
    for root, place in bases.items():
        opened[root] = os.open(place, DIRECTORY)
        in_private = (above, b"realm-" + root.hex().encode("ascii"))
        at_top = (opened[root], PRIVATE)
        within = can_rename(above, opened[root], partial(_try_rename, calls, above, opened[root]))
        slot_parents[root] = in_private if within else at_top
        path = os.path.join(os.fsencode(private) if within else place, slot_parents[root][1])
        with _keeping_mtime(calls, *slot_parents[root]):
            slots[root] = Slots(open_private(calls, *slot_parents[root]), calls, path)
    return EnvironmentDisk(opened, slots, {**slot_parents, b"/": (above, b"")}, calls, forbidden=forbidden)


@contextmanager
def _keeping_mtime(calls: DiskCalls, parent: int, name: bytes) -> Iterator[None]:
    """Keep the mtime of a root while the private directory in it is created or removed."""
    if name != PRIVATE:
        yield
        return
    before = os.fstat(parent).st_mtime_ns
    yield
    if os.fstat(parent).st_mtime_ns != before:
        with suppress(PermissionError):
            calls.futime(parent, before)


def _try_rename(calls: DiskCalls, source: int, target: int, name: str) -> None:
    calls.rename(source, os.fsencode(name), target, os.fsencode(name))
