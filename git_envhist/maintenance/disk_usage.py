"""What of the packs belongs to what: every object that snapshots hold, with a label for each way that leads to it.

A label is a moment, a directory, a class. An object with one label alone goes when that goes; the bytes that count are
those that its entries take in the packs. Trees are looked into once for each label, however many snapshots share them.

What stays may be stored as a difference of what goes: then one such difference becomes the whole, and no more than that
difference comes back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from git_envhist.diff.classes import class_of, generated_in
from git_envhist.errors import Damaged
from git_envhist.git.repository import TIMELINE_REFS, TRASH_REFS, Repository
from git_envhist.lazy import dataclass, field
from git_envhist.maintenance.repack import NOT_OURS, packed_size, reachable_objects
from git_envhist.model import DiskUsage, Snapshot, SpaceUser
from git_envhist.objects.commits import parse_commit
from git_envhist.objects.own_packs import OwnPacks
from git_envhist.objects.pack_reader import PackFile
from git_envhist.objects.reader import ScatteredReader
from git_envhist.objects.trees import DIRECTORY, decode_tree
from git_envhist.snapshots.chunks import read_pointer
from git_envhist.snapshots.layout import DOTGIT, MANIFEST, PIECES, ROOTS, shard_path
from git_envhist.snapshots.names import RESERVED, true_path
from git_envhist.snapshots.staging import open_published

POINTER = b"envhist-pieces 1\n"
MAX_POINTER = 200
ABOUT = b".envhist"
"""The label of what a snapshot says beside its entries."""

Step = Callable[[bytes, bytes, bool], bytes]
"""The label of an entry, given that of the directory it stands in, its name, and whether it is a directory."""


@dataclass(slots=True)
class LabelUsage:
    """How much a label holds."""

    holds: int = 0
    frees: int = 0
    """What would go with it: nothing else leads there."""


@dataclass(slots=True)
class PackedSizes:
    """What each object takes in our packs; one that stands in several takes all of them."""

    of: dict[bytes, int] = field(default_factory=dict)
    total: int = 0
    differences: dict[bytes, list[bytes]] = field(default_factory=dict)
    """What is stored as a difference of an object."""
    bases: dict[bytes, bytes] = field(default_factory=dict)
    """What an object is stored as a difference of."""
    again: dict[bytes, int] = field(default_factory=dict)
    """What all copies but one take, of what stands more than once."""

    @classmethod
    def read(cls, packs: Iterable[PackFile], hash_length: int) -> PackedSizes:
        sizes = cls()
        for pack in packs:
            names, offsets = pack.index.names(), pack.index.offsets()
            order = sorted(range(len(names)), key=offsets.__getitem__)
            ends = [*(offsets[number] for number in order[1:]), pack.size - hash_length]
            for number, end in zip(order, ends, strict=True):
                taken = end - offsets[number]
                name = names[number]
                if name in sizes.of:
                    sizes.again[name] = sizes.again.get(name, 0) + taken
                sizes.of[name] = sizes.of.get(name, 0) + taken
                sizes.total += taken
            for oid, base in pack.bases():
                sizes.differences.setdefault(base, []).append(oid)
                sizes.bases[oid] = base
        return sizes

    def once(self, oid: bytes) -> int:
        """What one copy takes of an object that is there."""
        return self.of[oid] - self.again.get(oid, 0)


class ObjectLabels:
    """Labels objects, one snapshot after the other."""

    def __init__(self, own: OwnPacks, sizes: PackedSizes, hash_length: int, step: Step | None = None) -> None:
        """`step`: how labels go down; without it everything in a snapshot has its one label."""
        self._reader = ScatteredReader(own)
        self._sizes = sizes
        self._length = hash_length
        self._step = step
        self._labels: dict[bytes, bytes | frozenset[bytes]] = {}
        self._shards: dict[bytes, bytes] = {}
        self._pieces: dict[bytes, bytes] = {}

    def add(self, commit: str, label: bytes) -> None:
        """A snapshot; what of it is not in our packs takes no room there."""
        oid = bytes.fromhex(commit)
        self._mark(oid, label if self._step is None else ABOUT)
        data = self._read(oid)
        if data is None:
            return
        root = bytes.fromhex(parse_commit(data).tree)
        if self._step is None:
            self._all(root, label)
        else:
            self._top(root, label)

    def keep(self, ids: Iterable[bytes]) -> None:
        """Objects that something else leads to: they go with nothing."""
        for oid in ids:
            if oid in self._labels:
                self._mark(oid, b"\0kept")

    def held(self) -> dict[bytes, LabelUsage]:
        """What each label holds."""
        found: dict[bytes, LabelUsage] = {}
        sizes = self._sizes.of
        for oid, labels in self._labels.items():
            size = sizes.get(oid, 0)
            if isinstance(labels, bytes):
                one = found.setdefault(labels, LabelUsage())
                one.holds += size
                one.frees += self._comes_back(oid, labels)
            else:
                for label in labels:
                    found.setdefault(label, LabelUsage()).holds += size
        found.pop(b"\0kept", None)
        return found

    def alone(self, label: bytes) -> frozenset[bytes]:
        """The objects to which nothing but one label leads."""
        return frozenset(oid for oid, labels in self._labels.items() if labels == label)

    def _comes_back(self, oid: bytes, label: bytes) -> int:
        """How many bytes are there again when an object goes with all else of its label."""
        sizes = self._sizes.of
        taken = sizes.get(oid, 0)
        others = self._sizes.differences.get(oid)
        if not others:
            return taken
        # git writes the newest first, and that is what it would store as it is.
        staying = (sizes[one] for one in others if self._leads_to_what_stays(one, label))
        return min(taken, next(staying, taken))

    def _leads_to_what_stays(self, oid: bytes, label: bytes) -> bool:
        """Whether an object, or one that is a difference of it by however many steps, stays without a label."""
        waiting = [oid]
        while waiting:
            one = waiting.pop()
            labels = self._labels.get(one)
            if labels is not None and labels != label:
                return True
            if labels is not None:
                waiting += self._sizes.differences.get(one, ())
        return False

    def _mark(self, oid: bytes, label: bytes) -> bool:
        """Whether the label is new there."""
        known = self._labels.get(oid)
        if known is None:
            self._labels[oid] = label
        elif known == label or (isinstance(known, frozenset) and label in known):
            return False
        else:
            self._labels[oid] = (known if isinstance(known, frozenset) else frozenset((known,))) | {label}
        return True

    def _all(self, tree: bytes, label: bytes) -> None:
        waiting = [tree]
        while waiting:
            oid = waiting.pop()
            if self._mark(oid, label):
                for _, mode, child in self._entries(oid):
                    if mode == DIRECTORY:
                        waiting.append(child)
                    else:
                        self._mark(child, label)

    def _top(self, root: bytes, label: bytes) -> None:
        """The environment first: what is said of it, and the pieces of its files, are labelled as that is."""
        self._mark(root, ABOUT)
        reserved: bytes | None = None
        for name, mode, oid in self._entries(root):
            if name == RESERVED:
                reserved = oid
            else:
                self._entry(b"", name, mode, oid, label)
        self._shards.setdefault(_shard(b""), label)
        if reserved is not None:
            self._mark(reserved, ABOUT)
            for name, mode, oid in self._entries(reserved):
                self._reserved(name, mode, oid, label)

    def _entry(self, above: bytes, name: bytes, mode: int, oid: bytes, label: bytes) -> None:
        assert self._step is not None
        first = above + b"/" + name if above else name
        is_directory = mode == DIRECTORY
        waiting = [(first, oid, is_directory, self._step(label, name, is_directory))]
        while waiting:
            path, one, is_directory, own = waiting.pop()
            if is_directory:
                self._shards.setdefault(_shard(path), own)
            if not self._mark(one, own):
                continue
            if not is_directory:
                self._point(one, own)
                continue
            waiting += [
                (path + b"/" + child, below, what == DIRECTORY, self._step(own, child, what == DIRECTORY))
                for child, what, below in self._entries(one)
            ]

    def _point(self, oid: bytes, label: bytes) -> None:
        """Remember whose pieces are where."""
        if self._sizes.of.get(oid, MAX_POINTER) >= MAX_POINTER:
            return
        data = self._read(oid)
        if data is not None and data.startswith(POINTER):
            try:
                self._pieces.setdefault(read_pointer(data).tree, label)
            except Damaged:
                return

    def _reserved(self, name: bytes, mode: int, oid: bytes, label: bytes) -> None:
        if name == MANIFEST:
            self._mark(oid, ABOUT)
            for outer, inner, shard in self._two_levels(oid):
                self._mark(shard, self._shards.get(outer + inner, ABOUT))
        elif name == PIECES:
            self._mark(oid, ABOUT)
            for outer, inner, tree in self._two_levels(oid):
                self._all(tree, self._pieces.get(bytes.fromhex((outer + inner).decode("ascii")), ABOUT))
        elif name in (ROOTS, DOTGIT) and mode == DIRECTORY:
            self._mark(oid, ABOUT)
            for child, what, below in self._entries(oid):
                self._entry(RESERVED + b"/" + name, child, what, below, label)
        elif mode == DIRECTORY:
            self._all(oid, ABOUT)
        else:
            self._mark(oid, ABOUT)

    def _two_levels(self, tree: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
        for outer, mode, oid in self._entries(tree):
            self._mark(oid, ABOUT)
            if mode == DIRECTORY:
                for inner, _, below in self._entries(oid):
                    yield outer, inner, below

    def _entries(self, tree: bytes) -> list[tuple[bytes, int, bytes]]:
        data = self._read(tree)
        try:
            return decode_tree(data, self._length) if data is not None else []
        except Damaged:
            return []

    def _read(self, oid: bytes) -> bytes | None:
        try:
            return self._reader.read(oid)[1]
        except (KeyError, Damaged):
            return None


def _shard(path: bytes) -> bytes:
    return "".join(shard_path(path)).encode("ascii")


# What comes back when some objects go: a cleaning without them, whose packs are counted and not kept.
#
# What stays may be stored as a difference of what goes. git then holds it against others, or stores it whole, which may
# take as much as what went; and where one version less stands between two, it may store one whole that it need not any
# more. No sum tells that. So what stood at the same paths is packed once as a cleaning would, without what goes.

OURS = ("--glob=refs/envhist/*", "--glob=refs/notes/envhist/*")
MAX_COUNT = 64 << 20
"""More packed bytes are not packed to be counted: it would take as long as the cleaning."""


def bytes_freed(repository: Repository, sizes: PackedSizes, going: Collection[bytes], estimate: int) -> int:
    """How many bytes less our packs take without some objects; `estimate`: what sums say, where it is too much."""
    lost = sum(sizes.of[oid] for oid in going if oid in sizes.of)
    hanging = frozenset(_hanging(sizes, going))
    if hanging.issubset(going):
        return lost
    # As a cleaning comes to them: that order decides what is held against what.
    found = reachable_objects(repository.git, sizes.of.__contains__, roots=OURS)
    paths = {found[oid] for oid in hanging if oid in found}
    left = _beside(found, paths, going)
    before = sum(sizes.once(oid) for oid in left)
    if before > MAX_COUNT:
        return estimate
    return max(0, lost + before - packed_size(repository.git, left, repository.hash_length))


def _hanging(sizes: PackedSizes, going: Collection[bytes]) -> Iterator[bytes]:
    """All that hangs together, by differences, with what goes."""
    waiting, seen = list(going), set(going)
    while waiting:
        oid = waiting.pop()
        beside = {*sizes.differences.get(oid, ()), sizes.bases.get(oid, oid)} - {oid}
        if beside:
            yield oid
        waiting += beside - seen
        seen |= beside


def _beside(
    found: Mapping[bytes, bytes], paths: Collection[bytes], going: Collection[bytes]
) -> dict[bytes, bytes]:
    return {oid: path for oid, path in found.items() if path in paths and oid not in going}


# What holds the space of a history: its moments, directories and classes, and what each of them alone would free.

DEPTH = 2
"""Directories are told down to here."""
TOP = b"."
IN, OUT = b"\0in", b"\0out"
CHOSEN = b"\0chosen"
GENERATED = (b"packages", b"built", b"cache")


@dataclass(frozen=True, slots=True)
class SnapshotSet:
    """The moments there are."""

    lines: Mapping[str, Sequence[Snapshot]]
    """By timeline."""
    in_trash: Sequence[str]
    """Commits."""


def measure(
    repository: Repository,
    moments: SnapshotSet,
    chosen: Sequence[Snapshot],
    paths: Sequence[bytes],
    tell: Callable[[str], None],
) -> DiskUsage:
    """What holds the space; `chosen`, `paths`: what these moments, these paths would free together."""
    with closing(
        open_published(repository.common_state, repository.pack_dir, repository.object_format)
    ) as own:
        sizes = PackedSizes.read(own.packs, repository.hash_length)
        tell("looking at what is yours")
        ours = reachable_objects(repository.git, sizes.of.__contains__, roots=NOT_OURS)
        count = _Count(repository, own, sizes, moments, frozenset(ours))
        tell("counting by moment")
        by_snapshot = count.by_snapshot()
        tell("counting by directory")
        by_directory, by_class = count.by(_directory), count.by(_class)
        together = count.together(chosen, paths) if chosen or paths else None
        files = [
            f"{path.removesuffix('.pack')}{suffix}" for path in own.paths for suffix in (".pack", ".idx")
        ]
        on_disk = sum(os.stat(path).st_size for path in files)
        return DiskUsage(
            on_disk,
            len(own.paths),
            sum(len(line) for line in moments.lines.values()),
            len(moments.in_trash),
            by_snapshot.pop(TRASH_REFS.encode(), LabelUsage()).frees,
            _moments(by_snapshot, moments),
            _rows(by_directory),
            _rows(by_class),
            together,
        )


class _Count:
    def __init__(
        self,
        repository: Repository,
        own: OwnPacks,
        sizes: PackedSizes,
        moments: SnapshotSet,
        kept: frozenset[bytes],
    ) -> None:
        self._repository = repository
        self._own = own
        self._sizes = sizes
        self._length = repository.hash_length
        self._moments = moments
        self._kept = kept

    def by_snapshot(self) -> dict[bytes, LabelUsage]:
        ledger = ObjectLabels(self._own, self._sizes, self._length)
        for snapshot in self._all():
            ledger.add(snapshot.commit, snapshot.commit.encode("ascii"))
        return self._finish(ledger, TRASH_REFS.encode())

    def by(self, step: Step) -> dict[bytes, LabelUsage]:
        ledger = ObjectLabels(self._own, self._sizes, self._length, step)
        for commit in (*(one.commit for one in self._all()), *self._moments.in_trash):
            ledger.add(commit, b"")
        ledger.keep(self._kept)
        return ledger.held()

    def together(self, chosen: Sequence[Snapshot], paths: Sequence[bytes]) -> int:
        """What moments would free, gone together; or paths, gone from these moments (from all, without any)."""
        everything = [*(one.commit for one in self._all()), *self._moments.in_trash]
        if paths:
            ledger = ObjectLabels(self._own, self._sizes, self._length, _inside(frozenset(paths)))
            for commit in everything:
                ledger.add(commit, b"")
            return self._freed(ledger, IN)
        commits = {one.commit for one in chosen}
        ledger = ObjectLabels(self._own, self._sizes, self._length)
        for commit in everything:
            ledger.add(commit, CHOSEN if commit in commits else OUT)
        return self._freed(ledger, CHOSEN)

    def _freed(self, ledger: ObjectLabels, label: bytes) -> int:
        ledger.keep(self._kept)
        estimate = ledger.held().get(label, LabelUsage()).frees
        return bytes_freed(self._repository, self._sizes, ledger.alone(label), estimate)

    def _all(self) -> Iterable[Snapshot]:
        return (one for line in self._moments.lines.values() for one in line)

    def _finish(self, ledger: ObjectLabels, trash: bytes) -> dict[bytes, LabelUsage]:
        for commit in self._moments.in_trash:
            ledger.add(commit, trash)
        ledger.keep(self._kept)
        return ledger.held()


def _directory(label: bytes, name: bytes, is_directory: bool) -> bytes:
    """Directories down to some depth; what stands at the top is told together."""
    if not is_directory or label.count(b"/") >= DEPTH - 1:
        return label or (TOP if not is_directory else name)
    return name if label in (b"", TOP) else label + b"/" + name


def _class(label: bytes, name: bytes, is_directory: bool) -> bytes:
    if label in GENERATED:
        return label
    if is_directory:
        sort, _ = generated_in(name)
        found = class_of(name)
        return sort.encode() or found.encode()
    return class_of(name).encode()


def _inside(paths: frozenset[bytes]) -> Step:
    """Whether something stands at one of some paths, or below: until that is known its path is its label."""

    def step(label: bytes, name: bytes, _is_directory: bool) -> bytes:
        if label in (IN, OUT):
            return label
        path = label + b"/" + name if label else name
        if path in paths:
            return IN
        return path if any(one.startswith(path + b"/") for one in paths) else OUT

    return step


def _moments(found: dict[bytes, LabelUsage], moments: SnapshotSet) -> tuple[SpaceUser, ...]:
    rows = []
    for timeline, line in moments.lines.items():
        for one in line:
            held = found.get(one.commit.encode("ascii"), LabelUsage())
            rows.append(SpaceUser(one.id, held.holds, held.frees, timeline.removeprefix(TIMELINE_REFS), one))
    return tuple(sorted(rows, key=lambda row: -row.frees))


def _rows(found: dict[bytes, LabelUsage]) -> tuple[SpaceUser, ...]:
    # What stands nowhere yet is the trees at the top: they are of no directory and of no class.
    about = [found[label] for label in (ABOUT, b"") if label in found]
    told = {label: held for label, held in found.items() if label not in (ABOUT, b"")}
    if about:
        told[ABOUT] = LabelUsage(sum(one.holds for one in about), sum(one.frees for one in about))
    rows = [SpaceUser(_shown(label), held.holds, held.frees) for label, held in told.items()]
    return tuple(sorted(rows, key=lambda row: (-row.holds, row.name)))


def _shown(label: bytes) -> str:
    if label == ABOUT:
        return "what is said of moments"
    try:
        return os.fsdecode(true_path(label)) if label != TOP else os.fsdecode(label)
    except Damaged:
        return os.fsdecode(label)
