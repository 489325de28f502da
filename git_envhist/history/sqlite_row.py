"""Read one row of a SQLite database from the bytes of its file and its log (never executed, never written)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from git_envhist.probes.sqlite import MAX_TABLES, columns_of
from git_envhist.probes.sqlite_file import (
    MalformedDatabase,
    SqliteFile,
    TableRow,
    read_journal,
    read_log,
)

MAX_ROWS = 500_000


class _Memory:
    """The bytes of a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, offset: int, length: int) -> bytes:
        part = self._data[offset : offset + length]
        if len(part) < length:
            raise MalformedDatabase("the file is too short")
        return part


def row_fingerprint(contents: Sequence[bytes | None], table: str, key: str) -> str:
    """Return a fingerprint of a row; empty if the table has no row with this key.

    `contents`: the database, its log and its journal. The key is the rowid, or the value of the first column.
    """
    data, log, journal = contents
    if data is None:
        return ""
    try:
        overlay = (read_log(log) if log else None) or (read_journal(journal) if journal else None)
        database = SqliteFile(_Memory(data), overlay)
        root, by_rowid = _table(database, table)
        if not root:
            return ""
        rows = database.rows(root, MAX_ROWS)
        found = next((row for row in rows if _is_meant(row, key, by_rowid=by_rowid)), None)
    except MalformedDatabase:
        return ""
    return "" if found is None else hashlib.sha256(repr(found).encode("utf-8", "replace")).hexdigest()


def _table(database: SqliteFile, table: str) -> tuple[int, bool]:
    """Return the root page of a table, and whether its first column is the rowid."""
    for row in database.rows(1, MAX_TABLES):
        kind, name, _, root, statement = (*row.values, *[None] * 5)[:5]
        if kind == "table" and name == table and isinstance(root, int):
            columns = columns_of(statement) if isinstance(statement, str) else []
            return root, bool(columns) and columns[0].type.upper() == "INTEGER"
    return 0, False


def _is_meant(row: TableRow, key: str, *, by_rowid: bool) -> bool:
    first = row.values[0] if row.values else None
    if by_rowid and first is None:
        return str(row.rowid) == key
    if isinstance(first, bytes):
        return first == key.encode("utf-8", "surrogateescape")
    return str(first) == key
