"""Order fact changes by importance: the one order of the list, the diff, the page, the browser and JSON (pure).

Packages named by a list or the user come before their dependencies; changed versions before additions before
removals; a major version before a minor one. Of a database, lost rows come before migrations, and these before the
rest, in which tables with more changed rows come first. Tables in which a framework keeps its own records come last.
"""

from __future__ import annotations

from collections.abc import Iterable

from git_envhist.diff.split_fact_key import name_of, place_of
from git_envhist.lazy import pattern
from git_envhist.model import FactChange, Role

ROLES = (Role.DIRECT, Role.DEVELOPMENT, Role.TRANSITIVE, Role.NESTED)
MARKS = "~+−"
LOST, MIGRATED, OTHER, UNAPPLIED, INTERNAL = range(5)
"""The classes of changes of data, the most important first."""
MIGRATION = "migration "
FRAMEWORK_TABLES = pattern(
    r"(?:table )?(?:auth_permission|django_(?:content_type|migrations|admin_log|session|site)|schema_migrations"
    r"|ar_internal_metadata|alembic_version|_prisma_migrations|knex_migrations(?:_lock)?|__drizzle_migrations"
    r"|SequelizeMeta|goose_db_version|flyway_schema_history|migrations|sqlite_sequence|sqlite_stat[1-4])\Z"
)
"""Tables that a framework fills, not the user."""
AMOUNT = pattern(r"(?:^|\s)(\d{1,19}) (?:rows|keys|cells|outputs)\b|\A(\d{1,19})\Z")
WITH_DATA = frozenset(("sqlite", "redis", "dump", "parquet", "duckdb", "csv", "notebook"))
"""Probes whose values hold numbers of rows, keys or cells."""
NUMBERS = pattern(r"\D{0,2}(\d{1,12}(?:\.\d{1,12}){0,7})")
MAJOR, MINOR, PATCH = range(3)

Rank = tuple[int, int, int, int, bool, int, str]


def by_importance(changes: Iterable[FactChange]) -> list[FactChange]:
    """Return the changes, the most important first."""
    return sorted(changes, key=_rank)


def mark_of(change: FactChange) -> str:
    """Return `+`, `−` or `~`."""
    if change.before is None:
        return "+"
    return "−" if change.after is None else "~"


def role_rank(change: FactChange) -> int:
    """Return the position of a change's role, 0 for packages named by a list or the user."""
    return ROLES.index(change.role)


def _rank(change: FactChange) -> Rank:
    depth = place_of(change).count("/")
    mark = MARKS.index(mark_of(change))
    if change.probe in WITH_DATA:
        kind, rows = _class_of_data(change)
        return (kind, -rows, role_rank(change), mark, change.auto, depth, change.key)
    return (role_rank(change), mark, _severity(change), 0, change.auto, depth, change.key)


def _class_of_data(change: FactChange) -> tuple[int, int]:
    """Return the class of a change of data, and how many rows, keys or cells were lost or added."""
    if FRAMEWORK_TABLES.match(name_of(change)):
        return INTERNAL, 0
    if name_of(change).startswith(MIGRATION):
        return (UNAPPLIED if change.after is None else MIGRATED), 0
    before, after = (amount_of(value) for value in (change.before, change.after))
    if before is not None and (after is not None or change.after is None):
        lost = before - (after or 0)
        # A table that was dropped is a loss, whether or not it had rows.
        if lost > 0 or change.after is None:
            return LOST, lost
    return OTHER, (after or 0) - (before or 0)


def amount_of(value: str | None) -> int | None:
    """Return the number of rows, keys or cells in a value, or None."""
    found = AMOUNT.search(value or "")
    return int(found[1] or found[2]) if found else None


def _severity(change: FactChange) -> int:
    """Return whether the major, the minor or a later part of a version differs."""
    before, after = (NUMBERS.match(value or "") for value in (change.before, change.after))
    if before is None or after is None:
        return MAJOR
    old, new = ([*map(int, found[1].split(".")), 0, 0] for found in (before, after))
    # Before 1.0 a change of the second number can be incompatible.
    if old[0] != new[0] or (old[0] == 0 and old[1] != new[1]):
        return MAJOR
    return MINOR if old[1] != new[1] else PATCH
