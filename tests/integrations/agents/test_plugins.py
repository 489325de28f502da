"""The plugin below hooks/plugins/: its files, its hooks as an agent calls them, the commands of its skill."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from tests.integrations.agents.plugin_files import NAME, ROOT, files, text_of
from tests.integrations.agents.test_called import PROMPT, Working, hooks_of, told
from tests.support.repository import Repo

PLUGIN = ROOT / NAME
SKILL = PLUGIN / "skills/git-envhist/SKILL.md"
EVENTS = {
    "claude-code": {"prompt": "UserPromptSubmit", "before": "PreToolUse", "after": "Stop"},
    "codex": {"prompt": "UserPromptSubmit", "before": "PreToolUse", "after": "Stop"},
    "cursor": {"prompt": "beforeSubmitPrompt", "before": "preToolUse", "after": "stop"},
    "copilot": {"prompt": "userPromptSubmitted", "before": "preToolUse", "after": "agentStop"},
}


class Plugged(Working):
    """A working tree whose agent has the plugin, and nothing of ours in its settings."""

    def command(self, agent: str, kind: str) -> str:
        entry = json.loads((PLUGIN / f"hooks/{agent}.json").read_text())["hooks"][EVENTS[agent][kind]][0]
        handler = entry["hooks"][0] if "hooks" in entry else entry
        return str(handler.get("command") or handler["bash"])


def test_plugin_files_follow_the_forms_of_the_settings() -> None:
    there = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.json")}
    wanted = files()
    assert there == set(wanted), "write them: python -m tests.integrations.agents.plugin_files"
    for path, value in wanted.items():
        assert (ROOT / path).read_text() == text_of(value), path


def test_copilot_gets_no_server_because_it_would_serve_the_directory_of_the_plugin() -> None:
    assert "mcpServers" not in json.loads((PLUGIN / ".github/plugin/plugin.json").read_text())
    assert not (PLUGIN / ".mcp.json").exists()


def test_paths_in_the_manifests_exist() -> None:
    for manifest in PLUGIN.glob(".*/**/plugin.json"):
        value = json.loads(manifest.read_text())
        for key in ("hooks", "skills", "mcpServers"):
            assert not isinstance(value.get(key), str) or (PLUGIN / value[key]).exists()
    assert SKILL.read_text().startswith("---\nname: git-envhist\ndescription: ")


@pytest.mark.parametrize("agent", EVENTS)
def test_hooks_of_the_plugin_capture_without_an_installation(repo: Repo, tmp_path: Path, agent: str) -> None:
    here = Plugged(repo, tmp_path / "transcript.jsonl")
    repo.write("f", "old")
    # No snapshot is taken in a repository that no person captured.
    here.call(agent, "before")
    assert EnvHistory.open(str(repo.path), one_command=True).log() == []
    repo.run("envlog", "capture", "by hand", check=True)
    repo.write("f", "older")
    here.call(agent, "prompt")
    here.call(agent, "before", then="echo new >f")
    here.call(agent, "after")
    after, before, _ = here.snapshots(3)
    assert {after.intent, before.intent} == {PROMPT}
    assert repo.git("cat-file", "blob", f"{before.tree}:f") == "older"
    # The script counts as installed for every repository, and is removed in the same way.
    here.idle()
    repo.run("envlog", "uninstall", check=True)
    assert (hooks_of(repo) / f"agent-{agent}").exists()
    repo.run("envlog", "uninstall", "--global", "--agent", agent, check=True)
    assert not (hooks_of(repo) / f"agent-{agent}").exists()


def test_hooks_of_plugin_and_settings_make_one_capture(repo: Repo, tmp_path: Path) -> None:
    here = Plugged(repo, tmp_path / "transcript.jsonl", "claude-code")
    event = json.dumps(told("claude-code", "before", repo, here.transcript)).encode()
    settings = Working(repo, here.transcript)
    settings.call("claude-code", "before", event, then="echo 1 >f")
    here.call("claude-code", "before", event, then="echo 2 >f")
    here.snapshots(1)


def test_hook_of_the_plugin_does_nothing_without_the_program(repo: Repo, tmp_path: Path) -> None:
    here = Plugged(repo, tmp_path / "transcript.jsonl")
    done = subprocess.run(
        ["sh", "-c", here.command("claude-code", "prompt")], cwd=repo.path, input=b"{}", capture_output=True,
        check=False, env={**repo.env, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not hooks_of(repo).exists()


def commands() -> list[str]:
    """Return the command lines in the blocks of the skill."""
    blocks = re.findall(r"^ *```shell\n(.*?)^ *```", SKILL.read_text(), re.DOTALL | re.MULTILINE)
    lines = (line.partition("#")[0].strip() for block in blocks for line in block.splitlines())
    return [line.replace("npm test", "grep -q 1 .env") for line in lines if line]


def test_commands_of_the_skill_run(repo: Repo) -> None:
    repo.write(".gitignore", ".env\n")
    for number in (1, 1, 2, 3, 4):
        repo.write(".env", f"PORT={number}\n")
        repo.write("f", f"{number}")
        repo.run("envlog", "capture", f"state {number}", check=True)
    assert len(commands()) == 10
    for line in commands():
        program, *words = shlex.split(line.removeprefix("git "))
        done = repo.run(program, *words)
        assert done.status == 0, (line, done.err)


def test_skill_names_no_tool_of_the_server() -> None:
    # The server lists its tools itself, so that the skill stays true when they are renamed.
    assert not re.search(
        r"`(?:mcp__|environment_|plan_id|log|show|diff|plan|restore|undo)`", SKILL.read_text()
    )
