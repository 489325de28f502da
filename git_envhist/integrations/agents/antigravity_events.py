"""Read events of Antigravity CLI, and edit its file of named hooks.

Its events have names of their own, which `common_form` translates into those of the other agents. There is no event
for a prompt: the hook before each call of the model (`PreInvocation`) begins a turn if the transcript ends with text of
the user, or if it is the first call of a conversation. `Stop` ends the turn if nothing runs in the background any more.

Its `hooks.json` maps names to hooks and is strict JSON: Antigravity ignores the whole file after one error. An empty
answer to `PreToolUse` may count as a refusal, so the command of a hook prints the answer itself.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from git_envhist.platform import open_file_only

TAIL = 1 << 20
"""Bytes at the end of a transcript in which the prompt is searched."""
WRAPPED = re.compile(r"<USER_REQUEST>\s*(.*?)\s*</USER_REQUEST>", re.DOTALL)


def common_form(kind: str, value: dict[str, Any]) -> dict[str, Any] | None:
    """Return an event as the other agents write it; None if it neither begins nor ends a turn."""
    common = {
        "session_id": value.get("conversationId"),
        "transcript_path": value.get("transcriptPath"),
        "workspace_roots": value.get("workspacePaths"),
    }
    if kind == "prompt":
        prompt = _prompt(value)
        return None if prompt is None else {**common, **prompt}
    if kind == "before":
        return {**common, **_tool(value)}
    return None if value.get("fullyIdle") is False else common


def _prompt(value: dict[str, Any]) -> dict[str, Any] | None:
    step = _unanswered(value.get("transcriptPath"))
    if step is not None:
        return {"prompt": _text(step), "turn_id": f"step {step.get('step_index')}"}
    return {"prompt": ""} if value.get("invocationNum") == 0 else None


def _tool(value: dict[str, Any]) -> dict[str, Any]:
    call = value.get("toolCall")
    tool = call if isinstance(call, dict) else {}
    step = value.get("stepIdx")
    known = {"tool_name": tool.get("name"), "tool_input": tool.get("args")}
    return {**known, "tool_use_id": f"step {step}"} if isinstance(step, int) else known


def _unanswered(path: object) -> dict[str, Any] | None:
    """Return the last text of the user in a transcript, or None if the model has answered it."""
    for step in _last_steps(path):
        if step.get("type") == "USER_INPUT":
            return step
        if step.get("source") == "MODEL":
            return None
    return None


def _last_steps(path: object) -> Iterator[dict[str, Any]]:
    """Yield the steps of a transcript, the last one first."""
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        return
    with suppress(OSError), open(path, "rb", opener=open_file_only) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        for line in reversed(file.read(TAIL).splitlines()):
            # The first line may be cut, and the last one may still be written.
            with suppress(ValueError, RecursionError):
                step = json.loads(line)
                if isinstance(step, dict):
                    yield step


def _text(step: dict[str, Any]) -> str:
    content = step.get("content")
    text = content if isinstance(content, str) else ""
    found = WRAPPED.search(text)
    return found[1] if found else text
