"""OpenCode's plugin file and Antigravity's named hooks: installed, called, and removed byte for byte."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from git_envhist.integrations.agents.antigravity_and_opencode import (
    ANTIGRAVITY,
    HOOK_NAME,
    NamedHooksIntegration,
)
from git_envhist.integrations.agents.antigravity_events import common_form
from git_envhist.integrations.agents.install import UnknownSettingsForm
from tests.integrations.agents.test_called import PROMPT, Working
from tests.integrations.agents.test_install import tree
from tests.support.repository import Repo

NAMED = NamedHooksIntegration(ANTIGRAVITY)
COMMANDS = {hook.event: f'"/x/envhist/hooks/agent-antigravity" {hook.kind}' for hook in ANTIGRAVITY.hooks}
THEIRS = """\
{
    "lint": {
        "enabled": false,
        "PostToolUse": [{"matcher": "run_command", "hooks": [{"command": "./lint.sh", "timeout": 5}]}]
    },
    "π": {"Stop": []}
}
"""


@pytest.mark.parametrize(
    "text",
    [
        THEIRS,
        THEIRS.replace("\n", "\r\n"),
        THEIRS.replace("    ", "\t"),
        json.dumps(json.loads(THEIRS)),
        "{}",
    ],
    ids=["spaces", "crlf", "tabs", "one line", "empty"],
)
def test_named_hook_is_added_as_strict_json_and_removed_exactly(text: str) -> None:
    put = NAMED._with_hooks("", text, NAMED.form, COMMANDS)
    hooks = json.loads(put)[HOOK_NAME]
    assert list(hooks) == ["PreInvocation", "PreToolUse", "Stop"]
    # Only events of tools have groups. A timeout is a whole number of seconds.
    assert hooks["PreToolUse"][0]["matcher"] == "*"
    assert [type(row["timeout"]) for row in (hooks["Stop"][0], hooks["PreToolUse"][0]["hooks"][0])] == [
        int,
        int,
    ]
    assert NAMED._with_hooks("", put, NAMED.form, COMMANDS) == put
    assert len(NAMED._found_hooks("", put)) == 3
    left = NAMED._without_hooks("", put)
    if "\n" in text:
        assert left == text
    else:
        # The record of the installation restores the layout of a file in one line.
        assert (left and json.loads(left)) == (json.loads(text) or None)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {}, // theirs\n}',
        '{"a": {},}',
        '{"a": {"Stop": [{"timeout": NaN}]}}',
        "[]",
        "{",
        '{"git-envhist": {"Stop": [{"command": "theirs"}]}}',
    ],
)
def test_file_that_antigravity_would_ignore_is_refused(text: str) -> None:
    with pytest.raises(UnknownSettingsForm):
        NAMED._with_hooks("", text, NAMED.form, COMMANDS)


def test_older_named_hook_is_replaced() -> None:
    older = NAMED._with_hooks(
        "", THEIRS, NAMED.form, {event: f"{each} older" for event, each in COMMANDS.items()}
    )
    assert NAMED._with_hooks("", older, NAMED.form, COMMANDS) == NAMED._with_hooks(
        "", THEIRS, NAMED.form, COMMANDS
    )


def test_uninstall_restores_the_files_of_both_agents(repo: Repo) -> None:
    repo.write(".agents/hooks.json", THEIRS, mode=0o600)
    repo.write(".opencode/plugins/theirs.js", "export const Theirs = async () => ({})\n")
    before = tree(repo)
    repo.run("envlog", "install", "--agent", "opencode", "--agent", "antigravity", check=True)
    # A later change of theirs stays.
    changed = repo.read(".agents/hooks.json").decode().replace("./lint.sh", "./check.sh")
    repo.write(".agents/hooks.json", changed, mode=0o600)
    repo.run("envlog", "uninstall", check=True)
    assert repo.read(".agents/hooks.json").decode() == THEIRS.replace("./lint.sh", "./check.sh")
    repo.write(".agents/hooks.json", THEIRS, mode=0o600)
    assert tree(repo) == before


def test_plugin_file_of_others_is_not_replaced(repo: Repo) -> None:
    repo.write(".opencode/plugins/git-envhist.js", "export const Theirs = 1\n")
    done = repo.run("envlog", "install", "--agent", "opencode")
    assert done.status == 3
    assert repo.read(".opencode/plugins/git-envhist.js") == b"export const Theirs = 1\n"
    repo.run("envlog", "uninstall", check=True)
    assert repo.read(".opencode/plugins/git-envhist.js") == b"export const Theirs = 1\n"


def test_status_names_a_missing_plugin_script(repo: Repo) -> None:
    repo.run("envlog", "install", "--agent", "opencode", check=True)
    (Path(repo.env["XDG_DATA_HOME"]) / "git-envhist/hooks/agent-opencode").unlink()
    assert repo.run("envlog", "status", check=True).out.count("✗") == 5


def test_global_install_of_both_agents(repo: Repo, hermetic: Path) -> None:
    repo.env.pop("XDG_CONFIG_HOME", None)
    repo.run("envlog", "install", "--global", "--agent", "opencode", "--agent", "antigravity", check=True)
    plugin = hermetic / ".config/opencode/plugins/git-envhist.js"
    assert str(hermetic / "data/git-envhist/hooks/agent-opencode") in plugin.read_text()
    assert HOOK_NAME in json.loads((hermetic / ".gemini/config/hooks.json").read_text())
    repo.run("envlog", "uninstall", "--global", "--agent", "opencode", "--agent", "antigravity", check=True)
    assert not plugin.parent.exists()
    assert not (hermetic / ".gemini").exists()


def step(number: int, source: str, kind: str, content: str) -> str:
    return json.dumps({"step_index": number, "source": source, "type": kind, "content": content})


def test_prompt_of_antigravity_is_the_unanswered_text_of_the_transcript(tmp_path: Path) -> None:
    transcript = tmp_path / "transcript.jsonl"
    said = {"transcriptPath": str(transcript), "invocationNum": 4}
    asked = step(7, "USER_EXPLICIT", "USER_INPUT", "<USER_REQUEST>\nadd a test\n</USER_REQUEST>\n<X>1</X>")
    transcript.write_text(f'cut off"}}\n{step(6, "MODEL", "PLANNER_RESPONSE", "done")}\n{asked}\n{{"half')
    event = common_form("prompt", said)
    assert event is not None
    assert (event["prompt"], event["turn_id"]) == ("add a test", "step 7")
    # The model answered: a later call of the model begins no turn, the first of a conversation does.
    transcript.write_text(f"{asked}\n{step(8, 'MODEL', 'RUN_COMMAND', 'ok')}\n")
    assert common_form("prompt", said) is None
    assert common_form("prompt", {**said, "invocationNum": 0}) is not None
    # Antigravity may write the transcript only after the turn.
    transcript.unlink()
    assert common_form("prompt", said) is None


def test_stop_of_antigravity_ends_the_turn_only_when_nothing_runs() -> None:
    assert common_form("after", {"conversationId": "a", "fullyIdle": False}) is None
    assert common_form("after", {"conversationId": "a", "fullyIdle": True}) is not None
    assert common_form("after", {"conversationId": "a"}) is not None


def test_hook_of_antigravity_answers_without_our_script(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "antigravity")
    (Path(repo.env["XDG_DATA_HOME"]) / "git-envhist/hooks/agent-antigravity").unlink()
    for kind in ("prompt", "before", "after"):
        here.call("antigravity", kind)


DRIVER = """\
import { GitEnvhist } from "./.opencode/plugins/git-envhist.js"
import { writeFileSync } from "node:fs"
const sessions = { child: { id: "child", parentID: "root", agent: "general", version: "1.18.33" } }
const client = { session: { get: async ({ path }) => ({ data: sessions[path.id] }) } }
const hooks = await GitEnvhist({ client, directory: process.cwd(), worktree: process.cwd() })
const message = (sessionID, text, id) =>
  hooks["chat.message"]({ sessionID }, { message: { id }, parts: [{ type: "text", text }] })
const tool = async (sessionID, name, callID, content) => {
  await hooks["tool.execute.before"]({ tool: name, sessionID, callID }, { args: {} })
  writeFileSync("f", content)
}
const info = { id: "root", version: "1.18.33" }
await hooks.event({ event: { type: "session.created", properties: { info } } })
await message("root", "%s", "msg_1")
await tool("root", "bash", "call_1", "1")
await message("child", "look at the tests", "msg_2")
await tool("child", "write", "call_2", "2")
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "child" } } })
await tool("root", "bash", "call_3", "3")
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "root" } } })
await hooks.dispose()
"""


def test_plugin_of_opencode_captures_before_tools_and_after_turns(
    working: Callable[..., Working], node: str
) -> None:
    here = working("opencode")
    here.repo.write("f", "0")
    here.repo.write("driver.mjs", DRIVER % PROMPT)
    done = subprocess.run(
        [node, "driver.mjs"], cwd=here.repo.path, env=here.repo.env, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    found = here.snapshots(4)
    assert [here.repo.git("cat-file", "blob", f"{each.tree}:f") for each in found] == ["3", "2", "1", "0"]
    # The prompt of a subagent comes from its parent: the turn keeps the intent of the person.
    assert {each.intent for each in found} == {PROMPT}
    assert {(each.actor.agent, each.actor.agent_version, each.actor.session) for each in found} == {
        ("opencode", "1.18.33", "root")
    }
    # The end of the subagent and the next tool of its parent see the same state: either one is the second snapshot.
    by = [(dict(each.meta).get("agent-id"), dict(each.meta).get("agent-type")) for each in found]
    assert (by[0], *by[2:]) == ((None, None), ("child", "general"), (None, None))


def test_plugin_of_opencode_does_nothing_without_the_script(
    working: Callable[..., Working], node: str
) -> None:
    here = working("opencode")
    here.repo.write("driver.mjs", DRIVER % PROMPT)
    (Path(here.repo.env["XDG_DATA_HOME"]) / "git-envhist/hooks/agent-opencode").unlink()
    done = subprocess.run(
        [node, "driver.mjs"], cwd=here.repo.path, env=here.repo.env, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.fixture
def working(repo: Repo, tmp_path: Path) -> Callable[..., Working]:
    return lambda *agents: Working(repo, tmp_path / "transcript.jsonl", *agents)


@pytest.fixture
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed")
    return found
