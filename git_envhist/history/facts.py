"""Pair the facts of two snapshots into changes, group these into rows, and name each in words (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from git_envhist.history.databases import PROBES as DATABASES
from git_envhist.history.databases import database_words
from git_envhist.history.factkeys import name_of, place_of
from git_envhist.history.importance import by_importance, mark_of, role_rank
from git_envhist.history.unread import without_unread
from git_envhist.model import UNREAD, Fact, FactChange, Role
from git_envhist.values import dataclass, replace

ARROW = " → "
NODE_MODULES = "node_modules"
DUMP = "dump"
"""The probe of the states of services."""
OF_A_DUMP = {".": "not dumped", "contents": "other contents"}
"""Names of facts about a dump as a whole."""
LONGEST_VALUE = 40
WITH_REVISION = ("dpkg", "rpm", "apk", "conda")
MASKED = "***"
SECRET = ("env", "config")
"""Probes whose values are fingerprints or hidden: that something is another one is all there is to read."""


NAMED = ("hook", "program")
"""Probes whose values say only that something is another one."""


@dataclass(frozen=True, slots=True)
class FactRow:
    """The changes of one probe in one place, the most important first."""

    probe: str
    place: str
    changes: tuple[FactChange, ...]
    nested: tuple[FactChange, ...] = ()
    """Changes of packages in the `node_modules` of other packages: counted, never named."""


def pair_facts(gone: Iterable[Fact], come: Iterable[Fact]) -> tuple[FactChange, ...]:
    """Facts that only the earlier moment has, and those that only the later one has, as changes by their keys."""
    keys: dict[tuple[str, str], tuple[list[Fact], list[Fact]]] = {}
    for side, facts in enumerate(without_unread((list(gone), list(come)))):
        for fact in facts:
            keys.setdefault((fact.probe, fact.key), ([], []))[side].append(fact)
    return tuple(change for key in sorted(keys) for change in _pair(*keys[key]))


def _pair(before: list[Fact], after: list[Fact]) -> Iterator[FactChange]:
    for old, new in zip_longest(_by_value(before), _by_value(after)):
        fact = new or old
        assert fact is not None
        values = (old.value if old else None, new.value if new else None)
        if values[0] != values[1]:
            yield FactChange(fact.probe, fact.key, *values, fact.at, fact.by, fact.auto, role_of(fact.auto))


def role_of(came_along: bool) -> Role:
    """Return the role of a thing about which no list is known."""
    return Role.TRANSITIVE if came_along else Role.DIRECT


def _by_value(facts: list[Fact]) -> list[Fact]:
    # Several directories may say the same of one key.
    return [fact for _, fact in sorted({fact.value: fact for fact in facts}.items())]


def without_secrets(changes: Iterable[FactChange]) -> tuple[FactChange, ...]:
    """The same, with nothing in the place of values that are secret."""
    return tuple(
        replace(
            change,
            before=None if change.before is None else MASKED,
            after=None if change.after is None else MASKED,
        )
        if change.probe in SECRET
        else change
        for change in changes
    )


def fact_rows(changes: Iterable[FactChange], order: Sequence[str]) -> tuple[FactRow, ...]:
    """Return the rows of a comparison: by probe in this order, unknown probes last, then by importance and place."""
    places: dict[tuple[str, str], list[FactChange]] = {}
    for change in by_importance(changes):
        places.setdefault((change.probe, _place_of_row(change)), []).append(change)
    ranks = {probe: number for number, probe in enumerate(order)}
    ordered = sorted(
        places, key=lambda row: (ranks.get(row[0], len(ranks)), row[0], role_rank(places[row][0]), row[1])
    )
    return tuple(_row(probe, place, places[probe, place]) for probe, place in ordered)


def _row(probe: str, place: str, changes: Sequence[FactChange]) -> FactRow:
    named = tuple(change for change in changes if change.role is not Role.NESTED)
    return FactRow(probe, place, named, tuple(change for change in changes if change.role is Role.NESTED))


def _place_of_row(change: FactChange) -> str:
    """Return the place of a change; of a nested package the `node_modules` at the top of it."""
    place = place_of(change)
    if change.role is not Role.NESTED:
        return place
    parts = place.split("/")
    return "/".join(parts[: parts.index(NODE_MODULES) + 1]) if NODE_MODULES in parts else place


def counts_of(changes: Iterable[FactChange]) -> str:
    """Return the numbers of changes by their marks: `+6 ~11 −32`."""
    marks = [mark_of(change) for change in changes]
    return " ".join(f"{mark}{marks.count(mark):,}" for mark in "+~−" if mark in marks)


def fact_words(change: FactChange) -> str:
    """`flask 3.0.1`, `click 8.1.7 → 8.5.1`; of what is secret the name alone."""
    if name_of(change) == UNREAD:
        return f"not read: {change.before if change.after is None else change.after}"
    if change.probe in SECRET or change.probe in NAMED:
        return name_of(change)
    if change.probe == DUMP and name_of(change) in OF_A_DUMP:
        return OF_A_DUMP[name_of(change)]
    if change.probe in DATABASES:
        return database_words(name_of(change), change.before, change.after)
    before, after = short_values(change)
    told = ARROW.join(value for value in (before, after) if value)
    return f"{name_of(change)} {told}".rstrip()


def row_cells(row: FactRow, most: int, words: Callable[[FactChange], str] | None = None) -> list[str]:
    """Return a row in cells: at most `most` changes with their marks, then the numbers of the others."""
    shown = row.changes if len(row.changes) <= most else row.changes[: most - 1]
    cells = [f"{mark_of(change)} {(words or fact_words)(change)}" for change in shown]
    rest = row.changes[len(shown) :]
    cells += [f"… {counts_of(rest)}"] if rest else []
    return [*cells, f"nested {counts_of(row.nested)}"] if row.nested else cells


def facts_from_values(values: Iterable[Mapping[str, Any]]) -> tuple[FactChange, ...]:
    """Return the changes that `--json` printed."""
    return tuple(
        FactChange(
            one["probe"],
            one["key"],
            one["before"],
            one["after"],
            by=one.get("command") or "",
            role=Role(one.get("role", Role.DIRECT.value)),
        )
        for one in values
    )


def short_values(change: FactChange) -> tuple[str | None, str | None]:
    """The values as people name them: a distribution's version without its revision, unless only that differs."""
    values = (change.before, change.after)
    if change.by not in WITH_REVISION:
        return _cut(values[0]), _cut(values[1])
    short = tuple(value and value.partition(":")[2 * (":" in value)].rpartition("-") for value in values)
    names = tuple(parts and (parts[0] or parts[2]) for parts in short)
    return (names[0], names[1]) if names[0] != names[1] else (_cut(values[0]), _cut(values[1]))


def _cut(value: str | None) -> str | None:
    return value if value is None or len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 1] + "…"
