"""The list of calls that may have changed a working tree since its last capture."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from git_envhist.capture.tool_calls import MAX_CALLS, NO_RECORD, OpenCall, ToolCalls
from git_envhist.locks import StillLocked
from git_envhist.model import ToolCall
from tests.support.repository import Repo

NEWEST = "3f" * 20


def open_call(key: str, at: float, session: str = "s", subagent: str | None = None) -> OpenCall:
    return OpenCall(key, ToolCall("Bash", "claude-code", session=session, id=key, subagent=subagent), at)


def listed(calls: ToolCalls, now: float = 1000.0) -> list[tuple[str | None, bool, bool]]:
    """Return id, begun and ended of each call that a snapshot would list."""
    return [
        (call.id, call.began is not None, call.ended is not None) for call in calls.record(now, 3.0).calls
    ]


def test_without_hooks_there_is_no_record_and_no_file(tmp_path: Path) -> None:
    calls = ToolCalls(str(tmp_path))
    calls.begin("s", "1", 1.0)
    calls.end("s", "1", 2.0)
    calls.looked(NEWEST, 3.0, published=True)
    assert calls.record(4.0, 3.0) == NO_RECORD
    assert list(tmp_path.iterdir()) == []


def test_call_about_to_run_has_no_beginning_until_its_hook_should_have_answered(tmp_path: Path) -> None:
    calls = ToolCalls(str(tmp_path))
    calls.announce(open_call("1", 10.0))
    assert listed(calls, 12.0) == [("1", False, False)]
    assert listed(calls, 13.5) == [("1", True, False)]


def test_ended_call_is_listed_once_with_its_end(tmp_path: Path) -> None:
    calls = ToolCalls(str(tmp_path))
    calls.announce(open_call("1", 10.0))
    calls.begin("s", "1", 11.0)
    calls.looked(NEWEST, 12.0, published=True)
    assert listed(calls) == [("1", True, False)]
    # The end became known after a snapshot had listed the call without it.
    calls.end("s", "1", 11.5)
    assert listed(calls) == [("1", True, True)]
    calls.looked(NEWEST, 15.0, published=False)
    assert listed(calls) == [("1", True, True)]
    calls.looked(NEWEST, 16.0, published=True)
    assert listed(calls) == []


def test_capture_without_change_ends_the_time_of_an_older_call(tmp_path: Path) -> None:
    calls = ToolCalls(str(tmp_path))
    calls.announce(open_call("1", 10.0))
    calls.begin("s", "1", 11.0)
    calls.end("s", "1", 11.5)
    calls.looked(NEWEST, 12.0, published=False)
    calls.announce(open_call("2", 12.5))
    calls.begin("s", "2", 13.0)
    assert listed(calls) == [("2", True, False)]
    window = calls.record(20.0, 3.0).window
    assert window is not None
    assert (window.after, window.start, window.end) == (NEWEST, 12.0, 20.0)


def test_window_is_unknown_before_the_first_capture_and_after_lost_calls(tmp_path: Path) -> None:
    calls = ToolCalls(str(tmp_path))
    calls.announce(open_call("1", 10.0))
    assert calls.record(11.0, 3.0).window is None
    calls.looked(NEWEST, 12.0, published=True)
    assert calls.record(13.0, 3.0).window is not None
    for number in range(MAX_CALLS + 1):
        calls.announce(open_call(f"n{number}", 14.0))
    assert calls.record(15.0, 3.0).window is None
    assert len(listed(calls)) == MAX_CALLS
    (tmp_path / "agents/calls").write_text("{damaged")
    assert calls.record(15.0, 3.0).window is None


def test_end_of_a_turn_ends_the_calls_of_its_agent_only(tmp_path: Path) -> None:
    calls = ToolCalls(str(tmp_path))
    for key, session, subagent in (("1", "s", None), ("2", "s", "a"), ("3", "other", None)):
        calls.announce(open_call(key, 10.0, session, subagent))
    calls.leave("s", 11.0, lambda subagent: subagent is None)
    assert [one for one, _, _ in listed(calls)] == ["1", "2", "3"]
    calls.looked(NEWEST, 12.0, published=True)
    assert [one for one, _, _ in listed(calls)] == ["2", "3"]


def test_same_call_of_two_hooks_is_listed_once(tmp_path: Path) -> None:
    calls = ToolCalls(str(tmp_path))
    calls.announce(open_call("1", 10.0))
    calls.announce(open_call("1", 10.1))
    assert len(listed(calls)) == 1
    assert (tmp_path / "agents/calls").stat().st_mode & 0o777 == 0o600


def test_list_that_is_too_long_for_a_message_is_not_recorded(tmp_path: Path) -> None:
    calls = ToolCalls(str(tmp_path))
    calls.looked(NEWEST, 9.0, published=True)
    long = ToolCall("Write", "claude-code", session="s", id="1", paths=("a" * 4_300_000,))
    calls.announce(OpenCall("1", long, 10.0))
    assert calls.record(11.0, 3.0) == NO_RECORD


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ended", "x"), pytest.param("began", 10**400, id="began-long"),
        ("began", float("nan")), ("tool", 5), ("command", ["x"]),
        ("session", "\ud800"), ("paths", ["\ud800"]), ("paths", 7), ("may_continue", "x"),
    ],
)  # fmt: skip
def test_capture_succeeds_with_a_damaged_list(repo: Repo, name: str, value: object) -> None:
    repo.run("envlog", "capture", check=True)
    calls = ToolCalls(str(repo.path / ".git/envhist"))
    calls.announce(open_call("1", 10.0))
    path = repo.path / ".git/envhist/agents/calls"
    found = json.loads(path.read_text())
    found["calls"][0]["call"][name] = value
    path.write_text(json.dumps(found))
    repo.write("new", "file")
    repo.run("envlog", "capture", check=True)


def test_list_that_another_process_locks_is_given_up(repo: Repo) -> None:
    repo.run("envlog", "capture", check=True)
    calls = ToolCalls(str(repo.path / ".git/envhist"))
    calls.announce(open_call("1", 10.0))
    with open(repo.path / ".git/envhist/agents/calls.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StillLocked):
            calls.announce(open_call("2", 10.0))
        repo.write("new", "file")
        repo.run("envlog", "capture", check=True)


def test_end_ends_no_call_that_was_announced_later(tmp_path: Path) -> None:
    calls = ToolCalls(str(tmp_path))
    calls.announce(open_call("1", 10.0))
    calls.end("s", "1", 9.0)
    calls.leave("s", 9.0, lambda _subagent: True)
    calls.looked(NEWEST, 20.0, published=True)
    assert listed(calls) == [("1", True, False)]


def test_call_moved_to_the_background_may_continue_after_its_end(tmp_path: Path) -> None:
    calls = ToolCalls(str(tmp_path))
    calls.announce(open_call("1", 10.0))
    calls.end("s", "1", 11.0, continues=True)
    calls.looked(NEWEST, 20.0, published=True)
    assert listed(calls) == [("1", True, True)]


def test_nothing_is_claimed_after_a_call_that_could_not_be_added(tmp_path: Path) -> None:
    calls = ToolCalls(str(tmp_path))
    calls.announce(open_call("1", 10.0))
    calls.lose()
    calls.looked(NEWEST, 12.0, published=True)
    assert calls.record(13.0, 3.0).window is None
    lost = tmp_path / "agents/calls.lost"
    os.utime(lost, (time.time() - 4_000,) * 2)
    assert calls.record(13.0, 3.0).window is not None
