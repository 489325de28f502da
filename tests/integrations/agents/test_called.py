"""Agent hooks, called with the command from the agent's settings and the input that the agent documents."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from git_envhist.api import EnvHistory
from git_envhist.integrations.agents.events import SessionState, advance_session, read_event
from git_envhist.integrations.agents.registry import AGENTS
from git_envhist.model import IntentSource, Snapshot, Trigger
from tests.support.repository import Repo

Json = dict[str, Any]
LONG = 150.0
PROMPT = "make the greeting friendlier"


def told(agent: str, kind: str, repo: Repo, transcript: Path, **more: Any) -> Json:
    """Return the input that an agent documents for a kind of hook."""
    where = {"cwd": str(repo.path), "transcript_path": str(transcript)}
    common: Json = {
        "claude-code": {"session_id": "c-1", "permission_mode": "default", "prompt_id": "p-1", **where},
        "codex": {"session_id": "x-1", "turn_id": "t-1", "model": "m", "permission_mode": "default", **where},
        "gemini": {"session_id": "g-1", "timestamp": "2026-11-18T10:00:00Z", **where},
        "cursor": {
            "conversation_id": "k-1", "generation_id": "n-1", "model": "m", "cursor_version": "2.0.77",
            "workspace_roots": [str(repo.path)], "user_email": None, "transcript_path": str(transcript),
        },
        "copilot": {"sessionId": "o-1", "timestamp": 1731924000000, "cwd": str(repo.path)},
        # Our own plugin writes this one (hooks/opencode-plugin.js).
        "opencode": {
            "session_id": "ses_1", "workspace_roots": [str(repo.path)], "cwd": str(repo.path),
            "agent_version": "1.18.33", "transcript_path": str(transcript),
        },
        "antigravity": {
            "conversationId": "a-1", "workspacePaths": [str(repo.path)], "transcriptPath": str(transcript),
            "artifactDirectoryPath": str(transcript.parent), "modelName": "m",
        },
    }[agent]  # fmt: skip
    if agent == "antigravity":
        return {**common, **ANTIGRAVITY[kind], **more}
    own: Json = {
        "prompt": {"prompt": PROMPT},
        "before": TOOLS[agent],
        "done": TOOLS[agent],
        "after": {"transcriptPath": str(transcript), "stopReason": "end_turn"}
        if agent == "copilot"
        else {"stop_hook_active": False},
        "end": {"reason": "exit"},
    }[kind]
    return {**common, **own, **more}


TOOLS: dict[str, Json] = {
    "claude-code": {"tool_name": "Write", "tool_input": {"file_path": "f"}, "tool_use_id": "toolu_1"},
    "codex": {
        "tool_name": "apply_patch",
        "tool_input": {"command": "*** Begin Patch"},
        "tool_use_id": "call_1",
    },
    "gemini": {"tool_name": "write_file", "tool_input": {"file_path": "f"}},
    "cursor": {"tool_name": "Shell", "tool_input": {"command": "make"}, "tool_use_id": "tool_1"},
    "copilot": {"toolName": "bash", "toolArgs": {"command": "make"}},
    "opencode": {"tool_name": "bash", "tool_use_id": "call_1", "tool_input": {"command": "make"}},
    "antigravity": {"tool_name": "run_command"},
}
ANTIGRAVITY: dict[str, Json] = {
    "prompt": {"invocationNum": 0, "initialNumSteps": 1},
    "before": {"stepIdx": 2, "toolCall": {"name": "run_command", "args": {"CommandLine": "make"}}},
    "after": {"executionNum": 1, "terminationReason": "done", "error": "", "fullyIdle": True},
    "end": {},
}
ANSWERS = {"before": b'{"decision":"ask"}\n'}
TRANSCRIPTS = {
    "claude-code": ('{"type":"user","version":"2.1.326"}\n', "2.1.326"),
    "codex": ('{"type":"session_meta","payload":{"cli_version":"0.169.0"}}\n', "0.169.0"),
    "gemini": ('{"sessionId":"g-1"}\n', None),
    "cursor": ('{"role":"user"}\n', "2.0.77"),
    "copilot": ('{"type":"session.start","data":{"copilotVersion":"1.0.41"}}\n', "1.0.41"),
    "opencode": ('{"role":"user"}\n', "1.18.33"),
    "antigravity": (
        f'{{"source":"USER_EXPLICIT","type":"USER_INPUT","content":"<USER_REQUEST>\\n{PROMPT}\\n</USER_REQUEST>"}}\n',
        None,
    ),
}


def hooks_of(repo: Repo) -> Path:
    """Return the user's directory of the shims and the spool, which is outside of every repository."""
    return Path(repo.env["XDG_DATA_HOME"]) / "git-envhist/hooks"


class Working:
    """A working tree that agents work in."""

    def __init__(self, repo: Repo, transcript: Path, *agents: str) -> None:
        self.repo = repo
        self.transcript = transcript
        # A busy machine can be slow, so the hook gets a long timeout.
        repo.git("config", "envhist.agentTimeout", "2m")
        for agent in agents:
            repo.run("envlog", "install", "--agent", agent, check=True)

    def command(self, agent: str, kind: str) -> str:
        """Return the command in the settings for an event."""
        shape = AGENTS[agent].form  # type: ignore[attr-defined]
        if agent == "opencode":
            return f"{hooks_of(self.repo) / 'agent-opencode'} {kind}"
        event = next(hook.event for hook in shape.hooks if hook.kind == kind)
        settings = json.loads(self.repo.read(shape.project))
        entry = settings["git-envhist" if agent == "antigravity" else "hooks"][event][0]
        return str((entry["hooks"][0] if "hooks" in entry else entry)[shape.command])

    def call(self, agent: str, kind: str, data: bytes | None = None, then: str = "", **more: Any) -> None:
        """Call a hook; it must exit with status 0 and print nothing but the answer that Antigravity needs."""
        if data is None:
            data = json.dumps(told(agent, kind, self.repo, self.transcript, **more)).encode()
        done = subprocess.run(
            ["sh", "-c", f"{self.command(agent, kind)}\nstatus=$?\n{then}\nexit $status"],
            cwd=self.repo.path, input=data, capture_output=True, check=False, env=self.repo.env,
        )  # fmt: skip
        answer = ANSWERS.get(kind, b"{}\n") if agent == "antigravity" else b""
        assert (done.returncode, done.stdout, done.stderr) == (0, answer, b"")

    def snapshots(
        self, count: int, settled: Callable[[list[Snapshot]], bool] = lambda _: True
    ) -> list[Snapshot]:
        """Wait until the history has `count` snapshots and return them, newest first."""
        until = time.monotonic() + LONG
        while time.monotonic() < until:
            found = EnvHistory.open(str(self.repo.path), one_command=True).log()
            if len(found) >= count and settled(found):
                assert len(found) == count
                return found
            time.sleep(0.02)
        raise AssertionError(f"only {found!r}")

    def idle(self) -> None:
        """Wait until all captures requested by hooks have finished."""
        spool = hooks_of(self.repo) / "spool"
        until = time.monotonic() + LONG
        while any((*spool.glob("*.told"), *spool.glob("*.taken.*"))):
            assert time.monotonic() < until
            time.sleep(0.02)
        with open(spool / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)


@pytest.fixture
def working(repo: Repo, tmp_path: Path) -> Callable[..., Working]:
    return lambda *agents: Working(repo, tmp_path / "transcript.jsonl", *agents)


@pytest.mark.parametrize("agent", TOOLS)
def test_agent_hooks_capture_before_a_tool_and_after_the_turn(
    working: Callable[..., Working], agent: str
) -> None:
    here = working(agent)
    here.repo.write("f", "old bytes\n")
    here.transcript.write_text(TRANSCRIPTS[agent][0])

    here.call(agent, "prompt")
    # The tool writes as soon as its hook has returned.
    here.call(agent, "before", then="echo new bytes >f")
    here.call(agent, "after")
    after, before = here.snapshots(2)

    history = EnvHistory.open(str(here.repo.path), workers="here", one_command=True)
    assert here.repo.git("cat-file", "blob", f"{before.tree}:f") == "old bytes"
    assert here.repo.git("cat-file", "blob", f"{after.tree}:f") == "new bytes"
    tool = TOOLS[agent].get("tool_name") or TOOLS[agent]["toolName"]
    for snapshot, moment, used in ((before, "before", tool), (after, "after", None)):
        assert (snapshot.intent, snapshot.intent_source) == (PROMPT, IntentSource.AGENT)
        assert snapshot.trigger is Trigger.AGENT
        actor = snapshot.actor
        assert (actor.name, actor.agent, actor.tool) == ("Test User", agent, used)
        assert actor.session == next(iter(told(agent, "end", here.repo, here.transcript).values()))
        assert ("agent-moment", moment) in snapshot.meta
    assert after.actor.agent_version == TRANSCRIPTS[agent][1]
    assert [snapshot.attachments for snapshot in history.log(1)] == [("1-transcript.jsonl", "2-prompt.txt")]
    here.repo.run("envrestore", "@", "--attachments", "../said", check=True)
    assert (here.repo.path.parent / "said/1-transcript.jsonl").read_text() == TRANSCRIPTS[agent][0]
    assert (here.repo.path.parent / "said/2-prompt.txt").read_text() == PROMPT


def test_prompt_is_stored_sealed_and_only_its_masked_title_is_readable(
    working: Callable[..., Working],
) -> None:
    here, secret = working("claude-code"), "Tr0ub4dor&3"
    rest = "the customer is Mrs Example, and the staging server is 192.0.2.7"
    prompt = f"log in with password {secret} and look at the shop\n{rest}\nAPI_KEY={secret}"
    here.call("claude-code", "prompt", prompt=prompt)
    here.call("claude-code", "before")
    (snapshot,) = here.snapshots(1)
    assert snapshot.intent == "log in with password *** and look at the shop"
    assert snapshot.attachments == ("1-prompt.txt",)
    # Neither the objects of the history nor our own files contain it in plain text.
    here.idle()
    objects = here.repo.git("rev-list", "--objects", "--all", "--glob=refs/envhist/*", "--glob=refs/notes/*")
    stored = [here.repo.git("cat-file", "-p", line.split()[0]) for line in objects.splitlines()]
    files = [
        path for top in (here.repo.path / ".git/envhist", hooks_of(here.repo)) for path in top.rglob("*")
    ]
    stored += [path.read_bytes().decode("latin-1") for path in files if path.is_file()]
    assert not [text for text in stored if secret in text or "Mrs Example" in text]
    here.repo.run("envrestore", "@", "--attachments", "../said", check=True)
    assert (here.repo.path.parent / "said/1-prompt.txt").read_text() == prompt


def test_copilot_transcript_is_found_before_a_tool(working: Callable[..., Working], tmp_path: Path) -> None:
    here = working("copilot", "claude-code")
    here.repo.env["COPILOT_HOME"] = str(tmp_path / "copilot")
    kept = tmp_path / "copilot/session-state/o-1/events.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text(TRANSCRIPTS["copilot"][0])
    here.call("copilot", "before")
    # Copilot also reads Claude Code's settings and then sends Claude Code's input. A session id must not act as a path.
    for number, session in enumerate(("o-1", "../o-1")):
        data = {"session_id": session, "timestamp": "2026-11-18T10:00:00Z", "cwd": str(here.repo.path)}
        here.repo.write("f", f"{number}")
        told = {**data, "tool_name": "Bash", "tool_input": {"command": "make"}}
        here.call("claude-code", "before", json.dumps(told | {"tool_use_id": f"{number}"}).encode())
    strange, second, first = here.snapshots(3)
    assert {each.actor.agent for each in (strange, second, first)} == {"copilot"}
    assert (first.attachments, first.actor.agent_version) == (("1-events.jsonl",), "1.0.41")
    assert (second.attachments, strange.attachments) == (("1-events.jsonl",), ())


def test_hook_is_silent_and_succeeds_for_any_input(working: Callable[..., Working]) -> None:
    here = working("claude-code", "copilot")
    for data in (
        b"",
        b"garbage",
        b"null",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"cwd": "/nowhere"}',
        b"x" * (9 << 20),
    ):
        here.call("claude-code", "before", data)
    for data in (b"", b"garbage", b'{"prompt": 5, "session_id": [], "cwd": {}}', b"x" * (9 << 20)):
        here.call("copilot", "prompt", data)
    here.idle()
    # A tool may follow that changes something, whatever its input is.
    assert here.snapshots(1)[0].actor.tool is None
    # A later call with valid input still captures.
    here.repo.write("app.py", "changed")
    here.call("claude-code", "before")
    here.snapshots(2)


LOOKING = [
    '{"tool_name":"Read","tool_input":{}}',
    '{"cwd": "/x", "tool_name": "Grep", "tool_input": {"pattern": "x"}}',
    '{"sessionId":"o","toolName":"view","toolArgs":"{}"}',
    '{"toolName":"view","toolArgs":"' + "x" * 9000 + '"}',
    # Our own server, as the agents name its tools.
    '{"tool_name":"mcp__envhist__environment_history_log","tool_input":{}}',
    '{"tool_name":"mcp_envhist_environment_history_plan_restore","tool_input":{}}',
    '{"tool_name":"MCP:environment_history_read_file","tool_input":{}}',
    '{"toolName":"envhist-environment_history_diff","toolArgs":"{}"}',
]
CHANGING = [
    '{"tool_name":"Write","tool_input":{"tool_name":"Read"}}',
    '{"tool_input":{"tool_name":"Read"},"tool_name":"Write"}',
    '{"toolArgs":{"toolName":"view"},"toolName":"bash"}',
    '{"cwd":"/\\"tool_name\\":\\"Read\\"","tool_name":"Bash","tool_input":1}',
    '{"tool_name":"Read Grep","tool_input":{}}',
    '{"tool_name":"*","tool_input":{}}',
    '{"tool_name":"mcp__envhist__environment_history_restore","tool_input":{}}',
    '{"tool_name":"mcp__envhist__environment_history_log2","tool_input":{}}',
    '{"tool_name":"mcp__envhist__log","tool_input":{}}',
    '{"tool_name":"Bash environment_history_log","tool_input":{}}',
    '{"tool_name":"environment_history_","tool_input":{}}',
    '{"tool_name":"","tool_input":{}}',
    '{"tool_name":["Read"],"tool_input":{}}',
    '{"tool_name":null,"x":"Read","tool_input":{}}',
    # The first block that is read ends inside this tool name: its beginning must not match 'Read'.
    '{"x":"' + "x" * (4096 - len('{"x":"","tool_name":"Read')) + '","tool_name":"ReadAndWrite"}',
    '{"x":"' + "x" * 5000 + '","tool_name":"Write","tool_input":{}}',
]


def test_script_skips_reading_tools_and_passes_other_input_unchanged(
    working: Callable[..., Working], tmp_path: Path
) -> None:
    here = working("claude-code")
    shim = hooks_of(here.repo) / "agent-claude-code"
    program, told = tmp_path / "program", tmp_path / "told"
    program.write_text(f"#!/bin/sh\ncat >{told}\n")
    program.chmod(0o755)
    shim.write_text(re.sub(r"program=/\S+", f"program={program}", shim.read_text()))
    for data in (*LOOKING, *CHANGING):
        told.unlink(missing_ok=True)
        here.call("claude-code", "before", data.encode())
        assert (told.read_text() if told.exists() else None) == (data if data in CHANGING else None)


@pytest.mark.parametrize("data", [*LOOKING, *CHANGING])
def test_program_agrees_with_the_script_about_reading_tools(data: str) -> None:
    event = read_event("claude-code", "before", data.encode(), {})
    assert event is not None
    assert event.modifies is (data in CHANGING)


def test_nothing_is_captured_after_a_tool_that_only_reads() -> None:
    data = b'{"tool_name":"mcp_envhist_environment_history_log","session_id":"s"}'
    event = read_event("gemini", "after", data, {})
    assert event is not None
    assert advance_session(SessionState(), event, now=1.0, every=1)[1] == []


def test_hook_does_nothing_without_the_program_or_script(working: Callable[..., Working]) -> None:
    here = working("cursor")
    shim = hooks_of(here.repo) / "agent-cursor"
    shim.write_text(shim.read_text().replace("git-envhist", "git-envhist-that-vanished"))
    for kind in ("before", "after"):
        here.call("cursor", kind)
    shim.unlink()
    here.call("cursor", "before")
    here.call("cursor", "after")
    assert EnvHistory.open(str(here.repo.path), one_command=True).log() == []


def test_two_hooks_for_one_event_make_one_capture(working: Callable[..., Working]) -> None:
    here = working("claude-code", "cursor")
    event = told("cursor", "before", here.repo, here.transcript)
    for agent in ("claude-code", "cursor"):
        here.call(agent, "prompt", json.dumps(told("cursor", "prompt", here.repo, here.transcript)).encode())
    here.call("claude-code", "before", json.dumps(event).encode(), then="echo 1 >f")
    here.call("cursor", "before", json.dumps(event).encode(), then="echo 2 >f")
    (one,) = here.snapshots(1)
    assert one.actor.agent == "cursor"
    assert ("agent-turn", "1") in one.meta
    # The next tool call is a new event.
    event["tool_use_id"] = "tool_2"
    here.call("cursor", "before", json.dumps(event).encode())
    here.snapshots(2)


def test_agent_every_captures_before_every_nth_tool_that_may_change_something(
    working: Callable[..., Working],
) -> None:
    here = working("claude-code")
    here.repo.git("config", "envhist.agentEvery", "2")
    for number in range(4):
        here.call("claude-code", "before", tool_use_id=f"toolu_{number}", then=f"echo {number} >f")
        here.call("claude-code", "before", tool_name="Read", tool_use_id=f"read_{number}")
    second, first = here.snapshots(2)
    assert here.repo.git("cat-file", "blob", f"{second.tree}:f") == "1"
    assert b"f" not in here.repo.git("ls-tree", "--name-only", first.tree).encode().split(b"\n")


def test_tool_waits_up_to_agent_timeout_and_a_late_snapshot_has_a_remark(
    working: Callable[..., Working],
) -> None:
    here = working("codex")
    here.repo.git("config", "envhist.agentTimeout", "1s")
    with open(here.repo.path / ".git/envhist/lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Neither hook waits for the locked capture or for the processes it leaves behind.
        here.call("codex", "before")
        here.call("codex", "after")
    snapshots = here.snapshots(1, lambda found: bool(found[0].remarks))
    assert "envhist.agentTimeout" in snapshots[0].remarks[0].text
    assert "agentTimeout" in here.repo.run("envlog", "show", check=True).out


@pytest.mark.parametrize("kind", ["before", "after"])
def test_agent_pipe_closes_with_the_hook(working: Callable[..., Working], kind: str) -> None:
    here = working("codex")
    here.repo.git("config", "envhist.agentTimeout", "0.1s")
    reading, writing = os.pipe()
    data = json.dumps(told("codex", kind, here.repo, here.transcript)).encode()
    with open(here.repo.path / ".git/envhist/lock", "ab") as lock, open(reading, "rb") as left:
        # This lock keeps the background process of the hook running.
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(
            ["sh", "-c", here.command("codex", kind)], cwd=here.repo.path, input=data, check=True,
            env=here.repo.env, pass_fds=[writing],
        )  # fmt: skip
        os.close(writing)
        assert select.select([left], [], [], LONG)[0]
        assert left.read() == b""
    here.snapshots(1)


def test_unfinished_spool_file_of_a_killed_hook_is_removed(working: Callable[..., Working]) -> None:
    here = working("codex")
    spool = hooks_of(here.repo) / "spool"
    spool.mkdir()
    for name, age in (("codex.prompt.1", 86_400.0), ("codex.prompt.2", 0.0)):
        (spool / name).write_text('{"prompt": "half of')
        os.utime(spool / name, (time.time() - age,) * 2)
    here.call("codex", "before")
    assert sorted(path.name for path in spool.iterdir()) == ["codex.prompt.2", "lock"]


def test_agent_hook_captures_nothing_when_disabled(working: Callable[..., Working]) -> None:
    here = working("gemini")
    here.repo.git("config", "envhist.enabled", "false")
    here.call("gemini", "before")
    here.call("gemini", "after")
    here.idle()
    assert EnvHistory.open(str(here.repo.path), one_command=True).log() == []
