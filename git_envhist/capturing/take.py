"""The environment as trees in a staging: with what the cache remembers, or from scratch where it cannot be trusted."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from git_envhist.capture.known import CacheDamaged, DirectoryRecords
from git_envhist.capture.statcache import CacheHeader, StatCache
from git_envhist.capturing.assembly import Holds, TreeBuilder
from git_envhist.capturing.gather import ScanDriver, ScanResult, Tick, worker_count
from git_envhist.capturing.merge import merge, merge_pieces
from git_envhist.capturing.since import KnownWrites, Wanted, directories_to_scan
from git_envhist.capturing.sources import TWINS
from git_envhist.capturing.survey import CaptureScope
from git_envhist.capturing.taken import CapturedEnvironment
from git_envhist.errors import Damaged, in_words
from git_envhist.model import MissingReason
from git_envhist.settings import Settings
from git_envhist.store.commits import parse_commit
from git_envhist.store.deflate import crc32
from git_envhist.store.idx import PackIndex
from git_envhist.store.keys import Key
from git_envhist.store.layout import MANIFEST, RESERVED
from git_envhist.store.packfile import JOINED
from git_envhist.store.packs import OwnPacks, PackWriter, StagedPack
from git_envhist.store.repository import Repository
from git_envhist.store.snapshots import ManifestTree
from git_envhist.store.staging import Staging, open_published
from git_envhist.store.trees import decode_tree
from git_envhist.system import free_bytes
from git_envhist.trace import step
from git_envhist.values import dataclass

if TYPE_CHECKING:
    from git_envhist.capturing.landed import KnownWritesDriver

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
        from git_envhist.capturing.landed import (  # loaded late: after a restore
            RecordTools,
            records_from_writes,
        )

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
