"""Bare repositories with a pushed timeline: they are read, and snapshots are restored into new directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from git_envhist.errors import NotARepository
from tests.support.repository import Repo

REFS = ("refs/envhist/*:refs/envhist/*", "refs/notes/envhist/*:refs/notes/envhist/*")


@pytest.fixture
def bare(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """Return a bare repository with one snapshot of `repo`, which contains `app.py`, `.env` and an empty directory."""
    monkeypatch.setenv("GIT_ENVHIST_WORKERS", "here")
    repo.write("tool", b"#!/bin/sh\n", mode=0o755)
    (repo.path / "empty").mkdir()
    EnvHistory.open(repo.path).capture("one")
    place = tmp_path / "server" / "bare.git"
    repo.git("init", "-q", "--bare", str(place))
    repo.git("push", "-q", str(place), *REFS)
    return Repo(place, repo.env)


def timeline_of(bare: Repo) -> str:
    return bare.git("for-each-ref", "--format=%(refname)", "refs/envhist/heads").removeprefix(
        "refs/envhist/heads/"
    )


def test_envrestore_to_writes_a_snapshot_of_a_bare_repository(bare: Repo, repo: Repo, tmp_path: Path) -> None:
    before = {path for path in bare.path.rglob("*") if "envhist" not in path.parts}
    listed = json.loads(bare.run("envlog", "--all", "--json", check=True).out)
    assert [one["intent"] for one in listed] == ["one"]
    out = tmp_path / "out"
    done = bare.run("envrestore", "--to", str(out), listed[0]["id"][:9])
    assert done.status == 0, done.err
    assert (out / "app.py").read_bytes() == repo.read("app.py")
    assert (out / "tool").stat().st_mode & 0o777 == 0o755
    assert (out / "empty").is_dir()
    # Inside the git directory, and from elsewhere by name.
    assert bare.run("envrestore", "--to", str(tmp_path / "2"), timeline_of(bare), cwd="objects").status == 0
    named = {"GIT_DIR": str(bare.path)}
    assert (
        bare.run("envrestore", "--to", str(tmp_path / "3"), timeline_of(bare), cwd="..", env=named).status
        == 0
    )
    assert (tmp_path / "3/app.py").exists()
    assert {path for path in bare.path.rglob("*") if "envhist" not in path.parts} == before


@pytest.mark.parametrize(
    "words", [("envrestore", "@"), ("envlog", "capture"), ("envlog", "name", "x"), ("envlog", "gc")]
)
def test_command_that_needs_a_working_tree_is_refused_in_a_bare_repository(
    bare: Repo, words: tuple[str, ...]
) -> None:
    done = bare.run(*words)
    assert done.status == 128
    assert "is a bare repository" in done.err
    assert "--to <directory>" in done.err


def test_bare_repository_inside_a_working_tree_is_refused(bare: Repo, repo: Repo) -> None:
    bare.path.rename(repo.path / "embedded.git")
    inside = Repo(repo.path / "embedded.git", repo.env)
    done = inside.run("envlog", "--all")
    assert (done.status, "is a bare repository" in done.err) == (128, True)
    assert repo.run("envlog", "--all", cwd=".git").status == 128


def test_bare_repository_of_another_owner_is_refused_as_git_refuses_it(bare: Repo) -> None:
    bare.env["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
    done = bare.run("envlog", "--all")
    assert (done.status, "dubious ownership" in done.err) == (128, True)


def test_api_opens_a_bare_repository_only_when_asked(bare: Repo, tmp_path: Path) -> None:
    with pytest.raises(NotARepository):
        EnvHistory.open(bare.path)
    history = EnvHistory.open(bare.path, bare=True)
    assert history.timeline is None
    (snapshot,) = history.log(timeline=timeline_of(bare))
    history.write_to(snapshot, tmp_path / "out")
    assert (tmp_path / "out/app.py").exists()
    for call in (
        lambda: history.capture("no"),
        lambda: history.diff(snapshot, "now"),
        lambda: history.restore(snapshot),
        lambda: history.note("no", snapshot),
    ):
        with pytest.raises(NotARepository, match="is a bare repository"):
            call()
