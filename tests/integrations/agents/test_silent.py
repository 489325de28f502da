"""An agent that worked without calling a hook: `git envlog status` finds its conversation, in the agent's own form."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from pathlib import Path

import pytest

from git_envhist.api import EnvHistory
from git_envhist.integrations.agents.events import advance_stored_session, read_event
from git_envhist.integrations.agents.last_events import last_version
from git_envhist.integrations.base import InstallTarget
from git_envhist.integrations.status import IN_PROGRESS, RECENT, read_status
from tests.integrations.agents.test_called import Working
from tests.integrations.agents.test_plugins import Plugged
from tests.support.repository import Repo

SESSION = "01a1f891-de89-71d2-af90-0d7e341bea4f"
VERSION = "9.8.7"


def claude_code(home: Path, root: str) -> Path:
    name = re.sub("[^0-9A-Za-z]", "-", root)
    path = home / ".claude/projects" / name / f"{SESSION}.jsonl"
    older, newer = ({"type": "user", "cwd": root, "version": one} for one in ("9.8.6", VERSION))
    return write(path, older, newer)


def codex(home: Path, root: str) -> Path:
    path = home / f".codex/sessions/2026/11/20/rollout-2026-11-20T10-47-51-{SESSION}.jsonl"
    return write(
        path, {"type": "session_meta", "payload": {"id": SESSION, "cwd": root, "cli_version": VERSION}}
    )


def gemini(home: Path, root: str) -> Path:
    path = home / ".gemini/tmp/tree/chats/session-2026-11-20T10-48-da976bbf.jsonl"
    write(path, {"sessionId": SESSION, "kind": "main"})
    (path.parent.parent / ".project_root").write_text(root)
    return path


def copilot(home: Path, root: str) -> Path:
    path = home / ".copilot/session-state" / SESSION / "events.jsonl"
    data = {"sessionId": SESSION, "copilotVersion": VERSION, "context": {"cwd": root, "gitRoot": root}}
    return write(path, {"type": "session.start", "data": data})


def opencode(home: Path, root: str) -> Path:
    path = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share", "opencode/opencode.db")
    path.parent.mkdir(parents=True, exist_ok=True)
    base = sqlite3.connect(path)
    base.execute(
        "CREATE TABLE session (id TEXT, parent_id TEXT, directory TEXT, version TEXT, time_updated INTEGER)"
    )
    base.execute("INSERT INTO session VALUES (?, NULL, ?, ?, 0)", (SESSION, root, VERSION))
    base.commit()
    base.close()
    return path


FORMS = {
    "claude-code": claude_code,
    "codex": codex,
    "gemini": gemini,
    "copilot": copilot,
    "opencode": opencode,
}


def write(path: Path, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    return path


def touch(path: Path, at: float) -> None:
    """Set the time at which the conversation changed last."""
    if path.suffix != ".db":
        os.utime(path, (at, at))
        return
    base = sqlite3.connect(path)
    base.execute("UPDATE session SET time_updated = ?", (at * 1000,))
    base.commit()
    base.close()


def warnings(repo: Repo, now: float) -> list[str]:
    history = EnvHistory.open(str(repo.path), environ=repo.env, one_command=True)
    target = InstallTarget(history.repository, repo.env, "git-envhist")
    found = read_status(target, history.settings, now=now)
    return [one for one in found.warnings if "called no hook" in one]


@pytest.mark.parametrize("agent", FORMS)
def test_status_warns_of_an_agent_that_worked_and_called_no_hook(repo: Repo, agent: str) -> None:
    root = os.path.realpath(repo.path)
    path = FORMS[agent](Path(repo.env["HOME"]), root)
    started = time.time()
    worked = started + 1000
    touch(path, worked)
    assert warnings(repo, worked + 60) == []
    repo.run("envlog", "install", "--agent", agent, check=True)
    (warning,) = warnings(repo, worked + 60)
    named = agent if agent == "gemini" else f"{agent} {VERSION}"
    assert warning.startswith(f"{named} worked here at ")
    # The first event may not be handled yet, and old states of sessions are deleted.
    assert warnings(repo, worked + IN_PROGRESS - 1) == []
    assert warnings(repo, worked + RECENT + 1) == []
    # It worked before the hooks were installed.
    touch(path, started - 1000)
    assert warnings(repo, started + 60) == []
    touch(path, worked)

    # A hook was called in this session.
    event = read_event(agent, "prompt", json.dumps({"session_id": SESSION, "cwd": root}).encode(), {})
    assert event is not None
    advance_stored_session(str(repo.path / ".git/envhist/agents"), event, [root], 1, lambda _: "")
    assert warnings(repo, worked + 60) == []


@pytest.mark.parametrize("agent", FORMS)
def test_conversations_about_another_directory_are_ignored(repo: Repo, agent: str) -> None:
    path = FORMS[agent](Path(repo.env["HOME"]), "/elsewhere")
    repo.run("envlog", "install", "--agent", agent, check=True)
    touch(path, time.time() + 1000)
    assert warnings(repo, time.time() + 2000) == []


def test_files_in_another_form_are_ignored(repo: Repo) -> None:
    root, home = os.path.realpath(repo.path), Path(repo.env["HOME"])
    for agent, form in FORMS.items():
        path = form(home, root)
        path.write_bytes(b"\xff not a conversation\n")
        repo.run("envlog", "install", "--agent", agent, check=True)
        if agent != "opencode":
            touch(path, time.time() + 1000)
    assert warnings(repo, time.time() + 2000) == []


def test_status_names_the_version_that_called_the_hooks(repo: Repo, tmp_path: Path) -> None:
    root = os.path.realpath(repo.path)
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    here.transcript.write_text('{"version": "2.1.328"}\n')
    here.call("claude-code", "before", then="echo 1 >f")
    here.idle()
    assert last_version(str(repo.path / ".git/envhist"), "claude-code") == "2.1.328"
    touch(claude_code(Path(repo.env["HOME"]), root), time.time() + 1000)
    (warning,) = warnings(repo, time.time() + 2000)
    assert "; version 2.1.328 called them" in warning


def test_status_shows_hooks_of_a_plugin(repo: Repo, tmp_path: Path) -> None:
    here = Plugged(repo, tmp_path / "transcript.jsonl")
    repo.run("envlog", "capture", "by hand", check=True)
    here.call("codex", "before", then="echo 1 >f")
    here.idle()
    shown = repo.run("envlog", "status", check=True).out
    assert re.search(r"^codex, for every repository\n  ✓ plugin .*agent-codex", shown, re.MULTILINE)
    # It is not called any more.
    touch(codex(Path(repo.env["HOME"]), os.path.realpath(repo.path)), time.time() + 1000)
    (warning,) = warnings(repo, time.time() + 2000)
    assert warning.startswith(f"codex {VERSION} worked here")
