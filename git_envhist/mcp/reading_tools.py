"""Tools that change nothing: list, show, compare, read a file, tasks, plans."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent
from pydantic import Field

from git_envhist.mcp import answers, schemas
from git_envhist.mcp.hints import PREFIX
from git_envhist.mcp.plans import (
    FORK,
    MERGE,
    RESTORE,
    REVERT,
    UNDO,
    question_of_merge,
    question_of_restore,
    server_of,
)
from git_envhist.mcp.programs import AnyContext, marked, run
from git_envhist.text import escape

Revision = Annotated[
    str,
    Field(
        description="A snapshot: @ (the newest), @~2, an id, a name, good (its check passed), bad, @{10:27} (a time), "
        "or a git commit",
        min_length=1,
    ),
]
Paths = Annotated[
    list[str], Field(description="Limit the result to these paths (git pathspecs, relative to the project)")
]
Cursor = Annotated[
    str | None,
    Field(
        description="For the next page: next_cursor or next_facts_cursor of the previous result",
        pattern=r"^f?[0-9]{1,9}$",
    ),
]
TextCursor = Annotated[
    str | None,
    Field(description="For the next page: next_cursor of the previous result", pattern=r"^[0-9]{1,9}$"),
]
DiffClass = Literal["packages", "services", "databases", "env", "tools", "files"]
RestoreClass = Literal["packages", "env", "databases", "files"]


async def log(
    context: Context,
    limit: Annotated[int, Field(description="Return at most this many snapshots", ge=1, le=50)] = 10,
    grep: Annotated[
        str | None, Field(description="Return only snapshots whose intent matches this regular expression")
    ] = None,
    changed: Annotated[
        str | None, Field(description="Return only snapshots whose summary of changes contains this text")
    ] = None,
    verdict: Annotated[
        Literal["pass", "fail", "error", "none"] | None,
        Field(description="Return only snapshots with this check result (none: no check was run)"),
    ] = None,
    paths: Paths = [],  # noqa: B006 - becomes the schema's default, and is never changed
) -> Annotated[CallToolResult, schemas.Answer[schemas.Log]]:
    """List the snapshots of this working environment, newest first: id, time, intent, check result, what changed.

    Use it first, to find the snapshot to inspect, compare with or return to: the newest one that passed its check
    (verdict: pass), the one that changed a package or a variable (changed: its name), or a file (paths).
    """
    words = [f"--max-count={limit}", *given("--grep", grep), *given("--verdict", verdict)]
    words += [f"--find={changed}"] if changed else []
    return answer(answers.list_answer(await run(context, "envlog", ["--json", *words, *pathspecs(paths)])))


async def show(
    context: Context,
    revision: Revision = "@",
    outputs: Annotated[
        bool, Field(description="Include the last lines of output of its checks, with secrets masked")
    ] = False,
    cursor: Cursor = None,
) -> Annotated[CallToolResult, schemas.Answer[schemas.SnapshotDetails]]:
    """Show one snapshot in full: every changed package, variable and path, check results, notes, what is missing.

    Use it when the summary in the list is not enough, or with outputs to read why its check failed. To compare two
    snapshots that are not neighbours, or a snapshot with the current state, use the diff tool.
    """
    value = await run(context, "envlog", ["show", "--json", *operands(revision)], outputs=outputs)
    return answer(answers.snapshot_answer(value, cursor))


async def diff(
    context: Context,
    before: Revision = "@",
    after: Annotated[
        str, Field(description="The second snapshot, or `now` for the current state of the environment")
    ] = "now",
    only: Annotated[list[DiffClass], Field(description="Limit the result to these kinds of things")] = [],  # noqa: B006 - as above
    paths: Paths = [],  # noqa: B006 - as above
    cursor: Cursor = None,
) -> Annotated[CallToolResult, schemas.Answer[schemas.DiffPage]]:
    """Compare two snapshots, or a snapshot with the current state: packages, services, databases, variables, files.

    Use it to find out what broke something: compare the last good snapshot with now. It sees what `git diff` cannot:
    installed packages, ignored and untracked files, names of environment variables. To read a file that differs, use
    the read_file tool.
    """
    words = ["--json", *given("--only", ",".join(only) or None), *operands(before, after)]
    compared = await run(context, "envdiff", [*words, *pathspecs(paths)])
    return answer(answers.diff_answer(compared, cursor))


async def read_file(
    context: Context,
    path: Annotated[str, Field(description="The path of the file, relative to the project", min_length=1)],
    revision: Revision = "@",
    sealed: Annotated[
        bool,
        Field(
            description="Also read a secret file, such as .env: its values are masked as ***, its names are "
            "readable. Set it only if the user's request needs it"
        ),
    ] = False,
    cursor: TextCursor = None,
) -> Annotated[CallToolResult, schemas.Answer[schemas.FileContent]]:
    """Read a file as it was in a snapshot, e.g. a configuration file or an installed module before it broke.

    Use it after diff, to compare the old content with the present file, which you read with your own tools. It writes
    nothing. Secret files are refused unless sealed is set.
    """
    return answer(await read_stored(context, path, revision, sealed=sealed, cursor=cursor))


async def read_stored(
    context: AnyContext, path: str, revision: str, *, sealed: bool, cursor: str | None
) -> Any:
    """Return a file of a snapshot; raise `ToolError` for a sealed file unless `sealed` is set."""
    if "\0" in path:
        raise ToolError("not a path")
    value = await run(context, "envlog", ["show", "--json", *operands(revision), "--", path])
    if value["sealed"] and not sealed:
        raise ToolError(
            f"'{path}' is a secret file; call {PREFIX}read_file with sealed=true to read it with masked values"
        )
    return answers.file_answer(value, cursor)


async def resume(context: Context) -> Annotated[CallToolResult, schemas.Answer[schemas.Resumed]]:
    """List the tasks on the timeline, and show the next one with the snapshot from which it starts.

    Use it at the beginning of a session, to continue work that an earlier session began.
    """
    listed = await run(context, "envlog", ["task", "list", "--json"])
    following = await run(context, "envlog", ["resume", "--json"])
    return answer(answers.result_answer({**following, "tasks": listed["tasks"]}))


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
    words = [*(word for word, wanted in chosen if wanted), *given("--only", ",".join(only) or None)]
    asked = [*words, *operands(revision), *pathspecs(paths)]
    planned = await run(context, "envrestore", ["--json", "--dry-run", *asked])
    # Use the id: the given revision may mean another snapshot when the plan is carried out.
    carried = ["--json", *words, *operands(planned["target"]), *pathspecs(paths)]
    return answer(await _keep(context, RESTORE, planned, carried, cursor))


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
    return answer(await _keep(context, UNDO, planned, ["undo", "--json", str(steps)], cursor))


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
    words = ["fork", "--json", *given("--branch", branch)]
    planned = await run(context, "envlog", [*words, "--dry-run", *operands(directory, revision)])
    # Use the resolved directory and id: the given words may mean something else when the plan is carried out.
    carried = [*words, *operands(planned["root"], planned["source"])]
    question = f"Copy snapshot {planned['source'][:7]} into the new directory '{escape(planned['root'])}'?"
    server_of(context).plans.add(planned["plan_id"], FORK, carried, question)
    return answer(answers.result_answer(planned))


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
    words = [*SIDE_OPTIONS[conflicts], *(["--turn"] if turn else []), *given("--session", session)]
    words += operands(*([revision] if revision is not None else []))
    return answer(await _plan_merge(context, REVERT, words, paths, cursor))


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
    words = [*SIDE_OPTIONS[conflicts], *given("--base", base), *operands(timeline)]
    return answer(await _plan_merge(context, MERGE, words, paths, cursor))


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


def answer(value: Any) -> CallToolResult:
    """Return an answer as data for programs, and as compact text for clients that read text only."""
    whole = marked(value)
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=whole)


def operands(*words: str) -> list[str]:
    """Return the words as operands; raise `ToolError` if one could be taken for an option."""
    for word in words:
        if word.startswith("-") or "\0" in word:
            raise ToolError(f"neither a snapshot nor a directory: '{word}'")
    return list(words)


def pathspecs(paths: list[str]) -> list[str]:
    return ["--", *paths] if paths else []


def given(option: str, value: str | None) -> list[str]:
    return [] if value is None else [f"{option}={value}"]
