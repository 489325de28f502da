"""Working trees of one session: linked worktrees share its state, and each directory of a workspace is captured."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from git_envhist.handlers.agent_hook import other_worktree
from git_envhist.model import Snapshot
from tests.integrations.agents.test_called import PROMPT, Working, told
from tests.support.repository import Repo, make_repo


@pytest.fixture
def here(repo: Repo, tmp_path: Path) -> Working:
    repo.git("worktree", "add", "-q", str(tmp_path / "other"))
    repo.env["CLAUDE_PROJECT_DIR"] = str(repo.path)
    return Working(repo, tmp_path / "transcript.jsonl", "claude-code")


def log(directory: Path) -> list[Snapshot]:
    return EnvHistory.open(str(directory), one_command=True).log()


def test_tool_in_another_worktree_is_captured_there_with_the_intent_of_the_session(
    here: Working, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    here.call("claude-code", "prompt")
    (other / "f").write_text("old bytes\n")
    # The agent names its project; the tool works in the worktree.
    here.call("claude-code", "before", cwd=str(other), then=f"echo new bytes >{other}/f")
    here.call("claude-code", "after")
    here.idle()
    after, before = log(other)
    assert here.repo.git("cat-file", "blob", f"{before.tree}:f") == "old bytes"
    assert here.repo.git("cat-file", "blob", f"{after.tree}:f") == "new bytes"
    assert {one.intent for one in (before, after)} == {PROMPT}
    assert {dict(one.meta)["agent-turn"] for one in (before, after)} == {"1"}
    assert [dict(one.meta)["agent-moment"] for one in log(here.repo.path)] == ["after"]


def test_worktree_that_an_agent_removes_is_found_by_its_name(here: Working, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "result.txt").write_text("work of an agent")
    leave = {"tool_name": "ExitWorktree", "tool_input": {"action": "remove", "discard_changes": True}}
    here.call("claude-code", "before", cwd=str(other), tool_use_id="1", **leave)
    here.idle()
    here.repo.git("worktree", "remove", "--force", str(other))
    history = EnvHistory.open(str(here.repo.path))
    assert history.read_file("removed-other", "result.txt") == b"work of an agent"
    # What followed in the removed worktree fails nowhere.
    here.call("claude-code", "after")
    here.idle()
    assert "failed" not in here.repo.run("envlog", "status", check=True).out


def test_worktree_that_stays_gets_no_name(here: Working, tmp_path: Path) -> None:
    stay = {"tool_name": "ExitWorktree", "tool_input": {"action": "keep"}}
    here.call("claude-code", "before", cwd=str(tmp_path / "other"), **stay)
    here.idle()
    assert [one.names for one in log(tmp_path / "other")] == [()]


def test_each_directory_of_a_workspace_is_captured(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "cursor")
    second, unknown = make_repo(tmp_path / "second"), make_repo(tmp_path / "unknown")
    second.run("envlog", "install", "--agent", "cursor", check=True)
    roots = [str(one.path) for one in (repo, unknown, second)]
    for each in (repo, second, unknown):
        each.write("f", "old bytes\n")
    data = {**told("cursor", "before", repo, here.transcript), "workspace_roots": roots}
    here.call("cursor", "before", json.dumps(data).encode(), then=f"echo new >f; echo new >{second.path}/f")
    for each in (repo, second):
        (snapshot,) = log(each.path)
        assert each.git("cat-file", "blob", f"{snapshot.tree}:f") == "old bytes"
    assert log(unknown.path) == []


def test_subdirectory_of_another_repository_is_no_worktree(here: Working, tmp_path: Path) -> None:
    repository = EnvHistory.open(str(here.repo.path)).repository
    other, nested = tmp_path / "other", here.repo.path / "nested"
    (other / "deep/er").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", nested], check=True)
    assert other_worktree(repository, str(other / "deep/er")) == str(other)
    assert other_worktree(repository, str(here.repo.path)) is None
    assert other_worktree(repository, str(nested)) is None
    assert other_worktree(repository, None) is None
    # A file of an archive may name the git directory of a worktree, which names another place.
    (tmp_path / "forged").mkdir()
    (tmp_path / "forged/.git").write_text((other / ".git").read_text())
    assert other_worktree(repository, str(tmp_path / "forged")) is None
    own = EnvHistory.open(str(other)).repository
    assert other_worktree(own, str(other)) is None


def test_session_started_in_a_linked_worktree_is_captured(here: Working, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "f").write_text("old bytes\n")
    here.repo.env["CLAUDE_PROJECT_DIR"] = str(other)
    here.call("claude-code", "before", cwd=str(other))
    until = time.monotonic() + 60
    while not log(other) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(log(other)) == 1
