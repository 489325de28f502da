"""Capture worker: compare and scan directories, read changed files into a pack of its own.

The parent (`parallel_scan`) sends a method name with arguments; each method is a generator of answer frames.
`ScanWorker` compares, walks and lists; `CaptureWorker` reads files, seals secrets and writes objects. Several
workers share counters and take work by tickets.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from operator import not_
from typing import Any, NamedTuple

from git_envhist.capture.manifest_shards import leaf_modes, shard_of
from git_envhist.capture.sealed_originals import Rows, sources_again, sources_among
from git_envhist.errors import WorkingTreeGone
from git_envhist.lazy import dataclass
from git_envhist.model import MissingReason
from git_envhist.objects.deflate import crc32
from git_envhist.objects.pack_writer import PackPosition, PackWriter
from git_envhist.paths import display_path, is_root_top, join, root_name_of
from git_envhist.secrets.keys import Key
from git_envhist.secrets.rules import SecretRules
from git_envhist.secrets.seal import keyed_hash, seal
from git_envhist.snapshots.chunks import store_chunks, write_pointer
from git_envhist.snapshots.manifest import format_extras
from git_envhist.snapshots.staging import open_published
from git_envhist.workers import Frame, SharedCounters, serve_spawned
from git_envhist.worktree.databases import find_database_files, report_servers
from git_envhist.worktree.owner_and_xattrs import read_xattrs
from git_envhist.worktree.path_patterns import ignore_rules, path_matcher, without_negation
from git_envhist.worktree.read_file import (
    Block,
    FileVanished,
    KindChanged,
    Unreadable,
    is_gone,
    open_file,
    unreadable,
)
from git_envhist.worktree.scan import (
    ExcludedPath,
    ScanLimits,
    ScannedDirectory,
    ScannedEntry,
    Scanner,
    build_record,
    open_cursor,
    walk,
    walk_breadth_first,
)
from git_envhist.worktree.sealed_copies import SealedSources
from git_envhist.worktree.stat_cache import (
    COLUMNS,
    INODE,
    MODE,
    SIZE,
    CacheHeader,
    CacheShard,
    DirectoryRecord,
    DirectoryRecords,
    StatCache,
    cut,
    decode,
    differing_records,
    gc_paused,
    root_directories_in,
)
from git_envhist.worktree.store_content import BudgetExceeded, ContentPolicy, FileSaver

# The worker's pack, with counters shared by all workers.


class PackBlobStore:
    """Store contents in the worker's pack."""

    def __init__(self, writer: PackWriter, shared: SharedCounters, number: int) -> None:
        self._writer = writer
        self._shared = shared
        self._number = number
        self._files = self._bytes = 0

    def add_blob(self, data: bytes) -> bytes:
        """Store a blob and return its id."""
        self._files += 1
        self._bytes += len(data)
        oid = self._writer.add(b"blob", data)
        self._count()
        return oid

    def add_big(self, blocks: Iterator[Block]) -> tuple[int, bytes, bytes]:
        """Store a big file in chunks; return its size, the id of its pointer blob, and that of its chunk
        tree."""
        self._files += 1
        size, tree = store_chunks(self._writer, self._counted(blocks))
        pointer = self._writer.add(b"blob", write_pointer(size, tree))
        self._count()
        return size, pointer, tree

    def mark(self) -> PackPosition:
        """Return the current position, for `forget`."""
        return self._writer.mark()

    def forget(self, mark: tuple[int, int, int]) -> None:
        """Remove everything added since `mark`."""
        self._writer.rollback(PackPosition(*mark))
        # Bytes that were removed must not count against the budget of the other workers.
        self._count()

    def added_bytes(self) -> int:
        """Return the number of bytes stored by all workers."""
        return self._shared.stored()

    def _counted(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            self._bytes += block if isinstance(block, int) else len(block)
            yield block
            self._count()

    def _count(self) -> None:
        self._shared.count(self._number, self._files, self._bytes, self._writer.stored_bytes)


# The content policy from the rules of a scope.


def secret_rules(patterns: Sequence[str]) -> SecretRules:
    """Return the rules for `envhist.secret`: the last matching pattern decides, as in .gitignore."""
    negated = [pattern for pattern in patterns if pattern.startswith("!")]
    excluded = path_matcher(without_negation(patterns)) if negated else None
    return SecretRules(path_matcher(patterns), excluded)


def make_policy(job: dict[str, Any]) -> ContentPolicy:
    """Return the content policy described by a job."""
    rules = secret_rules(job["secret"])
    key = Key.of(job["key"]) if job["key"] is not None else None
    encrypted = frozenset(job["encrypted"])

    def is_secret(path: bytes) -> bool:
        return (path in encrypted and not rules.excludes(path)) or rules.by_name(path)

    def names_in(directory: bytes) -> Callable[[bytes], bool]:
        return rules.names_in(directory) if not encrypted else lambda name: is_secret(join(directory, name))

    return ContentPolicy(
        secret_name=is_secret,
        secret_names=names_in,
        scans_content=rules.scans_content,
        secret_content=rules.by_content,
        excluded=rules.excludes,
        fingerprinted=path_matcher(job["fingerprint"]),
        seal=None if key is None else lambda path, data: seal(key, display_path(path), b"file", data),
        keyed_hash=None if key is None else lambda data: keyed_hash(key, data),
        big_file=job["big_file"],
        holds_databases=job["holds_databases"],
    )


# A second scan of the environment by the same command under the same locks.
# A restore records the snapshot it produced. Only the files it wrote, all of them verified, need a scan;
# changes by other processes meanwhile are found by the next capture, as after any scan.

ScanTargets = Mapping[bytes, frozenset[bytes] | None]
"""Directory -> names that may have changed; None if any name may have."""


class WrittenFile(NamedTuple):
    """A file or link written by a restore and read back; it has no attributes besides mode and time."""

    row: tuple[int, int, int, int, int]
    """Change time, modification time, size, inode and mode before it was read back."""
    oid: bytes


WrittenFiles = Mapping[bytes, Mapping[bytes, WrittenFile | None]]
"""Directory -> name -> the written file, or None if the name was removed."""


@dataclass(frozen=True, slots=True)
class KnownWrites:
    """The environment as captured earlier by the same command."""

    commit: str
    """The snapshot of that capture."""
    directories: ScanTargets
    """Names that may have changed since; nothing else is scanned."""
    written: WrittenFiles | None = None
    """Files written there, if all of them are known."""
    records: DirectoryRecords | None = None
    """The records of that capture."""


def directories_to_scan(since: KnownWrites | None, head: CacheHeader | None) -> ScanTargets | None:
    """Return the directories to scan; None for all if the records are not those of that capture."""
    if since is None or head is None or head.base != since.commit:
        return None
    return since.directories


class ScanWorker:
    """Scan directories and keep the result until the parent asks to read."""

    def __init__(self, job: dict[str, Any], shared: SharedCounters) -> None:
        self._job = job
        self._shared = shared
        self._started_ns: int = job["started_ns"]
        self._descent = open_cursor(job["bases"])
        self._ignored = ignore_rules(job["ignore"], job["exclude"])
        self._limits = ScanLimits(job["pruned"], job["cross_mounts"], job["mounts_known"], job["known"])
        self._scanner = Scanner(self._descent, self._ignored, self._limits, self._started_ns)
        self._visits: dict[bytes, ScannedDirectory] = {}
        self._defer_from = 0
        self._deferring: set[bytes] = set()
        self._unlisted: dict[bytes, int] = {}
        self._failed: dict[bytes, Unreadable] = {}
        """Directories with a failed stat."""

    def do_check(
        self, chunks: list[list[CacheShard]], distrust: bool, only: ScanTargets | None
    ) -> Iterator[Frame]:
        """Compare recorded directories with the file system and scan those that differ, while there are
        tickets.

        Yields ("new", directory without a record), ("gone", removed directory), ("mounted", directory on
        which a file system is mounted now), ("top", top of a root with a record), ("damaged",). `only` limits
        the scan to these directories and entries.
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

    def _check(self, records: bytes, distrust: bool, only: ScanTargets | None) -> Iterator[Frame]:
        for top in root_directories_in(records):
            yield ("top", top)
        if only is not None:
            wanted = [(encoded, only[path]) for path, encoded in cut(records) if path in only]
            # Entries known to have changed need no comparison.
            for encoded, names in wanted:
                if names is not None:
                    yield from self._rescan(decode(encoded), names)
            records = b"".join([encoded for encoded, names in wanted if names is None])
        if not distrust:
            for encoded in differing_records(records, self._job["bases"], self._descent.enter):
                yield from self._rescan(decode(encoded))
            return
        for path, encoded in cut(records):
            if self._scanner.is_left_out(path):
                yield ("gone", path)
            else:
                yield from self._rescan(decode(encoded))

    def _rescan(self, record: DirectoryRecord, names: frozenset[bytes] | None = None) -> Iterator[Frame]:
        visit = self._visit(record.path, record, names)
        if visit is None:
            yield self._failure_frame(record.path, self._scanner.missing_reason)
            return
        for name in set(visit.subdirectories).difference(record.subdirectories):
            yield ("new", join(record.path, name))

    def do_spread(self, tops: list[bytes], enough: int) -> Iterator[Frame]:
        """Yield ("walked", directories at and below the tops) and ("waiting", subtrees for all workers)."""
        unlisted: dict[bytes, int] = {}
        walked, waiting = walk_breadth_first(
            self._descent, tops, enough, self._limits, self._ignored, unlisted
        )
        yield ("walked", walked, unlisted)
        yield ("waiting", waiting, {})

    def do_walk(self, chunks: list[list[bytes]]) -> Iterator[Frame]:
        """Yield ("walked", directories at and below a chunk) while there are tickets."""
        while (ticket := self._shared.take()) is not None:
            unlisted: dict[bytes, int] = {}
            walked = walk(self._descent, chunks[ticket], self._limits, self._ignored, unlisted)
            yield ("walked", walked, unlisted)

    def do_scan(self, chunks: list[list[bytes]], unlisted: dict[bytes, int]) -> Iterator[Frame]:
        """Scan directories without a record, in chunks, while there are tickets.

        `unlisted` are directories that could not be listed during the walk, with the errno.
        """
        self._unlisted = unlisted
        while (ticket := self._shared.take()) is not None:
            for path in chunks[ticket]:
                if self._visit(path, None) is None:
                    yield self._failure_frame(path, lambda _: "gone")

    def _failure_frame(self, path: bytes, missing_reason: Callable[[bytes], str]) -> Frame:
        """Return the frame for a directory that could not be scanned: ("gone", ...) or ("failed", ..., why,
        detail)."""
        reason = self._failed.pop(path, None)
        return (
            (missing_reason(path), path)
            if reason is None
            else ("failed", path, reason.why.value, reason.detail)
        )

    def do_summary(self) -> Iterator[Frame]:
        """Yield ("summary", scanned directories, files to read, their bytes)."""
        sizes = self._sizes()
        yield ("summary", len(self._visits), len(sizes), sum(sizes))

    def do_sizes(self) -> Iterator[Frame]:
        yield ("sizes", array("q", self._sizes()).tobytes())

    def do_listing(self) -> Iterator[Frame]:
        """Yield ("listing", directory, files, bytes, missing) for what would be read."""
        for path, visit in self._visits.items():
            sizes = [leaf.row[SIZE] for leaf in visit.pending]
            yield ("listing", path, len(sizes), sum(sizes), visit.missing)

    def do_defer(self, defer_from: int) -> Iterator[Frame]:
        """Yield ("deferred", directory, name, size, device, inode) for each file of at least this size."""
        self._defer_from = defer_from
        for path, visit in self._visits.items():
            for leaf in visit.unread:
                if self._is_large(leaf):
                    self._deferring.add(path)
                    yield (
                        "deferred",
                        path,
                        leaf.name,
                        leaf.row[SIZE],
                        visit.own_stat.st_dev,
                        leaf.row[INODE],
                    )

    def _without_deferred(self, visit: ScannedDirectory) -> tuple[list[ScannedEntry], list[ScannedEntry]]:
        """Return the files of a directory to read now, and the deferred ones."""
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
        """Return a directory that cannot be scanned with the metadata that its parent shows; None if it is
        gone."""
        parent, _, name = path.rpartition(b"/")
        try:
            if is_root_top(path):
                own_stat = self._descent.base(root_name_of(path))
            else:
                self._descent.enter(parent)
                own_stat = os.lstat(name)
        except OSError as failed:
            # An unreadable ancestor is reported itself.
            if not is_gone(failed) and not isinstance(failed, PermissionError):
                self._failed[path] = unreadable(failed)
            return None
        if isinstance(error, ExcludedPath) or not stat.S_ISDIR(own_stat.st_mode):
            return None
        visit = ScannedDirectory(path, own_stat, is_young=True)
        reason = unreadable(error)
        visit.report_missing(b"", reason.why, reason.detail)
        return visit


# The full worker: reads files through sealing into its pack.

CHECK_PARENT_EVERY = 64
Names = list[tuple[bytes, bytes]]
"""All hard links of one file, as (directory, name)."""


class CaptureWorker(ScanWorker):
    """Read the scanned files when the parent asks for it."""

    def __init__(self, job: dict[str, Any], shared: SharedCounters, number: int) -> None:
        device = _top_device(job)
        super().__init__(job, shared)
        self._parent = os.getppid()
        self._known = open_published(job["common_state"], job["pack_dir"], job["object_format"])
        self._writer = PackWriter(job["staging_packs"], job["object_format"], self._known.__contains__)
        blobs = PackBlobStore(self._writer, shared, number)
        self._width = 20 if job["object_format"] == "sha1" else 32
        self._policy = make_policy(job)
        self._saver = FileSaver(blobs, format_extras, self._policy, job["budget"], device)

    def call(self, method: str, arguments: tuple[Any, ...]) -> Iterator[Frame]:
        generator: Iterator[Frame] = getattr(self, "do_" + method)(*arguments)
        return generator

    def close(self) -> None:
        """Close all files; drop an unfinished pack."""
        self._descent.close()
        self._known.close()
        self._writer.abort()

    # Requests of the parent, in addition to those of `ScanWorker`.

    def do_sources(self, known: Rows) -> Iterator[Frame]:
        """Yield ("source", ...) for each file sealed by name, among those to read and those `known`."""
        key = self._job["twin"]
        yield from sources_again(key, known, self._job["bases"], self._policy)
        yield from sources_among(key, self._visits, self._descent, self._policy)

    def do_read(self, files: list[Names], twins: tuple[Any, ...]) -> Iterator[Frame]:
        """Read all files that are not deferred; yield ("directory", ...) for each completed directory.

        A worker that is done continues with the deferred `files`, as in `do_large`. `twins` recognises copies
        of sealed files.
        """
        self._saver.twins = SealedSources(*twins)
        for number, path in enumerate(list(self._visits)):
            if number % CHECK_PARENT_EVERY == 0 and os.getppid() != self._parent:
                raise SystemExit
            if self._read(path):
                yield self._finish(path)
        if files:
            yield from self.do_large(files)

    def do_large(self, files: list[Names] | None) -> Iterator[Frame]:
        """Read deferred files of any worker; yield ("large", directory, name, result).

        One worker reads all hard links of a file, because each worker would store it again.
        """
        while files is not None and (ticket := self._shared.take()) is not None:
            for directory, name in files[ticket]:
                yield ("large", directory, name, *self._store_deferred(directory, name))

    def do_settle(self, results: list[tuple[Any, ...]]) -> Iterator[Frame]:
        """Finish directories after their deferred files have been read."""
        own_results: dict[bytes, list[tuple[Any, ...]]] = {}
        for directory, *result in results:
            if directory in self._visits:
                own_results.setdefault(directory, []).append(tuple(result))
        for path, taken in own_results.items():
            self._visits[path].settle(taken)
            yield self._finish(path)

    def do_pack(self) -> Iterator[Frame]:
        """Yield ("pack", ...) if a pack was written, or ("objects", ...) if there were few objects."""
        few = self._writer.take_out()
        if few is not None:
            yield ("objects", few)
            return
        pack = self._writer.finish()
        if pack is not None:
            yield ("pack", pack.name, pack.pack_path, pack.index_path, pack.objects, pack.size)

    def _read(self, path: bytes) -> bool:
        """Read the files of a directory; return whether it is complete, with no deferred files left."""
        visit = self._visits[path]
        if not visit.unread and not visit.databases:
            return True
        try:
            self._descent.enter(path)
        except OSError as error:
            self._mark_unreadable(visit, error)
            return True
        now, later = self._without_deferred(visit)
        lost = [leaf for leaf in now if not self._store(visit, leaf)]
        visit.unread = later
        for database, sidecars in visit.databases:
            lost += self._store_database(visit, database, sidecars)
        visit.drop(lost)
        return not later

    def _store_database(
        self, visit: ScannedDirectory, database: ScannedEntry, sidecars: list[ScannedEntry]
    ) -> list[ScannedEntry]:
        try:
            descriptor = open_file(database.name)
        except (FileVanished, Unreadable, KindChanged):
            members = [leaf for leaf in (database, *sidecars) if leaf.is_pending]
            return [leaf for leaf in members if not self._store(visit, leaf)]
        try:
            return self._saver.store_database(visit, database, sidecars, descriptor)
        except BudgetExceeded:
            visit.report_missing(
                database.name, MissingReason(self._job["budget_reason"]), f"{database.row[SIZE]} bytes"
            )
            return [database, *sidecars]
        finally:
            os.close(descriptor)

    def _store(self, visit: ScannedDirectory, leaf: ScannedEntry) -> bool:
        try:
            return self._saver.store(visit, leaf)
        except BudgetExceeded:
            visit.report_missing(
                leaf.name, MissingReason(self._job["budget_reason"]), f"{leaf.row[SIZE]} bytes"
            )
            return False

    def _store_deferred(self, directory: bytes, name: bytes) -> tuple[Any, ...]:
        try:
            own_stat = self._descent.enter(directory)
            seen = os.lstat(name)
        except FileNotFoundError:
            return (None, b"", b"", b"", [])
        except OSError as error:
            reason = unreadable(error)
            return (None, b"", b"", b"", [(name, reason.why.value, reason.detail)])
        visit = ScannedDirectory(directory, own_stat)
        leaf = ScannedEntry(name, COLUMNS(seen), True)
        if not self._store(visit, leaf):
            return (None, b"", b"", b"", visit.missing)
        return (leaf.row, leaf.oid, leaf.extras, leaf.pieces, visit.missing)

    def _mark_unreadable(self, visit: ScannedDirectory, error: OSError) -> None:
        reason = unreadable(error)
        for leaf in visit.pending:
            visit.report_missing(leaf.name, reason.why, reason.detail)
        visit.drop(visit.pending)
        visit.unread, visit.databases = [], []

    def _finish(self, path: bytes) -> Frame:
        visit = self._visits.pop(path)
        extras = self._directory_extras(visit)
        old_record = visit.old_record
        record = build_record(visit, self._started_ns, self._width, extras)
        record.shard = self._writer.add(
            b"blob", shard_of(record, old_record, visit.changed_entries, self._read_old)
        )
        record.leaf_modes = leaf_modes(record)
        missing = [(join(path, name) if name else path, why, detail) for name, why, detail in visit.missing]
        missing = [(display_path(name), why, detail) for name, why, detail in missing]
        return ("directory", path, record.encode(), missing, list(record.pieces.values()))

    def _directory_extras(self, visit: ScannedDirectory) -> bytes:
        """Return the manifest words of the directory itself: owner and, if readable, extended attributes."""
        xattrs: list[tuple[bytes, bytes]] = []
        unread = ""
        try:
            self._descent.enter(visit.path)
            xattrs, unread = read_xattrs(b".")
        except OSError as error:
            unread = "" if is_gone(error) else unreadable(error).detail
        if unread and not any(not name for name, _, _ in visit.missing):
            visit.report_missing(b"", MissingReason.ATTRIBUTES, unread)
        return format_extras(uid=visit.own_stat.st_uid, gid=visit.own_stat.st_gid, xattrs=xattrs)

    def _read_old(self, oid: bytes) -> bytes:
        return self._known.read(oid[: self._width])[1]


def _top_device(job: dict[str, Any]) -> int:
    """Return the device of the working tree's top; raise WorkingTreeGone if it was removed."""
    try:
        return os.stat(job["bases"][b""]).st_dev
    except (FileNotFoundError, NotADirectoryError) as error:
        raise WorkingTreeGone from error


if __name__ == "__main__":
    serve_spawned(sys.argv[1:], CaptureWorker)
