"""`git envlog mcp`: serve agents over the Model Context Protocol."""

from __future__ import annotations

from git_envhist.cli.command import Session, command
from git_envhist.cli.parser import option
from git_envhist.errors import EnvhistError, UsageError

PARTS = ("mcp", "mcp_types", "anyio", "pydantic", "starlette", "uvicorn")
MAX_PORT = 65_535


class McpNotInstalled(EnvhistError):
    """The optional package mcp is not installed."""

    code = "no-mcp"


@command("mcp", "git envlog mcp [--read-only] [--no-confirm] [--http <port>]")
@option("--read-only", is_flag=True, help="serve only the tools that change nothing")
@option("--no-confirm", is_flag=True, help="carry out plans without asking you")
@option("--http", metavar="<port>", help="serve on this port of 127.0.0.1 (0: any)")
def mcp(session: Session, read_only: bool, no_confirm: bool, http: str | None) -> None:
    """Serve the history to an agent over the Model Context Protocol, on standard input and output."""
    session.no_paths()
    port = None if http is None else _port(http)
    # Report a missing environment now, not at the first tool call.
    session.history.settings  # noqa: B018 - opened for what opening it finds
    try:
        from git_envhist.mcp.server import (
            serve,  # loaded late: the protocol is an extra, and takes half a second
        )
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PARTS:
            raise
        from git_envhist.cli.install_extras import (
            extra_install_command,  # loaded late: only where the extra is missing
        )

        raise McpNotInstalled(
            "the Model Context Protocol is not installed here", hint=extra_install_command("mcp")
        ) from error

    def announce(line: str) -> None:
        session.line(line)
        session.output.flush()

    serve(read_only=read_only, confirms=not no_confirm, port=port, announce=announce)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_PORT:
        raise UsageError(f"not a port: '{text}'", hint="git envlog mcp --http 0 chooses a free one")
    return int(text)
