"""Clones that contain a bare repository with programs and configuration: agent hooks use neither."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.model import Snapshot
from tests.integrations.agents.test_called import ANSWERS, LONG, TOOLS, Working, hooks_of, told
from tests.support.repository import Repo, make_repo

NAMED = {
    "claude-code": "CLAUDE_PROJECT_DIR",
    "gemini": "GEMINI_PROJECT_DIR",
    "cursor": "CURSOR_PROJECT_DIR",
    "copilot": "COPILOT_PROJECT_DIR",
}


@pytest.fixture
def pwned(tmp_path: Path) -> Path:
    return tmp_path / "pwned"


@pytest.fixture
def clone(tmp_path: Path, pwned: Path) -> Repo:
    """Clone a repository whose tree contains `fixtures/evil.git`."""
    upstream = make_repo(tmp_path / "upstream")
    run = f"echo ran >>{shlex.quote(str(pwned))}"
    evil = "fixtures/evil.git"
    upstream.write(f"{evil}/HEAD", "ref: refs/heads/main\n")
    for place in ("objects", "refs"):
        upstream.write(f"{evil}/{place}/keep")
    config = {
        "core.bare": "false",
        "core.worktree": "..",
        "core.fsmonitor": run,
        "envhist.verify": run,
        "envhist.verifyOn": "agent, manual, commit",
        "envhist.service.x.dump": run,
    }
    upstream.write(f"{evil}/config", "[core]\n\trepositoryformatversion = 0\n")
    for key, value in config.items():
        upstream.git("config", "--file", f"{evil}/config", key, value)
    for agent in TOOLS:
        for place in ("envhist", "git-envhist"):
            upstream.write(f"{evil}/{place}/hooks/agent-{agent}", f"#!/bin/sh\n{run}\n", mode=0o755)
    upstream.commit("fixtures")
    subprocess.run(["git", "clone", "-q", upstream.path, tmp_path / "clone"], check=True, env=upstream.env)
    assert (tmp_path / "clone" / evil / "refs/keep").exists()
    return Repo(tmp_path / "clone", upstream.env)


def wait_for(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + LONG
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.02)


def call_inside(here: Working, agent: str, directory: Path, **variables: str) -> None:
    """Call the hooks of an agent whose current directory is `directory`."""
    for kind in ("prompt", "before", "after"):
        data = {**told(agent, kind, here.repo, here.transcript), "cwd": str(directory)}
        answer = ANSWERS.get(kind, b"{}\n") if agent == "antigravity" else b""
        done = subprocess.run(
            ["sh", "-c", here.command(agent, kind)],
            cwd=directory,
            input=json.dumps(data).encode(),
            capture_output=True,
            check=False,
            env={**here.repo.env, **variables},
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, answer, b"")
    if "XDG_DATA_HOME" not in variables:
        here.idle()


@pytest.mark.parametrize("relative", ["", "fixtures"])
@pytest.mark.parametrize("agent", TOOLS)
def test_hook_runs_nothing_of_a_repository_in_a_clone_when_the_agent_is_inside(
    clone: Repo, pwned: Path, tmp_path: Path, agent: str, relative: str
) -> None:
    here, evil = Working(clone, tmp_path / "transcript.jsonl", agent), clone.path / "fixtures/evil.git"
    # A relative path in this variable must be ignored: it would be below the agent's current directory.
    misled = {"XDG_DATA_HOME": relative} if relative else {}
    shutil.copytree(hooks_of(clone), evil / relative / "git-envhist/hooks", dirs_exist_ok=True)
    for shim in (evil / relative / "git-envhist/hooks").glob("agent-*"):
        shim.write_text(f"#!/bin/sh\necho ran >>{shlex.quote(str(pwned))}\n")
    variables = {NAMED[agent]: str(clone.path)} if agent in NAMED else {}
    call_inside(here, agent, evil, **variables, **misled)
    assert not pwned.exists()
    if variables and not relative:
        # The hook captures the project named by the agent, in any current directory.
        here.snapshots(1)


def test_global_hook_captures_only_in_repositories_that_a_person_captured(
    clone: Repo, pwned: Path, tmp_path: Path, hermetic: Path
) -> None:
    here = Working(clone, tmp_path / "transcript.jsonl")
    clone.run("envlog", "install", "--global", "--agent", "claude-code", cwd=tmp_path, check=True)
    settings = json.loads((hermetic / ".claude/settings.json").read_text())
    command = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]

    def call(directory: Path) -> None:
        event = {**told("claude-code", "before", clone, here.transcript), "cwd": str(directory)}
        subprocess.run(
            ["sh", "-c", command], cwd=directory, input=json.dumps(event).encode(), check=True, env=clone.env
        )

    # Unlike a clone, an archive can contain a '.git' directory, which git uses without being asked.
    evil = clone.path / "fixtures/evil.git"
    archive = clone.path / "unpacked"
    shutil.copytree(evil, archive / ".git")
    for directory in (evil, archive, clone.path):
        call(directory)
    assert not pwned.exists()
    assert clone.git("for-each-ref", "refs/envhist") == ""
    assert not (archive / ".git/envhist/hooks/spool").exists()
    clone.run("envlog", "capture", "by an agent", env={"CLAUDECODE": "1"}, check=True)
    clone.write("f", "before\n")
    call(clone.path)
    assert len(EnvHistory.open(str(clone.path), one_command=True).log()) == 1
    clone.run("envlog", "capture", "by hand", check=True)
    clone.write("f", "changed\n")
    call(clone.path)
    assert len(EnvHistory.open(str(clone.path), one_command=True).log()) == 3
    assert not pwned.exists()
    # Removing the history removes the repository from the list.
    clone.run("envlog", "uninstall", "--history", "--yes", check=True)
    assert str(clone.path) not in (hooks_of(clone).parent / "trusted").read_text()


OLD_GIT = """\
#!/bin/sh
[ "$1 $2" = "-c safe.bareRepository=explicit" ] && shift 2
exec {git} "$@"
"""


@pytest.mark.parametrize("is_old", [False, True])
def test_program_refuses_a_bare_repository_found_below_the_current_directory(
    clone: Repo, pwned: Path, tmp_path: Path, is_old: bool
) -> None:
    evil = clone.path / "fixtures/evil.git"
    if is_old:
        # Simulate git before 2.38, which ignores the setting.
        (tmp_path / "old").mkdir()
        (tmp_path / "old/git").write_text(OLD_GIT.format(git=shutil.which("git")))
        (tmp_path / "old/git").chmod(0o755)
        clone.env["PATH"] = f"{tmp_path / 'old'}:{clone.env['PATH']}"
        assert clone.execute("git", "rev-parse", "--git-dir", cwd=evil).out.endswith("evil.git\n")
    for words in (("status",), ("capture", "x"), ("verify",), ()):
        done = clone.run("envlog", *words, cwd=evil)
        assert done.status != 0
        assert "bare repository" in done.err
    assert not pwned.exists()


def test_hook_runs_a_configured_command_only_after_a_person_ran_it_in_this_repository(
    repo: Repo, tmp_path: Path
) -> None:
    here, ran = Working(repo, tmp_path / "transcript.jsonl", "claude-code"), tmp_path / "ran"
    repo.git("config", "envhist.verify", f"echo checked >>{ran}")
    repo.git("config", "envhist.verifyOn", "agent")
    repo.git("config", "envhist.service.db.dump", f"echo dumped | tee -a {ran}")

    def call(number: int) -> list[Snapshot]:
        repo.write("f", f"{number}\n")
        here.call("claude-code", "before", tool_use_id=f"toolu_{number}")
        return here.snapshots(number)

    call(1)
    here.idle()
    assert not ran.exists()
    # The hook returns before its result is written.
    wait_for(lambda: "no person ran this command" in repo.run("envlog", "status", check=True).out)
    # A command in an agent's shell does not count as run by a person.
    repo.run("envlog", "verify", env={"CLAUDECODE": "1"}, check=True)
    ran.unlink()
    call(2)
    assert not ran.exists()
    repo.run("envlog", "verify", check=True)
    ran.unlink()
    call(3)
    wait_for(lambda: ran.exists() and ran.read_text() == "dumped\nchecked\n")
    # A changed command must be run by a person again.
    repo.git("config", "envhist.verify", f"echo other >>{ran}")
    ran.unlink()
    call(4)
    assert ran.read_text() == "dumped\n"
