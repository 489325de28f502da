"""The place of a repository agrees with `git rev-parse`, whether git was asked or not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from git_envhist.errors import EnvhistError
from git_envhist.git.repository import Repository
from tests.support.repository import Repo

WAYS = {
    "here": ":",
    "below": "mkdir -p deep/er && echo deep/er",
    "through a link": "ln -s . there && echo there",
    "a linked worktree": "git worktree add -q linked && echo linked",
    "a git directory elsewhere": "git init -q --separate-git-dir=other.git apart && echo apart",
    "a link to a git directory": "git init -q inner && mv inner/.git moved.git && ln -s ../moved.git inner/.git"
    " && echo inner",
    "a place that is set": "mkdir elsewhere && git config core.worktree ../elsewhere",
    "another hash": "git init -q --object-format=sha256 wide && echo wide",
    "worktree configuration": "git config extensions.worktreeConfig true && git config --worktree a.b c",
    "below a broken one": "mkdir -p half/.git && touch half/.git/config && echo half",
    "below one without a branch": "git init -q half && rm half/.git/HEAD && echo half",
    "below one without refs": "git init -q half && rm -r half/.git/refs && echo half",
    "at a commit": "git checkout -q --detach",
}


def ask(directory: Path, env: dict[str, str], *questions: str) -> list[str]:
    done = subprocess.run(
        ["git", "rev-parse", *questions], cwd=directory, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_repository_place_agrees_with_git(repo: Repo, way: str) -> None:
    repo.write("a", "1")
    repo.commit("one")
    made = subprocess.run(
        way, shell=True, cwd=repo.path, env=repo.env, check=True, capture_output=True, text=True
    )
    directory = repo.path / (made.stdout.split() or ["."])[-1]
    root, git_dir, object_format = ask(
        directory, repo.env, "--show-toplevel", "--absolute-git-dir", "--show-object-format"
    )

    found = Repository.open(str(directory), {os.fsencode(k): os.fsencode(v) for k, v in repo.env.items()})

    assert (found.root, found.git_dir, found.object_format) == (root, git_dir, object_format)
    common = Path(directory, *ask(directory, repo.env, "--git-common-dir"))
    assert found.common_dir == os.path.realpath(common)
    listed = subprocess.run(
        ["git", "config", "--list"], cwd=directory, env=repo.env, capture_output=True, text=True
    )
    read = [f"{key}={value}" for key, value in found.read_config()]
    # git-envhist overrides one setting only: a bare repository must be named.
    assert [line for line in read if line != "safe.barerepository=explicit"] == listed.stdout.splitlines()


def test_plain_repository_is_opened_by_one_git(repo: Repo, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    environment = {**repo.env, "GIT_TRACE2_EVENT": str(trace)}
    Repository.open(str(repo.path), {os.fsencode(k): os.fsencode(v) for k, v in environment.items()})
    assert trace.read_text().count('"event":"start"') == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_repository_that_git_refuses_is_refused(repo: Repo) -> None:
    environment = {name: value for name, value in repo.env.items() if name != "GIT_CONFIG_GLOBAL"}
    environment["GIT_CONFIG_GLOBAL"] = os.devnull
    for place in (repo.path, repo.path / ".git"):
        shutil.chown(place, 4242)
    with pytest.raises(EnvhistError, match="dubious ownership"):
        Repository.open(str(repo.path), {os.fsencode(k): os.fsencode(v) for k, v in environment.items()})
