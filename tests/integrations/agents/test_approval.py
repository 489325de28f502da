"""Approvals of hooks, read from files as Codex 0.169, Gemini CLI 0.61 and Copilot CLI 1.0.102 wrote them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from git_envhist.integrations.agents.install import CODEX
from tests.cli.test_json import validate
from tests.integrations.agents.test_called import Working
from tests.support.repository import Repo

# Codex 0.169 wrote these hashes when a person approved the hooks of `git envlog install --agent codex`.
CODEX_HASHES = {
    "post_tool_use": "sha256:fee6e5517a68cc90c5c8c0a3351280a30b6c7070e51196c00fd838a2913e5318",
    "pre_tool_use": "sha256:e42cbbcc2f8b8e426f4d069ae3e4380065421a545cfcc7bc68cbff973c34dd06",
    "session_end": "sha256:2e892f3023249f09d3f2ed4f2598a4407e0cb831ce419cc002683ac56b0debe3",
    "user_prompt_submit": "sha256:fa8d45d366de53906b5c3b53ba8dc0f64014ffdde868329eab1ca5b4e64b34ba",
    "stop": "sha256:9fdacf27cc94aa88b59bca9252f145ba4fed45c69f63a4beabcccb4a47f99642",
}
# And these for the hooks of the plugin, each followed by a hash of the plugin's files.
PLUGIN_HASHES = {
    "post_tool_use": "sha256:e45ce44d7cd9082ec839aabe69393916e33f70904ba819231f5fc7e00c9ae7c2",
    "pre_tool_use": "sha256:0334f14741332114384818698c2752dd07bf59abfc06169ce7980d372ef16506",
    "session_end": "sha256:dcdd9121a06945159035438671f086c6ff3713bdaa428d3a155c717ad887968e",
    "user_prompt_submit": "sha256:76e9d8534347b528a682af899f5c990bb9735e51a2d313f8faa341daf1cb0bf6",
    "stop": "sha256:14523e8ab4caad62aee10703e12dc7d35e87870afb2b970358e7f429baf3208f",
}
FILES_HASH = "sha256:be7510de28cdf8ef9fc1924ae52820ca6e62832a38ae2e5d6f53f5235d0e5d27"


def codex_config(root: Path, settings: str = ".codex/hooks.json", trust: str = "trusted") -> str:
    """Return the configuration that Codex wrote, for hooks in a file of a directory."""
    states = "".join(
        f'[hooks.state."{root}/{settings}:{event}:0:0"]\ntrusted_hash = "{text}"\n\n'
        for event, text in CODEX_HASHES.items()
    )
    return f'[projects."{root}"]\ntrust_level = "{trust}"\n\n[hooks.state]\n\n{states}'


def trusted_by_gemini(root: Path) -> str:
    return json.dumps({str(root): "TRUST_FOLDER"}, indent=2)


def trusted_by_copilot(root: Path) -> str:
    head = "// User settings belong in settings.json.\n// This file is managed automatically.\n"
    return head + json.dumps({"appTipShown": True, "trustedFolders": [str(root)]}, indent=2) + "\n"


APPROVED: dict[str, tuple[str, Callable[[Path], str]]] = {
    "codex": (".codex/config.toml", codex_config),
    "gemini": (".gemini/trustedFolders.json", trusted_by_gemini),
    "copilot": (".copilot/config.json", trusted_by_copilot),
}


class Approving:
    """A repository with the hooks of one agent, and the agent's own files in the home directory."""

    def __init__(self, repo: Repo, agent: str) -> None:
        self.repo, self.agent = repo, agent
        self.home = Path(repo.env["HOME"])
        self.install()

    def install(self, *words: str) -> str:
        return self.repo.run("envlog", "install", "--agent", self.agent, *words, check=True).err

    def write(self, text: str, path: str = "") -> None:
        place = self.home / (path or APPROVED[self.agent][0])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def approve(self) -> None:
        path, form = APPROVED[self.agent]
        self.write(form(self.repo.path), path)

    def status(self, where: str = "here", **more: Any) -> dict[str, str | None]:
        """Return the approval by event."""
        done = self.repo.run("envlog", "status", "--json", check=True, **more)
        parts = json.loads(done.out)[where][self.agent]
        assert [part["active"] for part in parts] == [part["approval"] != "not approved" for part in parts]
        return {part["event"]: part["approval"] for part in parts}

    def warnings(self) -> str:
        return self.repo.run("envlog", "status", check=True).err


@pytest.mark.parametrize("agent", APPROVED)
def test_status_shows_hooks_as_approved_after_a_person_approved_them(repo: Repo, agent: str) -> None:
    here = Approving(repo, agent)
    assert set(here.status().values()) == {"not approved"}
    assert agent in here.warnings()
    shown = repo.run("envlog", "status", check=True).out
    assert "✓" not in shown
    assert "(not approved; no event yet)" in shown
    assert agent in here.install()
    here.approve()
    assert set(here.status().values()) == {"approved"}
    assert here.warnings() == ""
    # Nothing is left to do.
    assert "approve" not in here.install()
    assert "trust" not in here.install()


@pytest.mark.parametrize("agent", APPROVED)
def test_approval_in_another_form_is_unknown(repo: Repo, agent: str) -> None:
    here = Approving(repo, agent)
    here.write("[] = {")
    assert set(here.status().values()) == {"unknown"}
    assert f"cannot read what is approved in {agent}" in here.warnings()
    assert repo.run("envlog", "status", check=True).out.count("  ? ") == len(here.status())


@pytest.mark.parametrize("agent", APPROVED)
def test_approval_that_cannot_be_read_is_unknown(repo: Repo, agent: str) -> None:
    here = Approving(repo, agent)
    (here.home / APPROVED[agent][0]).mkdir(parents=True)
    assert set(here.status().values()) == {"unknown"}


def test_odd_definition_of_a_hook_is_unknown(repo: Repo) -> None:
    here = Approving(repo, "codex")
    here.approve()
    insert(repo, lambda hooks: hooks["Stop"][0]["hooks"][0].update(timeout="long"))
    assert "unknown" in here.status().values()


@pytest.mark.parametrize("agent", APPROVED)
def test_hooks_of_the_user_need_no_trusted_directory(repo: Repo, agent: str) -> None:
    here = Approving(repo, agent)
    here.install("--global")
    expected = "not approved" if agent == "codex" else None
    assert set(here.status("everywhere").values()) == {expected}
    if agent == "codex":
        # The command names this machine's script, so its hash is not one of those above.
        assert "approve" in here.warnings()


def test_status_shows_when_the_last_event_arrived(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    here.call("claude-code", "prompt")
    here.call("claude-code", "before", then="echo 1 >f")
    here.call("claude-code", "after")
    here.snapshots(2)
    here.idle()
    shown = repo.run("envlog", "status", check=True).out
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    for event, result in (("UserPromptSubmit", "received"), ("PreToolUse", "captured"), ("Stop", "captured")):
        assert re.search(rf"✓ {event} .*\(last event {time}: {result}\)", shown), shown
    validate("status", json.loads(repo.run("envlog", "status", "--json", check=True).out))


def insert(repo: Repo, change: Callable[[dict[str, Any]], object]) -> None:
    settings = json.loads(repo.read(CODEX.project))
    change(settings["hooks"])
    repo.write(CODEX.project, json.dumps(settings, indent=2))


OTHER = {"type": "command", "command": "true"}


def test_hook_inserted_before_ours_takes_its_approval_away(repo: Repo) -> None:
    here = Approving(repo, "codex")
    here.approve()
    for event in ("PreToolUse", "Stop"):
        insert(repo, lambda hooks, event=event: hooks[event].insert(0, {"hooks": [OTHER]}))  # type: ignore[misc]
    insert(repo, lambda hooks: hooks["SessionEnd"].append({"hooks": [OTHER]}))
    events = {event for event, approval in here.status().items() if approval == "not approved"}
    assert events == {"PreToolUse", "Stop"}
    assert "approve PreToolUse, Stop when codex starts" in here.warnings()


@pytest.mark.parametrize(
    "text",
    [
        "[hooks.state]\nx = 1\n",
        "[features]\nhooks = false\n{}",
        "{}enabled = false\n",
    ],
)
def test_disabled_hooks_of_codex_are_not_approved(repo: Repo, text: str) -> None:
    here = Approving(repo, "codex")
    here.write(text.replace("{}", codex_config(repo.path)))
    assert "not approved" in here.status().values()


def test_untrusted_directory_of_codex_has_no_approved_hooks(repo: Repo) -> None:
    here = Approving(repo, "codex")
    here.write(codex_config(repo.path, trust="untrusted"))
    assert set(here.status().values()) == {"not approved"}
    assert f"start codex in '{repo.path}' and trust it" in here.warnings()


def test_codex_takes_hooks_of_a_linked_worktree_from_the_main_working_tree(repo: Repo) -> None:
    here = Approving(repo, "codex")
    here.approve()
    linked = repo.path.parent / "linked"
    repo.git("worktree", "add", "-q", str(linked))
    repo.run("envlog", "install", "--agent", "codex", cwd=linked, check=True)
    assert set(here.status(cwd=linked).values()) == {"approved"}
    (repo.path / CODEX.project).unlink()
    assert set(here.status(cwd=linked).values()) == {"not approved"}
    done = repo.run("envlog", "install", "--agent", "codex", cwd=linked, check=True)
    assert f"git -C {repo.path} envlog install --agent codex" in done.err


def test_hooks_in_toml_are_approved_in_their_place(repo: Repo) -> None:
    repo.write(
        ".codex/config.toml", '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "x"\n'
    )
    here = Approving(repo, "codex")
    here.write(codex_config(repo.path, ".codex/config.toml"))
    missing = [event for event, approval in here.status().items() if approval == "not approved"]
    # The other hook is first in the list of this event.
    assert missing == ["Stop"]


@pytest.mark.parametrize(
    ("rules", "approval"),
    [
        ({"": "TRUST_PARENT"}, "approved"),
        ({"..": "TRUST_FOLDER"}, "approved"),
        ({"..": "TRUST_FOLDER", "": "DO_NOT_TRUST"}, "not approved"),
        ({"..": "DO_NOT_TRUST", "": "TRUST_FOLDER"}, "approved"),
        ({"/elsewhere": "TRUST_FOLDER"}, "not approved"),
    ],
)
def test_longest_rule_of_gemini_decides(repo: Repo, rules: dict[str, str], approval: str) -> None:
    here = Approving(repo, "gemini")
    places = {"": str(repo.path), "..": str(repo.path.parent)}
    here.write(json.dumps({places.get(path, path): level for path, level in rules.items()}))
    assert set(here.status().values()) == {approval}


def test_settings_of_gemini_can_disable_hooks_and_trust(repo: Repo) -> None:
    here = Approving(repo, "gemini")
    here.write(json.dumps({"security": {"folderTrust": {"enabled": False}}}), ".gemini/settings.json")
    assert set(here.status().values()) == {"approved"}
    here.write(json.dumps({"hooksConfig": {"disabled": ["git-envhist"]}}), ".gemini/settings.json")
    here.approve()
    assert set(here.status().values()) == {"not approved"}
    assert "see /hooks in gemini" in here.warnings()


def test_status_names_the_approval_of_a_plugin_of_codex(repo: Repo) -> None:
    here = Approving(repo, "codex")
    repo.run("envlog", "uninstall", check=True)
    repo.run("envlog", "capture", "by hand", check=True)
    repo.run("git-envhist", "agent-shim", "codex", check=True)
    assert here.status("everywhere") == {"plugin": None}
    source = Path(__file__).parents[3] / "hooks/plugins/git-envhist/hooks/codex.json"
    here.write(source.read_text(), ".codex/plugins/cache/git-envhist/git-envhist/0.1.0/hooks/codex.json")
    assert here.status("everywhere") == {"plugin": "not approved"}
    name = "git-envhist@git-envhist:hooks/codex.json"
    here.write(
        "".join(
            f'[hooks.state."{name}:{event}:0:0"]\ntrusted_hash = "{text}/{FILES_HASH}"\n'
            for event, text in PLUGIN_HASHES.items()
        )
    )
    assert here.status("everywhere") == {"plugin": "approved"}
