"""Facts about data directories of servers: real ones, and bytes written by hand."""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.probes import mysql, postgres, redis
from git_envhist.probes.base import ProbedFile
from tests.alive.servers import give_away, make_cluster, psql, redis_cli
from tests.alive.servers import postgres as postgres_server
from tests.alive.servers import redis as redis_server
from tests.support.repository import Repo, make_repo


def named(contents: dict[bytes, bytes]) -> dict[bytes, ProbedFile]:
    return {name: ProbedFile(data, len(data), False, b"x" * 20) for name, data in contents.items()}


def no_key(context: bytes, secret: bytes) -> str | None:
    return None


@pytest.fixture
def open_repo() -> Iterator[Repo]:
    """Make a repository that unprivileged servers may use."""
    place = Path(tempfile.mkdtemp(prefix="directories-"))
    try:
        place.chmod(0o755)
        yield make_repo(place / "repo")
    finally:
        shutil.rmtree(place)


def capture(repo: Repo, intent: str) -> str:
    # The status also reports that a server uses its files.
    return repo.run("envlog", "capture", "--porcelain", intent).out.strip()


def rows(repo: Repo, *words: str) -> str:
    return repo.run("envdiff", *words, "--only=databases", check=True).out


@pytest.mark.full
def test_cluster_is_listed_with_version_and_state(open_repo: Repo) -> None:
    repo = open_repo
    empty = capture(repo, "no cluster")
    data, sockets = give_away(repo.path / "pg"), give_away(repo.path.parent / "sockets")
    make_cluster(data)
    version = (data / "PG_VERSION").read_text().strip()
    stopped = capture(repo, "a cluster")
    assert rows(repo, empty, stopped) == (
        f"postgres  pg             + data shut down   + server stopped   + version {version}\n"
    )
    with postgres_server(data, sockets):
        psql(sockets, "checkpoint")
        running = capture(repo, "started")
        assert rows(repo, stopped, running) == (
            "postgres  pg             ~ data shut down → in production   ~ server stopped → started, port 5432\n"
            "database  pg             + PostgreSQL at work\n"
        )
    assert rows(repo, running, capture(repo, "stopped")) == (
        "postgres  pg             ~ data in production → shut down   ~ server started, port 5432 → stopped\n"
        "database  pg             - PostgreSQL at work\n"
    )


@pytest.mark.full
def test_redis_dump_is_listed_with_version_and_keys(open_repo: Repo) -> None:
    repo = open_repo
    empty = capture(repo, "nothing")
    data, socket = give_away(repo.path / "redis"), give_away(repo.path.parent / "s") / "socket"
    with redis_server(data, socket):
        redis_cli(socket, "mset", *(f"{word}{n}" for n in range(100) for word in ("k", "v")))
        redis_cli(socket, "save")
        first = capture(repo, "100 keys")
        redis_cli(socket, "set", "other", "x")
        redis_cli(socket, "save")
        second = capture(repo, "101 keys")
    told = rows(repo, empty, first)
    assert "redis     redis/appendonlydir/appendonly.aof.manifest + log base 1 and 1 part\n" in told
    assert "redis     redis/dump.rdb + keys 100   + version " in told
    assert "database  redis          + Redis at work\n" in told
    assert rows(repo, first, second) == "redis     redis/dump.rdb ~ keys 100 → 101\n"
    assert "database  redis          - Redis at work\n" in rows(repo, second, capture(repo, "stopped"))


def test_mysql_directory_is_listed_with_version_and_tables() -> None:
    def told(directory: bytes, contents: dict[bytes, bytes]) -> dict[str, str]:
        return {fact.key: fact.value for fact in mysql.facts_of(directory, named(contents), no_key)}

    top = {b"ibdata1": b"", b"mysql_upgrade_info": b"10.11.19-MariaDB", b"host.pid": b""}
    assert told(b"db", top) == {"db/version": "10.11.19-MariaDB", "db/server": "started"}
    history = (
        b'{"file_format":"1","upgrade_history":[{"version":"8.0.36"},{"version":"8.4.1","initialize":true}]}'
    )
    assert told(b"", {b"ibdata1": b"", b"mysql_upgrade_history": history}) == {
        "version": "8.4.1",
        "server": "stopped",
    }
    files = {b"orders.frm": b"", b"orders.ibd": b"", b"log#P#p0.ibd": b"", b"FTS_0001_CONFIG.ibd": b""}
    assert told(b"db/shop", files) == {"db/shop/table log": "", "db/shop/table orders": ""}
    assert told(b"db/mysql", files) == {}


def test_single_database_of_a_cluster_is_not_a_cluster() -> None:
    assert not [*postgres.facts_of(b"pg/base/1", named({b"PG_VERSION": b"15\n"}), no_key)]
    control = struct.pack("<QIII", 7, 1300, 202209061, 6) + bytes(100)
    assert [
        fact.value for fact in postgres.facts_of(b"pg/global", named({b"pg_control": control}), no_key)
    ] == ["in production"]
    assert not [*postgres.facts_of(b"x/global", named({b"pg_control": bytes(100)}), no_key)]


def test_valkey_dump_is_listed_like_a_redis_dump() -> None:
    head = b"VALKEY080\xfa\x0avalkey-ver\x059.0.0\xfa\x05ctime\xc2abcd\xfe\x03\xfb\x41\x00\x00"
    told = [*redis.facts_of(b"", named({b"dump.rdb": head}), no_key)]
    assert {fact.key: fact.value for fact in told} == {
        "dump.rdb/version": "9.0.0",
        "dump.rdb/keys of database 3": "256",
    }
    large = {b"dump.rdb": ProbedFile(None, 9 << 20, False, b"x" * 20, ((0, head),))}
    assert [*redis.facts_of(b"", large, no_key)] == told


@given(st.binary(max_size=80), st.lists(st.integers(0, 255), max_size=4))
def test_malformed_data_directories_raise_nothing(tail: bytes, signs: list[int]) -> None:
    for head in (b"REDIS0011", b"REDIS0011\xfa", b"REDIS0011\xfe", b"file a seq 1 type b\nfile "):
        for name in (b"dump.rdb", b"x.aof.manifest"):
            list(redis.facts_of(b"", named({name: head + bytes(signs) + tail}), no_key))
    list(postgres.facts_of(b"global", named({b"pg_control": tail}), no_key))
    cluster = {b"PG_VERSION": b"15", b"pg_hba.conf": b"", b"postmaster.pid": b"1\n\n\n" + tail}
    assert len([*postgres.facts_of(b"", named(cluster), no_key)]) == 2
    list(mysql.facts_of(b"", named({b"ibdata1": b"", b"mysql_upgrade_history": tail}), no_key))
