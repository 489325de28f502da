"""The selection of a list by the session of an agent and by the id of a subagent."""

from __future__ import annotations

import pytest

from git_envhist.errors import UsageError
from git_envhist.history.timeline import SnapshotFilter, filter_snapshots
from git_envhist.lazy import replace
from git_envhist.model import Actor, Snapshot
from tests.history.snapshots import ACTOR, NOW, snapshot


def by_agent(intent: str, session: str | None, subagent: str | None = None) -> Snapshot:
    actor: Actor = replace(ACTOR, agent="claude-code", session=session)
    meta = (("agent-id", subagent),) if subagent else ()
    return replace(snapshot(intent), actor=actor, meta=meta)


FOUND = [
    by_agent("one", "5f3a-1", "a17"),
    by_agent("two", "5f3a-1"),
    by_agent("three", "77c2-1", "b4"),
    by_agent("four", None),
]


@pytest.mark.parametrize(
    ("choice", "intents"),
    [
        (SnapshotFilter(sessions=("5f3a-1",)), ["one", "two"]),
        (SnapshotFilter(sessions=("5f",)), ["one", "two"]),
        (SnapshotFilter(sessions=("5f", "77c2-1")), ["one", "two", "three"]),
        (SnapshotFilter(sessions=("f3a",)), []),
        (SnapshotFilter(agent_ids=("a17",)), ["one"]),
        (SnapshotFilter(agent_ids=("a", "b")), ["one", "three"]),
        (SnapshotFilter(sessions=("77",), agent_ids=("a17",)), []),
    ],
)
def test_list_is_selected_by_session_and_subagent(choice: SnapshotFilter, intents: list[str]) -> None:
    assert [one.intent for one in filter_snapshots(FOUND, choice, NOW)] == intents


@pytest.mark.parametrize("choice", [SnapshotFilter(sessions=("",)), SnapshotFilter(agent_ids=("a", ""))])
def test_empty_id_is_refused(choice: SnapshotFilter) -> None:
    with pytest.raises(UsageError, match="no id given"):
        filter_snapshots(FOUND, choice, NOW)
