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
from git_envhist.mcp.run_programs import AnyContext, label_as_data, run

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
    words = [f"--max-count={limit}", *option_words("--grep", grep), *option_words("--verdict", verdict)]
    words += [f"--find={changed}"] if changed else []
    return tool_result(
        answers.list_answer(await run(context, "envlog", ["--json", *words, *pathspecs(paths)]))
    )


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
    return tool_result(answers.snapshot_answer(value, cursor))


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
    words = ["--json", *option_words("--only", ",".join(only) or None), *operands(before, after)]
    compared = await run(context, "envdiff", [*words, *pathspecs(paths)])
    return tool_result(answers.diff_answer(compared, cursor))


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
    return tool_result(await read_stored(context, path, revision, sealed=sealed, cursor=cursor))


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
    return tool_result(answers.result_answer({**following, "tasks": listed["tasks"]}))


def tool_result(value: Any) -> CallToolResult:
    """Return an answer as data for programs, and as compact text for clients that read text only."""
    whole = label_as_data(value)
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


def option_words(option: str, value: str | None) -> list[str]:
    return [] if value is None else [f"{option}={value}"]


async def search(
    context: Context,
    text: Annotated[str, Field(description="The text to search for", min_length=1)],
    where: Annotated[
        Literal["content", "summary", "intent"],
        Field(
            description="content: added or removed in a file; summary: in the summary, or in a changed package, "
            "variable or table; intent: a regular expression for intent, name or note"
        ),
    ] = "content",
    limit: Annotated[int, Field(description="Return at most this many snapshots", ge=1, le=50)] = 10,
    paths: Paths = [],  # noqa: B006 - becomes the schema's default, and is never changed
) -> Annotated[CallToolResult, schemas.Answer[schemas.Log]]:
    """Search the history for a text: snapshots that added or removed it in files, facts or intents, newest first.

    Use it to find out when something appeared or disappeared. Secret files are not searched.
    """
    option = {"content": f"-S{text}", "summary": f"--find={text}", "intent": f"--grep={text}"}[where]
    words = ["--json", f"--max-count={limit}", option, *pathspecs(paths)]
    return tool_result(answers.list_answer(await run(context, "envlog", words)))
