"""Calls of agents' tools in the message of a snapshot: written and read, also with hostile values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.lazy import replace
from git_envhist.model import CallWindow, ToolCall
from git_envhist.snapshots.calls import read_call, read_window, write_call, write_window
from git_envhist.snapshots.message import read_message, write_message
from tests.snapshots.test_message import DRAFT

ID = "3f" * 20
CALL = ToolCall(
    "Bash",
    "claude-code",
    session="c-1",
    id="toolu_1",
    subagent="a-1",
    subagent_type="general-purpose",
    intent="make it; friendlier",
    command="make all\n# =; %20",
    paths=("a b", "ü=;", "\udcff"),
    wrote=("a b",),
    trace="00-" + "0" * 32 + "-" + "1" * 16 + "-01",
    began=1763461083.123,
    ended=1763461084.5,
    may_continue=True,
    failed=True,
)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)


@given(TEXT, TEXT, st.lists(TEXT, max_size=4).map(tuple), st.none() | TEXT)
def test_call_is_read_as_written(
    tool: str, command: str, paths: tuple[str, ...], subagent: str | None
) -> None:
    call = replace(CALL, tool=tool, command=command, paths=paths, subagent=subagent, failed=False)
    raw = write_message(replace(DRAFT, calls=(call, CALL), window=CallWindow(ID, 1.0, 2.5)))
    values = read_message(raw).values
    assert values["calls"] == (call, CALL)
    assert values["window"] == CallWindow(ID, 1.0, 2.5)
    assert read_call(write_call(call)) == call


def test_times_of_a_call_are_rounded_towards_each_other() -> None:
    call = read_call(write_call(replace(CALL, began=100.0001, ended=100.9999)))
    assert (call.began, call.ended) == (100.001, 100.999)
    assert read_call(write_call(call)) == call


@pytest.mark.parametrize(
    "value",
    ["", "x", ID, f"{ID} 1", f"{ID} 2 1", f"{ID} nan 1", f"{ID} 1 inf", f"{ID} 1 1e30", f"{'z' * 40} 1 2"],
)
def test_malformed_window_counts_as_none(value: str) -> None:
    assert read_window(value) is None
    assert read_window(write_window(CallWindow(ID, 1.0, 2.0))) is not None


def test_malformed_call_is_read_without_its_unknown_words() -> None:
    call = read_call(
        "tool=x =; began=nan ended=-1 later=1 result=maybe command=%1b[2J path only-paths" + " path=y" * 9_000
    )
    assert (call.tool, call.agent, call.began, call.ended, call.command) == ("x", "", None, None, "\x1b[2J")
    assert call.failed is None
    assert len(call.paths) < 2_000


def test_message_without_calls_has_no_trailer_for_them() -> None:
    raw = write_message(DRAFT)
    assert b"Env-Call" not in raw
    assert "calls" not in read_message(raw).values
