"""The words in which changes of databases are told: `users 12 → 15 rows`, `table sessions (4 columns)` (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator

ARROW = " → "
PROBES = ("sqlite", "dump", "parquet", "duckdb", "csv", "notebook")
SEALED, DIGEST = "sealed:", "#"
TABLE_OF_A_FILE = "table"
"""The name of the one table of a file."""
KINDS = ("index ", "view ", "trigger ", "migration ")
TABLE = re.compile(
    r"(?:(\d{1,19}) (rows|pages|keys|cells|outputs|blocks)|(virtual))?(?:(?:^|(?<=\w) )\((.*)\))?", re.DOTALL
)
COUNT = re.compile(r"(\d{1,9}) columns #[0-9a-f]+\Z")
MOST_COLUMNS = 3


def database_words(name: str, before: str | None, after: str | None) -> str:
    """What changed of one thing in a database."""
    if (after or before or "").startswith(SEALED):
        return f"{name} (sealed)"
    if (after or before or "").startswith(DIGEST):
        return name
    if name.startswith(KINDS):
        return f"{name} {ARROW.join(value for value in (before, after) if value)}".rstrip()
    if before is None or after is None:
        number, unit, columns = _parts(after if before is None else before)
        if not columns and unit not in ("", "rows", "pages"):
            return f"{name} ({_amount(number, unit)})"
        called = name if name == TABLE_OF_A_FILE else f"table {name}"
        return f"{called} ({_size(after if before is None else before)})"
    return f"{name} {', '.join(_differences(before, after))}"


def _size(value: str | None) -> str:
    """`4 columns, 12 rows`"""
    number, unit, columns = _parts(value)
    listed = COUNT.match(columns)
    amount = int(listed[1]) if listed else len(_list(columns))
    told = "1 column" if amount == 1 else f"{amount:,} columns"
    return f"{told}, {_amount(number, unit)}" if number else told


def _differences(before: str, after: str) -> Iterator[str]:
    old, old_unit, old_columns = _parts(before)
    new, new_unit, new_columns = _parts(after)
    if (old, old_unit) != (new, new_unit):
        yield from _numbers(old, old_unit, new, new_unit)
    if old_columns != new_columns:
        yield from _column_changes(_list(old_columns), _list(new_columns))


def _numbers(old: int | None, old_unit: str, new: int | None, new_unit: str) -> Iterator[str]:
    if old is not None and old_unit == new_unit and new is not None:
        yield f"{old:,}{ARROW}{_amount(new, new_unit)}"
    else:
        sides = ((old, old_unit), (new, new_unit))
        yield ARROW.join("not counted" if number is None else _amount(number, unit) for number, unit in sides)


def _column_changes(before: list[str], after: list[str]) -> Iterator[str]:
    old, new = ({one.partition(" ")[0]: one.partition(" ")[2] for one in side} for side in (before, after))
    told = [f"+ column {name} {new[name]}".rstrip() for name in new if name not in old]
    told += [
        f"~ column {name} {old[name]}{ARROW}{new[name]}"
        for name in new
        if old.get(name, new[name]) != new[name]
    ]
    told += [f"− column {name}" for name in old if name not in new]
    yield from told[:MOST_COLUMNS]
    if len(told) > MOST_COLUMNS:
        yield f"{len(told) - MOST_COLUMNS} columns more"
    if not told:
        yield "columns in another order"


def _parts(value: str | None) -> tuple[int | None, str, str]:
    found = TABLE.fullmatch(value or "")
    if found is None:
        return None, "", ""
    return int(found[1]) if found[1] else None, found[2] or found[3] or "", found[4] or ""


def _list(columns: str) -> list[str]:
    return [one for one in columns.split(", ") if one]


def _amount(number: int | None, unit: str) -> str:
    return f"{number or 0:,} {unit.removesuffix('s') if number == 1 else unit}"
