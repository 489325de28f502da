"""The calls that an agent's hooks report, on the snapshots; and the arguments of tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from git_envhist.integrations.agents.events import has_failed
from git_envhist.integrations.agents.tool_arguments import only_reads, read_arguments, trace_context
from tests.integrations.agents.test_called import Working, working

__all__ = ["working"]

TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


def shell(number: int, command: str) -> dict[str, object]:
    return {"tool_name": "Bash", "tool_use_id": f"toolu_{number}", "tool_input": {"command": command}}


def write(repo: Path, number: int, path: str, content: str) -> dict[str, object]:
    named = {"file_path": str(repo / path), "content": content}
    return {"tool_name": "Write", "tool_use_id": f"toolu_{number}", "tool_input": named}


def test_snapshot_lists_the_calls_that_ran_and_the_next_one(working: Callable[..., Working]) -> None:
    here = working("claude-code")
    here.repo.write("f", "old\n")
    here.repo.env["TRACEPARENT"] = TRACE
    here.call("claude-code", "prompt")
    first = shell(1, "make API_KEY=hunter2hunter2 && touch g")
    here.call("claude-code", "before", then="echo new >f", agent_id="sub-1", agent_type="tests", **first)
    here.call("claude-code", "done", agent_id="sub-1", agent_type="tests", **first)
    second = write(here.repo.path, 2, "f", "written\n")
    here.call("claude-code", "before", then="printf 'written\\n' >f", **second)
    here.call("claude-code", "done", **second)
    here.call("claude-code", "after")
    after, between, before = here.snapshots(3)
    (next_call,) = before.calls
    assert (next_call.id, next_call.began, before.window) == ("toolu_1", None, None)
    ran, about_to_run = between.calls
    assert (ran.id, ran.tool, ran.command) == ("toolu_1", "Bash", "make API_KEY=*** && touch g")
    assert ran.intent == "make the greeting friendlier"
    assert (ran.subagent, ran.subagent_type, ran.session, ran.trace) == ("sub-1", "tests", "c-1", TRACE)
    assert ran.began is not None
    assert ran.ended is not None
    assert ran.began <= ran.ended
    assert (about_to_run.id, about_to_run.paths, about_to_run.changes_only_paths) == ("toolu_2", ("f",), True)
    assert about_to_run.began is None
    assert between.window is not None
    assert between.window.after == before.id
    (wrote,) = after.calls
    assert (wrote.id, wrote.wrote, wrote.ended is not None) == ("toolu_2", ("f",), True)
    shown = here.repo.run("envlog", "show", between.id, check=True).out
    assert "Call:      Bash make API_KEY=*** && touch g (subagent tests)" in shown
    assert "Next:      Write f" in shown
    told = json.loads(here.repo.run("envlog", "show", "--json", between.id, check=True).out)
    assert [call["call_id"] for call in told["calls"]] == ["toolu_1", "toolu_2"]


def test_bytes_that_differ_from_the_arguments_are_not_written_by_the_call(
    working: Callable[..., Working],
) -> None:
    here = working("claude-code")
    here.repo.write("f", "old\n")
    call = write(here.repo.path, 1, "f", "written\n")
    here.call("claude-code", "before", then="echo another >f", **call)
    here.call("claude-code", "done", **call)
    here.call("claude-code", "after")
    after, _ = here.snapshots(2)
    assert [one.wrote for one in after.calls] == [()]


def test_file_tools_name_their_paths_and_commands_do_not(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one two one\n")
    place = str(tmp_path / "f")
    edit = {"file_path": place, "old_string": "two", "new_string": "2"}
    found = read_arguments("Edit", json.dumps(edit), "/")
    assert (found.paths, found.changes_only_paths) == ((place,), True)
    assert [write.after for write in found.writes] == [b"one 2 one\n"]
    # A text that occurs twice is not replaced, unless all are.
    twice = {**edit, "old_string": "one"}
    assert read_arguments("Edit", json.dumps(twice), "/").writes == ()
    every = read_arguments("Edit", json.dumps({**twice, "replace_all": True}), "/")
    assert [write.after for write in every.writes] == [b"2 two 2\n"]
    several = {"file_path": "f", "edits": [edit, {"old_string": "2", "new_string": "3"}]}
    assert [one.after for one in read_arguments("MultiEdit", json.dumps(several), str(tmp_path)).writes] == [
        b"one 3 one\n"
    ]
    patch = "*** Begin Patch\n*** Update File: a\n*** Move to: sub/b\n*** Delete File: c\n*** End Patch"
    patched = read_arguments("apply_patch", json.dumps({"command": patch}), str(tmp_path))
    assert patched.paths == tuple(str(tmp_path / name) for name in ("a", "sub/b", "c"))
    assert patched.writes == ()


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("Write", "{"),
        ("Write", "[]"),
        ("Write", '{"file_path": 5}'),
        ("Write", '{"file_path": "relative", "content": "x"}'),
        ("Edit", '{"file_path": "a\\u0000b", "old_string": "a", "new_string": "b"}'),
        ("apply_patch", '{"command": "rm -rf *"}'),
        ("mcp__server__do", '{"file_path": "/f"}'),
        ("Write", json.dumps({"file_path": "/" + "a" * 4_300_000, "content": "x"})),
        ("Write", json.dumps({"file_path": "/\ud800", "content": "x"})),
        (None, "null"),
    ],
)
def test_unknown_arguments_may_change_anything(tool: str | None, text: str) -> None:
    found = read_arguments(tool, text, None)
    assert not found.changes_only_paths
    assert found.writes == ()
    assert "" not in found.paths
    assert all(len(path) <= 4096 for path in found.paths)


def test_edits_that_make_a_file_too_long_are_not_planned(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a")
    doubled = {"old_string": "a", "new_string": "aa", "replace_all": True}
    edits = {"file_path": "f", "edits": [doubled] * 23}
    assert read_arguments("MultiEdit", json.dumps(edits), str(tmp_path)).writes == ()


def test_name_in_a_patch_has_no_space_at_its_end() -> None:
    patch = "*** Begin Patch\n*** Add File: a" + " " * 2_000 + "b \t\r\n*** Add File: c\n"
    assert read_arguments("apply_patch", json.dumps({"patch": patch}), "/").paths == (
        "/a" + " " * 2_000 + "b",
        "/c",
    )


@pytest.mark.parametrize(
    ("command", "continues"),
    [
        ("make && make test", False),
        ("make 2>&1 | tee log", False),
        ("make >&2", False),
        ("npm run dev &", True),
        ("(sleep 5; touch f) & wait", True),
        ("nohup make", True),
        ("docker compose up -d", True),
        ("redis-server --daemonize yes", True),
        ("python app.py 8000&", True),
        ("./server >log 2>&1&", True),
        ("sleep 5&", True),
        ("make &>log", False),
        ("make <&3", False),
        ("x " * 70_000, True),
    ],
)
def test_command_that_may_leave_a_process_is_known(command: str, continues: bool) -> None:
    assert read_arguments("Bash", json.dumps({"command": command}), "/").may_continue is continues


def test_command_line_is_masked_before_it_is_cut() -> None:
    command = "x" * 1_990 + " --password hunter2hunter2"
    shown = read_arguments("Bash", json.dumps({"command": command}), "/").command
    assert shown is not None
    assert "hunter2" not in shown
    assert len(shown) <= 2_000
    background = {"command": "make", "run_in_background": True}
    assert read_arguments("Bash", json.dumps(background), "/").may_continue


def test_trace_context_is_taken_in_its_form_only() -> None:
    assert trace_context({}, {"TRACEPARENT": TRACE}) == TRACE
    assert trace_context({"traceparent": TRACE}, {}) == TRACE
    assert trace_context({"traceparent": "x\x1b[2J"}, {"TRACEPARENT": "y"}) is None


@pytest.mark.parametrize(
    "command",
    [
        "ls -la", "cat a.py b.py", "cd src && ls", "grep -rn 'a|b > c' . | head -20", "git status; git diff HEAD~1",
        "sed -n '1,200p' f", "find . -name '*.py' -newer x", "wc -l f 2>/dev/null", "rg foo 2>&1 | tail -5",
        'echo "a && b"', "git log --oneline -5\nls",
    ],
)  # fmt: skip
def test_command_that_only_reads_changes_nothing(command: str) -> None:
    assert only_reads(command)
    found = read_arguments("Bash", json.dumps({"command": command}), "/")
    assert (found.changes_only_paths, found.paths, found.may_continue) == (True, (), False)
    # A tool of another name may do more with the same words.
    assert not read_arguments("mcp__s__run", json.dumps({"command": command}), "/").changes_only_paths


@pytest.mark.parametrize(
    "command",
    [
        "", " ", "make", "ls > f", "ls >> f", "cat <<E\nx\nE", "cat $(rm f)", "cat `rm f`", 'echo "$(rm f)"', "A=1 ls",
        "./ls", "ls & rm f", "ls; rm f", "ls | tee f", "sed -i s/a/b/ f", "sed -n 'w f' g", "sed -n 1p -i f",
        "find . -delete", "find . -exec rm {} +", "find . '-delete'", "git commit -m x", "git", "git -c a=b status",
        "git diff --output=f", "git log '--out'put=f", "rg --pre rm x", "sort -o f f", "tee f", "xargs rm",
        "ls 2>/dev/nullx", "ls 2>&1x", "ls >/dev/null/x", "ls {a,b}", "ls *", "(ls)", "! ls", "ls 'a", "'ls'",
        "ls \\\n", "eval ls", "printf -v PATH /tmp/x\nls", "printf '-vPATH' x", "ls " * 900,
    ],
)  # fmt: skip
def test_any_other_command_may_change_something(command: str) -> None:
    assert not only_reads(command)


@pytest.mark.parametrize(
    ("event", "failed"),
    [
        ({"hook_event_name": "PostToolUseFailure", "error": "x"}, True),
        ({"hook_event_name": "PostToolUse", "tool_response": {"stdout": ""}}, False),
        ({"hook_event_name": "PostToolUse", "tool_response": "text"}, False),
        ({"tool_response": {"exit_code": 1}}, True),
        ({"tool_response": {"exit_code": 1, "interrupted": True}}, True),
        ({"hook_event_name": "PostToolUse", "tool_response": {"isError": True}}, None),
        ({"hook_event_name": "PostToolUse", "tool_response": {"interrupted": True}}, None),
        ({"hook_event_name": "PostToolUse", "tool_response": {"success": False}}, None),
        ({"hook_event_name": "PostToolUse", "tool_response": {"success": True, "interrupted": False}}, False),
        ({"tool_response": {"llmContent": "", "error": {"message": "x"}}}, True),
        ({"toolResult": {"resultType": "failure"}}, True),
        ({"toolResult": {"resultType": "success"}}, False),
        ({"toolResult": {"resultType": []}}, None),
        ({"toolResult": 5, "tool_response": None}, None),
        ({}, None),
    ],
)
def test_result_of_a_tool_is_read_as_its_agent_reports_it(
    event: dict[str, object], failed: bool | None
) -> None:
    assert has_failed(event) is failed


def test_failed_call_is_kept_and_shown_as_failed(working: Callable[..., Working]) -> None:
    here = working("claude-code")
    here.repo.write("f", "old\n")
    first, second = shell(1, "make broken"), shell(2, "make")
    for call, event in ((first, "PostToolUseFailure"), (second, "PostToolUse")):
        here.call("claude-code", "before", then=f"echo {call['tool_use_id']} >f", **call)
        here.call("claude-code", "done", hook_event_name=event, tool_response={}, **call)
    here.call("claude-code", "after")
    here.snapshots(3)
    value = json.loads(here.repo.run("envlog", "why", "--json", "--all", "f", check=True).out)
    assert [step["call"] and step["call"]["failed"] for step in value["steps"]] == [False, True, None]
    shown = here.repo.run("envlog", "why", "--all", "f", check=True).out
    assert "Bash make broken, by claude-code, call toolu_1, failed\n" in shown
    assert "Bash make, by claude-code, call toolu_2\n" in shown
