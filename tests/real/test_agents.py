"""An agent's cleaning is undone exactly by a restore, and git's own data (HEAD, branches, stash, index) is not
changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.real.tools import Project, make_project
from tests.support.oracle import git_fsck
from tests.support.repository import make_repo

# Every test here installs packages from a registry.
pytestmark = pytest.mark.full


def fill(project: Project) -> None:
    """Add uncommitted work: staged, changed, untracked and ignored files, a nested repository with changes, a
    database."""
    repo = project.repo
    repo.write(".gitignore", ".venv/\nnode_modules/\n*.log\n.env*\nvendor/\n")
    repo.write("app.py", "print(1)\n")
    repo.write("gone.py", "print('in the way')\n")
    repo.commit("code")
    project.call(sys.executable, "-m", "venv", "--without-pip", ".venv")
    repo.write(".venv/bin/tool", "#!/bin/sh\necho tool\n", mode=0o755)
    repo.write(".env.local", "SECRET_TOKEN=0123456789abcdef\n", mode=0o600)
    repo.write("server.log", "a line\n" * 1000)
    repo.write("app.py", "print(2)\n")
    repo.git("add", "app.py")
    repo.write("app.py", "print(3)\n")
    repo.write("notes/untracked.md", "not yet added\n")
    (repo.path / "notes/empty").mkdir()
    (repo.path / "gone.py").unlink()
    vendored = make_repo(repo.path / "vendor/lib")
    vendored.write("app.py", "changed there\n")
    vendored.write("new.py", "and not added\n")
    with closing(sqlite3.connect(repo.path / "data.sqlite3")) as database:
        database.execute("create table t (x)")
        database.executemany("insert into t values (?)", [(n,) for n in range(1000)])
        database.commit()


@pytest.fixture
def work(tmp_path: Path, variables: dict[str, str]) -> Project:
    return make_project(tmp_path, variables, fill)


def clean(work: Project) -> None:
    # The second -f also cleans nested repositories.
    work.repo.git("clean", "-ffdxq")


def start_anew(work: Project) -> None:
    shutil.rmtree(work.path / ".venv")
    work.repo.git("checkout", "-q", ".")
    work.repo.git("stash", "-q", "--include-untracked")


def reset(work: Project) -> None:
    work.repo.git("reset", "-q", "--hard")


def commit_another(work: Project) -> None:
    """Commit further work on a new branch, with another index."""
    work.repo.git("checkout", "-q", "-b", "agent")
    work.repo.git("rm", "-rqf", "app.py")
    work.repo.write("rewritten.py", "print('better')\n")
    work.repo.commit("rewritten")
    work.repo.git("clean", "-ffdxq")


def remove_all(work: Project) -> None:
    for name in os.listdir(work.path):
        if name != ".git":
            work.call("rm", "-rf", "--", name)


DEEDS = [clean, start_anew, reset, commit_another, remove_all]


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
def test_restore_brings_back_cleaned_files_exactly(work: Project, deed: Callable[[Project], None]) -> None:
    deed(work)
    assert work.differences() != ()
    git = {name: work.repo.git(*words) for name, words in KEPT.items()}
    work.repo.run("envrestore", "working", check=True)
    assert work.differences() == ()
    # HEAD, the branches, the stash and the index are as the agent left them.
    assert {name: work.repo.git(*words) for name, words in KEPT.items()} == git
    assert (git_fsck(work.path), git_fsck(work.path / "vendor/lib")) == ("", "")
    lines = work.call("git", "-C", "vendor/lib", "status", "--porcelain").out.splitlines()
    assert lines == [" M app.py", "?? new.py"]
    assert work.call(".venv/bin/python", "-c", "import sys; print(sys.prefix)").out == f"{work.path}/.venv\n"
    # The agent's changes are kept as well. `git status` has rewritten the index since, so redo restores that one.
    refreshed = work.differences()
    work.repo.run("envrestore", "--undo", check=True)
    assert work.differences() not in ((), refreshed)
    work.repo.run("envrestore", "--redo", check=True)
    assert work.differences() == refreshed


KEPT = {
    "HEAD": ("symbolic-ref", "HEAD"),
    "branches": ("for-each-ref", "refs/heads"),
    "stash": ("stash", "list"),
    "index": ("ls-files", "--stage"),
}


def test_restore_finds_the_last_snapshot_when_the_cleaned_state_was_not_captured(work: Project) -> None:
    clean(work)
    output = work.repo.run("envrestore", check=True).out
    assert "it works" in output
    assert "git envrestore" in output
    work.repo.run("envrestore", "--undo", check=True)
    assert work.differences() == ()
