"""Tables in files: Parquet by its footer, DuckDB by headers or library, CSV by its lines, notebooks by their cells."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.diff.facts import fact_words
from git_envhist.diff.summary import summarize
from git_envhist.model import ChangeCount, FactChange
from git_envhist.probes import csv_files, duckdb_file, duckdb_tables, notebooks, parquet
from git_envhist.probes.base import ProbedFile
from tests.support.repository import Repo

# pyarrow 26.0.1: write_table(id, name, at, tags, point, day; 3 rows), store_schema=False; the footer
FOOTER = base64.b64decode(
    "FQQZvDUAGAZzY2hlbWEVDAAVBCUCGAJpZAAVDCUCGARuYW1lJQBMHAAAABUEJQIYAmF0JRRMjBIcLAAAAAAANQIYBHRhZ3MVAhUG"
    "TDwAAAA1BBgEbGlzdBUCABUMJQIYB2VsZW1lbnQlAEwcAAAANQIYBXBvaW50FQQAFQQlAhgBeAAVCiUCGAF5ABUCJQIYA2RheSUM"
    "TGwAAAAWBhkcGXwmABwVBBklBgAZGAJpZBUAFgYWYhZiJghJHBUAFQAVAgA8KQYZJgAGAAAAJgAcFQwZJQYAGRgEbmFtZRUAFgYW"
    "UBZQJmpJHBUAFQAVAgA8FgYZBhkmAAYAAAAmABwVBBklBgAZGAJhdBUAFgYWYhZiJroBSRwVABUAFQIAPCkGGSYABgAAACYAHBUM"
    "GSUGABk4BHRhZ3MEbGlzdAdlbGVtZW50FQAWBhZcFlwmnAJJHBUAFQAVAgA8FgYZJgYAGUYAAAAGAAAAJgAcFQQZJQYAGSgFcG9p"
    "bnQBeBUAFgYWYhZiJvgCSRwVABUAFQIAPCkGGTYAAAYAAAAmABwVChklBgAZKAVwb2ludAF5FQAWBhZiFmIm2gNJHBUAFQAVAgA8"
    "KQYZNgAABgAAACYAHBUCGSUGABkYA2RheRUAFgYWShZKJrwESRwVABUAFQIAPCkGGSYABgAAABb+BBYGJggW/gQAKCBwYXJxdWV0"
    "LWNwcC1hcnJvdyB2ZXJzaW9uIDI2LjAuMRl8HAAAHAAAHAAAHAAAHAAAHAAAHAAAAD4CAABQQVIx"
)
KINDS = {"parquet": "databases", "csv": "databases", "notebook": "databases"}
PAGES = b"PAR1" + b"\0" * 64


def nothing(context: bytes, secret: bytes) -> None:
    return None


def told(module: object, name: str, data: bytes, directory: bytes = b"data") -> dict[str, str]:
    files = {name.encode(): ProbedFile(data, len(data), False, b"1")}
    facts = module.facts_of(directory, files, nothing)  # type: ignore[attr-defined]
    return {fact.key: fact.value for fact in facts}


def test_parquet_columns_and_rows_come_from_the_footer() -> None:
    assert told(parquet, "events.parquet", PAGES + FOOTER) == {
        "data/events.parquet/table": "3 rows (id int64, name string, at timestamp, tags group, point group, day date)"
    }


class Large:
    """A file with random access."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size, self.taken = data, len(data), 0

    def read(self, offset: int, length: int) -> bytes:
        self.taken += length
        return self.data[offset : offset + length]


def test_only_the_footer_of_a_large_parquet_file_is_read() -> None:
    large = Large(PAGES + b"\1" * 1_000_000 + FOOTER)
    parts = parquet.parts_of({b"big.parquet": large})
    assert large.taken <= len(FOOTER) + 8
    files = {b"big.parquet": ProbedFile(None, large.size, False, b"1", parts[b"big.parquet"])}
    (fact,) = parquet.facts_of(b"", files, nothing)
    assert fact.key == "big.parquet/table"
    assert fact.value.startswith("3 rows (id int64")


@given(st.integers(0, len(FOOTER) - 9), st.integers(0, 255))
def test_damaged_parquet_footer_raises_nothing(at: int, byte: int) -> None:
    damaged = bytearray(FOOTER)
    damaged[at] = byte
    told(parquet, "x.parquet", PAGES + bytes(damaged))


@given(st.binary(max_size=300))
def test_malformed_table_files_raise_nothing(data: bytes) -> None:
    length = len(data).to_bytes(4, "little")
    told(parquet, "x.parquet", PAGES + data + length + b"PAR1")
    told(duckdb_file, "x.duckdb", data)
    told(csv_files, "x.csv", data)
    told(notebooks, "x.ipynb", data)


@pytest.mark.parametrize("length", [0, 1 << 30, (1 << 32) - 1])
def test_parquet_footer_with_wrong_length_is_not_read(length: int) -> None:
    assert told(parquet, "x.parquet", PAGES + FOOTER[:-8] + length.to_bytes(4, "little") + b"PAR1") == {}


def test_duckdb_format_and_blocks_are_listed() -> None:
    head = bytearray(3 * 4096)
    head[8:12] = b"DUCK"
    head[12:20] = (64).to_bytes(8, "little")
    for at, iteration, blocks in ((4096, 4, 11), (8192, 3, 9)):
        head[at + 8 : at + 16] = iteration.to_bytes(8, "little")
        head[at + 32 : at + 40] = blocks.to_bytes(8, "little")
    assert told(duckdb_file, "shop.duckdb", bytes(head)) == {
        "data/shop.duckdb/format": "64",
        "data/shop.duckdb/contents": "11 blocks",
    }


def make_duckdb(path: Path, *statements: str, checkpoint: bool = True) -> None:
    """Write a database by DuckDB's library in a process that is killed, so that its log stays."""
    script = (
        "import duckdb, os, sys\n"
        "connection = duckdb.connect(sys.argv[1])\n"
        "for statement in sys.argv[2:]: connection.execute(statement)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    words = (*statements, "CHECKPOINT") if checkpoint else statements
    subprocess.run([sys.executable, "-c", script, path, *words])


SHOP = (
    "CREATE TABLE users (id INTEGER, name VARCHAR, balance DECIMAL(10, 2))",
    "CREATE SCHEMA stock",
    'CREATE TABLE stock."a/b" AS SELECT range AS number FROM range(5000)',
    "CREATE VIEW rich AS SELECT * FROM users",
    "INSERT INTO users VALUES (1, 'ada', 2), (2, 'bob', 3)",
)


@pytest.mark.full
def test_duckdb_tables_are_listed_with_the_library(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    make_duckdb(tmp_path / "shop.duckdb", *SHOP)
    make_duckdb(tmp_path / "shop.duckdb", "DELETE FROM users WHERE id = 1", checkpoint=False)
    names = ("shop.duckdb", "shop.duckdb.wal")
    data = {name.encode(): (tmp_path / name).read_bytes() for name in names}
    expected = {
        "data/shop.duckdb/users": "1 rows (id INTEGER, name VARCHAR, balance DECIMAL(10,2))",
        "data/shop.duckdb/stock.a∕b": "5000 rows (number BIGINT)",
        "data/shop.duckdb/view rich": "",
    }

    def facts(files: dict[bytes, ProbedFile]) -> dict[str, str]:
        found = {fact.key: fact.value for fact in duckdb_file.facts_of(b"data", files, nothing)}
        assert found.pop("data/shop.duckdb/format").isdigit()
        return found

    assert facts({name: ProbedFile(one, len(one), False, b"1") for name, one in data.items()}) == expected
    parts = duckdb_file.parts_of({name: Large(one) for name, one in data.items()})
    assert (
        facts({name: ProbedFile(None, len(one), False, b"1", parts[name]) for name, one in data.items()})
        == expected
    )
    sealed = facts({name: ProbedFile(one, len(one), True, b"1") for name, one in data.items()})
    assert sealed == {"data/shop.duckdb/contents": "sealed:set"}
    # A damaged file, and one that is too large to be read, have the facts of their headers only.
    (name, one), log = next(iter(data.items())), data[b"shop.duckdb.wal"]
    damaged = one[:12288] + bytes(len(one) - 12288)
    blocks = facts(
        {
            name: ProbedFile(damaged, len(one), False, b"1"),
            name + b".wal": ProbedFile(log, len(log), False, b"1"),
        }
    )
    assert list(blocks) == ["data/shop.duckdb/contents"]
    assert blocks["data/shop.duckdb/contents"].endswith(" blocks")
    assert facts({name: ProbedFile(None, 1 << 40, False, b"1", ((0, one[:12288]),))}) == blocks


@pytest.mark.full
def test_duckdb_file_is_not_locked_and_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb")
    make_duckdb(tmp_path / "shop.duckdb", *SHOP)
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    tables = duckdb_tables.read_tables((tmp_path / "shop.duckdb").read_bytes(), None)
    assert tables is not None
    assert [table.name for table in tables] == ["users", "stock.a∕b", "view rich"]
    assert list((tmp_path / "copies").iterdir()) == []


@pytest.mark.full
def test_rows_of_a_duckdb_table_appear_in_the_summary(repo: Repo) -> None:
    pytest.importorskip("duckdb")
    make_duckdb(repo.path / "shop.duckdb", *SHOP)
    repo.run("envlog", "capture", "one", check=True)
    make_duckdb(repo.path / "shop.duckdb", "DELETE FROM users WHERE id = 2")
    repo.run("envlog", "capture", "two", check=True)
    assert "duckdb: shop.duckdb users 2 → 1 row " in repo.run("envlog", "-1", check=True).out
    assert "2 → 1 row" in repo.run("envdiff", "@~1", check=True).out


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"id,name\n1,a\n2,b\n", "2 rows (id, name)"),
        (b'id;note\n1;"two\nlines"\n2;"b"', "2 rows (id, note)"),
        (b"\xef\xbb\xbfid\tname\r\n1\ta\r\n", "1 rows (id, name)"),
        (b"1,2.5\n3,4\n", "2 rows (column_1, column_2)"),
        (b"id,name\n", "0 rows (id, name)"),
    ],
)
def test_lines_of_csv_are_counted_through_quotes(data: bytes, value: str) -> None:
    assert told(csv_files, "people.csv", data) == {"data/people.csv/table": value}


def test_large_csv_has_columns_without_a_row_count() -> None:
    head = b"id,name\n1,a\n"
    files = {b"big.csv": ProbedFile(None, 1 << 30, False, b"1", ((0, head),))}
    (fact,) = csv_files.facts_of(b"", files, nothing)
    assert fact.value == "(id, name)"


def test_tables_inside_packages_are_not_listed() -> None:
    for module in (parquet, csv_files, notebooks, duckdb_file):
        assert not module.wants(b".venv/lib/python3.11/site-packages/sklearn/data")  # type: ignore[attr-defined]
        assert module.wants(b"data/raw")  # type: ignore[attr-defined]


def notebook(outputs: int, source: str = "print(1)") -> bytes:
    cells = [
        {"cell_type": "markdown", "source": ["# title"]},
        {"cell_type": "code", "source": source, "outputs": [{"output_type": "error"}] * outputs},
    ]
    return json.dumps({"cells": cells, "nbformat": 4}).encode()


def test_notebook_cells_outputs_and_changed_source_are_listed() -> None:
    first = told(notebooks, "eda.ipynb", notebook(2))
    source = first.pop("data/eda.ipynb/source")
    assert first == {
        "data/eda.ipynb/code": "1 cells",
        "data/eda.ipynb/text": "1 cells",
        "data/eda.ipynb/results": "2 outputs",
        "data/eda.ipynb/errors": "2 outputs",
    }
    assert told(notebooks, "eda.ipynb", notebook(0))["data/eda.ipynb/source"] == source
    assert told(notebooks, "eda.ipynb", notebook(2, "print(2)"))["data/eda.ipynb/source"] != source


def test_summary_names_the_file_of_a_table() -> None:
    changes = [
        FactChange(
            "parquet", "data/events.parquet/table", "1000 rows (id int64)", "200 rows (id int64, x double)"
        ),
        FactChange("csv", "new.csv/table", None, "5 rows (id, name)"),
        FactChange("notebook", "eda.ipynb/results", "3 outputs", "0 outputs"),
    ]
    line = summarize(changes, ChangeCount(1, 2), KINDS)
    assert line == (
        "parquet: events.parquet 1,000 → 200 rows, + column x double · csv: +new.csv (2 columns, 5 rows)"
        " · notebook: eda.ipynb results 3 → 0 outputs · 3 files"
    )
    assert fact_words(changes[1]) == "table (2 columns, 5 rows)"
    assert fact_words(FactChange("notebook", "a/source", "#1", "#2")) == "source"
