"""The calls that an agent's hooks report, on the snapshots; and the arguments of tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from git_envhist.integrations.agents.arguments import read_arguments, trace_context
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
