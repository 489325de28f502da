"""Read columns of CSV and TSV files, and the number of rows if the file is small enough to be read whole."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping

from git_envhist.model import Fact
from git_envhist.probes.base import Files, Keyed, Parts, RandomAccessFile
from git_envhist.probes.table_facts import MAX_FILES, has_own_data, table_fact

PROBE = "csv"
HEAD_SIZE = 1 << 16
DELIMITERS = (",", ";", "\t", "|")
NUMBER = re.compile(r"[-+]?[0-9]*[.,]?[0-9]+(?:[eE][-+]?[0-9]+)?\Z|\Z")
MAX_COLUMNS = 2_000


def wants(directory: bytes) -> bool:
    return has_own_data(directory)


def parts_of(files: Mapping[bytes, RandomAccessFile]) -> dict[bytes, Parts]:
    """Return the beginning of files that are too large to be read whole."""
    return {name: ((0, files[name].read(0, HEAD_SIZE)),) for name in sorted(files)[:MAX_FILES]}


def facts_of(directory: bytes, files: Files, keyed: Keyed) -> Iterator[Fact]:
    """Yield the columns, and the number of rows if known."""
    for name in sorted(files)[:MAX_FILES]:
        file = files[name]
        whole = file.data is not None
        data = file.data if file.data is not None else dict(file.parts).get(0, b"")
        if not data or b"\0" in data[:HEAD_SIZE]:
            continue
        columns, lines = _read(data.decode("utf-8-sig", "replace"), whole=whole)
        if columns:
            yield table_fact(PROBE, directory, name, lines, [(column, "") for column in columns])


def _read(text: str, *, whole: bool) -> tuple[list[str], int | None]:
    """Return the columns and the number of rows below them; None if not known."""
    first = text[:HEAD_SIZE].partition("\n")[0]
    delimiter = max(DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        head = next(reader, [])
        rows = sum(1 for row in reader if row) if whole else None
    except csv.Error:
        return [], None
    names = [name.strip()[:80] for name in head[:MAX_COLUMNS]]
    if any(NUMBER.match(name) for name in names):
        # A number in the first line means that there is no header.
        return [
            f"column_{number}" for number in range(1, len(names) + 1)
        ], rows + 1 if rows is not None else None
    return [name.replace(",", "_") for name in names], rows
