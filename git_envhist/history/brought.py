"""Which packages came along with others: what other installed ones need, and no list asks for (pure).

Installers do not all say it: uv notes of each package that it was asked for, npm of none. What was asked for is told
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from git_envhist.history.facts import name_of, place_of
from git_envhist.model import Fact, FactChange
from git_envhist.values import dataclass, replace


@dataclass(frozen=True, slots=True)
class Needs:
    """What the lists of two moments, and the packages installed then, say of each other."""

    asked: frozenset[tuple[str, str]]
    """(probe, name)"""
    needed: frozenset[tuple[str, str, str]]
    """(probe, place, name)"""
    roots: frozenset[tuple[str, str, str]]
    told: frozenset[tuple[str, str]]
    """(probe, place) of which the roots are known."""


def mark_brought(changes: Iterable[FactChange], declared: Sequence[Fact]) -> tuple[FactChange, ...]:
    """The same changes, those of packages that came along marked as that."""
    needs = _read(declared)
    return tuple(replace(one, auto=True) if _came_along(one, needs) else one for one in changes)


def _came_along(change: FactChange, needs: Needs) -> bool:
    if change.auto or change.probe not in ("pip", "npm"):
        return change.auto
    place, name = place_of(change), name_of(change)
    if (change.probe, name) in needs.asked:
        return False
    if (change.probe, place) in needs.told:
        return (change.probe, place, name) not in needs.roots
    return (change.probe, place, name) in needs.needed


def _read(declared: Iterable[Fact]) -> Needs:
    asked: set[tuple[str, str]] = set()
    needed: set[tuple[str, str, str]] = set()
    roots: set[tuple[str, str, str]] = set()
    for fact in declared:
        word, _, value = fact.value.partition("=")
        change = FactChange(fact.by, fact.key, None, None)
        if word == "asked":
            asked.add((fact.by, name_of(change)))
        elif word == "root":
            roots.add((fact.by, place_of(change), name_of(change)))
        elif word == "needs":
            needed.update((fact.by, place_of(change), name) for name in value.split(","))
    return Needs(
        frozenset(asked),
        frozenset(needed),
        frozenset(roots),
        frozenset((by, place) for by, place, _ in roots),
    )
