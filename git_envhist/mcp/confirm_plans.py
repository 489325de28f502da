"""Keep the plans that this server returned, and let the person confirm one before it is carried out.

A tool that changes the environment takes the id of a plan and nothing else, so a call is complete in itself: it needs
no session, as protocol 2026-07-28 has none. The person is asked where the client can do so: by an input request in that
protocol, and by an elicitation in earlier ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from mcp.server.mcpserver import Context, Elicit, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from git_envhist.mcp.hints import PREFIX
from git_envhist.mcp.run_programs import AnyContext
from git_envhist.printable_text import escape

MAX_PLANS = 200
"""Plans that are kept; a plan that was not carried out soon is made again."""
MAX_TITLE = 72
FIRST_STATELESS = "2026-07-28"
RESTORE, UNDO, FORK = "restore", "undo", "fork"
REVERT, MERGE = "revert", "merge"
CONTINUE = "continue"
DECLINED = (
    "the user declined, or could not be asked: nothing was changed. Do not call it again unless the user asks for it. "
    "For an agent that works without a user, the user starts this server with --no-confirm"
)
"""Agents without a terminal answer a question with no, as a person would."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One plan: which tool carries it out, how, and what the person is asked."""

    tool: str
    words: tuple[str, ...]
    """The arguments of the program that carries it out."""
    question: str


class Plans:
    """The newest plans by their id."""

    def __init__(self) -> None:
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    def add(self, plan_id: str, tool: str, words: Sequence[str], question: str) -> None:
        self._plans[plan_id] = Plan(tool, tuple(words), question)
        self._plans.move_to_end(plan_id)
        while len(self._plans) > MAX_PLANS:
            self._plans.popitem(last=False)

    def get(self, plan_id: str, tool: str) -> Plan:
        """Return a plan; raise `ToolError` if this server did not return it for this tool."""
        plan = self._plans.get(plan_id)
        if plan is None or plan.tool != tool:
            raise ToolError(f"unknown plan id: '{plan_id}'; call {PREFIX}plan_{tool} first")
        return plan


class HistoryServer(MCPServer[object]):
    """A server with the plans that it returned."""

    plans: Plans
    confirms: bool
    """Whether the person is asked before a plan is carried out."""


def server_of(context: AnyContext) -> HistoryServer:
    return cast(HistoryServer, context.mcp_server)


class Confirmation(BaseModel):
    """The answer of the person."""

    confirm: bool = Field(default=True, title="Carry it out", description="Change the files as described")


Confirmed = Confirmation | Elicit[Confirmation]


async def ask_to_restore(context: Context, plan_id: str) -> Confirmed:
    """Ask the person before a restore."""
    return _ask(context, plan_id, RESTORE)


async def ask_to_undo(context: Context, plan_id: str) -> Confirmed:
    """Ask the person before an undo."""
    return _ask(context, plan_id, UNDO)


async def ask_to_revert(context: Context, plan_id: str) -> Confirmed:
    """Ask the person before a revert."""
    return _ask(context, plan_id, REVERT)


async def ask_to_merge(context: Context, plan_id: str) -> Confirmed:
    """Ask the person before a merge."""
    return _ask(context, plan_id, MERGE)


async def ask_to_recover(context: Context, how: str) -> Confirmed:
    """Ask the person before an interrupted restore is finished or undone."""
    if not _asks(context):
        return Confirmation(confirm=True)
    verb = "Finish" if how == CONTINUE else "Undo"
    return Elicit(f"{verb} the restore that was interrupted? It changes files of the project.", Confirmation)


async def ask_to_fork(context: Context, plan_id: str) -> Confirmed:
    """Ask the person before a fork."""
    return _ask(context, plan_id, FORK)


def planned_words(context: AnyContext, plan_id: str, tool: str, answer: object) -> list[str]:
    """Return the arguments that carry out a confirmed plan; raise `ToolError` if the person declined."""
    require_consent(answer)
    return [*server_of(context).plans.get(plan_id, tool).words]


def require_consent(answer: object) -> None:
    """Raise `ToolError` unless the person agreed."""
    data = getattr(answer, "data", None)
    if not (isinstance(data, Confirmation) and data.confirm):
        raise ToolError(DECLINED)


def question_of_restore(verb: str, counts: Mapping[str, int], target: str, title: str) -> str:
    """Return the question for the person: how many paths change, and to which snapshot."""
    named = f' "{escape(title)[:MAX_TITLE]}"' if title else ""
    return f"{verb} snapshot {target[:7]}{named}? {_changed_paths(counts)}"


def question_of_merge(tool: str, counts: Mapping[str, int], words: str) -> str:
    """Return the question for the person before a revert or a merge."""
    verb = "Take out the changes of" if tool == REVERT else "Add the changes of"
    return f"{verb} {escape(words)[:MAX_TITLE]}? {_changed_paths(counts)}"


def _changed_paths(counts: Mapping[str, int]) -> str:
    changes = ", ".join(f"{name} {one}" for name, one in counts.items() if one) or "nothing to change"
    return f"Paths: {changes}. The present state is captured first."


def _ask(context: AnyContext, plan_id: str, tool: str) -> Confirmed:
    plan = server_of(context).plans.get(plan_id, tool)
    return Elicit(plan.question, Confirmation) if _asks(context) else Confirmation(confirm=True)


def _asks(context: AnyContext) -> bool:
    """Return whether to ask the person: the client can show a form, and the server runs without `--no-confirm`."""
    if not server_of(context).confirms:
        return False
    capabilities = context.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    is_stateless = (context.protocol_version or "") >= FIRST_STATELESS
    return is_stateless or context.session.can_send_request
