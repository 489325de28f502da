"""Variables of an agent's own shell: captures there know the agent, its session and its version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from git_envhist.consent import is_person
from git_envhist.git.current_actor import agent_of
from git_envhist.model import AgentName
from tests.integrations.agents.test_called import Working, told
from tests.support.repository import Repo

SHELLS: dict[str, tuple[dict[str, str], AgentName]] = {
    "claude-code": (
        {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "73d2", "AI_AGENT": "claude-code_2-1-197_agent"},
        AgentName("claude-code", "2.1.197", "73d2"),
    ),
    "codex": (
        {"CODEX_THREAD_ID": "01a1", "CODEX_SESSION_ID": "01a0", "CODEX_VERSION": "0.169.0"},
        AgentName("codex", "0.169.0", "01a0"),
    ),
    "gemini": ({"GEMINI_CLI": "1"}, AgentName("gemini")),
    "copilot": (
        {"COPILOT_CLI": "1", "COPILOT_AGENT_SESSION_ID": "76a3", "COPILOT_CLI_BINARY_VERSION": "1.0.102"},
        AgentName("copilot", "1.0.102", "76a3"),
    ),
    "hostile": (
        {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "a\nEnv-Key: b", "AI_AGENT": "x"},
        AgentName("claude-code"),
    ),
}


@pytest.mark.parametrize("agent", SHELLS)
def test_agent_of_a_shell_is_known_by_its_variables(agent: str) -> None:
    variables, expected = SHELLS[agent]
    assert agent_of(variables) == expected
    assert not is_person(variables)


def test_own_variables_come_before_those_of_an_agent() -> None:
    found = agent_of({"GIT_ENVHIST_AGENT": "builder", "CLAUDECODE": "1"})
    assert found == AgentName("builder")
    assert agent_of({"HOME": "/root"}) is None


def test_capture_in_the_shell_of_an_agent_names_it(repo: Repo) -> None:
    variables, expected = SHELLS["copilot"]
    repo.run("envlog", "capture", "by an agent", env=variables, check=True)
    (snapshot,) = EnvHistory.open(str(repo.path)).log()
    actor = snapshot.actor
    assert (actor.agent, actor.agent_version, actor.session) == (
        expected.name,
        expected.version,
        expected.session,
    )
    assert actor.name == "Test User"


def test_first_snapshot_has_the_version_before_a_transcript_exists(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "copilot")
    repo.env |= SHELLS["copilot"][0]
    here.call("copilot", "before", json.dumps(told("copilot", "before", repo, here.transcript)).encode())
    (snapshot,) = here.snapshots(1)
    assert snapshot.actor.agent_version == "1.0.102"
