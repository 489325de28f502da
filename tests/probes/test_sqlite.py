"""Facts about SQLite databases agree with SQLite; files that are not databases have none."""

from __future__ import annotations

import json
import shutil
import sqlite3
import struct
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from git_envhist.capture.probe_worker import WholeFile
from git_envhist.probes import sqlite, sqlite_file
from git_envhist.probes.base import ProbedFile
from git_envhist.probes.sqlite import applied_migrations, columns_of
from tests.support.repository import Repo

Told = dict[str, str]


def no_key(context: bytes, secret: bytes) -> str | None:
    return None


def shown(contents: Mapping[bytes, bytes], *, sealed: bool = False) -> dict[bytes, ProbedFile]:
    return {name: ProbedFile(data, len(data), sealed, b"x" * 20) for name, data in contents.items()}


def told(contents: Mapping[bytes, bytes]) -> Told:
    """Return the facts of whole files, and check that byte ranges of large files give the same facts."""
    facts = {fact.key: fact.value for fact in sqlite.facts_of(b"", shown(contents), no_key)}
    wanted = sqlite.parts_of(
        {name: WholeFile(len(data), lambda data=data: data) for name, data in contents.items()}
    )  # type: ignore[misc]
    parts = {
        name: ProbedFile(None, len(data), False, b"x" * 20, wanted.get(name, ()))
        for name, data in contents.items()
    }
    assert {fact.key: fact.value for fact in sqlite.facts_of(b"", parts, no_key)} == facts
    return facts


def files_of(path: Path) -> dict[bytes, bytes]:
    """Return a database with its sidecars as a capture passes them."""
    names = [path.name + ending for ending in ("", "-wal", "-journal")]
    return {
        name.encode(): (path.parent / name).read_bytes() for name in names if (path.parent / name).exists()
    }


def asked(path: Path) -> Told:
    """Return tables and rows as listed by SQLite."""
    with closing(sqlite3.connect(path)) as database:
        found = {}
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        for (name,) in database.execute(
            "select name from sqlite_master where type = 'table' and name not like 'sqlite%'"
        ).fetchall():
            rows = database.execute(f'select count(*) from "{name}"').fetchone()[0]
            columns = database.execute(f'pragma table_xinfo("{name}")').fetchall()
            listed = ", ".join(f"{column[1]} {column[2].lower()}".rstrip() for column in columns)
            found[f"{path.name}/{name}"] = f"{rows} rows ({listed})"
        return found


def make(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return path


SHAPES = (
    "create table {} (id integer primary key, name text not null default 'a,b (c', price decimal(10,2))",
    'create table {} ("id" int, `k` varchar(30) unique, [v] /* a, */ blob, -- c\n primary key (id, k)) without rowid',
    "create table {} (a, b int check (b in (1, 2)), c int as (a + 1), unique (a), foreign key (b) references t)",
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([512, 1024, 4096, 65536]),
    st.sampled_from(["utf-8", "utf-16le", "utf-16be"]),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 700), st.sampled_from([1, 60, 3000])), max_size=4),
    st.booleans(),
)
def test_tables_columns_and_rows_agree_with_sqlite(
    tmp_path: Path, size: int, encoding: str, tables: list[tuple[int, int, int]], vacuums: bool
) -> None:
    path = tmp_path / "a.db"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        for pragma in (f"page_size = {size}", f"encoding = '{encoding}'", f"auto_vacuum = {int(vacuums)}"):
            database.execute(f"pragma {pragma}")
        for number, (shape, rows, width) in enumerate(tables):
            database.execute(SHAPES[shape].format(f"t{number}"))
            names = ("id, name", "id, k", "a, b")[shape]
            values = (
                (n, f"{n} " + "x" * width) if shape < 2 else (f"{n} " + "x" * width, 1) for n in range(rows)
            )
            database.executemany(f"insert into t{number} ({names}) values (?, ?)", values)
            database.execute(f"delete from t{number} where rowid % 3 = 1" if shape != 1 else "select 1")
        database.commit()
    assert told(files_of(path)) == asked(path)


def test_rows_only_in_the_log_are_counted(tmp_path: Path) -> None:
    path = make(tmp_path / "a.db", "pragma journal_mode = wal", "create table t (a)")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("pragma wal_autocheckpoint = 0")
        writer.executemany("insert into t values (?)", [("x" * 500,)] * 300)
        writer.commit()
        # Pages that an unfinished transaction wrote into the log do not count.
        writer.execute("pragma cache_size = 5")
        writer.executemany("insert into t values (?)", [("y" * 500,)] * 3000)
        files = files_of(path)
        writer.rollback()
    assert len(files[b"a.db-wal"]) > 1_000_000
    assert told(files) == {"a.db/t": "300 rows (a)"}
    assert told({b"a.db": files[b"a.db"]}) == {"a.db/t": "0 rows (a)"}
    damaged = bytearray(files[b"a.db-wal"])
    damaged[200] ^= 1
    assert told({**files, b"a.db-wal": bytes(damaged)}) == {"a.db/t": "0 rows (a)"}


def test_rows_of_an_unfinished_transaction_are_not_counted(tmp_path: Path) -> None:
    path = make(tmp_path / "a.db", "create table t (a)", "create table u (b)")
    with closing(sqlite3.connect(path)) as writer:
        writer.executemany("insert into t values (?)", [("x" * 500,)] * 3000)
        writer.commit()
        writer.execute("pragma cache_size = 5")
        writer.execute("delete from t where rowid > 10")
        writer.executemany("insert into u values (?)", [("y" * 500,)] * 3000)
        (tmp_path / "crashed").mkdir()
        for name in ("a.db", "a.db-journal"):
            shutil.copy(tmp_path / name, tmp_path / "crashed" / name)
        writer.rollback()
    crashed = tmp_path / "crashed/a.db"
    files = files_of(crashed)
    assert told({b"a.db": files[b"a.db"]}) != told(files)
    assert told(files) == {"a.db/t": "3000 rows (a)", "a.db/u": "0 rows (b)"} == asked(crashed)


def test_indexes_views_triggers_are_listed_and_shadow_tables_are_not(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a.db",
        "create table orders (id integer primary key, day text unique)",
        "create index by_day on orders (day)",
        "create view v as select load_extension('x') from orders",
        "create trigger after_it after insert on orders begin select 1; end",
        "create virtual table words using fts5(text)",
        "insert into words values ('a')",
    )
    assert told(files_of(path)) == {
        "a.db/orders": "0 rows (id integer, day text)",
        "a.db/index by_day": "on orders",
        "a.db/view v": "",
        "a.db/trigger after_it": "on orders",
        "a.db/words": "virtual ()",
    }


@pytest.mark.parametrize(
    ("table", "columns", "row", "name"),
    [
        ("django_migrations", "id integer primary key, app, name, applied", "1, 'shop', '0004_x', 0", "shop.0004_x"),
        ("schema_migrations", "version varchar primary key", "'20240101120000'", "20240101120000"),
        ("schema_migrations", "version uint64, dirty bool", "4, 1", "version = 4 (dirty)"),
        ("alembic_version", "version_num varchar(32)", "'abc123'", "version = abc123"),
        ("_prisma_migrations", "id text, migration_name text, rolled_back_at datetime", "'1', 'a', null", "a"),
        ("knex_migrations", "id integer primary key, name varchar, batch int", "1, 'b.js', 1", "b.js"),
        ("flyway_schema_history", "version text, description text, success bool", "'1.1', 'init', 1", "1.1.init"),
        ("migrations", "id integer primary key, migration varchar, batch int", "1, '2014_users', 1", "2014_users"),
        ("migrations", "id integer primary key, timestamp bigint, name varchar", "1, 17, 'Init17'", "Init17"),
        ("SequelizeMeta", "name varchar(255) primary key", "'1-create.js'", "1-create.js"),
        ("_sqlx_migrations", "version bigint, description text, success bool", "7, 'x', 1", "7.x"),
        ("__EFMigrationsHistory", "MigrationId text, ProductVersion text", "'2024_Init', '8'", "2024_Init"),
    ],
)  # fmt: skip
def test_applied_migrations_are_listed_by_name(
    tmp_path: Path, table: str, columns: str, row: str, name: str
) -> None:
    path = make(tmp_path / "a.db", f"create table {table} ({columns})", f"insert into {table} values ({row})")
    migrations = {key: value for key, value in told(files_of(path)).items() if "/migration " in key}
    key, _, value = name.partition(" = ")
    assert migrations == {f"a.db/migration {key}": value}


def test_undone_or_failed_migration_is_not_listed() -> None:
    assert not [*applied_migrations("_prisma_migrations", [{"migration_name": "a", "rolled_back_at": 5}])]
    assert not [
        *applied_migrations("flyway_schema_history", [{"version": "1", "description": "a", "success": 0}])
    ]
    assert not [*applied_migrations("migrations", [{"something": "else"}])]


def test_sealed_database_has_only_a_fingerprint(tmp_path: Path) -> None:
    files = files_of(
        make(tmp_path / "a.db", "create table salaries (name)", "insert into salaries values ('x')")
    )
    seen = []

    def keyed(context: bytes, secret: bytes) -> str:
        seen.append(context)
        return "0123456789abcdef"

    facts = [*sqlite.facts_of(b"d", shown(files, sealed=True), keyed)]
    assert [(fact.key, fact.value) for fact in facts] == [("d/a.db/contents", "sealed:0123456789abcdef")]
    assert seen == [b"d/a.db\0sqlite"]
    assert "salaries" not in repr([*sqlite.facts_of(b"d", shown(files, sealed=True), no_key)])


def test_endless_page_tree_is_abandoned(tmp_path: Path) -> None:
    path = make(tmp_path / "a.db", "create table t (a)", "pragma user_version = 1")
    with closing(sqlite3.connect(path)) as database:
        database.executemany("insert into t values (?)", [("x" * 900,)] * 100)
        database.commit()
    data = bytearray(path.read_bytes())
    assert data[4096] == 5
    # Every child of its root is the root.
    for pointer in struct.unpack_from(f">{struct.unpack_from('>H', data, 4099)[0]}H", data, 4108):
        struct.pack_into(">I", data, 4096 + pointer, 2)
    struct.pack_into(">I", data, 4104, 2)
    assert list(told({b"a.db": bytes(data)})) == ["a.db/?"]


def test_tables_that_share_pages_are_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(tmp_path / "a.db", "pragma page_size = 512", "create table t (a)")
    with closing(sqlite3.connect(path)) as database:
        database.executemany("insert into t values (?)", [("x" * 400,)] * 500)
        database.execute("pragma writable_schema = on")
        same = [(f"t{n}", f"t{n}", f"create table t{n} (a)") for n in range(100)]
        database.executemany("insert into sqlite_master values ('table', ?, ?, 2, ?)", same)
        database.commit()
    assert len(told(files_of(path))) == 101
    monkeypatch.setattr(sqlite_file, "MAX_PAGES", 20_000)
    assert told(files_of(path)) == {"a.db/?": "too much to be looked at"}


@pytest.fixture(scope="module")
def some_files(tmp_path_factory: pytest.TempPathFactory) -> dict[bytes, bytes]:
    """Return a small database, part of which is in the log."""
    path = tmp_path_factory.mktemp("some") / "a.db"
    make(path, "pragma page_size = 512", "pragma journal_mode = wal", "create table migrations (id, name)")
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("create table w (a primary key, b) without rowid")
        writer.executemany("insert into w values (?, ?)", ((n, "x" * 50) for n in range(200)))
        writer.executemany("insert into migrations values (?, ?)", ((n, "x" * 900) for n in range(5)))
        writer.commit()
        files = files_of(path)
    return {
        **files,
        b"b.db": path.read_bytes(),
        b"b.db-journal": b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(2000),
    }


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_database_raises_nothing(some_files: dict[bytes, bytes], data: st.DataObject) -> None:
    broken = {}
    for name, whole in some_files.items():
        bytes_of = bytearray(whole)
        places = st.tuples(
            st.one_of(st.integers(0, 200), st.integers(0, len(whole) - 1)),
            st.one_of(st.just(255), st.integers(0, 255)),
        )
        for at, byte in data.draw(st.lists(places, max_size=12)):
            bytes_of[min(at, len(bytes_of) - 1)] = byte
        broken[name] = bytes(
            bytes_of[: data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))]
        )
    for key in told(broken):
        assert key


@given(st.text(alphabet="(),\"'`[]ab -/*\n", max_size=60))
def test_any_create_statement_is_parsed(words: str) -> None:
    columns_of("create table t " + words)


def capture(repo: Repo, intent: str) -> str:
    return repo.run("envlog", "capture", "--porcelain", intent, check=True).out.strip()


def sql(repo: Repo, *statements: str, path: str = "app.db") -> None:
    make(repo.path / path, *statements)


def rows_of(table: str, number: int) -> str:
    numbers = f"n(i) as (select 1 union all select i + 1 from n where i < {number})"
    return f"insert into {table} with recursive {numbers} select null, 'name ' || i from n"


def test_changes_of_a_database_are_shown_in_one_row(repo: Repo) -> None:
    sql(repo, "create table orders (id integer primary key, name text)", rows_of("orders", 1204))
    sql(repo, "create table old (a)")
    first = capture(repo, "before")
    sql(
        repo,
        rows_of("orders", 6),
        "create table invoices (id integer primary key, total real)",
        "drop table old",
    )
    sql(repo, "alter table orders add column paid boolean", "create index by_name on orders (name)")
    second = capture(repo, "after")
    row = (
        "sqlite    app.db         - table old (1 column)   ~ orders 1,204 → 1,210 rows, + column paid boolean"
        "   + table invoices (2 columns)   + index by_name on orders\n"
    )
    assert repo.run("envdiff", first, second, check=True).out == row + "files     ~ app.db\n"
    assert repo.run("envdiff", first, second, "--only=databases", check=True).out == row
    assert repo.run("envlog", "--format=%(story)", "-n1", check=True).out == (
        "sqlite: -table old (1 column), orders 1,204 → 1,210 rows, + column paid boolean, +2 more · 1 file\n"
    )
    assert "           " + row in repo.run("envlog", "show", check=True).out
    facts = json.loads(repo.run("envdiff", "--json", first, second, check=True).out)["facts"]
    assert next(one for one in facts if one["key"] == "app.db/orders") == {
        "role": "direct",
        "probe": "sqlite",
        "key": "app.db/orders",
        "before": "1204 rows (id integer, name text)",
        "after": "1210 rows (id integer, name text, paid boolean)",
    }
    back = repo.run("envdiff", second, first, "--only=databases", check=True).out
    assert "~ orders 1,210 → 1,204 rows, - column paid" in back
    assert "+app.db/invoices " in repo.git("diff", first, second, "--", ".envhist/facts")


def test_chunked_database_has_the_same_facts(repo: Repo) -> None:
    sql(repo, "create table small (id integer primary key, name text)", rows_of("small", 10), path="big.db")
    sql(repo, "create table large (id integer primary key, data text)", path="big.db")
    sql(
        repo, "insert into large select null, hex(zeroblob(5000)) from small, small a, small b", path="big.db"
    )
    first = capture(repo, "before")
    assert (repo.path / "big.db").stat().st_size > 9 << 20
    with closing(sqlite3.connect(repo.path / "big.db")) as writer:
        writer.execute("pragma journal_mode = wal")
        writer.executemany("insert into small values (null, ?)", [("x",)] * 3)
        writer.execute("delete from large where id = 7")
        writer.commit()
        second = capture(repo, "after")
    assert repo.run("envdiff", first, second, "--only=databases", check=True).out == (
        "sqlite    big.db         ~ large 1,000 → 999 rows   ~ small 10 → 13 rows\n"
    )


def test_unreadable_database_makes_no_claims(repo: Repo) -> None:
    sql(repo, "create table orders (id integer primary key, name text)", rows_of("orders", 500))
    whole = (repo.path / "app.db").read_bytes()
    first = capture(repo, "whole")
    repo.write("app.db", whole[:5000])
    capture(repo, "cut off")
    assert repo.run("envdiff", first, "@", "--only=databases", check=True).out == (
        "sqlite    app.db         + not read: it is cut off\n"
    )
    repo.write("app.db", whole)
    third = capture(repo, "whole again")
    assert repo.run("envdiff", "@~1", third, "--only=databases", check=True).out == (
        "sqlite    app.db         - not read: it is cut off\n"
    )
    assert repo.run("envdiff", first, third, check=True).out == ""


def test_paths_select_databases(repo: Repo) -> None:
    for path in ("app.db", "web/app.db", "web/other.db"):
        repo.write(path, "")
        sql(repo, "CREATE TABLE one (id)", path=path)
    before = capture(repo, "before")
    for path in ("app.db", "web/app.db", "web/other.db"):
        sql(repo, "CREATE TABLE two (id)", path=path)
    after = capture(repo, "after")

    def told(*paths: str) -> list[str]:
        shown = repo.run("envdiff", "--only=databases", before, after, "--", *paths, check=True).out
        return [line.split()[1] for line in shown.splitlines()]

    assert told("app.db") == ["app.db"]
    assert told("web/app.db") == ["web/app.db"]
    assert told("web") == ["web/app.db", "web/other.db"]
    assert told(":!web/app.db") == ["app.db", "web/other.db"]


def test_database_without_extension_is_recognised(repo: Repo) -> None:
    repo.write("data/words", "x" * 1024)
    repo.write("data/app", "")
    sql(repo, "CREATE TABLE one (id)", path="data/app")
    before = capture(repo, "before")
    sql(repo, "CREATE TABLE two (id)", path="data/app")
    after = capture(repo, "after")
    assert repo.run("envdiff", "--only=databases", before, after, check=True).out == (
        "sqlite    data/app       + table two (1 column)\n"
    )


def test_table_named_like_the_unread_marker_hides_no_other(repo: Repo) -> None:
    sql(repo, "CREATE TABLE one (id)")
    before = capture(repo, "before")
    sql(repo, 'CREATE TABLE "?" (id)', "CREATE TABLE two (id)")
    after = capture(repo, "after")
    assert "+ table two" in repo.run("envdiff", "--only=databases", before, after, check=True).out
