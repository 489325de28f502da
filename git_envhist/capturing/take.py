"""The environment as trees in a staging: with what the cache remembers, or from scratch where it cannot be trusted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from git_envhist.capture.records import SIZE, WIDTH, count_names
from git_envhist.capture.statcache import CacheHead, StatCache, split_evenly, split_records
from git_envhist.capturing.assembly import Assembled, Assembler, Holds, Records, count_entries
from git_envhist.capturing.gather import CacheDamaged, Gathered, Gatherer, worker_count
from git_envhist.capturing.survey import Survey
from git_envhist.errors import Damaged
from git_envhist.model import ChangeCount, EnvPath, Progress, WhyMissing
from git_envhist.settings import Settings
from git_envhist.store.commits import parse_commit
from git_envhist.store.compression import pack, unpack
from git_envhist.store.idx import PackIndex
from git_envhist.store.keys import Key
from git_envhist.store.layout import MANIFEST, RESERVED
from git_envhist.store.packs import OwnPacks, PackWriter, StagedPack
from git_envhist.store.repository import Repository
from git_envhist.store.snapshots import ManifestTree
from git_envhist.store.staging import Staging, open_published
from git_envhist.store.trees import decode_tree
from git_envhist.system import room_left
from git_envhist.values import dataclass, field

KEPT_FREE = 20
"""A twentieth of the disk is never ours."""
LARGEST_SHOWN = 5
SEALED = b" as=sealed"


@dataclass(frozen=True, slots=True)
class Tools:
    repository: Repository
    settings: Settings
    how: str


@dataclass(slots=True)
class Taken:
    """An environment, taken: its trees stand in the staging."""

    gathered: Gathered
    assembled: Assembled
    records: Records
    survey: Survey
    tip: str | None
    base: str | None
    files: int
    pieces: dict[bytes, list[bytes]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    base_manifest: bytes | None = None
    """The manifest of the snapshot that the cache relies on."""

    def first_count(self) -> ChangeCount:
        """What a first snapshot adds: everything."""
        return ChangeCount(added=count_entries(self.records))

    def largest(self) -> tuple[tuple[EnvPath, int, int], ...]:
        """The directories at the top by size, with the files and bytes below them."""
        sums: dict[bytes, list[int]] = {}
        for path in self.records:
            record = self.records.get(path)
            assert record is not None
            row = sums.setdefault(path.partition(b"/")[0], [0, 0])
            row[0] += len(record.names)
            row[1] += sum(record.cells[SIZE::WIDTH])
        rows = [(EnvPath(name), files, size) for name, (files, size) in sums.items() if name]
        return tuple(sorted(rows, key=lambda row: -row[2])[:LARGEST_SHOWN])

    def seals_now(self) -> bool:
        """Whether a file that was looked at just now stands sealed in the snapshot."""
        return any(SEALED in encoded for encoded in self.gathered.directories.values())


class Taker:
    """Takes the environment into one staging."""

    def __init__(
        self, tools: Tools, survey: Survey, staging: Staging, key: Key | None, tip: str | None
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
        self._cache = StatCache(os.path.join(repository.state, "cache"), pack, unpack)

    def look(self, progress: Callable[[Progress], None] | None) -> Gathered:
        """What a capture would read, and nothing more."""
        cache, distrust = self._usable_cache()
        return self._gather(cache, distrust, progress, dry_run=True)

    def take(self, progress: Callable[[Progress], None] | None) -> Taken:
        """Take it."""
        cache, distrust = self._usable_cache()
        try:
            return self._take(cache, distrust, progress)
        except (CacheDamaged, Damaged):
            if cache is None:
                raise
            # The cache, or what it relies on, is not whole: everything is read once, and nothing is lost.
            self._cache.forget()
            return self._take(None, False, progress)

    def finish(self, taken: Taken) -> list[StagedPack]:
        """Complete the pack of the trees; all packs that the snapshot needs."""
        pack_of_trees = self.writer.finish()
        return [*taken.gathered.packs, *([pack_of_trees] if pack_of_trees else [])]

    def close(self) -> None:
        """Let go of every file; what was not finished is forgotten."""
        self.known.close()
        self.writer.abort()

    def remember(self, taken: Taken, base: str | None) -> None:
        """Keep what was seen for next time; best effort, since it costs nothing but time to lose it."""
        if base is None or (base == taken.base and not taken.gathered.changed):
            return
        records = sorted(taken.records.encoded.items())
        bounds, shards = split_evenly(records, worker_count(self._tools.settings.workers))
        head = CacheHead(self.survey.naming, self.survey.keeping, base, bounds, (), taken.pieces, taken.files)
        try:
            self._cache.write(head, shards)
        except OSError as error:
            taken.warnings.append(f"the next capture will take longer: {error}")

    def remember_unpublished(self, taken: Taken) -> None:
        """Keep what was seen though no snapshot was made of it."""
        # A file that was touched has another manifest line and the same content. Its shard goes with the staging, so
        # a record that names it would hide the new time from the next snapshot.
        if taken.assembled.manifest == taken.base_manifest:
            self.remember(taken, taken.base)

    def _usable_cache(self) -> tuple[CacheHead | None, bool]:
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

    def _take(
        self, cache: CacheHead | None, distrust: bool, progress: Callable[[Progress], None] | None
    ) -> Taken:
        gathered = self._gather(cache, distrust, progress)
        for oid, entry in gathered.objects:
            self.writer.put(oid, entry)
        records = self._records(cache, gathered)
        gone = self._drop_gone(records, gathered)
        base_tree = self._manifest_of(cache.base) if cache else None
        manifest = ManifestTree(self.writer, self._read, base_tree, self._width)
        assembler = Assembler(
            records, manifest, self.writer, self._width, self._holder(gathered) if cache else None
        )
        assembled = assembler.assemble(gathered.directories, gone)
        pieces = {**(cache.pieces if cache else {}), **gathered.pieces}
        # An id of any length stands in 32 bytes there.
        pieces = {
            path: [tree[: self._width] for tree in trees]
            for path, trees in pieces.items()
            if trees and path in records
        }
        taken = Taken(
            gathered, assembled, records, self.survey, self._tip, cache.base if cache else None, 0, pieces
        )
        taken.base_manifest = base_tree
        taken.files = sum(count_names(encoded) for encoded in records.encoded.values())
        taken.warnings.extend(self.survey.warnings)
        return taken

    def _holder(self, gathered: Gathered) -> Holds:
        """What tells whether an object stands in the store, or will with this capture."""
        fresh = [PackIndex(pack.index_path, self._width) for pack in gathered.packs]

        def holds(oid: bytes) -> bool:
            return (
                oid in self.writer or oid in self.known or any(index.find(oid) is not None for index in fresh)
            )

        return holds

    def _gather(
        self,
        cache: CacheHead | None,
        distrust: bool,
        progress: Callable[[Progress], None] | None,
        *,
        dry_run: bool = False,
    ) -> Gathered:
        workers = worker_count(self._tools.settings.workers)
        gatherer = Gatherer(self.survey, self._job(), workers, self._tools.how, progress)
        return gatherer.gather(cache, distrust, dry_run=dry_run)

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
            "fingerprint": list(extent.fingerprint),
            "encrypted": list(extent.encrypted),
            "key": self._key.secret if self._key else None,
            "big_file": settings.big_file,
            # A worker inside a host program would let go of the locks that the program itself holds.
            "holds_databases": self._tools.how != "here",
            "budget": budget,
            "budget_reason": reason,
        }

    def _budget(self) -> tuple[int, str]:
        """How many bytes may be added, and what to blame where that is too few."""
        room = room_left(self._staging.path, KEPT_FREE)
        if room is not None and room < self._tools.settings.budget:
            return max(0, room), WhyMissing.DISK.value
        return self._tools.settings.budget, WhyMissing.BUDGET.value

    def _records(self, cache: CacheHead | None, gathered: Gathered) -> Records:
        encoded: dict[bytes, bytes] = {}
        for name in cache.shards if cache else ():
            shard = self._cache.read_shard(name)
            if shard is None:
                raise CacheDamaged
            encoded.update(split_records(shard))
        return Records(encoded)

    def _drop_gone(self, records: Records, gathered: Gathered) -> set[bytes]:
        """Take in what changed, and let go what is no longer below any directory."""
        lost = set(gathered.gone)
        for path, encoded in gathered.directories.items():
            before = records.get(path)
            records.replace(path, encoded)
            after = records.get(path)
            assert after is not None
            if before is not None:
                names = set(before.subdirectories).difference(after.subdirectories)
                lost.update(path + b"/" + name if path else name for name in names)
        below = tuple(path + b"/" for path in lost)
        gone = {path for path in records if path in lost or path.startswith(below)} if lost else set()
        for path in gone:
            records.drop(path)
        return gone | lost

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
