"""What a moment does not hold whole stays, or is told: counted in the plan, and named."""

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


def test_all_that_was_never_captured_is_counted_and_named_with_its_reason(repo: Repo) -> None:
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
        "big.iso": "not captured then",
        "cache": "it was left out of the snapshot",
        "closed": "the snapshot does not hold it (unreadable)",
        "data": "it is no part of the environment now",
    }
    told = repo.run("envrestore", first, check=True).out
    assert "left alone 4 (it is no part of the environment now; never captured)\n" in told
    assert [repo.read(name) for name in ("big.iso", "closed", "cache/a", "data/b")] == [b"now"] * 4
    assert repo.read("app.py") == b"then"


def test_a_directory_that_holds_what_is_left_out_stays_by_plan(repo: Repo) -> None:
    """Caches that `.envhistignore` names lie in whatever came after a moment: nothing came into it meanwhile."""
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
    assert "left alone 2 (it holds what is no part of the environment)" in done.out
    assert repo.read("lib/new/__pycache__/a.pyc") == repo.read("logs/today.log") == b"new"
    assert {path.name for path in repo.path.iterdir()} == {".git", ".envhistignore", "app.py", "lib", "logs"}
    assert not (repo.path / "lib/quiet").exists()
    repo.run("envrestore", "--undo", check=True)
    assert repo.read("lib/new/a.py") == repo.read("plain/c") == b"new"


def test_a_file_does_not_come_in_the_place_of_what_is_left_out_and_that_is_told(repo: Repo) -> None:
    repo.write(".envhistignore", b"*.log\n")
    repo.write("place", b"a file then")
    first = capture(repo, "one")
    (repo.path / "place").unlink()
    repo.write("place/today.log", b"kept")
    repo.write("place/other", b"goes")
    done = repo.run("envrestore", first)
    assert done.status == 5
    assert "warning: not as it was: 'place': it holds what is no part of the environment\n" in done.err
    assert [path.name for path in (repo.path / "place").iterdir()] == ["today.log"]


def test_without_their_key_sealed_files_stay_as_they_are(repo: Repo) -> None:
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
    why = "it is sealed, and no key here opens it"
    assert planned["left_alone"] == [{"path": path, "why": why} for path in (".env", "gone.env")]
    done = repo.run("envrestore", "--allow-unsigned", first)
    assert done.status == 5, done.err
    assert f"not as it was: '.env': {why}\n" in done.err
    assert (repo.read(".env"), repo.read("app.py")) == (b"A=2\n", b"then")
    assert not (repo.path / "gone.env").exists()
    # What is here was sealed with the key of now: taking back the restore costs nothing of it.
    repo.run("envrestore", "--undo", check=True)
    assert (repo.read(".env"), repo.read("app.py")) == (b"A=2\n", b"now")


@pytest.fixture
def immutable(repo: Repo) -> Iterator[Path]:
    """A file that its owner cannot change."""
    place = repo.write("locked/file", b"then")
    first = subprocess.run(["chattr", "+i", place], capture_output=True, check=False)
    if first.returncode:
        pytest.skip("no immutable files here")
    try:
        yield place
    finally:
        subprocess.run(["chattr", "-i", place], check=True)


def test_what_is_immutable_is_left_alone_by_the_plan_and_told(repo: Repo, immutable: Path) -> None:
    subprocess.run(["chattr", "-i", immutable], check=True)
    first = capture(repo, "one")
    immutable.write_bytes(b"now")
    repo.write("app.py", b"now")
    subprocess.run(["chattr", "+i", immutable], check=True)
    why = "it cannot be changed: it is immutable, or its file system read-only"
    plan = json.loads(repo.run("envrestore", "-n", "--json", first, check=True).out)["plan"]
    assert plan["left_alone"] == [{"path": "locked/file", "why": why}]
    done = repo.run("envrestore", first)
    assert (done.status, done.err) == (5, f"warning: not as it was: 'locked/file': {why}\n")
    assert (immutable.read_bytes(), repo.read("app.py")) == (b"now", b"print('hello')\n")


@pytest.fixture
def open_repo() -> Iterator[Repo]:
    """A repository where servers that are not ours to be may have their directories."""
    place = Path(tempfile.mkdtemp(prefix="left-"))
    try:
        place.chmod(0o755)
        yield make_repo(place / "repo")
    finally:
        shutil.rmtree(place)


@pytest.mark.full
def test_the_directory_of_a_running_postgresql_is_refused_by_name(open_repo: Repo) -> None:
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
    assert "warning: 'data' comes as it was read while it changed: PostgreSQL is using it" in done.err
    elsewhere = repo.run("envrestore", "--to", os.fspath(repo.path.parent / "there"), running, check=True)
    assert "'data' comes as it was read while it changed" in elsewhere.err
    assert "while it changed" not in repo.run("envrestore", stopped, check=True).err
    with postgres(data, sockets):
        psql(sockets, "create table t (id int)")
