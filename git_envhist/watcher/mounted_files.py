"""Find directories of an environment by their paths in their file systems, whatever mount a process uses.

A path is not enough: a bind mount shows a directory of the environment elsewhere, and in another mount namespace the
same path can be another file. The device of a mount and the path below its root are the same for every process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from git_envhist.paths import DOT_GIT, ROOT_PREFIX, join
from git_envhist.platform import ESCAPED, Mount
from git_envhist.watcher.file_systems import mount_of

OVERLAY, UPPER = b"overlay", b"upperdir="


class Places:
    """The directories of an environment in their file systems."""

    def __init__(self, bases: Mapping[bytes, bytes], mounts: list[Mount]) -> None:
        """`mounts`: those that this process sees."""
        self._mounts = mounts
        self._tops: list[tuple[bytes, bytes, bytes]] = []
        """(additional root, device, path in the file system) of each base."""
        for root, base in bases.items():
            real = os.path.realpath(base)
            mount = mount_of(real, mounts)
            path = None if mount is None else path_in(mount, real)
            if mount is not None and path is not None:
                self._tops.append((root, mount.device, path))
        self.devices = frozenset(device for _, device, _ in self._tops)
        """As the table of mounts names them: `8:1`."""
        self.numbers = frozenset(os.stat(base).st_dev for base in bases.values())
        """As `stat` returns them; those of btrfs are different from `devices`."""

    def directory_of(self, device: bytes, path: bytes) -> bytes | None:
        """Return the directory of a file as the stat cache names it; None for a file outside of the environment."""
        for root, own, top in self._tops:
            below = _below(path, top) if own == device else None
            if below:
                if not root and below.startswith(DOT_GIT + b"/"):
                    # A capture's own files are open there.
                    return None
                above = below.rpartition(b"/")[0]
                name = ROOT_PREFIX + root if root else b""
                return join(name, above) if above else name
        return None

    def is_apart(self, mount: Mount) -> bool:
        """Return whether a mount shows no directory of the environment."""
        return not any(own == mount.device and _touch(mount.root, top) for _, own, top in self._tops)

    def is_at(self, device: bytes, path: bytes, inode: int, number: int | None = None) -> bool:
        """Return whether a path in a file system is a file with this inode, as far as this process sees it.

        `number`: the device as `stat` returns it, if it is known.
        """
        for mount in self._mounts:
            below = _below(path, mount.root) if mount.device == device else None
            if below is None:
                continue
            full = _joined(mount.point, below)
            if mount_of(full, self._mounts) is mount:
                try:
                    seen = os.lstat(full)
                except OSError:
                    continue
                if seen.st_ino == inode and number in {None, seen.st_dev}:
                    return True
        return False

    def may_be_upper(self, mounts: Iterable[Mount]) -> bool:
        """Return whether an overlay among some mounts may write into the environment.

        A store through a mapping of an overlay's file changes its upper directory, and /proc names only the overlay.
        """
        return any(mount.file_system == OVERLAY and self._has_upper(mount, mounts) for mount in mounts)

    def _has_upper(self, mount: Mount, mounts: Iterable[Mount]) -> bool:
        upper = _upper_directory(mount)
        if not upper.startswith(b"/"):
            # Without an upper directory it is read-only; a relative one can be anywhere.
            return bool(upper)
        try:
            os.lstat(upper)
        except PermissionError:
            # Not below a directory that a capture by this user reads.
            return False
        except OSError:
            # The overlay that a container begins with was made by another namespace, from its paths.
            return mount.point != b"/"
        real = os.path.realpath(upper)
        return any(self._may_hold(one, real) for table in (self._mounts, mounts) for one in table)

    def _may_hold(self, mount: Mount, path: bytes) -> bool:
        inside = path_in(mount, path) if mount.device in self.devices else None
        return inside is not None and any(
            own == mount.device and _touch(inside, top) for _, own, top in self._tops
        )


def path_in(mount: Mount, path: bytes) -> bytes | None:
    """Return the path of a file in the file system of a mount; None if it is not below the mount."""
    below = _below(path, mount.point)
    return None if below is None else _joined(mount.root, below)


def _upper_directory(mount: Mount) -> bytes:
    for options in mount.options:
        for option in options.split(b","):
            if option.startswith(UPPER):
                return ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), option[len(UPPER) :])
    return b""


def _touch(one: bytes, other: bytes) -> bool:
    return _below(one, other) is not None or _below(other, one) is not None


def _below(path: bytes, top: bytes) -> bytes | None:
    """Return the part of a path below a directory: empty for the directory itself, None if it is elsewhere."""
    if path == top:
        return b""
    prefix = top.rstrip(b"/") + b"/"
    return path[len(prefix) :] if path.startswith(prefix) else None


def _joined(top: bytes, below: bytes) -> bytes:
    return top.rstrip(b"/") + b"/" + below if below else top
