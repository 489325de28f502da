"""The tools: what each takes, as its schema says, and the words of the program that answers it.

A restore wants the id of a plan that this server has shown: an agent looks first, and what it looked at is what is done
or nothing is. Checks run the command that the user configured, none that comes over the protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from git_envhist._version import __version__
from git_envhist.mcp.programs import run

Json = dict[str, Any]
Revision = Annotated[
    str,
    Field(
        description="A moment: @ (the newest), @~2, an id, a name, good, bad, @{10:27}, a code commit",
        min_length=1,
    ),
]
Paths = Annotated[list[str], Field(description="Only these paths, as git's pathspecs")]
Class = Literal["packages", "services", "databases", "env", "tools", "files"]

INSTRUCTIONS = (
    "The history of this whole working environment: files tracked, untracked and ignored, packages, services. "
    "Capture before something risky. To go back, call plan, read it, then restore with its plan_id; "
    "what was there is saved first, and undo brings it back."
)
LOOKS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)


def serve(*, read_only: bool) -> None:
    """Serve over standard input and output until the client goes."""
    make_server(read_only=read_only).run("stdio")


def make_server(*, read_only: bool) -> MCPServer[Any]:
    """A server with its tools; one that may only read has no others."""
    server: MCPServer[Any] = MCPServer(
        "git-envhist", version=__version__, instructions=INSTRUCTIONS, log_level="ERROR"
    )
    plans: dict[str, list[str]] = {}
    for tool in (log, show, diff, _plan(plans)):
        server.add_tool(tool, annotations=LOOKS)
    if not read_only:
        for tool in (capture, verify, fork):
            server.add_tool(tool, annotations=ADDS)
        for tool in (_restore(plans), undo):
            server.add_tool(tool, annotations=CHANGES)
    return server


async def log(
    limit: Annotated[int, Field(description="At most so many moments", ge=1, le=1000)] = 20,
    grep: Annotated[str | None, Field(description="Only those whose intent matches")] = None,
    changed: Annotated[
        str | None, Field(description="Only those whose story of changes contains this")
    ] = None,
    verdict: Annotated[
        Literal["pass", "fail", "error", "none"] | None, Field(description="Only these")
    ] = None,
    paths: Paths = [],  # noqa: B006 - becomes the schema's default, and is never changed
) -> list[Json]:
    """The moments of this environment, newest first: when, why, verdict, what changed."""
    words = [f"--max-count={limit}", *_given("--grep", grep), *_given("--verdict", verdict)]
    return _list(
        await run("envlog", ["--json", *words, *(["-S", changed] if changed else []), *_paths(paths)], {})
    )


async def show(revision: Revision = "@") -> Json:
    """One moment in full: every changed path, its verdicts with their output, notes, what is missing."""
    return _dict(await run("envlog", ["show", "--json", *_operands(revision)], {}))


async def diff(
    before: Revision = "@",
    after: Annotated[str, Field(description="The other moment; `now` is what is here")] = "now",
    only: Annotated[list[Class], Field(description="Only these classes of things")] = [],  # noqa: B006 - as above
    paths: Paths = [],  # noqa: B006 - as above
) -> Json:
    """What differs between two moments: packages, services, databases, variables by name, files."""
    words = ["--json", *_given("--only", ",".join(only) or None), *_operands(before, after)]
    return _dict(await run("envdiff", [*words, *_paths(paths)], {}))


async def capture(
    context: Context,
    intent: Annotated[str, Field(description="Why this moment is taken, in a few words", min_length=1)],
    name: Annotated[str | None, Field(description="A name for the moment")] = None,
    if_changed: Annotated[bool, Field(description="Only if something changed since the newest")] = False,
) -> Json:
    """Take a snapshot of the whole environment. The check that the user configured runs afterwards."""
    words = ["capture", "--json", f"--message={intent}", *_given("--name", name)]
    return _dict(await run("envlog", [*words, *(["--if-changed"] if if_changed else [])], _agent(context)))


async def verify(
    context: Context, revision: Annotated[str, Field(description="`now`, or a moment")] = "now"
) -> Json:
    """Run the user's configured check here, or on an older moment in a throw-away copy, and record its verdict."""
    return _dict(await run("envlog", ["verify", "--json", *_operands(revision)], _agent(context)))


async def fork(
    context: Context,
    directory: Annotated[
        str, Field(description="A directory that is not there yet, or is empty", min_length=1)
    ],
    revision: Revision = "@",
    branch: Annotated[str | None, Field(description="A git branch to make for it")] = None,
) -> Json:
    """Write the environment of a moment into a directory of its own, with a timeline that begins there."""
    words = ["fork", "--json", *_given("--branch", branch), *_operands(directory, revision)]
    return _dict(await run("envlog", words, _agent(context)))


async def undo(
    context: Context, steps: Annotated[int, Field(description="So many states back", ge=1, le=1000)] = 1
) -> Json:
    """Take back the last restore, or go to the state before; what is here is saved first."""
    return _dict(await run("envlog", ["undo", "--json", str(steps)], _agent(context)))


def _plan(plans: dict[str, list[str]]) -> Callable[..., Any]:
    async def plan(
        revision: Revision,
        paths: Paths = [],  # noqa: B006 - as above
        only: Annotated[list[Class], Field(description="Only these classes of things")] = [],  # noqa: B006 - as above
        keep_code: Annotated[bool, Field(description="Leave the files alone that git's HEAD tracks")] = False,
        keep_new: Annotated[bool, Field(description="Remove nothing that came after the moment")] = False,
    ) -> Json:
        """What going back to a moment would do, path by path; changes nothing. `restore` takes its plan_id."""
        chosen = [("--keep-code", keep_code), ("--keep-new", keep_new)]
        words = [*(word for word, wanted in chosen if wanted), *_given("--only", ",".join(only) or None)]
        told = _dict(
            await run("envrestore", ["--json", "--dry-run", *words, *_operands(revision), *_paths(paths)], {})
        )
        # By its id, whatever the words for it mean when it is carried out.
        plans[told["plan_id"]] = [*words, *_operands(told["target"]), *_paths(paths)]
        return told

    return plan


def _restore(plans: dict[str, list[str]]) -> Callable[..., Any]:
    async def restore(
        context: Context,
        plan_id: Annotated[str, Field(description="The plan_id of a plan just shown", min_length=1)],
    ) -> Json:
        """Carry out a plan that was shown; refused where it would do something else by now. What is here is saved."""
        words = plans.get(plan_id)
        if words is None:
            raise ToolError(f"no plan of this id was shown: '{plan_id}'; call plan first")
        return _dict(await run("envrestore", ["--json", f"--plan={plan_id}", *words], _agent(context)))

    return restore


def _agent(context: Context) -> dict[str, str]:
    """Who asks, as it introduced itself: a capture of its is known as its."""
    params = context.session.client_params
    if params is None:
        return {}
    told = (
        ("GIT_ENVHIST_AGENT", params.client_info.name),
        ("GIT_ENVHIST_AGENT_VERSION", params.client_info.version),
    )
    return {name: value.replace("\0", "") for name, value in told if value}


def _operands(*words: str) -> list[str]:
    """Operands, none of which can be taken for an option."""
    for word in words:
        if word.startswith("-") or "\0" in word:
            raise ToolError(f"neither a moment nor a directory: '{word}'")
    return list(words)


def _paths(paths: list[str]) -> list[str]:
    return ["--", *paths] if paths else []


def _given(option: str, value: str | None) -> list[str]:
    return [] if value is None else [f"{option}={value}"]


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {"result": value}


def _list(value: Any) -> list[Json]:
    return value if isinstance(value, list) else [value]
