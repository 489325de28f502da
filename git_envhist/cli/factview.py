"""What differs beside the files, as rows: packages, services, databases, by probe and place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from git_envhist.cli.diffsource import DiffStyle
from git_envhist.cli.rows import place_row
from git_envhist.cli.terminal import escape
from git_envhist.facts import kinds
from git_envhist.history.factkeys import name_of
from git_envhist.history.facts import SECRET, FactRow, fact_rows, fact_words, row_cells
from git_envhist.history.outside import SERVICE
from git_envhist.model import FactChange

HOOK = "hook"
MOST_CELLS = 10
MOST_PLACES = 6


def fact_texts(changes: Sequence[FactChange], manner: DiffStyle, *, secrets: bool = False) -> Iterator[bytes]:
    """The rows; `secrets`: also of variables, by their keys, which a diff reads where they stand."""
    told = [change for change in changes if secrets or change.probe not in SECRET]
    rows = fact_rows(told, tuple(kinds()))
    for probe, found in groupby(rows, key=attrgetter("probe")):
        places = list(found)
        for row in places[:MOST_PLACES]:
            yield from place_row(escape(probe), escape(row.place), _fact_cells(row), manner)
        if len(places) > MOST_PLACES:
            changed = sum(len(row.changes) + len(row.nested) for row in places[MOST_PLACES:])
            rest = f"… {changed:,} more in {len(places) - MOST_PLACES:,} places"
            yield from place_row(escape(probe), "", [rest], manner)


def _fact_cells(row: FactRow) -> list[str]:
    return row_cells(row, MOST_CELLS, lambda change: escape(_words(change)))


def _words(change: FactChange) -> str:
    """What a fact says; of a service whose name is not its program's how it was called, of a hook whose it is."""
    told = fact_words(change)
    if change.probe == HOOK and change.by:
        return f"{told} ({change.by})"
    if change.probe != SERVICE or change.by.split(" ")[0].rpartition("/")[2] == name_of(change):
        return told
    return f"{told} ({change.by})"
