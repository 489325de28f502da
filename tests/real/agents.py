"""Real agents with our hooks and our server: `python -m tests.real.agents [--at DIRECTORY] [--case CASE] [agent...]`.

npm installs each agent in exactly the version named here (1.4 GB for all; `--at` keeps them), and the run fails if npm
picked another one. Each case (`tests/real/cases.py`) gives an agent a working tree of its own and a scripted model on
this machine, and compares the history with what has to be there. The result is a table of agents and cases; the exit
status is 1 if a case failed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tests.conftest import sealed_environment
from tests.real.models import Call
from tests.real.terminal import DOWN, ENTER
from tests.support.programs import make_programs
from tests.support.repository import Repo, make_repo

LONG = 240
CODEX_MODEL = "gpt-6.1-sol"
"""A model that Codex knows: it is called in code mode, as Codex calls its newest models."""
SERVER = ("envlog", "mcp")
"""The arguments with which git starts our server; further options follow."""


class WrongVersion(Exception):
    """npm installed another version than the one that is tested."""


class Prepare(Protocol):
    """Write the configuration: the address of the model, our server with its options, the trusted directory."""

    def __call__(self, repo: Repo, address: str, options: Sequence[str] = ()) -> None: ...


@dataclass(frozen=True)
class Agent:
    """One agent: its package, its tools, and how it is called."""

    name: str
    package: str
    version: str
    program: str
    tool: str
    """The tool that runs a command of the shell."""
    word: str
    prepare: Prepare
    words: tuple[str, ...]
    """The arguments of a run; `{}` is the prompt."""
    again: tuple[str, ...]
    """The arguments of a run that continues the last session."""
    on_terminal: tuple[str, ...]
    """The arguments of a run on a terminal, without the prompt, which is last."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """`{}` in a value is the address of the model."""
    beside: tuple[str, ...] = ()
    """Other agents whose settings it reads too."""
    plugin: tuple[tuple[str, ...], ...] = ()
    """The commands that install our plugin from a directory, `{}`."""
    after_tool: bool = False
    """Whether it has a hook after each tool, so that the state after a tool is captured before the next one."""
    subagent: Call | str = ""
    """The call that starts a subagent with the prompt `SUBAGENT`, or why the model here cannot start one."""
    worktree: tuple[str, ...] = ()
    """The arguments of a run in a worktree that the agent makes."""
    silent: tuple[str, ...] = ()
    """The arguments of a run in which it calls no hook."""
    approval: tuple[tuple[bytes, bytes], ...] = ()
    """The questions before it runs hooks: a text on the terminal, and the keys of a person who approves."""
    trust: str = ""
    """The file in which it stores what is trusted, in the home directory."""
    asks: bool = False
    """Whether it declares that it can ask a person, and answers with no where nobody is there."""
    has_version: bool = True
    has_transcript: bool = True

    def shell(self, command: str) -> Call:
        """Return the call that runs a command of the shell."""
        return Call(self.tool, {self.word: command, "description": "work"})

    def write(self, number: int) -> Call:
        return self.shell(f"echo {number} >f")


SUBAGENT = "look at the tests and repair them"


def _server(options: Sequence[str]) -> dict[str, Any]:
    return {"command": "git", "args": [*SERVER, *options]}


def _claude_code(repo: Repo, address: str, options: Sequence[str] = ()) -> None:
    repo.write(".mcp.json", json.dumps({"mcpServers": {"envhist": _server(options)}}))
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    settings = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": ["none"], "rejected": []},
        "projects": {str(repo.path): {**trusted, "enabledMcpjsonServers": ["envhist"]}},
    }
    if not Path(repo.env["HOME"], ".claude.json").exists():
        _in_home(repo, ".claude.json", json.dumps(settings))


def _codex(repo: Repo, address: str, options: Sequence[str] = ()) -> None:
    text = f"""\
model = "{CODEX_MODEL}"
model_provider = "here"
[model_providers.here]
name = "here"
base_url = "{address}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[mcp_servers.envhist]
command = "git"
args = {json.dumps([*SERVER, *options])}
required = true
startup_timeout_sec = 60
[features]
daemon_auto_start = false
[projects."{repo.path}"]
trust_level = "trusted"
"""
    _in_home(repo, ".codex/config.toml", text)


def _gemini(repo: Repo, address: str, options: Sequence[str] = ()) -> None:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "experimental": {"worktrees": True},
        "mcpServers": {"envhist": _server(options)},
    }
    _in_home(repo, ".gemini/settings.json", json.dumps(settings))
    _in_home(repo, ".gemini/trustedFolders.json", json.dumps({str(repo.path.parent): "TRUST_FOLDER"}))


def _copilot(repo: Repo, address: str, options: Sequence[str] = ()) -> None:
    server = {"type": "local", **_server(options), "tools": ["*"]}
    _in_home(repo, ".copilot/mcp-config.json", json.dumps({"mcpServers": {"envhist": server}}))
    _in_home(repo, ".copilot/config.json", json.dumps({"trusted_folders": [str(repo.path.parent)]}))


def _opencode(repo: Repo, address: str, options: Sequence[str] = ()) -> None:
    one = {"name": "m", "tool_call": True, "limit": {"context": 100_000, "output": 4_000}}
    settings = {
        "autoupdate": False,
        "model": "here/m",
        "small_model": "here/m",
        "provider": {
            "here": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{address}/v1", "apiKey": "none"},
                "models": {"m": one},
            }
        },
        "mcp": {"envhist": {"type": "local", "command": ["git", *SERVER, *options], "timeout": 60_000}},
    }
    _in_home(repo, ".config/opencode/opencode.json", json.dumps(settings))


def _in_home(repo: Repo, path: str, text: str) -> None:
    place = Path(repo.env["HOME"], path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


# No person is there who could approve tools or hooks.
CLAUDE_WORDS = ("--mcp-config", ".mcp.json", "--allowedTools", "Bash", "Agent", "mcp__envhist")
CODEX_TRUST = ("--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust")
CODEX_WORDS = ("exec", "--skip-git-repo-check", *CODEX_TRUST)
GEMINI_WORDS = ("--yolo", "-m", "gemini-2.5-flash")
COPILOT_WORDS = ("--allow-all-tools",)
PLUGIN = "git-envhist@git-envhist"
AGENTS = (
    Agent(
        "claude-code", "@anthropic-ai/claude-code", "2.1.328", "claude", "Bash", "command", _claude_code,
        ("-p", "{}", *CLAUDE_WORDS), ("-p", "{}", "--continue", *CLAUDE_WORDS), (*CLAUDE_WORDS, "--"),
        worktree=("--worktree", "try", "-p", "{}", "--allowedTools", "Bash"),
        silent=("-p", "{}", *CLAUDE_WORDS, "--settings", '{"disableAllHooks": true}'),
        environ={"ANTHROPIC_BASE_URL": "{}", "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1",
                 "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ENABLE_TOOL_SEARCH": "false",
                 # The first request has the tools of our server.
                 "MCP_CONNECTION_NONBLOCKING": "0"},
        subagent=Call("Agent", {"description": "tests", "prompt": SUBAGENT, "subagent_type": "general-purpose",
                                "run_in_background": True}),
        plugin=(("plugin", "marketplace", "add", "{}"), ("plugin", "install", PLUGIN)), asks=True,
    ),
    Agent(
        "codex", "@openai/codex", "0.169.0", "codex", "exec_command", "cmd", _codex,
        (*CODEX_WORDS, "{}"), (*CODEX_WORDS, "resume", "--last", "{}"), CODEX_TRUST,
        silent=(*CODEX_WORDS[:-1], "{}"), worktree=(*CODEX_WORDS, "--worktree", "{}"),
        subagent="the prompt of a subagent is encrypted",
        plugin=(("plugin", "marketplace", "add", "{}"), ("plugin", "add", PLUGIN)), asks=True,
        approval=((b"trust", ENTER), (b"Hooks", DOWN), (b"Trust", ENTER)), trust=".codex/config.toml",
    ),
    Agent(
        "gemini", "@google/gemini-cli", "0.61.0", "gemini", "run_shell_command", "command", _gemini,
        (*GEMINI_WORDS, "-p", "{}"), (*GEMINI_WORDS, "--resume", "latest", "-p", "{}"),
        (*GEMINI_WORDS, "-i"),
        environ={"GOOGLE_GEMINI_BASE_URL": "{}", "GEMINI_API_KEY": "none"},
        after_tool=True, has_version=False, subagent="it has no subagent in the background",
        approval=((b"trust", ENTER),), trust=".gemini/trustedFolders.json",
        worktree=(*GEMINI_WORDS, "--worktree", "try", "-p", "{}"),
    ),
    Agent(
        "copilot", "@github/copilot", "1.0.102", "copilot", "bash", "command", _copilot,
        (*COPILOT_WORDS, "-p", "{}"), (*COPILOT_WORDS, "--continue", "-p", "{}"), (*COPILOT_WORDS, "-i"),
        environ={"COPILOT_PROVIDER_BASE_URL": "{}/v1", "COPILOT_PROVIDER_API_KEY": "none",
                 "COPILOT_MODEL": "gpt-4.1", "COPILOT_OFFLINE": "true"},
        beside=("claude-code",), has_transcript=False,
        subagent=Call("task", {"description": "tests", "prompt": SUBAGENT, "agent_type": "general-purpose",
                               "name": "tests", "mode": "background"}),
        plugin=(("plugin", "marketplace", "add", "{}"), ("plugin", "install", PLUGIN)), asks=True,
        approval=((b"trust", DOWN), (b"trust", ENTER)), trust=".copilot/config.json",
        worktree=(*COPILOT_WORDS, "--worktree", "try", "-p", "{}"),
    ),
    Agent(
        "opencode", "opencode-ai", "1.18.33", "opencode", "bash", "command", _opencode,
        ("run", "{}"), ("run", "--continue", "{}"), ("--prompt",), silent=("run", "--pure", "{}"),
        environ={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        has_transcript=False,
        subagent=Call("task", {"description": "tests", "prompt": SUBAGENT, "subagent_type": "general"}),
    ),
)  # fmt: skip


def install(agent: Agent, place: Path, machine: Mapping[str, str]) -> None:
    """Have npm install the named version; raise `WrongVersion` if another one is there or answers."""
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _installed(agent, place) != agent.version:
            # Without a version npm installs an older one if the newest wants a newer Node.
            words = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(place)]
            subprocess.run(
                [*words, f"{agent.package}@{agent.version}"],
                check=True,
                env=dict(machine),
                capture_output=True,
            )
    found = _installed(agent, place)
    program = place / "node_modules/.bin" / agent.program
    # Some agents write into the home directory even then.
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False, timeout=LONG,
        env={**machine, "HOME": str(place)},
    )  # fmt: skip
    if found != agent.version or agent.version not in done.stdout:
        raise WrongVersion(
            f"{agent.name} {agent.version}: npm installed {found}, which says {done.stdout.strip()}"
        )


def _installed(agent: Agent, place: Path) -> str | None:
    manifest = place / "node_modules" / agent.package / "package.json"
    return str(json.loads(manifest.read_text())["version"]) if manifest.exists() else None


def working_tree(agent: Agent, place: Path, work: Path, *, plain: bool = False) -> Repo:
    """Return a working tree with the agent's hooks, and an environment that an agent of a person has.

    `plain`: a directory without git.
    """
    home, programs = work / "home", work / "programs"
    for directory in (home, programs):
        directory.mkdir(parents=True)
    path = f"{make_programs(programs)}:{place / 'node_modules/.bin'}:{os.environ['PATH']}"
    os.environ.update(sealed_environment(home))
    repo = Repo(work / "tree", {}) if plain else make_repo(work / "tree")
    repo.path.mkdir(exist_ok=True)
    # Agents do not hand all that tests set on to hooks and servers.
    repo.env = {"PATH": path, "HOME": str(home), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    repo.write("f", "0\n")
    Path(home, ".gitconfig").write_text(
        "[user]\n\tname = Test User\n\temail = test@example.com\n[envhist]\n\tagentTimeout = 2m\n\tagentIdle = 2m\n"
    )
    # In a directory without git a person captures once, and the hooks are those of the user.
    where = ["--global"] if plain else []
    if plain:
        repo.run("envlog", "init", check=True)
        repo.run("envlog", "capture", "by hand", check=True)
    for name in (agent.name, *agent.beside):
        repo.run("envlog", "install", *where, "--agent", name, check=True)
    return repo


def start(
    agent: Agent,
    repo: Repo,
    address: str,
    prompt: str,
    *,
    again: bool = False,
    words: Sequence[str] = (),
    cwd: Path | None = None,
    before: Sequence[str] = (),
    prepared: bool = False,
) -> subprocess.Popen[bytes]:
    """Start the agent with a prompt.

    `before`: words of a program that runs it; `prepared`: its configuration is written already.
    """
    if not prepared:
        agent.prepare(Repo(cwd, repo.env) if cwd else repo, address)
    repo.env |= {name: value.format(address) for name, value in agent.environ.items()}
    chosen = words or tuple(word.format(prompt) for word in (agent.again if again else agent.words))
    return subprocess.Popen(
        [*before, agent.program, *chosen], cwd=cwd or repo.path, env=repo.env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def main() -> int:
    from tests.real.cases import CASES, TABLE, run_case  # loaded late: it imports this module

    parser = argparse.ArgumentParser(prog="python -m tests.real.agents")
    parser.add_argument("--at", type=Path, help="the directory in which the agents are installed, and stay")
    parser.add_argument("--case", action="append", choices=CASES, help="run only this case; repeatable")
    parser.add_argument("--version", help="another version of the one agent that is named")
    parser.add_argument("names", nargs="*", metavar="agent")
    asked = parser.parse_args()
    wanted = [agent for agent in AGENTS if not asked.names or agent.name in asked.names]
    if asked.version:
        wanted = [replace(agent, version=asked.version) for agent in wanted[:1]]
    machine, cells = dict(os.environ), {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        place = asked.at or Path(temporary, "npm")
        for agent in wanted:
            install(agent, place, machine)
            for case in asked.case or TABLE:
                os.environ.update(machine)
                wrong = run_case(
                    case, agent, place, Path(temporary, f"{agent.name}-{case.replace(' ', '-')}")
                )
                cells[agent.name, case] = wrong
                print(f"{agent.name} {agent.version}: {case}: {_mark(wrong)}", flush=True)
    for line in table(wanted, asked.case or TABLE, cells):
        print(line)
    return 1 if any(isinstance(each, list) and each for each in cells.values()) else 0


def table(
    agents: Sequence[Agent], cases: Sequence[str], cells: Mapping[tuple[str, str], list[str] | str]
) -> list[str]:
    """Return the table of agents and cases in Markdown."""
    head = " | ".join(["case", *(f"{agent.name} {agent.version}" for agent in agents)])
    rows = [
        " | ".join([case, *("✓" if cells[agent.name, case] == [] else "✗" if isinstance(cells[agent.name, case], list)
                            else str(cells[agent.name, case]) for agent in agents)])
        for case in cases
    ]  # fmt: skip
    return [f"| {head} |", f"| --- |{' --- |' * len(agents)}", *(f"| {row} |" for row in rows)]


def _mark(wrong: list[str] | str) -> str:
    if isinstance(wrong, str):
        return f"not run: {wrong}"
    return "as expected" if not wrong else "".join(f"\n  {line}" for line in wrong)


if __name__ == "__main__":
    if shutil.which("npm") is None:
        sys.exit("npm is not installed")
    sys.exit(main())
