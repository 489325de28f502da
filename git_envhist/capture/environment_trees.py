"""Build the trees of a capture in a staging directory, from the stat cache and the scan result.

`TreeCapture` decides whether the stat cache may be used, starts the workers, and merges their results. If the
cache or the snapshot it refers to is damaged, it reads everything again without the cache.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from git_envhist.capture.capture_worker import (
    KnownWrites,
    ScanTargets,
    WrittenFile,
    WrittenFiles,
    directories_to_scan,
    make_policy,
)
from git_envhist.capture.manifest_shards import leaf_modes, shard_of
from git_envhist.capture.parallel_scan import (
    ProgressCallback,
    RecordChanges,
    ScanDriver,
    ScanResult,
    merge_pieces,
    merge_records,
    worker_count,
)
from git_envhist.capture.scope import CaptureScope
from git_envhist.capture.sealed_originals import TWINS
from git_envhist.capture.tree_builder import BuiltTree, Holds, TreeBuilder, count_added_paths
from git_envhist.config import Settings
from git_envhist.errors import Damaged, in_words
from git_envhist.git.repository import Repository
from git_envhist.lazy import dataclass, field
from git_envhist.model import ChangeCount, EnvPath, MissingPath, MissingReason
from git_envhist.objects.commits import parse_commit
from git_envhist.objects.deflate import crc32
from git_envhist.objects.own_packs import OwnPacks
from git_envhist.objects.pack_file import JOINED
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_writer import PackWriter, StagedPack
from git_envhist.objects.trees import decode_tree
from git_envhist.paths import DOT_GIT, display_path, join, path_below_root, root_name_of
from git_envhist.platform import DIRECTORY, NOFOLLOW, SYSTEM, free_bytes
from git_envhist.secrets.keys import Key
from git_envhist.snapshots.layout import MANIFEST, ManifestTree, ObjectSink
from git_envhist.snapshots.manifest import format_extras
from git_envhist.snapshots.staging import Staging, open_published
from git_envhist.snapshots.stored_names import RESERVED
from git_envhist.trace import trace, trace_step
from git_envhist.watcher.client import ask_changes, carry_token, keep_token
from git_envhist.workers import WorkerHandle
from git_envhist.worktree.databases import SIDECARS, may_have_servers
from git_envhist.worktree.owner_and_xattrs import read_xattrs
from git_envhist.worktree.scan import ScannedDirectory, ScannedEntry, build_record, is_settled, leaf_of
from git_envhist.worktree.stat_cache import (
    COLUMNS,
    INCOMPLETE,
    SIZE,
    WIDTH,
    CacheDamaged,
    CachedFacts,
    CacheHeader,
    DirectoryRecord,
    DirectoryRecords,
    StatCache,
    must_be_looked_at,
)

# Records made without workers after a restore.
# The restore verified each file it wrote and knows its blob, so one stat per file completes the record. If
# anything differs from what the restore left, or is unusual, the workers scan as usual. The next capture
# reads these files itself, because only captures are trusted.

MAX_LISTED_ENTRIES = 2_000
"""In a larger directory, listing the changed entries by name is slower than a scan."""


class RecordTools(NamedTuple):
    """Arguments of `records_from_writes` that are the same for all directories."""

    records: DirectoryRecords
    sink: ObjectSink
    read: Callable[[bytes], bytes]
    width: int
    job: Mapping[str, object]
    """The job that workers would get."""


class KnownWritesDriver:
    """Replace a `ScanDriver` when all changes are known without a scan."""

    def __init__(self, cache: CacheHeader, scan_result: ScanResult) -> None:
        self.cache: CacheHeader | None = cache
        self.lines: list[WorkerHandle] = []
        self._scan_result = scan_result

    def run(self, *, dry_run: bool = False) -> ScanResult:
        return self._scan_result

    def finish_packs(self) -> ScanResult:
        return self._scan_result

    def close(self) -> None:
        """Do nothing: no process was started."""


def records_from_writes(
    writes: WrittenFiles, cache: CacheHeader, tools: RecordTools
) -> KnownWritesDriver | None:
    """Return a driver with the records of directories that a restore wrote to; None if they must be scanned."""
    scan_result = ScanResult()
    job = dict(tools.job)
    if job["ignore"] or job["exclude"] or not job["mounts_known"] or not SYSTEM.nofollow:
        return None
    policy = make_policy(job)
    for path, names in writes.items():
        full = [join(path, name) for name, written in names.items() if written is not None]
        if any(map(policy.secret_name, full)) or (
            policy.fingerprinted and any(map(policy.fingerprinted, full))
        ):
            return None
        try:
            record = _record(path, names, tools)
        except (OSError, CacheDamaged, Damaged):
            record = None
        if record is None:
            return None
        scan_result.directories[path] = record.encode()
        scan_result.pieces[path] = list(record.pieces.values())
    return KnownWritesDriver(cache, scan_result)


def _record(
    path: bytes, names: Mapping[bytes, WrittenFile | None], tools: RecordTools
) -> DirectoryRecord | None:
    old = tools.records.get(path)
    if old is None or old.flags & INCOMPLETE or old.boundaries:
        return None
    bases: Mapping[bytes, bytes] = tools.job["bases"]  # type: ignore[assignment]
    below = path_below_root(path)
    base = bases[root_name_of(path)]
    # A symbolic link in the path could lead outside; `NOFOLLOW` only checks the last component, and the
    # identity of the directory is compared below.
    directory = os.open(base + b"/" + below if below else base, DIRECTORY | NOFOLLOW)
    try:
        return _checked_record(directory, old, names, tools)
    finally:
        os.close(directory)


def _checked_record(
    directory: int, old: DirectoryRecord, names: Mapping[bytes, WrittenFile | None], tools: RecordTools
) -> DirectoryRecord | None:
    own_stat = os.fstat(directory)
    if (own_stat.st_ino, own_stat.st_dev, own_stat.st_uid, own_stat.st_gid) != (
        old.inode,
        old.device,
        old.uid,
        old.gid,
    ):
        return None
    fresh = _written_entries(directory, own_stat, names)
    if fresh is None or not _is_listed(directory, old, names, tools):
        return None
    started: int = tools.job["started_ns"]  # type: ignore[assignment]
    visit = _scanned_directory(old, own_stat, fresh, names)
    if visit is None:
        return None
    visit.is_young = not is_settled(own_stat.st_ctime_ns, own_stat.st_mtime_ns, started)
    old_record, changed = visit.old_record, visit.changed_entries
    xattrs, unread = read_xattrs(directory)
    if unread:
        return None
    extras = format_extras(uid=own_stat.st_uid, gid=own_stat.st_gid, xattrs=xattrs)
    record = build_record(visit, started, tools.width, extras)
    record.shard = tools.sink.add(
        b"blob", shard_of(record, old_record, changed, lambda oid: tools.read(oid[: tools.width]))
    )
    record.leaf_modes = leaf_modes(record)
    return record


def _written_entries(
    directory: int, own_stat: os.stat_result, names: Mapping[bytes, WrittenFile | None]
) -> dict[bytes, ScannedEntry] | None:
    """Return the written entries after one more stat; None if one is not as the restore left it."""
    fresh = {}
    for name, written in names.items():
        if written is None:
            continue
        seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if COLUMNS(seen) != written.row or seen.st_nlink != 1:
            return None
        if (seen.st_uid, seen.st_gid, seen.st_dev) != (own_stat.st_uid, own_stat.st_gid, own_stat.st_dev):
            return None
        # A change time of zero never matches, so the next capture reads the file.
        fresh[name] = ScannedEntry(name, (0, *written.row[1:]), False, written.oid)
    return fresh


def _is_listed(
    directory: int, old: DirectoryRecord, names: Mapping[bytes, WrittenFile | None], tools: RecordTools
) -> bool:
    """Return whether the directory has exactly the expected entries, and none that needs a special scan."""
    listed = _names_in(directory)
    if not old.path:
        listed.discard(DOT_GIT)
    expected = {*old.names, *old.subdirectories}
    for name, written in names.items():
        (expected.discard if written is None else expected.add)(name)
    pruned: Mapping[bytes, object] = tools.job["pruned"]  # type: ignore[assignment]
    if listed != expected or any(join(old.path, name) in pruned for name in names):
        return False
    joined = b"\0".join(listed) + b"\0"
    return not may_have_servers(listed) and not any(tail + b"\0" in joined for tail in SIDECARS)


def _names_in(directory: int) -> set[bytes]:
    if SYSTEM.proc:
        # Listing through /proc gives names as bytes, which is faster than encoding each name.
        return set(os.listdir(b"/proc/self/fd/%d" % directory))
    return set(map(os.fsencode, os.listdir(directory)))


def _scanned_directory(
    old: DirectoryRecord,
    own_stat: os.stat_result,
    fresh: dict[bytes, ScannedEntry],
    names: Mapping[bytes, WrittenFile | None],
) -> ScannedDirectory | None:
    visit = ScannedDirectory(old.path, own_stat)
    visit.subdirectories = old.subdirectories
    numbers = {name: number for name in names if (number := _index_of(old, name)) is not None}
    if len(numbers) == len(fresh) == len(names):
        visit.old_record = old
        visit.changed_entries = {numbers[name]: leaf for name, leaf in fresh.items()}
        return visit
    if len(old.names) > MAX_LISTED_ENTRIES or not fresh.keys().isdisjoint(old.subdirectories):
        return None
    kept = [leaf_of(old, number) for number, name in enumerate(old.names) if name not in names]
    visit.leaves = sorted([*kept, *fresh.values()], key=lambda leaf: leaf.name)
    return visit


def _index_of(record: DirectoryRecord, name: bytes) -> int | None:
    """Return the index of a name; names are sorted."""
    number = bisect_left(record.names, name)
    return number if number < len(record.names) and record.names[number] == name else None


# The captured environment.

MAX_SHOWN = 5
SEALED = b" as=sealed"


@dataclass(slots=True)
class CapturedEnvironment:
    """A captured environment whose trees are in the staging directory."""

    scan_result: ScanResult
    assembled: BuiltTree
    records: DirectoryRecords
    scope: CaptureScope
    tip: str | None
    base: str | None
    merged: RecordChanges
    facts: dict[str, CachedFacts]
    """Fact texts of the snapshot that the stat cache belongs to."""
    pieces: dict[bytes, list[bytes]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    base_manifest: bytes | None = None
    """Manifest tree of the snapshot that the stat cache belongs to."""
    changed: ChangeCount | None = None
    """Changes since that snapshot, if they are known without a comparison."""
    incomplete: set[bytes] = field(default_factory=set)
    """Directories that lost a subdirectory while they were scanned."""

    @property
    def files(self) -> int:
        return self.records.files

    @property
    def out_of_reach(self) -> list[MissingPath]:
        """Return paths that a restore cannot replace by a rename: missing ones and mount points."""
        crossed = [MissingPath(EnvPath(path), MissingReason.MOUNT) for path in self.scope.crossed]
        return [*self.scan_result.missing, *crossed]

    def looked_at_again(self, before: tuple[bytes, ...] | None, *, needed: bool) -> tuple[bytes, ...] | None:
        """Return the directories that the next capture looks at, whatever a watcher reports.

        `before` are those of the stat cache. Without them all records are read, if the result is needed.
        """
        if before is None:
            if not needed:
                return None
            paths: Iterable[bytes] = list(self.records)
        else:
            paths = {*before, *self.merged.changed, *self.incomplete}
        records = ((path, self.records.peek(path)) for path in paths)
        return tuple(sorted(path for path, one in records if one is not None and must_be_looked_at(one)))

    def first_count(self) -> ChangeCount:
        """Return the changes of a first snapshot: every path is added."""
        return ChangeCount(added=count_added_paths(self.records))

    def largest(self) -> tuple[tuple[EnvPath, int, int], ...]:
        """Return the largest top-level directories with the number of files and bytes below them."""
        sums: dict[bytes, list[int]] = {}
        for path in self.records:
            record = self.records.get(path)
            assert record is not None
            row = sums.setdefault(path.partition(b"/")[0], [0, 0])
            row[0] += len(record.names)
            row[1] += sum(record.cells[SIZE::WIDTH])
        rows = [(EnvPath(display_path(name)), files, size) for name, (files, size) in sums.items() if name]
        return tuple(sorted(rows, key=lambda row: -row[2])[:MAX_SHOWN])

    def seals_now(self) -> bool:
        """Return whether this capture sealed a file."""
        return any(SEALED in encoded for encoded in self.scan_result.directories.values())


FREE_FRACTION = 20
"""Fraction of the disk that stays free: 1/20."""
FREE_FRACTION_FOR_RESTORE, UNBOUNDED = 200, 1 << 62
"""For the capture before a restore only 1/200 stays free, because without it the restore cannot run."""


@dataclass(frozen=True, slots=True)
class CaptureTools:
    repository: Repository
    settings: Settings
    how: str


FEW = 16
"""Up to this number of directories, starting a second worker takes longer than it saves."""


def open_stat_cache(repository: Repository) -> StatCache:
    """Return the stat cache of a working tree."""
    return StatCache(os.path.join(repository.state, "cache"), crc32)


class CaptureWatch:
    """The part of a watcher in one capture: the directories that it reports, and the token that it gave."""

    def __init__(self, state: str, question: str) -> None:
        """`question`: the result of `begin_asking`."""
        self._state = state
        self._question = question
        self._token: str | None = None
        self._carried: str | None = None

    @property
    def is_watched(self) -> bool:
        """True if the stat cache of this capture may be used with the watcher."""
        return self._token is not None or self._carried is not None

    @trace_step("ask the watcher")
    def directories_to_scan(self, scope: CaptureScope, head: CacheHeader | None) -> ScanTargets | None:
        """Return the directories that may have changed since the stat cache was written; None for all."""
        known = head if head is not None and head.again is not None else None
        cache = known.id if known is not None else ""
        answer = ask_changes(self._state, self._question, cache, scope.naming, scope.bases)
        if answer is None:
            return None
        self._token = answer.token
        if known is None or answer.directories is None:
            trace(f"the watcher reports nothing: {answer.reason}")
            return None
        assert known.again is not None
        return dict.fromkeys((*answer.directories, *known.again))

    def carry(self, head: CacheHeader | None) -> None:
        """Note that this capture looks only at what the caller changed since a stat cache was written."""
        self._carried = head.id if head is not None and head.again is not None else None

    def keep(self, cache: str) -> None:
        """Tell the watcher that the stat cache with this id has what this capture found."""
        if self._token is not None:
            keep_token(self._state, self._token, cache)
        elif self._carried:
            carry_token(self._state, self._carried, cache)


class TreeCapture:
    """Capture the environment into one staging directory."""

    def __init__(
        self,
        tools: CaptureTools,
        scope: CaptureScope,
        staging: Staging,
        key: Key | None,
        tip: str | None,
        question: str = "",
    ) -> None:
        """`question`: what `begin_asking` returned before the scope was read; empty to ask no watcher."""
        self._tools = tools
        self.repository = tools.repository
        self.settings = tools.settings
        self.scope = scope
        self._staging = staging
        self._key = key
        self._tip = tip
        repository = tools.repository
        self._width = repository.hash_length
        self.known: OwnPacks = open_published(
            repository.common_state, repository.pack_dir, repository.object_format
        )
        self.writer = PackWriter(staging.pack_dir, repository.object_format, self.known.__contains__)
        self._driver: ScanDriver | KnownWritesDriver | None = None
        self._cache_head: CacheHeader | None = None
        self._records: DirectoryRecords | None = None
        self._cache = open_stat_cache(repository)
        self._watch = CaptureWatch(repository.state, question)

    @property
    def tip(self) -> str | None:
        """Return the newest snapshot of the timeline before this one."""
        return self._tip

    def begin(
        self, progress: ProgressCallback | None, since: KnownWrites | None = None
    ) -> ScanDriver | KnownWritesDriver:
        """Start the workers; they run while the caller does other work."""
        if self._driver is None:
            self._cache_head, distrust = self._usable_cache()
            head = None if distrust else self._cache_head
            if since is None:
                wanted = self._watch.directories_to_scan(self.scope, head)
            else:
                wanted = directories_to_scan(since, head)
                self._watch.carry(head if wanted is not None else None)
            self._driver = self._known_writes_driver(since, wanted) or self._start(distrust, progress, wanted)
        return self._driver

    @trace_step("scan the environment")
    def scan(self, progress: ProgressCallback | None) -> ScanResult:
        """Return what a capture would read."""
        return self.begin(progress).run(dry_run=True)

    @trace_step("scan the environment")
    def capture(self, progress: ProgressCallback | None) -> CapturedEnvironment:
        """Capture the environment."""
        driver = self.begin(progress)
        try:
            return self._capture(driver)
        except (CacheDamaged, Damaged):
            if self._cache_head is None:
                raise
            # The cache or its snapshot is damaged, so read everything once without it.
            driver.close()
            self._cache.forget()
            self._cache_head = None
            self._driver = self._start(False, progress)
            return self._capture(self._driver)

    def finish(self, environment: CapturedEnvironment) -> list[StagedPack]:
        """Finish the pack of the trees; return all packs of the snapshot."""
        # A small pack is rewritten by `publish`, so it need not be synced here.
        pack_of_trees = self.writer.finish(durable=self.writer.stored_bytes > JOINED)
        return [*environment.scan_result.packs, *([pack_of_trees] if pack_of_trees else [])]

    def close(self) -> None:
        """Close all files and workers; drop unfinished packs."""
        if self._driver is not None:
            self._driver.close()
        self.known.close()
        self.writer.abort()

    def remember(self, environment: CapturedEnvironment, base: str | None) -> None:
        """Write the stat cache. Errors only cost time in the next capture."""
        if base is None:
            return
        before = self._cache_head
        is_complete = before is not None and before.again is not None
        if base == environment.base and not environment.scan_result.changed:
            if before is not None and is_complete:
                self._watch.keep(before.id)
            if is_complete or not self._watch.is_watched:
                return
            # The cache was written without a watcher, and cannot be used with one.
        records, scope = environment.records, self.scope
        head = CacheHeader(
            id=os.urandom(16).hex(),
            again=environment.looked_at_again(
                before.again if before is not None else None, needed=self._watch.is_watched
            ),
            naming=scope.naming,
            keeping=scope.keeping,
            base=base,
            pieces=environment.pieces,
            elsewhere=environment.assembled.elsewhere,
            files=records.files,
            facts=environment.facts,
        )
        try:
            self._cache.write(head, records.to_write())
            self._watch.keep(head.id)
        except OSError as error:
            environment.warnings.append(
                f"cannot write the stat cache, the next capture will be slower: {in_words(error)}"
            )

    def remember_unpublished(self, environment: CapturedEnvironment) -> None:
        """Write the stat cache although no snapshot was published."""
        # A touched file has a new manifest line and the same content. Its shard is deleted with the staging
        # directory, so a record that names the shard would hide the new time from the next snapshot.
        if environment.assembled.manifest == environment.base_manifest:
            self.remember(environment, environment.base)

    def _usable_cache(self) -> tuple[CacheHeader | None, bool]:
        """Return the stat cache if it is valid, and whether its names must be matched against the patterns
        again."""
        head = self._cache.read_head()
        if head is None or head.keeping != self.scope.keeping:
            return None, False
        # The ids in the cache are only valid while its snapshot is stored.
        if head.base != self._tip and not self._is_stored_snapshot(head.base):
            return None, False
        return head, head.naming != self.scope.naming

    def _is_stored_snapshot(self, commit: str) -> bool:
        return (
            bytes.fromhex(commit) in self.known
            and self._tools.repository.git.try_run(
                "for-each-ref", "--count=1", f"--contains={commit}", "refs/envhist/"
            ).out.strip()
            != b""
        )

    def _known_writes_driver(
        self, since: KnownWrites | None, wanted: ScanTargets | None
    ) -> KnownWritesDriver | None:
        """Return a driver with the records of everything that changed, if that is known without a scan."""
        if since is None or wanted is None or self._cache_head is None:
            return None
        # The records are as in the cache, and most of them were read already.
        self._records = since.records or DirectoryRecords(
            self._cache, self._cache_head.shards, self._cache_head.files
        )
        if since.written is None:
            return None

        tools = RecordTools(
            records=self._records, sink=self.writer, read=self._read, width=self._width, job=self._job()
        )
        return records_from_writes(since.written, self._cache_head, tools)

    def _capture(self, driver: ScanDriver | KnownWritesDriver) -> CapturedEnvironment:
        scan_result = driver.run()
        if self._cache_head is not None:
            # Objects that the cache refers to can only be looked up once the new packs exist.
            self._put(driver.finish_packs())
        environment = self._assemble(scan_result)
        self._put(driver.finish_packs())
        return environment

    def _put(self, scan_result: ScanResult) -> None:
        for oid, entry, checksum in scan_result.objects:
            self.writer.put(oid, entry, checksum)

    def _assemble(self, scan_result: ScanResult) -> CapturedEnvironment:
        cache = self._cache_head
        records, self._records = self._records, None
        if records is None:
            records = (
                DirectoryRecords(self._cache, cache.shards, cache.files)
                if cache
                else DirectoryRecords(self._cache)
            )
        merged = merge_records(records, scan_result)
        base_tree = self._manifest_of(cache.base) if cache else None
        manifest = ManifestTree(self.writer, self._read, base_tree, self._width)
        assembler = TreeBuilder(
            records,
            manifest,
            self.writer,
            self._width,
            holds=self._object_test(scan_result) if cache else None,
            read=self._read,
            elsewhere=cache.elsewhere if cache else {},
        )
        assembled = assembler.assemble(merged)
        base, facts = (cache.base, dict(cache.facts)) if cache else (None, {})
        environment = CapturedEnvironment(
            scan_result=scan_result,
            assembled=assembled,
            records=records,
            scope=self.scope,
            tip=self._tip,
            base=base,
            merged=merged,
            facts=facts,
        )
        environment.incomplete = assembler.incomplete
        environment.pieces = merge_pieces(cache.pieces if cache else {}, scan_result, merged, self._width)
        environment.changed = merged.count() if cache else None
        environment.base_manifest = base_tree
        environment.warnings.extend(self.scope.warnings)
        return environment

    def _object_test(self, scan_result: ScanResult) -> Holds:
        """Return a function that tests whether an object is stored, or will be stored by this capture."""
        fresh = [PackIndex(pack.index_path, self._width) for pack in scan_result.packs]

        def holds(oid: bytes) -> bool:
            return (
                oid in self.writer or oid in self.known or any(index.find(oid) is not None for index in fresh)
            )

        return holds

    def _start(
        self, distrust: bool, progress: ProgressCallback | None, only: ScanTargets | None = None
    ) -> ScanDriver:
        tools, head = self._tools, self._cache_head
        workers = worker_count(tools.settings.workers)
        if only is not None and len(only) <= FEW:
            workers = 1
        return ScanDriver(
            scope=self.scope,
            job=self._job(),
            workers=workers,
            how=tools.how,
            progress=progress,
            cache=head,
            distrust=distrust,
            only=only,
        )

    def _job(self) -> dict[str, Any]:
        repository, settings, scope = self._tools.repository, self._tools.settings, self.scope
        budget, reason = self._budget()
        return {
            "object_format": repository.object_format,
            "common_state": repository.common_state,
            "pack_dir": repository.pack_dir,
            "staging_packs": self._staging.pack_dir,
            "cache": self._cache.directory,
            "started_ns": time.time_ns(),
            "bases": scope.bases,
            "pruned": scope.pruned,
            "known": scope.known,
            "mounts_known": scope.mounts_known,
            "cross_mounts": settings.cross_mounts,
            "ignore": list(scope.ignore),
            "exclude": list(scope.exclude),
            "secret": list(settings.secret),
            # Without a key no secret is stored, so a random key is enough to recognise copies during this
            # capture.
            "twin": self._key.derive(TWINS) if self._key else os.urandom(32),
            "fingerprint": list(scope.fingerprint),
            "encrypted": list(scope.encrypted),
            "key": self._key.material if self._key else None,
            "big_file": settings.big_file,
            # POSIX locks belong to the process: a worker inside a host program would release the program's
            # own locks.
            "holds_databases": self._tools.how != "here",
            "budget": budget,
            "budget_reason": reason,
        }

    def _budget(self) -> tuple[int, str]:
        """Return how many bytes may be added, and the reason to report for paths that do not fit."""
        bounded = self._tools.settings.budget < UNBOUNDED
        available = free_bytes(self._staging.path, FREE_FRACTION if bounded else FREE_FRACTION_FOR_RESTORE)
        if available is not None and available < self._tools.settings.budget:
            return max(0, available), MissingReason.DISK.value
        return self._tools.settings.budget, MissingReason.BUDGET.value

    def _manifest_of(self, commit: str) -> bytes | None:
        _, data = self._read_any(bytes.fromhex(commit))
        root = bytes.fromhex(parse_commit(data).tree)
        for wanted in (RESERVED, MANIFEST):
            entries = {name: oid for name, _, oid in decode_tree(self._read(root), self._width)}
            if wanted not in entries:
                raise CacheDamaged
            root = entries[wanted]
        return root

    def _read(self, oid: bytes) -> bytes:
        return self._read_any(oid)[1]

    def _read_any(self, oid: bytes) -> tuple[bytes, bytes]:
        try:
            return self.known.read(oid)
        except KeyError as missing:
            raise CacheDamaged from missing
