"""Facts of files that contain one table each: CSV, Parquet, DuckDB, notebooks."""

from __future__ import annotations

from collections.abc import Iterable

from git_envhist.model import EnvPath, Fact
from git_envhist.probes import libraries
from git_envhist.probes.sqlite import Column, columns_text

INSTALLED = libraries() | {b".venv", b"venv", b".tox", b".nox", b".git", b"vendor"}
"""Directories of packages; tables in them are not the user's data."""
MAX_FILES = 200
"""Limit per directory."""
TABLE = "table"


def has_own_data(directory: bytes) -> bool:
    """Return whether a directory contains data of the environment, not of packages."""
    return INSTALLED.isdisjoint(directory.split(b"/"))


def table_fact(
    probe: str, directory: bytes, name: bytes, rows: int | None, columns: Iterable[tuple[str, str]]
) -> Fact:
    """Return the fact of a file's table: `data.csv/table 120 rows (id, name)`."""
    number = f"{rows} rows " if rows is not None else ""
    listed = columns_text([Column(column, type_) for column, type_ in columns])
    return Fact(probe, f"{place_text(directory, name)}/{TABLE}", f"{number}({listed})", EnvPath(directory))


def place_text(directory: bytes, name: bytes) -> str:
    """Return the path of a file as used in a key."""
    return (directory + b"/" + name if directory else name).decode("utf-8", "surrogateescape")
