"""Snapshots and their files as resources, which a person can attach to a conversation.

A list has the newest snapshots; templates read any snapshot and any file of one. Secret files are no resources: a tool
reads them, with masked values, if it is asked to.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.types import Annotations, Resource

from git_envhist.mcp import answers
from git_envhist.mcp.confirm_plans import HistoryServer
from git_envhist.mcp.reading_tools import operands, read_stored
from git_envhist.mcp.run_programs import label_as_data, run

SNAPSHOT = "envhist://snapshot/{revision}"
FILE = "envhist://snapshot/{revision}/file/{+path}{?cursor}"
MAX_LISTED = 20
JSON_TYPE = "application/json"


async def list_snapshots() -> list[Resource]:
    """Return the newest snapshots as resources."""
    rows = answers.list_answer(await run(None, "envlog", ["--json", f"--max-count={MAX_LISTED}"]))
    return [_resource(row) for row in rows["snapshots"]]


def add_resources(server: HistoryServer) -> None:
    """Add the templates of snapshots and of their files."""
    server.resource(
        SNAPSHOT,
        name="snapshot",
        title="A snapshot of the working environment",
        description="Its changes, check results and notes. A revision is @, @~2, an id, a name, good or bad",
        mime_type=JSON_TYPE,
    )(read_snapshot)
    server.resource(
        FILE,
        name="snapshot_file",
        title="A file of a snapshot",
        description="The text of a file as it was. Secret files are refused",
        mime_type=JSON_TYPE,
    )(read_snapshot_file)


async def read_snapshot(revision: str, context: Context) -> str:
    """Return a snapshot as JSON, marked as data."""
    try:
        value = await run(context, "envlog", ["show", "--json", *operands(revision)])
    except ToolError as error:
        raise ResourceError(str(error)) from None
    return _text(answers.snapshot_answer(value))


async def read_snapshot_file(revision: str, path: str, context: Context, cursor: str = "0") -> str:
    """Return a file of a snapshot as JSON, marked as data."""
    if not cursor.isdecimal():
        raise ResourceError(f"not a cursor: '{cursor}'")
    try:
        return _text(await read_stored(context, path, revision, sealed=False, cursor=cursor))
    except ToolError as error:
        raise ResourceError(str(error)) from None


def _text(value: Any) -> str:
    return json.dumps(label_as_data(value), ensure_ascii=False)


def _resource(row: dict[str, Any]) -> Resource:
    check = f" ({row['check']})" if row.get("check") else ""
    title = f"{row.get('title') or 'snapshot'}{check}"
    return Resource(
        uri=SNAPSHOT.replace("{revision}", quote(row["id"], safe="")),
        name=row["id"][:12],
        title=title,
        description=row.get("summary"),
        mime_type=JSON_TYPE,
        annotations=Annotations(last_modified=row.get("at")),
    )
