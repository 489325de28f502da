"""Turns of an agent's session: generated prompts, turns without an end, subagents, and events of killed processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from git_envhist.integrations.agents.events import (
    REPEAT_SECONDS,
    AgentEvent,
    Job,
    SessionState,
    advance,
    read_event,
    read_turn,
    write_turn,
)
from tests.integrations.agents.test_called import Working, hooks_of, told
from tests.support.repository import Repo


def event(kind: str, **more: object) -> AgentEvent:
    value: Mapping[str, object] = {
        "session_id": "s",
        "tool_name": "Write" if kind == "before" else "",
        **more,
    }
    found = read_event("claude-code", kind, json.dumps(value).encode(), {})
    assert found is not None
    return found


def walk(*events: AgentEvent, step: float = 1.0) -> tuple[SessionState, list[Job]]:
    state, jobs = SessionState(), []
    for number, each in enumerate(events):
        state, job = advance(state, each, now=number * step, every=1)
        jobs += [job] if job else []
    return state, jobs


@pytest.mark.parametrize(
    "words",
    [
        "<task-notification>\n<task-id>b1</task-id></task-notification>",
        " <system-reminder>todo</system-reminder>",
        "[System: the background process ended]",
    ],
)
def test_generated_prompt_begins_no_turn(words: str) -> None:
    state, jobs = walk(event("prompt", prompt="add a page"), event("before"), event("prompt", prompt=words))
    assert (state.number, state.tools, len(jobs)) == (1, 1, 1)


def test_prompt_that_mentions_a_generated_tag_begins_a_turn() -> None:
    state, _ = walk(event("prompt", prompt="why does it print <task-notification>?"))
    assert state.number == 1


def test_prompt_of_a_subagent_begins_no_turn() -> None:
    state, _ = walk(event("prompt", prompt="a"), event("prompt", prompt="b", agent_id="x1"))
    assert state.number == 1


def test_turn_without_an_end_is_captured_at_the_next_prompt() -> None:
    first = SessionState(number=1, prompt="add a page", tools=1, is_open=True)
    state, job = advance(first, event("prompt", prompt="go on"), now=0.0, every=1)
    assert job is not None
    assert (job.turn.number, job.turn.prompt) == (1, "add a page")
    assert (state.number, state.is_open) == (2, False)


def test_turn_with_an_end_is_not_captured_again_at_the_next_prompt() -> None:
    _, jobs = walk(event("prompt", prompt="a"), event("before"), event("after"), event("prompt", prompt="b"))
    assert [job.event.kind for job in jobs] == ["before", "after"]


def test_repeated_call_id_is_ignored_for_the_whole_session() -> None:
    same = event("before", tool_use_id="call-1")
    _, jobs = walk(event("prompt", prompt="a"), same, same, step=REPEAT_SECONDS * 10)
    assert len(jobs) == 1


def test_equal_prompts_without_an_id_are_two_events_after_some_time() -> None:
    state, _ = walk(event("prompt", prompt="go on"), event("prompt", prompt="go on"), step=REPEAT_SECONDS * 2)
    assert state.number == 2


def test_session_state_is_unchanged_after_writing_and_reading() -> None:
    state = SessionState(2, "title", "sealed", 3, (("prompt x", 1.0, ("claude-code",)),), is_open=True)
    assert read_turn(json.loads(json.dumps(write_turn(state)))) == state


def test_subagent_is_recorded_with_its_snapshot(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    repo.write("app.py", "changed")
    here.call("claude-code", "before", agent_id="a17", agent_type="Explore")
    (snapshot,) = here.snapshots(1)
    assert {("agent-id", "a17"), ("agent-type", "Explore")} <= set(snapshot.meta)


def test_end_of_a_session_waits_for_its_snapshot(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    repo.write("app.py", "changed")
    here.call("claude-code", "end")
    # The agent may be the first process of a container: when it ends, all other processes are killed.
    assert len(EnvHistory.open(str(repo.path)).log()) == 1


def test_event_of_a_killed_process_is_processed_by_the_next_hook(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    repo.write("app.py", "changed")
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    spool = hooks_of(repo) / "spool"
    spool.mkdir(mode=0o700, exist_ok=True)
    data = json.dumps(told("claude-code", "after", repo, here.transcript))
    (spool / f"claude-code.after.1.taken.{dead.stdout.strip()}").write_text(f"{repo.path}\n{data}")
    here.call("claude-code", "prompt")
    here.snapshots(1)
    here.idle()
    assert list(spool.glob("*.taken.*")) == []
