"""Read tables and rows from SQL dumps, and keys from Redis dumps, line by line within limits.

`pg_dump` and `mysqldump` write SQL. Of a compressed archive (`pg_dump -Fc`) only the digest is known. Rows
are counted in `COPY` blocks and `INSERT` statements, keys by the part of their name before `:`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from hashlib import blake2b
from typing import IO, NamedTuple

from git_envhist.model import Fact
from git_envhist.probes.redis_dump import InvalidDump, count_keys
from git_envhist.probes.sqlite import columns_of, columns_text

PROBE = "dump"
STATUS, CONTENTS = ".", "contents"
"""Names of facts: the kind of a dump (or `failed`), and the digest of its content."""
SQL, RDB, BYTES, FAILED = "sql", "rdb", "bytes", "failed"
SECONDS = 20.0
MAX_TABLES = 5_000
MAX_STATEMENT = 32 << 20
LINES_PER_TIME_CHECK = 20_000
"""Number of lines between two checks of the time."""
NAME = rb'((?:"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[\w$]+)(?:\.(?:"(?:[^"]|"")*"|`[^`]*`|[\w$]+))*)'
COPY = re.compile(rb"COPY " + NAME + rb" (?:\([^\n]*\) )?FROM stdin;")
INSERT = re.compile(rb"(?:INSERT|REPLACE)(?: IGNORE)? INTO " + NAME + rb"[ (]")
CREATE = re.compile(rb"CREATE (?:UNLOGGED |TEMPORARY )?TABLE (?:IF NOT EXISTS )?" + NAME + rb" ?\(")
CONNECT = re.compile(
    rb"\\connect (?:-reuse-previous=on \"dbname='([^']+)'\"|\"?([^\s\"]+)\"?)|USE `([^`]+)`;"
)
STRINGS = re.compile(rb"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
IGNORED_LINES = (b"--", b"/*!", b"\\restrict", b"\\unrestrict", b"SET ", b"SELECT pg_catalog.set_config")
SQL_BEGINNINGS = (
    b"--",
    b"/*",
    b"\\restrict",
    b"CREATE ",
    b"SET ",
    b"DROP ",
    b"INSERT ",
    b"BEGIN",
    b"PRAGMA ",
    b"COPY ",
)
MASK = (1 << 128) - 1


class DumpContents(NamedTuple):
    """Summary and facts of a dump."""

    kind: str
    summary: str
    """Like `3 tables, 5,210 rows`; empty if unknown."""
    facts: tuple[Fact, ...]


class DumpTimeout(Exception):
    """Reading the dump exceeds the timeout."""


def describe(name: str, file: IO[bytes]) -> DumpContents:
    """Return the content of a service's dump; only a digest if the format is unknown."""
    file.seek(0)
    head = file.read(64)
    file.seek(0)
    try:
        if head.startswith((b"REDIS0", b"VALKEY")):
            return _of_redis(name, file)
        if head.lstrip().upper().startswith(SQL_BEGINNINGS):
            return _of_sql(name, file)
    except (InvalidDump, DumpTimeout):
        file.seek(0)
    return DumpContents(BYTES, "", (_fact(name, CONTENTS, f"#{_digest_of(file):032x}"),))


def status_of(name: str, kind: str) -> Fact:
    """Return the fact that records the kind of a service's dump (SQL, Redis, other bytes)."""
    return Fact(PROBE, f"{name}/{STATUS}", kind)


def _of_redis(name: str, file: IO[bytes]) -> DumpContents:
    counts, digest = count_keys(file, time.monotonic() + SECONDS)
    facts = [_fact(name, key, f"{number} keys") for key, number in counts.items()]
    total = sum(counts.values())
    facts.append(_fact(name, CONTENTS, f"#{digest:032x}"))
    return DumpContents(RDB, _amount(total, "key"), tuple(facts))


def _of_sql(name: str, file: IO[bytes]) -> DumpContents:
    reader = _SqlReader()
    reader.read(file)
    facts = [
        _fact(name, table, f"{rows} rows ({columns_text(columns_of(reader.columns.get(table, '')))})")
        for table, rows in reader.rows.items()
    ]
    facts.append(_fact(name, CONTENTS, f"#{reader.digest:032x}"))
    summary = f"{_amount(len(reader.rows), 'table')}, {_amount(sum(reader.rows.values()), 'row')}"
    return DumpContents(SQL, summary, tuple(facts))


class _SqlReader:
    """Count the rows of each table in an SQL dump."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.columns: dict[str, str] = {}
        self.digest = 0
        self._database = ""
        self._deadline = time.monotonic() + SECONDS

    def read(self, file: IO[bytes]) -> None:
        lines = self._lines(file)
        for line in lines:
            if found := COPY.match(line):
                self._copy(self._name(found[1]), lines)
            elif found := INSERT.match(line):
                self._add(self._name(found[1]), _tuples(_statement(line, lines)[found.end(1) :]))
            elif found := CREATE.match(line):
                table = self._name(found[1])
                self._add(table, 0)
                self.columns[table] = _statement(line, lines).decode("utf-8", "replace")
            elif found := CONNECT.match(line):
                self._database = (
                    next(part for part in found.groups() if part).decode("utf-8", "replace") + "."
                )

    def _lines(self, file: IO[bytes]) -> Iterator[bytes]:
        number = 0
        while line := file.readline(MAX_STATEMENT):
            number += 1
            if number % LINES_PER_TIME_CHECK == 0 and time.monotonic() > self._deadline:
                raise DumpTimeout
            if not line.startswith(IGNORED_LINES):
                # Addition makes the digest independent of the order of rows.
                self.digest = (self.digest + _digest(line)) & MASK
            yield line

    def _copy(self, table: str, lines: Iterator[bytes]) -> None:
        number = 0
        for line in lines:
            if line.rstrip() == b"\\.":
                break
            number += 1
        self._add(table, number)

    def _add(self, table: str, number: int) -> None:
        if table in self.rows or len(self.rows) < MAX_TABLES:
            self.rows[table] = self.rows.get(table, 0) + number

    def _name(self, raw: bytes) -> str:
        name = re.sub(rb'["`\[\]]', b"", raw).decode("utf-8", "replace").replace("/", "∕")
        # DuckDB names the default schema where it inserts, and not where it creates.
        return self._database + name.removeprefix("main.")


def _statement(line: bytes, lines: Iterator[bytes]) -> bytes:
    """Return a statement up to the line that ends it."""
    parts, size = [line], len(line)
    while not (parts[-1].rstrip().endswith(b";") and _is_closed(parts)):
        following = next(lines, b"")
        size += len(following)
        if not following or size > MAX_STATEMENT:
            break
        parts.append(following)
    return b"".join(parts)


def _is_closed(parts: list[bytes]) -> bool:
    return b"'" not in STRINGS.sub(b"", b"".join(parts))


def _tuples(values: bytes) -> int:
    """Return the number of rows after `VALUES`."""
    bare = STRINGS.sub(b"", values)
    at = bare.upper().find(b"VALUES")
    number = depth = 0
    for sign in re.finditer(rb"[()]", bare[max(at, 0) :]):
        if sign[0] == b"(":
            number += depth == 0
            depth += 1
        else:
            depth -= 1
    return number


def _digest(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=16).digest(), "big")


def _digest_of(file: IO[bytes]) -> int:
    digest = blake2b(digest_size=16)
    while block := file.read(1 << 20):
        digest.update(block)
    return int.from_bytes(digest.digest(), "big")


def _fact(name: str, key: str, value: str) -> Fact:
    return Fact(PROBE, f"{name}/{key}", value, auto=key == CONTENTS)


def _amount(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
