"""docs/schema/mcp.json is what a client is told, and answers match it."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

pytest.importorskip("mcp")

from tests.mcp.tools_schema import PAGE, tools_schema


def test_page_describes_the_tools() -> None:
    assert json.loads(PAGE.read_text(encoding="utf-8")) == tools_schema(), "python -m tests.mcp.tools_schema"


def test_schemas_are_valid_and_describe_every_argument() -> None:
    for tool in tools_schema()["tools"]:
        Draft202012Validator.check_schema(tool["inputSchema"])
        Draft202012Validator.check_schema(tool["outputSchema"])
        for name, argument in tool["inputSchema"]["properties"].items():
            assert argument.get("description"), (tool["name"], name)
