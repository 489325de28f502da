"""The turns of one session: which prompt is worked on, how many tools have changed something, what was seen (pure).

Two hooks may be called for one event: an agent may read another's settings beside its own, and one may be installed
for a repository and for the user. The second is known by the id of the call, or by coming from elsewhere with the same
words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from git_envhist.triggers.agents.events import AgentEvent
from git_envhist.values import dataclass, replace

AT_ONCE = 60.0
"""Seconds after which the same words are another event."""
MOST_SEEN = 64

Seen = tuple[str, float, tuple[str, ...]]
"""(what it was, when it was seen last, by whose settings)."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """Where a session stands."""

    number: int = 0
    prompt: str = ""
    """The title of the prompt: short and masked."""
    sealed: str = ""
    """The whole prompt, sealed, as text; empty if it could not be sealed."""
    tools: int = 0
    """How many tools of this turn may have changed something."""
    seen: tuple[Seen, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A capture that an event asks for."""

    event: AgentEvent
    turn: SessionState


def advance(
    turn: SessionState, event: AgentEvent, *, now: float, every: int
) -> tuple[SessionState, Job | None]:
    """The turn after an event, and the capture that is due."""
    turn, doubled = _look(turn, event, now)
    if doubled:
        return turn, None
    if event.kind == "prompt":
        return replace(turn, number=turn.number + 1, prompt="", sealed="", tools=0), None
    if event.kind != "before":
        return turn, Job(event, turn)
    if not event.modifies:
        return turn, None
    turn = replace(turn, tools=turn.tools + 1)
    return turn, Job(event, turn) if is_due(turn.tools, every) else None


def is_due(tools: int, every: int) -> bool:
    """Whether a capture precedes that tool: every n-th, the first included; 0: the first alone."""
    return (tools - 1) % every == 0 if every > 0 else tools == 1


def write_turn(turn: SessionState) -> dict[str, Any]:
    return {
        "number": turn.number,
        "prompt": turn.prompt,
        "sealed": turn.sealed,
        "tools": turn.tools,
        "seen": turn.seen,
    }


def read_turn(value: object) -> SessionState:
    """What `write_turn` wrote; a new turn where it is anything else."""
    try:
        if not isinstance(value, Mapping):
            return SessionState()
        seen = tuple((str(key), float(at), tuple(map(str, by))) for key, at, by in value["seen"])
        sealed = str(value.get("sealed", ""))
        return SessionState(int(value["number"]), str(value["prompt"]), sealed, int(value["tools"]), seen)
    except (KeyError, TypeError, ValueError):
        return SessionState()


def _look(turn: SessionState, event: AgentEvent, now: float) -> tuple[SessionState, bool]:
    """The turn with this event remembered, and whether it was seen already."""
    key = event.key if event.kind in ("before", "prompt") else f"{event.kind} {turn.number}"
    known = {each[0]: each for each in turn.seen if now - each[1] < AT_ONCE}
    by = known[key][2] if key in known else ()
    named = event.call is not None if event.kind == "before" else event.turn is not None
    doubled = bool(by) and (named or event.registered not in by)
    known.pop(key, None)
    known[key] = (key, now, (*by, event.registered) if doubled else (event.registered,))
    return replace(turn, seen=tuple(known.values())[-MOST_SEEN:]), doubled
