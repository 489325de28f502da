"""The list as a graph: where a restore went back to, where a fork began, which states were left behind (pure).

A timeline is one chain, but the states it holds are a tree: what a restore brought back goes on from the moment it
came from, and what was undone by it stands on a branch beside. Where a part alone came back, a moment has two parents.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from git_envhist.model import Snapshot

Parents = Mapping[str, tuple[str, ...]]


class GraphRow(NamedTuple):
    """The lines of a graph at one moment: those before it, its own, what goes on beside its further lines."""

    before: tuple[str, ...]
    mark: str
    beside: str
    after: tuple[str, ...]

    @property
    def indent(self) -> int:
        """Where the words at this moment begin."""
        return len(self.mark) + 1


def parents_of(snapshots: Iterable[Snapshot]) -> dict[str, tuple[str, ...]]:
    """The states that each moment's state goes on from, by their ids."""
    everything = list(snapshots)
    by_id: dict[str, Snapshot] = {one.id: one for one in everything}
    id_of: dict[str, str] = {one.commit: one.id for one in everything}
    return {one.id: tuple(_states_before(one, by_id, id_of)) for one in everything}


def _states_before(one: Snapshot, by_id: Mapping[str, Snapshot], id_of: Mapping[str, str]) -> Iterator[str]:
    source = by_id.get(one.restored_from or one.forked_from or "")
    before = id_of.get(one.parent or "")
    if source is None:
        if before is not None:
            yield before
        return
    yield source.id
    # A part of it: the rest goes on from what was here.
    if one.forked_from is None and before not in (None, source.id) and source.content != one.content:
        assert before is not None
        yield before


def connected(start: Iterable[str], parents: Parents) -> frozenset[str]:
    """All moments that hang together with some of them, by parents or children."""
    beside: dict[str, set[str]] = {}
    for one, before in parents.items():
        for other in before:
            beside.setdefault(one, set()).add(other)
            beside.setdefault(other, set()).add(one)
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += beside.get(one, ())
    return frozenset(seen)


def ordered(snapshots: Sequence[Snapshot], parents: Parents) -> list[Snapshot]:
    """The newest first, none before what goes on from it."""
    shown: dict[str, tuple[float, int, Snapshot]] = {
        one.id: (-one.at.timestamp(), place, one) for place, one in enumerate(snapshots)
    }
    children: dict[str, int] = dict.fromkeys(shown, 0)
    for one in shown:
        for before in parents[one]:
            if before in children:
                children[before] += 1
    ready = [shown[one] for one, number in children.items() if not number]
    heapq.heapify(ready)
    found = []
    while ready:
        _, _, snapshot = heapq.heappop(ready)
        found.append(snapshot)
        for before in parents[snapshot.id]:
            if before in children:
                children[before] -= 1
                if not children[before]:
                    heapq.heappush(ready, shown[before])
    return found


def shown_parents(shown: Sequence[str], parents: Parents) -> dict[str, tuple[str, ...]]:
    """For each that is shown the nearest ones that are shown, too."""
    wanted = set(shown)
    nearest: dict[str, tuple[str, ...]] = {}
    for one in shown:
        found: dict[str, None] = {}
        for before in parents[one]:
            at: str | None = before
            while at is not None and at not in wanted:
                at = next(iter(parents.get(at, ())), None)
            if at is not None:
                found[at] = None
        nearest[one] = tuple(found)
    return nearest


def draw(shown: Sequence[str], parents: Parents) -> Iterator[GraphRow]:
    """The rows, in the manner of git."""
    lanes: list[str] = []
    for one in shown:
        if one not in lanes:
            lanes.append(one)
        at = lanes.index(one)
        before: list[str] = []
        while (last := len(lanes) - 1 - lanes[::-1].index(one)) != at:
            before += _join(len(lanes), last, at)
            del lanes[last]
        mark = _cells(len(lanes), at, "*")
        first, *others = parents[one] or ("",)
        lanes[at] = first
        after: list[str] = []
        for other in others:
            lanes.insert(at + 1, other)
            after.append(_opened(len(lanes), at))
        beside = _cells(len(lanes), -1, "|")
        if not first:
            after += _closed(len(lanes), at)
            del lanes[at]
        yield GraphRow(tuple(before), mark, beside, tuple(after))


def _cells(number: int, at: int, mark: str) -> str:
    return " ".join(mark if place == at else "|" for place in range(number))


def _line(marks: Mapping[int, str]) -> str:
    return "".join(marks.get(column, " ") for column in range(max(marks, default=-1) + 1))


def _join(number: int, last: int, at: int) -> Iterator[str]:
    """One lane runs into another on its left; those on its right move up."""
    for step in range(last, at, -1):
        marks = {2 * place: "|" for place in range(last)}
        for place in range(last + 1, number):
            marks[2 * place - (1 if step == last else 2)] = "/" if step == last else "|"
        yield _line({**marks, 2 * step - 1: "/"})


def _opened(number: int, at: int) -> str:
    """A lane begins to the right of another; those on its right make room."""
    marks = {2 * place: "|" for place in range(at + 1)}
    return _line({**marks, 2 * at + 1: "\\", **{2 * place - 1: "\\" for place in range(at + 2, number)}})


def _closed(number: int, at: int) -> list[str]:
    """A lane ends; those on its right move up."""
    if at == number - 1:
        return []
    marks = {2 * place: "|" for place in range(at)}
    return [_line({**marks, **{2 * place - 1: "/" for place in range(at + 1, number)}})]
