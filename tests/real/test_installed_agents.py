"""Each real agent that npm can install, with a scripted model on this machine.

All cases take more processor time than the rest of `--full` together: `python -m tests.real.agents` runs them.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.agents import AGENTS, Agent, WrongVersion, install
from tests.real.cases import run_case
from tests.real.models import Call, Failure, Found, Server, ToolResult
from tests.real.tools import MACHINE

FEW = ("basic", "failing tool", "no git", "approval")
KEPT = "ENVHIST_TEST_AGENTS"
"""The variable with a directory in which the agents stay; by default they are in the cache of the user."""


@pytest.fixture
def place(agent: Agent, npm: str) -> Path:
    """The directory with the agent, installed once."""
    cache = MACHINE.get("XDG_CACHE_HOME") or os.path.join(MACHINE.get("HOME", "/"), ".cache")
    found = Path(MACHINE.get(KEPT) or os.path.join(cache, "git-envhist-test-agents"))
    try:
        install(agent, found, MACHINE)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"npm cannot install {agent.package}@{agent.version}: {error.stderr[-200:]!r}")
    return found


@pytest.fixture
def environment() -> Iterator[None]:
    """Undo the changes of variables that a case makes."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.full
@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("case", FEW)
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_history_shows_the_work_of_a_real_agent(agent: Agent, case: str, place: Path, tmp_path: Path) -> None:
    wrong = run_case(case, agent, place, tmp_path / "work")
    if isinstance(wrong, str):
        pytest.skip(wrong)
    assert wrong == []


def test_another_version_than_the_named_one_fails(tmp_path: Path) -> None:
    agent = AGENTS[0]
    manifest = tmp_path / "node_modules" / agent.package / "package.json"
    program = tmp_path / "node_modules/.bin" / agent.program
    # This npm does nothing, as one that finds the wanted version already there.
    npm = tmp_path / "bin/npm"
    older = (manifest, '{"version": "2.1.197"}'), (program, "#!/bin/sh\necho 2.1.197\n"), (npm, "#!/bin/sh\n")
    for path, text in older:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    with pytest.raises(WrongVersion, match=r"2\.1\.197"):
        install(agent, tmp_path, {"PATH": f"{npm.parent}:/usr/bin:/bin"})


DONE = ToolResult("the second")


def test_model_answers_by_the_last_prompt_and_the_results_since_then() -> None:
    one, two = Call("sh.*", {"n": 1}), Call("sh.*", {"n": 2})
    server = Server(("127.0.0.1", 0), None)  # type: ignore[arg-type]
    server.offered, server.results = set(), []
    server.script = {"first": [(one, two), Failure(400)], "second": [two]}
    tools = ["read", "shell"]

    def words(*said: str) -> object:
        found = server.answer(said, tools)
        return found if isinstance(found, Failure) else [(call.tool, call.words["n"]) for call in found]

    assert words("do the first") == [("shell", 1), ("shell", 2)]
    assert words("do the first", DONE) == Failure(400)
    assert words("do the first", DONE, DONE, "then the second") == [("shell", 2)]
    assert words("do the first", DONE, DONE, "then the second", DONE, "a reminder") == []
    assert words("do the first", DONE, DONE, "then the second", DONE, "the user said: second") == []
    # A request without tools asks for a title.
    assert server.answer(["first"], []) == []
    server.server_close()


def test_model_takes_values_from_the_newest_result_that_has_them() -> None:
    server = Server(("127.0.0.1", 0), None)  # type: ignore[arg-type]
    server.offered, server.results = set(), []
    server.script = {"first": [Call("x", {}), Call("x", {}), Call("x", {"n": Found(r"id\W+(\d+)"), "m": 1})]}
    results = [ToolResult(json.dumps(text)) for text in ('{"id": "12", "x": {"id": "3"}}', "none")]
    (call,) = server.answer(["first", *results], ["x"])
    assert call.words == {"n": "12", "m": 1}
    assert Found("id=(.)").value(results) == ""
    server.server_close()
