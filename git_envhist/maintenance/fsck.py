"""Check whether a history is intact: its refs, packs, everything reachable, and its caches.

If nothing is damaged, a quick check by git itself is enough. Only after damage was found, the snapshots are searched
for the paths that it affects. `repair_pack` replaces a damaged pack by one with its intact objects.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from contextlib import closing, suppress
from typing import NamedTuple

from git_envhist.disk import read_exactly
from git_envhist.errors import Damaged, EnvhistError, GitFailed, GitKilled
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, Repository, state_directories
from git_envhist.lazy import dataclass, field
from git_envhist.maintenance.merge_packs import SINGLE, list_is_damaged
from git_envhist.model import BrokenSnapshot, Fault, FsckReport, Snapshot
from git_envhist.objects.commits import parse_commit
from git_envhist.objects.deflate import crc32
from git_envhist.objects.own_packs import own_names
from git_envhist.objects.pack_file import PackFile
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.trees import DIRECTORY, decode_tree, object_id
from git_envhist.rewrite.commits import ChainCommit
from git_envhist.rewrite.salvage import RefListing, lost_snapshots, read_refs, unreached_snapshots
from git_envhist.snapshots.chunks import read_pointer
from git_envhist.snapshots.layout import MANIFEST, PIECES, shard_path, split_root
from git_envhist.snapshots.log import read_snapshot
from git_envhist.snapshots.staging import open_published, unpublished
from git_envhist.snapshots.stored_names import RESERVED, true_name
from git_envhist.worktree.stat_cache import StatCache
from git_envhist.worktree.timeline_name import FILE as TIMELINE
from git_envhist.worktree.timeline_name import read_name

HEADER = 12


@dataclass(frozen=True, slots=True)
class DamagedPack:
    """A damaged pack of ours."""

    name: str
    why: str
    lost: tuple[bytes, ...]
    """The objects that can no longer be read; unknown (empty) if the index is missing."""
    objects: int = 0
    """The number of its objects, with those; unknown (0) if the index is missing."""


@dataclass(frozen=True, slots=True)
class PackCheck:
    """The result of checking packs."""

    packs: int
    objects: int
    """The number of objects that can be read, in damaged packs too."""
    bytes: int
    """The bytes of the undamaged packs."""
    bad: tuple[DamagedPack, ...]


def check_packs(repository: Repository, *, quick: bool, only: Iterable[str] | None = None) -> PackCheck:
    """Check our packs.

    `quick`: check only headers, trailers and indexes; `only`: check only packs of these names.
    """
    left_out = unpublished(repository.common_state, repository.pack_dir)
    chosen = [name for name in own_names(repository.pack_dir) if name not in left_out]
    if only is not None:
        wanted = frozenset(only)
        chosen = [name for name in chosen if name in wanted]
    bad, objects, size = [], 0, 0
    for name in chosen:
        found = _check_pack(repository, name, quick)
        if isinstance(found, DamagedPack):
            bad.append(found)
            continue
        objects += found
        with suppress(FileNotFoundError):
            size += os.stat(os.path.join(repository.pack_dir, f"{name}.pack")).st_size
    # Captures and gc continue meanwhile: a pack that was merged or restored in between is not damaged.
    bad = [again for one in bad if (again := _check_pack_again(repository, one.name, quick)) is not None]
    objects += sum(one.objects - len(one.lost) for one in bad)
    return PackCheck(len(chosen), objects, size, tuple(bad))


def _check_pack_again(repository: Repository, name: str, quick: bool) -> DamagedPack | None:
    if not os.path.lexists(os.path.join(repository.pack_dir, f"{name}.keep")):
        return None
    found = _check_pack(repository, name, quick)
    return found if isinstance(found, DamagedPack) else None


def _check_pack(repository: Repository, name: str, quick: bool) -> DamagedPack | int:
    """Return the number of objects of a pack, or its damage."""
    base = os.path.join(repository.pack_dir, name)
    try:
        index = PackIndex(base + ".idx", repository.hash_length)
    except FileNotFoundError:
        return DamagedPack(name, "its index is missing", ())
    except (OSError, Damaged) as error:
        return DamagedPack(name, _text_of(error), ())
    try:
        why = _check_ends(base + ".pack", index)
        if why is None and not quick:
            why = _verify(repository.git, base)
        if why is None:
            return index.count
        return DamagedPack(name, why, tuple(_lost(repository, base, index)), index.count)
    finally:
        index.close()


def _check_ends(path: str, index: PackIndex) -> str | None:
    """Return a problem with the length, header or trailer of a pack, or None."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return f"cannot be opened: {(error.strerror or '').lower()}"
    try:
        size = os.fstat(descriptor).st_size
        header = read_exactly(descriptor, HEADER, 0)
        trailer = read_exactly(descriptor, len(index.pack_hash), max(0, size - len(index.pack_hash)))
    except OSError as error:
        return f"cannot be read: {(error.strerror or '').lower()}"
    finally:
        os.close(descriptor)
    if header[:8] != b"PACK\0\0\0\2" or int.from_bytes(header[8:], "big") != index.count:
        return "the header is not a pack's"
    return None if trailer == index.pack_hash else "the trailer does not match the index"


def _verify(git: Git, base: str) -> str | None:
    done = git.ask("verify-pack", base + ".idx")
    return None if done.status == 0 else done.complaint.partition("\n")[0] or "git cannot verify it"


def _lost(repository: Repository, base: str, index: PackIndex) -> Iterator[bytes]:
    """Yield the objects that can no longer be read from a pack; none if only its index is damaged."""
    with tempfile.TemporaryDirectory(prefix="git-envhist-") as place:
        if new_index(repository, base, place) is not None:
            return
    pack = PackFile(base + ".pack", index, repository.object_format)
    for oid in index.names():
        try:
            pack.read(oid)
        except (Damaged, OSError):
            yield oid


def _text_of(error: Exception) -> str:
    return error.message if isinstance(error, EnvhistError) else str(error)


def new_index(repository: Repository, base: str, place: str) -> str | None:
    """Have git create an index of a pack in a directory. Return its path, or None if the pack itself is damaged."""
    made = os.path.join(place, "new.idx")
    # With an empty object directory: in this repository git would compare each object with the copy that the damaged
    # index leads to.
    nothing = {b"GIT_OBJECT_DIRECTORY": os.fsencode(place)}
    done = repository.git.ask("index-pack", "-o", made, base + ".pack", environment=nothing)
    return made if done.status == 0 else None


# Paths: which paths of which snapshots the damage affects. Trees shared by snapshots are read once. A damaged shard
# is reported as its directory, damaged chunks as their file.

SHARDS = RESERVED + b"/" + MANIFEST + b"/"
PIECES_BELOW = RESERVED + b"/" + PIECES + b"/"
MAX_POINTER = 200

Lost = tuple[tuple[bytes, bytes], ...]
"""(stored path, object) of unreadable objects."""


@dataclass(frozen=True, slots=True)
class DamagedSnapshot:
    """A snapshot that is incomplete."""

    commit: str
    lost: Lost
    """Empty if the commit itself, or its tree, cannot be read."""


class DamageFinder:
    """Find the damage of snapshots; `is_intact` returns whether an object can be read completely."""

    def __init__(self, git: Git, hash_length: int, is_intact: Callable[[bytes], bool]) -> None:
        self._git = git
        self._length = hash_length
        self._is_intact = is_intact
        self._reader = CatFile(git)
        self._known: dict[bytes, Lost] = {}
        self._intact: dict[bytes, bool] = {}

    def close(self) -> None:
        self._reader.close()

    def damage_of(self, commit: str) -> DamagedSnapshot | None:
        """Return the damage of a snapshot, or None."""
        try:
            answer = self._reader.read(commit) if self._is_intact(bytes.fromhex(commit)) else None
            if answer is None:
                return DamagedSnapshot(commit, ())
            root = bytes.fromhex(parse_commit(answer.data).tree)
        except GitKilled:
            raise
        except (Damaged, GitFailed):
            return DamagedSnapshot(commit, ())
        lost = self._below(root)
        return DamagedSnapshot(commit, lost) if lost else None

    def _below(self, tree: bytes) -> Lost:
        found = self._known.get(tree)
        if found is None:
            found = self._known[tree] = tuple(self._lost_below(tree))
        return found

    def _lost_below(self, tree: bytes) -> Iterator[tuple[bytes, bytes]]:
        entries = self._entries(tree)
        if entries is None:
            yield b"", tree
            return
        for name, mode, oid in entries:
            if mode == DIRECTORY:
                for path, lost in self._below(oid):
                    yield name + b"/" + path if path else name, lost
            elif not self._has(oid):
                yield name, oid

    def _entries(self, tree: bytes) -> list[tuple[bytes, int, bytes]] | None:
        try:
            answer = self._reader.read(tree.hex()) if self._is_intact(tree) else None
            return None if answer is None else decode_tree(answer.data, self._length)
        except GitKilled:
            raise
        except (Damaged, GitFailed):
            return None

    def _has(self, oid: bytes) -> bool:
        found = self._intact.get(oid)
        if found is None:
            found = self._intact[oid] = self._is_intact(oid)
        return found

    def lost_paths(self, damaged: DamagedSnapshot) -> list[str]:
        """Return the paths that a snapshot has lost, as users spell them."""
        found = dict.fromkeys(self._shown_path(damaged.commit, path) for path, _ in damaged.lost)
        return list(found)

    def _shown_path(self, commit: str, stored: bytes) -> str:
        if stored.startswith(SHARDS):
            directory = self._directory_of(commit, stored.removeprefix(SHARDS))
            return (
                "the metadata of " + (os.fsdecode(directory) or "the top")
                if directory is not None
                else "a shard"
            )
        if stored.startswith(PIECES_BELOW):
            file = self._file_of(commit, stored.removeprefix(PIECES_BELOW))
            stored = file if file is not None else stored
        return os.fsdecode(_true_path(stored)) or "the top"

    def _directory_of(self, commit: str, names: bytes) -> bytes | None:
        """Return the directory that a shard describes."""
        for path, mode, _ in self._listed(commit, "-d"):
            if mode == b"040000" and "/".join(shard_path(path)).encode("ascii") == names:
                return _true_path(path)
        return b"" if "/".join(shard_path(b"")).encode("ascii") == names else None

    def _file_of(self, commit: str, names: bytes) -> bytes | None:
        """Return the file that some chunks belong to."""
        wanted = b"".join(names.split(b"/")[:2])
        for path, _, oid in self._listed(commit, "-l"):
            try:
                answer = self._reader.read(oid.decode("ascii"))
                if answer is not None and read_pointer(answer.data).tree.hex().encode("ascii") == wanted:
                    return path
            except EnvhistError:
                continue
        return None

    def _listed(self, commit: str, option: str) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yield (path, mode, id) of entries; with `-l` only of files as small as a pointer."""
        done = self._git.ask("ls-tree", "-r", "-z", "--full-tree", option, commit)
        for line in done.out.split(b"\0"):
            words, _, path = line.partition(b"\t")
            parts = words.split()
            if len(parts) < 3 or (option == "-l" and (not parts[3].isdigit() or int(parts[3]) > MAX_POINTER)):
                continue
            yield path, parts[0], parts[2]


def _true_path(stored: bytes) -> bytes:
    """Return a path as users spell it, or the stored path of one of our own files."""
    directory, _, name = stored.rpartition(b"/")
    try:
        _, path = split_root(directory)
        return path + b"/" + true_name(name) if path else true_name(name)
    except (Damaged, ValueError):
        return stored


@dataclass(frozen=True, slots=True)
class FsckFindings:
    """The result of a check."""

    refs: RefListing
    pack_check: PackCheck
    damaged: tuple[tuple[str, DamagedSnapshot], ...] = ()
    """(ref, incomplete commit) of every chain."""
    lost: frozenset[bytes] = frozenset()
    """The objects that cannot be read."""
    other_faults: tuple[Fault, ...] = ()
    snapshots: int = 0
    broken: tuple[BrokenSnapshot, ...] = field(default=())
    unreached: int = 0
    """The number of intact snapshots that no ref leads to, because of damage."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        packs = [Fault("pack", f"{bad.name}.pack", _why(bad)) for bad in self.pack_check.bad]
        refs = [Fault("ref", bad.ref, bad.why) for bad in self.refs.bad]
        notes = [
            Fault("notes", ref, "some notes cannot be read")
            for ref in dict.fromkeys(ref for ref, _ in self.damaged if ref.startswith(NOTES_REFS))
        ]
        return (*refs, *packs, *notes, *self.other_faults)

    def health(self, *, quick: bool, repaired: Iterable[str] = ()) -> FsckReport:
        pack_check = self.pack_check
        return FsckReport(
            quick,
            self.snapshots,
            pack_check.packs,
            pack_check.objects,
            pack_check.bytes,
            self.faults,
            self.broken,
            tuple(repaired),
            unreached=self.unreached,
            damaged_packs=len(pack_check.bad),
            lost_objects=len({oid for bad in pack_check.bad for oid in bad.lost}),
        )


def check_history(
    repository: Repository, *, quick: bool, progress: Callable[[str], None], only: Iterable[str] | None = None
) -> FsckFindings:
    """Check everything; `only`: check the bytes of these packs only."""
    progress("checking refs")
    refs = read_refs(repository)
    progress("checking packs" if quick else "reading every pack")
    pack_check = check_packs(repository, quick=quick, only=only)
    progress("checking snapshots")
    lists = () if quick else _pack_list_fault(repository)
    gone = tuple(_lost_timelines(repository, refs))
    other_faults = (
        *lists,
        *_cache_faults(repository),
        *(one.fault for one in gone),
        *_name_fault(repository),
    )
    is_clean = not pack_check.bad and not refs.bad and not gone
    if is_clean and is_connected(repository.git, refs.readable.values()):
        return FsckFindings(
            refs, pack_check, other_faults=other_faults, snapshots=_count(repository.git, refs)
        )
    with closing(_DamageSearch(repository, pack_check)) as search:
        return search.run(refs, other_faults, gone)


def is_connected(git: Git, tips: Iterable[str]) -> bool:
    """Return whether everything that some commits reach exists, as far as git reads it."""
    asked = "".join(f"{tip}\n" for tip in tips).encode("ascii")
    if not asked:
        return True
    done = git.ask("rev-list", "--objects", "--quiet", "--stdin", stdin=asked)
    return done.status == 0


class _DamageSearch:
    """Find unreadable objects and the snapshots that they affect."""

    def __init__(self, repository: Repository, pack_check: PackCheck) -> None:
        self._repository = repository
        self._git = repository.git
        self._packs = pack_check
        self._bad = frozenset(oid for bad in pack_check.bad for oid in bad.lost)
        unread = {bad.name for bad in pack_check.bad if not bad.lost}
        own = open_published(repository.common_state, repository.pack_dir, repository.object_format)
        with closing(own):
            named = zip(own.names, own.packs, strict=True)
            self._ours = {oid for name, pack in named if name not in unread for oid in pack.index.names()}
        self._reader = CatFile(self._git)
        self._touched = DamageFinder(self._git, repository.hash_length, self._is_intact)
        self._asked: dict[bytes, bool] = {}

    def close(self) -> None:
        self._reader.close()
        self._touched.close()

    def run(
        self, refs: RefListing, other_faults: tuple[Fault, ...], gone: Iterable[LostTimeline]
    ) -> FsckFindings:
        damaged: list[tuple[str, DamagedSnapshot]] = []
        broken: list[BrokenSnapshot] = []
        reached: dict[str, None] = {}
        for ref, tip in refs.readable.items():
            for commit in self._chain(tip):
                found = self._touched.damage_of(commit)
                if not ref.startswith(NOTES_REFS):
                    reached[commit] = None
                    broken += [] if found is None else [self._broken_snapshot(ref, found)]
                if found is not None:
                    damaged.append((ref, found))
        unreached = 0
        cut = {bad.ref for bad in refs.bad} | {ref for ref, one in damaged if not one.lost}
        for ref, commit in self._cut_off(cut, gone, reached):
            found = self._touched.damage_of(commit)
            unreached += found is None
            broken += [] if found is None else [self._broken_snapshot(ref, found)]
            reached[commit] = None
        lost = {oid for _, one in damaged for _, oid in one.lost}
        lost |= {bytes.fromhex(one.commit) for _, one in damaged if not one.lost}
        counts = (len(reached), tuple(broken), unreached)
        return FsckFindings(refs, self._packs, tuple(damaged), frozenset(lost), other_faults, *counts)

    def _cut_off(
        self, cut: Iterable[str], gone: Iterable[LostTimeline], reached: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        """Yield (ref, commit) of the snapshots in our packs that damage separates from their ref; each once.

        `cut`: the refs that lead to a commit that cannot be read.
        """
        found = {commit: one.fault.subject for one in gone for commit in one.commits}
        for ref in sorted(ref for ref in cut if ref.startswith(TIMELINE_REFS)):
            known = {*reached, *found}
            for one in unreached_snapshots(self._repository, ref.removeprefix(TIMELINE_REFS), known):
                found[one.commit] = ref
        yield from ((ref, commit) for commit, ref in found.items() if commit not in reached)

    def _chain(self, tip: str) -> Iterator[str]:
        following: str | None = tip
        while following is not None:
            yield following
            following = self._parent(following)

    def _parent(self, commit: str) -> str | None:
        if not self._is_intact(bytes.fromhex(commit)):
            return None
        try:
            answer = self._reader.read(commit)
            parents = parse_commit(answer.data).parents if answer is not None else []
        except GitKilled:
            raise
        except (Damaged, GitFailed):
            return None
        return parents[0] if parents else None

    def _is_intact(self, oid: bytes) -> bool:
        if oid in self._ours and oid not in self._bad:
            return True
        found = self._asked.get(oid)
        if found is None:
            found = self._asked[oid] = self._git_has(oid)
        return found

    def _git_has(self, oid: bytes) -> bool:
        """Return whether git has an intact copy of an object anywhere."""
        try:
            answer = self._reader.read(oid.hex())
        except GitKilled:
            raise
        except (Damaged, GitFailed):
            # git exits at an object that it cannot read.
            self._reader.close()
            self._reader = CatFile(self._git)
            return False
        if answer is None:
            return False
        return object_id(answer.kind.encode("ascii"), answer.data, self._repository.object_format) == oid

    def _broken_snapshot(self, ref: str, found: DamagedSnapshot) -> BrokenSnapshot:
        snapshot: Snapshot | None = None
        if self._is_intact(bytes.fromhex(found.commit)):
            try:
                answer = self._reader.read(found.commit)
                snapshot = read_snapshot(found.commit, answer.data) if answer is not None else None
            except GitKilled:
                raise
            except (Damaged, GitFailed):
                snapshot = None
        return BrokenSnapshot(
            found.commit, ref.removeprefix(TIMELINE_REFS), snapshot, tuple(self._touched.lost_paths(found))
        )


def _why(bad: DamagedPack) -> str:
    if not bad.lost:
        return bad.why
    return f"{bad.why}; {len(bad.lost):,} object{'' if len(bad.lost) == 1 else 's'} in it cannot be read"


class LostTimeline(NamedTuple):
    """A timeline of which our packs contain snapshots that its ref does not lead to."""

    fault: Fault
    commits: tuple[str, ...]


def _lost_timelines(repository: Repository, refs: RefListing) -> Iterator[LostTimeline]:
    """Yield the timelines whose ref was deleted, or started again without the older snapshots."""
    known = {*refs.readable, *(bad.ref for bad in refs.bad)}
    deleted = {name for state in state_directories(repository) if (name := read_name(state))}
    deleted = {name for name in deleted if TIMELINE_REFS + name not in known}
    for name in sorted(deleted):
        if left := unreached_snapshots(repository, name, ()):
            words = f"the ref was deleted; our packs still contain {_snapshots(left)} of it"
            yield _lost_timeline(name, words, left)
    for name, links in lost_snapshots(repository).items():
        if name not in deleted:
            words = f"it was started again; our packs still contain {_snapshots(links, 'older ')}"
            yield _lost_timeline(name, words, links)


def _lost_timeline(name: str, words: str, left: Iterable[Snapshot | ChainCommit]) -> LostTimeline:
    return LostTimeline(Fault("gone", TIMELINE_REFS + name, words), tuple(one.commit for one in left))


def _snapshots(found: Sized, which: str = "") -> str:
    return f"{len(found):,} {which}snapshot{'' if len(found) == 1 else 's'}"


def _name_fault(repository: Repository) -> Iterator[Fault]:
    """Yield a fault if the file with the name of this working tree's timeline is damaged."""
    path = os.path.join(repository.state, TIMELINE)
    if os.path.lexists(path) and read_name(repository.state) is None:
        yield Fault(
            "timeline", os.path.relpath(path, repository.common_dir), "it contains no timeline's name"
        )


def _pack_list_fault(repository: Repository) -> Iterator[Fault]:
    if list_is_damaged(repository):
        where = os.path.relpath(os.path.join(repository.pack_dir, SINGLE), repository.common_dir)
        yield Fault("cache", where, "it disagrees with the packs, and git relies on it")


def _count(git: Git, refs: RefListing) -> int:
    tips = [oid for ref, oid in refs.readable.items() if ref.startswith(TIMELINE_REFS)]
    return int(git.run("rev-list", "--count", *tips)) if tips else 0


def _cache_faults(repository: Repository) -> Iterator[Fault]:
    """Yield caches of working trees that cannot be read. That costs only time: the next capture reads every file."""
    for state in state_directories(repository):
        directory = os.path.join(state, "cache")
        if not os.path.exists(os.path.join(directory, "head")):
            continue
        cache = StatCache(directory, crc32)
        head = cache.read_head()
        # A cache of another version is not damaged, only useless.
        torn = cache.is_torn() if head is None else any(cache.read_shard(one) is None for one in head.shards)
        if torn:
            where = os.path.relpath(directory, repository.common_dir)
            yield Fault("cache", where, "cannot be read; the next capture reads every file once")
