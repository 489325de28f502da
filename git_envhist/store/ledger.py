"""What of the packs belongs to what: every object that snapshots hold, with a label for each way that leads to it.

A label is a moment, a directory, a class. An object with one label alone goes when that goes; the bytes that count are
those that its entries take in the packs. Trees are looked into once for each label, however many snapshots share them.

What stays may be stored as a difference of what goes: then one such difference becomes the whole, and no more than that
difference comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from git_envhist.errors import Damaged
from git_envhist.store.commits import parse_commit
from git_envhist.store.layout import DOTGIT, MANIFEST, PIECES, RESERVED, ROOTS
from git_envhist.store.manifest import shard_path
from git_envhist.store.ownpacks import OwnPacks
from git_envhist.store.packfile import PackFile
from git_envhist.store.pointers import read_pointer
from git_envhist.store.scattered import Scattered
from git_envhist.store.trees import DIRECTORY, decode_tree
from git_envhist.values import dataclass, field

POINTER = b"envhist-pieces 1\n"
LARGEST_POINTER = 200
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
        self._reader = Scattered(own)
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
        if self._sizes.of.get(oid, LARGEST_POINTER) >= LARGEST_POINTER:
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
