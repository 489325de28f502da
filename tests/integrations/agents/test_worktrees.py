"""Worktrees of Claude Code: created as complete forks, and captured with a name before they are removed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from socket import create_server

import pytest

from git_envhist import EnvHistory
from git_envhist.ports_in_use import ports_in_use
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


def test_installed_hooks_make_and_remove_worktrees(repo: Repo) -> None:
    repo.write(".gitignore", ".env\n")
    repo.write(".env", "KEY=1\n")
    before = repo.run("envlog", "install", "--agent", "claude-code", check=True).err
    assert "git envlog install --agent claude-code --worktrees" in before
    settings = repo.read(".claude/settings.local.json")
    after = repo.run("envlog", "install", "--agent", "claude", "--worktrees", check=True)
    assert "--worktrees" not in after.err
    hooks = json.loads(repo.read(".claude/settings.local.json"))["hooks"]

    def call_as_installed(event: str, **more: str) -> str:
        done = subprocess.run(
            ["sh", "-c", hooks[event][0]["hooks"][0]["command"]],
            input=json.dumps({"session_id": "s", "cwd": str(repo.path), **more}),
            cwd=repo.path, env=repo.env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    made = Path(call_as_installed("WorktreeCreate", name="try"))
    assert (made / ".env").read_text() == "KEY=1\n"
    call_as_installed("WorktreeRemove", worktree_path=str(made))
    assert not made.exists()
    # Another installation keeps the two hooks; without them the settings are as before.
    repo.run("envlog", "install", "--agent", "claude-code", check=True)
    assert json.loads(repo.read(".claude/settings.local.json"))["hooks"] == hooks
    assert repo.run("envlog", "status", check=True).out.count("✓") == len(hooks)
    repo.run("envlog", "uninstall", "--agent", "claude-code", check=True)
    repo.run("envlog", "install", "--agent", "claude-code", check=True)
    assert repo.read(".claude/settings.local.json") == settings


def test_worktrees_are_for_claude_code_only(repo: Repo) -> None:
    for words in (("--agent", "codex"), ()):
        done = repo.run("envlog", "install", *words, "--worktrees")
        assert done.status != 0
        assert "claude-code only" in done.err


def test_install_says_that_other_worktrees_have_no_hooks(repo: Repo, tmp_path: Path) -> None:
    said = repo.run("envlog", "install", "--agent", "codex", check=True).err
    assert "--global" not in said
    repo.git("worktree", "add", "-q", str(tmp_path / "other"))
    said = repo.run("envlog", "install", "--agent", "codex", check=True).err
    assert "git envlog install --global --agent codex" in said
    said = repo.run("envlog", "install", "--global", "--agent", "codex", check=True).err
    said += repo.run("envlog", "install", "--agent", "codex", check=True).err
    assert "--global" not in said


def test_ports_that_are_in_use_are_named(project: Repo) -> None:
    with create_server(("127.0.0.1", 0)) as listening, create_server(("127.0.0.1", 0)) as free:
        port, unused = listening.getsockname()[1], free.getsockname()[1]
        free.close()
        project.write(".env", f"API_PORT='{port}'\nPORT={unused}\nSUPPORT={port}\nPORTS={port}\n")
        assert list(ports_in_use(str(project.path))) == [f"port {port} is in use (API_PORT in .env)"]
        done = call(project, "create", project.path, name="ports")
        assert f"port {port} is in use (API_PORT in .env)" in done.stderr
        assert Path(done.stdout.strip()).is_dir()


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


def test_worktree_that_its_tool_captured_gets_no_second_name(project: Repo) -> None:
    made = create(project)
    (made / "result.txt").write_text("work of an agent")
    history = EnvHistory.open(str(made))
    kept = history.capture("before the tool").snapshot
    history.name("removed-repo-try-1", kept or "@")
    assert call(project, "remove", project.path, worktree_path=str(made)).returncode == 0
    names = [one.names for one in EnvHistory.open(str(project.path)).log(all_timelines=True) if one.names]
    assert names == [("removed-repo-try-1",)]
    # A change after the tool's snapshot is captured, too.
    made = create(project, "try 2")
    history = EnvHistory.open(str(made))
    history.name("removed-repo-try-2", history.capture("before the tool").snapshot or "@")
    (made / "late.txt").write_text("late")
    assert call(project, "remove", project.path, worktree_path=str(made)).returncode == 0
    assert EnvHistory.open(str(project.path)).read_file("removed-repo-try-2-2", "late.txt") == b"late"


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


@pytest.mark.parametrize("is_approved", [True, False])
def test_worktree_of_a_repository_runs_its_programs_only_if_a_person_approved_it(
    repo: Repo, tmp_path: Path, is_approved: bool
) -> None:
    ran = tmp_path / "ran"
    repo.write(".gitattributes", "*.x filter=own\n")
    repo.write("f.x", "text\n")
    repo.commit("filtered")
    repo.write(".git/hooks/post-checkout", f"#!/bin/sh\necho hook >>{ran}\n", mode=0o755)
    for kind, value in {"smudge": f"echo filter >>{ran}; cat", "required": "true"}.items():
        repo.git("config", f"filter.own.{kind}", value)
    repo.git("config", "core.fsmonitor", f"echo monitor >>{ran}; false")
    if is_approved:
        repo.run("envlog", "capture", check=True)
        _block_the_history(repo)
    ran.unlink(missing_ok=True)
    made = create(repo)
    assert made == repo.path / ".claude/worktrees/try-1"
    assert (made / "f.x").read_text() == "text\n"
    assert ran.exists() is is_approved


def test_filter_whose_name_cannot_be_switched_off_is_refused(repo: Repo) -> None:
    repo.git("config", "filter.a=b.smudge", "cat")
    done = call(repo, "create", repo.path, name="x")
    assert done.returncode == 1
    assert "a filter has '=' in its name" in done.stderr


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
