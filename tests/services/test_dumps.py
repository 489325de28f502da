"""Tables and rows of SQL dumps and keys of Redis dumps: they are read, compared, and part of a check result."""

from __future__ import annotations

import io
import json
import re

import pytest

from git_envhist.diff.facts import pair_facts
from git_envhist.diff.summary import summarize
from git_envhist.model import ChangeCount, Fact, FactChange
from git_envhist.probes.dumps import BYTES, RDB, SQL, describe
from git_envhist.service_dumps import failure_line
from tests.support.repository import Repo

KINDS = {"dump": "databases"}
PG = b"""--
-- PostgreSQL database dump
--
\\restrict %b
CREATE TABLE public.users (
    id integer NOT NULL,
    name text
);
CREATE TABLE public.orders (
    id integer
);
COPY public.users (id, name) FROM stdin;
1\tone
2\ttwo
3\tthree
\\.
COPY public.orders (id) FROM stdin;
\\.
"""
MYSQL = b"""-- MySQL dump 10.13
USE `shop`;
CREATE TABLE `users` (
  `id` int NOT NULL,
  `name` varchar(20)
);
INSERT INTO `users` VALUES (1,'a); (b'),(2,'it''s'),(3,'x\\'y'),(4,concat('a',('b')));
INSERT INTO `users` (`id`, `name`) VALUES
(5,'two
lines;
'),
(6,'z');
"""


def facts_of(data: bytes, name: str = "pg") -> dict[str, str]:
    return {fact.key: fact.value for fact in describe(name, io.BytesIO(data)).facts}


def test_rows_of_copy_blocks_are_counted_by_table() -> None:
    told = describe("pg", io.BytesIO(PG % b"token"))
    assert (told.kind, told.summary) == (SQL, "2 tables, 3 rows")
    facts = facts_of(PG % b"token")
    assert facts["pg/public.users"] == "3 rows (id integer, name text)"
    assert facts["pg/public.orders"] == "0 rows (id integer)"


def test_rows_of_insert_statements_are_counted_through_quotes_and_lines() -> None:
    facts = facts_of(MYSQL, "db")
    assert facts["db/shop.users"] == "6 rows (id int, name varchar(20))"


def test_duckdb_table_is_counted_once_with_and_without_schema() -> None:
    text = b"BEGIN TRANSACTION;\nCREATE TABLE users(id BIGINT);;\nINSERT INTO main.users VALUES(0);\n"
    contents = describe("shop", io.BytesIO(text))
    assert contents.summary == "1 table, 1 row"
    assert "shop/users" in facts_of(text, "shop")


def test_dump_digest_ignores_its_token_and_the_order_of_rows() -> None:
    first = facts_of(PG % b"aaaa")
    assert facts_of(PG % b"bbbb") == first
    swapped = (PG % b"cccc").replace(b"1\tone\n2\ttwo\n", b"2\ttwo\n1\tone\n")
    assert facts_of(swapped) == first
    assert facts_of((PG % b"dddd").replace(b"two", b"TWO"))["pg/contents"] != first["pg/contents"]


def rdb(keys: dict[bytes, bytes], *extra: bytes) -> bytes:
    def string(data: bytes) -> bytes:
        return bytes([len(data)]) + data

    head = b"REDIS0011\xfa" + string(b"ctime") + b"\xc2abcd" + b"\xfe\x00\xfb" + bytes([len(keys), 0])
    values = b"".join(
        b"\xfc" + b"\1" * 8 + b"\x00" + string(key) + string(value) for key, value in keys.items()
    )
    return head + values + b"".join(extra) + b"\xff" + b"\0" * 8


def test_keys_of_redis_are_counted_by_prefix() -> None:
    hash_key = b"\x04\x06user:1\x01\x01a\x01b"
    scored = b"\x05\x05board\x01\x01m" + b"\0" * 8
    told = describe(
        "cache", io.BytesIO(rdb({b"session:1": b"x", b"session:2": b"y", b"flag": b"1"}, hash_key, scored))
    )
    assert (told.kind, told.summary) == (RDB, "5 keys")
    counts = {fact.key: fact.value for fact in told.facts if fact.value.endswith("keys")}
    assert counts == {
        "cache/db0 session:*": "2 keys",
        "cache/db0": "2 keys",
        "cache/db0 user:*": "1 keys",
    }


def test_header_count_is_used_after_an_unknown_value_type() -> None:
    told = describe("cache", io.BytesIO(rdb({b"a:1": b"x"}, b"\x63\x01k")))
    assert {fact.key: fact.value for fact in told.facts}["cache/db0"] == "1 keys"


@pytest.mark.parametrize(
    "data",
    [
        b"PGDMP\x01\x0e",
        b"\x1f\x8b\x08",
        b"REDIS0011\xfe",
        b"REDIS0011\x00\x81" + b"\xff" * 8,
        b"\0" * 9,
        b"{}",
    ],
)
def test_dump_of_unknown_format_has_only_a_digest(data: bytes) -> None:
    told = describe("x", io.BytesIO(data))
    assert told.kind == BYTES
    assert [fact.key for fact in told.facts] == ["x/contents"]


def test_unclosed_statement_ends_with_the_dump() -> None:
    assert facts_of(b"-- dump\nINSERT INTO t VALUES (1,'a")["pg/t"] == "1 rows ()"


def dump_of(rows: int, *, status: str = SQL) -> list[Fact]:
    return [
        Fact("dump", "pg/.", status),
        Fact("dump", "pg/public.users", f"{rows} rows (id integer)"),
        Fact("dump", "pg/contents", f"#{rows}", auto=True),
    ]


def differing(old: list[Fact], new: list[Fact]) -> tuple[FactChange, ...]:
    return pair_facts([one for one in old if one not in new], [one for one in new if one not in old])


def test_summary_counts_lost_rows_without_names() -> None:
    changes = differing(dump_of(5000), dump_of(10))
    assert summarize(changes, ChangeCount(), KINDS, names=False) == "pg: −4,990 rows in 1 table"
    assert summarize(changes, ChangeCount(), KINDS) == "pg: public.users 5,000 → 10 rows"


def test_digest_change_is_shown_when_no_number_differs() -> None:
    other = [*dump_of(10)[:2], Fact("dump", "pg/contents", "#else", auto=True)]
    assert summarize(differing(dump_of(10), other), ChangeCount(), KINDS, names=False) == "pg: other contents"


def test_failed_or_other_dump_is_not_a_loss() -> None:
    failed = [Fact("dump", "pg/.", "failed")]
    changes = differing(dump_of(10), failed)
    assert summarize(changes, ChangeCount(), KINDS, names=False) == "pg: not dumped"
    assert differing(failed, dump_of(10)) == ()
    # A service that is no longer configured, or that dumps in another format.
    assert differing(dump_of(10), []) == ()
    assert differing(dump_of(10), dump_of(3, status=BYTES)) == ()


def test_failed_command_is_reported_with_the_line_about_the_failure() -> None:
    lines = [
        b"pg_dump: error: connection to server on socket failed: No such file",
        b"\tIs the server running locally and accepting connections on that socket?",
    ]
    assert failure_line(lines) == lines[0]
    assert failure_line([b"one", b"", b"two"]) == b"two"
    assert failure_line([]) == b""


@pytest.mark.full
def test_service_state_is_shown_from_capture_to_restore(repo: Repo) -> None:
    repo.git("config", "envhist.service.pg.dump", "cat /tmp/nowhere dump.sql 2>/dev/null; true")
    repo.write(".envhistignore", "dump.sql\n")
    repo.write("dump.sql", PG % b"a")
    first = repo.run("envlog", "capture", "with rows", "--verify", "true", check=True)
    assert " state of pg: " in first.out
    assert ", 2 tables, 3 rows\n" in first.out
    repo.write("dump.sql", (PG % b"b").replace(b"2\ttwo\n3\tthree\n", b""))
    repo.run("envlog", "capture", "without", check=True)
    listed = repo.run("envlog", "-1", check=True).out
    assert re.search(r"✓ as at .*, services differ · pg: -2 rows in 1 table", listed)
    assert "dump      pg             ~ public.users 3 → 1 row" in repo.run("envdiff", "@~1", "@").out
    # Names of tables are sealed and stored nowhere else.
    assert "users" not in repo.git("cat-file", "-p", repo.run("envlog", "-1", "--format=%H").out.strip())
    repo.write("app.py", b"broken")
    dry = repo.run("envrestore", "-n", "@~1", check=True).out
    assert "services neither compared nor restored: pg; to restore their state from " in dry
    done = repo.run("envrestore", "--json", "@~1", check=True).out
    assert json.loads(done)["services_held"] == ["pg"]
    assert "✓ as at" in repo.run("envlog", "-1").out
    assert ", services not compared" in repo.run("envlog", "-1").out
    repo.git("config", "envhist.service.pg.dump", "echo 'error: no server' >&2; exit 1")
    failed = repo.run("envlog", "capture", "no server", check=True)
    assert "the state of service 'pg' is not stored: it exited with status 1: error: no server" in failed.err
    assert " · pg: not dumped" in repo.run("envlog", "-1", check=True).out


def test_state_after_a_restore_is_compared_with_the_last_known_one(repo: Repo) -> None:
    def state(text: bytes) -> None:
        (repo.path.parent / "dump.sql").write_bytes(text)

    whole, less = PG % b"a", (PG % b"a").replace(b"2\ttwo\n3\tthree\n", b"")
    repo.git("config", "envhist.service.pg.dump", f"cat '{repo.path.parent / 'dump.sql'}'")
    repo.git("config", "envhist.service.pg.restore", f"cat > '{repo.path.parent / 'dump.sql'}'")
    state(whole)
    first = repo.run("envlog", "capture", "--porcelain", "whole", check=True).out.strip()
    repo.write("app.py", b"two")
    repo.run("envrestore", first, check=True)
    state(less)
    repo.run("envlog", "capture", "less", check=True)
    assert repo.run("envlog", "-1", "--format=%(story)").out == "pg: -2 rows in 1 table\n"
    # The restore brings back all rows, so the next snapshot differs in none.
    repo.run("envrestore", "--services", first, check=True)
    repo.run("envlog", "capture", "whole again", check=True)
    assert repo.run("envlog", "-1", "--format=%(story)").out == "nothing changed\n"
    state(less)
    repo.run("envlog", "capture", "less again", check=True)
    assert repo.run("envlog", "-1", "--format=%(story)").out == "pg: -2 rows in 1 table\n"
