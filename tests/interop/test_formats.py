"""Both object formats, both ref formats and linked worktrees, with every installed git."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.captures import capture, tip
from tests.interop.serving import assert_commands_work, linked
from tests.support.gits import OtherGit, git_with_reftable
from tests.support.repository import Repo, make_repo


def made(place: Path, hashes: str, refs: str) -> Repo:
    if refs == "files":
        return make_repo(place, object_format=hashes)
    repo = Repo(place, make_repo(place.with_name("probe"), commit=False).env)
    place.mkdir()
    repo.git("init", "-q", "--template=", f"--object-format={hashes}", "--ref-format=reftable")
    repo.write("app.py", b"print('hello')\n")
    repo.commit("first commit")
    return repo


@pytest.mark.parametrize("hashes", ["sha1", "sha256"])
def test_commands_work_with_each_object_format_and_git(
    tmp_path: Path, any_git: OtherGit, hashes: str
) -> None:
    assert_all_commands_work(made(tmp_path / "repo", hashes, "files"))


@pytest.mark.parametrize("hashes", ["sha1", "sha256"])
def test_commands_work_with_reftable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashes: str) -> None:
    git_with_reftable().put_first(monkeypatch)
    repo = made(tmp_path / "repo", hashes, "reftable")
    assert_all_commands_work(repo)
    assert (repo.path / ".git" / "refs" / "heads").is_file(), "no ref was written as a file"


def assert_all_commands_work(repo: Repo) -> None:
    first, second = assert_commands_work(repo)
    assert len(first) == len(repo.git("rev-parse", "HEAD"))
    repo.run("envlog", "name", "here", first, check=True)
    repo.run("envlog", "note", "here", "-m", "remarkable", check=True)
    assert "remarkable" in repo.run("envlog", "show", "here", check=True).out
    repo.git("gc", "-q", "--prune=now")
    assert tip(repo) == second
    assert "remarkable" in repo.git("log", "-1", "--notes=envhist/*/*", first)


def test_linked_worktree_has_its_own_timeline_with_each_git(tmp_path: Path, any_git: OtherGit) -> None:
    repo = made(tmp_path / "repo", "sha1", "reftable" if any_git.has_reftable else "files")
    main = capture(repo, "in the main one")
    other = linked(repo, tmp_path / "linked", "-b", "other")
    first, second = assert_commands_work(other)
    assert other.run("envlog", "--format=%H", check=True).out.split() == [second, first]
    assert repo.run("envlog", "--format=%H", check=True).out.split() == [main]
    cards = [json.loads(place.run("envlog", "show", "--json", check=True).out) for place in (repo, other)]
    assert [card["branch"] for card in cards] == ["refs/heads/main", "refs/heads/other"]
    caches = [repo.path / ".git" / place / "envhist" / "cache" for place in (".", "worktrees/linked")]
    assert all(any(cache.iterdir()) for cache in caches)
