"""Tools that answer where something comes from: which step and call made it, and which snapshots changed a text."""

from __future__ import annotations

from typing import Annotated, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult
from pydantic import Field

from git_envhist.mcp import answers, schemas
from git_envhist.mcp.reading_tools import Revision, tool_result
from git_envhist.mcp.run_programs import run

Kind = Literal["path", "path-gone", "package", "var", "table", "row", "service", "failed"]
DEFAULT_STEPS = 3
DEFAULT_CHANGES = 10


async def why(
    context: Context,
    name: Annotated[
        str | None,
        Field(
            description="A path relative to the project, or the name of a package, a variable, a table or a service; "
            "for a row <table>:<key>; for failed the command of the check (default: the last that failed)",
            min_length=1,
        ),
    ] = None,
    kind: Annotated[
        Kind, Field(description="path-gone: a path that was removed; failed: what broke a check")
    ] = "path",
    line: Annotated[int | None, Field(description="Ask about this line of the path only", ge=1)] = None,
    revision: Annotated[
        Revision | None, Field(description="Explain this snapshot (default: the current state)")
    ] = None,
    limit: Annotated[
        int | None,
        Field(
            description="Return at most this many steps (default: 3); for failed, changes (default: 10)",
            ge=1,
            le=20,
        ),
    ] = None,
) -> Annotated[CallToolResult, schemas.Answer[schemas.OriginAnswer]]:
    """Find out which step gave a file, line, package, variable, table, row or service its form, and by which tool call.

    Use it to learn why something is as it is: when it changed, the prompt, the command line, and the check before and
    after. certainty `uncertain` means that the call is not known; candidates are the calls that come into question.
    Then call diff with before and snapshot of a step to see it.
    """
    if kind == "failed":
        if line is not None or revision is not None:
            raise ToolError("a failed check has no line and no revision")
        count = DEFAULT_CHANGES if limit is None else limit
        named = [] if name is None else ["--", name]
        value = await run(context, "envlog", ["why", "--json", f"--max-count={count}", "--failed", *named])
        return tool_result(answers.failure_answer(value))
    if name is None:
        raise ToolError(f"no name given for the {kind}")
    words = ["why", "--json", f"--max-count={DEFAULT_STEPS if limit is None else limit}"]
    words += [f"--at={revision}"] if revision is not None else []
    if kind == "path":
        place = name if line is None else f"{name}:{line}"
        value = await run(context, "envlog", [*words, "--", place])
    elif line is None:
        value = await run(context, "envlog", [*words, f"--{kind}={name}"])
    else:
        raise ToolError("only a path has lines")
    return tool_result(answers.origins_answer(value))
