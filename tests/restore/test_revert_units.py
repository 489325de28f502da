"""A revert merges what changed on both sides by its own units: variables, settings, rows, packages."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from git_envhist.api import EnvHistory
from git_envhist.lazy import replace
from git_envhist.model import Entry, EntryKind, EnvPath, ObjectId
from git_envhist.restore.merge_pairs import RevertConflicts
from git_envhist.restore.three_way import (
    ConflictReason,
    ContentMerge,
    MergedEntry,
    Prefer,
    Sides,
    merge_entry,
)
from tests.support.oracle import listing
from tests.support.repository import Repo


def opened(repo: Repo) -> EnvHistory:
    return EnvHistory.open(str(repo.path), workers="here", one_command=True)


@contextmanager
def database(repo: Repo, name: str = "data.db") -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(repo.path / name)) as connection:
        yield connection
        connection.commit()


def rows(repo: Repo, name: str = "data.db") -> list[tuple[object, ...]]:
    with database(repo, name) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        return connection.execute("select * from t order by 1").fetchall()


def test_rows_of_one_step_are_reverted_and_later_rows_stay(repo: Repo) -> None:
    history = opened(repo)
    with database(repo) as made:
        made.executescript(
            "create table t (id integer primary key, word); insert into t values (1, 'a'), (2, 'b')"
        )
    history.capture("one")
    with database(repo) as changed:
        changed.executescript("update t set word = 'A' where id = 1; insert into t values (3, 'c')")
    history.capture("two")
    with database(repo) as changed:
        changed.executescript("update t set word = 'B' where id = 2; insert into t values (4, 'd')")
    before = listing(repo.path)
    history.revert(":/two")
    assert rows(repo) == [(1, "a"), (2, "B"), (4, "d")]
    history.undo()
    assert listing(repo.path) == before
    with database(repo) as changed:
        changed.execute("update t set word = 'C' where id = 3")
    with pytest.raises(RevertConflicts) as raised:
        history.revert(":/two")
    assert [(one.path, one.why) for one in raised.value.conflicts] == [
        (b"data.db", "row 3 of table t changed on both sides")
    ]


def test_database_with_a_log_is_merged_with_its_log(repo: Repo) -> None:
    with closing(sqlite3.connect(repo.path / "data.db", isolation_level=None)) as kept:
        kept.execute("pragma journal_mode=wal")
        kept.execute("create table t (id integer primary key, word)")
        kept.execute("insert into t values (1, 'a'), (2, 'b')")
        repo.run("envlog", "capture", "one", check=True)
        kept.execute("update t set word = 'A' where id = 1")
        repo.run("envlog", "capture", "two", check=True)
        kept.execute("update t set word = 'B' where id = 2")
        refused = repo.run("envlog", "revert", ":/two")
        assert (refused.status, "--force" in refused.err) == (3, True)
        files = {name: repo.read(name) for name in ("data.db", "data.db-wal")}
    assert files["data.db-wal"]
    # A crash leaves the log behind.
    for name, content in files.items():
        repo.write(name, content)
    history = opened(repo)
    history.capture("three")
    before = listing(repo.path)
    history.revert(":/two")
    assert not (repo.path / "data.db-wal").exists()
    assert rows(repo) == [(1, "a"), (2, "B")]
    history.undo()
    names = (b"data.db", b"data.db-wal")
    assert {name: one for name, one in listing(repo.path).items() if name in names} == {
        name: before[name] for name in names
    }


def test_larger_database_than_the_limit_is_one_conflict(repo: Repo) -> None:
    repo.git("config", "envhist.mergeLimit", "8k")
    history = opened(repo)
    with database(repo) as made:
        made.executescript(
            "create table t (id integer primary key, word); insert into t values (1, zeroblob(20000))"
        )
    history.capture("one")
    for number, name in ((2, "two"), (3, "three")):
        with database(repo) as changed:
            changed.execute("insert into t values (?, 'x')", (number,))
        history.capture(name)
    for prefer in ("", "theirs"):
        with pytest.raises(RevertConflicts) as raised:
            history.revert(":/two", conflict=prefer)
        assert [one.why for one in raised.value.conflicts] == ["its contents changed on both sides"]
    repo.git("config", "envhist.mergeLimit", "1m")
    opened(repo).revert(":/two")
    assert [row[0] for row in rows(repo)] == [1, 3]


def test_variables_in_adjacent_lines_are_reverted_by_name(repo: Repo) -> None:
    history = opened(repo)
    repo.write("public.env", b"# kept\nA=1\nB=1\nC=1\n")
    history.capture("one")
    repo.write("public.env", b"# kept\nA=2\nB=1\nC=1\n")
    history.capture("two")
    repo.write("public.env", b"# kept\nA=2\nB=2\nC=1\n")
    history.revert(":/two")
    assert repo.read("public.env") == b"# kept\nA=1\nB=2\nC=1\n"
    assert os.listdir(repo.path).count("public.env") == 1


def test_dependencies_in_adjacent_lines_are_reverted_by_key(repo: Repo) -> None:
    history = opened(repo)
    lines = b'{\n  "dependencies": {\n    "left": "1",\n    "right": "1"\n  }\n}\n'
    repo.write("package.json", lines)
    history.capture("one")
    repo.write("package.json", lines.replace(b'"left": "1"', b'"left": "2"'))
    history.capture("two")
    repo.write("package.json", repo.read("package.json").replace(b'"right": "1"', b'"right": "2"'))
    history.revert(":/two")
    assert repo.read("package.json") == lines.replace(b'"right": "1"', b'"right": "2"')
    history.undo()
    repo.write("package.json", repo.read("package.json").replace(b'"left": "2"', b'"left": "3"'))
    refused = repo.run("envlog", "revert", ":/two")
    assert refused.out == "conflict: package.json: setting dependencies.left changed on both sides\n"
    repo.run("envlog", "revert", "--conflict=markers", ":/two", check=True)
    assert b"<<<<<<< now\n" in repo.read("package.json")


def lock_text(version: str) -> str:
    packages = {
        "": {"name": "x"},
        "node_modules/left": {"version": version},
        "node_modules/@s/only": {"version": "1.0.0"},
    }
    return json.dumps({"lockfileVersion": 3, "packages": packages}, indent=2) + "\n"


def install_both(repo: Repo, version: str) -> None:
    repo.write("node_modules/left/package.json", json.dumps({"name": "left", "version": version}))
    site = ".venv/lib/python3.11/site-packages"
    for old in repo.path.glob(f"{site}/My_Left-*"):
        shutil.rmtree(old)
    repo.write(f"{site}/My_Left-{version}.dist-info/METADATA", f"Name: my-left\nVersion: {version}\n")


def test_lock_files_that_disagree_with_installed_packages_are_reported(repo: Repo) -> None:
    history = opened(repo)
    install_both(repo, "1.0.0")
    repo.write("package-lock.json", lock_text("1.0.0"))
    repo.write("requirements.txt", "My.Left==1.0.0\nother==3\n")
    history.capture("one")
    repo.write("package-lock.json", lock_text("2.0.0"))
    repo.write("requirements.txt", "My.Left==2.0.0\nother==3\n")
    history.capture("two")
    install_both(repo, "2.0.0")
    history.capture("three")
    warnings = {
        "package-lock.json and the installed packages disagree: left 1.0.0 (installed: 2.0.0)",
        "requirements.txt and the installed packages disagree: my-left 1.0.0 (installed: 2.0.0)",
    }
    assert warnings <= set(history.revert(":/two", dry_run=True).warnings)
    shown = repo.run("envlog", "revert", ":/two", check=True)
    assert all(f"warning: {warning}" in shown.err for warning in warnings)
    history.undo()
    assert not warnings & set(history.revert(":/two..:/three", dry_run=True).warnings)
    assert not any("disagree" in one for one in history.revert(":/one..:/three", dry_run=True).warnings)


def test_sealed_settings_are_reverted_by_key_and_not_written_in_the_clear(repo: Repo) -> None:
    history = opened(repo)
    text = '{\n  "user": "a-xyzzy",\n  "token": "b-xyzzy"\n}\n'
    repo.write("credentials.json", text)
    history.capture("one")
    repo.write("credentials.json", text.replace("a-x", "c-x"))
    history.capture("two")
    repo.write("credentials.json", text.replace("a-x", "c-x").replace("b-x", "d-x"))
    history.revert(":/two")
    assert repo.read("credentials.json").decode() == text.replace("b-x", "d-x")
    history.undo()
    repo.write("credentials.json", text.replace("a-x", "e-x"))
    refused = repo.run("envlog", "revert", ":/two")
    assert refused.out == "conflict: credentials.json: 1 setting changed on both sides\n"
    listed = repo.git("cat-file", "--batch-check", "--batch-all-objects", "--unordered").splitlines()
    blobs = [line.split()[0] for line in listed if " blob " in line]
    assert "xyzzy" not in repo.git("cat-file", "--batch", input="\n".join(blobs))


def test_preferred_version_of_a_file_that_cannot_be_merged_does_not_replace_it(repo: Repo) -> None:
    history = opened(repo)
    with database(repo) as made:
        made.executescript("create table t (id integer primary key, word unique); create table k (v)")
    repo.write("public.env", b"C=9\nC=9\nB=2\nD=1\n")
    history.capture("one")
    with database(repo) as changed:
        changed.executescript("insert into t values (2, 'step'); insert into k values ('step')")
    repo.write("public.env", b"C=1\nC=1\nB=1\nD=1\n")
    history.capture("two")
    with database(repo) as changed:
        changed.executescript("insert into t values (3, 'later'); insert into k values ('later')")
    repo.write("public.env", b"C=1\nC=1\nB=1\nD=5\nE=new\n")
    before = listing(repo.path)
    with pytest.raises(RevertConflicts) as raised:
        history.revert(":/two", conflict="theirs")
    assert {(one.path, one.why) for one in raised.value.conflicts} == {
        (b"data.db", "table k has no primary key, and changed on both sides"),
        (b"public.env", "its contents changed on both sides"),
    }
    assert listing(repo.path) == before
    history.revert(":/two", conflict="ours")
    assert repo.read("public.env").endswith(b"E=new\n")


@pytest.mark.parametrize("name", ["public.env", ".env", ".envrc"])
def test_reverted_lines_that_set_no_variable_are_a_conflict_if_they_cannot_be_merged(
    repo: Repo, name: str
) -> None:
    history = opened(repo)
    versions = [
        b"export A=1\nPATH_add bin\n",
        b"export A=1\nPATH_add other\n",
        b"export A=2\nPATH_add other\n",
    ]
    for number, content in enumerate(versions):
        repo.write(name, content)
        history.capture(str(number) + "th")
    for prefer in ("", "theirs"):
        with pytest.raises(RevertConflicts):
            history.revert(":/1th", conflict=prefer)
    assert repo.read(name) == versions[2]


def test_damaged_lists_of_packages_end_in_no_error(repo: Repo) -> None:
    history = opened(repo)
    site = ".venv/lib/python3.11/site-packages"
    places = ("node_modules/x", "node_modules/a/node_modules/x", "node_modules/\ud800")
    packages = {place: {"version": "1.0.0"} for place in places}
    repo.write("package-lock.json", json.dumps({"lockfileVersion": 3, "packages": packages}))
    repo.write("node_modules/x/package.json", '{"name": "x", "version": "2.0.0"}')
    repo.write("node_modules/y/package.json", '{"name": "y", "version": {}}')
    repo.write("node_modules/a/package.json", '{"name": "a"}')
    history.capture("one")
    repo.write("node_modules/a/node_modules/x/package.json", '{"name": "x", "version": "1.0.0"}')
    repo.write(f"{site}/foo-1.0.dist-info/RECORD", '"' + "foo/x.py,,\n" * 20000)
    history.capture("two")
    warnings = history.revert(":/two").warnings
    assert any("x 1.0.0 (not installed)" in one for one in warnings)


def test_mode_of_a_database_with_a_journal_is_reverted_with_its_rows(repo: Repo) -> None:
    history = opened(repo)
    path = repo.path / "data.db"
    with database(repo) as made:
        made.execute("create table t (id integer primary key)")
    for number, (name, mode) in enumerate((("one", 0o600), ("two", 0o666), ("three", 0o666))):
        with database(repo) as changed:
            changed.execute("insert into t values (?)", (number,))
        path.chmod(mode)
        # Some programs keep an empty journal.
        repo.write("data.db-journal", b"")
        history.capture(name)
    history.revert(":/two")
    assert rows(repo) == [(0,), (2,)]
    assert path.stat().st_mode & 0o777 == 0o600
    history.undo()
    path.chmod(0o640)
    with pytest.raises(RevertConflicts) as raised:
        history.revert(":/two")
    assert [one.why for one in raised.value.conflicts] == ["its mode changed on both sides"]


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("chosen", ["data.db", "data.db-wal"])
def test_path_of_a_database_chooses_its_log_too(repo: Repo, chosen: str, has_checkpoint: bool) -> None:
    history = opened(repo)
    steps = (
        "create table t (id integer primary key, word); insert into t values (1, 'a'), (2, 'b')",
        "insert into t values (3, 'c')",
        "insert into t values (4, 'd')",
    )
    with closing(sqlite3.connect(repo.path / "data.db", isolation_level=None)) as kept:
        kept.execute("pragma journal_mode=wal")
        for number, step in enumerate(steps):
            kept.executescript(step)
            if number == 1 and has_checkpoint:
                kept.execute("pragma wal_checkpoint(truncate)")
            history.capture(f"step {number}")
        files = {name: repo.read(name) for name in ("data.db", "data.db-wal")}
    # A crash leaves the log behind.
    for name, content in files.items():
        repo.write(name, content)
    repo.write("other", b"later")
    history.revert(":/step 1", paths=[chosen])
    assert rows(repo) == [(1, "a"), (2, "b"), (4, "d")]
    assert repo.read("other") == b"later"


def test_log_that_is_equal_on_all_sides_is_applied_and_does_not_stay_beside_a_merged_database(
    repo: Repo,
) -> None:
    path = repo.path / "data.db"
    with closing(sqlite3.connect(path)) as made:
        made.executescript(
            "pragma journal_mode=wal; create table a (id integer primary key, w);"
            "create table b (id integer primary key, w); insert into b values (1, 1), (2, 2), (3, 3);"
        )
    with closing(sqlite3.connect(repo.path.parent / "copy.db")) as copy:
        shutil.copy(path, repo.path.parent / "copy.db")
        copy.execute("pragma wal_autocheckpoint=0")
        copy.execute("insert into a values (9, 'in the log')")
        copy.commit()
        log = (repo.path.parent / "copy.db-wal").read_bytes()
    assert log

    def put(*scripts: str) -> None:
        # The log is applied by the next program that opens the database.
        (repo.path / "data.db-wal").unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as opened:
            opened.executescript("".join(scripts))
        repo.write("data.db-wal", log)
        os.utime(repo.path / "data.db-wal", (1_600_000_000, 1_600_000_000))
        (repo.path / "data.db-shm").unlink(missing_ok=True)

    history = EnvHistory.open(str(repo.path), workers="here", one_command=True)
    put()
    history.capture("start")
    put("update b set w = 10 where id = 1;")
    history.capture("step")
    put("update b set w = 30 where id = 3;")
    history.capture("later")
    history.revert(":/step")
    assert not (repo.path / "data.db-wal").exists()
    with closing(sqlite3.connect(path)) as opened:
        assert opened.execute("select * from a").fetchall() == [(9, "in the log")]
        assert opened.execute("select w from b order by id").fetchall() == [(1,), (2,), (30,)]
        assert opened.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mode": 0o755}, ConflictReason.MODE),
        ({"uid": 7}, ConflictReason.OWNER),
        ({"xattrs": ((b"user.a", b"1"),)}, ConflictReason.ATTRIBUTES),
    ],
)
def test_markers_do_not_decide_attributes_of_a_file_that_both_sides_created(
    change: dict[str, Any], reason: ConflictReason
) -> None:
    now = Entry(path=EnvPath(b"run.sh"), kind=EntryKind.FILE, mode=0o644, mtime_ns=1, oid=ObjectId(b"1" * 20))
    other = replace(now, oid=ObjectId(b"2" * 20))
    text = ContentMerge(replace(now, oid=ObjectId(b"3" * 20)))
    same = merge_entry(Sides(None, other, None, now), lambda: text, Prefer.MARKERS)
    assert same == MergedEntry(text.entry)
    changed = merge_entry(Sides(None, replace(other, **change), None, now), lambda: text, Prefer.MARKERS)
    assert changed == MergedEntry(now, (reason,))
