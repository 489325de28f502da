"""Merge three versions of a SQLite database by the rows of its tables.

The result is a copy of one version, in which the rows that only the other one changed are replaced. A row is known by
its primary key. The copies are private temporary files; nothing in the environment is opened. A database may come from
an unsigned snapshot, so its schema is not trusted: no function with side effects and no extension is called, triggers
are removed while rows are written and created again, and any error of SQLite makes the whole database a conflict.

If one side changed the schema, the result has that schema; the rows that the other side changed are carried over if
their table kept its key and gained columns only. All else is a conflict.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from git_envhist.lazy import dataclass, field
from git_envhist.model import SQLITE_HEADER
from git_envhist.printable_text import escape
from git_envhist.restore.three_way import Prefer

NAMES = ("base", "ours", "theirs")
SIDECARS = ("-wal", "-journal")
MIN_VALUE = 1 << 20
"""The size of the longest value in bytes; in a larger database a value may be as long as the database.

The functions in a schema could make longer ones: one instruction of SQLite can need much memory and time.
"""
INTERVAL, MAX_SECONDS = 20_000, 300
"""The number of instructions of SQLite between two checks, and the processor time until a merge is given up."""
MAX_NAMED = 5
"""The number of rows in conflict that are named for each table."""
DENIED = frozenset((sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_CREATE_VTABLE))
DENIED_FUNCTIONS = frozenset(("load_extension", "writefile", "readfile", "edit", "fts3_tokenizer"))
HIDDEN_GENERATED = (2, 3)
VALUES = ("user_version", "application_id")
CANNOT_MERGE = "its rows cannot be merged"
FAILURES = (sqlite3.Error, ArithmeticError, AttributeError, MemoryError, TypeError, ValueError)
"""Errors of SQLite, and of a damaged schema or of keys that cannot be compared."""
Row = tuple[Any, ...]
Key = tuple[Any, ...]


class DatabaseVersion(NamedTuple):
    """A database with its log and its journal, as stored in a snapshot."""

    database: bytes
    log: bytes | None = None
    journal: bytes | None = None

    @property
    def size(self) -> int:
        return sum(len(data) for data in self if data is not None)


class MergedRows(NamedTuple):
    """The merged database, which needs no log, and the conflicts in it."""

    database: bytes
    conflicts: tuple[str, ...]


class Unmergeable(Exception):
    """The database is not merged by rows; the message is the reason."""


def is_database(content: bytes) -> bool:
    """Return whether a file is a SQLite database."""
    return content.startswith(SQLITE_HEADER)


def merge_rows(
    base: DatabaseVersion, ours: DatabaseVersion, theirs: DatabaseVersion, prefer: Prefer
) -> MergedRows | None:
    """Return a database with the changed rows of both sides; None if it is not merged and ours is preferred.

    A database that cannot be merged is a conflict also if theirs is preferred: its other rows of ours would be lost.
    """
    watch = TimeLimit()
    max_value = max(MIN_VALUE, base.size, ours.size, theirs.size)
    try:
        with TemporaryDirectory(prefix="git-envhist-") as place, ExitStack() as stack:
            databases = []
            for name, files in zip(NAMES, (base, ours, theirs), strict=True):
                _require_no_journal(files)
                path = _write(os.path.join(place, name), files)
                databases.append(Database(stack.enter_context(closing(open_copy(path, watch, max_value)))))
            merge = RowMerge(databases[0], databases[1], databases[2], prefer)
            target = merge.run()
            stack.close()
            return MergedRows(
                _read(os.path.join(place, NAMES[databases.index(target)])), tuple(merge.conflicts)
            )
    except Unmergeable as reason:
        why = str(reason)
    except FAILURES:
        if watch.raised is not None:
            raise watch.raised from None
        why = CANNOT_MERGE
    return None if prefer is Prefer.OURS else MergedRows(b"", (why,))


def _require_no_journal(files: DatabaseVersion) -> None:
    """Raise `Unmergeable` if a version has a journal: SQLite would delete files that a journal names."""
    if files.journal:
        raise Unmergeable("it has a journal of a transaction that did not finish")


def _write(path: str, files: DatabaseVersion) -> str:
    """Write a database and its log, never its journal, and return the path of the copy."""
    for ending, data in (("", files.database), ("-wal", files.log)):
        if data is not None:
            with open(path + ending, "xb") as file:
                file.write(data)
    return path


def _read(path: str) -> bytes:
    if any(os.path.exists(path + ending) and os.path.getsize(path + ending) for ending in SIDECARS):
        raise Unmergeable("its log could not be written back")
    with open(path, "rb") as file:
        return file.read()


class TimeLimit:
    """Limit the time of a merge, and keep an exception that a signal raises while SQLite runs."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self._end = time.process_time() + MAX_SECONDS

    def checks(self) -> Iterator[int]:
        """Yield 0 while SQLite may go on.

        A signal raises its exception where a function begins or a loop returns to its start. Both are inside of the
        `try`, if the first value is taken before SQLite runs.
        """
        try:
            while time.process_time() < self._end:
                yield 0
        except GeneratorExit:
            return
        except BaseException as raised:
            self.raised = raised


def open_copy(path: str, watch: TimeLimit, max_value: int = MIN_VALUE) -> sqlite3.Connection:
    """Open a private copy; its log is applied, and nothing in its schema is trusted. No value may be longer."""
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=0)
    connection.set_authorizer(_authorize)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max_value)
    checks = watch.checks()
    next(checks, 1)
    connection.set_progress_handler(partial(next, checks, 1), INTERVAL)
    for pragma in ("trusted_schema=off", "cell_size_check=on", "foreign_keys=off", "recursive_triggers=off"):
        connection.execute(f"pragma {pragma}")
    return connection


def _authorize(
    action: int, one: str | None, other: str | None, schema: str | None, inside: str | None
) -> int:
    """Deny what a merge never needs: other databases, extensions, and statements of triggers."""
    is_function = action == sqlite3.SQLITE_FUNCTION and (other or "").lower() in DENIED_FUNCTIONS
    return sqlite3.SQLITE_DENY if action in DENIED or is_function else sqlite3.SQLITE_OK


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class TableColumn(NamedTuple):
    """A column that is stored."""

    name: str
    kind: str
    required: bool
    default: str | None
    key: int
    """The place in the primary key, from 1; 0 for other columns."""


@dataclass(slots=True)
class Table:
    """The columns of a table, and how its rows are found."""

    name: str
    sql: str
    columns: tuple[TableColumn, ...]
    is_keyless: bool
    """Whether the table has no primary key that names a row."""
    is_numbered: bool
    """Whether the primary key is the number of the row, so that rows are read in its order."""
    has_rowid: bool
    """Whether rows have a number of their own that is no column."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(column.name for column in sorted(self.columns, key=lambda one: one.key) if column.key)


class Database:
    """One version of the database."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.schema = frozenset(
            connection.execute("select type, name, tbl_name, sql from sqlite_master where sql is not null")
        )
        self.tables = {
            name: self._table(name, sql)
            for kind, name, _, sql in self.schema
            if kind == "table" and not name.startswith("sqlite_")
        }
        self.has_virtual_tables = any(
            sql.lstrip().lower().startswith("create virtual") for _, _, _, sql in self.schema
        )

    def _table(self, name: str, sql: str) -> Table:
        rows = self.connection.execute(f"pragma table_xinfo({_quoted(name)})")
        columns = tuple(
            TableColumn(column, kind, bool(required), default, key)
            for _, column, kind, required, default, key, hidden in rows
            if hidden not in HIDDEN_GENERATED
        )
        keys = [column for column in columns if column.key]
        is_number = len(keys) == 1 and keys[0].kind.lower() == "integer"
        shadowed = {column.name.lower() for column in columns} & {"rowid", "_rowid_", "oid"}
        has_rowid = not (shadowed or is_number) and self._has_rowid(name)
        return Table(name, sql, columns, not keys, is_number, has_rowid)

    def _has_rowid(self, name: str) -> bool:
        try:
            self.connection.execute(f"select rowid from {_quoted(name)} limit 0")
        except sqlite3.OperationalError:
            return False
        return True

    def value(self, name: str) -> int:
        """Return the value of a pragma."""
        return int(self.connection.execute(f"pragma {name}").fetchone()[0])

    def rows(self, table: Table, names: Iterable[str], by: Iterable[str]) -> Iterator[tuple[Key, Row]]:
        """Yield the key and the values of each row."""
        keys, values = list(by), list(names)
        chosen = ", ".join(map(_quoted, [*keys, *values]))
        order = f" order by {_quoted(table.key[0])}" if table.is_numbered else ""
        for row in self.connection.execute(f"select {chosen} from {_quoted(table.name)}{order}"):
            yield row[: len(keys)], row[len(keys) :]

    def contents(self, table: Table) -> list[Row]:
        """Return all rows of a table without a key, in order of their values."""
        chosen = ", ".join(map(_quoted, table.names))
        rows = self.connection.execute(f"select {chosen} from {_quoted(table.name)}").fetchall()
        return sorted(rows, key=lambda row: [(str(type(value)), repr(value)) for value in row])


def _exact(row: Row) -> Row:
    """Return a row whose values are equal only if they have one type: 1 and 1.0 differ."""
    return tuple((type(value), value) for value in row)


def _same_row(one: Row | None, other: Row | None) -> bool:
    if one is None or other is None:
        return one is other
    return _exact(one) == _exact(other)


class RowChange(NamedTuple):
    """A row before and after; None if it does not exist."""

    before: Row | None
    after: Row | None


@dataclass(slots=True)
class RowMerge:
    """Carry the rows that one side changed to the other one."""

    base: Database
    ours: Database
    theirs: Database
    prefer: Prefer
    conflicts: list[str] = field(default_factory=list)

    def run(self) -> Database:
        """Merge into one version, verify it and return it."""
        target, source = self._sides()
        for one in (self.base, source):
            one.connection.execute("pragma query_only=on")
        if self.ours.has_virtual_tables or self.theirs.has_virtual_tables:
            raise Unmergeable("a database with virtual tables changed on both sides")
        connection = target.connection
        before = self._violations(target)
        _require_intact(connection)
        connection.execute("begin immediate")
        with _without_triggers(target):
            for name in sorted(self.base.tables.keys() | source.tables.keys()):
                self._merge_table(name, target, source)
            for value in VALUES:
                self._merge_value(value, target)
        connection.execute("commit")
        _require_intact(connection)
        added = self._violations(target) - before
        if added:
            tables = ", ".join(sorted({str(found[0]) for found in added}))
            raise Unmergeable(f"rows of {escape(tables)} would refer to rows that the other side removed")
        if connection.execute("pragma journal_mode").fetchone()[0] == "wal":
            connection.execute("pragma wal_checkpoint(truncate)")
        return target

    def _sides(self) -> tuple[Database, Database]:
        """Return the version to change and the one whose rows are carried: a changed schema is kept."""
        if self.theirs.schema in (self.base.schema, self.ours.schema):
            return self.ours, self.theirs
        if self.ours.schema == self.base.schema:
            return self.theirs, self.ours
        raise Unmergeable("its schema changed on both sides")

    def _violations(self, database: Database) -> set[Row]:
        return set(database.connection.execute("pragma foreign_key_check"))

    def _merge_table(self, name: str, target: Database, source: Database) -> None:
        base, into, outof = (side.tables.get(name) for side in (self.base, target, source))
        if outof is None:
            # Both sides removed it, or the changed schema does not have it.
            return
        if base is None or base.sql != outof.sql:
            # Both sides have the same new schema.
            if into is None or list(map(_exact, target.contents(outof))) != list(
                map(_exact, source.contents(outof))
            ):
                raise Unmergeable(
                    f"both sides changed the schema of table {escape(name)}, and its rows differ"
                )
        elif base.is_keyless:
            self._merge_keyless(base, into, target, source)
        else:
            changes = self._changes(base, source)
            if changes and into is None:
                raise Unmergeable(
                    f"table {escape(name)} was removed on one side, and its rows changed on the other"
                )
            if changes and into is not None:
                _require_carried(base, into)
                self._carry(base, into, target, changes)

    def _changes(self, table: Table, source: Database) -> dict[Key, RowChange]:
        before, after = (side.rows(table, table.names, table.key) for side in (self.base, source))
        found = _changes_in_order(before, after) if table.is_numbered else _changes(before, after)
        if any(None in key for key in found):
            raise Unmergeable(f"a primary key of table {escape(table.name)} contains NULL")
        return found

    def _merge_keyless(self, base: Table, into: Table | None, target: Database, source: Database) -> None:
        before, theirs = self.base.contents(base), source.contents(base)
        if list(map(_exact, before)) == list(map(_exact, theirs)):
            return
        if into is None or into.sql != base.sql:
            raise Unmergeable(f"table {escape(base.name)} has no primary key, and changed on both sides")
        ours = target.contents(into)
        if list(map(_exact, ours)) == list(map(_exact, theirs)):
            return
        if list(map(_exact, ours)) != list(map(_exact, before)):
            raise Unmergeable(f"table {escape(base.name)} has no primary key, and changed on both sides")
        target.connection.execute(f"delete from {_quoted(base.name)}")
        chosen = ", ".join(map(_quoted, base.names))
        rows = source.connection.execute(f"select {chosen} from {_quoted(base.name)}")
        marks = ", ".join("?" * len(base.names))
        target.connection.executemany(
            f"insert or abort into {_quoted(base.name)} ({chosen}) values ({marks})", rows
        )

    def _carry(self, table: Table, into: Table, target: Database, changes: dict[Key, RowChange]) -> None:
        """Write the rows that the source changed; those that the target changed as well are conflicts."""
        present = {key: row for key, row in target.rows(into, table.names, table.key) if key in changes}
        extended = _extended_rows(table, into, target)
        wanted: dict[Key, Row | None] = {}
        unclear: list[Key] = []
        for key, (before, after) in changes.items():
            now = present.get(key)
            if _same_row(now, after):
                continue
            is_unchanged = _same_row(now, before) and not (after is None and key in extended)
            if is_unchanged or self._takes(target):
                wanted[key] = after
            elif self.prefer in (Prefer.NEITHER, Prefer.MARKERS):
                unclear.append(key)
        if unclear:
            self.conflicts += _row_conflicts(table, unclear)
        _replace_rows(target.connection, table, into, wanted)

    def _takes(self, target: Database) -> bool:
        """Return whether the side that is carried is preferred."""
        return self.prefer is (Prefer.THEIRS if target is self.ours else Prefer.OURS)

    def _merge_value(self, name: str, target: Database) -> None:
        base, ours, theirs = (side.value(name) for side in (self.base, self.ours, self.theirs))
        merged = ours if theirs in (base, ours) else theirs
        if theirs not in (base, ours) and ours != base:
            if self.prefer in (Prefer.NEITHER, Prefer.MARKERS):
                self.conflicts.append(f"its {name} changed on both sides")
            merged = theirs if self.prefer is Prefer.THEIRS else ours
        if target.value(name) != merged:
            target.connection.execute(f"pragma {name} = {merged}")


Rows = Iterator[tuple[Key, Row]]


def _changes(before: Rows, after: Rows) -> dict[Key, RowChange]:
    """Return the rows that differ, by key."""
    old = dict(before)
    found: dict[Key, RowChange] = {}
    for key, row in after:
        one = old.pop(key, None)
        if one is None or _exact(one) != _exact(row):
            found[key] = RowChange(one, row)
    found.update((key, RowChange(row, None)) for key, row in old.items())
    return found


def _changes_in_order(before: Rows, after: Rows) -> dict[Key, RowChange]:
    """Return the rows that differ, by key, of two tables that are read in the order of their keys."""
    found: dict[Key, RowChange] = {}
    old, new = next(before, None), next(after, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old[0] < new[0]):
            assert old is not None
            found[old[0]] = RowChange(old[1], None)
            old = next(before, None)
        elif old is None or new[0] < old[0]:
            found[new[0]] = RowChange(None, new[1])
            new = next(after, None)
        else:
            if _exact(old[1]) != _exact(new[1]):
                found[old[0]] = RowChange(old[1], new[1])
            old, new = next(before, None), next(after, None)
    return found


def _require_carried(table: Table, into: Table) -> None:
    """Raise `Unmergeable` if rows of a table cannot be written to its other schema."""
    if into.sql == table.sql:
        return
    kept = {column.name: column for column in into.columns}
    same = all(kept.get(column.name) == column for column in table.columns)
    if not same or into.key != table.key:
        raise Unmergeable(
            f"the columns of table {escape(table.name)} changed on one side, and its rows on the other"
        )
    added = [column for column in into.columns if column.name not in table.names]
    if any(column.required and column.default is None for column in added):
        raise Unmergeable(f"table {escape(table.name)} has a new column without a default")


def _extended_rows(table: Table, into: Table, target: Database) -> set[Key]:
    """Return the keys of rows with values in columns that only the target has."""
    added = [column for column in into.columns if column.name not in table.names]
    rows = target.rows(into, [column.name for column in added], table.key) if added else ()
    return {key for key, row in rows if not all(map(_is_default, (column.default for column in added), row))}


def _is_default(default: str | None, value: object) -> bool:
    """Return whether a value is the literal default of its column."""
    if default is None or value is None:
        return value is None and (default or "null").lower() == "null"
    literal = default.strip()
    if literal.startswith("'"):
        return isinstance(value, str) and value == literal[1:-1].replace("''", "'")
    return isinstance(value, (int, float)) and str(value) == literal


def _row_conflicts(table: Table, keys: list[Key]) -> Iterator[str]:
    """Yield the conflicts of rows; only whole numbers are shown, because any text may be secret."""
    shown = [key for key in sorted(keys, key=repr) if all(isinstance(value, int) for value in key)]
    for key in shown[:MAX_NAMED]:
        yield f"row {', '.join(map(str, key))} of table {escape(table.name)} changed on both sides"
    rest = len(keys) - len(shown[:MAX_NAMED])
    if rest:
        count = f"{rest:,} {'more ' if shown else ''}row{'' if rest == 1 else 's'}"
        yield f"{count} of table {escape(table.name)} changed on both sides"


def _replace_rows(
    connection: sqlite3.Connection, table: Table, into: Table, wanted: dict[Key, Row | None]
) -> None:
    """Remove all rows first, then write them, so that unique values can move between rows."""
    name = _quoted(table.name)
    # The first comparison can use the index; the second one leaves rows whose key is equal only in its collation.
    where = " and ".join(f"{_quoted(key)} is ? and {_quoted(key)} collate binary is ?" for key in table.key)
    extra = [column.name for column in into.columns if column.name not in table.names]
    kept_names = [*(["rowid"] if into.has_rowid else []), *map(_quoted, extra)]
    kept: dict[Key, Row] = {}
    for key in wanted:
        values = [value for value in key for _ in range(2)]
        if kept_names:
            found = connection.execute(
                f"select {', '.join(kept_names)} from {name} where {where}", values
            ).fetchone()
            if found is not None:
                kept[key] = found
        connection.execute(f"delete from {name} where {where}", values)
    for key, row in wanted.items():
        if row is None:
            continue
        columns = [*map(_quoted, table.names), *(kept_names if key in kept else ())]
        marks = ", ".join("?" * len(columns))
        connection.execute(
            # A schema may name another action, which would replace or leave out rows silently.
            f"insert or abort into {name} ({', '.join(columns)}) values ({marks})",
            (*row, *kept.get(key, ())),
        )


@contextmanager
def _without_triggers(database: Database) -> Iterator[None]:
    """Remove all triggers, and create them again at the end."""
    triggers = sorted((name, sql) for kind, name, _, sql in database.schema if kind == "trigger")
    for name, _ in triggers:
        database.connection.execute(f"drop trigger {_quoted(name)}")
    yield
    for _, sql in triggers:
        if not sql.lstrip().lower().startswith("create"):
            raise Unmergeable("its schema is damaged")
        database.connection.execute(sql)


def _require_intact(connection: sqlite3.Connection) -> None:
    found = connection.execute("pragma integrity_check(1)").fetchone()
    if found != ("ok",):
        raise Unmergeable("the database would fail its integrity check")
