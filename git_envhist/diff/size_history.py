"""Measure the snapshots of a timeline in one pass: environment sizes, and areas of change for a picture.

git compares all snapshots in one process, and only the sizes of changed files are read. The oldest snapshot is
measured completely, every later one by its changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from git_envhist.diff.compare_series import changes_of
from git_envhist.diff.compare_snapshots import compare
from git_envhist.diff.facts import fact_ids
from git_envhist.errors import Damaged
from git_envhist.git.cat_file import CatFile, known_sizes
from git_envhist.git.process import Git
from git_envhist.lazy import dataclass
from git_envhist.model import TOP, Change, ChangeSide, EntryKind, EnvPath, Snapshot, StoredAs
from git_envhist.snapshots.chunks import read_pointer
from git_envhist.snapshots.fact_text import read_fact, read_fact_text

# Areas: the places of changes with their sizes. The largest directories are divided first, until there are enough
# areas.


@dataclass(frozen=True, slots=True)
class SizedChange:
    """A changed path and its sizes before and after; None on a side where it does not exist."""

    path: EnvPath
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Area:
    """A place of changes: a file, or a directory (with a slash at its end) with all changes in it."""

    path: EnvPath
    added: int
    modified: int
    removed: int
    bytes_before: int
    bytes_after: int

    @property
    def weight(self) -> int:
        """The size of its rectangle in a picture."""
        return max(self.bytes_before, self.bytes_after)


@dataclass(frozen=True, slots=True)
class EnvironmentSize:
    """The size of an environment in a snapshot, and the areas of its changes."""

    files: int
    bytes: int
    packages: dict[str, int]
    """The number of packages by probe."""
    areas: tuple[Area, ...]


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The changes of a snapshot, and the resulting size."""

    changes: tuple[Change, ...]
    extent: EnvironmentSize


class _AreaNode:
    """A name in a directory, with everything below it."""

    __slots__ = ("counts", "inner", "path", "sizes", "touched")

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.inner: dict[bytes, _AreaNode] = {}
        self.touched: SizedChange | None = None
        self.counts = [0, 0, 0]
        self.sizes = [0, 0]

    def area(self) -> Area:
        ending = b"/" if self.inner else b""
        return Area(EnvPath(self.path + ending), *self.counts, *self.sizes)

    def parts(self) -> Iterator[_AreaNode]:
        """Yield the parts of a directory."""
        if self.touched is not None:
            alone = _AreaNode(self.path)
            _count(alone, self.touched)
            yield alone
        yield from self.inner.values()


def areas_of(changes: Iterable[SizedChange], limit: int) -> tuple[Area, ...]:
    """Return at most `limit` areas that cover all changes, the largest first."""
    top = _AreaNode(b"")
    for one in changes:
        _put(top, one)
    open_places: list[tuple[int, bytes, _AreaNode]] = []
    areas: list[Area] = []
    _offer(top, open_places, areas)
    while open_places:
        _, _, place = heappop(open_places)
        if place is not top and len(areas) + len(open_places) + len(place.inner) > limit:
            areas.append(place.area())
            continue
        for part in place.parts():
            _offer(part, open_places, areas)
    return _cut(sorted(areas, key=lambda area: (-area.weight, area.path)), limit)


def _offer(place: _AreaNode, open_places: list[tuple[int, bytes, _AreaNode]], areas: list[Area]) -> None:
    if place.inner:
        heappush(open_places, (-max(place.sizes), place.path, place))
    elif place.path:
        areas.append(place.area())


def _cut(areas: list[Area], limit: int) -> tuple[Area, ...]:
    """Limit the number of areas: the smallest ones are joined to one area of the top."""
    if len(areas) <= limit:
        return tuple(areas)
    rest = areas[limit - 1 :]
    numbers = [(one.added, one.modified, one.removed, one.bytes_before, one.bytes_after) for one in rest]
    return (*areas[: limit - 1], Area(TOP, *map(sum, zip(*numbers, strict=True))))


def _put(top: _AreaNode, one: SizedChange) -> None:
    place, reached = top, b""
    _count(place, one)
    for name in one.path.split(b"/"):
        reached = reached + b"/" + name if reached else name
        place = place.inner.setdefault(name, _AreaNode(reached))
        _count(place, one)
    place.touched = one


def _count(place: _AreaNode, one: SizedChange) -> None:
    kind = 0 if one.before is None else 2 if one.after is None else 1
    place.counts[kind] += 1
    place.sizes[0] += one.before or 0
    place.sizes[1] += one.after or 0


PACKAGES, DECLARED = "packages", "declared"


def steps_of(
    git: Git, snapshots: Sequence[Snapshot], kinds: Mapping[str, str], most_areas: int
) -> Iterator[tuple[Snapshot, MeasuredStep]]:
    """Yield successive snapshots of a timeline, oldest first, with their changes and sizes.

    `kinds` are the kinds of probes.
    """
    if not snapshots:
        return
    with CatFile(git) as reader:
        measure = _Measure(git, reader)
        packages = _Packages(
            reader, [probe for probe, kind in kinds.items() if kind == PACKAGES and probe != DECLARED]
        )
        oldest = snapshots[0]
        files, size = measure.whole(oldest)
        asked = [(one.commit, one.parent) for one in snapshots]
        for snapshot, (_, changes) in zip(snapshots, changes_of(git, reader, asked), strict=True):
            touched = measure.touched(changes)
            if snapshot is not oldest:
                files += sum((one.after is not None) - (one.before is not None) for one in touched)
                size += sum((one.after or 0) - (one.before or 0) for one in touched)
            extent = EnvironmentSize(
                files, size, packages.count(snapshot.tree), areas_of(touched, most_areas)
            )
            yield snapshot, MeasuredStep(changes, extent)


class _Measure:
    """Read and remember the sizes of files."""

    def __init__(self, git: Git, reader: CatFile) -> None:
        self._git = git
        self._reader = reader
        self._known: dict[bytes, int] = {}

    def whole(self, snapshot: Snapshot) -> tuple[int, int]:
        """Return the number of files and bytes in a snapshot."""
        touched = self.touched(compare(self._git, None, snapshot.commit))
        return len(touched), sum(one.after or 0 for one in touched)

    def touched(self, changes: Iterable[Change]) -> list[SizedChange]:
        """Return the changed files with their sizes; directories have none."""
        files = [one for one in changes if _is_file(one.before) or _is_file(one.after)]
        sides = [side for one in files for side in (one.before, one.after) if side is not None]
        self._learn(sides)
        return [SizedChange(one.path, self._size(one.before), self._size(one.after)) for one in files]

    def _learn(self, sides: Iterable[ChangeSide]) -> None:
        new = {
            side.oid: side.stored for side in sides if side.oid is not None and side.oid not in self._known
        }
        whole = [oid for oid, stored in new.items() if stored is not StoredAs.PIECES]
        self._known.update(known_sizes(self._git, whole))
        for oid, stored in new.items():
            if stored is StoredAs.PIECES:
                self._known[oid] = self._size_in_pieces(oid)

    def _size(self, side: ChangeSide | None) -> int | None:
        if side is None or not _is_file(side):
            return None
        return self._known.get(side.oid, 0) if side.oid is not None else 0

    def _size_in_pieces(self, pointer: bytes) -> int:
        answer = self._reader.read(pointer.hex())
        try:
            return read_pointer(answer.data).size if answer is not None else 0
        except Damaged:
            # A picture need not report damage; fsck does.
            return 0


class _Packages:
    """Count packages by probe; an unchanged fact text is not read again."""

    def __init__(self, reader: CatFile, probes: Sequence[str]) -> None:
        self._reader = reader
        self._probes = frozenset(probes)
        self._known: dict[str, int] = {}

    def count(self, tree: str) -> dict[str, int]:
        """Return the number of packages in a snapshot, by probe."""
        texts = {probe: oid for probe, oid in fact_ids(self._reader, tree).items() if probe in self._probes}
        for probe, oid in texts.items():
            if oid not in self._known:
                self._known[oid] = self._read(probe, oid)
        return {probe: self._known[oid] for probe, oid in sorted(texts.items()) if self._known[oid]}

    def _read(self, probe: str, oid: str) -> int:
        answer = self._reader.read(oid)
        text = read_fact_text(probe, answer.data) if answer is not None else None
        if text is None:
            return 0
        facts = (read_fact(probe, line) for line in text.lines)
        return len({(fact.key, fact.value) for fact in facts if fact is not None and fact.value})


def _is_file(side: ChangeSide | None) -> bool:
    return side is not None and side.kind is not EntryKind.DIRECTORY
