"""Changes with their sizes -> the few places where they happened, the largest taken apart first (pure).

What somebody looks at is a picture of a step: a rectangle a place, as large as what changed there. A directory is
opened where it is the largest, until there are as many places as can be told apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from git_envhist.model import TOP, Change, EnvPath
from git_envhist.values import dataclass


@dataclass(frozen=True, slots=True)
class SizedChange:
    """One changed path, and how large it was before and after; None where it was not there."""

    path: EnvPath
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Area:
    """A place where something changed: a file, or a directory (with a slash at its end) with all that changed in it."""

    path: EnvPath
    added: int
    modified: int
    removed: int
    bytes_before: int
    bytes_after: int

    @property
    def weight(self) -> int:
        """How much room it takes in a picture."""
        return max(self.bytes_before, self.bytes_after)


@dataclass(frozen=True, slots=True)
class EnvironmentSize:
    """How large an environment was at a moment, and where what changed in the step to it lies."""

    files: int
    bytes: int
    packages: dict[str, int]
    """How many there are, by what installed them."""
    areas: tuple[Area, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What a moment changed, and what it came to."""

    changes: tuple[Change, ...]
    extent: EnvironmentSize


class _AreaNode:
    """A name in a directory, and what stands below it."""

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
        """What a directory is taken apart into."""
        if self.touched is not None:
            alone = _AreaNode(self.path)
            _count(alone, self.touched)
            yield alone
        yield from self.inner.values()


def areas_of(changes: Iterable[SizedChange], most: int) -> tuple[Area, ...]:
    """At most so many places that tell of all changes, the largest first."""
    top = _AreaNode(b"")
    for one in changes:
        _put(top, one)
    open_places: list[tuple[int, bytes, _AreaNode]] = []
    told: list[Area] = []
    _offer(top, open_places, told)
    while open_places:
        _, _, place = heappop(open_places)
        if place is not top and len(told) + len(open_places) + len(place.inner) > most:
            told.append(place.area())
            continue
        for part in place.parts():
            _offer(part, open_places, told)
    return _cut(sorted(told, key=lambda area: (-area.weight, area.path)), most)


def _offer(place: _AreaNode, open_places: list[tuple[int, bytes, _AreaNode]], told: list[Area]) -> None:
    if place.inner:
        heappush(open_places, (-max(place.sizes), place.path, place))
    elif place.path:
        told.append(place.area())


def _cut(areas: list[Area], most: int) -> tuple[Area, ...]:
    """The top itself may hold more than can be told apart: what is smallest is one place then, that of the top."""
    if len(areas) <= most:
        return tuple(areas)
    rest = areas[most - 1 :]
    numbers = [(one.added, one.modified, one.removed, one.bytes_before, one.bytes_after) for one in rest]
    return (*areas[: most - 1], Area(TOP, *map(sum, zip(*numbers, strict=True))))


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
