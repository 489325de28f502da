"""SQLite databases: their tables with columns and rows, indexes, views, and the migrations that were applied.

What is told is the database as it was captured: with what stood only in its log, without what an unfinished
transaction wrote. Rows are counted where they stand on few enough pages; of a larger table the pages are told, which
the pages above them tell exactly. Of a sealed database nothing is told but that it is another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.facts.migrations import applied, is_of_migrations
from git_envhist.facts.probe import Files, Keyed, Parts, RandomAccessFile
from git_envhist.facts.shown import Shown, Traced
from git_envhist.facts.sqlitefile import MalformedDatabase, SqliteFile, TableRow, Value
from git_envhist.facts.sqlitelog import WalPages, read_journal, read_log
from git_envhist.facts.sqliteschema import LARGEST, Column, columns_of, columns_text
from git_envhist.model import SQLITE_HEADER, UNREAD, EnvPath, Fact

PROBE = "sqlite"
ENDINGS = (b".db", b".db3", b".sqlite", b".sqlite3", b".s3db", b".sl3")
OF_RPM = (b"var/lib/rpm", b"usr/lib/sysimage/rpm")
COUNTED_BLOCKS, ALL_BLOCKS, BLOCKS_ABOVE = 2048, 4096, 1024
"""Pieces of 16 KiB that are read for the rows of one table, of all, and of the pages above the leaves of one."""
LARGEST_LOG = 64 << 20
MOST_TABLES, MOST_MIGRATIONS = 5_000, 5_000
MOST_DATABASES = 100
"""Of one directory."""
LARGEST_SCHEMA = 4 << 20
SHADOWS = (
    *("content", "data", "idx", "docsize", "config", "segments", "segdir", "stat"),
    *("node", "parent", "rowid"),
)
"""What the tables are called, behind its name and `_`, in which a virtual one keeps what it holds."""


class SchemaItem(NamedTuple):
    """One line of a schema."""

    kind: str
    name: str
    table: str
    root: int
    statement: str


class TableContents(NamedTuple):
    """What a table holds: its rows, or where they are too many the pages that they stand on; of migrations the rows."""

    rows: int | None
    pages: int | None = None
    migrations: tuple[TableRow, ...] = ()


def wants(directory: bytes) -> bool:
    # What stands there is told as packages.
    return not directory.endswith(OF_RPM)


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """What every database of a directory says of itself."""
    told = 0
    for name in filter(_is_named, sorted(files)):
        if Shown(files[name]).read(0, len(SQLITE_HEADER)) != SQLITE_HEADER:
            continue
        told += 1
        place = directory + b"/" + name if directory else name
        found = _database(files, name) if told <= MOST_DATABASES else [(UNREAD, "one of too many", False)]
        if any(files[one].sealed for one in _unit(files, name)):
            found = _sealed(place, found, keyed)
        for key, value, auto in found:
            yield Fact(PROBE, f"{_text(place)}/{key.replace('/', '∕')}", value, EnvPath(directory), auto=auto)


def parts_of(files: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
    """Of files that are too large to be shown as a whole, what `facts_of` will read."""
    kept: dict[bytes, Parts] = {}
    for name in filter(_is_named, files):
        traced = {one: Traced(files[one]) for one in _unit(files, name)}
        if traced[name].read(0, len(SQLITE_HEADER)) != SQLITE_HEADER:
            continue
        try:
            for _ in _items_held(_open(traced, name)):
                pass
        except MalformedDatabase:
            pass  # whoever reads the same again is told the same
        kept.update({one: source.parts for one, source in traced.items()})
    return kept


def _database(files: Files, name: bytes) -> list[tuple[str, str, bool]]:
    """(key, value, whether it came along) of all that is told of one database."""
    try:
        sources = {one: Shown(files[one]) for one in _unit(files, name)}
        return [told for item, held in _items_held(_open(sources, name)) for told in _told(item, held)]
    except MalformedDatabase as wrong:
        return [(UNREAD, str(wrong), False)]


def _sealed(place: bytes, found: list[tuple[str, str, bool]], keyed: Keyed) -> list[tuple[str, str, bool]]:
    told = repr(found).encode("utf-8", "surrogateescape")
    return [("contents", "sealed:" + (keyed(place + b"\0sqlite", told) or "set"), False)]


def _is_named(name: bytes) -> bool:
    return name.endswith(ENDINGS) or b"." not in name


def _unit(files: Iterable[bytes], name: bytes) -> list[bytes]:
    return [one for one in (name, name + b"-wal", name + b"-journal") if one in files]


def _open(sources: Mapping[bytes, RandomAccessFile], name: bytes) -> SqliteFile:
    """A database under its log; or, where that is empty, under its journal."""
    return SqliteFile(sources[name], _laid(sources, name))


def _laid(sources: Mapping[bytes, RandomAccessFile], name: bytes) -> WalPages | None:
    for ending, read in ((b"-wal", read_log), (b"-journal", read_journal)):
        source = sources.get(name + ending)
        if source is None:
            continue
        if source.size > LARGEST_LOG:
            raise MalformedDatabase(f"its {ending[1:].decode()} is larger than {LARGEST_LOG >> 20} MiB")
        laid = read(source.read(0, source.size))
        if laid is not None:
            return laid
    return None


def _items_held(database: SqliteFile) -> Iterator[tuple[SchemaItem, TableContents]]:
    """The schema, and what each table holds."""
    items = _schema(database)
    virtual = {item.name for item in items if item.kind == "table" and not item.root}
    # A table of that name would say that nothing is known of the others.
    shadows = {UNREAD, *(f"{name}_{shadow}" for name in virtual for shadow in SHADOWS)}
    for item in items:
        if item.name.startswith("sqlite_") or item.name in shadows or item.table in shadows:
            continue
        yield item, _held(database, item) if item.kind == "table" and item.root else TableContents(None)


def _schema(database: SqliteFile) -> list[SchemaItem]:
    items = []
    size = 0
    for row in database.rows(1, MOST_TABLES):
        kind, name, table, root, statement = (*row.values, *[None] * 5)[:5]
        if isinstance(kind, str) and isinstance(name, str):
            told = statement[:LARGEST] if isinstance(statement, str) else ""
            items.append(SchemaItem(kind, name, str(table), root if isinstance(root, int) else 0, told))
            size += len(told) + len(name)
        if size > LARGEST_SCHEMA:
            raise MalformedDatabase("its schema is too large")
    return items


def _held(database: SqliteFile, item: SchemaItem) -> TableContents:
    """What a table holds, as far as few enough pieces have to be read for that."""
    if is_of_migrations(item.name):
        return TableContents(None, migrations=tuple(database.rows(item.root, MOST_MIGRATIONS)))
    room = ALL_BLOCKS - database.blocks
    extent = database.extent(item.root, min(BLOCKS_ABOVE, room)) if room > 0 else None
    if extent is None:
        return TableContents(None)
    if database.blocks_of(extent.leaves) > min(COUNTED_BLOCKS, ALL_BLOCKS - database.blocks):
        return TableContents(None, pages=len(extent.leaves))
    return TableContents(database.count(extent))


def _told(item: SchemaItem, held: TableContents) -> Iterator[tuple[str, str, bool]]:
    if item.kind != "table":
        yield (
            f"{item.kind} {item.name}",
            f"on {item.table}" if item.kind != "view" else "",
            item.kind == "index",
        )
        return
    columns = columns_of(item.statement) if item.root else []
    # Its own table comes along with a framework; what it tells is what was asked for.
    is_own = is_of_migrations(item.name)
    yield item.name, _table(columns, held, virtual=not item.root), is_own
    if is_own:
        for name, state in applied(item.name, (_by_column(columns, row) for row in held.migrations)):
            yield f"migration {name}", state, False


def _table(columns: list[Column], held: TableContents, *, virtual: bool) -> str:
    """`15 rows (id INTEGER, name TEXT)`"""
    number = f"{held.rows} rows" if held.rows is not None else ""
    if held.pages is not None:
        number = f"{held.pages} pages"
    return f"{'virtual' if virtual else number} ({columns_text(columns)})".lstrip()


def _by_column(columns: list[Column], row: TableRow) -> dict[str, Value]:
    """A row by the names of its columns; what is the number of the row itself is stored as nothing."""
    values = [*row.values, *[None] * (len(columns) - len(row.values))]
    return {
        column.name.lower(): row.rowid if value is None and column.type.upper() == "INTEGER" else value
        for column, value in zip(columns, values, strict=False)
    }


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
