"""SQLite databases in use and after crashes, checked by SQLite."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.talk import Talk, end

# Each transaction writes its number to two tables and a counter: it is complete if all three agree.
WRITER = """
    import sqlite3, sys, time
    connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=120)
    while True:
        try:
            connection.execute("pragma journal_mode=" + sys.argv[2])
            break
        except sqlite3.OperationalError:  # of this one SQLite says at once that others are at work
            time.sleep(0.01)
    connection.execute("pragma synchronous=" + sys.argv[3])
    connection.execute("pragma wal_autocheckpoint=20")
    connection.execute("pragma cache_size=10")
    connection.execute("create table if not exists t (n integer primary key, padding blob)")
    connection.execute("create table if not exists twin (n integer primary key, padding blob)")
    connection.execute("create table if not exists newest (one integer primary key, n integer)")
    while True:
        connection.execute("begin immediate")
        number = connection.execute("select coalesce(max(n), 0) + 1 from t").fetchone()[0]
        connection.execute("insert into t values (?, randomblob(900))", (number,))
        connection.execute("update t set padding = randomblob(700) where n % 61 = ?", (number % 61,))
        connection.execute("insert into twin values (?, randomblob(300))", (number,))
        connection.execute("delete from t where n <= ?", (number - 400,))
        connection.execute("delete from twin where n <= ?", (number - 400,))
        connection.execute("replace into newest values (1, ?)", (number,))
        connection.execute("commit")
        print(number, flush=True)
        if number % 97 == 0:
            connection.execute("pragma wal_checkpoint(truncate)")
"""
KEPT = 400

LOG_CRASH = """
    import sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma wal_autocheckpoint=" + sys.argv[2])
    connection.execute("create table t (n integer primary key, padding blob)")
    number = 0
    while True:
        number += 1
        connection.execute("insert into t values (?, randomblob(500))", (number,))
        print(number, flush=True)
"""

# Pages that do not fit into its cache are written into the database in the midst of the transaction.
JOURNAL_CRASH = """
    import sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("create table t (n integer primary key, padding blob)")
    connection.execute("begin")
    connection.executemany("insert into t values (?, randomblob(500))", [(n,) for n in range(1, int(sys.argv[2]) + 1)])
    connection.execute("commit")
    connection.execute("pragma cache_size=2")
    connection.execute("pragma cache_spill=1")
    connection.execute("begin immediate")
    number = 1000
    while True:
        number += 1
        connection.execute("insert into t values (?, randomblob(500))", (number,))
        connection.execute("delete from t where n = ?", (number - 1000,))
        print(number, flush=True)
"""


@contextmanager
def writing(database: Path, mode: str, writers: int = 1, synchronous: str = "off") -> Iterator[Progress]:
    """Run programs that write one transaction after another until the context ends."""
    children = [_start(WRITER, database, mode, synchronous) for _ in range(writers)]
    try:
        progress = Progress(children)
        progress.wait_for(30)
        yield progress
    finally:
        for child in children:
            end(child)


class Progress:
    """Commits reported by writers."""

    def __init__(self, children: list[subprocess.Popen[bytes]]) -> None:
        self._talks = [Talk(child) for child in children]
        self._newest = 0

    def committed(self) -> int:
        """Return the newest number known to be committed."""
        for talk in self._talks:
            self._newest = max([self._newest, *map(int, talk.lines())])
        return self._newest

    def wait_for(self, number: int) -> None:
        while self.committed() < number:
            time.sleep(0.005)


def _start(code: str, *words: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, words)], stdout=subprocess.PIPE
    )


def whole_rows(copy: Path) -> set[int]:
    """Return the rows of a copy after recovery, checking that all transactions are complete."""
    connection = sqlite3.connect(copy)
    try:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        rows = {row for (row,) in connection.execute("select n from t")}
        assert rows == {row for (row,) in connection.execute("select n from twin")}
        newest = connection.execute("select n from newest").fetchone()[0]
        assert rows == set(range(max(1, newest - KEPT + 1), newest + 1))
        return rows
    finally:
        connection.close()


def rows_of(copy: Path) -> set[int]:
    """Return the rows of a copy after recovery."""
    connection = sqlite3.connect(copy)
    try:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        return {row for (row,) in connection.execute("select n from t")}
    finally:
        connection.close()


def crash_with_a_log(database: Path, least: int, checkpoint: int = 0) -> set[int]:
    """Kill a program while it writes; return the rows it reported as committed, or more."""
    last = _kill_after(_start(LOG_CRASH, database, str(checkpoint)), least)
    return set(range(1, last + 1))


def crash_in_a_transaction(database: Path, rows: int, least: int = 1100) -> set[int]:
    """Kill a program in the middle of a transaction that has reached the database; return the rows committed before
    it."""
    _kill_after(_start(JOURNAL_CRASH, database, str(rows)), least)
    return set(range(1, rows + 1))


def _kill_after(child: subprocess.Popen[bytes], number: int) -> int:
    last = 0
    with child:
        assert child.stdout is not None
        while last < number:
            last = int(child.stdout.readline())
        child.kill()
        # Rows committed after the last printed line and before the kill are in the database, too.
        for line in child.stdout:
            last = int(line) if line.endswith(b"\n") else last
    return last
