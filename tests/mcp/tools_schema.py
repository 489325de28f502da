"""Write docs/schema/mcp.json: `python -m tests.mcp.tools_schema`."""

from __future__ import annotations

import json
from typing import Any

import anyio

from git_envhist.mcp.server import make_server
from tests.rules.source import CHECKOUT

PAGE = CHECKOUT / "docs" / "schema" / "mcp.json"


def tools_schema() -> dict[str, Any]:
    """Return what a client is told about the tools and the resources."""

    async def ask() -> dict[str, Any]:
        server = make_server(read_only=False)
        told = {
            "tools": await server.list_tools(),
            "resourceTemplates": await server.list_resource_templates(),
        }
        return {
            name: [one.model_dump(mode="json", exclude_none=True, by_alias=True) for one in values]
            for name, values in told.items()
        }

    return anyio.run(ask)


if __name__ == "__main__":
    PAGE.write_text(json.dumps(tools_schema(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
