"""Two real agents work on one task in two forks at the same time; their work is merged, migrated and tested."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.agents import AGENTS, LONG, Agent, install, start, working_tree
from tests.real.models import Call, model
from tests.real.test_installed_agents import KEPT
from tests.real.tools import MACHINE
from tests.restore.test_two_attempts import CHECKED, MIGRATION, assert_has_both, merge_both, write_project
from tests.support.repository import Repo

WITH_PACKAGE, WITH_PAGE = "add the package slug and a migration", "add a page and its title"
PAIR = tuple(agent for agent in AGENTS if agent.name in ("claude-code", "codex"))
SETTLED = 120.0


@pytest.fixture
def place(npm: str) -> Path:
    """The directory with both agents, installed once."""
    cache = MACHINE.get("XDG_CACHE_HOME") or os.path.join(MACHINE.get("HOME", "/"), ".cache")
    found = Path(MACHINE.get(KEPT) or os.path.join(cache, "git-envhist-test-agents"))
    try:
        for agent in PAIR:
            install(agent, found, MACHINE)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"npm cannot install the agents: {error.stderr[-200:]!r}")
    return found


@pytest.fixture
def environment() -> Iterator[None]:
    """Undo the changes of variables that a working tree of an agent makes."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def forked(repo: Repo, name: str, agent: Agent) -> Repo:
    """Fork the project for an agent, with its hooks."""
    repo.run("envlog", "fork", "--relocate", f"../{name}", check=True)
    made = Repo(repo.path.parent / name, dict(repo.env))
    for one in (agent.name, *agent.beside):
        made.run("envlog", "install", "--agent", one, check=True)
    return made


def newest(repo: Repo) -> dict[str, object]:
    found: dict[str, object] = json.loads(repo.run("envlog", "--json", "-1", check=True).out)[0]
    return found


def timeline_after_work(repo: Repo, prompt: str) -> str:
    """Wait for the capture after the agent's turn; return the timeline, whose newest snapshot passes the check."""
    until = time.monotonic() + SETTLED
    while (newest(repo)["intent"], newest(repo)["meta"].get("agent-moment")) != (prompt, "after"):  # type: ignore[attr-defined]
        assert time.monotonic() < until, newest(repo)
        time.sleep(0.3)
    repo.run("envlog", "verify", "--", CHECKED, check=True)
    return str(newest(repo)["timeline"])


@pytest.mark.full
@pytest.mark.usefixtures("environment")
def test_work_of_two_real_agents_is_merged_migrated_and_tested(place: Path, tmp_path: Path) -> None:
    if shutil.which("sh") is None:
        pytest.skip("no shell")
    first, second = PAIR
    repo = working_tree(first, place, tmp_path / "work")
    package = tmp_path / "package"
    if not write_project(repo, package):
        pytest.skip("this Python makes no virtual environments with pip")
    # Codex reads the hooks of the main working tree.
    repo.run("envlog", "install", "--agent", second.name, check=True)
    forks = forked(repo, "one", first), forked(repo, "two", second)
    pip = f".venv/bin/python -m pip install -q --no-deps --no-build-isolation --no-index {package}"
    migration = f"printf '%s;\\n' '{MIGRATION}' > migrations/2.sql"
    scripts: tuple[list[Call], list[Call]] = (
        [first.shell(pip), first.shell("printf 'slug==1.0\\n' >> requirements.txt"), first.shell(migration)],
        [
            second.shell("printf '<h1>Blog</h1>\\n' > page.html"),
            second.shell("printf 'TITLE=Blog\\n' >> .env"),
        ],
    )
    with model({WITH_PACKAGE: scripts[0]}) as one, model({WITH_PAGE: scripts[1]}) as two:
        running = [
            start(agent, fork, server.address, prompt)
            for agent, fork, server, prompt in zip(
                PAIR, forks, (one, two), (WITH_PACKAGE, WITH_PAGE), strict=True
            )
        ]
        outputs = [process.communicate(timeout=LONG)[0].decode("utf-8", "replace") for process in running]
    assert (forks[0].path / ".venv/bin/slug").exists(), outputs[0]
    assert (forks[1].path / "page.html").exists(), outputs[1]
    timelines = [
        timeline_after_work(fork, prompt)
        for fork, prompt in zip(forks, (WITH_PACKAGE, WITH_PAGE), strict=True)
    ]
    merge_both(repo, *timelines)
    assert_has_both(repo, *(fork.path for fork in forks))
