"""Measures the moments of a timeline in one go: git compares them all, and is asked for the sizes of what differs.

The oldest is measured whole, every later one by what it changed: so that a thousand moments of an environment of
100,000 files cost what a thousand comparisons do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from git_envhist.capturing.factdiff import fact_ids
from git_envhist.errors import Damaged
from git_envhist.history.areas import EnvironmentSize, SizedChange, Step, areas_of
from git_envhist.model import Change, ChangeSide, EntryKind, Snapshot, StoredAs
from git_envhist.store.compare import compare
from git_envhist.store.facts import read_fact, read_fact_text
from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile
from git_envhist.store.pointers import read_pointer
from git_envhist.store.series import changes_of
from git_envhist.store.sizes import known_sizes

PACKAGES, DECLARED = "packages", "declared"


def steps_of(
    git: Git, moments: Sequence[Snapshot], kinds: Mapping[str, str], most_areas: int
) -> Iterator[tuple[Snapshot, Step]]:
    """Each of some moments that follow each other on a timeline, oldest first, with what it changed and is then.

    `kinds`: of which kind each probe is.
    """
    if not moments:
        return
    with CatFile(git) as reader:
        measure = _Measure(git, reader)
        packages = _Packages(
            reader, [probe for probe, kind in kinds.items() if kind == PACKAGES and probe != DECLARED]
        )
        oldest = moments[0]
        files, size = measure.whole(oldest)
        asked = [(one.commit, one.parent) for one in moments]
        for snapshot, (_, changes) in zip(moments, changes_of(git, reader, asked), strict=True):
            touched = measure.touched(changes)
            if snapshot is not oldest:
                files += sum((one.after is not None) - (one.before is not None) for one in touched)
                size += sum((one.after or 0) - (one.before or 0) for one in touched)
            extent = EnvironmentSize(
                files, size, packages.count(snapshot.tree), areas_of(touched, most_areas)
            )
            yield snapshot, Step(changes, extent)


class _Measure:
    """Knows how large what stands at a path is."""

    def __init__(self, git: Git, reader: CatFile) -> None:
        self._git = git
        self._reader = reader
        self._known: dict[bytes, int] = {}

    def whole(self, snapshot: Snapshot) -> tuple[int, int]:
        """How many files a moment holds, and how many bytes."""
        touched = self.touched(compare(self._git, None, snapshot.commit))
        return len(touched), sum(one.after or 0 for one in touched)

    def touched(self, changes: Iterable[Change]) -> list[SizedChange]:
        """The changed files with their sizes; directories have none."""
        told = [one for one in changes if _is_file(one.before) or _is_file(one.after)]
        sides = [side for one in told for side in (one.before, one.after) if side is not None]
        self._learn(sides)
        return [SizedChange(one.path, self._size(one.before), self._size(one.after)) for one in told]

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
            # A picture is no check: what is damaged is told by one.
            return 0


class _Packages:
    """Counts packages by what installed them; a list that did not change is not read again."""

    def __init__(self, reader: CatFile, probes: Sequence[str]) -> None:
        self._reader = reader
        self._probes = frozenset(probes)
        self._known: dict[str, int] = {}

    def count(self, tree: str) -> dict[str, int]:
        """By probe, how many packages a moment holds."""
        held = {probe: oid for probe, oid in fact_ids(self._reader, tree).items() if probe in self._probes}
        for probe, oid in held.items():
            if oid not in self._known:
                self._known[oid] = self._read(probe, oid)
        return {probe: self._known[oid] for probe, oid in sorted(held.items()) if self._known[oid]}

    def _read(self, probe: str, oid: str) -> int:
        answer = self._reader.read(oid)
        text = read_fact_text(probe, answer.data) if answer is not None else None
        if text is None:
            return 0
        facts = (read_fact(probe, line) for line in text.lines)
        return len({(fact.key, fact.value) for fact in facts if fact is not None and fact.value})


def _is_file(side: ChangeSide | None) -> bool:
    return side is not None and side.kind is not EntryKind.DIRECTORY
