"""Names of the tools, and hints of our programs in terms of these tools (pure).

A model that has only the tools cannot follow a hint to type a command. A hint by the code of an error comes first; in
any other text the commands that a tool replaces become its name, and what is left is addressed to the user.
"""

from __future__ import annotations

import re

PREFIX = "environment_history_"
"""The first part of every tool name: a model that searches for tools finds them by name alone."""
FOR_THE_USER = "for the user, in a terminal: "

BY_CODE = {
    "no-such-snapshot": f"{PREFIX}log lists the snapshots",
    "ambiguous": f"give more letters of the id; {PREFIX}log lists the ids",
    "no-such-path": f"{PREFIX}log with paths lists the snapshots that changed a path",
    "stale-plan": "files changed since the plan was made: make a new plan, read it, and pass its plan_id",
    "nothing-to-undo": f"choose a snapshot with {PREFIX}log, and call {PREFIX}plan_restore",
    "conflicts": "plan again with conflicts set to ours, theirs, both or skip, or limit the plan with paths",
    "restore-left": f"{PREFIX}recover finishes or undoes the interrupted restore",
    "not-approved": "ask the user to run this check once in a terminal: git envlog verify",
    "no-check": "ask the user to configure a check: git config envhist.verify '<command>'",
    "nothing-to-find": f"choose good and bad with {PREFIX}log and its verdict",
    "cannot-tell": f"choose good and bad with {PREFIX}log and its verdict",
    "place-refused": "choose a new directory next to the project",
    "locked": "another process is working: call the tool again later",
    "busy": "another process is working: call the tool again later",
}
"""Hints that replace those of our programs, by the code of the error."""

TOOLS = (
    ("git envrestore --(?:undo|redo)", "plan_undo"),
    ("git envrestore --(?:continue|abort)", "recover"),
    ("git envrestore", "plan_restore"),
    ("git envdiff", "diff"),
    ("git envlog undo", "plan_undo"),
    ("git envlog fork", "plan_fork"),
    ("git envlog revert", "plan_revert"),
    ("git envlog merge", "plan_merge"),
    ("git envlog task list", "resume"),
    ("git envlog (show|why|capture|verify|bisect|name|note|task|resume)", r"\1"),
    (r"git envlog(?! [a-z])", "log"),
)
COMMANDS = tuple((re.compile(rf"{command}(?![-\w])"), PREFIX + tool) for command, tool in TOOLS)
QUOTED = re.compile("'(git env[^']*)'")
COMMAND_LEFT = re.compile(r"\bgit(?:-env| -?[a-z])|\bpip install\b")
OPTION = re.compile(r"(?<= )--(?=[a-z])")


def hint_for(code: str, hint: str | None) -> str | None:
    """Return the hint of an error in terms of tools."""
    return BY_CODE.get(code) or (None if hint is None else translate_commands(hint))


def translate_commands(text: str) -> str:
    """Return a text in which tools replace the commands; a command without a tool is addressed to the user."""
    text = QUOTED.sub(r"\1", text)
    for command, tool in COMMANDS:
        text = command.sub(tool, text)
    if COMMAND_LEFT.search(text):
        return FOR_THE_USER + text
    return OPTION.sub("", text) if PREFIX in text else text


def undo_tool_for(command: str | None, safety: str | None) -> str | None:
    """Return the tool that undoes a restore or an undo, for the command that our program names."""
    if command is None:
        return None
    if "redo" in command and safety is not None:
        return f"{PREFIX}plan_restore with revision {safety}"
    return f"{PREFIX}plan_undo"
