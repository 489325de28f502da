"""PostgreSQL and Redis, dumped and loaded by their own commands: a restore restores their state."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.alive.servers import (
    give_away,
    make_cluster,
    postgres,
    postgres_program,
    program,
    psql,
    wait_until,
)
from tests.support.repository import Repo

pytestmark = pytest.mark.full


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Make a directory that unprivileged servers may use."""
    place = Path(tempfile.mkdtemp(prefix="services-"))
    try:
        place.chmod(0o755)
        yield place
    finally:
        shutil.rmtree(place)


def test_running_postgresql_is_dumped_and_restored(repo: Repo, open_place: Path) -> None:
    data, sockets = give_away(open_place / "cluster"), give_away(open_place / "sockets")
    sockets.chmod(0o755)
    make_cluster(data)
    place = f"-h '{sockets}' -U test"
    dump = f"'{postgres_program('pg_dump')}' --clean --if-exists {place} postgres"
    restore = f"'{postgres_program('psql')}' -q -v ON_ERROR_STOP=1 --single-transaction {place} postgres"
    repo.git("config", "envhist.service.pg.dump", dump)
    repo.git("config", "envhist.service.pg.restore", restore)

    def rows() -> str:
        words = [postgres_program("psql"), "-qAt", "-h", str(sockets), "-U", "test"]
        asked = [*words, "-c", "select id, name from users order by id", "postgres"]
        return subprocess.run(asked, capture_output=True, check=True, text=True, cwd="/").stdout

    with postgres(data, sockets):
        psql(sockets, "create table users (id int primary key, name text)")
        psql(sockets, "insert into users select n, 'user ' || n from generate_series(1, 500) n")
        first = repo.run("envlog", "capture", "--porcelain", "500 users", check=True).out.strip()
        then = rows()
        psql(sockets, "delete from users where id > 3; update users set name = 'gone'; create table junk ()")
        repo.write("app.py", b"broken")
        now = rows()
        done = repo.run("envrestore", "--services", first, check=True)
        assert "pg restored from" in done.out
        assert (rows(), repo.read("app.py")) == (then, b"print('hello')\n")
        # The same restore again: no file differs, and a changed server is neither overlooked nor called unchanged.
        psql(sockets, "delete from users where id > 9")
        output = repo.run("envrestore", first, check=True).out
        assert "services neither compared nor restored: pg" in output
        again = repo.run("envrestore", "--services", first, check=True)
        assert "pg restored from" in again.out
        assert rows() == then
        listed = repo.run("envlog", "--no-fold", "-2", "--format=%s|%(story)").out
        assert "(with services)|no file changed\n" in listed
        assert "|pg: -491 rows in " in listed
        repo.run(*again.out.rstrip().rpartition("to undo: git ")[2].split(), check=True)
        assert rows().count("\n") == 9
        repo.run("envrestore", "--services", first, check=True)
        repo.run("envrestore", "--undo", "--services", check=True)
        assert (rows(), repo.read("app.py")) == (now, b"broken")
        # A stopped server causes a warning at a capture, and refusal of its restore.
    output = repo.run("envlog", "capture", "without a server", check=True)
    assert "the state of service 'pg' is not stored: it exited with status 1" in output.err
    assert repo.run("envrestore", "--services", first).status == 3


@contextmanager
def ended(cli: list[str]) -> Iterator[None]:
    """Stop every server at the end of the block, also after an error."""
    try:
        yield
    finally:
        subprocess.run([*cli, "shutdown", "nosave"], capture_output=True, check=False)


def test_redis_is_stopped_restored_and_started(repo: Repo, tmp_path: Path) -> None:
    data = tmp_path / "redis"
    data.mkdir()
    socket = tmp_path / "r.sock"
    cli = [program("redis-cli"), "-s", str(socket)]
    client = " ".join(f"'{word}'" for word in cli)
    # A server waits 5 seconds for more replicas before it sends its data, by default.
    options = f"--port 0 --unixsocket '{socket}' --dir '{data}' --repl-diskless-sync-delay 0 --daemonize yes"
    start = f"'{program('redis-server')}' {options}"
    wait = f"until {client} ping 2>/dev/null | grep -q PONG; do sleep 0.05; done"
    commands = {
        "dump": f"f=$(mktemp) && {client} --rdb $f >/dev/null 2>&1 && cat $f && rm $f",
        "restore": f"cat > '{data}/dump.rdb'",
        "stop": f"{client} shutdown nosave",
        "start": f"{start} && {wait}",
    }
    for verb, command in commands.items():
        repo.git("config", f"envhist.service.redis.{verb}", command)

    def ask(*words: str) -> str:
        return subprocess.run([*cli, *words], capture_output=True, check=True, text=True).stdout.strip()

    with ended(cli):
        subprocess.run(["/bin/sh", "-c", commands["start"]], check=True, stdout=subprocess.DEVNULL)
        wait_until(lambda: ask("ping") == "PONG")
        for number in range(100):
            ask("set", f"key{number}", "a")
        first = repo.run("envlog", "capture", "--porcelain", "100 keys", check=True).out.strip()
        process = ask("info", "server").partition("process_id:")[2].split()[0]
        ask("flushall")
        ask("set", "only", "b")
        done = repo.run("envrestore", "--services", first, check=True)
        assert "redis stopped; redis restored from" in done.out
        assert ask("info", "server").partition("process_id:")[2].split()[0] != process
        assert (ask("dbsize"), ask("get", "key99"), ask("get", "only")) == ("100", "a", "")
        repo.run(*done.out.rstrip().rpartition("to undo: git ")[2].split(), check=True)
        assert (ask("dbsize"), ask("get", "only")) == ("1", "b")
