"""Read the format version and the number of blocks of DuckDB files from their headers.

Tables and rows are in blocks whose format changes between versions; only DuckDB's library can read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from git_envhist.model import EnvPath, Fact
from git_envhist.probes.base import Files, Keyed, Parts, RandomAccessFile
from git_envhist.probes.captured_files import CapturedFile
from git_envhist.probes.table_files import MAX_FILES, is_own, place_text

PROBE = "duckdb"
MAGIC = b"DUCK"
HEADER = 4096
HEADERS_SIZE = 3 * HEADER
MAX_BLOCKS = 1 << 40


def wants(directory: bytes) -> bool:
    return is_own(directory)


def parts_of(files: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
    """Return the headers."""
    return {name: ((0, files[name].read(0, HEADERS_SIZE)),) for name in sorted(files)[:MAX_FILES]}


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the format version and the number of blocks."""
    for name in sorted(files)[:MAX_FILES]:
        head = CapturedFile(files[name]).read(0, HEADERS_SIZE)
        if head[8:12] != MAGIC or len(head) < HEADERS_SIZE:
            continue
        place = place_text(directory, name)
        yield Fact(PROBE, f"{place}/format", str(_number(head, 12)), EnvPath(directory), auto=True)
        # The header with the higher counter is valid.
        latest = max((HEADER, 2 * HEADER), key=lambda at: _number(head, at + 8))
        blocks = _number(head, latest + 32)
        if blocks < MAX_BLOCKS:
            yield Fact(PROBE, f"{place}/contents", f"{blocks} blocks", EnvPath(directory))


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")
