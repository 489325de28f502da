"""Scan the environment with workers and store what changed in packs.

Steps: compare directories with the stat cache; walk new directories; add up what has to be read; read it;
finish the packs of all workers while the caller builds trees. Each worker reads the small files of its own
directories; large files are read last by whichever worker is free. Over the budget, files are read by size,
smallest first, so that the largest are left out; only bytes that are new count.
"""

from __future__ import annotations

import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from git_envhist.capture.capture_worker import CaptureWorker, Names, ScanTargets
from git_envhist.capture.scope import CaptureScope, is_inside_git_directory, is_stored_outside_tree
from git_envhist.capture.sealed_originals import find_sealed_sources
from git_envhist.errors import WorkingTreeGone
from git_envhist.lazy import dataclass, field
from git_envhist.model import CaptureProgress, ChangeCount, EnvPath, MissingPath, MissingReason
from git_envhist.objects.pack_writer import StagedPack
from git_envhist.paths import ROOT_PREFIX, display_path, is_root_top, join
from git_envhist.platform import core_count
from git_envhist.workers import (
    MAX_TICKETS,
    Frame,
    InlineWorker,
    Pool,
    SharedCounters,
    WorkerHandle,
    fork_worker,
    spawn_worker,
)
from git_envhist.worktree.stat_cache import (
    BELOW,
    CELL,
    INCOMPLETE,
    SIZE,
    WIDTH,
    CacheDamaged,
    CacheHeader,
    DirectoryRecord,
    DirectoryRecords,
    decode,
    differing,
    shards_of,
)

# Directories with an I/O error: they are reported as missing, not as removed.


class FailedDirectories:
    """Collect the directories of one capture that could not be read."""

    def __init__(self) -> None:
        self.unlisted: dict[bytes, int] = {}
        """Directories that could not be listed during the walk -> errno."""
        self._found: dict[bytes, MissingPath] = {}

    def note(self, path: bytes, *reason: object) -> None:
        """Add a directory that could not be examined; `reason` is (why, detail), or nothing if the directory was
        removed."""
        if reason:
            why, detail = cast(tuple[str, str], reason)
            self._found[path] = MissingPath(EnvPath(display_path(path)), MissingReason(why), detail)

    def missing(self, known: Iterable[MissingPath]) -> Iterator[MissingPath]:
        """Yield the failed directories, except those inside a directory that is already `known` to be
        missing."""
        listed = {one.path for one in known} if self._found else set()
        for path in sorted(self._found):
            above = path
            while not is_root_top(above) and display_path(above) not in listed:
                above = above.rpartition(b"/")[0]
            if display_path(above) not in listed:
                listed.add(self._found[path].path)
                yield self._found[path]


WORKER_MODULE = "git_envhist.capture.capture_worker"
MAX_WORKERS = 4
DIRECTORIES_PER_CHUNK = 24
SUBTREES_PER_WORKER = 32
"""Subtrees per worker; enough to keep all workers busy until the end."""
LARGE = 1 << 20
"""Files of at least this size (bytes) are read by any free worker, not by the one that found them."""
UNLIMITED = 1 << 62

ProgressCallback = Callable[[CaptureProgress], None]


@dataclass(slots=True)
class ScanResult:
    """Result of scanning the environment."""

    directories: dict[bytes, bytes] = field(default_factory=dict)
    """Changed and new directories -> encoded records."""
    gone: set[bytes] = field(default_factory=set)
    missing: list[MissingPath] = field(default_factory=list)
    pieces: dict[bytes, list[bytes]] = field(default_factory=dict)
    packs: list[StagedPack] = field(default_factory=list)
    objects: list[tuple[bytes, bytes, int]] = field(default_factory=list)
    """Packed objects that no worker's pack contains, because there were few."""
    files: int = 0
    bytes: int = 0
    listing: list[tuple[EnvPath, int, int]] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.directories or self.gone)


class ScanDriver:
    """Run the workers through one capture."""

    def __init__(
        self,
        scope: CaptureScope,
        job: dict[str, Any],
        workers: int,
        how: str,
        progress: ProgressCallback | None,
        cache: CacheHeader | None,
        distrust: bool,
        only: ScanTargets | None = None,
    ) -> None:
        """Start the workers; they compare records while the caller does other work.

        `only` limits the scan to these recorded directories; all others are known to be unchanged.
        """
        self._scope = scope
        self._job = job
        self.cache = cache
        self._how = how
        self._progress = progress
        self._workers = workers
        self._totals = (0, 0)
        self._looked_into = 0
        self._failed = FailedDirectories()
        self._open = True
        self._twins: tuple[object, ...] = ()
        self._packing: Iterator[tuple[int, Frame]] = iter(())
        self.result = ScanResult()
        self._pool = self._make_pool()
        try:
            self._checks = self._check(cache, distrust, only) if cache is not None else iter(())
        except BaseException:
            self.close()
            raise

    def run(self, *, dry_run: bool = False) -> ScanResult:
        """Scan and read; return the result. The workers still finish their packs: see `finish_packs`."""
        self._find_changes()
        if b"" in self.result.gone:
            raise WorkingTreeGone
        self._add_up()
        if dry_run:
            self._list()
        elif self._looked_into:
            self._read()
            self._packing = self._pool.ask_each("pack")
        self.result.missing += list(self._failed.missing(self.result.missing))
        return self.result

    def finish_packs(self) -> ScanResult:
        """Wait until the packs of all workers are synced, and add them to the result."""
        for _, (kind, *words) in self._packing:
            if kind == "pack":
                self.result.packs.append(StagedPack(*words))  # type: ignore[arg-type]
            else:
                self.result.objects.extend(cast(list[tuple[bytes, bytes, int]], words[0]))
        return self.result

    @property
    def lines(self) -> list[WorkerHandle]:
        """Return the connections to the workers."""
        return self._pool.lines

    def close(self) -> None:
        """Stop the workers, whatever they are doing."""
        if self._open:
            self._open = False
            self._pool.close()

    def _make_pool(self) -> Pool:
        shared = SharedCounters(self._workers)
        lines: list[WorkerHandle] = []
        try:
            for number in range(self._workers):
                lines.append(self._make_line(shared, number, lines))
        except BaseException:
            Pool(shared, lines).close()
            raise
        return Pool(shared, lines, self._report)

    def _make_line(self, shared: SharedCounters, number: int, others: list[WorkerHandle]) -> WorkerHandle:
        if self._how == "fork":
            return fork_worker(lambda: CaptureWorker(self._job, shared, number), others)
        if self._how == "spawn":
            return spawn_worker(WORKER_MODULE, self._job, shared, number)
        return InlineWorker(CaptureWorker(self._job, shared, number))

    def _report(self) -> None:
        if self._progress is not None:
            files, done, _ = self._pool.shared.totals()
            self._progress(CaptureProgress(files, done, *self._totals))

    def _check(
        self, cache: CacheHeader, distrust: bool, only: ScanTargets | None
    ) -> Iterator[tuple[int, Frame]]:
        wanted = None if only is None else {**dict.fromkeys(self._tops()), **only}
        shards = cache.shards if wanted is None else shards_of(cache.shards, wanted)
        size = max(1, -(-len(shards) // MAX_TICKETS))
        chunks = [list(map(tuple, shards[at : at + size])) for at in range(0, len(shards), size)]
        self._pool.shared.offer(len(chunks))
        return self._pool.ask_each("check", chunks, distrust, wanted)

    def _find_changes(self) -> None:
        new: set[bytes] = set()
        tops = set(self._tops())
        for _, (kind, *words) in self._checks:
            if kind == "damaged":
                raise CacheDamaged
            path = cast(bytes, words[0])
            if kind == "top":
                tops.discard(path)
            else:
                (new if kind == "new" else self.result.gone).add(path)
                self._failed.note(path, *words[1:])
            if kind == "mounted":
                # The parent directory does not show the mount; scan it again to report the path as missing.
                new.add(path.rpartition(b"/")[0])
        new.update(tops)
        if new:
            self._scan(self._walk(new))

    def _tops(self) -> list[bytes]:
        return [ROOT_PREFIX + root if root else b"" for root in self._scope.bases]

    def _walk(self, tops: Iterable[bytes]) -> list[bytes]:
        """Return all directories at and below `tops`, ordered by path."""
        # Workers do this: the current directory of a host program must not change.
        arguments: list[tuple[object, ...]] = [([], 0) for _ in range(self._workers)]
        arguments[0] = (sorted(tops), SUBTREES_PER_WORKER * self._workers if self._workers > 1 else 1 << 62)
        found: list[bytes] = []
        waiting: list[bytes] = []
        for _, (kind, paths, unlisted) in self._pool.ask_all("spread", arguments):
            (found if kind == "walked" else waiting).extend(cast(list[bytes], paths))
            self._failed.unlisted.update(cast(dict[bytes, int], unlisted))
        if waiting:
            for _, (_, paths, unlisted) in self._share_out("walk", waiting, 1):
                found += cast(list[bytes], paths)
                self._failed.unlisted.update(cast(dict[bytes, int], unlisted))
        return sorted(found, key=lambda path: path.replace(b"/", b"\0"))

    def _share_out(
        self, method: str, directories: list[bytes], min_size: int, *more: object
    ) -> Iterator[tuple[int, Frame]]:
        """Let workers take directories in chunks of at least `least` until none is left."""
        size = max(min_size, -(-len(directories) // MAX_TICKETS))
        chunks = [directories[at : at + size] for at in range(0, len(directories), size)]
        self._pool.shared.offer(len(chunks))
        return self._pool.ask_each(method, chunks, *more)

    def _scan(self, directories: list[bytes]) -> None:
        lacking = self._share_out("scan", directories, DIRECTORIES_PER_CHUNK, self._failed.unlisted)
        for _, (_, path, *reason) in lacking:
            self.result.gone.add(cast(bytes, path))
            self._failed.note(cast(bytes, path), *reason)

    def _add_up(self) -> None:
        for _, (_, looked_into, files, size) in self._pool.ask_each("summary"):
            self._looked_into += cast(int, looked_into)
            self.result.files += cast(int, files)
            self.result.bytes += cast(int, size)
        self._totals = (self.result.files, self.result.bytes)

    def _list(self) -> None:
        for _, frame in self._pool.ask_each("listing"):
            _, path, files, size, missing = cast(tuple[str, bytes, int, int, list[Any]], frame)
            self.result.listing.append((EnvPath(path), files, size))
            for name, why, detail in missing:
                place = join(path, name) if name else path
                self.result.missing.append(
                    MissingPath(EnvPath(display_path(place)), MissingReason(why), detail)
                )

    def _read(self) -> None:
        self._twins = find_sealed_sources(self._pool, self._job, self.cache).as_arguments()
        budget = cast(int, self._job["budget"])
        over = self.result.bytes > budget
        defer_from = self._largest_that_fit(budget) if over else LARGE if self._workers > 1 else UNLIMITED
        files = self._defer(defer_from, largest_first=not over)
        # Over the budget, small files are read first so that the largest are left out.
        at_once = 0 if over else MAX_TICKETS
        results = self._read_all(files[:at_once])
        for start in range(at_once, len(files), MAX_TICKETS):
            results += self._read_large(files[start : start + MAX_TICKETS], one_by_one=over)
        if results:
            for _, frame in self._pool.ask_each("settle", results):
                self._note_directory(frame)

    def _defer(self, defer_from: int, *, largest_first: bool) -> list[Names]:
        deferred = [frame[1:] for _, frame in self._pool.ask_each("defer", defer_from)]
        deferred.sort(key=lambda file: cast(int, file[2]), reverse=largest_first)
        files: dict[object, Names] = {}
        for directory, name, _, *identity in cast(list[tuple[bytes, bytes, int, int, int]], deferred):
            files.setdefault(tuple(identity), []).append((directory, name))
        return list(files.values())

    def _read_all(self, files: list[Names]) -> list[tuple[object, ...]]:
        """Read all files that are not deferred, and let free workers read `files`; return the results of
        those."""
        results: list[tuple[object, ...]] = []
        self._pool.shared.offer(len(files))
        for _, frame in self._pool.ask_each("read", files, self._twins):
            if frame[0] == "large":
                results.append(frame[1:])
            else:
                self._note_directory(frame)
        return results

    def _largest_that_fit(self, budget: int) -> int:
        sizes = array("q")
        for _, (_, cells) in self._pool.ask_each("sizes"):
            sizes.frombytes(cast(bytes, cells))
        total = 0
        for size in sorted(sizes):
            total += size
            if total > budget:
                return size
        return UNLIMITED

    def _read_large(self, files: list[Names], *, one_by_one: bool) -> list[tuple[object, ...]]:
        # In parallel, a file that will not fit could displace one with content that is already stored.
        takers = 1 if one_by_one else self._workers
        self._pool.shared.offer(len(files))
        arguments: list[tuple[object, ...]] = [
            (files if number < takers else None,) for number in range(self._workers)
        ]
        return [frame[1:] for _, frame in self._pool.ask_all("large", arguments)]

    def _note_directory(self, frame: tuple[object, ...]) -> None:
        _, path, encoded, missing, pieces = cast(tuple[str, bytes, bytes, list[Any], list[bytes]], frame)
        self.result.directories[path] = encoded
        self.result.pieces[path] = pieces
        for name, why, detail in missing:
            self.result.missing.append(MissingPath(EnvPath(name), MissingReason(why), detail))


def worker_count(configured: int | None) -> int:
    """Return the configured number of workers, or one for each core up to `MAX_WORKERS`."""
    if configured:
        return configured
    return max(1, min(MAX_WORKERS, core_count()))


# Merge the results of the workers into the records of the snapshot before.

UNKNOWN = bytes(BELOW)
"""Subtree id of a directory that has no tree yet."""


@dataclass(slots=True)
class RecordChanges:
    """Differences between the records and those of the snapshot before."""

    changed: dict[bytes, DirectoryRecord] = field(default_factory=dict)
    """Scanned directories, as they are now."""
    before: dict[bytes, DirectoryRecord] = field(default_factory=dict)
    """The same directories as recorded before, if they were recorded."""
    gone: set[bytes] = field(default_factory=set)
    removed: int | None = 0
    """The paths of the removed directories, as `count` counts them; None if unknown."""

    def count(self) -> ChangeCount | None:
        """Return the number of added, modified and removed paths; None if the two trees have to be compared."""
        if self.removed is None or not self._are_all_in_the_tree():
            return None
        added, modified, removed = 0, 0, self.removed
        for path, new in self.changed.items():
            old = self.before.get(path)
            found = _count_added(new) if old is None else _count_changes(old, new)
            if found is None:
                return None
            added, modified, removed = (
                added + found.added,
                modified + found.modified,
                removed + found.removed,
            )
        return ChangeCount(added, modified, removed)

    def _are_all_in_the_tree(self) -> bool:
        """Return whether no changed directory is one of those that are counted in another way."""
        if any(map(is_inside_git_directory, self.changed)):
            return False
        structure = self.changed.keys() - self.before.keys() | self.gone
        return self.gone.isdisjoint(self.changed) and not any(
            is_stored_outside_tree(path) or path.startswith(ROOT_PREFIX) or is_inside_git_directory(path)
            for path in structure
        )

    def fresh(self) -> tuple[int, int]:
        """Return the number and bytes of files that are new or have new content.

        Files that were only read again (touched, or too young for their time stamps to be trusted) do not
        count.
        """
        files = size = 0
        for path, new in self.changed.items():
            sizes = new.cells[SIZE::WIDTH]
            old = self.before.get(path)
            found = range(len(new.names)) if old is None else _other_bytes(old, new)
            files += len(found)
            size += sum(sizes[index] for index in found)
        return files, size


def merge_records(records: DirectoryRecords, scan_result: ScanResult) -> RecordChanges:
    """Apply the scan result to the records and drop directories that no longer exist."""
    merged = RecordChanges()
    gone_directories = set(scan_result.gone)
    for path, encoded in scan_result.directories.items():
        before, after = records.get(path), decode(encoded)
        if before is not None:
            merged.before[path] = before
            vanished = set(before.subdirectories).difference(after.subdirectories)
            gone_directories.update(join(path, name) for name in vanished)
        _carry_below(after, before)
        merged.changed[path] = after
        records.keep(after)
    # Parents come first, and bring all directories below them.
    for path in sorted(gone_directories):
        if path not in merged.gone:
            merged.gone.update(records.below(path))
    merged.removed = _count_removed(records, merged.gone)
    for path in merged.gone:
        records.drop(path)
    merged.gone |= gone_directories
    return merged


def merge_pieces(
    before: Mapping[bytes, list[bytes]], scan_result: ScanResult, merged: RecordChanges, width: int
) -> dict[bytes, list[bytes]]:
    """Return the chunk trees of big files by directory; `width` is the length of an id."""
    # Records store ids padded to 32 bytes.
    return {
        path: [tree[:width] for tree in trees]
        for path, trees in {**before, **scan_result.pieces}.items()
        if trees and path not in merged.gone
    }


def _carry_below(after: DirectoryRecord, before: DirectoryRecord | None) -> None:
    if before is not None and before.subdirectories == after.subdirectories:
        after.below = before.below
        return
    known = before.below_by_name() if before is not None else {}
    after.below = b"".join(known.get(name, UNKNOWN) for name in after.subdirectories)


def _other_bytes(old: DirectoryRecord, new: DirectoryRecord) -> list[int]:
    """Return the indexes of entries with new content."""
    width = len(new.ids) // len(new.names) if new.names else 1
    if old.names == new.names:
        return differing(old.ids, new.ids, width)
    known = {name: old.id_at(index, width) for index, name in enumerate(old.names)}
    return [index for index, name in enumerate(new.names) if known.get(name) != new.id_at(index, width)]


def _count_removed(records: DirectoryRecords, gone: Iterable[bytes]) -> int | None:
    total = 0
    for path in gone:
        record = records.peek(path)
        found = None if record is None else _count_added(record)
        if found is None:
            return None
        total += found.added
    return total


def _count_added(record: DirectoryRecord) -> ChangeCount | None:
    """Return the number of paths in a new directory, without those in its subdirectories; None if unknown."""
    if record.flags & INCOMPLETE or record.boundaries:
        return None
    # A directory is counted itself only if there is nothing in it.
    return ChangeCount(added=len(record.names) or int(not record.subdirectories))


def _count_changes(old: DirectoryRecord, new: DirectoryRecord) -> ChangeCount | None:
    """Return the number of changed entries; None if more changed than names, contents and modes."""
    if (old.flags | new.flags) & INCOMPLETE:
        return None
    if any(getattr(old, name) != getattr(new, name) for name in ("mode", "uid", "gid", "boundaries")):
        return None
    if (old.names, old.subdirectories) == (new.names, new.subdirectories):
        modified = _count_modified(old, new)
        return None if modified is None else ChangeCount(modified=modified)
    return _count_entries(old, new)


def _count_entries(old: DirectoryRecord, new: DirectoryRecord) -> ChangeCount | None:
    """Return the number of changed entries of a directory whose names differ."""
    before, after = _entries_by_name(old), _entries_by_name(new)
    directories = {*old.subdirectories, *new.subdirectories}
    # A name that was a directory before, or is one now, changed its kind.
    if not directories.isdisjoint(before) or not directories.isdisjoint(after):
        return None
    if old.extras.get(-1) != new.extras.get(-1):
        return None
    common = before.keys() & after.keys()
    for name in common:
        (_, old_mode, old_extras), (_, new_mode, new_extras) = before[name], after[name]
        if old_extras != new_extras or stat.S_IFMT(old_mode) != stat.S_IFMT(new_mode):
            return None
    modified = sum(before[name] != after[name] for name in common)
    return ChangeCount(len(after) - len(common), modified, len(before) - len(common))


def _entries_by_name(record: DirectoryRecord) -> dict[bytes, tuple[bytes, int, bytes]]:
    """Return id, mode and manifest words of each entry."""
    width = len(record.ids) // len(record.names) if record.names else 1
    return {
        name: (record.id_at(index, width), mode, record.extras.get(index, b""))
        for index, (name, mode) in enumerate(zip(record.names, record.modes, strict=True))
    }


def _count_modified(old: DirectoryRecord, new: DirectoryRecord) -> int | None:
    """Return the number of entries with a changed content or mode; None if a kind or a manifest word changed."""
    if old.extras != new.extras:
        return None
    old_modes, new_modes = old.modes, new.modes
    remoded = differing(old_modes.tobytes(), new_modes.tobytes(), CELL)
    if any(stat.S_IFMT(old_modes[index]) != stat.S_IFMT(new_modes[index]) for index in remoded):
        return None
    width = len(old.ids) // len(old.names) if old.names else 1
    return len({*remoded, *differing(old.ids, new.ids, width)})
