"""Tools that take snapshots, run checks, and carry out plans."""

from __future__ import annotations

from typing import Annotated, Literal

from mcp.server.mcpserver import Context, ElicitationResult, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from git_envhist.mcp import answers, schemas
from git_envhist.mcp.confirm_plans import (
    FORK,
    MERGE,
    RESTORE,
    REVERT,
    UNDO,
    Confirmation,
    ask_to_fork,
    ask_to_merge,
    ask_to_recover,
    ask_to_restore,
    ask_to_revert,
    ask_to_undo,
    planned_words,
    require_consent,
)
from git_envhist.mcp.reading_tools import Revision, operands, option_words, tool_result
from git_envhist.mcp.run_programs import in_terms_of_tools, run

PlanId = Annotated[str, Field(description="The plan_id that the matching plan tool returned", min_length=1)]
STATUS_WORDS = {"start": "start", "complete": "done", "fail": "fail", "skip": "skip"}


async def capture(
    context: Context,
    intent: Annotated[
        str,
        Field(
            description="Why this snapshot is taken, in a few words: the next step or its result",
            min_length=1,
        ),
    ],
    name: Annotated[
        str | None, Field(description="A name by which the snapshot can be referred to later")
    ] = None,
    if_changed: Annotated[
        bool, Field(description="Take no snapshot if nothing changed since the newest one")
    ] = False,
) -> Annotated[CallToolResult, schemas.Answer[schemas.Captured]]:
    """Take a snapshot of the whole working environment: all files, packages, databases, variables.

    Use it before a risky step (an upgrade, a migration, a large rewrite, deleting files) and after a step that
    worked. The configured check and the commands of services also run, if the user has run them in this repository
    before.
    """
    words = ["capture", "--json", f"--message={intent}", *option_words("--name", name)]
    value = await run(context, "envlog", [*words, *(["--if-changed"] if if_changed else [])])
    return tool_result(answers.capture_answer(in_terms_of_tools(value)))


async def verify(
    context: Context,
    revision: Annotated[
        str, Field(description="The snapshot to check, or `now` for the current state")
    ] = "now",
) -> Annotated[CallToolResult, schemas.Answer[schemas.Checked]]:
    """Run the configured check on the current state, or on an older snapshot in a temporary copy; record the result.

    Use it to find out whether the environment works now, e.g. after a restore. To find the snapshot where it stopped
    working, use the bisect tool. Only a check that the user has run in this repository before is run. A check is a
    program: it may change files and contact other machines.
    """
    value = await run(context, "envlog", ["verify", "--json", *operands(revision)])
    return tool_result(answers.check_answer(in_terms_of_tools(value)))


async def bisect(
    context: Context,
    good: Annotated[
        str | None, Field(description="A snapshot where the check passes (default: the newest such)")
    ] = None,
    bad: Annotated[
        str | None, Field(description="A later snapshot where it fails (default: the newest)")
    ] = None,
) -> Annotated[CallToolResult, schemas.Answer[schemas.Bisected]]:
    """Find the first snapshot where the check fails, by binary search; each is tried in a temporary copy.

    Use it when the check fails now, passed earlier, and the list does not say since when. Then call show with the
    snapshot `bad` of the result, to see what it changed. It runs the check several times, and may take minutes.
    """
    ends = [word for word in (good, bad) if word is not None]
    operands(*ends)
    words = ["bisect", "--json", *option_words("--good", good), *option_words("--bad", bad)]
    return tool_result(answers.check_answer(await run(context, "envlog", words)))


async def name(
    context: Context,
    name: Annotated[str, Field(description="Letters, digits, dots and dashes", min_length=1)],
    revision: Revision = "@",
) -> Annotated[CallToolResult, schemas.Answer[schemas.Named]]:
    """Give a snapshot a name that can be used as a revision later. A name that exists moves to this snapshot.

    Use it for a state to return to, e.g. before-upgrade. A named snapshot is kept when old ones are dropped.
    """
    value = await run(context, "envlog", ["name", "--json", *operands(name, revision)])
    return tool_result(answers.result_answer(value))


async def note(
    context: Context,
    text: Annotated[str, Field(description="What was found out about the snapshot", min_length=1)],
    revision: Revision = "@",
) -> Annotated[CallToolResult, schemas.Answer[schemas.Noted]]:
    """Add a note to a snapshot; the show tool returns it. Notes are stored readable: put no secret into one.

    Use it to record what you found out, e.g. why the check fails since this snapshot.
    """
    value = await run(context, "envlog", ["note", "--json", *operands(revision), f"--message={text}"])
    return tool_result(answers.result_answer(value))


async def task(
    context: Context,
    action: Annotated[
        Literal["add", "start", "complete", "fail", "skip"],
        Field(description="add needs text; the others need number"),
    ],
    text: Annotated[str | None, Field(description="What the new task is", min_length=1)] = None,
    number: Annotated[
        int | None, Field(description="The number of the task, from the resume tool", ge=1)
    ] = None,
) -> Annotated[CallToolResult, schemas.Answer[schemas.OneTask]]:
    """Add a task to the timeline, or set the status of one. A snapshot is taken when a task starts or ends.

    Use it for work in several steps that a later session may have to continue with the resume tool.
    """
    if action == "add":
        if text is None or number is not None:
            raise ToolError("add needs text, and no number")
        words = ["add", *operands(text)]
    else:
        if number is None or text is not None:
            raise ToolError(f"{action} needs number, and no text")
        words = [STATUS_WORDS[action], str(number)]
    return tool_result(answers.result_answer(await run(context, "envlog", ["task", "--json", *words])))


async def restore(
    context: Context,
    plan_id: PlanId,
    confirmed: Annotated[ElicitationResult[Confirmation], Resolve(ask_to_restore)],
) -> Annotated[CallToolResult, schemas.Answer[schemas.Restored]]:
    """Restore a snapshot as planned: packages, variables and files become as they were. The state before is captured.

    Use it after plan_restore, with its plan_id, when the plan is what the user wants. It is refused if the plan would
    be different by now; then plan again. Afterwards call verify.
    """
    words = planned_words(context, plan_id, RESTORE, confirmed)
    value = await run(context, "envrestore", [f"--plan={plan_id}", *words], undo_if_cancelled=True)
    return tool_result(answers.restore_answer(in_terms_of_tools(value)))


async def undo(
    context: Context,
    plan_id: PlanId,
    confirmed: Annotated[ElicitationResult[Confirmation], Resolve(ask_to_undo)],
) -> Annotated[CallToolResult, schemas.Answer[schemas.Restored]]:
    """Undo the last restore, or go back one state, as planned. The state before is captured.

    Use it after plan_undo, with its plan_id. It is refused if the plan would be different by now; then plan again.
    """
    words = planned_words(context, plan_id, UNDO, confirmed)
    value = await run(context, "envlog", [*words, f"--plan={plan_id}"], undo_if_cancelled=True)
    return tool_result(answers.restore_answer(in_terms_of_tools(value)))


async def revert(
    context: Context,
    plan_id: PlanId,
    confirmed: Annotated[ElicitationResult[Confirmation], Resolve(ask_to_revert)],
) -> Annotated[CallToolResult, schemas.Answer[schemas.Restored]]:
    """Take out what one step changed, as planned, and keep what came later. The state before is captured.

    Use it after plan_revert, with its plan_id. It is refused if there are undecided conflicts, or if the plan would be
    different by now; then plan again. Afterwards call verify.
    """
    return await _carry_out_merge(context, plan_id, REVERT, confirmed)


async def merge(
    context: Context,
    plan_id: PlanId,
    confirmed: Annotated[ElicitationResult[Confirmation], Resolve(ask_to_merge)],
) -> Annotated[CallToolResult, schemas.Answer[schemas.Restored]]:
    """Add what changed in another timeline to the present environment, as planned. The state before is captured.

    Use it after plan_merge, with its plan_id. It is refused if there are undecided conflicts, or if the plan would be
    different by now; then plan again. Afterwards call verify.
    """
    return await _carry_out_merge(context, plan_id, MERGE, confirmed)


async def _carry_out_merge(context: Context, plan_id: str, tool: str, confirmed: object) -> CallToolResult:
    name, *words = planned_words(context, plan_id, tool, confirmed)
    value = await run(context, "envlog", [name, f"--plan={plan_id}", *words], undo_if_cancelled=True)
    return tool_result(answers.restore_answer(in_terms_of_tools(value)))


async def fork(
    context: Context,
    plan_id: PlanId,
    confirmed: Annotated[ElicitationResult[Confirmation], Resolve(ask_to_fork)],
) -> Annotated[CallToolResult, schemas.Answer[schemas.Forked]]:
    """Copy a snapshot into a new directory, as planned. The present environment does not change.

    Use it after plan_fork, with its plan_id. It is refused if the plan would be different by now; then plan again.
    """
    words = planned_words(context, plan_id, FORK, confirmed)
    value = await run(context, "envlog", [*words, f"--plan={plan_id}"])
    return tool_result(answers.result_answer(in_terms_of_tools(value)))


async def recover(
    context: Context,
    how: Annotated[
        Literal["continue", "abort"],
        Field(description="continue finishes the restore; abort returns to the state before it"),
    ],
    confirmed: Annotated[ElicitationResult[Confirmation], Resolve(ask_to_recover)],
) -> Annotated[CallToolResult, schemas.Answer[schemas.Recovered]]:
    """Finish or undo a restore that was interrupted, e.g. by a lost connection.

    Use it only when another tool reports that a restore was interrupted.
    """
    require_consent(confirmed)
    value = await run(context, "envrestore", [f"--{how}", "--json"])
    return tool_result(answers.result_answer(value))
