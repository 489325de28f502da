"""Looks into directories: what stands in them, and what their records know of it.

Which directories are as they were is told before, by `check`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from git_envhist.capture.descent import DOT_GIT, DirectoryCursor, is_realm_top, join, root_name_of
from git_envhist.capture.reading import is_gone, unreadable
from git_envhist.capture.records import COLUMNS, DirectoryRecord, differing, stat_columns
from git_envhist.capture.visits import ROW, ScannedDirectory, ScannedEntry, is_settled, leaf_of
from git_envhist.model import MissingReason
from git_envhist.values import dataclass, field

Ignored = Callable[[bytes, bytes, bool], bool]
"""(directory, name, is a directory) -> whether it is not part of the environment."""

MAX_DEPTH = 1000
LARGE = 128
"""From here on a directory is first compared with its record as a whole: of its many entries few will differ."""


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """What a scan does not enter: (directory, name) -> why; None for what is no part of the environment at all."""

    pruned: Mapping[bytes, str | None] = field(default_factory=dict)
    cross_mounts: bool = False
    mounts_known: bool = True
    """Whether `pruned` holds the mount points; else a change of device tells them."""
    known: Mapping[tuple[int, int], str | None] = field(default_factory=dict)
    """The same for directories that may be met under any name: (device, number) -> why."""


class ExcludedPath(FileNotFoundError):
    """A directory that is no part of the environment, met under a name that did not tell."""


class Scanner:
    """Looks at the directories of an environment, one at a time."""

    def __init__(
        self, descent: DirectoryCursor, ignored: Ignored | None, limits: ScanLimits, started_ns: int
    ) -> None:
        self._descent = descent
        self._ignored = ignored
        self._limits = limits
        self._started_ns = started_ns
        self._parents = {path.rpartition(b"/")[0] for path in limits.pruned}
        self._devices: dict[bytes, int] = {}

    def is_left_out(self, path: bytes) -> bool:
        """Whether a directory is no part of the environment, by itself or by one that it stands in."""
        while not is_realm_top(path):
            above, _, name = path.rpartition(b"/")
            if path in self._limits.pruned or (
                self._ignored is not None and self._ignored(above, name, True)
            ):
                return True
            path = above
        return False

    def why_gone(self, path: bytes) -> str:
        """Of a directory that is not to be had: "mounted" where another file system has come to stand there."""
        above = path.rpartition(b"/")[0]
        try:
            is_mount = self._is_elsewhere(path, self._descent.enter(path).st_dev)
            return "mounted" if is_mount and not self._is_elsewhere(above, os.stat(b"..").st_dev) else "gone"
        except OSError:
            return "gone"

    def _is_elsewhere(self, path: bytes, device: int) -> bool:
        """Whether a directory is on another file system than the top, where nobody told of mounts before."""
        if self._limits.mounts_known or self._limits.cross_mounts:
            return False
        realm = root_name_of(path)
        if realm not in self._devices:
            self._devices[realm] = self._descent.base(realm).st_dev
        return device != self._devices[realm]

    def visit(
        self, path: bytes, old: DirectoryRecord | None, changed: frozenset[bytes] | None = None
    ) -> ScannedDirectory:
        """List a directory; what `old` knows of unchanged entries is taken over, the rest is left to be read.

        `changed`: in a large one with the names that it had only these are looked at.
        OSError where it cannot be entered or listed.
        """
        own = self._descent.enter(path)
        if not is_realm_top(path) and (
            (own.st_dev, own.st_ino) in self._limits.known or self._is_elsewhere(path, own.st_dev)
        ):
            raise ExcludedPath
        names = os.listdir(b".")
        visit = ScannedDirectory(path, own)
        visit.young = not is_settled(own.st_ctime_ns, own.st_mtime_ns, self._started_ns)
        # What is known of an entry says where its owner differs from the directory's: with another it says nothing.
        if old is not None and (old.uid, old.gid) != (own.st_uid, own.st_gid):
            old = None
        if old is not None and len(names) >= LARGE and self._is_like(visit, old, names, changed):
            return visit
        known = _KnownEntries(old)
        pruned = self._limits.pruned if path in self._parents else {}
        for name in sorted(names):
            self._look_at(visit, name, known, pruned)
        return visit

    def _is_like(
        self,
        visit: ScannedDirectory,
        old: DirectoryRecord,
        names: list[bytes],
        changed: frozenset[bytes] | None,
    ) -> bool:
        """Whether the directory has the entries that its record names, of the kinds they had; what differs is noted."""
        if self._ignored is not None or visit.path in self._parents or old.boundaries or not visit.path:
            return False
        if set(names) != {*old.names, *old.subdirectories}:
            return False
        try:
            below = list(map(os.lstat, old.subdirectories))
            fresh = {number: os.lstat(old.names[number]) for number in _differing(old, changed)}
        except OSError:
            return False
        if any(not stat.S_ISDIR(seen.st_mode) or self._is_mount(visit, seen) for seen in below):
            return False
        if any((seen.st_dev, seen.st_ino) in self._limits.known for seen in below):
            return False
        if any(stat.S_ISDIR(seen.st_mode) or self._is_mount(visit, seen) for seen in fresh.values()):
            return False
        visit.subdirectories, visit.like = old.subdirectories, old
        visit.fresh = {
            number: ScannedEntry(old.names[number], COLUMNS(seen), True) for number, seen in fresh.items()
        }
        visit.unread = list(visit.fresh.values())
        return True

    def _look_at(
        self, visit: ScannedDirectory, name: bytes, known: _KnownEntries, pruned: Mapping[bytes, str | None]
    ) -> None:
        if not visit.path and _leads_to_repository(name):
            return  # the repository that holds the history is no part of the environment
        if pruned and join(visit.path, name) in pruned:
            # Not even asked for its stat: where a mount hangs, that would be for ever.
            self._stop_at(visit, name, pruned[join(visit.path, name)])
            return
        try:
            seen = os.lstat(name)
        except FileNotFoundError:
            return
        except OSError as error:
            reason = unreadable(error)
            visit.miss(name, reason.why, reason.detail)
            return
        is_directory = stat.S_ISDIR(seen.st_mode)
        if self._ignored is not None and self._ignored(visit.path, name, is_directory):
            return
        if is_directory:
            self._go_into(visit, name, seen)
        else:
            visit.leaves.append(known.leaf(visit, name, seen))

    def _is_mount(self, visit: ScannedDirectory, seen: os.stat_result) -> bool:
        limits = self._limits
        return not limits.mounts_known and not limits.cross_mounts and seen.st_dev != visit.own.st_dev

    def _stop_at(self, visit: ScannedDirectory, name: bytes, why: str | None) -> None:
        if self._ignored is not None and self._ignored(visit.path, name, True):
            return
        if why == MissingReason.MOUNT.value:
            visit.miss(name, MissingReason.MOUNT, "another file system is mounted here")
        elif why is not None:
            visit.boundaries.append(name)

    def _go_into(self, visit: ScannedDirectory, name: bytes, seen: os.stat_result) -> None:
        if (seen.st_dev, seen.st_ino) in self._limits.known:
            self._stop_at(visit, name, self._limits.known[seen.st_dev, seen.st_ino])
        elif self._is_mount(visit, seen):
            self._stop_at(visit, name, MissingReason.MOUNT.value)
        elif visit.path.count(b"/") >= MAX_DEPTH:
            visit.miss(name, MissingReason.TOO_DEEP, f"more than {MAX_DEPTH} directories deep")
        else:
            visit.subdirectories.append(name)


def _differing(old: DirectoryRecord, changed: frozenset[bytes] | None) -> list[int]:
    """Which entries of the current directory may differ from its record, looked at or said to be `changed`."""
    if changed is None:
        return differing(old.columns, stat_columns(old.names), ROW)
    return [number for number, name in enumerate(old.names) if name in changed]


class _KnownEntries:
    """What the record of a directory knows of its entries."""

    def __init__(self, old: DirectoryRecord | None) -> None:
        self._old = old
        self._numbers = {name: number for number, name in enumerate(old.names)} if old else {}

    def leaf(self, visit: ScannedDirectory, name: bytes, seen: os.stat_result) -> ScannedEntry:
        row = COLUMNS(seen)
        number = self._numbers.get(name)
        if number is not None and self._old is not None:
            known = leaf_of(self._old, number)
            if known.row == row:
                return known
        leaf = ScannedEntry(name, row, True)
        visit.unread.append(leaf)
        return leaf


def _leads_to_repository(name: bytes) -> bool:
    """Whether a name at the top is what git calls `.git`; where case is folded it may be spelled otherwise."""
    if name.lower() != DOT_GIT:
        return False
    try:
        return name == DOT_GIT or os.path.samestat(os.lstat(name), os.lstat(DOT_GIT))
    except OSError:
        return False


Unlisted = dict[bytes, int]
"""Directories that could not be listed, with the number of the error."""


def walk(
    descent: DirectoryCursor,
    tops: Iterable[bytes],
    limits: ScanLimits,
    ignored: Ignored | None,
    unlisted: Unlisted,
) -> list[bytes]:
    """Every directory at and below some, in the order of their paths, by type alone and without a stat."""
    found: list[bytes] = []
    stack = sorted(tops, reverse=True)
    while stack:
        path = stack.pop()
        found.append(path)
        stack.extend(sorted(_directories(descent, path, limits, ignored, unlisted), reverse=True))
    return found


def spread(
    descent: DirectoryCursor,
    tops: Iterable[bytes],
    enough: int,
    limits: ScanLimits,
    ignored: Ignored | None,
    unlisted: Unlisted,
) -> tuple[list[bytes], list[bytes]]:
    """The same level by level, until `enough` directories wait to be walked: those behind, and those that wait."""
    found: list[bytes] = []
    waiting = deque(sorted(tops))
    while waiting and len(waiting) < enough:
        path = waiting.popleft()
        found.append(path)
        waiting.extend(sorted(_directories(descent, path, limits, ignored, unlisted)))
    return found, list(waiting)


def _directories(
    descent: DirectoryCursor, path: bytes, limits: ScanLimits, ignored: Ignored | None, unlisted: Unlisted
) -> list[bytes]:
    found = []
    try:
        own = descent.enter(path)
        with os.scandir(b".") as listing:
            for item in listing:
                name, below = item.name, join(path, item.name)
                # Asked first: where the kind of an entry is told by its stat alone, a mount that hangs would hang us.
                if (not path and _leads_to_repository(name)) or below in limits.pruned:
                    continue
                if not item.is_dir(follow_symlinks=False):
                    continue
                if ignored is not None and ignored(path, name, True):
                    continue
                if path.count(b"/") >= MAX_DEPTH:
                    continue
                if not limits.mounts_known and not limits.cross_mounts and item.stat().st_dev != own.st_dev:
                    continue
                found.append(below)
    except OSError as error:
        # The visit may succeed all the same. It would name directories that are then not walked.
        if not is_gone(error):
            unlisted[path] = error.errno or errno.EIO
    return found
