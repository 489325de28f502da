"""Installing hooks in the settings of agents, and removing them: all other settings remain unchanged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from git_envhist.integrations.agents.registry import AGENTS
from tests.integrations.agents.test_called import hooks_of
from tests.support.oracle import listing
from tests.support.repository import Repo, make_repo

PLACES = {
    "claude-code": ".claude/settings.local.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "cursor": ".cursor/hooks.json",
    "copilot": ".github/hooks/git-envhist.json",
    "opencode": ".opencode/plugins/git-envhist.js",
    "antigravity": ".agents/hooks.json",
}


def tree(repo: Repo) -> dict[bytes, tuple[object, ...]]:
    """Return kind, mode and hash of every file, without times."""
    return {path: (one.kind, one.mode, one.sha256) for path, one in listing(repo.path).items()}


@pytest.mark.parametrize("agent", PLACES)
def test_install_is_idempotent_and_uninstall_leaves_nothing(repo: Repo, agent: str) -> None:
    before = tree(repo)
    plan = repo.run("envlog", "install", "--agent", agent, "--dry-run", check=True).out
    assert tree(repo) == before
    assert PLACES[agent] in plan

    repo.run("envlog", "install", "--agent", agent, check=True)
    shape = AGENTS[agent].form  # type: ignore[attr-defined]
    if agent != "opencode":
        settings = json.loads(repo.read(PLACES[agent]))
        named = settings["git-envhist" if agent == "antigravity" else "hooks"]
        assert list(named) == [hook.event for hook in shape.hooks]
    # These files can be committed, so they must not contain paths of this machine.
    assert str(repo.path) not in repo.read(PLACES[agent]).decode()
    installed = tree(repo)
    repo.run("envlog", "install", "--agent", agent, check=True)
    assert tree(repo) == installed
    status = repo.run("envlog", "status", check=True).out
    assert status.count("no event yet") == len(shape.hooks)
    assert status.count("✗" if agent in ("codex", "gemini", "copilot") else "✓") == len(shape.hooks)

    repo.run("envlog", "uninstall", "--agent", agent, check=True)
    assert tree(repo) == before
    assert not (hooks_of(repo) / f"agent-{agent}").exists()


def test_uninstall_restores_settings_byte_for_byte(repo: Repo) -> None:
    theirs = '{"permissions": {"allow": [ ]}, // ours, by hand\n "hooks":{} }'
    repo.write(".claude/settings.local.json", theirs, mode=0o600)
    repo.write(
        ".codex/config.toml", '# mine\n[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "x"'
    )
    before = tree(repo)
    repo.run("envlog", "install", "--agent", "claude-code", "--agent", "codex", check=True)
    assert b"// ours, by hand" in repo.read(".claude/settings.local.json")
    # The file already has hooks as TOML, so our hooks are added there.
    assert b"agent-codex" in repo.read(".codex/config.toml")
    assert not (repo.path / ".codex/hooks.json").exists()
    repo.run("envlog", "uninstall", check=True)
    assert tree(repo) == before


def test_status_warns_that_hooks_do_not_capture_when_no_person_enabled_the_repository(
    repo: Repo, tmp_path: Path
) -> None:
    repo.run("envlog", "install", "--agent", "claude-code", check=True)
    assert "✗" not in repo.run("envlog", "status", check=True).out
    # The list of trusted repositories has the old path of a moved directory.
    moved = Repo(tmp_path / "moved", repo.env)
    repo.path.rename(moved.path)
    assert "no person enabled hooks for this repository" in moved.run("envlog", "status", check=True).out
    moved.run("envlog", "capture", "here now", check=True)
    assert "✗" not in moved.run("envlog", "status", check=True).out


def test_uninstall_keeps_the_shim_while_another_repository_uses_it(repo: Repo, tmp_path: Path) -> None:
    other, shim = make_repo(tmp_path / "another"), hooks_of(repo) / "agent-codex"
    for one in (repo, other):
        one.run("envlog", "install", "--agent", "codex", check=True)
    repo.run("envlog", "uninstall", check=True)
    assert os.access(shim, os.X_OK)
    other.run("envlog", "uninstall", check=True)
    assert not shim.exists()


def test_uninstall_removes_the_shared_script_of_all_working_trees(repo: Repo) -> None:
    repo.git("worktree", "add", "-q", "../other")
    other = repo.path.parent / "other"
    repo.run("envlog", "install", "--agent", "gemini", cwd=other, check=True)
    repo.run("envlog", "install", "--agent", "gemini", check=True)
    repo.run("envlog", "uninstall", "--agent", "gemini", check=True)
    assert not (repo.path / ".gemini").exists()
    assert not (other / ".gemini").exists()


def test_agent_files_are_removed_with_the_last_agent(repo: Repo) -> None:
    repo.git("worktree", "add", "-q", "../other")
    ours = repo.path / ".git/envhist"
    for directory in (repo.path, repo.path.parent / "other"):
        for agent in ("codex", "gemini"):
            repo.run("envlog", "install", "--agent", agent, cwd=directory, check=True)
    # A stored prompt that no hook has used yet, and the session state of each working tree.
    left = (hooks_of(repo) / "spool", ours / "agents", repo.path / ".git/worktrees/other/envhist/agents")
    for place in left:
        place.mkdir(parents=True, exist_ok=True)
        (place / "gemini.prompt.1.told").write_text("{}")
    repo.run("envlog", "uninstall", "--agent", "codex", check=True)
    assert all(place.is_dir() for place in left)
    told = repo.run("envlog", "uninstall", "--agent", "gemini", "--dry-run", check=True).out
    assert all(f"remove {place}/" in told for place in left)
    repo.run("envlog", "uninstall", "--agent", "gemini", check=True)
    assert not any(place.exists() for place in left)


def test_unknown_settings_are_not_changed(repo: Repo) -> None:
    repo.write(".gemini/settings.json", "{ this is no JSON")
    done = repo.run("envlog", "install", "--agent", "gemini")
    assert done.status == 3
    assert "not in the form that the agent documents" in done.err
    assert repo.read(".gemini/settings.json") == b"{ this is no JSON"


def test_global_install_uses_the_user_settings_and_script(repo: Repo, hermetic: Path) -> None:
    repo.run("envlog", "install", "--global", "--agent", "cursor", check=True)
    command = json.loads((hermetic / ".cursor/hooks.json").read_text())["hooks"]["stop"][0]["command"]
    shim = hermetic / "data/git-envhist/hooks/agent-cursor"
    assert str(shim) in command
    assert os.access(shim, os.X_OK)
    repo.run("envlog", "uninstall", "--global", "--agent", "cursor", check=True)
    assert not (hermetic / ".cursor").exists()
    assert not shim.exists()


def test_non_file_at_the_settings_path_is_ignored(repo: Repo) -> None:
    (repo.path / ".gemini/settings.json").mkdir(parents=True)
    os.mkfifo(repo.path / ".cursor")
    before = tree(repo)
    for agent, place in (("gemini", ".gemini/settings.json"), ("cursor", ".cursor")):
        done = repo.run("envlog", "install", "--agent", agent)
        assert done.status == 128
        assert f"{repo.path}/{place}'" in done.err
    assert tree(repo) == before
    # Other agents are still installed, reported and removed.
    repo.run("envlog", "install", "--agent", "codex", check=True)
    assert "hooks.json" in repo.run("envlog", "status", check=True).out
    repo.run("envlog", "uninstall", check=True)
    assert tree(repo) == before


def test_uninstall_does_not_recreate_removed_settings(repo: Repo) -> None:
    before = tree(repo)
    repo.run("envlog", "install", "--agent", "codex", check=True)
    (repo.path / ".codex/hooks.json").unlink()
    repo.run("envlog", "uninstall", "--agent", "codex", check=True)
    assert tree(repo) == before
