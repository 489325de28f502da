"""Databases that are written during a capture, extracted by plain git and checked with SQLite."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.model import Snapshot
from tests.support.repository import Repo
from tests.worktree.test_databases import newest_row, writing


def give_back(repo: Repo, history: EnvHistory, snapshot: Snapshot, target: Path) -> Path:
    """Extract the database and its sidecar files from a snapshot."""
    target.mkdir()
    listed = repo.git("ls-tree", "--name-only", f"{snapshot.id}:data").split()
    for name in listed:
        (target / name).write_bytes(history.read_file(snapshot, b"data/" + os.fsencode(name)))
    return target / "app.db"


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_snapshot_has_every_row_committed_before_the_capture(repo: Repo, tmp_path: Path, mode: str) -> None:
    database = repo.path / "data" / "app.db"
    database.parent.mkdir()
    history = EnvHistory.open(str(repo.path), workers="fork", one_command=True)
    with writing(database, mode) as writer:
        committed = 30
        for number in range(6):
            for line in writer.lines():
                committed = int(line)
            captured = history.capture(f"{mode} {number}")
            assert captured.snapshot is not None
            assert captured.missing == ()
            copy = give_back(repo, history, captured.snapshot, tmp_path / f"copy{number}")
            assert not copy.with_name("app.db-shm").exists()
            assert newest_row(copy) >= committed
            shutil.rmtree(copy.parent)


def test_rows_in_the_log_of_a_killed_program_are_captured(repo: Repo, tmp_path: Path) -> None:
    database = repo.path / "data" / "app.db"
    database.parent.mkdir()
    crash = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('pragma journal_mode=wal')\n"
        "connection.execute('create table t (n integer primary key, twin integer)')\n"
        "connection.executemany('insert into t values (?, ?)', [(n, n) for n in range(1, 201)])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", crash, database])
    before = {path.name: path.read_bytes() for path in database.parent.iterdir()}
    assert {"app.db", "app.db-wal"} <= set(before)
    history = EnvHistory.open(str(repo.path), workers="fork", one_command=True)

    captured = history.capture("after the crash")

    assert captured.snapshot is not None
    assert {path.name: path.read_bytes() for path in database.parent.iterdir()} == before
    assert newest_row(give_back(repo, history, captured.snapshot, tmp_path / "copy")) == 200


def test_unchanged_database_is_not_read_again_when_its_log_grows(repo: Repo, tmp_path: Path) -> None:
    repo.git("config", "envhist.bigFile", "64k")
    database = repo.path / "data" / "app.db"
    database.parent.mkdir()
    keeper = sqlite3.connect(database, isolation_level=None)
    keeper.execute("pragma journal_mode=wal")
    keeper.execute("pragma wal_autocheckpoint=0")
    keeper.execute("create table t (n integer primary key, twin integer, padding blob)")
    keeper.executemany("insert into t values (?, ?, randomblob(5000))", [(n, n) for n in range(1, 101)])
    keeper.execute("pragma wal_checkpoint(truncate)")
    os.utime(database, ns=(1_700_000_000_000_000_000,) * 2)
    history = EnvHistory.open(str(repo.path), workers="fork", one_command=True)
    history.capture("at first")
    history.capture("settled")
    keeper.execute("insert into t values (1000, 1000, null)")

    captured = history.capture("a row more")

    assert captured.snapshot is not None
    assert captured.new_bytes < 100_000
    assert newest_row(give_back(repo, history, captured.snapshot, tmp_path / "copy")) == 1000
    keeper.close()
