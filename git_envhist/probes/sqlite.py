"""SQLite databases: their tables with columns and rows, indexes, views, and the migrations that were applied.

What is told is the database as it was captured: with what stood only in its log, without what an unfinished
transaction wrote. Rows are counted where they stand on few enough pages; of a larger table the pages are told, which
the pages above them tell exactly. Of a sealed database nothing is told but that it is another one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.model import SQLITE_HEADER, UNREAD, EnvPath, Fact
from git_envhist.probes.base import Files, Keyed, Parts, RandomAccessFile
from git_envhist.probes.captured_files import Shown, Traced
from git_envhist.probes.sqlite_file import (
    MalformedDatabase,
    SqliteFile,
    TableRow,
    Value,
    WalPages,
    read_journal,
    read_log,
)

# The tables in which frameworks keep which migrations were applied, and how a row of them is called (pure).

NAMED_BY: dict[str, tuple[tuple[str, ...], ...]] = {
    "django_migrations": (("app", "name"),),  # Django
    "schema_migrations": (("version",),),  # Rails, dbmate, golang-migrate
    "alembic_version": (("version_num",),),  # Alembic, Flask-Migrate
    "_prisma_migrations": (("migration_name",),),  # Prisma
    "knex_migrations": (("name",),),  # Knex
    "flyway_schema_history": (("version", "description"),),  # Flyway
    "migrations": (("migration",), ("name",)),  # Laravel; TypeORM
    "sequelizemeta": (("name",),),  # Sequelize
    "_sqlx_migrations": (("version", "description"),),  # SQLx
    "__efmigrationshistory": (("migrationid",),),  # Entity Framework
    "__diesel_schema_migrations": (("version",),),  # Diesel
    "__drizzle_migrations": (("hash",),),  # Drizzle
    "doctrine_migration_versions": (("version",),),  # Doctrine
    "goose_db_version": (("version_id",),),  # Goose
    "d1_migrations": (("name",),),  # Wrangler
    "kysely_migration": (("name",),),  # Kysely
    "mikro_orm_migrations": (("name",),),  # MikroORM
    "migratehistory": (("name",),),  # Peewee
    "phinxlog": (("version", "migration_name"),),  # Phinx, CakePHP
    "databasechangelog": (("id",),),  # Liquibase
}
"""By table, the columns that a migration is named by: the first that the table has."""
ONE_ROW = ("alembic_version",)
"""The one row tells where the database stands, and is replaced."""
UNDONE = {"_prisma_migrations": "rolled_back_at"}
DONE = {"flyway_schema_history": "success", "_sqlx_migrations": "success", "goose_db_version": "is_applied"}
MAX_LENGTH = 200


def is_of_migrations(table: str) -> bool:
    return table.lower() in NAMED_BY


def applied(table: str, rows: Iterable[Mapping[str, Value]]) -> Iterator[tuple[str, str]]:
    """(migration, state): those that a table says were applied; `version` and which, where it tells no more."""
    kind = table.lower()
    for row in rows:
        named = next((words for words in NAMED_BY[kind] if all(word in row for word in words)), ())
        name = ".".join(_migration_text(row[word]) for word in named if row[word] is not None)
        if not name or row.get(UNDONE.get(kind, "")) is not None or not row.get(DONE.get(kind, ""), 1):
            continue
        if kind in ONE_ROW or "dirty" in row:
            yield "version", name + (" (dirty)" if row.get("dirty") else "")
        else:
            yield name, ""


def _migration_text(value: Value) -> str:
    told = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return told[:MAX_LENGTH]


# The columns of a table, from the statement that made it (pure). It is read as words, and never run.

MAX_SIZE = 1 << 16
MAX_LIST = 6_000
MAX_NAME, MAX_TYPE = 80, 40
WORD = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|\s+"""
    r"""|(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]{0,300}\]|'(?:[^']|'')*')"""
    r"""|(?P<word>[^\s"`'\[\](),;]+)|(?P<sign>.)""",
    re.DOTALL,
)
OF_A_TABLE = frozenset(("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"))
"""Words that begin what is no column."""
OF_A_COLUMN = frozenset(
    (*OF_A_TABLE, "NOT", "NULL", "DEFAULT", "COLLATE", "REFERENCES", "GENERATED", "AS", "AUTOINCREMENT", "ON")
)
"""Words that end a column's type."""
UNFIT = re.compile(r"[\s,()]+")


class SqlToken(NamedTuple):
    text: str
    is_quoted: bool


class Column(NamedTuple):
    name: str
    type: str


def columns_of(statement: str) -> list[Column]:
    """The columns that `CREATE TABLE` names; none where it cannot be told."""
    found = (_column(part) for part in _parts(_tokens(statement[:MAX_SIZE])))
    return [column for column in found if column is not None]


def columns_text(columns: list[Column]) -> str:
    """`id INTEGER, name TEXT`; of a list beyond any measure, how long it is and what tells it from others."""
    told = ", ".join(
        f"{UNFIT.sub('_', one.name)[:MAX_NAME]} {one.type[:MAX_TYPE]}".rstrip() for one in columns
    )
    if len(told) <= MAX_LIST:
        return told
    digest = hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{len(columns)} columns #{digest[:12]}"


def _tokens(statement: str) -> Iterator[SqlToken]:
    for found in WORD.finditer(statement):
        quoted = found["quoted"]
        if quoted is not None:
            inner = quoted[1:-1]
            yield SqlToken(inner if quoted[0] == "[" else inner.replace(quoted[-1] * 2, quoted[-1]), True)
        elif found["word"] is not None or found["sign"] is not None:
            yield SqlToken(found[0], False)


def _parts(tokens: Iterator[SqlToken]) -> Iterator[list[SqlToken]]:
    """What stands between the commas of the outermost brackets."""
    depth = 0
    part: list[SqlToken] = []
    for token in tokens:
        sign = "" if token.is_quoted else token.text
        depth += (sign == "(") - (sign == ")")
        if (sign == "," and depth == 1) or (sign == ")" and depth == 0):
            yield part
            part = []
            if not depth:
                return
        elif depth > 1 or (depth == 1 and (part or sign != "(")):
            part.append(token)


def _column(part: list[SqlToken]) -> Column | None:
    if not part or (not part[0].is_quoted and part[0].text.upper() in OF_A_TABLE):
        return None
    words: list[str] = []
    for token in part[1:]:
        if not token.is_quoted and token.text.upper() in OF_A_COLUMN:
            break
        words.append(token.text)
    return Column(part[0].text, _type(words))


def _type(words: list[str]) -> str:
    """`VARCHAR(30)`, `UNSIGNED BIG INT`: as it is written, the brackets close to it."""
    told = " ".join(words).replace(" (", "(").replace("( ", "(").replace(" )", ")").replace(" ,", ",")
    return re.sub(r",\s+", ",", told)


PROBE = "sqlite"
ENDINGS = (b".db", b".db3", b".sqlite", b".sqlite3", b".s3db", b".sl3")
OF_RPM = (b"var/lib/rpm", b"usr/lib/sysimage/rpm")
COUNTED_BLOCKS, ALL_BLOCKS, BLOCKS_ABOVE = 2048, 4096, 1024
"""Pieces of 16 KiB that are read for the rows of one table, of all, and of the pages above the leaves of one."""
MAX_LOG = 64 << 20
MAX_TABLES, MAX_MIGRATIONS = 5_000, 5_000
MAX_DATABASES = 100
"""Of one directory."""
MAX_SCHEMA = 4 << 20
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
        found = _database(files, name) if told <= MAX_DATABASES else [(UNREAD, "one of too many", False)]
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
        if source.size > MAX_LOG:
            raise MalformedDatabase(f"its {ending[1:].decode()} is larger than {MAX_LOG >> 20} MiB")
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
    for row in database.rows(1, MAX_TABLES):
        kind, name, table, root, statement = (*row.values, *[None] * 5)[:5]
        if isinstance(kind, str) and isinstance(name, str):
            told = statement[:MAX_SIZE] if isinstance(statement, str) else ""
            items.append(SchemaItem(kind, name, str(table), root if isinstance(root, int) else 0, told))
            size += len(told) + len(name)
        if size > MAX_SCHEMA:
            raise MalformedDatabase("its schema is too large")
    return items


def _held(database: SqliteFile, item: SchemaItem) -> TableContents:
    """What a table holds, as far as few enough pieces have to be read for that."""
    if is_of_migrations(item.name):
        return TableContents(None, migrations=tuple(database.rows(item.root, MAX_MIGRATIONS)))
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
