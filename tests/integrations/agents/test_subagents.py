"""Events of subagents, as real agents sent them."""

from __future__ import annotations

import json

from git_envhist.integrations.agents.events import read_event

COPILOT = {
    "sessionId": "b023d702-9af6-4c9d-974f-e0f1bbee70f1",
    "timestamp": 1795170321629,
    "cwd": "/project",
    "toolName": "bash",
    "toolArgs": {"command": "echo 2 >f"},
    "agentId": "b023d702-9af6-4c9d-974f-e0f1bbee70f1",
    "agentType": "general-purpose",
    "parentAgentId": "4fb218f1-74ec-4713-8ade-acec3d9b9196",
}


def test_subagent_of_copilot_belongs_to_the_session_of_its_parent() -> None:
    for kind in ("prompt", "before", "after"):
        event = read_event("copilot", kind, json.dumps(COPILOT).encode(), {"HOME": "/home/me"})
        assert event is not None
        assert event.session == COPILOT["parentAgentId"]
        assert (event.subagent, event.subagent_type) == (COPILOT["agentId"], "general-purpose")
        assert event.transcript == f"/home/me/.copilot/session-state/{event.session}/events.jsonl"
        assert not event.begins_turn
