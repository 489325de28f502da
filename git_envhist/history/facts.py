"""Facts of two moments -> what changed of them, and the few words in which a list tells it (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from git_envhist.history.databases import PROBES as DATABASES
from git_envhist.history.databases import database_words
from git_envhist.history.story import describe_counts
from git_envhist.history.unread import without_unread
from git_envhist.model import UNREAD, ChangeCount, Fact, FactChange
from git_envhist.values import dataclass, replace

ARROW = " → "
VARIABLES, PACKAGES = "env", "packages"
DECLARED = "declared"
"""The probe whose rows tell where lists and what is installed disagree: too much for a line of the list."""
MOST_PROBES = 4
MOST_KEYS = 2
LONGEST_VALUE = 40
WITH_REVISION = ("dpkg", "rpm", "apk", "conda")
SET_OFF = re.compile(r"(?<![:/])//(?=[^/])")
"""What sets off a name that has slashes itself; in front of a further root's own paths there is a colon."""
MASKED = "***"
SECRET = ("env", "config")
"""Probes whose values are fingerprints or hidden: that something is another one is all there is to read."""


NAMED = ("hook", "program")
"""Probes whose values say only that something is another one."""


@dataclass(frozen=True, slots=True)
class FactRow:
    """What one probe says of one place."""

    probe: str
    place: str
    changes: tuple[FactChange, ...]


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
            yield FactChange(fact.probe, fact.key, *values, fact.at, fact.by, fact.auto)


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
    """The rows of a story: by probe in this order, those of later versions last, then by place."""
    places: dict[tuple[str, str], list[FactChange]] = {}
    for change in changes:
        places.setdefault((change.probe, place_of(change)), []).append(change)
    ranks = {probe: number for number, probe in enumerate(order)}
    ordered = sorted(places, key=lambda row: (ranks.get(row[0], len(ranks)), row))
    return tuple(FactRow(probe, place, tuple(best_first(places[probe, place]))) for probe, place in ordered)


def place_of(change: FactChange) -> str:
    """What a key says before its last name: `.venv` of `.venv/flask`."""
    return change.key[: -len(name_of(change))].rstrip("/")


def name_of(change: FactChange) -> str:
    """The last name of a key, with its scope: `flask`, `@types/node`; what two slashes set off: `symfony/console`."""
    set_off = list(SET_OFF.finditer(change.key))
    if set_off:
        return change.key[set_off[-1].end() :]
    place, _, name = change.key.rpartition("/")
    scope = place.rpartition("/")[2]
    return f"{scope}/{name}" if scope.startswith("@") else name or change.key


def mark_of(change: FactChange) -> str:
    if change.before is None:
        return "+"
    return "−" if change.after is None else "~"


def fact_words(change: FactChange) -> str:
    """`flask 3.0.1`, `click 8.1.7 → 8.5.1`; of what is secret the name alone."""
    if name_of(change) == UNREAD:
        return f"not read: {change.before if change.after is None else change.after}"
    if change.probe in SECRET or change.probe in NAMED:
        return name_of(change)
    if change.probe in DATABASES:
        return database_words(name_of(change), change.before, change.after)
    before, after = short_values(change)
    told = ARROW.join(value for value in (before, after) if value)
    return f"{name_of(change)} {told}".rstrip()


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


def tell_briefly(
    changes: Sequence[FactChange],
    changed: ChangeCount,
    kinds: Mapping[str, str],
    *,
    first: bool = False,
    names: bool = True,
) -> str:
    """The line that a list has of a moment: `pip +flask 3.0.1 +6 · 1,204 files`, `~3 files · .env.local: API_URL`.

    `names`: False counts the variables of sealed files, `.env.local: 1 variable`, as the names are sealed.
    """
    rows = fact_rows((change for change in changes if change.probe != DECLARED), tuple(kinds))
    told = [row for row in rows if kinds.get(row.probe) != VARIABLES]
    variables = [row for row in rows if kinds.get(row.probe) == VARIABLES]
    by_probe: dict[str, list[FactChange]] = {}
    for row in told:
        by_probe.setdefault(row.probe, []).extend(row.changes)
    parts = [_probe_part(probe, found) for probe, found in list(by_probe.items())[:MOST_PROBES]]
    if len(by_probe) > MOST_PROBES:
        more = len(by_probe) - MOST_PROBES
        parts.append(f"{more} {'kind' if more == 1 else 'kinds'} more")
    if changed.total or not rows:
        parts.append(_count_files(changed, bool(told), first))
    parts += [_variables_part(row, names) for row in variables[:MOST_KEYS]]
    if len(variables) > MOST_KEYS:
        more = len(variables) - MOST_KEYS
        parts.append(f"{more} {'file' if more == 1 else 'files'} of variables more")
    return " · ".join(parts)


def _count_files(changed: ChangeCount, beside_packages: bool, first: bool) -> str:
    if not beside_packages:
        return describe_counts(changed, first)
    return f"{changed.total:,} {'file' if changed.total == 1 else 'files'}"


def _probe_part(probe: str, changes: list[FactChange]) -> str:
    best, *others = best_first(changes)
    marks = [mark_of(change) for change in others]
    counts = " ".join(f"{mark}{marks.count(mark)}" for mark in "+~−" if mark in marks)
    return f"{probe} {mark_of(best)}{fact_words(best)} {counts}".rstrip()


def _variables_part(row: FactRow, named: bool) -> str:
    if not named:
        count = len(row.changes)
        return f"{row.place}: {count:,} {'variable' if count == 1 else 'variables'}"
    names = [name_of(change) for change in row.changes]
    more = f" +{len(names) - MOST_KEYS}" if len(names) > MOST_KEYS else ""
    return f"{row.place}: {', '.join(names[:MOST_KEYS])}{more}"


def best_first(changes: Iterable[FactChange]) -> list[FactChange]:
    """What was asked for before what came along; what came, then what is another, then what went; by name."""
    return sorted(
        changes, key=lambda one: (one.auto, "+~−".index(mark_of(one)), place_of(one).count("/"), one.key)
    )
