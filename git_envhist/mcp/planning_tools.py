"""Tools that plan a change and keep the plan: restore, undo, fork, revert and merge."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult
from pydantic import Field

from git_envhist.mcp import answers, schemas
from git_envhist.mcp.confirm_plans import (
    FORK,
    MERGE,
    RESTORE,
    REVERT,
    UNDO,
    question_of_merge,
    question_of_restore,
    server_of,
)
from git_envhist.mcp.reading_tools import (
    Cursor,
    Paths,
    Revision,
    operands,
    option_words,
    pathspecs,
    tool_result,
)
from git_envhist.mcp.run_programs import AnyContext, run
from git_envhist.printable_text import escape

RestoreClass = Literal["packages", "env", "databases", "files"]


async def plan_restore(
    context: Context,
    revision: Revision,
    paths: Paths = [],  # noqa: B006 - as above
    only: Annotated[list[RestoreClass], Field(description="Restore only these kinds of things")] = [],  # noqa: B006 - as above
    keep_tracked: Annotated[bool, Field(description="Do not change files that git's HEAD tracks")] = False,
    keep_new: Annotated[
        bool, Field(description="Do not remove files that were added after the snapshot")
    ] = False,
    cursor: Cursor = None,
) -> Annotated[CallToolResult, schemas.Answer[schemas.RestorePlanPage]]:
    """Plan a restore of a snapshot: which packages, variables and paths would change. Changes nothing itself.

    Use it before every restore, and read the plan. Limit it with paths, only, keep_tracked or keep_new if it would
    change too much. Then pass its plan_id to the restore tool.
    """
    chosen = [("--keep-tracked", keep_tracked), ("--keep-new", keep_new)]
    words = [*(word for word, wanted in chosen if wanted), *option_words("--only", ",".join(only) or None)]
    asked = [*words, *operands(revision), *pathspecs(paths)]
    planned = await run(context, "envrestore", ["--json", "--dry-run", *asked])
    # Use the id: the given revision may mean another snapshot when the plan is carried out.
    carried = ["--json", *words, *operands(planned["target"]), *pathspecs(paths)]
    return tool_result(await _keep(context, RESTORE, planned, carried, cursor))


async def plan_undo(
    context: Context,
    steps: Annotated[int, Field(description="How many states to go back", ge=1, le=1000)] = 1,
    cursor: Cursor = None,
) -> Annotated[CallToolResult, schemas.Answer[schemas.RestorePlanPage]]:
    """Plan to undo the last restore or, without one, to go back one state. Changes nothing itself.

    Use it when a restore made things worse, or to return to the state before the last change. Then pass its plan_id
    to the undo tool.
    """
    planned = await run(context, "envlog", ["undo", "--json", "--dry-run", str(steps)])
    return tool_result(await _keep(context, UNDO, planned, ["undo", "--json", str(steps)], cursor))


async def plan_fork(
    context: Context,
    directory: Annotated[
        str,
        Field(
            description="A new or empty directory next to the project, or in a place that the user configured",
            min_length=1,
        ),
    ],
    revision: Revision = "@",
    branch: Annotated[str | None, Field(description="Create this git branch for the fork")] = None,
) -> Annotated[CallToolResult, schemas.Answer[schemas.ForkPlanAnswer]]:
    """Plan a copy of a snapshot in a directory of its own, with everything installed. Changes nothing itself.

    Use it to try something without touching the current environment. Then pass its plan_id to the fork tool.
    """
    words = ["fork", "--json", *option_words("--branch", branch)]
    planned = await run(context, "envlog", [*words, "--dry-run", *operands(directory, revision)])
    # Use the resolved directory and id: the given words may mean something else when the plan is carried out.
    carried = [*words, *operands(planned["root"], planned["source"])]
    question = f"Copy snapshot {planned['source'][:7]} into the new directory '{escape(planned['root'])}'?"
    server_of(context).plans.add(planned["plan_id"], FORK, carried, question)
    return tool_result(answers.result_answer(planned))


ConflictSide = Annotated[
    Literal["list", "ours", "theirs", "both", "skip"],
    Field(
        description="Treatment of paths that both sides changed. list: list them and change nothing. ours: keep the "
        "present version. theirs: take the other version. both: write the other version beside it. skip: merge the rest"
    ),
]
SIDE_OPTIONS = {
    "list": [],
    "ours": ["--ours"],
    "theirs": ["--theirs"],
    "both": ["--both"],
    "skip": ["--skip-conflicts"],
}


async def plan_revert(
    context: Context,
    revision: Annotated[
        str | None,
        Field(
            description="The snapshot whose step is taken out, or a range a..b; not with session",
            min_length=1,
        ),
    ] = None,
    turn: Annotated[
        bool, Field(description="Take out the whole turn of the agent that took revision")
    ] = False,
    session: Annotated[
        str | None, Field(description="Take out all steps of this session of an agent", min_length=1)
    ] = None,
    conflicts: ConflictSide = "list",
    paths: Paths = [],  # noqa: B006 - as above
    cursor: Cursor = None,
) -> Annotated[CallToolResult, schemas.Answer[schemas.MergePlanPage]]:
    """Plan to take out what one step changed and to keep what came later. Changes nothing itself.

    Use it to undo one bad step when later work is to stay; plan_restore goes back as a whole. If conflicts are
    listed, choose what happens to them and plan again. Then pass its plan_id to the revert tool.
    """
    words = [*SIDE_OPTIONS[conflicts], *(["--turn"] if turn else []), *option_words("--session", session)]
    words += operands(*([revision] if revision is not None else []))
    return tool_result(await _plan_merge(context, REVERT, words, paths, cursor))


async def plan_merge(
    context: Context,
    timeline: Annotated[
        str, Field(description="The timeline of a fork, or a snapshot of another timeline", min_length=1)
    ],
    base: Annotated[
        str | None,
        Field(
            description="Merge what changed since this snapshot (default: the newest common one)",
            min_length=1,
        ),
    ] = None,
    conflicts: ConflictSide = "list",
    paths: Paths = [],  # noqa: B006 - as above
    cursor: Cursor = None,
) -> Annotated[CallToolResult, schemas.Answer[schemas.MergePlanPage]]:
    """Plan to add what changed in a fork, or in another timeline, to the present environment. Changes nothing itself.

    Use it to join two attempts at one task. If conflicts are listed, choose what happens to them and plan again. Then
    pass its plan_id to the merge tool.
    """
    words = [*SIDE_OPTIONS[conflicts], *option_words("--base", base), *operands(timeline)]
    return tool_result(await _plan_merge(context, MERGE, words, paths, cursor))


async def _plan_merge(
    context: AnyContext, tool: str, words: list[str], paths: list[str], cursor: str | None
) -> Any:
    """Plan a revert or a merge, and keep the plan with the question to the person."""
    carried = [tool, "--json", *words, *pathspecs(paths)]
    planned = await run(context, "envlog", [tool, "--json", "--dry-run", *words, *pathspecs(paths)])
    counts = (planned.get("plan") or {}).get("counts") or {}
    question = question_of_merge(tool, counts, str(planned.get("reverted") or planned.get("merged")))
    server_of(context).plans.add(planned["plan_id"], tool, carried, question)
    return answers.plan_answer(planned, None, cursor)


async def _keep(
    context: AnyContext, tool: str, planned: dict[str, Any], words: list[str], cursor: str | None
) -> Any:
    """Keep a plan with the question to the person, and return its answer."""
    title = await _title(context, planned["target"])
    counts = (planned.get("plan") or {}).get("counts") or {}
    verb = "Restore" if tool == RESTORE else "Undo the last step, back to"
    question = question_of_restore(verb, counts, planned["target"], title)
    server_of(context).plans.add(planned["plan_id"], tool, words, question)
    return answers.plan_answer(planned, title, cursor)


async def _title(context: AnyContext, snapshot: str) -> str:
    rows = await run(context, "envlog", ["--json", "--max-count=1", snapshot])
    return str(rows[0].get("title") or "") if rows else ""
