"""Several agents at the same time: no capture fails or is lost, and each snapshot names its agent."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

from git_envhist.api import EnvHistory
from tests.integrations.agents.test_called import hooks_of, told
from tests.support.oracle import git_fsck
from tests.support.repository import Repo

PROCESSES = 4
EACH = 2


def begin(repo: Repo, directory: Path, session: str, call: str, name: str) -> subprocess.Popen[bytes]:
    """Change a file and start the hook that runs before a tool; it waits for its snapshot."""
    (directory / name).write_text(f"{call}\n")
    shim = hooks_of(repo) / "agent-claude-code"
    event = told("claude-code", "before", repo, directory / "none", session_id=session, tool_use_id=call)
    begun = subprocess.Popen(
        [shim, "before"], cwd=directory, env=repo.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert begun.stdin is not None
    begun.stdin.write(json.dumps({**event, "cwd": str(directory)}).encode())
    begun.stdin.close()
    begun.stdin = None
    return begun


def end(begun: list[subprocess.Popen[bytes]]) -> None:
    for each in begun:
        assert each.communicate() == (b"", None)
        assert each.returncode == 0


def test_two_agents_in_two_worktrees_and_four_processes_in_one(repo: Repo) -> None:
    other = repo.path.parent / "other"
    repo.git("worktree", "add", "-q", str(other))
    repo.git("config", "envhist.agentTimeout", "2m")
    repo.run("envlog", "install", "--agent", "claude-code", check=True)

    by_hand = [
        subprocess.Popen(
            ["git-envlog", "capture", "--porcelain", f"hand {number}"], cwd=repo.path, env=repo.env,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for number in range(PROCESSES)
    ]  # fmt: skip
    for number in range(EACH):
        # Each agent writes in its own working tree, so each hook has something new to capture.
        end([
            begin(repo, repo.path, "left", f"l{number}", "left"),
            begin(repo, other, "right", f"r{number}", "right"),
        ])  # fmt: skip
    ids = []
    for each in by_hand:
        out, err = each.communicate()
        assert each.returncode == 0, err
        ids.append(out.decode().strip())

    here, there = (
        EnvHistory.open(str(directory), one_command=True).log() for directory in (repo.path, other)
    )
    assert set(ids) <= {snapshot.id for snapshot in here}
    assert len(set(ids)) == PROCESSES
    sessions = Counter(snapshot.actor.session for snapshot in here if snapshot.actor.agent)
    # A manual capture may include the agent's change already; then its hook takes no snapshot.
    assert sessions.keys() <= {"left"}
    assert Counter(snapshot.actor.session for snapshot in there) == {"right": EACH}
    assert all(snapshot.actor.agent == "claude-code" for snapshot in there)
    assert {snapshot.intent for snapshot in here if not snapshot.actor.agent} == {
        f"hand {number}" for number in range(PROCESSES)
    }
    assert repo.git("cat-file", "blob", f"{here[0].tree}:left") == f"l{EACH - 1}"
    assert repo.git("cat-file", "blob", f"{there[0].tree}:right") == f"r{EACH - 1}"
    assert git_fsck(repo.path) == ""
    # No failure is reported either.
    for directory in (repo.path, other):
        assert "failed" not in repo.run("envlog", "status", cwd=directory, check=True).out
