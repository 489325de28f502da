"""The door between a restore and the environment: whatever changes there goes through it.

Every path is reached anew for every step, name by name below the top of the environment and through no link: a
directory that somebody moves away, or swaps for a link to somewhere else, between two steps is an error of that step.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from git_envhist.model import Entry, EnvPath
from git_envhist.platform import DIRECTORY
from git_envhist.restore.attributes import AttributeSetter, Lose
from git_envhist.restore.disk_entry import DiskEntry, look
from git_envhist.restore.fs import DiskCalls, open_directory
from git_envhist.restore.plan import PRIVATE
from git_envhist.restore.slots import Slots, open_private


class RestoreDisk:
    """The environment's tops, and for each the slots on its file system."""

    def __init__(
        self,
        bases: Mapping[bytes, int],
        slots: Mapping[bytes, Slots],
        homes: Mapping[bytes, tuple[int, bytes]],
        hands: DiskCalls,
        *,
        forbidden: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        """`homes`: where the private directory of each top stands, and its name there; `forbidden`: (device, inode) of
        directories that are no part of the environment whatever they are called."""
        self.hands = hands
        self.dresser = AttributeSetter(hands)
        self._bases = bases
        self._homes = homes
        self._slots = slots
        self._forbidden = forbidden
        self._reached: dict[tuple[bytes, bytes], tuple[int, int]] = {}
        """(device, inode) of each directory that was reached name by name."""

    def slots(self, root: bytes) -> Slots:
        return self._slots[root]

    def home_of(self, root: bytes) -> int:
        """The open directory in which the slots' own directory stands."""
        return self._homes[root][0]

    @property
    def tops_with_slots(self) -> tuple[int, ...]:
        """The open tops in which slots stand, since they cannot be renamed to from elsewhere."""
        return tuple(home for home, name in self._homes.values() if name == PRIVATE)

    @property
    def roots(self) -> Mapping[bytes, Slots]:
        return self._slots

    @property
    def all_slots(self) -> tuple[Slots, ...]:
        return tuple(self._slots.values())

    @contextmanager
    def directory(self, root: bytes, path: EnvPath) -> Iterator[int]:
        """An open directory of the environment; OSError where it is gone, or no directory any more."""
        descriptor = self.reach(root, path)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def parent(self, root: bytes, path: EnvPath) -> Iterator[tuple[int, bytes]]:
        """The open directory that a path stands in, and its name there."""
        above, _, name = path.rpartition(b"/")
        with self.directory(root, EnvPath(above)) as descriptor:
            yield descriptor, name

    @contextmanager
    def staying(self) -> Iterator[Callable[[bytes, EnvPath], tuple[int, bytes]]]:
        """The same for many paths that are only looked at: the directory of the last one stays open for the next."""
        held: tuple[bytes, bytes, int] | None = None

        def parent(root: bytes, path: EnvPath) -> tuple[int, bytes]:
            nonlocal held
            above, _, name = path.rpartition(b"/")
            if held is None or held[:2] != (root, above):
                # Let go of before it is closed: what cannot be entered next must not have it closed twice.
                last, held = held, None
                if last is not None:
                    os.close(last[2])
                below = self.reach(root, above)
                held = (root, above, below)
            return held[2], name

        try:
            yield parent
        finally:
            if held is not None:
                os.close(held[2])

    def look(self, root: bytes, path: EnvPath) -> DiskEntry | None:
        """What stands at a path; None where nothing does."""
        try:
            with self.parent(root, path) as (directory, name):
                return look(directory, name)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open_up(self, root: bytes, path: EnvPath) -> None:
        """Let us into a directory that is closed to its owner; what it was is set again at the end."""
        with suppress(FileNotFoundError, NotADirectoryError):
            if not path:
                self._open_top(self._base(root))
                return
            with self.parent(root, path) as (directory, name):
                found = look(directory, name)
                if found is not None and found.is_directory and found.mode & 0o700 != 0o700:
                    self.hands.chmod(directory, name, found.mode & 0o7777 | 0o700)

    def _open_top(self, base: int) -> None:
        mode = os.fstat(base).st_mode & 0o7777
        if mode & 0o700 != 0o700:
            self.hands.fchmod(base, mode | 0o700)

    def dress_directory(self, root: bytes, path: EnvPath, entry: Entry, lose: Lose) -> None:
        """Give a directory what its own line says."""
        with self.directory(root, path) as descriptor:
            self.dresser.directory(descriptor, entry, lose)

    def clear(self) -> None:
        """Remove every slot, and the private directories where nothing is kept in them."""
        for root, slots in self._slots.items():
            slots.empty()
            with _time_kept(self.hands, *self._homes[root]), suppress(OSError):
                self.hands.rmdir(*self._homes[root])

    def close(self) -> None:
        for slots in self._slots.values():
            slots.close()
        descriptors = {home for home, _ in self._homes.values()} | set(self._bases.values())
        for descriptor in descriptors | {slots.private for slots in self._slots.values()}:
            os.close(descriptor)

    def reach(self, root: bytes, path: bytes) -> int:
        """A descriptor of a directory, to be closed: opened name by name; or, where it was reached so before, by one
        call that must find the very same."""
        base, known = self._base(root), self._reached.get((root, path))
        if known is not None:
            opened = self.hands.open_beneath(base, path)
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
        except KeyError:  # what was a root of the environment once
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), root) from None


def _identity(descriptor: int) -> tuple[int, int]:
    seen = os.fstat(descriptor)
    return seen.st_dev, seen.st_ino


def open_restore_disk(
    bases: Mapping[bytes, bytes],
    private: str,
    *,
    hands: DiskCalls | None = None,
    forbidden: frozenset[tuple[int, int]] = frozenset(),
) -> RestoreDisk:
    """The door to the tops at these paths; slots stand in `private`, an existing directory, or where nothing can be
    renamed from there, at the top itself."""
    hands = hands or DiskCalls()
    opened: dict[bytes, int] = {}
    slots: dict[bytes, Slots] = {}
    homes: dict[bytes, tuple[int, bytes]] = {}
    above = os.open(private, DIRECTORY)
    for root, place in bases.items():
        opened[root] = os.open(place, DIRECTORY)
        ours = (above, b"realm-" + root.hex().encode("ascii"))
        at_top = (opened[root], PRIVATE)
        within = can_rename(hands, above, opened[root])
        homes[root] = ours if within else at_top
        path = os.path.join(os.fsencode(private) if within else place, homes[root][1])
        with _time_kept(hands, *homes[root]):
            slots[root] = Slots(open_private(hands, *homes[root]), hands, path)
    return RestoreDisk(opened, slots, {**homes, b"/": (above, b"")}, hands, forbidden=forbidden)


@contextmanager
def _time_kept(hands: DiskCalls, home: int, name: bytes) -> Iterator[None]:
    """What comes into a top of the environment, or goes from there, and is none of it, shall not move its time."""
    if name != PRIVATE:
        yield
        return
    before = os.fstat(home).st_mtime_ns
    yield
    if os.fstat(home).st_mtime_ns != before:
        with suppress(PermissionError):
            hands.futime(home, before)


def can_rename(hands: DiskCalls, source: int, target: int) -> bool:
    """Whether what stands in one directory can be given a name in another."""
    if os.fstat(source).st_dev != os.fstat(target).st_dev:
        return False
    # The kernel compares the mounts before it looks for the file: nothing needs to exist for the question.
    nothing = b"absent-" + os.urandom(8).hex().encode("ascii")
    try:
        hands.rename(source, nothing, target, nothing)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
