"""Runs our own programs for a tool: what they answer under `--json` is the answer, what they refuse the error."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import anyio
from mcp.server.mcpserver.exceptions import ToolError

from git_envhist.ourselves import start_words

ANSWERED = (0, 1, 5, 125)
"""These say something about the answer; any other that there is none."""


async def run(program: str, words: Sequence[str], agent: dict[str, str]) -> Any:
    """The JSON that a program prints; `ToolError` with its own words where it fails."""
    done = await anyio.run_process(
        [*start_words(program), *words],
        stdin=subprocess.DEVNULL,
        check=False,
        env={**os.environ, **agent},
    )
    try:
        value = json.loads(done.stdout)
    except ValueError:
        raise ToolError(done.stderr.decode("utf-8", "replace") or "no answer") from None
    if done.returncode not in ANSWERED or (isinstance(value, dict) and "error" in value):
        raise ToolError(json.dumps(value, ensure_ascii=False))
    return value
