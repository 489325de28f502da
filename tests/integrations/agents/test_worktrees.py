"""Worktrees of Claude Code: created as complete forks, and captured with a name before they are removed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from tests.support.privileges import as_ordinary_user
from tests.support.repository import Repo

pytestmark = pytest.mark.full


@pytest.fixture
def project(repo: Repo) -> Repo:
    repo.write(".gitignore", ".env\nnode_modules\n")
    repo.write(".env", "KEY=1\n")
    repo.write("node_modules/x/index.js", "x")
    repo.run("envlog", "install", "--agent", "claude-code", check=True)
    return repo


def call(
    repo: Repo, kind: str, cwd: Path, prefix: tuple[str, ...] = (), **event: str
) -> subprocess.CompletedProcess[str]:
    data = json.dumps({"session_id": "s", "cwd": str(cwd), **event})
    environ = {**repo.env, "CLAUDE_PROJECT_DIR": str(repo.path)}
    words = [*prefix, "git-envhist", "agent-worktree", kind]
    return subprocess.run(
        words, input=data, cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )


def create(repo: Repo, name: str = "try 1") -> Path:
    done = call(repo, "create", repo.path, name=name)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_worktree_starts_with_untracked_and_ignored_files(project: Repo) -> None:
    made = create(project)
    assert made == project.path.parent / "repo-try-1"
    assert (made / ".env").read_text() == "KEY=1\n"
    assert (made / "node_modules/x/index.js").read_text() == "x"
    assert str(made) in project.git("worktree", "list")
    assert project.git("rev-parse", "--verify", "refs/heads/worktree-try-1")


def test_second_worktree_of_a_name_gets_another_directory(project: Repo) -> None:
    assert create(project) != create(project)


def test_worktree_is_a_plain_git_worktree_without_a_snapshot(project: Repo) -> None:
    _block_the_history(project)
    done = call(project, "create", project.path, name="plain")
    made = Path(done.stdout.strip())
    assert done.returncode == 0
    assert (made / "app.py").exists()
    assert not (made / ".env").exists()


def test_removed_worktree_is_stored_under_its_name(project: Repo) -> None:
    made = create(project)
    (made / "result.txt").write_text("work of an agent")
    done = call(project, "remove", project.path, worktree_path=str(made))
    assert (done.returncode, done.stderr) == (0, "")
    assert not made.exists()
    history = EnvHistory.open(str(project.path))
    assert history.read_file("removed-repo-try-1", "result.txt") == b"work of an agent"


def test_second_removed_worktree_of_a_name_gets_another_name(project: Repo) -> None:
    for text in ("first", "second"):
        made = create(project)
        (made / "result.txt").write_text(text)
        assert call(project, "remove", project.path, worktree_path=str(made)).returncode == 0
        project.git("branch", "-D", "worktree-try-1")
    history = EnvHistory.open(str(project.path))
    assert history.read_file("removed-repo-try-1", "result.txt") == b"first"
    assert history.read_file("removed-repo-try-1-2", "result.txt") == b"second"


def test_worktree_with_an_unreadable_part_is_not_removed(project: Repo) -> None:
    made = create(project)
    (made / "locked").write_text("x")
    (made / "locked").chmod(0)
    done = call(project, "remove", project.path, as_ordinary_user(), worktree_path=str(made))
    assert done.returncode == 1
    assert "cannot be read" in done.stderr
    assert (made / "locked").exists()


def test_worktree_is_created_in_the_project_when_the_fork_place_is_unusable(project: Repo) -> None:
    project.git("config", "--global", "envhist.forkPlace", "/nonexistent/place")
    made = create(project)
    assert made == project.path / ".claude/worktrees/try-1"
    assert (made / "app.py").exists()


def test_worktree_that_cannot_be_captured_is_not_removed(project: Repo, tmp_path: Path) -> None:
    made = tmp_path / "other"
    project.git("worktree", "add", "-q", str(made))
    _block_the_history(project)
    done = call(project, "remove", project.path, worktree_path=str(made))
    assert done.returncode == 1
    assert made.exists()


def _block_the_history(repo: Repo) -> None:
    """Replace the directory of the history by a file, so that nothing can be captured."""
    shutil.rmtree(repo.path / ".git/envhist")
    (repo.path / ".git/envhist").write_text("not a directory")


@pytest.mark.parametrize("data", ["", "[]", "{", '{"name": 3, "cwd": "relative"}'])
def test_bad_input_gets_one_line(project: Repo, data: str) -> None:
    words = ["git-envhist", "agent-worktree", "remove"]
    done = subprocess.run(
        words, input=data, cwd=project.path, env=project.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("git-envhist: ")
    assert done.stderr.count("\n") == 1
    assert os.listdir(project.path.parent) == ["repo"]
