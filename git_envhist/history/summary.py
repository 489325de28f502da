"""Summarise the changes of a snapshot in one line: `npm: next 14.2.33 → 15.5.4, … +6 ~11 −32 · 1,204 files` (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from git_envhist.history.factkeys import name_of, place_of
from git_envhist.history.facts import ARROW, DUMP, counts_of, fact_rows, fact_words
from git_envhist.history.importance import amount_of, by_importance, mark_of
from git_envhist.history.story import describe_counts
from git_envhist.model import ChangeCount, FactChange, Role

VARIABLES = "env"
"""The class of the probe of variables."""
DECLARED = "declared"
"""The probe of disagreements between lists and installed packages: too much for one line."""
OF_ONE_FILE = ("parquet", "duckdb", "csv", "notebook")
"""Probes whose places are files: a summary names the file in the place of its one table."""
MOST_PROBES = 4
MOST_NAMED = 2
"""The number of changes of a probe, and of variables of a file, that are named."""


def summarize(
    changes: Sequence[FactChange],
    changed: ChangeCount,
    kinds: Mapping[str, str],
    *,
    first: bool = False,
    names: bool = True,
) -> str:
    """Return the summary of a snapshot: `pip: +flask 3.0.1, … +6 · 1,204 files`, `~3 files · .env.local: ~API_URL`.

    `names`: False counts the variables of sealed files, `.env.local: +1 −1 variables`, as their names are sealed.
    """
    told = [change for change in changes if change.probe != DECLARED]
    variables = [change for change in told if kinds.get(change.probe) == VARIABLES]
    dumps = fact_rows((change for change in told if change.probe == DUMP), tuple(kinds))
    by_probe: dict[str, list[FactChange]] = {}
    rows = fact_rows(
        (one for one in told if kinds.get(one.probe) != VARIABLES and one.probe != DUMP), tuple(kinds)
    )
    for row in rows:
        by_probe.setdefault(row.probe, []).extend((*row.changes, *row.nested))
    parts = [f"{probe}: {_cells(found)}" for probe, found in list(by_probe.items())[:MOST_PROBES]]
    if len(by_probe) > MOST_PROBES:
        more = len(by_probe) - MOST_PROBES
        parts.append(f"{more} {'kind' if more == 1 else 'kinds'} more")
    parts += [f"{row.place}: {_cells(row.changes) if names else _amounts(row.changes)}" for row in dumps]
    if changed.total or not told:
        parts.append(_count_files(changed, bool(by_probe) or bool(dumps), first))
    parts += _variable_parts(variables, names)
    return " · ".join(parts)


def _count_files(changed: ChangeCount, has_facts: bool, first: bool) -> str:
    if not has_facts:
        return describe_counts(changed, first)
    return f"{changed.total:,} {'file' if changed.total == 1 else 'files'}"


def _cells(changes: Iterable[FactChange]) -> str:
    """Name the most important changes and count the rest; packages that came along are named only if no other is."""
    ordered = by_importance(changes)
    listed = [one for one in ordered if one.role in (Role.DIRECT, Role.DEVELOPMENT)]
    others = [one for one in ordered if one.role is not Role.NESTED]
    # Of packages in no list, those that no other one needs say what was installed.
    named = (listed or [one for one in others if not one.auto] or others)[:MOST_NAMED]
    rest = [one for one in ordered if one not in named]
    if not named:
        return f"{counts_of(rest)} nested"
    return ", ".join([*map(_cell, named), *([f"… {counts_of(rest)}"] if rest else [])])


def _amounts(changes: Sequence[FactChange]) -> str:
    """Return the numbers of lost and new rows, without the names of tables, which are sealed."""
    sides = [(amount_of(one.before), amount_of(one.after)) for one in changes]
    known = [(before or 0, after or 0) for before, after in sides if (before, after) != (None, None)]
    if not known:
        return fact_words(changes[0])
    lost = sum(max(before - after, 0) for before, after in known)
    come = sum(max(after - before, 0) for before, after in known)
    unit = "keys" if any((one.after or one.before or "").endswith(" keys") for one in changes) else "rows"
    marks = " ".join(f"{mark}{number:,}" for mark, number in (("+", come), ("−", lost)) if number)
    where = "" if unit == "keys" else f" in {len(known):,} {'table' if len(known) == 1 else 'tables'}"
    return f"{marks} {unit}{where}" if marks else f"{len(known):,} other tables"


def _cell(change: FactChange) -> str:
    """Return a change with its sign; an arrow is a sign of its own."""
    words = fact_words(change)
    if change.probe in OF_ONE_FILE:
        words = f"{place_of(change).rpartition('/')[2]} {words.removeprefix('table ')}"
    return words if ARROW in words else mark_of(change) + words


def _variable_parts(changes: Sequence[FactChange], names: bool) -> list[str]:
    rows = fact_rows(changes, (VARIABLES,))
    parts = [f"{row.place}: {_variables(row.changes, names)}" for row in rows[:MOST_NAMED]]
    if len(rows) > MOST_NAMED:
        more = len(rows) - MOST_NAMED
        parts.append(f"{more} {'file' if more == 1 else 'files'} of variables more")
    return parts


def _variables(changes: Sequence[FactChange], names: bool) -> str:
    if not names:
        return f"{counts_of(changes)} {'variable' if len(changes) == 1 else 'variables'}"
    told = [mark_of(change) + name_of(change) for change in changes[:MOST_NAMED]]
    rest = changes[MOST_NAMED:]
    return ", ".join(told) + (f", … {counts_of(rest)}" if rest else "")
