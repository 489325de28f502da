"""SQLite databases under programs that start, end and crash during captures, checked by SQLite."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.model import SQLITE_HEADER, CaptureResult
from git_envhist.worktree import databases, read_file, store_content
from tests.alive.sqlite import crash_in_a_transaction, crash_with_a_log, rows_of
from tests.end_to_end.captures import assert_holds
from tests.support.oracle import listing
from tests.support.repository import Repo
from tests.support.snapshot import contents

LARGE = 2 << 20


def captured(repo: Repo) -> CaptureResult:
    return EnvHistory.open(str(repo.path), workers="fork", one_command=True).capture("x")


def given_back(repo: Repo, taken: CaptureResult, target: Path, directory: bytes = b"data/") -> Path:
    """Return the databases of a directory as read by plain git."""
    assert taken.snapshot is not None
    target.mkdir()
    for path, data in contents(repo, taken.snapshot.commit).items():
        if path.startswith(directory):
            (target / os.fsdecode(path[len(directory) :])).write_bytes(data)
    return target


@pytest.fixture
def data(repo: Repo) -> Path:
    place = repo.path / "data"
    place.mkdir()
    return place


def make_database(path: Path, mode: str = "wal", size: int = 0) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"pragma journal_mode={mode}")
    connection.execute("create table t (n integer primary key, padding blob)")
    connection.execute("insert into t values (1, zeroblob(?))", (size,))
    connection.close()


@contextmanager
def program(code: str, *words: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that reports its progress and continues when the context ends."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        yield child
        child.communicate(b"\n")


def test_capture_after_a_crash_changes_no_file_of_the_user(repo: Repo, data: Path, tmp_path: Path) -> None:
    logged = crash_with_a_log(data / "logged.any", 50)
    kept = crash_in_a_transaction(data / "hot.sqlite", 50)
    make_database(data / "at rest.d", "wal")
    (data / "empty.db").write_bytes(b"")
    (data / "empty.db-wal").write_bytes(b"")
    (data / "letter.db").write_bytes(b"no database at all".ljust(1024))
    (data / "letter.db-journal").write_bytes(b"nor is this a journal")
    (data / "SQLite format 3").write_bytes(SQLITE_HEADER)
    assert {"logged.any-wal", "logged.any-shm", "hot.sqlite-journal"} <= {
        path.name for path in data.iterdir()
    }
    before = listing(data, top=True)

    taken = captured(repo)

    assert listing(data, top=True) == before
    assert taken.missing == ()
    copy = given_back(repo, taken, tmp_path / "copy")
    assert {path.name for path in copy.iterdir()} == {os.fsdecode(path) for path in before if path} - {
        "logged.any-shm"
    }
    for path in copy.iterdir():
        assert path.read_bytes() == (data / path.name).read_bytes()
    assert rows_of(copy / "logged.any") >= logged
    assert rows_of(copy / "hot.sqlite") == kept


def test_programs_read_and_write_while_the_log_is_locked(data: Path) -> None:
    make_database(data / "app.db")
    connection = sqlite3.connect(data / "app.db", isolation_level=None, timeout=5)
    # No reader has yet left a mark in a new log that another reader could share.
    assert connection.execute("select count(*) from t").fetchone() == (1,)
    hold = """
        import os, sys
        from git_envhist.worktree.databases import WaitBudget, locked_database
        os.chdir(sys.argv[1])
        with locked_database(os.open("app.db", os.O_RDONLY), b"app.db", WaitBudget()):
            print("held", flush=True)
            input()
    """
    with program(hold, data):
        for number in range(2, 6):
            connection.execute("insert into t values (?, null)", (number,))
            assert connection.execute("select max(n) from t").fetchone() == (number,)
    connection.close()


OPENER = """
    import sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("pragma wal_autocheckpoint=1")
    connection.execute("insert into t values (2, null)")
    print("open", flush=True)
    input()
"""


@pytest.mark.parametrize("size", [0, LARGE], ids=["small", "large"])
def test_database_opened_during_the_read_is_captured_with_its_log_or_reported(
    repo: Repo, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    repo.git("config", "envhist.workers", "2")
    make_database(data / "app.db", size=size)
    mark = tmp_path / "opened"
    openers: list[subprocess.Popen[bytes]] = []
    real = store_content.FileSaver.store_open_file

    def store_open_file(self: store_content.FileSaver, visit: object, leaf: object, descriptor: int) -> None:
        if not mark.exists():
            mark.touch()
            words = [sys.executable, "-c", textwrap.dedent(OPENER), str(data / "app.db")]
            openers.append(subprocess.Popen(words, stdin=stdin, stdout=subprocess.PIPE))
            assert openers[-1].stdout is not None
            openers[-1].stdout.readline()
        real(self, visit, leaf, descriptor)  # type: ignore[arg-type]

    stdin, ending = os.pipe()
    with monkeypatch.context() as patch:
        patch.setattr(store_content.FileSaver, "store_open_file", store_open_file)
        taken = captured(repo)
    assert mark.exists()
    if size:
        # The database was captured without its log.
        assert [(one.path, one.why.value) for one in taken.missing] == [(b"data/app.db", "unstable")]
        taken = captured(repo)
    assert taken.missing == ()
    copy = given_back(repo, taken, tmp_path / "copy")
    assert sorted(path.name for path in copy.iterdir()) == ["app.db", "app.db-wal"]
    assert rows_of(copy / "app.db") == {1, 2}
    os.close(ending)
    os.close(stdin)


def test_file_that_became_a_database_after_the_scan_is_locked(
    repo: Repo, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = data / "app.db"
    path.write_bytes(b"")
    monkeypatch.setattr(databases, "DATABASE_LOCK_TIMEOUT", 0.1)
    exclusive = """
        import sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("create table t (n integer primary key, padding blob)")
        connection.execute("pragma cache_size=2")
        connection.execute("begin exclusive")
        connection.executemany("insert into t values (?, zeroblob(1000))", [(n,) for n in range(100)])
        print("half way", flush=True)
        input()
    """
    real = read_file.open_with_stat
    writers = []

    def late(name: bytes) -> tuple[int, os.stat_result]:
        if name == b"app.db" and not os.path.getsize(path):
            writers.append(program(exclusive, path))
            writers[-1].__enter__()
        return real(name)

    with monkeypatch.context() as patch:
        patch.setattr(store_content, "open_with_stat", late)
        taken = captured(repo)
    assert [(one.path, one.why.value) for one in taken.missing] == [(b"data/app.db", "unstable")]


def test_locked_database_is_reported_each_time_and_read_after_release(
    repo: Repo, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "DATABASE_LOCK_TIMEOUT", 0.1)
    kept = """
        import sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("pragma locking_mode=exclusive")
        connection.execute("pragma journal_mode=wal")
        connection.execute("create table t (n integer primary key, padding blob)")
        connection.execute("insert into t values (1, null)")
        print("kept", flush=True)
        input()
    """
    with program(kept, data / "app.db"):
        for _ in range(3):
            taken = captured(repo)
            assert [(one.path, one.why.value) for one in taken.missing] == [(b"data/app.db", "unstable")]
    taken = captured(repo)
    assert taken.missing == ()
    assert rows_of(given_back(repo, taken, tmp_path / "copy") / "app.db") == {1}


def test_many_locked_databases_cost_the_timeout_of_two(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "DATABASE_LOCK_TIMEOUT", 0.2)
    monkeypatch.chdir(data)
    names = [f"app{number}.db" for number in range(9)]
    for name in names:
        make_database(data / name, "delete")
    kept = """
        import sqlite3, sys
        held = [sqlite3.connect(name, isolation_level=None) for name in sys.argv[1:]]
        for connection in held:
            connection.execute("begin exclusive")
        print("kept", flush=True)
        input()
    """
    wait_budget = databases.WaitBudget()
    granted = []
    with program(kept, *names):
        for name in names:
            now = time.monotonic()
            with wait_budget.waiting() as deadline:
                granted.append(round(deadline - now, 1))
            descriptor = os.open(name, os.O_RDONLY)
            with (
                pytest.raises(databases.DatabaseBusy, match="keeps it locked"),
                databases.locked_database(descriptor, os.fsencode(name), wait_budget),
            ):
                pass
            os.close(descriptor)
    # The last ones were tried without waiting.
    assert granted[0] == 0.2
    assert max(granted[3:]) < 0.2


def test_encrypted_database_is_recognised_by_its_log(
    repo: Repo, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_database(data / "app.db")
    crash_with_a_log(data / "other.db", 5)
    os.replace(data / "other.db-wal", data / "app.db-wal")
    # An encrypted database starts with a salt.
    (data / "app.db").write_bytes(bytes(range(1, 17)) + (data / "app.db").read_bytes()[16:])
    for path in data.glob("other*"):
        path.unlink()
    monkeypatch.setattr(databases, "DATABASE_LOCK_TIMEOUT", 0.1)
    lock = """
        import fcntl, sys
        file = open(sys.argv[1], "r+b")
        fcntl.lockf(file, fcntl.LOCK_EX, 512, 0x40000000)
        print("locked", flush=True)
        input()
    """
    with program(lock, data / "app.db"):
        assert [(one.path, one.why.value) for one in captured(repo).missing] == [(b"data/app.db", "unstable")]
    taken = captured(repo)
    assert taken.missing == ()
    assert taken.snapshot is not None
    assert_holds(repo, taken.snapshot.commit)


def test_replaced_database_is_captured_as_one_or_the_other(
    repo: Repo, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_database(data / "app.db", "delete")
    make_database(tmp_path / "next.db", "delete", size=5000)
    real = store_content.FileSaver.store_open_file

    def store_open_file(self: store_content.FileSaver, visit: object, leaf: object, descriptor: int) -> None:
        real(self, visit, leaf, descriptor)  # type: ignore[arg-type]
        if (tmp_path / "next.db").exists():
            os.replace(tmp_path / "next.db", data / "app.db")

    with monkeypatch.context() as patch:
        patch.setattr(store_content.FileSaver, "store_open_file", store_open_file)
        taken = captured(repo)
    assert [(one.path, one.why.value) for one in taken.missing] == [(b"data/app.db", "unstable")]
    assert captured(repo).missing == ()
