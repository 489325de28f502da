"""Read the tables of a DuckDB file with DuckDB's library, which the extra `duckdb` installs.

The library opens a private copy of the captured bytes, read-only and without extensions or access to other files: a
connection to the user's file would lock it against the program that writes it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from git_envhist.probes.sqlite import Column, columns_text

LIBRARY = "duckdb"
MAX_TABLES = 1_000
"""Limit per file; more tables are not listed."""
CONFIGURATION = {
    "access_mode": "READ_ONLY",
    "threads": 1,
    "memory_limit": "512MB",
    "temp_directory": "",
    "enable_external_access": False,
    "allow_unsigned_extensions": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "lock_configuration": True,
}
DEFAULT_SCHEMA = "main"
TABLES = (
    "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal AND NOT temporary "
    f"ORDER BY schema_name, table_name LIMIT {MAX_TABLES}"
)
VIEWS = (
    "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal AND NOT temporary "
    f"ORDER BY schema_name, view_name LIMIT {MAX_TABLES}"
)
COLUMNS = (
    "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = ? AND table_name = ? "
    "ORDER BY column_index"
)


class TableItem(NamedTuple):
    """A table or view: the name as in a fact's key, and the value."""

    name: str
    value: str


def is_installed() -> bool:
    """Return whether DuckDB's library can be imported."""
    return find_spec(LIBRARY) is not None


def read_tables(database: bytes, log: bytes | None) -> tuple[TableItem, ...] | None:
    """Return the tables and views of a database with its write-ahead log; None if the library cannot read them."""
    if not is_installed():
        return None
    library = import_module(LIBRARY)
    try:
        connection = _open_copy(library, database, log)
        try:
            return tuple(_items(connection))
        finally:
            connection.close()
    # The file is damaged, newer than the library, or needs more memory than is allowed.
    except library.Error:
        return None


def _open_copy(library: Any, database: bytes, log: bytes | None) -> Any:
    """Return a connection to a copy, which has no name any longer."""
    with tempfile.TemporaryDirectory(prefix="git-envhist-duckdb-") as directory:
        path = os.path.join(directory, "copy")
        for name, data in ((path, database), (path + ".wal", log)):
            if data:
                with open(name, "wb") as file:
                    file.write(data)
        return library.connect(path, config=CONFIGURATION)


def _items(connection: Any) -> Iterator[TableItem]:
    for schema, table in connection.execute(TABLES).fetchall():
        ((rows,),) = connection.execute(f"SELECT count(*) FROM {_quoted(schema)}.{_quoted(table)}").fetchall()
        columns = [Column(*row) for row in connection.execute(COLUMNS, (schema, table)).fetchall()]
        yield TableItem(_name(schema, table), f"{rows} rows ({columns_text(columns)})")
    for schema, view in connection.execute(VIEWS).fetchall():
        yield TableItem(f"view {_name(schema, view)}", "")


def _name(schema: str, table: str) -> str:
    name = table if schema == DEFAULT_SCHEMA else f"{schema}.{table}"
    return name.replace("/", "∕")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
