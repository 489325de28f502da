"""The tools over the protocol, called by the official client from a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import Repo

anyio = pytest.importorskip("anyio")
pytest.importorskip("mcp")

from mcp import ClientSession, StdioServerParameters  # noqa: E402 - only where it is installed
from mcp.client.stdio import stdio_client  # noqa: E402 - likewise
from mcp.types import Implementation  # noqa: E402 - likewise

LONG = 120.0
LOOKING = {"log", "show", "diff", "plan"}
ALL = LOOKING | {"capture", "verify", "fork", "restore", "undo"}


def talk(repo: Repo, use: Callable[[ClientSession], Awaitable[None]], *words: str) -> None:
    """Start a server in the repository, and be its client."""

    async def go() -> None:
        program = shutil.which("git-envlog")
        assert program is not None
        server = StdioServerParameters(command=program, args=["mcp", *words], cwd=repo.path, env=repo.env)
        with anyio.fail_after(LONG):
            async with (
                stdio_client(server) as streams,
                ClientSession(
                    *streams, client_info=Implementation(name="a client", version="7.1")
                ) as session,
            ):
                await session.initialize()
                await use(session)

    anyio.run(go)


async def answer(session: ClientSession, tool: str, **arguments: Any) -> Any:
    done: Any = await session.call_tool(tool, arguments)
    assert not done.is_error, done.content
    value = done.structured_content
    return value["result"] if tool == "log" else value


async def refusal(session: ClientSession, tool: str, **arguments: Any) -> str:
    done: Any = await session.call_tool(tool, arguments)
    assert done.is_error
    return str(done.content[0].text)


def told(repo: Repo, program: str, *words: str) -> Any:
    """What a program says under --json."""
    return json.loads(repo.run(program, *words, "--json", check=True).out)


def test_an_agent_captures_looks_plans_restores_and_goes_back(repo: Repo) -> None:
    repo.git("config", "envhist.verify", "grep -q old f")
    repo.git("config", "envhist.verifyOn", "watch")

    async def use(session: ClientSession) -> None:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert set(tools) == ALL
        assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools.values())
        assert tools["restore"].input_schema["required"] == ["plan_id"]
        assert tools["log"].input_schema["properties"]["limit"]["maximum"] == 1000

        # What lies in the environment is data, whatever it is called.
        repo.write("json.py", "raise SystemExit('not ours to run')\n")
        repo.write("f", "old\n")
        first = await answer(session, "capture", intent="--before it", name="start")
        assert first["snapshot"]["intent"] == "--before it"
        assert (first["snapshot"]["actor"]["agent"], first["snapshot"]["actor"]["agent_version"]) == (
            "a client",
            "7.1",
        )
        assert (await answer(session, "verify"))["verify"]["status"] == "pass"
        repo.write("f", "new\n")
        repo.write("g", "more\n")

        # The same values that the programs print.
        assert await answer(session, "show", revision="start") == told(repo, "envlog", "show", "start")
        assert await answer(session, "log", limit=5) == told(repo, "envlog", "-n5")
        assert await answer(session, "diff", before="start") == told(repo, "envdiff", "start")

        plan = await answer(session, "plan", revision="start")
        assert plan["plan"]["counts"]["replace"] == 1
        assert "was shown" in await refusal(session, "restore", plan_id="0123456789abcdef")
        # What was looked at is not what would be done now: nothing is.
        repo.write("f", "newer\n")
        refused = await refusal(session, "restore", plan_id=plan["plan_id"])
        assert json.loads(refused[refused.index("{") :])["error"]["code"] == "stale-plan"
        assert repo.read("f") == b"newer\n"

        plan = await answer(session, "plan", revision="start")
        done = await answer(session, "restore", plan_id=plan["plan_id"])
        assert done["changed"]
        assert (repo.read("f"), (repo.path / "g").exists()) == (b"old\n", False)
        assert (await answer(session, "undo"))["changed"]
        assert (repo.read("f"), repo.read("g")) == (b"newer\n", b"more\n")

        await answer(session, "fork", directory="../attempt", revision="start")
        assert (repo.path.parent / "attempt/f").read_bytes() == b"old\n"

        missing = await refusal(session, "show", revision="nonesuch")
        assert json.loads(missing[missing.index("{") :])["error"]["code"] == "no-such-snapshot"
        # A word of an agent's is never an option of a program.
        assert "neither a moment" in await refusal(session, "show", revision="--html=/tmp/x")

    talk(repo, use)


def test_a_server_that_only_reads_has_no_tool_that_changes_anything(repo: Repo) -> None:
    async def use(session: ClientSession) -> None:
        assert {tool.name for tool in (await session.list_tools()).tools} == LOOKING
        assert "capture" in await refusal(session, "capture", intent="x")

    talk(repo, use, "--read-only")
    assert repo.git("for-each-ref", "refs/envhist") == ""


def test_without_the_extra_there_is_one_clear_line_and_a_hint(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "lib/mcp").mkdir(parents=True)
    absent = "raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')\n"
    (tmp_path / "lib/mcp/__init__.py").write_text(absent)
    done = repo.run("envlog", "mcp", env={"PYTHONPATH": str(tmp_path / "lib")})
    assert (done.status, done.out) == (128, "")
    assert done.err == (
        "error: the Model Context Protocol is not installed here\n"
        f"hint: {sys.executable} -m pip install 'git-envhist[mcp]'\n"
    )


def test_no_other_program_loads_the_protocol() -> None:
    code = (
        "import sys, git_envhist.cli.entry, git_envhist.cli.log, git_envhist.cli.restore, git_envhist.cli.capture\n"
        "sys.exit(bool({'mcp', 'anyio', 'pydantic'} & set(sys.modules)))"
    )
    checkout = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout, env=dict(os.environ), check=False)
    assert done.returncode == 0


def test_a_plan_is_carried_out_as_it_was_shown_or_not_at_all(repo: Repo) -> None:
    repo.write("f", "old\n")
    repo.run("envlog", "capture", "first", check=True)
    repo.write("f", "new\n")
    shown = told(repo, "envrestore", "@", "-n")["plan_id"]
    repo.write("f", "else\n")
    done = repo.run("envrestore", "@", "--plan", shown)
    assert done.status == 3
    assert f"the plan '{shown}' is stale" in done.err
    assert repo.read("f") == b"else\n"
    shown = told(repo, "envrestore", "@", "-n")["plan_id"]
    repo.run("envrestore", "@", f"--plan={shown}", check=True)
    assert repo.read("f") == b"old\n"
