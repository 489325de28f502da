"""The first half of a worker: looks at its share of the directories, and says what would be read."""

from __future__ import annotations

import os
import stat
import struct
from array import array
from collections.abc import Callable, Iterator
from itertools import compress
from operator import not_
from typing import Any

from git_envhist.capture.byname import descent_into
from git_envhist.capture.check import differing_records, gc_paused, root_directories_in
from git_envhist.capture.descent import is_realm_top, join, root_name_of
from git_envhist.capture.ignore import ignore_rules
from git_envhist.capture.pool import Frame, SharedCounters
from git_envhist.capture.reading import Unreadable, is_gone, unreadable
from git_envhist.capture.records import INODE, MODE, SIZE, DirectoryRecord, cut, decode
from git_envhist.capture.scan import ExcludedPath, ScanLimits, Scanner, spread, walk
from git_envhist.capture.servers import report_servers
from git_envhist.capture.statcache import CacheShard, StatCache
from git_envhist.capture.units import find_database_files
from git_envhist.capture.visits import ScannedDirectory, ScannedEntry
from git_envhist.capturing.since import Wanted
from git_envhist.store.deflate import crc32


class ScanWorker:
    """Holds what it has looked at until it is told what to read."""

    def __init__(self, job: dict[str, Any], shared: SharedCounters) -> None:
        self._job = job
        self._shared = shared
        self._started_ns: int = job["started_ns"]
        self._descent = descent_into(job["bases"])
        self._ignored = ignore_rules(job["ignore"], job["exclude"])
        self._limits = ScanLimits(job["pruned"], job["cross_mounts"], job["mounts_known"], job["known"])
        self._scanner = Scanner(self._descent, self._ignored, self._limits, self._started_ns)
        self._visits: dict[bytes, ScannedDirectory] = {}
        self._defer_from = 0
        self._deferring: set[bytes] = set()
        self._unlisted: dict[bytes, int] = {}
        self._failed: dict[bytes, Unreadable] = {}
        """Directories of which not even a stat could be read."""

    def do_check(
        self, chunks: list[list[CacheShard]], distrust: bool, only: Wanted | None
    ) -> Iterator[Frame]:
        """Compare recorded directories with what is there, as long as there are shards left; look into those that
        differ.

        Yields ("new", a directory that no record knows), ("gone", one that is no more), ("mounted", one where another
        file system stands by now), ("top", the top of a root that has a record), ("damaged",).
        `only`: of these directories and their entries; the others are known to be as recorded.
        """
        cache = StatCache(self._job["cache"], crc32)
        with gc_paused():
            while (ticket := self._shared.take()) is not None:
                for shard in chunks[ticket]:
                    records = cache.read_shard(CacheShard(*shard))
                    try:
                        yield from (
                            self._check(records, distrust, only) if records is not None else (("damaged",),)
                        )
                    except (struct.error, ValueError):
                        yield ("damaged",)

    def _check(self, records: bytes, distrust: bool, only: Wanted | None) -> Iterator[Frame]:
        for top in root_directories_in(records):
            yield ("top", top)
        if only is not None:
            wanted = [(encoded, only[path]) for path, encoded in cut(records) if path in only]
            # What was changed need not be found to differ first.
            for encoded, names in wanted:
                if names is not None:
                    yield from self._look_into(decode(encoded), names)
            records = b"".join([encoded for encoded, names in wanted if names is None])
        if not distrust:
            for encoded in differing_records(records, self._job["bases"], self._descent.enter):
                yield from self._look_into(decode(encoded))
            return
        for path, encoded in cut(records):
            if self._scanner.is_left_out(path):
                yield ("gone", path)
            else:
                yield from self._look_into(decode(encoded))

    def _look_into(self, record: DirectoryRecord, names: frozenset[bytes] | None = None) -> Iterator[Frame]:
        visit = self._visit(record.path, record, names)
        if visit is None:
            yield self._lack(record.path, self._scanner.why_gone)
            return
        for name in set(visit.subdirectories).difference(record.subdirectories):
            yield ("new", join(record.path, name))

    def do_spread(self, tops: list[bytes], enough: int) -> Iterator[Frame]:
        """("walked", some of the directories at and below the tops); ("waiting", those that nobody was in yet)."""
        unlisted: dict[bytes, int] = {}
        walked, waiting = spread(self._descent, tops, enough, self._limits, self._ignored, unlisted)
        yield ("walked", walked, unlisted)
        yield ("waiting", waiting, {})

    def do_walk(self, chunks: list[list[bytes]]) -> Iterator[Frame]:
        """("walked", every directory at and below some), a chunk at a time, as long as there are any left."""
        while (ticket := self._shared.take()) is not None:
            unlisted: dict[bytes, int] = {}
            walked = walk(self._descent, chunks[ticket], self._limits, self._ignored, unlisted)
            yield ("walked", walked, unlisted)

    def do_scan(self, chunks: list[list[bytes]], unlisted: dict[bytes, int]) -> Iterator[Frame]:
        """Look into directories that no record knows, a chunk at a time, as long as there are any left.

        `unlisted`: directories that could not be listed during the walk, with the number of the error.
        """
        self._unlisted = unlisted
        while (ticket := self._shared.take()) is not None:
            for path in chunks[ticket]:
                if self._visit(path, None) is None:
                    yield self._lack(path, lambda _: "gone")

    def _lack(self, path: bytes, why_gone: Callable[[bytes], str]) -> Frame:
        """Return the frame about a directory that could not be visited: ("gone", …), or ("failed", …, why, detail)."""
        reason = self._failed.pop(path, None)
        return (why_gone(path), path) if reason is None else ("failed", path, reason.why.value, reason.detail)

    def do_summary(self) -> Iterator[Frame]:
        """("summary", directories looked into, files to be read, their bytes)."""
        sizes = self._sizes()
        yield ("summary", len(self._visits), len(sizes), sum(sizes))

    def do_sizes(self) -> Iterator[Frame]:
        yield ("sizes", array("q", self._sizes()).tobytes())

    def do_listing(self) -> Iterator[Frame]:
        """What would be read: ("listing", directory, files, bytes, missing)."""
        for path, visit in self._visits.items():
            sizes = [leaf.row[SIZE] for leaf in visit.pending]
            yield ("listing", path, len(sizes), sum(sizes), visit.missing)

    def do_defer(self, defer_from: int) -> Iterator[Frame]:
        """("deferred", directory, name, size, device, number) for each file of at least that size: whoever is free
        takes it then."""
        self._defer_from = defer_from
        for path, visit in self._visits.items():
            for leaf in visit.unread:
                if self._is_large(leaf):
                    self._deferring.add(path)
                    yield ("deferred", path, leaf.name, leaf.row[SIZE], visit.own.st_dev, leaf.row[INODE])

    def _without_deferred(self, visit: ScannedDirectory) -> tuple[list[ScannedEntry], list[ScannedEntry]]:
        """Of what is to be read in a directory the files to be read now, and those that are deferred."""
        if visit.path not in self._deferring:
            return visit.unread, []
        large = list(map(self._is_large, visit.unread))
        return list(compress(visit.unread, map(not_, large))), list(compress(visit.unread, large))

    def _is_large(self, leaf: ScannedEntry) -> bool:
        return leaf.row[SIZE] >= self._defer_from and stat.S_ISREG(leaf.row[MODE])

    def _sizes(self) -> list[int]:
        return [leaf.row[SIZE] for visit in self._visits.values() for leaf in visit.pending]

    def _visit(
        self, path: bytes, old: DirectoryRecord | None, changed: frozenset[bytes] | None = None
    ) -> ScannedDirectory | None:
        try:
            if path in self._unlisted:
                raise OSError(self._unlisted[path], os.strerror(self._unlisted[path]))
            visit = self._scanner.visit(path, old, changed)
        except OSError as error:
            closed = self._closed_directory(path, error)
            if closed is None:
                return None
            visit = closed
        else:
            find_database_files(visit)
            report_servers(visit)
        self._visits[path] = visit
        return visit

    def _closed_directory(self, path: bytes, error: OSError) -> ScannedDirectory | None:
        """A directory that cannot be looked into is kept by name, with what its parent can tell of it."""
        parent, _, name = path.rpartition(b"/")
        try:
            if is_realm_top(path):
                own = self._descent.base(root_name_of(path))
            else:
                self._descent.enter(parent)
                own = os.lstat(name)
        except OSError as failed:
            # A directory above that is closed to us is listed itself.
            if not is_gone(failed) and not isinstance(failed, PermissionError):
                self._failed[path] = unreadable(failed)
            return None
        if isinstance(error, ExcludedPath) or not stat.S_ISDIR(own.st_mode):
            return None
        visit = ScannedDirectory(path, own, young=True)
        reason = unreadable(error)
        visit.miss(b"", reason.why, reason.detail)
        return visit
