"""List the tables of DuckDB files, or without DuckDB's library the format version and the number of blocks.

Tables and rows are in blocks whose format changes between versions: only the library can read them. The headers
do not need it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed, Parts, RandomAccessFile
from git_envhist.probes.captured_files import CapturedFile
from git_envhist.probes.duckdb_tables import TableItem, is_installed, read_tables
from git_envhist.probes.table_facts import MAX_FILES, has_own_data, place_text

PROBE = "duckdb"
MAGIC = b"DUCK"
HEADER = 4096
HEADERS_SIZE = 3 * HEADER
MAX_BLOCKS = 1 << 40
LOG = b".wal"
MAX_READ = 120 << 20
"""Limit for the databases of a directory, in bytes; of the others, only the headers are read."""


def wants(directory: bytes) -> bool:
    return has_own_data(directory)


def parts_of(files: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
    """Return whole databases with their logs if their tables can be read, otherwise the headers."""
    kept: dict[bytes, Parts] = {}
    left = MAX_READ if is_installed() else 0
    for name in _databases(files):
        unit = [one for one in (name, name + LOG) if one in files]
        size = sum(files[one].size for one in unit)
        if size <= left:
            left -= size
            kept.update({one: ((0, files[one].read(0, files[one].size)),) for one in unit})
        else:
            kept[name] = ((0, files[name].read(0, HEADERS_SIZE)),)
    return kept


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the tables; without the library, the number of blocks."""
    for name in _databases(files):
        head = CapturedFile(files[name]).read(0, HEADERS_SIZE)
        if head[8:12] != MAGIC or len(head) < HEADERS_SIZE:
            continue
        place = place_text(directory, name)
        yield Fact(PROBE, f"{place}/format", str(_number(head, 12)), EnvPath(directory), auto=True)
        tables = _tables(files, name)
        if tables is None:
            yield from _blocks(directory, place, head)
        elif any(files[one].sealed for one in (name, name + LOG) if one in files):
            secret = repr(tables).encode("utf-8", "surrogateescape")
            value = "sealed:" + (
                keyed(place.encode("utf-8", "surrogateescape") + b"\0duckdb", secret) or "set"
            )
            yield Fact(PROBE, f"{place}/contents", value, EnvPath(directory))
        else:
            for item in tables:
                yield Fact(PROBE, f"{place}/{item.name}", item.value, EnvPath(directory))


def _databases(files: Mapping[bytes, object]) -> list[bytes]:
    return [name for name in sorted(files) if not name.endswith(LOG)][:MAX_FILES]


def _tables(files: Files, name: bytes) -> tuple[TableItem, ...] | None:
    """Return the tables; None if not all of the database was captured for this probe, or it cannot be read."""
    database = _whole(files, name)
    log = _whole(files, name + LOG) if name + LOG in files else b""
    return read_tables(database, log) if database is not None and log is not None else None


def _whole(files: Files, name: bytes) -> bytes | None:
    file = CapturedFile(files[name])
    data = file.read(0, file.size)
    return data if len(data) == file.size else None


def _blocks(directory: bytes, place: str, head: bytes) -> Iterator[Fact]:
    """Yield the number of blocks in the header with the higher counter, which is the valid one."""
    latest = max((HEADER, 2 * HEADER), key=lambda at: _number(head, at + 8))
    blocks = _number(head, latest + 32)
    if blocks < MAX_BLOCKS:
        yield Fact(PROBE, f"{place}/contents", f"{blocks} blocks", EnvPath(directory))


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")
