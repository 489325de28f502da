"""The environment as trees in a staging: with what the cache remembers, or from scratch where it cannot be trusted."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from git_envhist.capture.collect import (
    RecordChanges,
    ScanDriver,
    ScanResult,
    Tick,
    merge,
    merge_pieces,
    worker_count,
)
from git_envhist.capture.manifest_shards import leaf_modes, shard_of
from git_envhist.capture.scope import CaptureScope
from git_envhist.capture.tree_builder import BuiltTree, Holds, TreeBuilder, count_added_paths
from git_envhist.capture.twin_sources import TWINS
from git_envhist.capture.worker import (
    KnownWrites,
    Told,
    Wanted,
    WrittenFile,
    directories_to_scan,
    make_policy,
)
from git_envhist.config import Settings
from git_envhist.errors import Damaged, in_words
from git_envhist.git.repository import Repository
from git_envhist.lazy import dataclass, field
from git_envhist.model import ChangeCount, EnvPath, MissingPath, MissingReason
from git_envhist.objects.commits import parse_commit
from git_envhist.objects.compress import crc32
from git_envhist.objects.own_packs import OwnPacks
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_reader import JOINED
from git_envhist.objects.pack_writer import PackWriter, StagedPack
from git_envhist.objects.trees import decode_tree
from git_envhist.paths import DOT_GIT, display_path, join, path_below_root, root_name_of
from git_envhist.platform import DIRECTORY, NOFOLLOW, SYSTEM, free_bytes
from git_envhist.secrets.keys import Key
from git_envhist.snapshots.layout import MANIFEST, ManifestTree, ObjectSink
from git_envhist.snapshots.manifest import format_extras
from git_envhist.snapshots.names import RESERVED
from git_envhist.snapshots.staging import Staging, open_published
from git_envhist.trace import step
from git_envhist.workers import WorkerHandle
from git_envhist.worktree.attributes import read_xattrs
from git_envhist.worktree.databases import SIDECARS, may_have_servers
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
)

# Directories of which it is known what was put into them: their records are made of that and of one more look.
#
# A restore has read back every byte that it wrote, and knows which blob they are. What else a record says is told by a
# stat: so nothing is read again, and no worker is asked. Whatever a worker would look at is looked at, and where
# anything is not exactly as it was left, or out of the ordinary, none of this counts: the workers look as ever.
#
# The next capture reads these files itself all the same: it relies on no word but a capture's.

MANY = 2_000
"""To name the entries of a larger directory one by one takes longer than to have it looked into."""


class RecordTools(NamedTuple):
    """What records are made with."""

    records: DirectoryRecords
    sink: ObjectSink
    read: Callable[[bytes], bytes]
    width: int
    job: Mapping[str, object]
    """What the workers would be told."""


class KnownWritesDriver:
    """Stands in for the workers: all that they could find is known."""

    def __init__(self, cache: CacheHeader, gathered: ScanResult) -> None:
        self.cache: CacheHeader | None = cache
        self.lines: list[WorkerHandle] = []
        self._gathered = gathered

    def gather(self, *, dry_run: bool = False) -> ScanResult:
        return self._gathered

    def finish_packs(self) -> ScanResult:
        return self._gathered

    def close(self) -> None:
        """There is nothing to end."""


def records_from_writes(told: Told, cache: CacheHeader, means: RecordTools) -> KnownWritesDriver | None:
    """The records of directories in which something landed; None where they have to be looked into."""
    gathered = ScanResult()
    job = dict(means.job)
    if job["ignore"] or job["exclude"] or not job["mounts_known"] or not SYSTEM.nofollow:
        return None
    policy = make_policy(job)
    for path, names in told.items():
        full = [join(path, name) for name, landed in names.items() if landed is not None]
        if any(map(policy.secret_name, full)) or (
            policy.fingerprinted and any(map(policy.fingerprinted, full))
        ):
            return None
        try:
            record = _record(path, names, means)
        except (OSError, CacheDamaged, Damaged):
            record = None
        if record is None:
            return None
        gathered.directories[path] = record.encode()
        gathered.pieces[path] = list(record.pieces.values())
    return KnownWritesDriver(cache, gathered)


def _record(
    path: bytes, names: Mapping[bytes, WrittenFile | None], means: RecordTools
) -> DirectoryRecord | None:
    old = means.records.get(path)
    if old is None or old.flags & INCOMPLETE or old.boundaries:
        return None
    bases: Mapping[bytes, bytes] = means.job["bases"]  # type: ignore[assignment]
    below = path_below_root(path)
    base = bases[root_name_of(path)]
    # A link on the way leads to another directory than the one that the record tells of, or to the very one.
    directory = os.open(base + b"/" + below if below else base, DIRECTORY | NOFOLLOW)
    try:
        return _look(directory, old, names, means)
    finally:
        os.close(directory)


def _look(
    directory: int, old: DirectoryRecord, names: Mapping[bytes, WrittenFile | None], means: RecordTools
) -> DirectoryRecord | None:
    own = os.fstat(directory)
    if (own.st_ino, own.st_dev, own.st_uid, own.st_gid) != (old.inode, old.device, old.uid, old.gid):
        return None
    fresh = _fresh(directory, own, names)
    if fresh is None or not _is_listed(directory, old, names, means):
        return None
    started: int = means.job["started_ns"]  # type: ignore[assignment]
    visit = _visit(old, own, fresh, names)
    if visit is None:
        return None
    visit.young = not is_settled(own.st_ctime_ns, own.st_mtime_ns, started)
    like, changed = visit.like, visit.fresh
    xattrs, unread = read_xattrs(directory)
    if unread:
        return None
    extras = format_extras(uid=own.st_uid, gid=own.st_gid, xattrs=xattrs)
    record = build_record(visit, started, means.width, extras)
    record.shard = means.sink.add(
        b"blob", shard_of(record, like, changed, lambda oid: means.read(oid[: means.width]))
    )
    record.leaf_modes = leaf_modes(record)
    return record


def _fresh(
    directory: int, own: os.stat_result, names: Mapping[bytes, WrittenFile | None]
) -> dict[bytes, ScannedEntry] | None:
    """What landed, looked at once more; None where it is not as it was left."""
    fresh = {}
    for name, landed in names.items():
        if landed is None:
            continue
        seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if COLUMNS(seen) != landed.row or seen.st_nlink != 1:
            return None
        if (seen.st_uid, seen.st_gid, seen.st_dev) != (own.st_uid, own.st_gid, own.st_dev):
            return None
        # A change time of zero never matches: the next capture looks for itself.
        fresh[name] = ScannedEntry(name, (0, *landed.row[1:]), False, landed.oid)
    return fresh


def _is_listed(
    directory: int, old: DirectoryRecord, names: Mapping[bytes, WrittenFile | None], means: RecordTools
) -> bool:
    """Whether the directory has the entries that it should have and no others, and none that mean more than a file."""
    listed = _names_in(directory)
    if not old.path:
        listed.discard(DOT_GIT)
    expected = {*old.names, *old.subdirectories}
    for name, landed in names.items():
        (expected.discard if landed is None else expected.add)(name)
    pruned: Mapping[bytes, object] = means.job["pruned"]  # type: ignore[assignment]
    if listed != expected or any(join(old.path, name) in pruned for name in names):
        return False
    joined = b"\0".join(listed) + b"\0"
    return not may_have_servers(listed) and not any(tail + b"\0" in joined for tail in SIDECARS)


def _names_in(directory: int) -> set[bytes]:
    if SYSTEM.proc:
        # By another name of what is open: names come as bytes then, which is quicker than to make them of words.
        return set(os.listdir(b"/proc/self/fd/%d" % directory))
    return set(map(os.fsencode, os.listdir(directory)))


def _visit(
    old: DirectoryRecord,
    own: os.stat_result,
    fresh: dict[bytes, ScannedEntry],
    names: Mapping[bytes, WrittenFile | None],
) -> ScannedDirectory | None:
    visit = ScannedDirectory(old.path, own)
    visit.subdirectories = old.subdirectories
    numbers = {name: number for name in names if (number := _number(old, name)) is not None}
    if len(numbers) == len(fresh) == len(names):
        visit.like = old
        visit.fresh = {numbers[name]: leaf for name, leaf in fresh.items()}
        return visit
    if len(old.names) > MANY or not fresh.keys().isdisjoint(old.subdirectories):
        return None
    kept = [leaf_of(old, number) for number, name in enumerate(old.names) if name not in names]
    visit.leaves = sorted([*kept, *fresh.values()], key=lambda leaf: leaf.name)
    return visit


def _number(record: DirectoryRecord, name: bytes) -> int | None:
    """Which entry bears a name; they stand in the order of their names."""
    number = bisect_left(record.names, name)
    return number if number < len(record.names) and record.names[number] == name else None


# An environment as it was taken, and what can be told of it.

MAX_SHOWN = 5
SEALED = b" as=sealed"


@dataclass(slots=True)
class CapturedEnvironment:
    """An environment, taken: its trees stand in the staging."""

    gathered: ScanResult
    assembled: BuiltTree
    records: DirectoryRecords
    survey: CaptureScope
    tip: str | None
    base: str | None
    merged: RecordChanges
    facts: dict[str, CachedFacts]
    """What the snapshot says beside the files that the cache relies on."""
    pieces: dict[bytes, list[bytes]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    base_manifest: bytes | None = None
    """The manifest of the snapshot that the cache relies on."""
    changed: ChangeCount | None = None
    """What differs from that snapshot, where it is known without comparing."""

    @property
    def files(self) -> int:
        return self.records.files

    @property
    def out_of_reach(self) -> list[MissingPath]:
        """What nothing can be renamed into: what is not here, and what is mounted, captured or not."""
        crossed = [MissingPath(EnvPath(path), MissingReason.MOUNT) for path in self.survey.crossed]
        return [*self.gathered.missing, *crossed]

    def first_count(self) -> ChangeCount:
        """What a first snapshot adds: everything."""
        return ChangeCount(added=count_added_paths(self.records))

    def largest(self) -> tuple[tuple[EnvPath, int, int], ...]:
        """The directories at the top by size, with the files and bytes below them."""
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
        """Whether a file that was looked at just now stands sealed in the snapshot."""
        return any(SEALED in encoded for encoded in self.gathered.directories.values())


KEPT_FREE = 20
"""A twentieth of the disk is never ours."""
LITTLE, UNBOUNDED = 200, 1 << 62
"""But for what a restore saves: without it nothing would be restored."""


@dataclass(frozen=True, slots=True)
class Tools:
    repository: Repository
    settings: Settings
    how: str


def cache_of(repository: Repository) -> StatCache:
    """What is remembered of a working tree."""
    return StatCache(os.path.join(repository.state, "cache"), crc32)


class TreeCapture:
    """Takes the environment into one staging."""

    def __init__(
        self, tools: Tools, survey: CaptureScope, staging: Staging, key: Key | None, tip: str | None
    ) -> None:
        self._tools = tools
        self.repository = tools.repository
        self.settings = tools.settings
        self.survey = survey
        self._staging = staging
        self._key = key
        self._tip = tip
        repository = tools.repository
        self._width = repository.hash_length
        self.known: OwnPacks = open_published(
            repository.common_state, repository.pack_dir, repository.object_format
        )
        self.writer = PackWriter(staging.pack_dir, repository.object_format, self.known.__contains__)
        self._gatherer: ScanDriver | KnownWritesDriver | None = None
        self._cache_head: CacheHeader | None = None
        self._records: DirectoryRecords | None = None
        self._cache = cache_of(repository)

    @property
    def tip(self) -> str | None:
        """The newest snapshot of the timeline, before this one."""
        return self._tip

    def begin(
        self, progress: Tick | None, since: KnownWrites | None = None
    ) -> ScanDriver | KnownWritesDriver:
        """Have the workers begin; what the caller does before it asks for what they found costs no time."""
        if self._gatherer is None:
            self._cache_head, distrust = self._usable_cache()
            head = None if distrust else self._cache_head
            wanted = directories_to_scan(since, head)
            self._gatherer = self._land(since, wanted) or self._start(distrust, progress, wanted)
        return self._gatherer

    @step("the environment is looked at")
    def look(self, progress: Tick | None) -> ScanResult:
        """What a capture would read, and nothing more."""
        return self.begin(progress).gather(dry_run=True)

    @step("the environment is looked at")
    def take(self, progress: Tick | None) -> CapturedEnvironment:
        """Take it."""
        gatherer = self.begin(progress)
        try:
            return self._take(gatherer)
        except (CacheDamaged, Damaged):
            if self._cache_head is None:
                raise
            # The cache, or what it relies on, is not whole: everything is read once, and nothing is lost.
            gatherer.close()
            self._cache.forget()
            self._cache_head = None
            self._gatherer = self._start(False, progress)
            return self._take(self._gatherer)

    def finish(self, taken: CapturedEnvironment) -> list[StagedPack]:
        """Complete the pack of the trees; all packs that the snapshot needs."""
        # A small one is written once more by who publishes it; until then git reads it here, and nothing relies on it.
        pack_of_trees = self.writer.finish(durable=self.writer.stored_bytes > JOINED)
        return [*taken.gathered.packs, *([pack_of_trees] if pack_of_trees else [])]

    def close(self) -> None:
        """Let go of every file; what was not finished is forgotten."""
        if self._gatherer is not None:
            self._gatherer.close()
        self.known.close()
        self.writer.abort()

    def remember(self, taken: CapturedEnvironment, base: str | None) -> None:
        """Keep what was seen for next time; best effort, since it costs nothing but time to lose it."""
        if base is None or (base == taken.base and not taken.gathered.changed):
            return
        records, survey = taken.records, self.survey
        elsewhere = taken.assembled.elsewhere
        rules, counted = (survey.naming, survey.keeping), (records.files, taken.facts)
        head = CacheHeader(*rules, base, (), taken.pieces, elsewhere, *counted)
        try:
            self._cache.write(head, records.to_write())
        except OSError as error:
            taken.warnings.append(f"the next capture will take longer: {in_words(error)}")

    def remember_unpublished(self, taken: CapturedEnvironment) -> None:
        """Keep what was seen though no snapshot was made of it."""
        # A file that was touched has another manifest line and the same content. Its shard goes with the staging, so
        # a record that names it would hide the new time from the next snapshot.
        if taken.assembled.manifest == taken.base_manifest:
            self.remember(taken, taken.base)

    def _usable_cache(self) -> tuple[CacheHeader | None, bool]:
        """The cache, if it can be relied on, and whether the names in it are to be looked at again."""
        head = self._cache.read_head()
        if head is None or head.keeping != self.survey.keeping:
            return None, False
        # Its ids are only as good as the snapshot that they were published with.
        if head.base != self._tip and not self._is_whole(head.base):
            return None, False
        return head, head.naming != self.survey.naming

    def _is_whole(self, commit: str) -> bool:
        return (
            bytes.fromhex(commit) in self.known
            and self._tools.repository.git.try_run(
                "for-each-ref", "--count=1", f"--contains={commit}", "refs/envhist/"
            ).out.strip()
            != b""
        )

    def _land(self, since: KnownWrites | None, wanted: Wanted | None) -> KnownWritesDriver | None:
        """What is known of all that happened, where it is; nobody needs to look then."""
        if since is None or wanted is None or self._cache_head is None:
            return None
        # They are as the cache has them, and most of what is needed was read from there already.
        self._records = since.records or DirectoryRecords(
            self._cache, self._cache_head.shards, self._cache_head.files
        )
        if since.landed is None:
            return None

        means = RecordTools(self._records, self.writer, self._read, self._width, self._job())
        return records_from_writes(since.landed, self._cache_head, means)

    def _take(self, gatherer: ScanDriver | KnownWritesDriver) -> CapturedEnvironment:
        gathered = gatherer.gather()
        if self._cache_head is not None:
            # Whether all that the cache speaks of is there can only be asked once the new packs are.
            self._put(gatherer.finish_packs())
        taken = self._assemble(gathered)
        self._put(gatherer.finish_packs())
        return taken

    def _put(self, gathered: ScanResult) -> None:
        for oid, entry, checksum in gathered.objects:
            self.writer.put(oid, entry, checksum)

    def _assemble(self, gathered: ScanResult) -> CapturedEnvironment:
        cache = self._cache_head
        records, self._records = self._records, None
        if records is None:
            records = (
                DirectoryRecords(self._cache, cache.shards, cache.files)
                if cache
                else DirectoryRecords(self._cache)
            )
        merged = merge(records, gathered)
        base_tree = self._manifest_of(cache.base) if cache else None
        manifest = ManifestTree(self.writer, self._read, base_tree, self._width)
        assembler = TreeBuilder(
            records,
            manifest,
            self.writer,
            self._width,
            holds=self._holder(gathered) if cache else None,
            read=self._read,
            elsewhere=cache.elsewhere if cache else {},
        )
        assembled = assembler.assemble(merged)
        base, facts = (cache.base, dict(cache.facts)) if cache else (None, {})
        taken = CapturedEnvironment(gathered, assembled, records, self.survey, self._tip, base, merged, facts)
        taken.pieces = merge_pieces(cache.pieces if cache else {}, gathered, merged, self._width)
        taken.changed = merged.count() if cache else None
        taken.base_manifest = base_tree
        taken.warnings.extend(self.survey.warnings)
        return taken

    def _holder(self, gathered: ScanResult) -> Holds:
        """What tells whether an object stands in the store, or will with this capture."""
        fresh = [PackIndex(pack.index_path, self._width) for pack in gathered.packs]

        def holds(oid: bytes) -> bool:
            return (
                oid in self.writer or oid in self.known or any(index.find(oid) is not None for index in fresh)
            )

        return holds

    def _start(self, distrust: bool, progress: Tick | None, only: Wanted | None = None) -> ScanDriver:
        tools, head = self._tools, self._cache_head
        workers = worker_count(tools.settings.workers)
        return ScanDriver(self.survey, self._job(), workers, tools.how, progress, head, distrust, only)

    def _job(self) -> dict[str, Any]:
        repository, settings, extent = self._tools.repository, self._tools.settings, self.survey
        budget, reason = self._budget()
        return {
            "object_format": repository.object_format,
            "common_state": repository.common_state,
            "pack_dir": repository.pack_dir,
            "staging_packs": self._staging.pack_dir,
            "cache": self._cache.directory,
            "started_ns": time.time_ns(),
            "bases": extent.bases,
            "pruned": extent.pruned,
            "known": extent.known,
            "mounts_known": extent.mounts_known,
            "cross_mounts": settings.cross_mounts,
            "ignore": list(extent.ignore),
            "exclude": list(extent.exclude),
            "secret": list(settings.secret),
            # Without a key nothing secret is kept, and copies need to be told only while this capture runs.
            "twin": self._key.derive(TWINS) if self._key else os.urandom(32),
            "fingerprint": list(extent.fingerprint),
            "encrypted": list(extent.encrypted),
            "key": self._key.material if self._key else None,
            "big_file": settings.big_file,
            # A worker inside a host program would let go of the locks that the program itself holds.
            "holds_databases": self._tools.how != "here",
            "budget": budget,
            "budget_reason": reason,
        }

    def _budget(self) -> tuple[int, str]:
        """How many bytes may be added, and what to blame where that is too few."""
        bounded = self._tools.settings.budget < UNBOUNDED
        room = free_bytes(self._staging.path, KEPT_FREE if bounded else LITTLE)
        if room is not None and room < self._tools.settings.budget:
            return max(0, room), MissingReason.DISK.value
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
