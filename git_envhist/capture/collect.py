"""Looks at the whole environment with some workers, and takes what changed into packs.

In this order: compare what the cache knows; find directories that are new and look into them; add up what is to be
read; read it, the small files first, each by the worker that met them, then the large ones by whoever is free; have
every worker finish its pack, while the caller may already build trees. Files are left to the end by size because the
budget leaves out the largest ones, and only bytes that really are new count against it.
"""

from __future__ import annotations

import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from git_envhist.capture.scope import CaptureScope, is_inside_git_directory
from git_envhist.capture.twin_sources import find_twins
from git_envhist.capture.worker import CaptureWorker, Names, Wanted
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
    fork_line,
    spawn_line,
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

# Directories that could not be looked at for an error of the file system, so that they are not taken for removed.


class FailedDirectories:
    """Collects directories of one capture that could not be read."""

    def __init__(self) -> None:
        self.unlisted: dict[bytes, int] = {}
        """Directories that could not be listed during the walk, with the number of the error."""
        self._found: dict[bytes, MissingPath] = {}

    def note(self, path: bytes, *reason: object) -> None:
        """Note a directory of which not even a stat could be read; `reason`: why and detail, empty if it is gone."""
        if reason:
            why, detail = cast(tuple[str, str], reason)
            self._found[path] = MissingPath(EnvPath(display_path(path)), MissingReason(why), detail)

    def missing(self, known: Iterable[MissingPath]) -> Iterator[MissingPath]:
        """Yield the noted directories, without those that lie in one that is `known` to be missing."""
        listed = {one.path for one in known} if self._found else set()
        for path in sorted(self._found):
            above = path
            while not is_root_top(above) and display_path(above) not in listed:
                above = above.rpartition(b"/")[0]
            if display_path(above) not in listed:
                listed.add(self._found[path].path)
                yield self._found[path]


WORKER_MODULE = "git_envhist.capture.worker"
MAX_WORKERS = 4
DIRECTORIES_A_CHUNK = 24
WALKS_EACH = 32
"""So many subtrees for each worker are enough to keep all of them busy to the end."""
LARGE = 1 << 20
"""From here on files are handed to whoever is free: one of them may take as long as a thousand others."""
UNLIMITED = 1 << 62

Tick = Callable[[CaptureProgress], None]


@dataclass(slots=True)
class ScanResult:
    """What looking at the environment gave."""

    directories: dict[bytes, bytes] = field(default_factory=dict)
    """Changed and new directories, as encoded records."""
    gone: set[bytes] = field(default_factory=set)
    missing: list[MissingPath] = field(default_factory=list)
    pieces: dict[bytes, list[bytes]] = field(default_factory=dict)
    packs: list[StagedPack] = field(default_factory=list)
    objects: list[tuple[bytes, bytes, int]] = field(default_factory=list)
    """Packed entries that no worker's pack holds, because they were few."""
    files: int = 0
    bytes: int = 0
    listing: list[tuple[EnvPath, int, int]] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.directories or self.gone)


class ScanDriver:
    """Drives the workers through one capture."""

    def __init__(
        self,
        survey: CaptureScope,
        job: dict[str, Any],
        workers: int,
        how: str,
        tick: Tick | None,
        cache: CacheHeader | None,
        distrust: bool,
        only: Wanted | None = None,
    ) -> None:
        """The workers begin to compare at once; what the caller has to do meanwhile takes nobody's time.

        `only`: the recorded directories that are to be looked at, where all else is known to be as recorded.
        """
        self._survey = survey
        self._job = job
        self.cache = cache
        self._how = how
        self._tick = tick
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

    def gather(self, *, dry_run: bool = False) -> ScanResult:
        """Take what is not known yet. The workers go on to finish their packs: `finish_packs` waits for these."""
        self._look()
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
        """Wait until the packs of all workers are durable; the result names them then."""
        for _, (kind, *words) in self._packing:
            if kind == "pack":
                self.result.packs.append(StagedPack(*words))  # type: ignore[arg-type]
            else:
                self.result.objects.extend(cast(list[tuple[bytes, bytes, int]], words[0]))
        return self.result

    @property
    def lines(self) -> list[WorkerHandle]:
        """The lines to the workers."""
        return self._pool.lines

    def close(self) -> None:
        """End the workers, whatever they are doing."""
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
            return fork_line(lambda: CaptureWorker(self._job, shared, number), others)
        if self._how == "spawn":
            return spawn_line(WORKER_MODULE, self._job, shared, number)
        return InlineWorker(CaptureWorker(self._job, shared, number))

    def _report(self) -> None:
        if self._tick is not None:
            files, done, _ = self._pool.shared.totals()
            self._tick(CaptureProgress(files, done, *self._totals))

    def _check(self, cache: CacheHeader, distrust: bool, only: Wanted | None) -> Iterator[tuple[int, Frame]]:
        wanted = None if only is None else {**dict.fromkeys(self._tops()), **only}
        shards = cache.shards if wanted is None else shards_of(cache.shards, wanted)
        size = max(1, -(-len(shards) // MAX_TICKETS))
        chunks = [list(map(tuple, shards[at : at + size])) for at in range(0, len(shards), size)]
        self._pool.shared.offer(len(chunks))
        return self._pool.ask_each("check", chunks, distrust, wanted)

    def _look(self) -> None:
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
                # The directory above it shows nothing of that: looked into again, it says what is missing.
                new.add(path.rpartition(b"/")[0])
        new.update(tops)
        if new:
            self._scan(self._walk(new))

    def _tops(self) -> list[bytes]:
        return [ROOT_PREFIX + root if root else b"" for root in self._survey.bases]

    def _walk(self, tops: Iterable[bytes]) -> list[bytes]:
        """Every directory at and below some, in the order of their paths."""
        # By workers: a host program's own current directory is not ours to change.
        arguments: list[tuple[object, ...]] = [([], 0) for _ in range(self._workers)]
        arguments[0] = (sorted(tops), WALKS_EACH * self._workers if self._workers > 1 else 1 << 62)
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
        self, method: str, directories: list[bytes], least: int, *more: object
    ) -> Iterator[tuple[int, Frame]]:
        """Have the workers take directories, so many at a time at least, until none is left."""
        size = max(least, -(-len(directories) // MAX_TICKETS))
        chunks = [directories[at : at + size] for at in range(0, len(directories), size)]
        self._pool.shared.offer(len(chunks))
        return self._pool.ask_each(method, chunks, *more)

    def _scan(self, directories: list[bytes]) -> None:
        lacking = self._share_out("scan", directories, DIRECTORIES_A_CHUNK, self._failed.unlisted)
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
        self._twins = find_twins(self._pool, self._job, self.cache).as_told()
        budget = cast(int, self._job["budget"])
        over = self.result.bytes > budget
        defer_from = self._largest_that_fit(budget) if over else LARGE if self._workers > 1 else UNLIMITED
        files = self._defer(defer_from, largest_first=not over)
        # Over the budget the smallest come first, so that it is the largest that are left out.
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
        """Have everything read that is not deferred, and the given files by whoever is free; what became of these."""
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
        # Side by side, a file that will turn out not to fit would push out one that costs nothing.
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
    """How many workers this machine wants."""
    if configured:
        return configured
    return max(1, min(MAX_WORKERS, core_count()))


# What the workers found, taken into what was known: which directories changed, which are gone, what is counted.

UNKNOWN = bytes(BELOW)
"""No tree is known of a subdirectory."""


@dataclass(slots=True)
class RecordChanges:
    """How the records differ from those of the snapshot before."""

    changed: dict[bytes, DirectoryRecord] = field(default_factory=dict)
    """Directories that were looked into, as they are now."""
    before: dict[bytes, DirectoryRecord] = field(default_factory=dict)
    """The same as they were, as far as they were known."""
    gone: set[bytes] = field(default_factory=set)

    def count(self) -> ChangeCount | None:
        """How many paths differ, where only files and links did that stayed where they are: those that any history
        has most of; None where the two trees have to be compared."""
        if self.gone or self.before.keys() != self.changed.keys():
            return None
        modified = 0
        for path, new in self.changed.items():
            found = None if is_inside_git_directory(path) else _count_modified(self.before[path], new)
            if found is None:
                return None
            modified += found
        return ChangeCount(modified=modified)

    def fresh(self) -> tuple[int, int]:
        """How many files stand there with other bytes than before, or for the first time; and their bytes.

        What was only read again, because it was touched or is as young as the clock's tick, is none of them.
        """
        files = size = 0
        for path, new in self.changed.items():
            sizes = new.cells[SIZE::WIDTH]
            old = self.before.get(path)
            found = range(len(new.names)) if old is None else _other_bytes(old, new)
            files += len(found)
            size += sum(sizes[index] for index in found)
        return files, size


def merge(records: DirectoryRecords, gathered: ScanResult) -> RecordChanges:
    """Take in what changed, and let go what is no longer below any directory."""
    merged = RecordChanges()
    lost = set(gathered.gone)
    for path, encoded in gathered.directories.items():
        before, after = records.get(path), decode(encoded)
        if before is not None:
            merged.before[path] = before
            vanished = set(before.subdirectories).difference(after.subdirectories)
            lost.update(join(path, name) for name in vanished)
        _carry_below(after, before)
        merged.changed[path] = after
        records.keep(after)
    for path in list(lost):
        merged.gone.update(records.below(path))
    for path in merged.gone:
        records.drop(path)
    merged.gone |= lost
    return merged


def merge_pieces(
    before: Mapping[bytes, list[bytes]], gathered: ScanResult, merged: RecordChanges, width: int
) -> dict[bytes, list[bytes]]:
    """The trees of the pieces of big files, by directory, as they are now; `width`: of an id."""
    # An id of any length stands in 32 bytes there.
    return {
        path: [tree[:width] for tree in trees]
        for path, trees in {**before, **gathered.pieces}.items()
        if trees and path not in merged.gone
    }


def _carry_below(after: DirectoryRecord, before: DirectoryRecord | None) -> None:
    if before is not None and before.subdirectories == after.subdirectories:
        after.below = before.below
        return
    known = before.below_by_name() if before is not None else {}
    after.below = b"".join(known.get(name, UNKNOWN) for name in after.subdirectories)


def _other_bytes(old: DirectoryRecord, new: DirectoryRecord) -> list[int]:
    """The entries that have other bytes than before, or were not there."""
    width = len(new.ids) // len(new.names) if new.names else 1
    if old.names == new.names:
        return differing(old.ids, new.ids, width)
    known = {name: old.id_at(index, width) for index, name in enumerate(old.names)}
    return [index for index, name in enumerate(new.names) if known.get(name) != new.id_at(index, width)]


def _count_modified(old: DirectoryRecord, new: DirectoryRecord) -> int | None:
    """How many entries have other bytes or modes; None where there is more to it."""
    if (old.flags | new.flags) & INCOMPLETE:
        return None
    for name in ("mode", "uid", "gid", "names", "subdirectories", "boundaries", "extras"):
        if getattr(old, name) != getattr(new, name):
            return None
    old_modes, new_modes = old.modes, new.modes
    remoded = differing(old_modes.tobytes(), new_modes.tobytes(), CELL)
    if any(stat.S_IFMT(old_modes[index]) != stat.S_IFMT(new_modes[index]) for index in remoded):
        return None
    width = len(old.ids) // len(old.names) if old.names else 1
    return len({*remoded, *differing(old.ids, new.ids, width)})
