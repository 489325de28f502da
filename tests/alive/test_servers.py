"""Data directories of database servers: reported while a server uses them, exact otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.model import CaptureResult
from tests.alive.servers import (
    give_away,
    make_cluster,
    postgres,
    psql,
    redis,
    redis_cli,
    wait_until,
)
from tests.end_to_end.captures import assert_holds
from tests.support.needs import skip_without
from tests.support.repository import Repo, make_repo

pytestmark = pytest.mark.full

SYSTEM_PYTHON = "/usr/bin/python3"


@pytest.fixture
def open_repo() -> Iterator[Repo]:
    """Make a repository that unprivileged servers may use."""
    place = Path(tempfile.mkdtemp(prefix="alive-"))
    try:
        place.chmod(0o755)
        yield make_repo(place / "repo")
    finally:
        shutil.rmtree(place)


def captured(repo: Repo) -> CaptureResult:
    return EnvHistory.open(str(repo.path), workers="fork", one_command=True).capture("x")


def told(taken: CaptureResult) -> list[tuple[bytes, str, str]]:
    """Return the paths reported as inconsistent: (path, reason, server)."""
    return [(one.path, one.why.value, one.detail.partition(" is using")[0]) for one in taken.missing]


def is_exact(repo: Repo) -> bool:
    taken = captured(repo)
    assert taken.missing == ()
    assert taken.snapshot is not None
    assert_holds(repo, taken.snapshot.commit)
    return True


def test_postgresql_cluster_is_reported_while_its_server_runs_and_exact_otherwise(
    open_repo: Repo,
) -> None:
    data, sockets = give_away(open_repo.path / "pg"), give_away(open_repo.path.parent / "sockets")
    make_cluster(data)
    with postgres(data, sockets) as server:
        psql(sockets, "create table t as select generate_series(1, 1000) as n")
        assert (b"pg", "unstable", "PostgreSQL") in told(captured(open_repo))
        # Its process id may be reused by then, or differ inside a container.
        (data / "postmaster.pid").write_bytes(b"%d\n" % os.getpid())
        assert (b"pg", "unstable", "PostgreSQL") in told(captured(open_repo))
        (data / "postmaster.pid").write_bytes(b"%d\n" % server.pid)
    assert is_exact(open_repo)
    # After a crash the files do not change any more, and the server itself recovers from them.
    (data / "postmaster.pid").write_bytes(b"%d\n" % os.getpid())
    assert is_exact(open_repo)


def test_pipe_in_place_of_a_lock_file_does_not_block(repo: Repo) -> None:
    repo.write("pg/PG_VERSION", b"15\n")
    os.mkfifo(repo.path / "pg/postmaster.pid")
    assert is_exact(repo)


def test_redis_files_are_reported_while_it_runs_and_exact_otherwise(open_repo: Repo) -> None:
    data, socket = give_away(open_repo.path / "redis"), give_away(open_repo.path.parent / "s") / "socket"
    with redis(data, socket):
        redis_cli(socket, "set", "key", "value")
        redis_cli(socket, "save")
        first = told(captured(open_repo))
        assert (b"redis", "unstable", "Redis") in first
        assert (b"redis/appendonlydir", "unstable", "Redis") in first
        redis_cli(socket, "set", "key", "other")
        assert (b"redis/appendonlydir", "unstable", "Redis") in told(captured(open_repo))
    assert is_exact(open_repo)


HOLDERS = {
    "LMDB": "import lmdb; held = lmdb.open('data')",
    "LevelDB": "import plyvel; held = plyvel.DB('data', create_if_missing=True)",
}


@contextmanager
def held(repo: Repo, python: str, holder: str) -> Iterator[None]:
    """Run a program that keeps a database open while the context lasts."""
    words = [python, "-c", f"{textwrap.dedent(holder)}\nprint(flush=True)\ninput()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=repo.path) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        yield
        child.communicate(b"\n")


@pytest.mark.parametrize("kind", HOLDERS)
def test_embedded_database_is_reported_while_open(repo: Repo, kind: str) -> None:
    module = HOLDERS[kind].split()[1].rstrip(";")
    if subprocess.run([SYSTEM_PYTHON, "-c", f"import {module}"], capture_output=True, check=False).returncode:
        skip_without(f"python3-{module}")
    with held(repo, SYSTEM_PYTHON, HOLDERS[kind]):
        assert told(captured(repo)) == [(b"data", "unstable", kind)]
    assert is_exact(repo)


def test_single_lmdb_file_is_reported_while_open(repo: Repo) -> None:
    if subprocess.run([SYSTEM_PYTHON, "-c", "import lmdb"], capture_output=True, check=False).returncode:
        skip_without("python3-lmdb")
    with held(repo, SYSTEM_PYTHON, "import lmdb; held = lmdb.open('lone', subdir=False)"):
        assert [(one.path, one.why.value) for one in captured(repo).missing] == [(b"lone", "unstable")]
    assert is_exact(repo)


@pytest.mark.parametrize(
    ("server", "mark", "lock"),
    [("MySQL", "ibdata1", "ibdata1"), ("MongoDB", "WiredTiger", "WiredTiger.lock")],
)
def test_server_is_detected_by_its_lock_and_not_by_its_file(
    repo: Repo, server: str, mark: str, lock: str
) -> None:
    repo.write(f"data/{mark}", b"1")
    repo.write(f"data/{lock}", b"1")
    # InnoDB and WiredTiger lock their files like this: the whole file, for writing, while they run.
    with held(
        repo, sys.executable, f"import fcntl; f = open('data/{lock}', 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX)"
    ):
        assert told(captured(repo)) == [(b"data", "unstable", server)]
    assert is_exact(repo)


def test_killed_server_is_not_reported(open_repo: Repo) -> None:
    data, socket = give_away(open_repo.path / "redis"), give_away(open_repo.path.parent / "s") / "socket"
    with redis(data, socket) as server:
        redis_cli(socket, "set", "key", "value")
        server.kill()
        wait_until(lambda: server.poll() is not None)
        assert is_exact(open_repo)
