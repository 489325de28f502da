"""Measure what uses the space in our packs, for `du`.

Every object reachable from snapshots gets a label for each path that leads to it: a snapshot, a directory, a class.
An object with a single label is freed when that is removed; its size is what its entries take in the packs. Each tree
is read once per label, however many snapshots share it.

An object that stays may be stored as a delta of a removed one: then one such delta becomes a whole object, and only
the size of the delta is freed. `bytes_freed` measures this by packing the affected objects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from git_envhist.diff.path_classes import class_of, generated_in
from git_envhist.errors import Damaged
from git_envhist.git.repository import TIMELINE_REFS, TRASH_REFS, Repository
from git_envhist.lazy import dataclass, field
from git_envhist.maintenance.repack import NOT_OURS, packed_size, reachable_objects
from git_envhist.model import DiskUsage, Snapshot, SpaceUser
from git_envhist.objects.commits import parse_commit
from git_envhist.objects.object_readers import FORMATS, PackReader, Verify
from git_envhist.objects.own_packs import OwnPacks
from git_envhist.objects.pack_file import PackFile
from git_envhist.objects.trees import DIRECTORY, decode_tree
from git_envhist.snapshots.chunks import read_pointer
from git_envhist.snapshots.layout import DOTGIT, MANIFEST, PIECES, ROOTS, shard_path
from git_envhist.snapshots.staging import open_published
from git_envhist.snapshots.stored_names import RESERVED, true_path

POINTER = b"envhist-pieces 1\n"
MAX_POINTER = 200
ABOUT = b".envhist"
"""The label of a snapshot's metadata."""

Step = Callable[[bytes, bytes, bool], bytes]
"""Returns the label of an entry, given its directory's label, its name, and whether it is a directory."""


@dataclass(slots=True)
class LabelUsage:
    """The bytes of a label."""

    holds: int = 0
    frees: int = 0
    """Bytes that are freed with the label: no other label leads to them."""


@dataclass(slots=True)
class PackedSizes:
    """The size of each object in our packs, summed over all packs that contain it."""

    of: dict[bytes, int] = field(default_factory=dict)
    total: int = 0
    differences: dict[bytes, list[bytes]] = field(default_factory=dict)
    """By base: the objects that are stored as deltas of it."""
    bases: dict[bytes, bytes] = field(default_factory=dict)
    """The base of an object stored as a delta."""
    extra: dict[bytes, int] = field(default_factory=dict)
    """The size of all copies but one, for objects in several packs."""

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
                    sizes.extra[name] = sizes.extra.get(name, 0) + taken
                sizes.of[name] = sizes.of.get(name, 0) + taken
                sizes.total += taken
            for oid, base in pack.bases():
                sizes.differences.setdefault(base, []).append(oid)
                sizes.bases[oid] = base
        return sizes

    def once(self, oid: bytes) -> int:
        """Return the size of one copy of an object that exists."""
        return self.of[oid] - self.extra.get(oid, 0)


class ObjectLabels:
    """Label the objects of snapshots, one after the other."""

    def __init__(self, own: OwnPacks, sizes: PackedSizes, hash_length: int, step: Step | None = None) -> None:
        """`step`: derives the labels of entries; without it all objects of a snapshot get one label."""
        object_format = FORMATS[2 * hash_length]
        self._reader = PackReader(own, object_format, verify=Verify.DEFLATE)
        self._sizes = sizes
        self._length = hash_length
        self._step = step
        self._labels: dict[bytes, bytes | frozenset[bytes]] = {}
        self._shards: dict[bytes, bytes] = {}
        self._pieces: dict[bytes, bytes] = {}

    def add(self, commit: str, label: bytes) -> None:
        """Label the objects of a snapshot. Objects outside our packs take no space."""
        oid = bytes.fromhex(commit)
        self._add_label(oid, label if self._step is None else ABOUT)
        data = self._read(oid)
        if data is None:
            return
        root = bytes.fromhex(parse_commit(data).tree)
        if self._step is None:
            self._all(root, label)
        else:
            self._top(root, label)

    def keep(self, ids: Iterable[bytes]) -> None:
        """Mark objects that are reachable from elsewhere: removing the labelled snapshots does not free them."""
        for oid in ids:
            if oid in self._labels:
                self._add_label(oid, b"\0kept")

    def usage(self) -> dict[bytes, LabelUsage]:
        """Return the usage of each label."""
        found: dict[bytes, LabelUsage] = {}
        sizes = self._sizes.of
        for oid, labels in self._labels.items():
            size = sizes.get(oid, 0)
            if isinstance(labels, bytes):
                one = found.setdefault(labels, LabelUsage())
                one.holds += size
                one.frees += self._bytes_freed_by(oid, labels)
            else:
                for label in labels:
                    found.setdefault(label, LabelUsage()).holds += size
        found.pop(b"\0kept", None)
        return found

    def alone(self, label: bytes) -> frozenset[bytes]:
        """Return the objects that have only this label."""
        return frozenset(oid for oid, labels in self._labels.items() if labels == label)

    def _bytes_freed_by(self, oid: bytes, label: bytes) -> int:
        """Return how many bytes are freed when an object is removed with everything else of its label."""
        sizes = self._sizes.of
        taken = sizes.get(oid, 0)
        others = self._sizes.differences.get(oid)
        if not others:
            return taken
        # git writes the newest version first, and would store that one whole.
        staying = (sizes[one] for one in others if self._has_staying_delta(one, label))
        return min(taken, next(staying, taken))

    def _has_staying_delta(self, oid: bytes, label: bytes) -> bool:
        """Return whether an object, or a direct or indirect delta of it, stays when a label is removed."""
        waiting = [oid]
        while waiting:
            one = waiting.pop()
            labels = self._labels.get(one)
            if labels is not None and labels != label:
                return True
            if labels is not None:
                waiting += self._sizes.differences.get(one, ())
        return False

    def _add_label(self, oid: bytes, label: bytes) -> bool:
        """Add a label to an object. Return whether it is new there."""
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
            if self._add_label(oid, label):
                for _, mode, child in self._entries(oid):
                    if mode == DIRECTORY:
                        waiting.append(child)
                    else:
                        self._add_label(child, label)

    def _top(self, root: bytes, label: bytes) -> None:
        """Label the environment first: its metadata and the chunks of its files get the labels of their files."""
        self._add_label(root, ABOUT)
        reserved: bytes | None = None
        for name, mode, oid in self._entries(root):
            if name == RESERVED:
                reserved = oid
            else:
                self._entry(b"", name, mode, oid, label)
        self._shards.setdefault(_shard(b""), label)
        if reserved is not None:
            self._add_label(reserved, ABOUT)
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
            if not self._add_label(one, own):
                continue
            if not is_directory:
                self._point(one, own)
                continue
            waiting += [
                (
                    path + b"/" + child,
                    below,
                    child_mode == DIRECTORY,
                    self._step(own, child, child_mode == DIRECTORY),
                )
                for child, child_mode, below in self._entries(one)
            ]

    def _point(self, oid: bytes, label: bytes) -> None:
        """Remember the label of a file for its chunks."""
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
            self._add_label(oid, ABOUT)
            for outer, inner, shard in self._two_levels(oid):
                self._add_label(shard, self._shards.get(outer + inner, ABOUT))
        elif name == PIECES:
            self._add_label(oid, ABOUT)
            for outer, inner, tree in self._two_levels(oid):
                self._all(tree, self._pieces.get(bytes.fromhex((outer + inner).decode("ascii")), ABOUT))
        elif name in (ROOTS, DOTGIT) and mode == DIRECTORY:
            self._add_label(oid, ABOUT)
            for child, child_mode, below in self._entries(oid):
                self._entry(RESERVED + b"/" + name, child, child_mode, below, label)
        elif mode == DIRECTORY:
            self._all(oid, ABOUT)
        else:
            self._add_label(oid, ABOUT)

    def _two_levels(self, tree: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
        for outer, mode, oid in self._entries(tree):
            self._add_label(oid, ABOUT)
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


# Bytes freed by removing objects, measured by packing what stays.
#
# An object that stays may be stored as a delta of a removed one. git then finds it another base or stores it whole,
# which may take as much as was removed; and with one version fewer it may store one whole that it had stored as a
# delta. No sum predicts that. So the objects at the affected paths are packed once as gc would, and the result is
# only counted.

OURS = ("--glob=refs/envhist/*", "--glob=refs/notes/envhist/*")
MAX_COUNT = 64 << 20
"""With more packed bytes than this the estimate is used: packing would take as long as gc."""


def bytes_freed(repository: Repository, sizes: PackedSizes, removed: Collection[bytes], estimate: int) -> int:
    """Return how many bytes fewer our packs take without some objects.

    `estimate`: the sum to return if measuring is too much work.
    """
    lost = sum(sizes.of[oid] for oid in removed if oid in sizes.of)
    linked = frozenset(_linked_by_deltas(sizes, removed))
    if linked.issubset(removed):
        return lost
    # In the order in which gc finds them: it determines the delta bases.
    found = reachable_objects(repository.git, sizes.of.__contains__, roots=OURS)
    paths = {found[oid] for oid in linked if oid in found}
    left = _at_paths(found, paths, removed)
    before = sum(sizes.once(oid) for oid in left)
    if before > MAX_COUNT:
        return estimate
    return max(0, lost + before - packed_size(repository.git, left, repository.hash_length))


def _linked_by_deltas(sizes: PackedSizes, removed: Collection[bytes]) -> Iterator[bytes]:
    """Yield all objects connected by deltas with the removed ones."""
    waiting, seen = list(removed), set(removed)
    while waiting:
        oid = waiting.pop()
        linked = {*sizes.differences.get(oid, ()), sizes.bases.get(oid, oid)} - {oid}
        if linked:
            yield oid
        waiting += linked - seen
        seen |= linked


def _at_paths(
    found: Mapping[bytes, bytes], paths: Collection[bytes], removed: Collection[bytes]
) -> dict[bytes, bytes]:
    return {oid: path for oid, path in found.items() if path in paths and oid not in removed}


# Report: what uses the space of a history, by snapshot, directory and class, and what each of them alone would free.

DEPTH = 2
"""Depth down to which directories are listed."""
TOP = b"."
IN, OUT = b"\0in", b"\0out"
CHOSEN = b"\0chosen"
GENERATED = (b"packages", b"built", b"cache")


@dataclass(frozen=True, slots=True)
class SnapshotSet:
    """The snapshots of a repository."""

    lines: Mapping[str, Sequence[Snapshot]]
    """By timeline."""
    in_trash: Sequence[str]
    """Commits."""


def measure_disk_usage(
    repository: Repository,
    snapshots: SnapshotSet,
    chosen: Sequence[Snapshot],
    paths: Sequence[bytes],
    progress: Callable[[str], None],
) -> DiskUsage:
    """Measure the space; `chosen`, `paths`: report what these snapshots, or these paths, would free together."""
    with closing(
        open_published(repository.common_state, repository.pack_dir, repository.object_format)
    ) as own:
        sizes = PackedSizes.read(own.packs, repository.hash_length)
        progress("finding the objects of your own refs")
        ours = reachable_objects(repository.git, sizes.of.__contains__, roots=NOT_OURS)
        count = _Count(repository, own, sizes, snapshots, frozenset(ours))
        progress("measuring snapshots")
        by_snapshot = count.by_snapshot()
        progress("measuring directories")
        by_directory, by_class = count.by(_directory), count.by(_class)
        together = count.together(chosen, paths) if chosen or paths else None
        files = [
            f"{path.removesuffix('.pack')}{suffix}" for path in own.paths for suffix in (".pack", ".idx")
        ]
        on_disk = sum(os.stat(path).st_size for path in files)
        return DiskUsage(
            on_disk,
            len(own.paths),
            sum(len(line) for line in snapshots.lines.values()),
            len(snapshots.in_trash),
            by_snapshot.pop(TRASH_REFS.encode(), LabelUsage()).frees,
            _snapshot_rows(by_snapshot, snapshots),
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
        snapshots: SnapshotSet,
        reached: frozenset[bytes],
    ) -> None:
        self._repository = repository
        self._own = own
        self._sizes = sizes
        self._length = repository.hash_length
        self._snapshot_rows = snapshots
        self._reached = reached

    def by_snapshot(self) -> dict[bytes, LabelUsage]:
        labels = ObjectLabels(self._own, self._sizes, self._length)
        for snapshot in self._all():
            labels.add(snapshot.commit, snapshot.commit.encode("ascii"))
        return self._finish(labels, TRASH_REFS.encode())

    def by(self, step: Step) -> dict[bytes, LabelUsage]:
        labels = ObjectLabels(self._own, self._sizes, self._length, step)
        for commit in (*(one.commit for one in self._all()), *self._snapshot_rows.in_trash):
            labels.add(commit, b"")
        labels.keep(self._reached)
        return labels.usage()

    def together(self, chosen: Sequence[Snapshot], paths: Sequence[bytes]) -> int:
        """Return what snapshots would free together, or paths, removed from all snapshots."""
        everything = [*(one.commit for one in self._all()), *self._snapshot_rows.in_trash]
        if paths:
            labels = ObjectLabels(self._own, self._sizes, self._length, _inside(frozenset(paths)))
            for commit in everything:
                labels.add(commit, b"")
            return self._freed(labels, IN)
        commits = {one.commit for one in chosen}
        labels = ObjectLabels(self._own, self._sizes, self._length)
        for commit in everything:
            labels.add(commit, CHOSEN if commit in commits else OUT)
        return self._freed(labels, CHOSEN)

    def _freed(self, labels: ObjectLabels, label: bytes) -> int:
        labels.keep(self._reached)
        estimate = labels.usage().get(label, LabelUsage()).frees
        return bytes_freed(self._repository, self._sizes, labels.alone(label), estimate)

    def _all(self) -> Iterable[Snapshot]:
        return (one for line in self._snapshot_rows.lines.values() for one in line)

    def _finish(self, labels: ObjectLabels, trash: bytes) -> dict[bytes, LabelUsage]:
        for commit in self._snapshot_rows.in_trash:
            labels.add(commit, trash)
        labels.keep(self._reached)
        return labels.usage()


def _directory(label: bytes, name: bytes, is_directory: bool) -> bytes:
    """Label by directory down to DEPTH; all files at the top have one label."""
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
    """Return a step that labels entries at or below the paths IN, and all others OUT.

    Until that is known, the label of an entry is its path.
    """

    def step(label: bytes, name: bytes, _is_directory: bool) -> bytes:
        if label in (IN, OUT):
            return label
        path = label + b"/" + name if label else name
        if path in paths:
            return IN
        return path if any(one.startswith(path + b"/") for one in paths) else OUT

    return step


def _snapshot_rows(found: dict[bytes, LabelUsage], snapshots: SnapshotSet) -> tuple[SpaceUser, ...]:
    rows = []
    for timeline, line in snapshots.lines.items():
        for one in line:
            usage = found.get(one.commit.encode("ascii"), LabelUsage())
            rows.append(
                SpaceUser(one.id, usage.holds, usage.frees, timeline.removeprefix(TIMELINE_REFS), one)
            )
    return tuple(sorted(rows, key=lambda row: -row.frees))


def _rows(found: dict[bytes, LabelUsage]) -> tuple[SpaceUser, ...]:
    # Trees above the first directory have no label of their own.
    about = [found[label] for label in (ABOUT, b"") if label in found]
    labelled = {label: usage for label, usage in found.items() if label not in (ABOUT, b"")}
    if about:
        labelled[ABOUT] = LabelUsage(sum(one.holds for one in about), sum(one.frees for one in about))
    rows = [SpaceUser(_shown(label), usage.holds, usage.frees) for label, usage in labelled.items()]
    return tuple(sorted(rows, key=lambda row: (-row.holds, row.name)))


def _shown(label: bytes) -> str:
    if label == ABOUT:
        return "snapshot metadata"
    try:
        return os.fsdecode(true_path(label)) if label != TOP else os.fsdecode(label)
    except Damaged:
        return os.fsdecode(label)
