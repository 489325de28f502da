"""Capture of SQLite databases under continuous writers, judged by SQLite."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from git_envhist.model.entries import database_of_sidecar
from git_envhist.worktree.databases import DatabaseBusy, WaitBudget, is_database, locked_database
from tests.support.talk import Talk, end

WRITER = """
    import sqlite3, sys, time
    connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
    connection.execute("pragma journal_mode=" + sys.argv[2])
    connection.execute("pragma wal_autocheckpoint=20")
    connection.execute("create table if not exists t (n integer primary key, twin integer, padding blob)")
    number = connection.execute("select coalesce(max(n), 0) from t").fetchone()[0]
    while True:
        number += 1
        connection.execute("begin immediate")
        connection.execute("insert into t values (?, ?, randomblob(900))", (number, number))
        connection.execute("update t set padding = randomblob(700) where n % 7 = ?", (number % 7,))
        connection.execute("delete from t where n < ?", (number - 300,))
        connection.execute("commit")
        print(number, flush=True)
        # A commit takes as long on a disk; in memory, the log would grow much faster than it is read.
        time.sleep(0.002)
"""


@contextmanager
def writing(database: Path, mode: str) -> Iterator[Talk]:
    """Run a program that commits rows continuously and prints the number of each committed row."""
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), database, mode], stdout=subprocess.PIPE
    )
    try:
        assert writer.stdout is not None
        for _ in range(30):
            writer.stdout.readline()
        yield Talk(writer)
    finally:
        end(writer)


# Locks belong to a process, so the copy is made in a separate process, as a worker does it.
COPIER = """
    import os, sys
    from git_envhist.worktree.databases import WaitBudget, locked_database
    source, target = map(os.fsencode, sys.argv[1:3])
    os.chdir(os.path.dirname(source))
    name = os.path.basename(source)
    descriptor = os.open(name, os.O_RDONLY)
    with locked_database(descriptor, name, WaitBudget()) as hold:
        for suffix in (b"", b"-wal", *([b"-journal"] if hold.is_hot else [])):
            try:
                data = open(name + suffix, "rb").read() if suffix else os.pread(descriptor, 1 << 30, 0)
            except FileNotFoundError:
                continue
            open(target + suffix, "wb").write(data)
"""


def copy_held(database: Path, target: Path) -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(COPIER), database, target], check=True)


def newest_row(copy: Path) -> int:
    with closing(sqlite3.connect(copy)) as connection, connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        odd = connection.execute("select count(*) from t where n <> twin").fetchone()[0]
        assert odd == 0
        return int(connection.execute("select max(n) from t").fetchone()[0])


@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist"])
def test_copy_under_a_writer_contains_every_committed_row(tmp_path: Path, mode: str) -> None:
    database = tmp_path / "live" / "app.db"
    database.parent.mkdir()
    with writing(database, mode) as writer:
        committed = 30
        for number in range(8):
            for line in writer.lines():
                committed = int(line)
            target = tmp_path / f"copy{number}" / "app.db"
            target.parent.mkdir()
            copy_held(database, target)
            assert newest_row(target) >= committed
            shutil.rmtree(target.parent)


def test_hot_journal_is_locked_with_its_database(tmp_path: Path) -> None:
    database = tmp_path / "app.db"
    crash = """
        import os, sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("create table t (n integer primary key, twin integer)")
        connection.execute("begin")
        connection.executemany("insert into t values (?, ?)", [(n, n) for n in range(1, 401)])
        connection.execute("commit")
        connection.execute("pragma cache_size=2")
        connection.execute("pragma cache_spill=1")
        connection.execute("begin")
        connection.execute("update t set twin = -1")
        connection.executemany("insert into t values (?, -1)", [(n,) for n in range(1000, 9000)])
        os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(crash), database])
    assert database.with_name("app.db-journal").exists()
    target = tmp_path / "copy" / "app.db"
    target.parent.mkdir()

    copy_held(database, target)

    assert newest_row(target) == 400


def test_lock_changes_no_byte_and_creates_no_file(tmp_path: Path) -> None:
    database = tmp_path / "app.db"
    keeper = sqlite3.connect(database, isolation_level=None)
    keeper.execute("pragma journal_mode=wal")
    keeper.execute("create table t (n)")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    copies = tmp_path.parent / (tmp_path.name + "-copies")
    copies.mkdir()

    copy_held(database, copies / "app.db")

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    keeper.close()


def test_database_locked_by_another_program_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("git_envhist.worktree.databases.DATABASE_LOCK_TIMEOUT", 0.2)
    monkeypatch.chdir(tmp_path)
    keep = """
        import sqlite3, sys, time
        connection = sqlite3.connect("app.db", isolation_level=None)
        connection.execute("create table t (n)")
        connection.execute("begin exclusive")
        print("held", flush=True)
        sys.stdin.read()
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(keep)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    assert owner.stdin is not None
    owner.stdout.readline()
    descriptor = os.open("app.db", os.O_RDONLY)
    started = time.monotonic()
    with (
        pytest.raises(DatabaseBusy, match="keeps it locked"),
        locked_database(descriptor, b"app.db", WaitBudget()),
    ):
        pass
    assert time.monotonic() - started >= 0.2
    os.close(descriptor)
    owner.communicate(b"")


def test_database_is_recognised_by_its_first_bytes(tmp_path: Path) -> None:
    real, fake, empty = tmp_path / "odd.ext", tmp_path / "fake.db", tmp_path / "empty.db"
    with closing(sqlite3.connect(real)) as connection, connection:
        connection.execute("create table t (n)")
    fake.write_bytes(b"SQLite" + bytes(1018))
    empty.write_bytes(b"")
    told = []
    for path in (real, fake, empty):
        descriptor = os.open(path, os.O_RDONLY)
        told.append(is_database(descriptor, path.stat().st_size))
        os.close(descriptor)
    assert told == [True, False, False]
    assert database_of_sidecar(b"app.db-wal") == b"app.db"
    assert database_of_sidecar(b"-wal") is None
    assert database_of_sidecar(b"app.db") is None
