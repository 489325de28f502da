"""Paths that a snapshot does not contain completely are skipped, counted in the plan, and named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.alive.servers import give_away, make_cluster, postgres, psql
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo, make_repo


def capture(repo: Repo, intent: str, **manner: tuple[str, ...]) -> str:
    words = ("envlog", "capture", "--porcelain", intent)
    return repo.run(*words, check=True, prefix=manner.get("prefix", ())).out.strip()


def test_never_captured_paths_are_counted_and_named_with_reasons(repo: Repo) -> None:
    user = as_ordinary_user()
    repo.git("config", "envhist.fingerprint", "big.iso")
    repo.write(".envhistignore", b"cache/\n")
    for name in ("big.iso", "closed", "cache/a", "data/b", "app.py"):
        repo.write(name, b"then")
    (repo.path / "closed").chmod(0)
    first = capture(repo, "one", prefix=user)
    (repo.path / "closed").chmod(0o600)
    repo.git("config", "--unset", "envhist.fingerprint")
    repo.git("config", "envhist.exclude", "data/")
    repo.write(".envhistignore", b"")
    for name in ("big.iso", "closed", "cache/a", "data/b", "app.py"):
        repo.write(name, b"now")
    plan = json.loads(repo.run("envrestore", "-n", "--json", first, check=True).out)["plan"]
    assert {item["path"]: item["why"] for item in plan["left_alone"]} == {
        "big.iso": "not in the snapshot",
        "cache": "excluded from the snapshot",
        "closed": "not in the snapshot (unreadable)",
        "data": "excluded from the environment now",
    }
    output = repo.run("envrestore", first, check=True).out
    assert "skipped 4 (excluded from the environment now; not captured)\n" in output
    assert [repo.read(name) for name in ("big.iso", "closed", "cache/a", "data/b")] == [b"now"] * 4
    assert repo.read("app.py") == b"then"


def test_directory_with_excluded_files_is_kept_by_the_plan(repo: Repo) -> None:
    """Caches excluded by `.envhistignore` are in a directory created after the snapshot."""
    repo.write(".envhistignore", b"__pycache__/\n*.log\n")
    first = capture(repo, "one")
    for name in ("lib/new/a.py", "lib/new/__pycache__/a.pyc", "lib/quiet/b.py", "logs/today.log", "plain/c"):
        repo.write(name, b"new")
    plan = json.loads(repo.run("envrestore", "-n", "--json", first, check=True).out)["plan"]
    assert {item["path"] for item in plan["left_alone"]} == {"lib/new", "logs"}
    assert {step["path"] for step in plan["steps"]} == {
        "lib/new/a.py", "lib/quiet", "lib/quiet/b.py", "plain", "plain/c",
    }  # fmt: skip
    done = repo.run("envrestore", first)
    assert (done.status, done.err) == (0, "")
    assert "skipped 2 (contains excluded paths)" in done.out
    assert repo.read("lib/new/__pycache__/a.pyc") == repo.read("logs/today.log") == b"new"
    assert {path.name for path in repo.path.iterdir()} == {".git", ".envhistignore", "app.py", "lib", "logs"}
    assert not (repo.path / "lib/quiet").exists()
    repo.run("envrestore", "--undo", check=True)
    assert repo.read("lib/new/a.py") == repo.read("plain/c") == b"new"


def test_file_is_skipped_when_a_directory_with_excluded_files_is_in_its_place(repo: Repo) -> None:
    repo.write(".envhistignore", b"*.log\n")
    repo.write("place", b"a file then")
    first = capture(repo, "one")
    (repo.path / "place").unlink()
    repo.write("place/today.log", b"kept")
    repo.write("place/other", b"goes")
    done = repo.run("envrestore", first)
    assert done.status == 5
    assert "warning: not restored exactly: 'place': contains excluded paths\n" in done.err
    assert [path.name for path in (repo.path / "place").iterdir()] == ["today.log"]


def test_sealed_files_are_skipped_when_their_key_is_missing(repo: Repo) -> None:
    repo.write(".env", b"A=1\n")
    repo.write("gone.env", b"B=1\n")
    repo.write("app.py", b"then")
    first = capture(repo, "one")
    repo.write(".env", b"A=2\n")
    (repo.path / "gone.env").unlink()
    repo.write("app.py", b"now")
    for keys in (repo.path / ".git/envhist/keys", Path(repo.env["XDG_CONFIG_HOME"]) / "git-envhist/keys"):
        shutil.rmtree(keys)
    refused = repo.run("envrestore", first)
    assert refused.status == 3
    assert "git envlog key import" in refused.err
    planned = json.loads(repo.run("envrestore", "-n", "--json", "--allow-unsigned", first, check=True).out)[
        "plan"
    ]
    why = "it is sealed with a key that you do not have"
    assert planned["left_alone"] == [{"path": path, "why": why} for path in (".env", "gone.env")]
    done = repo.run("envrestore", "--allow-unsigned", first)
    assert done.status == 5, done.err
    assert f"not restored exactly: '.env': {why}\n" in done.err
    assert (repo.read(".env"), repo.read("app.py")) == (b"A=2\n", b"then")
    assert not (repo.path / "gone.env").exists()
    # The safety snapshot was sealed with the new key, so undo restores its files.
    repo.run("envrestore", "--undo", check=True)
    assert (repo.read(".env"), repo.read("app.py")) == (b"A=2\n", b"now")


@pytest.fixture
def immutable(repo: Repo) -> Iterator[Path]:
    """Create an immutable file."""
    place = repo.write("locked/file", b"then")
    first = subprocess.run(["chattr", "+i", place], capture_output=True, check=False)
    if first.returncode:
        pytest.skip("the file system has no immutable files")
    try:
        yield place
    finally:
        subprocess.run(["chattr", "-i", place], check=True)


def test_immutable_file_is_skipped_and_reported(repo: Repo, immutable: Path) -> None:
    subprocess.run(["chattr", "-i", immutable], check=True)
    first = capture(repo, "one")
    immutable.write_bytes(b"now")
    repo.write("app.py", b"now")
    subprocess.run(["chattr", "+i", immutable], check=True)
    why = "immutable, or on a read-only file system"
    plan = json.loads(repo.run("envrestore", "-n", "--json", first, check=True).out)["plan"]
    assert plan["left_alone"] == [{"path": "locked/file", "why": why}]
    done = repo.run("envrestore", first)
    assert (done.status, done.err) == (5, f"warning: not restored exactly: 'locked/file': {why}\n")
    assert (immutable.read_bytes(), repo.read("app.py")) == (b"now", b"print('hello')\n")


@pytest.fixture
def open_repo() -> Iterator[Repo]:
    """Return a repository in which servers of other users can have their directories."""
    place = Path(tempfile.mkdtemp(prefix="left-"))
    try:
        place.chmod(0o755)
        yield make_repo(place / "repo")
    finally:
        shutil.rmtree(place)


@pytest.mark.full
def test_directory_of_a_running_postgresql_is_refused_by_name(open_repo: Repo) -> None:
    repo = open_repo
    data, sockets = give_away(repo.path / "data"), give_away(repo.path.parent / "sockets")
    make_cluster(data)
    stopped = capture(repo, "stopped")
    with postgres(data, sockets) as server:
        psql(sockets, "create table t (id int)")
        running = capture(repo, "running")
        psql(sockets, "create table u (id int)")
        refused = repo.run("envrestore", stopped)
        assert refused.status == 3
        assert f"PostgreSQL is using it (process {server.pid})" in refused.err
        repo.write("app.py", b"other")
        repo.run("envrestore", stopped, "--", "app.py", check=True)
    done = repo.run("envrestore", running, check=True)
    assert "warning: 'data' was captured while it changed: PostgreSQL is using it" in done.err
    elsewhere = repo.run("envrestore", "--to", os.fspath(repo.path.parent / "there"), running, check=True)
    assert "'data' was captured while it changed" in elsewhere.err
    assert "while it changed" not in repo.run("envrestore", stopped, check=True).err
    with postgres(data, sockets):
        psql(sockets, "create table t (id int)")
