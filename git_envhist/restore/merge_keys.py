"""Merge three mappings by their keys (pure): the changes to take from the other side, and the conflicts."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from git_envhist.lazy import dataclass, field
from git_envhist.restore.three_way import Prefer

MAX_DEPTH = 40

KeyPath = tuple[Any, ...]


class Absent(Enum):
    """The value of a key that a mapping does not have."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


def same_value(one: object, other: object) -> bool:
    """Return whether two values are equal, in type as well: True and 1 are different settings."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_value(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


def value_at(mapping: object, path: Sequence[Any]) -> object:
    """Return the value at a path of keys; ABSENT if there is none."""
    for key in path:
        if not isinstance(mapping, Mapping) or key not in mapping:
            return ABSENT
        mapping = mapping[key]
    return mapping


Rank = Callable[[object], str]

PUNCTUATION = {letter: chr(number) for number, letter in enumerate("_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$", 1)}
"""The order of punctuation in the collation that package managers of Node sort by."""


def _collated(key: object) -> str:
    return "".join(PUNCTUATION.get(letter, letter) for letter in str(key).lower())


def rank_of(order: Sequence[Any], theirs: Sequence[Any]) -> Rank | None:
    """Return the rank by which the keys of both sides are sorted; None if they are not."""
    for rank in (str, _collated):
        if len(theirs) > 1 and all(list(map(rank, one)) == sorted(map(rank, one)) for one in (order, theirs)):
            return rank
    return None


class TheirKeys(NamedTuple):
    """The keys of the other side in their order, and the index of each."""

    order: Sequence[Any]
    places: Mapping[Any, int]

    @classmethod
    def of(cls, keys: Sequence[Any]) -> TheirKeys:
        """Return keys with their indexes."""
        return cls(keys, {key: number for number, key in enumerate(keys)})


def place_in_order(
    key: object, order: Sequence[Any], present: Collection[Any], theirs: TheirKeys, rank: Rank | None
) -> int:
    """Return the index for a new key: its place in sorted keys, else next to its neighbours on the other side.

    `present`: the keys of `order`, as a set or a mapping.
    """
    if rank is not None:
        return bisect(order, rank(key), key=rank)
    at = theirs.places.get(key, len(theirs.order))
    # Keys are added in the order of theirs, so that this loop ends at the key that was added before.
    for number in range(at - 1, -1, -1):
        if theirs.order[number] in present:
            return order.index(theirs.order[number]) + 1
    later = next((one for one in theirs.order[at + 1 :] if one in present), None)
    return len(order) if later is None else order.index(later)


@dataclass(slots=True)
class KeyMerge:
    """The result of merging mappings by key."""

    prefer: Prefer = Prefer.NEITHER
    merged: dict[Any, Any] = field(default_factory=dict)
    changes: dict[KeyPath, object] = field(default_factory=dict)
    """The values that ours takes from theirs, by path; ABSENT removes a key."""
    conflicts: list[KeyPath] = field(default_factory=list)

    @classmethod
    def of(
        cls, base: Mapping[Any, Any], ours: Mapping[Any, Any], theirs: Mapping[Any, Any], prefer: Prefer
    ) -> KeyMerge:
        """Merge three mappings; a key in conflict gets the value of the preferred side, by default the present one."""
        found = cls(prefer)
        found.merged = found._merge(base, ours, theirs, ())
        return found

    def _merge(
        self, base: Mapping[Any, Any], ours: Mapping[Any, Any], theirs: Mapping[Any, Any], above: KeyPath
    ) -> dict[Any, Any]:
        merged: dict[Any, Any] = {}
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            sides = [side.get(key, ABSENT) for side in (base, ours, theirs)]
            value = self._merge_value(sides, (*above, key))
            if value is not ABSENT:
                merged[key] = value
        return merged

    def _merge_value(self, sides: list[Any], path: KeyPath) -> object:
        base, ours, theirs = sides
        if same_value(base, theirs) or same_value(ours, theirs):
            return ours
        mappings = [isinstance(side, Mapping) for side in sides]
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping) and (mappings[0] or base is ABSENT):
            return self._merge_below(sides, path)
        if same_value(base, ours):
            return self._take(theirs, path)
        if sum(mappings) == len(sides) - 1 and ABSENT in sides:
            # One side removed the whole mapping, and the other one changed it.
            return self._merge_below(sides, path)
        if self.prefer is Prefer.THEIRS:
            return self._take(theirs, path)
        if self.prefer is not Prefer.OURS:
            self.conflicts.append(path)
        return ours

    def _merge_below(self, sides: list[Any], path: KeyPath) -> object:
        if len(path) > MAX_DEPTH:
            self.conflicts.append(path)
            return sides[1]
        base, ours, theirs = ({} if side is ABSENT else side for side in sides)
        known = len(self.changes)
        merged = self._merge(base, ours, theirs, path)
        if merged or ABSENT not in sides[1:]:
            return merged
        # A side without the mapping wins if nothing is left in it.
        while len(self.changes) > known:
            self.changes.popitem()
        return ABSENT if sides[1] is ABSENT else self._take(ABSENT, path)

    def _take(self, theirs: object, path: KeyPath) -> object:
        self.changes[path] = theirs
        return theirs
