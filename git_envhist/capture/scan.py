"""Looks at directories: which are as they were, and what stands in the others.

Measured: comparing a directory with its record through one run of `lstat` in C takes a quarter of the time that a
loop over `scandir` takes; tests/benchmarks/scan.py measures it again. The records come from the cache; a directory
whose entries and whose own time stamps are unchanged is not listed at all.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping

from git_envhist.capture.descent import DOT_GIT, Descent, is_realm_top, join
from git_envhist.capture.reading import grain, unreadable
from git_envhist.capture.records import (
    COLUMNS,
    CTIME,
    INCOMPLETE,
    MTIME,
    NO_ID,
    Record,
    pack_columns,
    stat_columns,
)
from git_envhist.model import WhyMissing
from git_envhist.values import dataclass, field

Ignored = Callable[[bytes, bytes, bool], bool]
"""(directory, name, is a directory) -> whether it is not part of the environment."""

MAX_DEPTH = 1000


@dataclass(slots=True, eq=False)
class Leaf:
    """One entry that is not a directory, on its way into a record."""

    name: bytes
    row: tuple[int, ...]
    stat: os.stat_result | None = None
    """Only while it is still to be read."""
    oid: bytes = b""
    extras: bytes = b""
    pieces: bytes = b""
    """The tree of its pieces, where it is big."""
    grows: bool = False
    """It is appended to while it is read: what was there at first is all that counts."""


@dataclass(slots=True)
class Visit:
    """What stands in one directory now; `unread` are the leaves whose bytes are not known yet."""

    path: bytes
    own: os.stat_result
    leaves: list[Leaf] = field(default_factory=list)
    unread: list[Leaf] = field(default_factory=list)
    subdirectories: list[bytes] = field(default_factory=list)
    boundaries: list[bytes] = field(default_factory=list)
    units: list[tuple[Leaf, list[Leaf]]] = field(default_factory=list)
    """Databases with their sidecars, to be read while they are held still."""
    missing: list[tuple[bytes, str, str]] = field(default_factory=list)
    """(name, why, detail)."""
    young: bool = False
    """It changed within the clock's grain of our look: not to be trusted next time."""

    @property
    def pending(self) -> list[Leaf]:
        """All that is still to be read."""
        members = [leaf for database, sidecars in self.units for leaf in (database, *sidecars)]
        return [*self.unread, *(leaf for leaf in members if leaf.stat is not None)]

    def miss(self, name: bytes, why: WhyMissing, detail: str) -> None:
        self.missing.append((name, why.value, detail))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a scan does not enter: (directory, name) -> why; None for what is no part of the environment at all."""

    pruned: Mapping[bytes, str | None] = field(default_factory=dict)
    cross_mounts: bool = False
    mounts_known: bool = True
    """Whether `pruned` holds the mount points; else a change of device tells them."""
    known: Mapping[tuple[int, int], str | None] = field(default_factory=dict)
    """The same for directories that may be met under any name: (device, number) -> why."""


class LeftOut(FileNotFoundError):
    """A directory that is no part of the environment, met under a name that did not tell."""


class Scanner:
    """Looks at the directories of an environment, one at a time."""

    def __init__(self, descent: Descent, ignored: Ignored | None, limits: Limits, started_ns: int) -> None:
        self._descent = descent
        self._ignored = ignored
        self._limits = limits
        self._started_ns = started_ns
        self._parents = {path.rpartition(b"/")[0] for path in limits.pruned}

    def is_unchanged(self, record: Record) -> bool:
        """Whether a directory is, entry by entry, as its record says."""
        try:
            own = self._descent.enter(record.path)
            return (
                own.st_ctime_ns == record.ctime_ns
                and own.st_mtime_ns == record.mtime_ns
                and own.st_ino == record.inode
                and own.st_dev == record.device
                and not record.flags & INCOMPLETE
                and stat_columns(record.names) == record.columns
            )
        except OSError:
            return False

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

    def visit(self, path: bytes, old: Record | None) -> Visit:
        """List a directory; what `old` knows of unchanged entries is taken over, the rest is left to be read.

        OSError where it cannot be entered or listed.
        """
        own = self._descent.enter(path)
        if (own.st_dev, own.st_ino) in self._limits.known and not is_realm_top(path):
            raise LeftOut
        names = sorted(os.listdir(b"."))
        visit = Visit(path, own)
        visit.young = not _is_settled(own.st_ctime_ns, own.st_mtime_ns, self._started_ns)
        # What is known of an entry says where its owner differs from the directory's: with another it says nothing.
        known = _Known(old if old is not None and (old.uid, old.gid) == (own.st_uid, own.st_gid) else None)
        pruned = self._limits.pruned if path in self._parents else {}
        for name in names:
            self._look_at(visit, name, known, pruned)
        return visit

    def _look_at(self, visit: Visit, name: bytes, known: _Known, pruned: Mapping[bytes, str | None]) -> None:
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

    def _is_mount(self, visit: Visit, seen: os.stat_result) -> bool:
        limits = self._limits
        return not limits.mounts_known and not limits.cross_mounts and seen.st_dev != visit.own.st_dev

    def _stop_at(self, visit: Visit, name: bytes, why: str | None) -> None:
        if self._ignored is not None and self._ignored(visit.path, name, True):
            return
        if why == WhyMissing.MOUNT.value:
            visit.miss(name, WhyMissing.MOUNT, "another file system is mounted here")
        elif why is not None:
            visit.boundaries.append(name)

    def _go_into(self, visit: Visit, name: bytes, seen: os.stat_result) -> None:
        if (seen.st_dev, seen.st_ino) in self._limits.known:
            self._stop_at(visit, name, self._limits.known[seen.st_dev, seen.st_ino])
        elif self._is_mount(visit, seen):
            self._stop_at(visit, name, WhyMissing.MOUNT.value)
        elif visit.path.count(b"/") >= MAX_DEPTH:
            visit.miss(name, WhyMissing.TOO_DEEP, f"more than {MAX_DEPTH} directories deep")
        else:
            visit.subdirectories.append(name)


class _Known:
    """What the record of a directory knows of its entries."""

    def __init__(self, old: Record | None) -> None:
        self._old = old
        self._rows: dict[bytes, int] = {}
        self._cells = old.cells if old else None
        self._width = len(old.ids) // len(old.names) if old and old.names else 0
        if old:
            self._rows = {name: index for index, name in enumerate(old.names)}

    def leaf(self, visit: Visit, name: bytes, seen: os.stat_result) -> Leaf:
        row = COLUMNS(seen)
        index = self._rows.get(name)
        if index is not None and self._cells is not None and self._old is not None:
            start = index * len(row)
            if tuple(self._cells[start : start + len(row)]) == row:
                oid = self._old.id_at(index, self._width)
                extras, pieces = self._old.extras.get(index, b""), self._old.pieces.get(index, b"")
                return Leaf(name, row, None, oid, extras, pieces)
        leaf = Leaf(name, row, seen)
        visit.unread.append(leaf)
        return leaf


def finish(visit: Visit, started_ns: int, width: int, own_extras: bytes) -> Record:
    """The record of a visited directory once all of its leaves are read."""
    rows = [_settled(leaf.row, started_ns) for leaf in visit.leaves]
    own = visit.own
    record = Record(
        visit.path,
        ctime_ns=0 if visit.young else own.st_ctime_ns,
        mtime_ns=own.st_mtime_ns,
        inode=own.st_ino,
        device=own.st_dev,
        mode=own.st_mode,
        uid=own.st_uid,
        gid=own.st_gid,
        flags=INCOMPLETE if visit.missing else 0,
        names=[leaf.name for leaf in visit.leaves],
        columns=pack_columns(rows),
        ids=b"".join(leaf.oid or NO_ID[:width] for leaf in visit.leaves),
        subdirectories=visit.subdirectories,
        boundaries=visit.boundaries,
    )
    record.extras = {index: leaf.extras for index, leaf in enumerate(visit.leaves) if leaf.extras}
    record.pieces = {index: leaf.pieces for index, leaf in enumerate(visit.leaves) if leaf.pieces}
    if own_extras:
        record.extras[-1] = own_extras
    return record


def _is_settled(ctime_ns: int, mtime_ns: int, started_ns: int) -> bool:
    return ctime_ns + grain(ctime_ns) < started_ns and mtime_ns + grain(mtime_ns) < started_ns


def _settled(row: tuple[int, ...], started_ns: int) -> tuple[int, ...]:
    # An entry as young as the capture can change once more and keep its time stamps: a change time of zero never
    # matches, so that it is read afresh next time.
    return row if _is_settled(row[CTIME], row[MTIME], started_ns) else (0, *row[1:])


def _leads_to_repository(name: bytes) -> bool:
    """Whether a name at the top is what git calls `.git`; where case is folded it may be spelled otherwise."""
    if name.lower() != DOT_GIT:
        return False
    try:
        return name == DOT_GIT or os.path.samestat(os.lstat(name), os.lstat(DOT_GIT))
    except OSError:
        return False


def walk(
    descent: Descent, tops: Iterable[bytes], scanner_limits: Limits, ignored: Ignored | None
) -> list[bytes]:
    """Every directory at and below some, in the order of their paths, by type alone and without a stat."""
    found: list[bytes] = []
    stack = sorted(tops, reverse=True)
    while stack:
        path = stack.pop()
        found.append(path)
        stack.extend(sorted(_directories(descent, path, scanner_limits, ignored), reverse=True))
    return found


def _directories(descent: Descent, path: bytes, limits: Limits, ignored: Ignored | None) -> list[bytes]:
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
    except OSError:
        pass  # the visit of this directory will meet the same and say so
    return found
