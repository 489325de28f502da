"""Read SQLite databases: tables with columns and row counts, indexes, views, triggers, applied migrations.

The facts describe the database as captured: with finished transactions that are still in its log, without unfinished
ones. The rows of a small table are counted; of a larger one the number of pages is given, which its inner pages
show exactly. Of a sealed database only a fingerprint is stored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.model import SQLITE_HEADER, UNREAD, EnvPath, Fact
from git_envhist.probes.base import Files, Keyed, Parts, RandomAccessFile
from git_envhist.probes.captured_files import CapturedFile, RecordingSource
from git_envhist.probes.sqlite_file import (
    MalformedDatabase,
    SqliteFile,
    TableRow,
    Value,
    WalPages,
    read_journal,
    read_log,
)

# Tables in which frameworks record applied migrations, and the columns that name a migration.

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
"""Table -> columns that name a migration; the first alternative with existing columns is used."""
ONE_ROW = ("alembic_version",)
"""Tables with a single row: the current version."""
ROLLED_BACK_COLUMNS = {"_prisma_migrations": "rolled_back_at"}
SUCCESS_COLUMNS = {
    "flyway_schema_history": "success",
    "_sqlx_migrations": "success",
    "goose_db_version": "is_applied",
}
MAX_LENGTH = 200


def is_migrations_table(table: str) -> bool:
    return table.lower() in NAMED_BY


def applied_migrations(table: str, rows: Iterable[Mapping[str, Value]]) -> Iterator[tuple[str, str]]:
    """Yield (migration, state) of applied migrations; ("version", current) for tables with only a version."""
    kind = table.lower()
    for row in rows:
        named = next((words for words in NAMED_BY[kind] if all(word in row for word in words)), ())
        name = ".".join(_migration_text(row[word]) for word in named if row[word] is not None)
        if (
            not name
            or row.get(ROLLED_BACK_COLUMNS.get(kind, "")) is not None
            or not row.get(SUCCESS_COLUMNS.get(kind, ""), 1)
        ):
            continue
        if kind in ONE_ROW or "dirty" in row:
            yield "version", name + (" (dirty)" if row.get("dirty") else "")
        else:
            yield name, ""


def _migration_text(value: Value) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text[:MAX_LENGTH]


# The columns of a table, parsed from its CREATE statement, which is never executed.

MAX_SIZE = 1 << 16
MAX_LIST = 6_000
MAX_NAME, MAX_TYPE = 80, 40
WORD = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|\s+"""
    r"""|(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]{0,300}\]|'(?:[^']|'')*')"""
    r"""|(?P<word>[^\s"`'\[\](),;]+)|(?P<sign>.)""",
    re.DOTALL,
)
TABLE_CONSTRAINTS = frozenset(("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"))
"""Words that start a table constraint instead of a column."""
COLUMN_CONSTRAINTS = frozenset(
    (
        *TABLE_CONSTRAINTS,
        "NOT",
        "NULL",
        "DEFAULT",
        "COLLATE",
        "REFERENCES",
        "GENERATED",
        "AS",
        "AUTOINCREMENT",
        "ON",
    )
)
"""Words that end the type of a column."""
UNFIT = re.compile(r"[\s,()]+")


class SqlToken(NamedTuple):
    text: str
    is_quoted: bool


class Column(NamedTuple):
    name: str
    type: str


def columns_of(statement: str) -> list[Column]:
    """Return the columns that a `CREATE TABLE` statement names; none if it cannot be parsed."""
    found = (_column(part) for part in _parts(_tokens(statement[:MAX_SIZE])))
    return [column for column in found if column is not None]


def columns_text(columns: list[Column]) -> str:
    """Return `id INTEGER, name TEXT`; for a very long list its length and a digest."""
    text = ", ".join(
        f"{UNFIT.sub('_', one.name)[:MAX_NAME]} {one.type[:MAX_TYPE]}".rstrip() for one in columns
    )
    if len(text) <= MAX_LIST:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
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
    """Yield the tokens between the commas of the outermost parentheses."""
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
    if not part or (not part[0].is_quoted and part[0].text.upper() in TABLE_CONSTRAINTS):
        return None
    words: list[str] = []
    for token in part[1:]:
        if not token.is_quoted and token.text.upper() in COLUMN_CONSTRAINTS:
            break
        words.append(token.text)
    return Column(part[0].text, _type(words))


def _type(words: list[str]) -> str:
    """Return the type as written, without spaces around parentheses: `VARCHAR(30)`, `UNSIGNED BIG INT`."""
    text = " ".join(words).replace(" (", "(").replace("( ", "(").replace(" )", ")").replace(" ,", ",")
    return re.sub(r",\s+", ",", text)


PROBE = "sqlite"
ENDINGS = (b".db", b".db3", b".sqlite", b".sqlite3", b".s3db", b".sl3")
OF_RPM = (b"var/lib/rpm", b"usr/lib/sysimage/rpm")
COUNTED_BLOCKS, ALL_BLOCKS, BLOCKS_ABOVE = 2048, 4096, 1024
"""Limits in blocks of 16 KiB: for the rows of one table, of all tables, and for the inner pages of one table."""
MAX_LOG = 64 << 20
MAX_TABLES, MAX_MIGRATIONS = 5_000, 5_000
MAX_DATABASES = 100
"""Limit per directory."""
MAX_SCHEMA = 4 << 20
SHADOWS = (
    *("content", "data", "idx", "docsize", "config", "segments", "segdir", "stat"),
    *("node", "parent", "rowid"),
)
"""Suffixes of the shadow tables that contain the data of a virtual table."""


class SchemaItem(NamedTuple):
    """A row of the schema table of a database: kind, name, table."""

    kind: str
    name: str
    table: str
    root: int
    statement: str


class TableContents(NamedTuple):
    """Contents of a table: number of rows, or of leaf pages if there are too many; the rows of a migrations
    table."""

    rows: int | None
    pages: int | None = None
    migrations: tuple[TableRow, ...] = ()


def wants(directory: bytes) -> bool:
    # rpm's databases are read by the package probes.
    return not directory.endswith(OF_RPM)


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the facts of every database in a directory."""
    databases = 0
    for name in filter(_is_named, sorted(files)):
        if CapturedFile(files[name]).read(0, len(SQLITE_HEADER)) != SQLITE_HEADER:
            continue
        databases += 1
        place = directory + b"/" + name if directory else name
        found = _database(files, name) if databases <= MAX_DATABASES else [(UNREAD, "one of too many", False)]
        if any(files[one].sealed for one in _unit(files, name)):
            found = _sealed(place, found, keyed)
        for key, value, auto in found:
            yield Fact(PROBE, f"{_text(place)}/{key.replace('/', '∕')}", value, EnvPath(directory), auto=auto)


def parts_of(files: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
    """Return the byte ranges that `facts_of` reads of large files."""
    kept: dict[bytes, Parts] = {}
    for name in filter(_is_named, files):
        sources = {one: RecordingSource(files[one]) for one in _unit(files, name)}
        if sources[name].read(0, len(SQLITE_HEADER)) != SQLITE_HEADER:
            continue
        try:
            for _ in _items_with_contents(_open(sources, name)):
                pass
        except MalformedDatabase:
            pass  # `facts_of` reads the same bytes and reports the error
        kept.update({one: source.parts for one, source in sources.items()})
    return kept


def _database(files: Files, name: bytes) -> list[tuple[str, str, bool]]:
    """Return (key, value, is automatic) for all facts of a database."""
    try:
        sources = {one: CapturedFile(files[one]) for one in _unit(files, name)}
        return [
            fact
            for item, contents in _items_with_contents(_open(sources, name))
            for fact in _item_facts(item, contents)
        ]
    except MalformedDatabase as wrong:
        return [(UNREAD, str(wrong), False)]


def _sealed(place: bytes, found: list[tuple[str, str, bool]], keyed: Keyed) -> list[tuple[str, str, bool]]:
    data = repr(found).encode("utf-8", "surrogateescape")
    return [("contents", "sealed:" + (keyed(place + b"\0sqlite", data) or "set"), False)]


def _is_named(name: bytes) -> bool:
    return name.endswith(ENDINGS) or b"." not in name


def _unit(files: Iterable[bytes], name: bytes) -> list[bytes]:
    return [one for one in (name, name + b"-wal", name + b"-journal") if one in files]


def _open(sources: Mapping[bytes, RandomAccessFile], name: bytes) -> SqliteFile:
    """Return a database with its log applied, or if that is empty, its journal."""
    return SqliteFile(sources[name], _overlay(sources, name))


def _overlay(sources: Mapping[bytes, RandomAccessFile], name: bytes) -> WalPages | None:
    for ending, read in ((b"-wal", read_log), (b"-journal", read_journal)):
        source = sources.get(name + ending)
        if source is None:
            continue
        if source.size > MAX_LOG:
            raise MalformedDatabase(f"its {ending[1:].decode()} is larger than {MAX_LOG >> 20} MiB")
        overlay = read(source.read(0, source.size))
        if overlay is not None:
            return overlay
    return None


def _items_with_contents(database: SqliteFile) -> Iterator[tuple[SchemaItem, TableContents]]:
    """Yield the schema with the contents of each table."""
    items = _schema(database)
    virtual = {item.name for item in items if item.kind == "table" and not item.root}
    # A table with the name of the marker would make the other tables look unread.
    shadows = {UNREAD, *(f"{name}_{shadow}" for name in virtual for shadow in SHADOWS)}
    for item in items:
        if item.name.startswith("sqlite_") or item.name in shadows or item.table in shadows:
            continue
        yield item, _contents(database, item) if item.kind == "table" and item.root else TableContents(None)


def _schema(database: SqliteFile) -> list[SchemaItem]:
    items = []
    size = 0
    for row in database.rows(1, MAX_TABLES):
        kind, name, table, root, statement = (*row.values, *[None] * 5)[:5]
        if isinstance(kind, str) and isinstance(name, str):
            text = statement[:MAX_SIZE] if isinstance(statement, str) else ""
            items.append(SchemaItem(kind, name, str(table), root if isinstance(root, int) else 0, text))
            size += len(text) + len(name)
        if size > MAX_SCHEMA:
            raise MalformedDatabase("its schema is too large")
    return items


def _contents(database: SqliteFile, item: SchemaItem) -> TableContents:
    """Return the contents of a table if they can be read within the limits."""
    if is_migrations_table(item.name):
        return TableContents(None, migrations=tuple(database.rows(item.root, MAX_MIGRATIONS)))
    blocks_left = ALL_BLOCKS - database.blocks
    extent = database.extent(item.root, min(BLOCKS_ABOVE, blocks_left)) if blocks_left > 0 else None
    if extent is None:
        return TableContents(None)
    if database.blocks_of(extent.leaves) > min(COUNTED_BLOCKS, ALL_BLOCKS - database.blocks):
        return TableContents(None, pages=len(extent.leaves))
    return TableContents(database.count(extent))


def _item_facts(item: SchemaItem, contents: TableContents) -> Iterator[tuple[str, str, bool]]:
    if item.kind != "table":
        yield (
            f"{item.kind} {item.name}",
            f"on {item.table}" if item.kind != "view" else "",
            item.kind == "index",
        )
        return
    columns = columns_of(item.statement) if item.root else []
    # A migrations table is created by the framework; its rows are what the user asked for.
    is_own = is_migrations_table(item.name)
    yield item.name, _table(columns, contents, virtual=not item.root), is_own
    if is_own:
        for name, state in applied_migrations(
            item.name, (_by_column(columns, row) for row in contents.migrations)
        ):
            yield f"migration {name}", state, False


def _table(columns: list[Column], contents: TableContents, *, virtual: bool) -> str:
    """Return `15 rows (id INTEGER, name TEXT)`"""
    number = f"{contents.rows} rows" if contents.rows is not None else ""
    if contents.pages is not None:
        number = f"{contents.pages} pages"
    return f"{'virtual' if virtual else number} ({columns_text(columns)})".lstrip()


def _by_column(columns: list[Column], row: TableRow) -> dict[str, Value]:
    """Return a row by column names; a rowid alias is stored as NULL."""
    values = [*row.values, *[None] * (len(columns) - len(row.values))]
    return {
        column.name.lower(): row.rowid if value is None and column.type.upper() == "INTEGER" else value
        for column, value in zip(columns, values, strict=False)
    }


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
