"""Whether the history is whole: its refs, its packs, what they lead to, and what is remembered beside them.

Where nothing is damaged git alone is asked, which is quick. Only where something is, the snapshots are looked through
for the paths that it touches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

from git_envhist.capture.statcache import StatCache
from git_envhist.capturing.timelines import FILE as TIMELINE
from git_envhist.capturing.timelines import read_name
from git_envhist.errors import Damaged, GitFailed, GitKilled
from git_envhist.keeping.caches import states_of
from git_envhist.model import BrokenSnapshot, Fault, FsckReport, Snapshot
from git_envhist.store.chain import read_snapshot
from git_envhist.store.checking import DamagedPack, PackCheck, check_packs
from git_envhist.store.commits import parse_commit
from git_envhist.store.deflate import crc32
from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile
from git_envhist.store.packlist import SINGLE, list_is_damaged
from git_envhist.store.refhealth import RefListing, read_refs
from git_envhist.store.repository import HEADS, NOTES, Repository
from git_envhist.store.staging import open_published
from git_envhist.store.touched import DamagedSnapshot, DamageFinder
from git_envhist.store.trees import object_id
from git_envhist.upkeep.finding import lost_snapshots, outside_trash
from git_envhist.values import dataclass, field


@dataclass(frozen=True, slots=True)
class FsckFindings:
    """What a check found, in the store's own words."""

    refs: RefListing
    looked: PackCheck
    hurt: tuple[tuple[str, DamagedSnapshot], ...] = ()
    """(ref, the commit that is not whole) of every chain."""
    lost: frozenset[bytes] = frozenset()
    """The objects that cannot be had."""
    more: tuple[Fault, ...] = ()
    snapshots: int = 0
    told: tuple[BrokenSnapshot, ...] = field(default=())

    @property
    def faults(self) -> tuple[Fault, ...]:
        packs = [Fault("pack", f"{bad.name}.pack", _why(bad)) for bad in self.looked.bad]
        refs = [Fault("ref", bad.ref, bad.why) for bad in self.refs.bad]
        notes = [
            Fault("notes", ref, "what it says of some moments cannot be read")
            for ref in dict.fromkeys(ref for ref, _ in self.hurt if ref.startswith(NOTES))
        ]
        return (*refs, *packs, *notes, *self.more)

    def health(self, *, quick: bool, repaired: Iterable[str] = ()) -> FsckReport:
        looked = self.looked
        counts = (self.snapshots, looked.packs, looked.objects, looked.bytes)
        return FsckReport(quick, *counts, self.faults, self.told, tuple(repaired))


def check(
    repository: Repository, *, quick: bool, tell: Callable[[str], None], only: Iterable[str] | None = None
) -> FsckFindings:
    """Look at all of it; `only`: at the bytes of these packs."""
    tell("looking at the refs")
    refs = read_refs(repository)
    tell("looking at the packs" if quick else "reading every pack")
    looked = check_packs(repository, quick=quick, only=only)
    tell("following every snapshot")
    lists = () if quick else _lists(repository)
    more = (*lists, *_caches(repository), *_gone(repository, refs), *_name(repository))
    if not looked.bad and is_connected(repository.git, refs.sound.values()):
        return FsckFindings(refs, looked, more=more, snapshots=_count(repository.git, refs))
    with closing(_DamageSearch(repository, looked)) as search:
        return search.run(refs, more)


def is_connected(git: Git, tips: Iterable[str]) -> bool:
    """Whether all that some commits lead to is there, as far as git reads it."""
    asked = "".join(f"{tip}\n" for tip in tips).encode("ascii")
    if not asked:
        return True
    done = git.ask("rev-list", "--objects", "--quiet", "--stdin", stdin=asked)
    return done.status == 0


class _DamageSearch:
    """Looks for what cannot be had, and which snapshots it touches."""

    def __init__(self, repository: Repository, looked: PackCheck) -> None:
        self._repository = repository
        self._git = repository.git
        self._looked = looked
        self._bad = frozenset(oid for bad in looked.bad for oid in bad.lost)
        unread = {bad.name for bad in looked.bad if not bad.lost}
        own = open_published(repository.common_state, repository.pack_dir, repository.object_format)
        with closing(own):
            named = zip(own.names, own.packs, strict=True)
            self._ours = {oid for name, pack in named if name not in unread for oid in pack.index.names()}
        self._reader = CatFile(self._git)
        self._touched = DamageFinder(self._git, repository.hash_length, self._is_there)
        self._asked: dict[bytes, bool] = {}

    def close(self) -> None:
        self._reader.close()
        self._touched.close()

    def run(self, refs: RefListing, more: tuple[Fault, ...]) -> FsckFindings:
        hurt: list[tuple[str, DamagedSnapshot]] = []
        told: list[BrokenSnapshot] = []
        snapshots = 0
        for ref, tip in refs.sound.items():
            for commit in self._chain(tip):
                # What is in the trash is told of, too, where it has lost something.
                snapshots += not ref.startswith(NOTES)
                found = self._touched.look(commit)
                if found is not None:
                    hurt.append((ref, found))
                    told += [] if ref.startswith(NOTES) else [self._tell(ref, found)]
        lost = {oid for _, one in hurt for _, oid in one.lost}
        lost |= {bytes.fromhex(one.commit) for _, one in hurt if not one.lost}
        return FsckFindings(refs, self._looked, tuple(hurt), frozenset(lost), more, snapshots, tuple(told))

    def _chain(self, tip: str) -> Iterator[str]:
        following: str | None = tip
        while following is not None:
            yield following
            following = self._parent(following)

    def _parent(self, commit: str) -> str | None:
        if not self._is_there(bytes.fromhex(commit)):
            return None
        try:
            answer = self._reader.read(commit)
            parents = parse_commit(answer.data).parents if answer is not None else []
        except GitKilled:
            raise
        except (Damaged, GitFailed):
            return None
        return parents[0] if parents else None

    def _is_there(self, oid: bytes) -> bool:
        if oid in self._ours and oid not in self._bad:
            return True
        found = self._asked.get(oid)
        if found is None:
            found = self._asked[oid] = self._gives(oid)
        return found

    def _gives(self, oid: bytes) -> bool:
        """Whether git has it whole, in whatever other place."""
        try:
            answer = self._reader.read(oid.hex())
        except GitKilled:
            raise
        except (Damaged, GitFailed):
            # git ends at what it cannot read.
            self._reader.close()
            self._reader = CatFile(self._git)
            return False
        if answer is None:
            return False
        return object_id(answer.kind.encode("ascii"), answer.data, self._repository.object_format) == oid

    def _tell(self, ref: str, found: DamagedSnapshot) -> BrokenSnapshot:
        snapshot: Snapshot | None = None
        if self._is_there(bytes.fromhex(found.commit)):
            try:
                answer = self._reader.read(found.commit)
                snapshot = read_snapshot(found.commit, answer.data) if answer is not None else None
            except GitKilled:
                raise
            except (Damaged, GitFailed):
                snapshot = None
        return BrokenSnapshot(
            found.commit, ref.removeprefix(HEADS), snapshot, tuple(self._touched.shown(found))
        )


def _why(bad: DamagedPack) -> str:
    if not bad.lost:
        return bad.why
    return f"{bad.why}; {len(bad.lost):,} object{'' if len(bad.lost) == 1 else 's'} in it cannot be read"


def _gone(repository: Repository, refs: RefListing) -> Iterator[Fault]:
    """Timelines of working trees here whose ref is gone, while our packs still hold moments of them."""
    known = {*refs.sound, *(bad.ref for bad in refs.bad)}
    for state in states_of(repository):
        name = read_name(state)
        if name is None or HEADS + name in known:
            continue
        if held := outside_trash(repository, name):
            yield Fault("gone", HEADS + name, f"our packs still hold {len(held):,} moments that it led to")
    for name, links in lost_snapshots(repository).items():
        told = f"it began anew; our packs still hold {len(links):,} moments from before"
        yield Fault("gone", HEADS + name, told)


def _name(repository: Repository) -> Iterator[Fault]:
    """Yield a fault if the file with the name of this working tree's timeline is damaged."""
    path = os.path.join(repository.state, TIMELINE)
    if os.path.lexists(path) and read_name(repository.state) is None:
        yield Fault(
            "timeline", os.path.relpath(path, repository.common_dir), "it contains no timeline's name"
        )


def _lists(repository: Repository) -> Iterator[Fault]:
    if list_is_damaged(repository):
        where = os.path.relpath(os.path.join(repository.pack_dir, SINGLE), repository.common_dir)
        yield Fault("cache", where, "it does not say what the packs say, and git goes by it")


def _count(git: Git, refs: RefListing) -> int:
    tips = [oid for ref, oid in refs.sound.items() if ref.startswith(HEADS)]
    return int(git.run("rev-list", "--count", *tips)) if tips else 0


def _caches(repository: Repository) -> Iterator[Fault]:
    """What is remembered of working trees, where it cannot be read: it costs the next capture time, nothing else."""
    for state in states_of(repository):
        directory = os.path.join(state, "cache")
        if not os.path.exists(os.path.join(directory, "head")):
            continue
        cache = StatCache(directory, crc32)
        head = cache.read_head()
        # One of another version is whole, and of no use.
        torn = cache.is_torn() if head is None else any(cache.read_shard(one) is None for one in head.shards)
        if torn:
            where = os.path.relpath(directory, repository.common_dir)
            yield Fault("cache", where, "it cannot be read; the next capture reads every file once")
