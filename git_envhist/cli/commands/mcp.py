"""`git envlog mcp`: serves the verbs to agents over the Model Context Protocol."""

from __future__ import annotations

from git_envhist.cli.command import Session, command
from git_envhist.cli.parser import option
from git_envhist.errors import EnvhistError

PARTS = ("mcp", "mcp_types", "anyio", "pydantic")


class McpNotInstalled(EnvhistError):
    """What serves the protocol is not installed."""

    code = "no-mcp"


@command("mcp", "git envlog mcp [--read-only]")
@option("--read-only", is_flag=True, help="serve only log, show, diff and plan")
def mcp(session: Session, read_only: bool) -> None:
    """Serve capture, log, show, diff, plan, restore, undo, verify and fork to an agent over stdin and stdout."""
    session.no_paths()
    # Who is told at the first tool that there is no environment here has started something for nothing.
    session.history.settings  # noqa: B018 - opened for what opening it finds
    try:
        from git_envhist.mcp.server import (
            serve,  # loaded late: the protocol is an extra, and takes half a second
        )
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PARTS:
            raise
        from git_envhist.cli.extras import how_to_add  # loaded late: only where the extra is missing

        raise McpNotInstalled(
            "the Model Context Protocol is not installed here", hint=how_to_add("mcp")
        ) from error
    serve(read_only=read_only)
