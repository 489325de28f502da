"""Find the lines that two versions of a text have in common, in bounded time for any text (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile

MAX_PAIRS = 4_096
"""The product of two numbers of lines up to which `SequenceMatcher` compares them; it takes cubic time at worst."""
MAX_DEPTH = 16

Block = tuple[int, int, int]
"""The place in the old lines, the place in the new lines, and the number of equal lines."""
Span = tuple[int, int, int, int]


def matching_blocks(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[Block]:
    """Yield blocks of equal lines, in no order.

    Equal beginnings and ends match first, then lines that occur once on both sides divide the rest. A large rest
    without such lines counts as replaced.
    """
    waiting = [((0, len(old), 0, len(new)), 0)]
    while waiting:
        span, depth = waiting.pop()
        first, end, new_first, new_end = span
        size = _common(old[first:end], new[new_first:new_end])
        if size:
            yield first, new_first, size
        first, new_first = first + size, new_first + size
        size = _common(old[first:end][::-1], new[new_first:new_end][::-1])
        if size:
            yield end - size, new_end - size, size
        end, new_end = end - size, new_end - size
        if (end - first) * (new_end - new_first) <= MAX_PAIRS:
            blocks = SequenceMatcher(None, old[first:end], new[new_first:new_end], autojunk=False)
            for at, new_at, size in blocks.get_matching_blocks():
                if size:
                    yield first + at, new_first + new_at, size
        elif depth < MAX_DEPTH:
            waiting += [(part, depth + 1) for part in _divided(old, new, (first, end, new_first, new_end))]


def _common(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    """Return the number of equal lines at the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _divided(old: Sequence[bytes], new: Sequence[bytes], span: Span) -> Iterator[Span]:
    """Yield the parts that begin at lines which occur once on both sides, in the same order; none without any."""
    first, end, new_first, new_end = span
    places, new_places = _single(old, first, end), _single(new, new_first, new_end)
    pairs = [(at, new_places[line]) for line, at in places.items() if line in new_places]
    anchors = _rising(pairs)
    if not anchors:
        return
    for (at, new_at), (next_at, next_new) in zip(
        [(first, new_first), *anchors], [*anchors, (end, new_end)], strict=True
    ):
        yield at, next_at, new_at, next_new


def _single(lines: Sequence[bytes], first: int, end: int) -> dict[bytes, int]:
    """Return the places of lines that occur once, in their order."""
    places: dict[bytes, int] = {}
    for at in range(first, end):
        places[lines[at]] = -1 if lines[at] in places else at
    return {line: at for line, at in places.items() if at >= 0}


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest part of the pairs whose second numbers rise."""
    from bisect import bisect_left  # loaded late: only large texts need it

    ends: list[int] = []
    chosen: list[int] = []
    before: list[int] = []
    for number, (_, new_at) in enumerate(pairs):
        place = bisect_left(ends, new_at)
        before.append(chosen[place - 1] if place else -1)
        ends[place : place + 1] = [new_at]
        chosen[place : place + 1] = [number]
    found = []
    number = chosen[-1] if chosen else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]
