"""Turns of an agent's session: generated prompts, turns without an end, subagents, and events of killed processes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from git_envhist import EnvHistory
from git_envhist.handlers.agent_client import DONE
from git_envhist.handlers.agent_hook import _work
from git_envhist.integrations.agents.events import (
    REPEAT_SECONDS,
    AgentEvent,
    DueCapture,
    SessionState,
    _process_mark,
    advance_session,
    decode_session,
    encode_session,
    put_back,
    read_event,
    take_spooled,
)
from tests.integrations.agents.test_called import Working, hooks_of, told
from tests.support.needs import require
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


def walk(*events: AgentEvent, step: float = 1.0) -> tuple[SessionState, list[DueCapture]]:
    state, jobs = SessionState(), []
    for number, each in enumerate(events):
        state, due = advance_session(state, each, now=number * step, every=1)
        jobs += due
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
    first = SessionState(number=1, prompt="add a page", tools=1, open=(("/here", ""), ("/there", "a1")))
    state, jobs = advance_session(first, event("prompt", prompt="go on"), now=0.0, every=1)
    assert [(job.turn.number, job.turn.prompt, job.place) for job in jobs] == [
        (1, "add a page", "/here"),
        (1, "add a page", "/there"),
    ]
    assert (state.number, state.open) == (2, ())


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


def test_end_of_a_subagent_hides_neither_another_one_nor_the_end_of_the_turn() -> None:
    ends = [event("after", prompt_id="p", agent_id="a1"), event("after", prompt_id="p", agent_id="a2")]
    _, jobs = walk(event("prompt", prompt="a"), event("before"), *ends, event("after", prompt_id="p"))
    assert [job.event.kind for job in jobs] == ["before", "after", "after", "after"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"prompt": "a", "timestamp": "2026-11-20T09:24:37.959Z"}, {}),
        ({"prompt": "a", "timestamp": "2026-11-20T09:24:37.959Z"}, {"timestamp": 1795166677959}),
        ({"prompt": "a", "prompt_id": "p"}, {}),
    ],
)
def test_turn_is_counted_once_if_user_and_project_have_hooks(
    one: dict[str, object], other: dict[str, object]
) -> None:
    state, _ = walk(event("prompt", **one), event("prompt", **{**one, **other}))
    assert state.number == 1


def test_equal_prompts_at_two_times_are_two_turns() -> None:
    state, _ = walk(
        event("prompt", prompt="go on", timestamp=1795166677959),
        event("prompt", prompt="go on", timestamp=1795166679000),
    )
    assert state.number == 2


def test_work_in_two_worktrees_is_captured_in_both_after_the_turn() -> None:
    here, there = ("/here",), ("/there",)
    state, _ = advance_session(SessionState(), event("prompt", prompt="a"), now=0.0, every=0, places=here)
    captured = []
    for number, (what, places) in enumerate(
        (
            (event("before", tool_use_id="1"), here),
            (event("before", tool_use_id="2", agent_id="a1"), there),
            (event("before", tool_use_id="3", agent_id="a1"), there),
            (event("after", agent_id="a1"), here),
            (event("after"), here),
            (event("after"), here),
        )
    ):
        state, jobs = advance_session(state, what, now=float(number), every=0, places=places)
        captured.append([job.place for job in jobs])
    # The end of the subagent is reported from the project, and concerns the worktree.
    assert captured == [["/here"], ["/there"], [], ["/there"], ["/here"], ["/here"]]


def test_session_state_is_unchanged_after_writing_and_reading() -> None:
    seen = (("prompt x", 1.0, ("claude-code",)),)
    state = SessionState(2, "title", "sealed", 3, seen, ("/here",), (("/here", "a1"),))
    assert decode_session(json.loads(json.dumps(encode_session(state)))) == state


def test_subagent_is_recorded_with_its_snapshot(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    repo.write("app.py", "changed")
    here.call("claude-code", "before", agent_id="a17", agent_type="Explore")
    (snapshot,) = here.snapshots(1)
    assert {("agent-id", "a17"), ("agent-type", "Explore")} <= set(snapshot.meta)
    repo.run("envlog", "capture", "by hand", check=True)
    for words in (("--agent-id", "a17"), ("--session=c-1",), ("--session", "other", "--session", "c-1")):
        assert repo.run("envlog", *words, "--format=%H", check=True).out.split() == [snapshot.id]


def test_end_of_a_session_waits_for_its_snapshot(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    repo.write("app.py", "changed")
    here.call("claude-code", "end")
    # The agent may be the first process of a container: when it ends, all other processes are killed.
    assert len(EnvHistory.open(str(repo.path)).log()) == 1


ALONE = ("--pid", "--fork", "--mount-proc", "--kill-child")


def test_end_of_a_turn_waits_for_its_snapshot_if_the_agent_is_the_first_process(
    repo: Repo, tmp_path: Path
) -> None:
    unshare = require("unshare")
    if os.geteuid():
        pytest.skip("only root makes a process namespace everywhere")
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    repo.write("app.py", "changed")
    data = json.dumps(told("claude-code", "after", repo, here.transcript)).encode()
    # The shell of the agent, which starts the hook and does something afterwards.
    words = ["sh", "-c", f"sh -c {shlex.quote(here.command('claude-code', 'after'))}; exit $?"]
    subprocess.run([unshare, *ALONE, *words], cwd=repo.path, input=data, check=True, env=repo.env)
    # All processes of the namespace were killed.
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


def test_end_of_a_turn_whose_capture_failed_is_captured_by_the_next_hook(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    here.call("claude-code", "prompt", prompt="make it blue")
    here.call("claude-code", "before")
    here.snapshots(1)
    here.idle()
    repo.write("app.py", "blue")
    spool = hooks_of(repo) / "spool"
    event = spool / "claude-code.after.1.told"
    event.write_text(f"{repo.path}\n{json.dumps(told('claude-code', 'after', repo, here.transcript))}")
    packs = repo.path / ".git/objects/pack"
    packs.rename(tmp_path / "packs")
    packs.write_text("in the way")
    _work(str(spool), None, lambda _data: True, repo.env)
    assert (spool / "claude-code.after.1.again.told").exists()
    packs.unlink()
    (tmp_path / "packs").rename(packs)
    here.call("claude-code", "prompt", prompt="now green")
    assert here.snapshots(2)[0].intent == "make it blue"
    here.idle()
    assert list(spool.glob("*.told")) == []


def test_event_that_is_handled_again_is_no_repetition_of_itself() -> None:
    turn, _ = advance_session(SessionState(), event("prompt", prompt="x"), now=0.0, every=1)
    timed = replace(event("after"), at="2026-11-20T10:00:00Z")
    turn, first = advance_session(turn, timed, now=1.0, every=1)
    assert first
    # The hooks of the user and of the project call with the same event.
    assert advance_session(turn, timed, now=2.0, every=1)[1] == []
    assert advance_session(turn, replace(timed, again=True), now=3.0, every=1)[1]


def test_event_that_fails_twice_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "claude-code.done.1.told").write_text('\n{"session_id": "s"}')
    ((first, taken),) = take_spooled(str(tmp_path), {})
    put_back(taken)
    assert [path.name for path in tmp_path.iterdir()] == ["claude-code.done.1.again.told"]
    ((second, taken),) = take_spooled(str(tmp_path), {})
    put_back(taken)
    assert (first.again, second.again) == (False, True)
    assert list(tmp_path.iterdir()) == []


def test_prompt_that_could_not_be_handled_is_handled_by_the_next_hook(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    spool = hooks_of(repo) / "spool"
    spool.mkdir(mode=0o700, exist_ok=True)
    message = json.dumps(told("claude-code", "prompt", repo, here.transcript, prompt="make it blue"))
    (spool / "claude-code.prompt.1.told").write_text(f"{repo.path}\n{message}")
    config = repo.read(".git/config")
    repo.write(".git/config", config + b"[damaged\n")
    _work(str(spool), None, lambda _data: True, repo.env)
    repo.write(".git/config", config)
    here.call("claude-code", "before")
    assert here.snapshots(1)[0].intent == "make it blue"


def test_tool_does_not_wait_for_a_capture_that_is_made_again(repo: Repo, tmp_path: Path) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    spool = hooks_of(repo) / "spool"
    spool.mkdir(mode=0o700, exist_ok=True)
    again = spool / "claude-code.after.1.again.told"
    again.write_text(f"{repo.path}\n{json.dumps(told('claude-code', 'after', repo, here.transcript))}")
    data = json.dumps(told("claude-code", "before", repo, here.transcript)).encode()
    waited: list[bool] = []

    def report(message: bytes) -> bool:
        if message == DONE and not waited:
            moments = [dict(one.meta)["agent-moment"] for one in EnvHistory.open(str(repo.path)).log()]
            waited.append(moments == ["before"])
            repo.write("app.py", "by the tool")
        return True

    _work(str(spool), read_event("claude-code", "before", data, repo.env), report, repo.env)
    assert waited == [True]
    newest = EnvHistory.open(str(repo.path)).log()[0]
    assert (dict(newest.meta)["agent-moment"], newest.actor.tool) == ("after", None)


@pytest.mark.parametrize("name", ["calls", "calls.lock"])
def test_capture_after_a_turn_needs_no_list_of_calls(repo: Repo, tmp_path: Path, name: str) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    place = repo.path / ".git/envhist/agents"
    place.mkdir(parents=True, exist_ok=True)
    (place / "calls").touch()
    (place / name).unlink(missing_ok=True)
    (place / name).mkdir()
    here.call("claude-code", "prompt")
    here.call("claude-code", "before")
    here.snapshots(1)
    assert (place / "calls.lost").exists()
    repo.write("app.py", "changed")
    here.call("claude-code", "after")
    assert here.snapshots(2)[0].intent == here.snapshots(2)[1].intent != ""


@pytest.mark.parametrize("data", [b'{"n": ' + b"9" * 5_000 + b"}", b'{"session_id": "\xff"}', b"", b"["])
def test_input_that_cannot_be_read_does_not_prevent_the_snapshot_before_a_tool(
    repo: Repo, tmp_path: Path, data: bytes
) -> None:
    here = Working(repo, tmp_path / "transcript.jsonl", "claude-code")
    here.call("claude-code", "before", data)
    here.snapshots(1)


def test_event_of_a_killed_process_is_handled_if_another_process_has_its_id(tmp_path: Path) -> None:
    own = _process_mark(os.getpid())
    # The second is of a process with this id in another container; an earlier version wrote only the id.
    names = [
        f"claude-code.after.{n}.told.taken.{mark}"
        for n, mark in enumerate((own, f"{os.getpid()}-1", os.getpid()))
    ]
    for name in names:
        (tmp_path / name).write_text('\n{"session_id": "s"}')
    taken = [Path(path).name for _, path in take_spooled(str(tmp_path), {})]
    assert taken == [f"claude-code.after.1.told.taken.{own}"]
    assert {path.name for path in tmp_path.iterdir()} == {names[0], *taken, names[2]}
