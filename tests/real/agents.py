"""Run real agents with git-envhist's hooks and MCP server: `python -m tests.real.agents [--at DIRECTORY] [agent...]`.

Each agent is installed from npm (about 900 MB for all; `--at` keeps them), gets a working tree with `git envlog
install --agent`, and a prompt. A model on this machine, which speaks the API of the agent's provider, makes it run a
shell command, take a snapshot by `git envlog mcp`, and run another command. The snapshots that the hooks and the tool
took are compared with the expected ones. Differences are printed and end the program with status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from git_envhist.api import EnvHistory
from git_envhist.model import Snapshot
from tests.conftest import sealed_environment
from tests.real.models import Call, Server, model
from tests.support.programs import make_programs
from tests.support.repository import Repo, make_repo

PROMPT = "make the greeting friendlier"
SAID = "taken by the agent itself"
LONG = 240
SETTLED = 60.0
Manner = Callable[[Repo, str], tuple[str, ...]]
"""Writes the agent's other configuration and returns the arguments to call it with."""


@dataclass(frozen=True)
class Agent:
    """How to install, configure and start one agent."""

    name: str
    package: str
    program: str
    tool: str
    """The agent's tool that runs a shell command."""
    word: str
    manner: Manner
    beside: tuple[str, ...] = ()
    """Other agents whose settings this one also reads."""
    environ: dict[str, str] = field(default_factory=dict)
    """Extra variables; `{}` in a value is the address of the model."""

    def shell(self, number: int) -> Call:
        """Return a call of the shell tool that overwrites the file."""
        return Call(self.tool, {self.word: f"echo {number} >f", "description": "write"})


def claude_code(repo: Repo, _address: str) -> tuple[str, ...]:
    server = {"mcpServers": {"envhist": {"command": "git", "args": ["envlog", "mcp"]}}}
    repo.write(".mcp.json", json.dumps(server))
    allowed = ("Bash", "mcp__envhist__environment_history_capture")
    return ("-p", PROMPT, "--mcp-config", ".mcp.json", "--allowedTools", *allowed)


def codex(repo: Repo, address: str) -> tuple[str, ...]:
    text = f"""\
model = "here"
model_provider = "here"
[model_providers.here]
name = "here"
base_url = "{address}/v1"
wire_api = "responses"
[mcp_servers.envhist]
command = "git"
args = ["envlog", "mcp"]
required = true
startup_timeout_sec = 60
[projects."{repo.path}"]
trust_level = "trusted"
"""
    _in_home(repo, ".codex/config.toml", text)
    # The run is not interactive, so commands and hooks cannot be approved.
    bypass = ("--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust")
    return ("exec", *bypass, PROMPT)


def gemini(repo: Repo, _address: str) -> tuple[str, ...]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "mcpServers": {"envhist": {"command": "git", "args": ["envlog", "mcp"]}},
    }
    _in_home(repo, ".gemini/settings.json", json.dumps(settings))
    _in_home(repo, ".gemini/trustedFolders.json", json.dumps({str(repo.path): "TRUST_FOLDER"}))
    return ("--yolo", "-m", "gemini-2.5-flash", "-p", PROMPT)


def copilot(repo: Repo, _address: str) -> tuple[str, ...]:
    envhist = {"type": "local", "command": "git", "args": ["envlog", "mcp"], "tools": ["*"]}
    _in_home(repo, ".copilot/mcp-config.json", json.dumps({"mcpServers": {"envhist": envhist}}))
    return ("--trust-folder", "--allow-all-tools", "-p", PROMPT)


def _in_home(repo: Repo, path: str, text: str) -> None:
    place = Path(repo.env["HOME"], path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


CAPTURE = Call(".*envhist.*capture", {"intent": SAID})
AGENTS = (
    Agent(
        "claude-code", "@anthropic-ai/claude-code", "claude", "Bash", "command", claude_code,
        environ={"ANTHROPIC_BASE_URL": "{}", "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1",
                 "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    ),
    Agent("codex", "@openai/codex", "codex", "exec_command", "cmd", codex),
    Agent(
        "gemini", "@google/gemini-cli", "gemini", "run_shell_command", "command", gemini,
        environ={"GOOGLE_GEMINI_BASE_URL": "{}", "GEMINI_API_KEY": "none"},
    ),
    Agent(
        "copilot", "@github/copilot", "copilot", "bash", "command", copilot,
        ("claude-code",),
        environ={"COPILOT_PROVIDER_BASE_URL": "{}/v1", "COPILOT_PROVIDER_API_KEY": "none",
                 "COPILOT_MODEL": "gpt-4.1", "COPILOT_OFFLINE": "true"},
    ),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.real.agents")
    parser.add_argument("--at", type=Path, help="a directory in which the agents are installed and kept")
    parser.add_argument("names", nargs="*", choices=[[], *(agent.name for agent in AGENTS)], metavar="agent")
    told = parser.parse_args()
    machine = dict(os.environ)
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        place = told.at or Path(temporary, "npm")
        for agent in AGENTS:
            if told.names and agent.name not in told.names:
                continue
            version = install(agent, place, machine)
            wrong = attempt(agent, place, Path(temporary, agent.name))
            if agent.name == "claude-code":
                wrong += [
                    f"worktree, {' '.join(words) or 'its own'}: {line}"
                    for words in ((), ("--worktrees",))
                    for line in attempt_worktree(
                        agent, place, Path(temporary, f"worktree{len(words)}"), words
                    )
                ]
            failed += bool(wrong)
            print(f"{agent.name} {version}: {'ok' if not wrong else ''}", flush=True)
            for line in wrong:
                print(f"  {line}")
    return 1 if failed else 0


def install(agent: Agent, place: Path, machine: dict[str, str]) -> str:
    """Install the agent by npm and return its version."""
    manifest = place / "node_modules" / agent.package / "package.json"
    if not manifest.exists():
        place.mkdir(parents=True, exist_ok=True)
        words = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(place)]
        subprocess.run([*words, agent.package], check=True, env=machine, stdout=subprocess.DEVNULL)
    return str(json.loads(manifest.read_text())["version"])


def attempt(agent: Agent, place: Path, work: Path) -> list[str]:
    """Run the agent in a new working tree, and return a line for each difference from the expected history."""
    repo = _working_tree(agent, place, work)
    with model([agent.shell(1), CAPTURE, agent.shell(2)]) as server:
        repo.env |= {name: value.format(server.address) for name, value in agent.environ.items()}
        words = agent.manner(repo, server.address)
        done = subprocess.run(
            [agent.program, *words], cwd=repo.path, env=repo.env, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=LONG, check=False,
        )  # fmt: skip
        said = (done.stdout + done.stderr).decode("utf-8", "replace")
        moments = _settled(repo)
        return [
            *_wrong(agent, repo, server, moments),
            *_complaints(said),
            *([said] if done.returncode else []),
        ]


def attempt_worktree(agent: Agent, place: Path, work: Path, words: tuple[str, ...]) -> list[str]:
    """Let Claude Code work in a worktree and remove it; return a line for each difference from the expected history."""
    repo = _working_tree(agent, place, work)
    repo.write(".gitignore", ".env\n")
    repo.write(".env", "KEY=1\n")
    if words:
        repo.run("envlog", "install", "--agent", agent.name, *words, check=True)
    calls = [
        Call("EnterWorktree", {"name": "try"}),
        Call("Bash", {"command": "echo work >result; cp .env seen || :", "description": "write"}),
        Call("ExitWorktree", {"action": "remove", "discard_changes": True}),
    ]
    with model(calls) as server:
        repo.env |= {name: value.format(server.address) for name, value in agent.environ.items()}
        allowed = ("--allowedTools", "Bash", "EnterWorktree", "ExitWorktree")
        subprocess.run(
            [agent.program, "-p", PROMPT, *allowed], cwd=repo.path, env=repo.env, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=LONG, check=False,
        )  # fmt: skip
    history = EnvHistory.open(str(repo.path), one_command=True)
    named = [one for one in history.log(all_timelines=True) if one.names]
    if len(named) != 1 or len(repo.git("worktree", "list").splitlines()) != 1:
        return [f"names {[one.names for one in named]}, {repo.git('worktree', 'list')}"]
    (last,) = named
    files = repo.git("ls-tree", "--name-only", last.tree).splitlines()
    checks = {
        f"intent: {last.intent}": last.intent == PROMPT,
        f"files: {files}": "result" in files and ("seen" in files) == bool(words),
        f"agent: {last.actor}": last.actor.agent == agent.name and bool(last.actor.agent_version),
    }
    return [what for what, right in checks.items() if not right]


def _working_tree(agent: Agent, place: Path, work: Path) -> Repo:
    home, programs = work / "home", work / "programs"
    for directory in (home, programs):
        directory.mkdir(parents=True)
    path = f"{make_programs(programs)}:{place / 'node_modules/.bin'}:{os.environ['PATH']}"
    os.environ.update(sealed_environment(home))
    repo = make_repo(work / "tree")
    # Set only a user's variables: agents do not pass all variables of the tests on to hooks and servers.
    repo.env = {"PATH": path, "HOME": str(home), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    repo.write("f", "0\n")
    repo.git("config", "envhist.agentTimeout", "2m")
    repo.git("config", "envhist.agentIdle", "2m")
    for name in (agent.name, *agent.beside):
        repo.run("envlog", "install", "--agent", name, check=True)
    return repo


def _settled(repo: Repo) -> list[Snapshot]:
    """Return the history, newest first, once the hook after the turn has finished."""
    until = time.monotonic() + SETTLED
    while True:
        moments = EnvHistory.open(str(repo.path), one_command=True).log()
        done = {dict(moment.meta).get("agent-moment") for moment in moments} >= {"before", "after"}
        if done or time.monotonic() > until:
            return moments
        time.sleep(0.2)


def _wrong(agent: Agent, repo: Repo, server: Server, moments: Sequence[Snapshot]) -> list[str]:
    told = [(dict(each.meta).get("agent-moment", "-"), each.actor.tool, each.intent) for each in moments]
    if not any("envhist" in name for name in server.offered):
        return [f"no tool of git-envhist was offered: {sorted(server.offered)}"]
    # The tool captured the state before the last command, so the hook takes no second snapshot. Gemini CLI calls a
    # hook after each tool, so the state after the first command is captured before the next tool is called.
    between = "after" if agent.name == "gemini" else "before"
    if [moment for moment, _, _ in told] != ["after", "-", between, "before"]:
        return [f"moments: {told}"]
    after, own, second, before = moments
    held = [repo.git("cat-file", "blob", f"{each.tree}:f") for each in moments]
    # Gemini CLI does not report its version. Copilot starts its transcript only when its first turn ends.
    checks = {
        f"the file: {held}": held == ["2", "1", "1", "0"],
        f"intents: {told}": after.intent == before.intent == PROMPT and own.intent == SAID,
        f"agent: {before.actor}": before.actor.agent == agent.name and bool(before.actor.session),
        f"tool: {second.actor.tool}": ("run_shell" if agent.name == "gemini" else "capture")
        in str(second.actor.tool),
        f"version: {after.actor}": bool(after.actor.agent_version) or agent.name == "gemini",
        f"transcripts: {before.attachments}, {after.attachments}": _transcripts(after) == 1
        and (_transcripts(before) == 1 or agent.name == "copilot"),
        f"by the tool: {own.actor}": bool(own.actor.agent),
    }
    return [what for what, right in checks.items() if not right]


def _transcripts(snapshot: Snapshot) -> int:
    return sum(not name.endswith("-prompt.txt") for name in snapshot.attachments)


def _complaints(said: str) -> list[str]:
    """Return the lines in which an agent complains about hooks."""
    ours = [line for line in said.splitlines() if "hook" in line.lower()]
    return [
        line for line in ours if any(word in line.lower() for word in ("fail", "error", "clamp", "invalid"))
    ]


if __name__ == "__main__":
    if shutil.which("npm") is None:
        sys.exit("npm is not here")
    sys.exit(main())
