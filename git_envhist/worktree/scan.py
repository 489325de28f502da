"""List directories and combine the result with their records in the stat cache.

`Scanner.visit` lists one directory; `walk` and `walk_breadth_first` find directories. A `ScannedDirectory` collects
entries, paths that cannot be read, and databases; `build_record` turns it into a record. Unchanged
directories are found before by `stat_cache.differing_records` and are not listed.
"""

from __future__ import annotations

import errno
import os
import stat
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from git_envhist.lazy import dataclass, field, replace
from git_envhist.model import MissingReason
from git_envhist.paths import DOT_GIT, DirectoryCursor, is_root_top, join, path_below_root, root_name_of
from git_envhist.platform import SYSTEM
from git_envhist.worktree.read_file import is_gone, timestamp_granularity, unreadable
from git_envhist.worktree.stat_cache import (
    CELL,
    COLUMNS,
    CTIME,
    INCOMPLETE,
    MTIME,
    NO_ID,
    WIDTH,
    DirectoryRecord,
    differing,
    pack_rows,
    stat_columns,
)

# Entering directories by name on systems without fchdir or O_NOFOLLOW.
# A name can lead elsewhere between two calls, so the identity before and after each step is compared. A
# directory that was replaced by a link meanwhile is an error, and nothing in it is read.

Identity = tuple[int, int]


def open_cursor(bases: Mapping[bytes, bytes]) -> DirectoryCursor:
    """Return the cursor that this system supports."""
    return DirectoryCursor(bases) if SYSTEM.fchdir and SYSTEM.nofollow else PathDirectoryCursor(bases)


class PathDirectoryCursor(DirectoryCursor):
    """Enter directories one name at a time and compare their identities."""

    def __init__(self, bases: Mapping[bytes, bytes]) -> None:
        super().__init__(bases)
        self._seen: list[Identity] = []

    def enter(self, path: bytes) -> os.stat_result:
        """Enter a directory and return its stat. Raise OSError if it is gone, unreadable, or no directory."""
        wanted = path_below_root(path).split(b"/") if path_below_root(path) else []
        try:
            if root_name_of(path) != self._root or not self._is_at_expected() or not self._climb(wanted):
                self._start(root_name_of(path))
            for name in wanted[len(self._names) :]:
                self._go_down(name)
        except OSError:
            # The current directory is unknown now; start from the top next time.
            self.close()
            raise
        return os.stat(b".")

    def close(self) -> None:
        self._names, self._seen, self._root = [], [], None

    def _start(self, root: bytes) -> None:
        self.close()
        os.chdir(self._base(root))
        self._seen.append(identity_of(os.stat(b".")))
        self._root = root

    def _is_at_expected(self) -> bool:
        # Another worker in the same process may have changed the current directory.
        return identity_of(os.stat(b".")) == self._seen[-1]

    def _climb(self, wanted: list[bytes]) -> bool:
        while self._names != wanted[: len(self._names)]:
            os.chdir(b"..")
            self._names.pop()
            self._seen.pop()
            # A directory that was moved has another parent.
            if not self._is_at_expected():
                return False
        return True

    def _go_down(self, name: bytes) -> None:
        before = os.lstat(name)
        if not stat.S_ISDIR(before.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        os.chdir(name)
        if identity_of(os.stat(b".")) != identity_of(before):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        self._names.append(name)
        self._seen.append(identity_of(before))


def identity_of(seen: os.stat_result) -> Identity:
    return seen.st_dev, seen.st_ino


# Entries of a scanned directory, and the record made from them.
# If few of thousands of entries changed, the old record is kept and only the changed entries are replaced in
# it. `leaves` converts it to a list of entries when a caller needs them all.

ROW = CELL * WIDTH


@dataclass(slots=True, eq=False)
class ScannedEntry:
    """An entry that is not a directory."""

    name: bytes
    row: tuple[int, ...]
    is_pending: bool = False
    """True while its content still has to be read. (A whole stat result would take 580 bytes per entry.)"""
    oid: bytes = b""
    extras: bytes = b""
    pieces: bytes = b""
    """The chunk tree of a big file."""
    secret: bool | None = None
    """True if the name is secret; None if not determined."""
    is_append_only: bool = False
    """True if the file is only appended to: the bytes at the start of the read are a consistent state."""


class ScannedDirectory:
    """A scanned directory; `unread` are the entries that still have to be read."""

    __slots__ = (
        "_leaves",
        "boundaries",
        "changed_entries",
        "databases",
        "is_young",
        "missing",
        "old_record",
        "own_stat",
        "path",
        "subdirectories",
        "unread",
    )

    def __init__(self, path: bytes, own_stat: os.stat_result, *, is_young: bool = False) -> None:
        self.path = path
        self.own_stat = own_stat
        self.is_young = is_young
        """It changed within the clock granularity, so its time stamps cannot be trusted in the next capture."""
        self.unread: list[ScannedEntry] = []
        self.subdirectories: list[bytes] = []
        self.boundaries: list[bytes] = []
        self.databases: list[tuple[ScannedEntry, list[ScannedEntry]]] = []
        """Databases with their sidecars, to be read together under locks."""
        self.missing: list[tuple[bytes, str, str]] = []
        """(name, reason, detail)."""
        self.old_record: DirectoryRecord | None = None
        """The old record, valid except for the entries in `changed_entries`."""
        self.changed_entries: dict[int, ScannedEntry] = {}
        self._leaves: list[ScannedEntry] = []

    @property
    def leaves(self) -> list[ScannedEntry]:
        """Return all entries that are not directories."""
        if self.old_record is not None:
            self._leaves = [
                self.changed_entries.get(number) or leaf
                for number, leaf in enumerate(_entries_of(self.old_record))
            ]
            self.old_record = None
        return self._leaves

    @leaves.setter
    def leaves(self, leaves: list[ScannedEntry]) -> None:
        self.old_record = None
        self._leaves = leaves

    @property
    def names(self) -> list[bytes]:
        """Return the names of all entries that are not directories."""
        return self.old_record.names if self.old_record is not None else [leaf.name for leaf in self._leaves]

    def names_end_with(self, tails: Iterable[bytes]) -> bool:
        """Return whether the name of any entry ends with one of these."""
        joined = b"\0".join(self.names) + b"\0"
        return any(tail + b"\0" in joined for tail in tails)

    def drop(self, leaves: Iterable[ScannedEntry]) -> None:
        """Remove entries that are gone or cannot be read."""
        # A set keeps this linear.
        gone = set(leaves)
        if gone:
            self.leaves = [leaf for leaf in self.leaves if leaf not in gone]

    def settle(self, results: Iterable[tuple[Any, ...]]) -> None:
        """Store results of entries read by other workers: (name, row or None, id, extras, pieces, missing)."""
        leaves = {leaf.name: leaf for leaf in self.unread}
        lost = []
        for name, row, oid, extras, pieces, missing in results:
            leaf = leaves.pop(name)
            self.missing.extend(missing)
            if row is None:
                lost.append(leaf)
            else:
                leaf.row, leaf.oid, leaf.extras, leaf.pieces = tuple(row), oid, extras, pieces
        self.unread = list(leaves.values())
        self.drop(lost)

    @property
    def pending(self) -> list[ScannedEntry]:
        """Return all entries that still have to be read."""
        members = [leaf for database, sidecars in self.databases for leaf in (database, *sidecars)]
        return [*self.unread, *(leaf for leaf in members if leaf.is_pending)]

    def report_missing(self, name: bytes, why: MissingReason, detail: str) -> None:
        self.missing.append((name, why.value, detail))

    def report_error(self, error: OSError, name: bytes) -> None:
        """Report a path that cannot be read because of an error; nothing if it is gone."""
        if not is_gone(error):
            reason = unreadable(error)
            self.report_missing(name, reason.why, reason.detail)


def leaf_of(record: DirectoryRecord, number: int) -> ScannedEntry:
    """Return an entry as its record has it."""
    row = tuple(array("q", record.columns[number * ROW : (number + 1) * ROW]))
    if number in record.times:
        row = (*row[:MTIME], record.times[number], *row[MTIME + 1 :])
    oid = record.id_at(number, id_width(record))
    return ScannedEntry(
        record.names[number], row, False, oid, record.extras.get(number, b""), record.pieces.get(number, b"")
    )


def id_width(record: DirectoryRecord) -> int:
    """Return the length of the ids in a record."""
    return len(record.ids) // len(record.names) if record.names else 0


def _entries_of(record: DirectoryRecord) -> Iterable[ScannedEntry]:
    return (leaf_of(record, number) for number in range(len(record.names)))


def build_record(
    visit: ScannedDirectory, started_ns: int, width: int, extras_of_directory: bytes
) -> DirectoryRecord:
    """Return the record of a scanned directory after all entries were read."""
    own_stat = visit.own_stat
    record = (
        _from_leaves(visit, started_ns, width)
        if visit.old_record is None
        else _carried_over(visit.old_record, visit.changed_entries, started_ns, width)
    )
    record.ctime_ns = 0 if visit.is_young else own_stat.st_ctime_ns
    record.mtime_ns, record.inode, record.device = own_stat.st_mtime_ns, own_stat.st_ino, own_stat.st_dev
    record.mode, record.uid, record.gid = own_stat.st_mode, own_stat.st_uid, own_stat.st_gid
    record.flags = INCOMPLETE if visit.missing else 0
    record.subdirectories, record.boundaries = visit.subdirectories, visit.boundaries
    record.extras.pop(-1, None)
    if extras_of_directory:
        record.extras[-1] = extras_of_directory
    return record


def _from_leaves(visit: ScannedDirectory, started_ns: int, width: int) -> DirectoryRecord:
    leaves = visit.leaves
    record = DirectoryRecord(visit.path, names=[leaf.name for leaf in leaves])
    record.columns, record.times = pack_rows([_with_trusted_times(leaf.row, started_ns) for leaf in leaves])
    record.ids = b"".join(leaf.oid or NO_ID[:width] for leaf in leaves)
    record.extras = {index: leaf.extras for index, leaf in enumerate(leaves) if leaf.extras}
    record.pieces = {index: leaf.pieces for index, leaf in enumerate(leaves) if leaf.pieces}
    return record


def _carried_over(
    old_record: DirectoryRecord, changed_entries: dict[int, ScannedEntry], started_ns: int, width: int
) -> DirectoryRecord:
    columns, ids = bytearray(old_record.columns), bytearray(old_record.ids)
    extras, pieces, times = dict(old_record.extras), dict(old_record.pieces), dict(old_record.times)
    for index, leaf in changed_entries.items():
        columns[index * ROW : (index + 1) * ROW], wide = pack_rows(
            [_with_trusted_times(leaf.row, started_ns)]
        )
        ids[index * width : (index + 1) * width] = leaf.oid or NO_ID[:width]
        for kept, value in ((extras, leaf.extras), (pieces, leaf.pieces)):
            kept.pop(index, None)
            if value:
                kept[index] = value
        times.pop(index, None)
        if wide:
            times[index] = wide[0]
    return replace(
        old_record,
        columns=bytes(columns),
        ids=bytes(ids),
        extras=extras,
        pieces=pieces,
        times=times,
        below=b"",
    )


def is_settled(ctime_ns: int, mtime_ns: int, started_ns: int) -> bool:
    """Return whether any later change would change the time stamps."""
    return (
        ctime_ns + timestamp_granularity(ctime_ns) < started_ns
        and mtime_ns + timestamp_granularity(mtime_ns) < started_ns
    )


def _with_trusted_times(row: tuple[int, ...], started_ns: int) -> tuple[int, ...]:
    # An entry as young as the capture can change without changing its time stamps. A change time of zero
    # never matches, so the next capture reads it.
    return row if is_settled(row[CTIME], row[MTIME], started_ns) else (0, *row[1:])


Ignored = Callable[[bytes, bytes, bool], bool]
"""(directory, name, is a directory) -> whether it is excluded."""

MAX_DEPTH = 1000
LARGE = 128
"""From this number of entries on, a directory is first compared with its record as a whole."""


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """Directories that a scan does not enter, by path -> reason; None for those outside the environment."""

    pruned: Mapping[bytes, str | None] = field(default_factory=dict)
    cross_mounts: bool = False
    mounts_known: bool = True
    """True if `pruned` contains all mount points; otherwise a changed device number reveals them."""
    known: Mapping[tuple[int, int], str | None] = field(default_factory=dict)
    """The same by identity: (device, inode) -> reason."""


class ExcludedPath(FileNotFoundError):
    """A directory outside the environment, reached under an unexpected name."""


class Scanner:
    """List the directories of an environment, one at a time."""

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
        """Return whether a directory or one of its parents is excluded."""
        while not is_root_top(path):
            above, _, name = path.rpartition(b"/")
            if path in self._limits.pruned or (
                self._ignored is not None and self._ignored(above, name, True)
            ):
                return True
            path = above
        return False

    def missing_reason(self, path: bytes) -> str:
        """Return "mounted" if a file system is mounted on a directory that cannot be visited, else "gone"."""
        above = path.rpartition(b"/")[0]
        try:
            is_mount = self._is_other_device(path, self._descent.enter(path).st_dev)
            return (
                "mounted" if is_mount and not self._is_other_device(above, os.stat(b"..").st_dev) else "gone"
            )
        except OSError:
            return "gone"

    def _is_other_device(self, path: bytes, device: int) -> bool:
        """Return whether a directory is on another file system than its root, if mount points are not known."""
        if self._limits.mounts_known or self._limits.cross_mounts:
            return False
        root = root_name_of(path)
        if root not in self._devices:
            self._devices[root] = self._descent.base(root).st_dev
        return device != self._devices[root]

    def visit(
        self, path: bytes, old: DirectoryRecord | None, changed: frozenset[bytes] | None = None
    ) -> ScannedDirectory:
        """List a directory; keep what `old` has about unchanged entries and mark the others to be read.

        With `changed`, only these names of a large directory are examined if its set of names is the same.
        Raise OSError if the directory cannot be entered or listed.
        """
        own_stat = self._descent.enter(path)
        if not is_root_top(path) and (
            (own_stat.st_dev, own_stat.st_ino) in self._limits.known
            or self._is_other_device(path, own_stat.st_dev)
        ):
            raise ExcludedPath
        names = os.listdir(b".")
        visit = ScannedDirectory(path, own_stat)
        visit.is_young = not is_settled(own_stat.st_ctime_ns, own_stat.st_mtime_ns, self._started_ns)
        # Extras record owners relative to the directory's owner, so a new owner makes them useless.
        if old is not None and (old.uid, old.gid) != (own_stat.st_uid, own_stat.st_gid):
            old = None
        if (
            old is not None
            and len(names) >= LARGE
            and self._keep_record_if_similar(visit, old, names, changed)
        ):
            return visit
        known = _KnownEntries(old)
        pruned = self._limits.pruned if path in self._parents else {}
        for name in sorted(names):
            self._scan_entry(visit, name, known, pruned)
        return visit

    def _keep_record_if_similar(
        self,
        visit: ScannedDirectory,
        old: DirectoryRecord,
        names: list[bytes],
        changed: frozenset[bytes] | None,
    ) -> bool:
        """Return whether the directory has the names and types of its record; note changed entries in
        `visit`."""
        if self._ignored is not None or visit.path in self._parents or old.boundaries or not visit.path:
            return False
        if set(names) != {*old.names, *old.subdirectories}:
            return False
        try:
            below = list(map(os.lstat, old.subdirectories))
            changed_entries = {number: os.lstat(old.names[number]) for number in _differing(old, changed)}
        except OSError:
            return False
        if any(not stat.S_ISDIR(seen.st_mode) or self._is_mount(visit, seen) for seen in below):
            return False
        if any((seen.st_dev, seen.st_ino) in self._limits.known for seen in below):
            return False
        if any(
            stat.S_ISDIR(seen.st_mode) or self._is_mount(visit, seen) for seen in changed_entries.values()
        ):
            return False
        visit.subdirectories, visit.old_record = old.subdirectories, old
        visit.changed_entries = {
            number: ScannedEntry(old.names[number], COLUMNS(seen), True)
            for number, seen in changed_entries.items()
        }
        visit.unread = list(visit.changed_entries.values())
        return True

    def _scan_entry(
        self, visit: ScannedDirectory, name: bytes, known: _KnownEntries, pruned: Mapping[bytes, str | None]
    ) -> None:
        if not visit.path and _leads_to_repository(name):
            return  # the repository of the history is not part of the environment
        if pruned and join(visit.path, name) in pruned:
            # Do not even call stat: it may hang on a mount.
            self._note_not_entered(visit, name, pruned[join(visit.path, name)])
            return
        try:
            seen = os.lstat(name)
        except FileNotFoundError:
            return
        except OSError as error:
            reason = unreadable(error)
            visit.report_missing(name, reason.why, reason.detail)
            return
        is_directory = stat.S_ISDIR(seen.st_mode)
        if self._ignored is not None and self._ignored(visit.path, name, is_directory):
            return
        if is_directory:
            self._add_subdirectory(visit, name, seen)
        else:
            visit.leaves.append(known.leaf(visit, name, seen))

    def _is_mount(self, visit: ScannedDirectory, seen: os.stat_result) -> bool:
        limits = self._limits
        return not limits.mounts_known and not limits.cross_mounts and seen.st_dev != visit.own_stat.st_dev

    def _note_not_entered(self, visit: ScannedDirectory, name: bytes, why: str | None) -> None:
        if self._ignored is not None and self._ignored(visit.path, name, True):
            return
        if why == MissingReason.MOUNT.value:
            visit.report_missing(name, MissingReason.MOUNT, "another file system is mounted here")
        elif why is not None:
            visit.boundaries.append(name)

    def _add_subdirectory(self, visit: ScannedDirectory, name: bytes, seen: os.stat_result) -> None:
        if (seen.st_dev, seen.st_ino) in self._limits.known:
            self._note_not_entered(visit, name, self._limits.known[seen.st_dev, seen.st_ino])
        elif self._is_mount(visit, seen):
            self._note_not_entered(visit, name, MissingReason.MOUNT.value)
        elif visit.path.count(b"/") >= MAX_DEPTH:
            visit.report_missing(name, MissingReason.TOO_DEEP, f"more than {MAX_DEPTH} directories deep")
        else:
            visit.subdirectories.append(name)


def _differing(old: DirectoryRecord, changed: frozenset[bytes] | None) -> list[int]:
    """Return the indexes of entries that differ from the record, by stat or because they are in `changed`."""
    if changed is None:
        return differing(old.columns, stat_columns(old.names), ROW)
    return [number for number, name in enumerate(old.names) if name in changed]


class _KnownEntries:
    """Entries of an old record by name."""

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
    """Return whether a name in the top directory is `.git`, also in another case if the file system ignores
    case."""
    if name.lower() != DOT_GIT:
        return False
    try:
        return name == DOT_GIT or os.path.samestat(os.lstat(name), os.lstat(DOT_GIT))
    except OSError:
        return False


Unlisted = dict[bytes, int]
"""Directories that could not be listed -> errno."""


def walk(
    descent: DirectoryCursor,
    tops: Iterable[bytes],
    limits: ScanLimits,
    ignored: Ignored | None,
    unlisted: Unlisted,
) -> list[bytes]:
    """Return all directories at and below `tops`, ordered by path, without calling stat."""
    found: list[bytes] = []
    stack = sorted(tops, reverse=True)
    while stack:
        path = stack.pop()
        found.append(path)
        stack.extend(sorted(_directories(descent, path, limits, ignored, unlisted), reverse=True))
    return found


def walk_breadth_first(
    descent: DirectoryCursor,
    tops: Iterable[bytes],
    enough: int,
    limits: ScanLimits,
    ignored: Ignored | None,
    unlisted: Unlisted,
) -> tuple[list[bytes], list[bytes]]:
    """Walk breadth-first until `enough` directories are waiting; return the walked and the waiting ones."""
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
        own_stat = descent.enter(path)
        with os.scandir(b".") as listing:
            for item in listing:
                name, below = item.name, join(path, item.name)
                # Test before is_dir, which may call stat, which may hang on a mount.
                if (not path and _leads_to_repository(name)) or below in limits.pruned:
                    continue
                if not item.is_dir(follow_symlinks=False):
                    continue
                if ignored is not None and ignored(path, name, True):
                    continue
                if path.count(b"/") >= MAX_DEPTH:
                    continue
                if (
                    not limits.mounts_known
                    and not limits.cross_mounts
                    and item.stat().st_dev != own_stat.st_dev
                ):
                    continue
                found.append(below)
    except OSError as error:
        # The visit may still succeed, and would name subdirectories that are never walked.
        if not is_gone(error):
            unlisted[path] = error.errno or errno.EIO
    return found
