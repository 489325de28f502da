"""Whether the history is whole: its refs, its packs, what they lead to, and what is remembered beside them.

Where nothing is damaged git alone is asked, which is quick. Only where something is, the snapshots are looked through
for the paths that it touches.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress

from git_envhist.disk import read_exactly, state_directory, sync_directory
from git_envhist.errors import Damaged, EnvhistError, GitFailed, GitKilled
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, Repository, states_of
from git_envhist.lazy import dataclass, field
from git_envhist.maintenance.merge_packs import SINGLE, list_is_damaged
from git_envhist.model import BrokenSnapshot, Fault, FsckReport, Snapshot
from git_envhist.objects.commits import parse_commit
from git_envhist.objects.compress import crc32
from git_envhist.objects.own_packs import drop_caches, forget_second_names, own_names
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_reader import PackFile
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.objects.trees import DIRECTORY, decode_tree, object_id
from git_envhist.rewrite.salvage import RefListing, lost_snapshots, outside_trash, read_refs
from git_envhist.snapshots.chunks import read_pointer
from git_envhist.snapshots.layout import MANIFEST, PIECES, shard_path, split_root
from git_envhist.snapshots.log import read_snapshot
from git_envhist.snapshots.names import RESERVED, true_name
from git_envhist.snapshots.staging import Staging, open_published, unpublished
from git_envhist.worktree.stat_cache import StatCache
from git_envhist.worktree.timeline_name import FILE as TIMELINE
from git_envhist.worktree.timeline_name import read_name

# Whether every byte of our packs is what it was: by git's own check, and object by object where that fails.
#
# What is sound of a damaged pack is written into a new one; the damaged one is set aside, as it is.

DAMAGED = "damaged"
HEADER = 12


@dataclass(frozen=True, slots=True)
class DamagedPack:
    """A pack of ours that is not as it was written."""

    name: str
    why: str
    lost: tuple[bytes, ...]
    """The objects that it does not give any more; of a pack whose index is gone they are not known."""


@dataclass(frozen=True, slots=True)
class PackCheck:
    """What was looked at."""

    packs: int
    objects: int
    bytes: int
    bad: tuple[DamagedPack, ...]


def check_packs(repository: Repository, *, quick: bool, only: Iterable[str] | None = None) -> PackCheck:
    """Look at our packs, `quick`: at their ends and indexes alone; at those of some names only, if they are given."""
    left_out = unpublished(repository.common_state, repository.pack_dir)
    chosen = [name for name in own_names(repository.pack_dir) if name not in left_out]
    if only is not None:
        wanted = frozenset(only)
        chosen = [name for name in chosen if name in wanted]
    bad, objects, size = [], 0, 0
    for name in chosen:
        found = _look(repository, name, quick)
        if isinstance(found, DamagedPack):
            bad.append(found)
            continue
        objects += found
        with suppress(FileNotFoundError):
            size += os.stat(os.path.join(repository.pack_dir, f"{name}.pack")).st_size
    # Captures and cleanings go on meanwhile: what was joined with others, or came back, is not damaged.
    bad = [again for one in bad if (again := _look_again(repository, one.name, quick)) is not None]
    return PackCheck(len(chosen), objects, size, tuple(bad))


def _look_again(repository: Repository, name: str, quick: bool) -> DamagedPack | None:
    if not os.path.lexists(os.path.join(repository.pack_dir, f"{name}.keep")):
        return None
    found = _look(repository, name, quick)
    return found if isinstance(found, DamagedPack) else None


def _look(repository: Repository, name: str, quick: bool) -> DamagedPack | int:
    """How many objects a pack has, or what is wrong with it."""
    base = os.path.join(repository.pack_dir, name)
    try:
        index = PackIndex(base + ".idx", repository.hash_length)
    except FileNotFoundError:
        return DamagedPack(name, "its index is missing", ())
    except (OSError, Damaged) as error:
        return DamagedPack(name, _said(error), ())
    try:
        why = _ends(base + ".pack", index)
        if why is None and not quick:
            why = _bytes(repository.git, base)
        return index.count if why is None else DamagedPack(name, why, tuple(_lost(repository, base, index)))
    finally:
        index.close()


def _ends(path: str, index: PackIndex) -> str | None:
    """What is wrong with a pack as far as its length and its two ends tell."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return f"it cannot be opened: {(error.strerror or '').lower()}"
    try:
        size = os.fstat(descriptor).st_size
        header = read_exactly(descriptor, HEADER, 0)
        trailer = read_exactly(descriptor, len(index.pack_hash), max(0, size - len(index.pack_hash)))
    except OSError as error:
        return f"it cannot be read: {(error.strerror or '').lower()}"
    finally:
        os.close(descriptor)
    if header[:8] != b"PACK\0\0\0\2" or int.from_bytes(header[8:], "big") != index.count:
        return "its first bytes are not those of a pack"
    return None if trailer == index.pack_hash else "it does not end as its index says"


def _bytes(git: Git, base: str) -> str | None:
    done = git.ask("verify-pack", base + ".idx")
    return None if done.status == 0 else done.complaint.partition("\n")[0] or "git cannot verify it"


def _lost(repository: Repository, base: str, index: PackIndex) -> Iterator[bytes]:
    """The objects that cannot be read out of a pack any more; none where its index alone is damaged."""
    with tempfile.TemporaryDirectory(prefix="git-envhist-") as place:
        if _index_anew(repository, base, place) is not None:
            return
    pack = PackFile(base + ".pack", index, repository.object_format)
    for oid in index.names():
        try:
            pack.read(oid)
        except (Damaged, OSError):
            yield oid


def _said(error: Exception) -> str:
    return error.message if isinstance(error, EnvhistError) else str(error)


def mend(repository: Repository, bad: DamagedPack) -> str:
    """Put what is sound of a damaged pack into a new one, and the damaged one aside; where it is now.

    Whoever calls holds the common lock alone.
    """
    with Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging:
        base = os.path.join(repository.pack_dir, bad.name)
        with PackWriter(staging.pack_dir, repository.object_format) as writer:
            for kind, data in _sound(repository, base, staging):
                writer.add(kind, data)
            pack = writer.finish()
        staging.publish([pack] if pack else [])
        staging.make_permanent()
    place = state_directory(os.path.join(repository.common_state, DAMAGED))
    forget_second_names(repository.common_state, repository.pack_dir, [bad.name])
    drop_caches(repository.pack_dir, [bad.name])
    # git stops seeing it with its index; none of it is deleted.
    for suffix in (".idx", ".rev", ".bitmap", ".pack", ".keep"):
        try:
            _move(base + suffix, os.path.join(place, bad.name + suffix))
        except FileNotFoundError:
            continue
    drop_caches(repository.pack_dir, [bad.name])
    sync_directory(place)
    sync_directory(repository.pack_dir)
    return place


def _move(source: str, target: str) -> None:
    try:
        os.rename(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        import shutil  # loaded late: only where the packs are on another file system

        shutil.copy2(source, target)
        os.unlink(source)


def _sound(repository: Repository, base: str, staging: Staging) -> Iterator[tuple[bytes, bytes]]:
    """Every object that a damaged pack still gives."""
    made = _index_anew(repository, base, staging.path)
    try:
        index = PackIndex(made or base + ".idx", repository.hash_length)
    except (OSError, Damaged):
        return
    pack = PackFile(base + ".pack", index, repository.object_format)
    try:
        for oid in index.names():
            try:
                found = pack.read(oid)
            except (Damaged, OSError):
                continue
            if found is not None:
                yield found
    finally:
        pack.close()


def _index_anew(repository: Repository, base: str, place: str) -> str | None:
    """An index of a pack, made by git in some place; None where the pack itself is damaged."""
    made = os.path.join(place, "anew.idx")
    # In a repository without objects: in this one git would hold each to the copy that the damaged index leads to.
    nothing = {b"GIT_OBJECT_DIRECTORY": os.fsencode(place)}
    done = repository.git.ask("index-pack", "-o", made, base + ".pack", environment=nothing)
    return made if done.status == 0 else None


# Which paths of which snapshots a damaged store touches.
#
# Trees that snapshots share are looked into once. What is said of a directory in the manifest, and the pieces of a big
# file, are told by the directory and the file.

SHARDS = RESERVED + b"/" + MANIFEST + b"/"
PIECES_BELOW = RESERVED + b"/" + PIECES + b"/"
MAX_POINTER = 200

Lost = tuple[tuple[bytes, bytes], ...]
"""(stored path, object) of what cannot be read."""


@dataclass(frozen=True, slots=True)
class DamagedSnapshot:
    """A snapshot that is not whole."""

    commit: str
    lost: Lost
    """Empty where the commit itself, or its tree, cannot be read."""


class DamageFinder:
    """Looks snapshots through; `is_there` tells whether an object can be had whole."""

    def __init__(self, git: Git, hash_length: int, is_there: Callable[[bytes], bool]) -> None:
        self._git = git
        self._length = hash_length
        self._is_there = is_there
        self._reader = CatFile(git)
        self._known: dict[bytes, Lost] = {}
        self._sound: dict[bytes, bool] = {}

    def close(self) -> None:
        self._reader.close()

    def look(self, commit: str) -> DamagedSnapshot | None:
        """What a snapshot has lost; None where nothing is."""
        try:
            answer = self._reader.read(commit) if self._is_there(bytes.fromhex(commit)) else None
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
            found = self._known[tree] = tuple(self._look_into(tree))
        return found

    def _look_into(self, tree: bytes) -> Iterator[tuple[bytes, bytes]]:
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
            answer = self._reader.read(tree.hex()) if self._is_there(tree) else None
            return None if answer is None else decode_tree(answer.data, self._length)
        except GitKilled:
            raise
        except (Damaged, GitFailed):
            return None

    def _has(self, oid: bytes) -> bool:
        found = self._sound.get(oid)
        if found is None:
            found = self._sound[oid] = self._is_there(oid)
        return found

    def shown(self, hurt: DamagedSnapshot) -> list[str]:
        """The paths that a snapshot has lost, as people know them."""
        found = dict.fromkeys(self._shown(hurt.commit, path) for path, _ in hurt.lost)
        return list(found)

    def _shown(self, commit: str, stored: bytes) -> str:
        if stored.startswith(SHARDS):
            directory = self._directory_of(commit, stored.removeprefix(SHARDS))
            return (
                "what is said of " + (os.fsdecode(directory) or "the top")
                if directory is not None
                else "a shard"
            )
        if stored.startswith(PIECES_BELOW):
            file = self._file_of(commit, stored.removeprefix(PIECES_BELOW))
            stored = file if file is not None else stored
        return os.fsdecode(_true(stored)) or "the top"

    def _directory_of(self, commit: str, names: bytes) -> bytes | None:
        """Of which directory a shard speaks."""
        for path, mode, _ in self._listed(commit, "-d"):
            if mode == b"040000" and "/".join(shard_path(path)).encode("ascii") == names:
                return _true(path)
        return b"" if "/".join(shard_path(b"")).encode("ascii") == names else None

    def _file_of(self, commit: str, names: bytes) -> bytes | None:
        """Which file points to some pieces."""
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
        """(path, mode, id); with `-l` of files as small as a pointer is."""
        done = self._git.ask("ls-tree", "-r", "-z", "--full-tree", option, commit)
        for line in done.out.split(b"\0"):
            words, _, path = line.partition(b"\t")
            parts = words.split()
            if len(parts) < 3 or (option == "-l" and (not parts[3].isdigit() or int(parts[3]) > MAX_POINTER)):
                continue
            yield path, parts[0], parts[2]


def _true(stored: bytes) -> bytes:
    """A path as people spell it; one of ours as it is."""
    directory, _, name = stored.rpartition(b"/")
    try:
        _, path = split_root(directory)
        return path + b"/" + true_name(name) if path else true_name(name)
    except (Damaged, ValueError):
        return stored


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
            for ref in dict.fromkeys(ref for ref, _ in self.hurt if ref.startswith(NOTES_REFS))
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
                snapshots += not ref.startswith(NOTES_REFS)
                found = self._touched.look(commit)
                if found is not None:
                    hurt.append((ref, found))
                    told += [] if ref.startswith(NOTES_REFS) else [self._tell(ref, found)]
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
            found.commit, ref.removeprefix(TIMELINE_REFS), snapshot, tuple(self._touched.shown(found))
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
        if name is None or TIMELINE_REFS + name in known:
            continue
        if held := outside_trash(repository, name):
            yield Fault(
                "gone", TIMELINE_REFS + name, f"our packs still hold {len(held):,} moments that it led to"
            )
    for name, links in lost_snapshots(repository).items():
        told = f"it began anew; our packs still hold {len(links):,} moments from before"
        yield Fault("gone", TIMELINE_REFS + name, told)


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
    tips = [oid for ref, oid in refs.sound.items() if ref.startswith(TIMELINE_REFS)]
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
