"""Hostile snapshots and contents in a merge and a revert: as safe as a restore of them."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from git_envhist import toml_text
from git_envhist.api import EnvHistory
from git_envhist.dotenv import read_assignments
from git_envhist.errors import EnvhistError
from git_envhist.git import merge_file
from git_envhist.git.process import Git
from git_envhist.model import RestoreRole
from git_envhist.restore import merge_rows as rows
from git_envhist.restore import merge_variables as variables
from git_envhist.restore.decisions import Decisions
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.merge_contents import MergedContents, MergeTools, merge_contents
from git_envhist.restore.merge_rows import CANNOT_MERGE, MergedRows, merge_rows
from git_envhist.restore.merge_settings import SettingsMerge
from git_envhist.restore.merge_sources import MergeSources, Span
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.three_way import Prefer
from tests.restore.hostile import Smith, hostile
from tests.restore.test_merge_rows import build
from tests.restore.unsigned import Stranger, harmful, make_stranger
from tests.support.oracle import listing
from tests.support.repository import Repo

CASES = dict(hostile())
SAMPLE = [
    name for number, name in enumerate(CASES) if number % 24 == 7 or name.startswith("a link and a dir")
]
OTHERS = [name for number, name in enumerate(CASES) if number % 5 == 1 and name not in SAMPLE]
ROLES = (RestoreRole.MERGE, RestoreRole.REVERT)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    """Return one repository for all tests: refused merges leave nothing, and others are undone."""
    return make_stranger(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def state_before(stranger: Stranger) -> object:
    return stranger.state()


@pytest.fixture(autouse=True)
def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable syncs, which only matter for power failures."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(DiskCalls, "sync", lambda self, descriptor: None)


def opened(place: Path) -> EnvHistory:
    return EnvHistory.open(str(place), workers="here", one_command=True)


def merge_all(history: EnvHistory, sources: MergeSources) -> str | None:
    """Merge with the other side of all conflicts; return the reason of a refusal, "" if nothing changed, or None."""
    try:
        done = history.restorer.merge(sources, RestoreOptions(allow_unsigned=True))
    except EnvhistError as error:
        return error.message
    return None if done.snapshot is not None else ""


@pytest.mark.parametrize("name", [*SAMPLE, *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS)])
def test_hostile_snapshot_is_refused_or_merged_without_harm(
    stranger: Stranger, state_before: object, name: str
) -> None:
    commit = stranger.plant(CASES[name](Smith(stranger.repo)))
    for role in ROLES:
        history = opened(stranger.repo.path)
        span = Span(history.resolve(stranger.tip), history.resolve(commit))
        sources = MergeSources((span,), commit[:7], Decisions(Prefer.THEIRS), role)
        why = merge_all(history, sources)
        assert why is None or why.isprintable(), why
        assert harmful(stranger.repo.path) == []
        if why is None:
            assert history.restorer.is_interrupted is False
            opened(stranger.repo.path).undo()
        assert stranger.state() == state_before, role


# A link in the place of a directory.


@pytest.mark.parametrize("is_link_here", [True, False])
@pytest.mark.parametrize("conflict", ["theirs", "ours", "both", "skip", "markers"])
def test_nothing_is_written_through_a_link_in_the_place_of_a_directory(
    repo: Repo, tmp_path: Path, conflict: str, is_link_here: bool
) -> None:
    (tmp_path / "canary").mkdir()
    repo.write("d/file", "file")
    opened(repo.path).capture("start")
    opened(repo.path).fork("@", str(tmp_path / "two"))
    other = Repo(tmp_path / "two", repo.env)
    with_link, with_files = (repo, other) if is_link_here else (other, repo)
    (with_link.path / "d/file").unlink()
    (with_link.path / "d").rmdir()
    (with_link.path / "d").symlink_to("../canary")
    with_files.write("d/new", "new")
    with_files.write("d/file", "edited")
    opened(other.path).capture("there")
    timeline = opened(other.path).timeline
    assert timeline is not None
    before = listing(repo.path, top=True)
    try:
        opened(repo.path).merge(timeline, conflict=conflict)
    except EnvhistError:
        assert listing(repo.path, top=True) == before
    assert os.listdir(tmp_path / "canary") == []


# Contents that need much time or memory are a conflict, or are merged by lines.


def merged(
    path: bytes, base: bytes, ours: bytes, theirs: bytes, prefer: Prefer = Prefer.NEITHER
) -> MergedContents | None:
    return merge_contents(path, base, ours, theirs, MergeTools(Git(os.devnull, os.devnull), prefer=prefer))


NESTED = 100_000
BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + at)}: &{chr(98 + at)} [*{chr(97 + at)}, *{chr(97 + at)}]\n" for at in range(20)
)
HOSTILE: dict[str, tuple[bytes, bytes]] = {
    "deep objects": (b"a.json", b'{"a":' * NESTED + b"1" + b"}" * NESTED),
    "deep lists": (b"a.json", b'{"a":' + b"[" * NESTED + b"]" * NESTED + b"}"),
    "an endless comment": (b"a.json", b"/* " * NESTED + b'{"a": 1}'),
    "a number of many digits": (b"a.json", b'{"a": ' + b"9" * NESTED + b"}"),
    "half of a surrogate pair": (b"a.json", b'{"\\ud800": "\\udfff"}'),
    "deep lists in TOML": (b"a.toml", b"a = " + b"[" * NESTED + b"]" * NESTED),
    "a key of many parts": (b"a.toml", b"a." * NESTED + b"b = 1"),
    "a table of many parts": (b"a.toml", b"[" + b"a." * NESTED + b"b]"),
    "a tower of aliases": (b"a.yaml", BOMB.encode()),
    "deep mappings": (b"a.yaml", b"".join(b" " * depth + b"a:\n" for depth in range(500))),
    "a directive": (b"a.yaml", b"%YAML 1.2\n---\na: !!python/object/apply:os.system [id]\n"),
    "a line of 15 MiB": (b"a.json", b'{"a": "' + b"x" * (15 << 20) + b'"}'),
    "open quotes": (b".env", b'A="\n' * 5_000),
    "lines that continue": (b".env", b"A=1\nx\\\n" + b"x\\\n" * 30_000),
    "names without end": (b".env", b"A" * NESTED + b"=1\n"),
    "an open heredoc": (b".env", b"A=1\nB=<<X\n" * 10_000),
    "a record of quotes": (b"lib/python3/site-packages/x-1.dist-info/RECORD", b'"' * NESTED),
}


@pytest.mark.parametrize("prefer", [Prefer.NEITHER, Prefer.THEIRS])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_loses_no_value_of_ours(repo: Repo, name: str, prefer: Prefer) -> None:
    path, text = HOSTILE[name]
    sign = {b"a.json": b"\n//%b\n", b"a.toml": b"\n%b = 1\n", b"a.yaml": b"%b: 1\n"}.get(path, b"\n%b=1\n")
    tools = MergeTools(Git(str(repo.path / ".git"), str(repo.path)), prefer=prefer)
    found = merge_contents(path, text, text + sign % b"ours", text + sign % b"theirs", tools)
    assert found is None or found.conflicts or b"ours" in found.content or prefer is Prefer.THEIRS
    assert found is None or all(why.isprintable() for why in found.conflicts)


def test_many_changed_variables_are_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    base = b"".join(b"KEY_%d=0\n" % number for number in range(60))
    versions = (base, base + b"NEW=1\n", base.replace(b"=0", b"=1"))
    found = variables.merge_variables(*versions, Prefer.NEITHER)
    assert found is not None
    assert read_assignments(found.text) == {**read_assignments(versions[2]), b"NEW": b"1"}
    monkeypatch.setattr(variables, "MAX_READ", 60 * len(base))
    assert variables.merge_variables(*versions, Prefer.NEITHER) is None


def test_large_file_of_variables_is_not_merged_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variables, "MAX_SIZE", 8)
    assert variables.merge_variables(b"A=1\n", b"A=1\nB=1\n", b"A=2\n", Prefer.NEITHER) is not None
    assert variables.merge_variables(b"A=1\n", b"A=1\nB=10\n", b"A=2\n", Prefer.NEITHER) is None


def test_text_of_too_many_lines_is_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_file, "MAX_LINES", 2)
    assert [merge_file.is_text(b"x\n" * lines) for lines in (2, 3)] == [True, False]


def test_many_new_keys_in_a_large_object_are_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [{"a": 1, "z": 1}, {"a": 1, "z": 2}, {"z": 1, "c": 1, "b": 1}]
    base, ours, theirs = (json.dumps(one, indent=at).encode() for at, one in enumerate(texts, start=1))
    settings = SettingsMerge.read(b"a.json", (base, ours, theirs), Prefer.NEITHER)
    assert settings is not None
    assert settings.with_lines(None).text is not None
    monkeypatch.setattr("git_envhist.restore.merge_settings.MAX_SEARCHED", 20)
    assert settings.with_lines(None).text is None


def test_list_of_sources_is_merged_line_by_line() -> None:
    path = b"lib/python3/site-packages/easy-install.pth"
    base = [b"/%d\n" % number for number in range(30_000)]
    found = merged(path, b"".join(base), b"".join(base[1:]), b"".join([*base[:-1], b"/new\n"]))
    assert found is not None
    assert found.content == b"".join([*base[1:-1], b"/new\n"])


DOTS = toml_text.MAX_DOTS + 1


@pytest.mark.parametrize(
    "text",
    [
        "a." * DOTS + "b = 1",
        "[" + "a . " * DOTS + "b]",
        "[[" + "'a'." * DOTS + "b]]",
        'x = """"a\\""""""\n' + '"a"\t.' * DOTS + "b = 1",
        "x = '''a'b'''''\r\n" + "a." * DOTS + "b = 1",
        "x = [{" + "a." * DOTS + "b = 1}]",
        'x = "\\"" # "\n' + "a." * DOTS + '"never closed',
    ],
)
def test_toml_key_with_many_dots_is_not_parsed(text: str) -> None:
    with pytest.raises(ValueError, match="too many dots"):
        toml_text.read_toml(text)


@pytest.mark.parametrize(
    "text",
    [
        "x = [" + '"p==1.2.3", ' * DOTS + "]",
        "x = [" + "1.5, " * DOTS + "]",
        "x = 1 # " + "." * DOTS,
        'x = """\n' + "a." * DOTS + '"\\""""',
        "x = '''" + "a." * DOTS + "'''",
        'x."' + "a." * DOTS + '" = 1',
    ],
)
def test_toml_with_many_dots_in_values_and_comments_is_parsed(text: str) -> None:
    assert toml_text.read_toml(text)["x"]


@pytest.mark.parametrize("name", [".", "..", "../..", "/", ""])
def test_module_of_a_package_is_no_directory_above_it(repo: Repo, name: str) -> None:
    site = "env/lib/python3/site-packages"
    repo.write(f"{site}/x-1.egg-info/top_level.txt", "start\n")
    repo.write(f"{site}/own.py", "1\n2\n3\n4\n5\n")
    repo.write("app", "1\n2\n3\n4\n5\n")
    history = opened(repo.path)
    history.capture("start")
    repo.write(f"{site}/x-1.egg-info/top_level.txt", f"{name}\n")
    repo.write("app", "one\n2\n3\n4\n5\n")
    history.capture("step")
    repo.write("app", "one\n2\n3\n4\nfive\n")
    history.revert("@")
    assert repo.read("app") == b"1\n2\n3\n4\nfive\n"


def test_paths_in_a_lock_file_lead_to_no_other_place(repo: Repo) -> None:
    places = (
        "",
        "/",
        ".",
        "..",
        "node_modules/../../..",
        "node_modules//x",
        "/etc",
        "a\0b",
        ".git",
        "\x1b[2J",
    )
    lock = {"lockfileVersion": 3, "packages": {place: {"version": "1"} for place in places}}
    repo.write("package-lock.json", json.dumps(lock))
    repo.write("node_modules/x/package.json", '{"version": "2"}')
    history = opened(repo.path)
    history.capture("start")
    repo.write("node_modules/x/package.json", '{"version": "3"}')
    history.capture("step")
    repo.write("later", "later")
    done = history.revert("@")
    assert repo.read("node_modules/x/package.json") == b'{"version": "2"}'
    assert all(warning.isprintable() for warning in done.warnings)


# Databases.

TABLE = "create table t (id integer primary key, w); insert into t values (1, 1), (2, 2), (3, 3);"
LARGE = "create table t (id integer primary key, w, check (length(hex(zeroblob(100000000 + id))) > 0));"
DATABASES = {
    "a check that makes large values": f"pragma ignore_check_constraints=on; {LARGE} "
    "insert into t values (1, 1), (2, 2), (3, 3);",
    "a generated column that makes large values": "create table t (id integer primary key, w, "
    "g as (zeroblob(100000000 + id))); insert into t values (1, 1), (2, 2), (3, 3);",
    "a trigger that deletes": TABLE + "create trigger x after update on t begin delete from t; end;",
    "a trigger that attaches": TABLE
    + "create trigger x after delete on t begin select load_extension('x'); end;",
    "a view of itself": TABLE + "create view v as select * from v;",
    "a view that never ends": TABLE
    + "create view v as with recursive n(i) as (values(1) union all select i + 1 from n) select i from n;",
    "names for the terminal": 'create table "\x1b[2J" (id integer primary key, w); '
    'insert into "\x1b[2J" values (1, 1), (2, 2), (3, 3); ' + TABLE,
    "a virtual table": TABLE + "create virtual table f using fts5(x);",
}


@pytest.mark.parametrize("name", DATABASES)
def test_schema_of_a_hostile_database_is_not_obeyed(tmp_path: Path, name: str) -> None:
    scripts = ("", "update t set w = 10 where id = 1;", "update t set w = 30 where id = 3;")
    try:
        versions = [build(tmp_path / "database", DATABASES[name])] * 3
        with closing(sqlite3.connect(tmp_path / "database")) as changed:
            changed.execute("pragma ignore_check_constraints=on")
            for at, script in enumerate(scripts):
                without = [
                    row[0] for row in changed.execute("select sql from sqlite_master where type='trigger'")
                ]
                for row in changed.execute("select name from sqlite_master where type='trigger'").fetchall():
                    changed.execute(f"drop trigger {row[0]}")
                changed.executescript(script)
                for sql in without:
                    changed.execute(sql)
                changed.commit()
                versions[at] = rows.DatabaseVersion((tmp_path / "database").read_bytes())
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite cannot make it: {error}")
    found = merge_rows(versions[0], versions[1], versions[2], Prefer.NEITHER)
    assert found is not None
    assert all(why.isprintable() for why in found.conflicts)
    if not found.conflicts:
        (tmp_path / "result").write_bytes(found.database)
        with closing(sqlite3.connect(tmp_path / "result")) as result:
            assert result.execute("select w from t order by id").fetchall() == [(10,), (2,), (30,)]


def test_merge_of_rows_ends_after_its_processor_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = TABLE + "with recursive n(i) as (values(9) union all select i + 1 from n where i < 40000) "
    many += "insert into t select i, i from n;"
    scripts = ("", "update t set w = 10 where id = 1;", "update t set w = 30 where id = 3;")
    versions = [build(tmp_path / "database", many, script) for script in scripts]
    monkeypatch.setattr(rows, "MAX_SECONDS", 0)
    assert merge_rows(versions[0], versions[1], versions[2], Prefer.NEITHER) == MergedRows(
        b"", (CANNOT_MERGE,)
    )


@pytest.mark.parametrize("prefer", [Prefer.NEITHER, Prefer.THEIRS])
def test_damaged_pages_end_in_no_error(tmp_path: Path, prefer: Prefer) -> None:
    choose = random.Random(5)
    scripts = ("", "update t set w = 10 where id = 1;", "update t set w = 30 where id = 3;")
    versions = [build(tmp_path / "database", TABLE, script) for script in scripts]
    for _ in range(60):
        damaged = bytearray(versions[2].database)
        for _ in range(choose.randrange(1, 20)):
            damaged[choose.randrange(16, len(damaged))] = choose.randrange(256)
        found = merge_rows(versions[0], versions[1], rows.DatabaseVersion(bytes(damaged)), prefer)
        assert found is None or all(why.isprintable() for why in found.conflicts)
