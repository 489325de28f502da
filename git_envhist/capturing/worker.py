"""One worker of a capture: looks at its share of the directories, and takes what changed into a pack of its own.

The only place besides `api` and `capturing` that joins the rooms: what the scan finds goes through sealing into the
store. Its methods are generators of frames; what they do and in which order is told in `capturing`.
"""

from __future__ import annotations

import os
import stat
import struct
from array import array
from collections.abc import Iterator
from typing import Any

from git_envhist.capture.attributes import own_extras
from git_envhist.capture.byname import descent_into
from git_envhist.capture.check import differing_records, no_collection, tops_among
from git_envhist.capture.content import OverBudget, Taker
from git_envhist.capture.descent import is_realm_top, join, realm_of, shown_path
from git_envhist.capture.ignore import ignore_rules
from git_envhist.capture.pool import Frame, Shared
from git_envhist.capture.reading import OtherKind, Unreadable, Vanished, open_file, unreadable
from git_envhist.capture.records import COLUMNS, MODE, SIZE, Record, cut, decode
from git_envhist.capture.scan import LeftOut, Limits, Scanner, walk
from git_envhist.capture.servers import tell_servers
from git_envhist.capture.statcache import Shard, StatCache
from git_envhist.capture.units import find_units
from git_envhist.capture.visits import Leaf, Visit, finish
from git_envhist.capturing.blobs import Blobs
from git_envhist.capturing.policy import make_policy
from git_envhist.capturing.shards import leaf_modes, shard_of
from git_envhist.model import WhyMissing
from git_envhist.store.deflate import crc32
from git_envhist.store.manifest import format_extras
from git_envhist.store.packs import PackWriter
from git_envhist.store.staging import open_published

CHECK_PARENT_EVERY = 64


class CaptureWorker:
    """Holds what it has looked at until it is told what to read."""

    def __init__(self, job: dict[str, Any], shared: Shared, number: int) -> None:
        self._job = job
        self._shared = shared
        self._parent = os.getppid()
        self._known = open_published(job["common_state"], job["pack_dir"], job["object_format"])
        self._writer = PackWriter(job["staging_packs"], job["object_format"], self._known.__contains__)
        blobs = Blobs(self._writer, shared, number)
        self._width = 20 if job["object_format"] == "sha1" else 32
        self._started_ns: int = job["started_ns"]
        self._descent = descent_into(job["bases"])
        self._ignored = ignore_rules(job["ignore"], job["exclude"])
        self._limits = Limits(job["pruned"], job["cross_mounts"], job["mounts_known"], job["known"])
        self._scanner = Scanner(self._descent, self._ignored, self._limits, self._started_ns)
        self._taker = Taker(blobs, format_extras, make_policy(job), job["budget"], _home_device(job))
        self._visits: dict[bytes, Visit] = {}

    def call(self, method: str, arguments: tuple[Any, ...]) -> Iterator[Frame]:
        generator: Iterator[Frame] = getattr(self, "do_" + method)(*arguments)
        return generator

    def close(self) -> None:
        """Let go of every file; what was not finished is forgotten."""
        self._descent.close()
        self._known.close()
        self._writer.abort()

    # What the parent asks for.

    def do_check(self, chunks: list[list[Shard]], distrust: bool) -> Iterator[Frame]:
        """Compare recorded directories with what is there, as long as there are shards left; look into those that
        differ.

        Yields ("new", a directory that no record knows), ("gone", one that is no more), ("mounted", one where another
        file system stands by now), ("top", the top of a root that has a record), ("damaged",).
        """
        cache = StatCache(self._job["cache"], crc32)
        with no_collection():
            while (ticket := self._shared.take()) is not None:
                for shard in chunks[ticket]:
                    records = cache.read_shard(Shard(*shard))
                    try:
                        yield from self._check(records, distrust) if records is not None else (("damaged",),)
                    except (struct.error, ValueError):
                        yield ("damaged",)

    def _check(self, records: bytes, distrust: bool) -> Iterator[Frame]:
        for top in tops_among(records):
            yield ("top", top)
        if not distrust:
            for encoded in differing_records(records, self._job["bases"], self._descent.enter):
                yield from self._look_into(decode(encoded))
            return
        for path, encoded in cut(records):
            if self._scanner.is_left_out(path):
                yield ("gone", path)
            else:
                yield from self._look_into(decode(encoded))

    def _look_into(self, record: Record) -> Iterator[Frame]:
        visit = self._visit(record.path, record)
        if visit is None:
            yield (self._scanner.why_gone(record.path), record.path)
            return
        for name in set(visit.subdirectories).difference(record.subdirectories):
            yield ("new", join(record.path, name))

    def do_walk(self, tops: list[bytes]) -> Iterator[Frame]:
        """("walked", every directory at and below some)."""
        yield ("walked", walk(self._descent, tops, self._limits, self._ignored))

    def do_scan(self, chunks: list[list[bytes]]) -> Iterator[Frame]:
        """Look into directories that no record knows, a chunk at a time, as long as there are any left."""
        while (ticket := self._shared.take()) is not None:
            for path in chunks[ticket]:
                if self._visit(path, None) is None:
                    yield ("gone", path)

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

    def do_read(self, defer_from: int) -> Iterator[Frame]:
        """Take everything smaller than `defer_from`; ("directory", …) for each one that is complete then, and
        ("deferred", directory, name, size) for each file left to be taken by whoever is free."""
        for number, path in enumerate(list(self._visits)):
            if number % CHECK_PARENT_EVERY == 0 and os.getppid() != self._parent:
                raise SystemExit
            deferred = self._read(path, defer_from)
            yield from deferred
            if not deferred:
                yield self._finish(path)

    def do_large(self, files: list[tuple[bytes, bytes]] | None) -> Iterator[Frame]:
        """Take deferred files, whoever found them: ("large", index, taken or not, what was seen)."""
        while files is not None and (ticket := self._shared.take()) is not None:
            directory, name = files[ticket]
            yield ("large", ticket, *self._take_alone(directory, name))

    def do_settle(self, results: list[tuple[Any, ...]]) -> Iterator[Frame]:
        """Finish the directories whose deferred files have been taken."""
        mine: dict[bytes, list[tuple[Any, ...]]] = {}
        for directory, *result in results:
            if directory in self._visits:
                mine.setdefault(directory, []).append(tuple(result))
        for path, taken in mine.items():
            self._visits[path].settle(taken)
            yield self._finish(path)

    def do_pack(self) -> Iterator[Frame]:
        """("pack", …) of what was written; ("objects", …) of what never left memory, for somebody else's pack."""
        few = self._writer.take_out()
        if few is not None:
            yield ("objects", few)
            return
        pack = self._writer.finish()
        if pack is not None:
            yield ("pack", pack.name, pack.pack_path, pack.index_path, pack.objects, pack.size)

    def _sizes(self) -> list[int]:
        return [leaf.row[SIZE] for visit in self._visits.values() for leaf in visit.pending]

    def _visit(self, path: bytes, old: Record | None) -> Visit | None:
        try:
            visit = self._scanner.visit(path, old)
        except OSError as error:
            closed = self._closed_directory(path, error)
            if closed is None:
                return None
            visit = closed
        else:
            find_units(visit)
            tell_servers(visit)
        self._visits[path] = visit
        return visit

    def _closed_directory(self, path: bytes, error: OSError) -> Visit | None:
        """A directory that cannot be looked into is kept by name, with what its parent can tell of it."""
        parent, _, name = path.rpartition(b"/")
        try:
            if is_realm_top(path):
                own = self._descent.base(realm_of(path))
            else:
                self._descent.enter(parent)
                own = os.lstat(name)
        except OSError:
            return None
        if isinstance(error, LeftOut) or not stat.S_ISDIR(own.st_mode):
            return None
        visit = Visit(path, own, young=True)
        reason = unreadable(error)
        visit.miss(b"", reason.why, reason.detail)
        return visit

    def _read(self, path: bytes, defer_from: int) -> list[Frame]:
        visit = self._visits[path]
        if not visit.unread and not visit.units:
            return []
        try:
            self._descent.enter(path)
        except OSError as error:
            self._lost(visit, error)
            return []
        deferred: list[Frame] = []
        kept: list[Leaf] = []
        lost: list[Leaf] = []
        for leaf in visit.unread:
            if leaf.row[SIZE] >= defer_from and stat.S_ISREG(leaf.row[MODE]):
                kept.append(leaf)
                deferred.append(("deferred", path, leaf.name, leaf.row[SIZE]))
            elif not self._take(visit, leaf):
                lost.append(leaf)
        visit.unread = kept
        for database, sidecars in visit.units:
            lost += self._take_unit(visit, database, sidecars)
        visit.drop(lost)
        return deferred

    def _take_unit(self, visit: Visit, database: Leaf, sidecars: list[Leaf]) -> list[Leaf]:
        try:
            descriptor = open_file(database.name)
        except (Vanished, Unreadable, OtherKind):
            members = [leaf for leaf in (database, *sidecars) if leaf.stat is not None]
            return [leaf for leaf in members if not self._take(visit, leaf)]
        try:
            return self._taker.take_unit(visit, database, sidecars, descriptor)
        except OverBudget:
            visit.miss(database.name, WhyMissing(self._job["budget_reason"]), f"{database.row[SIZE]} bytes")
            return [database, *sidecars]
        finally:
            os.close(descriptor)

    def _take(self, visit: Visit, leaf: Leaf) -> bool:
        try:
            return self._taker.take(visit, leaf)
        except OverBudget:
            visit.miss(leaf.name, WhyMissing(self._job["budget_reason"]), f"{leaf.row[SIZE]} bytes")
            return False

    def _take_alone(self, directory: bytes, name: bytes) -> tuple[Any, ...]:
        try:
            own = self._descent.enter(directory)
            seen = os.lstat(name)
        except FileNotFoundError:
            return (None, b"", b"", b"", [])
        except OSError as error:
            reason = unreadable(error)
            return (None, b"", b"", b"", [(name, reason.why.value, reason.detail)])
        visit = Visit(directory, own)
        leaf = Leaf(name, COLUMNS(seen), seen)
        if not self._take(visit, leaf):
            return (None, b"", b"", b"", visit.missing)
        return (leaf.row, leaf.oid, leaf.extras, leaf.pieces, visit.missing)

    def _lost(self, visit: Visit, error: OSError) -> None:
        reason = unreadable(error)
        for leaf in visit.pending:
            visit.miss(leaf.name, reason.why, reason.detail)
        visit.drop(visit.pending)
        visit.unread, visit.units = [], []

    def _finish(self, path: bytes) -> Frame:
        visit = self._visits.pop(path)
        own = own_extras(format_extras, visit.own, entered=self._enter(path))
        like = visit.like
        record = finish(visit, self._started_ns, self._width, own)
        record.shard = self._writer.add(b"blob", shard_of(record, like, visit.fresh, self._read_old))
        record.leaf_modes = leaf_modes(record)
        missing = [(join(path, name) if name else path, why, detail) for name, why, detail in visit.missing]
        missing = [(shown_path(name), why, detail) for name, why, detail in missing]
        return ("directory", path, record.encode(), missing, list(record.pieces.values()))

    def _read_old(self, oid: bytes) -> bytes:
        return self._known.read(oid[: self._width])[1]

    def _enter(self, path: bytes) -> bool:
        try:
            self._descent.enter(path)
        except OSError:
            return False
        return True


def _home_device(job: dict[str, Any]) -> int:
    return os.stat(job["bases"][b""]).st_dev
