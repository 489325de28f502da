"""Databases that changed on both sides are merged by rows; what is not certain is a conflict."""

from __future__ import annotations

import signal
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from git_envhist.probes.sqlite_file import JOURNAL_MAGIC
from git_envhist.restore.merge_rows import (
    CANNOT_MERGE,
    DatabaseVersion,
    MergedRows,
    TimeLimit,
    merge_rows,
    open_copy,
)
from git_envhist.restore.three_way import Prefer

SCHEMA = """
create table person (id integer primary key, name text unique, age);
create table tag (person integer references person(id), word text, primary key (person, word)) without rowid;
create table word (text text primary key, score real);
create table log (line text);
create table counted (n integer);
create trigger count_people after insert on person begin update counted set n = n + 1; end;
create trigger forget after delete on person begin delete from tag where person = old.id; end;
insert into counted values (0);
insert into person values (1, 'ann', 1), (2, 'bob', 2), (3, 'cat', 3);
insert into tag values (1, 'x'), (2, 'y');
insert into word values ('a', 1), ('b', 2);
insert into log values ('start');
"""
BOTH = "and changed on both sides"
ROW = "row 1 of table person changed on both sides"
WORD = "1 row of table word changed on both sides"
NEW_WORD = "insert into word values ('c', 3);"


def build(path: Path, *scripts: str, mode: str = "delete") -> DatabaseVersion:
    """Return a database made by scripts; with its log if the mode is `wal`."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"pragma journal_mode={mode}")
        made.executescript("".join(scripts))
        made.commit()
        log = path.with_name(path.name + "-wal")
        return DatabaseVersion(path.read_bytes(), log.read_bytes() if log.exists() else None)


def dump(tmp_path: Path, database: bytes) -> list[str]:
    path = tmp_path / "dumped"
    path.write_bytes(database)
    with closing(sqlite3.connect(path)) as opened:
        assert opened.execute("pragma integrity_check").fetchone() == ("ok",)
        return sorted(opened.iterdump())


def merged(
    tmp_path: Path,
    ours: str,
    theirs: str,
    *,
    prefer: Prefer = Prefer.NEITHER,
    mode: str = "delete",
) -> MergedRows | None:
    """Merge two versions that two scripts made from one."""
    place = tmp_path / "database"
    versions = [build(place, SCHEMA, script, mode=mode) for script in ("", ours, theirs)]
    return merge_rows(versions[0], versions[1], versions[2], prefer)


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("update person set age = 10 where id = 1;", "update person set age = 30 where id = 3;"),
        ("update word set score = 1.5 where text = 'a';", "delete from word where text = 'b';"),
        ("insert into tag values (3, 'z');", "update tag set word = 'w' where person = 1;"),
        ("insert into log values ('ours');", "delete from person where name = 'cat';"),
        ("update person set age = 10 where id = 1;", "insert into log values ('theirs'), (x'00ff');"),
        ("pragma user_version = 4;", "pragma application_id = 5;"),
        ("update person set name = 'dan' where id = 3;", "update person set name = id || 'x' where id < 3;"),
        ("alter table person add column mail text;", "update person set age = 9 where id = 1;"),
        ("create table more (id integer primary key); insert into more values (1);", "delete from tag;"),
        ("create index by_age on person (age);", "insert into word values ('nul', null), ('x', 3);"),
    ],
)
def test_rows_of_both_sides_are_kept(tmp_path: Path, ours: str, theirs: str, mode: str) -> None:
    found = merged(tmp_path, ours, theirs, mode=mode)
    assert found is not None
    assert found.conflicts == ()
    both = build(tmp_path / "both", SCHEMA, ours, theirs).database
    assert dump(tmp_path, found.database) == dump(tmp_path, both)
    other = merged(tmp_path, theirs, ours, mode=mode)
    assert other is not None
    assert dump(tmp_path, other.database) == dump(tmp_path, both)


def test_unique_values_that_move_between_rows_are_kept(tmp_path: Path) -> None:
    swap = (
        "update person set name = '-' where id = 1; update person set name = 'ann' where id = 2;"
        "update person set name = 'bob' where id = 1;"
    )
    found = merged(tmp_path, "update person set age = 7 where id = 3;", swap)
    assert found is not None
    assert found.conflicts == ()
    path = tmp_path / "result"
    path.write_bytes(found.database)
    with closing(sqlite3.connect(path)) as opened:
        assert opened.execute("select * from person").fetchall() == [
            (1, "bob", 1),
            (2, "ann", 2),
            (3, "cat", 7),
        ]


def test_triggers_are_not_fired_and_stay(tmp_path: Path) -> None:
    ours = "update word set score = 9 where text = 'a';"
    found = merged(tmp_path, ours, "insert into person values (4, 'dan', 4);")
    assert found is not None
    path = tmp_path / "result"
    path.write_bytes(found.database)
    with closing(sqlite3.connect(path)) as opened:
        counted = opened.execute("select n from counted").fetchone()
        opened.execute("insert into person values (5, 'eve', 5)")
        assert counted == (4,)
        assert opened.execute("select n from counted").fetchone() == (5,)


@pytest.mark.parametrize(
    ("ours", "theirs", "conflict"),
    [
        ("update person set age = 10 where id = 1;", "update person set age = 11 where id = 1;", ROW),
        ("delete from person where id = 1;", "update person set age = 11 where id = 1;", ROW),
        ("update word set score = 5 where text = 'a';", "update word set score = 6 where text = 'a';", WORD),
        (
            "insert into log values ('a');",
            "insert into log values ('b');",
            f"table log has no primary key, {BOTH}",
        ),
        ("create table new (id);", "alter table word add column n;", "its schema changed on both sides"),
        (
            "drop table word;",
            NEW_WORD,
            "table word was removed on one side, and its rows changed on the other",
        ),
        (
            "alter table word drop column score;",
            NEW_WORD,
            "the columns of table word changed on one side, and its rows on the other",
        ),
        (
            "insert into tag values (3, 'z');",
            "delete from person where id = 3;",
            "rows of tag would refer to rows that the other side removed",
        ),
        ("pragma user_version = 4;", "pragma user_version = 5;", "its user_version changed on both sides"),
        (
            "create virtual table docs using fts5(body);",
            "delete from tag;",
            "a database with virtual tables changed on both sides",
        ),
        ("alter table word add column n; update word set n = 5;", "delete from word where text = 'a';", WORD),
    ],
)
def test_uncertain_merge_is_a_named_conflict(tmp_path: Path, ours: str, theirs: str, conflict: str) -> None:
    found = merged(tmp_path, ours, theirs)
    assert found is not None
    assert found.conflicts == (conflict,)


@pytest.mark.parametrize(("prefer", "age"), [(Prefer.OURS, 10), (Prefer.THEIRS, 11)])
def test_rows_in_conflict_take_the_preferred_side(tmp_path: Path, prefer: Prefer, age: int) -> None:
    theirs = "update person set age = 11 where id < 3;"
    found = merged(tmp_path, "update person set age = 10 where id = 1;", theirs, prefer=prefer)
    assert found is not None
    assert found.conflicts == ()
    path = tmp_path / "result"
    path.write_bytes(found.database)
    with closing(sqlite3.connect(path)) as opened:
        assert opened.execute("select age from person order by id").fetchall() == [(age,), (11,), (3,)]


def test_damaged_or_hostile_database_is_not_merged(tmp_path: Path) -> None:
    base = build(tmp_path / "database", SCHEMA)
    ours = build(tmp_path / "database", SCHEMA, "update person set age = 10 where id = 1;")
    cut = DatabaseVersion(base.database[: len(base.database) // 2])
    found = merge_rows(base, ours, cut, Prefer.NEITHER)
    assert found is None or found.conflicts
    with closing(sqlite3.connect(tmp_path / "database")) as opened:
        opened.execute("pragma writable_schema=on")
        target = tmp_path / "written"
        opened.execute(
            "update sqlite_master set sql = ? where name = 'forget'", (f"attach '{target}' as more",)
        )
        opened.commit()
    hostile = DatabaseVersion((tmp_path / "database").read_bytes())
    for versions in ((base, ours, hostile), (base, hostile, ours), (hostile, ours, base)):
        found = merge_rows(*versions, Prefer.NEITHER)
        assert found is None or found.conflicts
    assert not target.exists()


def test_rows_keep_their_number_when_they_are_written_again(tmp_path: Path) -> None:
    theirs = "update word set score = 7 where text = 'a';"
    found = merged(tmp_path, "insert into word values ('c', 3);", theirs)
    assert found is not None
    path = tmp_path / "result"
    path.write_bytes(found.database)
    with closing(sqlite3.connect(path)) as opened:
        numbers = opened.execute("select rowid, text from word order by text").fetchall()
    assert numbers == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("statement", ["attach '{}' as more", "select load_extension('{}')"])
def test_opened_copy_reaches_no_other_file(tmp_path: Path, statement: str) -> None:
    build(tmp_path / "database", SCHEMA)
    with closing(open_copy(str(tmp_path / "database"), TimeLimit())) as opened:
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            opened.execute(statement.format(tmp_path / "other"))
        assert opened.execute("pragma trusted_schema").fetchone() == (0,)
    assert not (tmp_path / "other").exists()


def journal_of(named: Path) -> bytes:
    """Return a journal that SQLite takes as part of a transaction with another journal."""
    name = str(named).encode()
    head = (JOURNAL_MAGIC + struct.pack(">IIIII", 0, 1, 2, 512, 4096)).ljust(512, b"\0")
    return head + struct.pack(">I", 262145) + name + struct.pack(">II", len(name), sum(name)) + JOURNAL_MAGIC


@pytest.mark.parametrize("prefer", [Prefer.NEITHER, Prefer.THEIRS])
@pytest.mark.parametrize("side", [0, 1, 2])
def test_journal_of_a_version_is_never_applied(tmp_path: Path, side: int, prefer: Prefer) -> None:
    named = tmp_path / "named"
    named.write_text("kept")
    scripts = ("", "update person set age = 10 where id = 1;", "update person set age = 30 where id = 3;")
    versions = [build(tmp_path / "database", SCHEMA, script) for script in scripts]
    versions[side] = versions[side]._replace(journal=journal_of(named))
    found = merge_rows(versions[0], versions[1], versions[2], prefer)
    assert named.read_text() == "kept"
    assert found == MergedRows(b"", ("it has a journal of a transaction that did not finish",))


@pytest.mark.parametrize(
    ("schema", "ours", "theirs", "rows"),
    [
        (
            "create table t (name text collate nocase primary key, mail text); insert into t values ('ann', 'a');",
            "insert into t values ('bob', 'ours');",
            "insert into t values ('BOB', 'theirs');",
            None,
        ),
        (
            "create table t (name text collate nocase primary key, mail text); insert into t values ('ann', 'a');",
            "insert into t values ('bob', 'ours');",
            "update t set name = 'ANN';",
            [("ANN", "a"), ("bob", "ours")],
        ),
        (
            "create table t (id integer primary key, mail text unique on conflict replace);",
            "insert into t values (1, 'same');",
            "insert into t values (2, 'same');",
            None,
        ),
    ],
)
def test_row_with_an_equal_unique_value_is_not_replaced(
    tmp_path: Path, schema: str, ours: str, theirs: str, rows: list[object] | None
) -> None:
    versions = [build(tmp_path / "database", schema, script) for script in ("", ours, theirs)]
    found = merge_rows(versions[0], versions[1], versions[2], Prefer.NEITHER)
    if rows is None:
        assert found == MergedRows(b"", (CANNOT_MERGE,))
        return
    assert found is not None
    (tmp_path / "result").write_bytes(found.database)
    with closing(sqlite3.connect(tmp_path / "result")) as opened:
        assert opened.execute("select * from t order by name").fetchall() == rows


def test_exception_of_a_signal_is_raised_while_sqlite_runs(tmp_path: Path) -> None:
    build(tmp_path / "database", SCHEMA)
    watch = TimeLimit()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with closing(open_copy(str(tmp_path / "database"), watch)) as opened:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(sqlite3.OperationalError, match="interrupted"):
                opened.execute(
                    "with recursive n (i) as (values (1) union all select i + 1 from n) select count(*) from n"
                ).fetchone()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert isinstance(watch.raised, KeyboardInterrupt)


@pytest.mark.parametrize(
    "schema",
    [
        "create table t (id integer primary key desc, w); insert into t values (1, 'a'), ('x', 'b');",
        (
            "create table t (id integer primary key, w); pragma writable_schema=on;"
            "update sqlite_master set sql = cast(sql as blob);"
        ),
    ],
)
def test_keys_or_a_schema_of_unexpected_types_are_a_conflict(tmp_path: Path, schema: str) -> None:
    changes = ("", "insert into t values (5, 'step');", "insert into t values (3, 'later');")
    versions = [build(tmp_path / "database", schema, script) for script in changes]
    found = merge_rows(versions[0], versions[1], versions[2], Prefer.NEITHER)
    assert found == MergedRows(b"", (CANNOT_MERGE,))
