"""What an agent tells at a hook, read with suspicion: five agents, several spellings each, one value (pure)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from git_envhist.values import dataclass

LONGEST_PROMPT = 65_536
LONGEST_WORD = 512
READING = frozenset((
    # Claude Code, and those that take its names
    *("Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch", "TodoWrite", "TodoRead", "ToolSearch"),
    *("AskUserQuestion", "ExitPlanMode", "EnterPlanMode", "BashOutput", "TaskOutput", "TaskList", "TaskGet", "Skill"),
    # Codex
    *("update_plan", "view_image", "web_search", "read_file", "list_dir", "grep_files"),
    # Gemini CLI
    *("read_many_files", "list_directory", "glob", "search_file_content", "grep_search", "google_web_search"),
    *("web_fetch", "write_todos", "ask_user", "get_internal_docs"),
    # Cursor
    *("SemanticSearch", "ReadLints", "TabRead", "List", "FetchRules"),
    # Copilot
    *("view", "grep", "rg", "report_intent", "update_todo", "fetch_copilot_cli_documentation", "read_bash"),
))  # fmt: skip
"""Tools that only look; whatever has another name may change something."""

SESSION = re.compile(r"[0-9A-Za-z_-]{1,100}")
VERSION = re.compile(rb'"(?:version|cli_version|copilotVersion)"\s*:\s*"([0-9][0-9A-Za-z.+-]{0,40})"')


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """One moment of an agent's work."""

    kind: str
    """`prompt`, `before`, `after`, `end`."""
    agent: str
    registered: str
    """The agent whose settings had us called; another may read them."""
    session: str
    directories: tuple[str, ...]
    """The directories that it may be about: the project that the agent names, then where the agent is now."""
    turn: str | None
    """The agent's own id of the turn, where it has one."""
    prompt: str
    tool: str | None
    call: str | None
    """The agent's own id of the call of the tool."""
    asked: str
    """What the tool is asked to do."""
    transcript: str | None
    version: str | None

    @property
    def modifies(self) -> bool:
        """Whether the tool may change something."""
        return self.tool is None or self.tool not in READING

    @property
    def key(self) -> str:
        """What two hooks of one event have in common."""
        if self.kind == "before":
            return f"before {self.call or _hash(self.asked)}"
        if self.kind == "prompt":
            return f"prompt {self.turn or _hash(self.prompt)}"
        return f"{self.kind} {self.turn or ''}"


PROJECT_VARIABLES = {
    "claude-code": "CLAUDE_PROJECT_DIR",
    "gemini": "GEMINI_PROJECT_DIR",
    "cursor": "CURSOR_PROJECT_DIR",
    "copilot": "COPILOT_PROJECT_DIR",
}
"""The variable in which an agent names the project to its hooks. Codex has none: it says `cwd`."""


def project_of(registered: str, environ: Mapping[str, str]) -> str:
    """The project directory that the agent names in a variable; empty if it names none."""
    return environ.get(PROJECT_VARIABLES.get(registered, ""), "")


def read_event(
    registered: str, kind: str, data: bytes, environ: Mapping[str, str], project: str = ""
) -> AgentEvent | None:
    """What an agent says, or None where it says nothing that can be understood."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    agent = _agent(registered, value)
    kept = _kept_by_copilot(value, environ) if agent == "copilot" else None
    return AgentEvent(
        kind=kind,
        agent=agent,
        registered=registered,
        session=_word(value, "session_id", "sessionId", "conversation_id") or "",
        directories=_directories(value, project),
        turn=_word(value, "turn_id", "prompt_id", "generation_id"),
        prompt=_text(value, "prompt", LONGEST_PROMPT) or "",
        tool=_word(value, "tool_name", "toolName"),
        call=_word(value, "tool_use_id", "tool_call_id", "toolCallId"),
        asked=_as_text(_first(value, "tool_input", "toolArgs")),
        transcript=_path(value, "transcript_path", "transcriptPath") or kept,
        version=_word(value, "cursor_version"),
    )


def version_in(transcript: bytes) -> str | None:
    """The version of the agent, as its transcript tells it."""
    found = VERSION.search(transcript, 0, 1 << 20)
    return found[1].decode("ascii") if found else None


def _agent(registered: str, value: dict[str, Any]) -> str:
    """Who calls: Cursor and Copilot read the settings of Claude Code, too."""
    if "cursor_version" in value or "conversation_id" in value:
        return "cursor"
    if registered == "claude-code" and "timestamp" in value:
        return "copilot"
    return registered


def _directories(value: dict[str, Any], project: str) -> tuple[str, ...]:
    # A tool may have changed `cwd`, and may have led it into a repository that came with a clone.
    roots = value.get("workspace_roots")
    first = roots[0] if isinstance(roots, list) and roots else None
    told = (project, first, _path(value, "cwd"))
    usable = [each for each in told if isinstance(each, str) and each.startswith("/") and "\0" not in each]
    return tuple(dict.fromkeys(usable))


def _first(value: dict[str, Any], *names: str) -> object:
    return next((value[name] for name in names if name in value), None)


def _word(value: dict[str, Any], *names: str) -> str | None:
    found = _first(value, *names)
    if not isinstance(found, str) or not found:
        return None
    return found[:LONGEST_WORD].encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def _text(value: dict[str, Any], name: str, longest: int) -> str | None:
    found = value.get(name)
    return found[:longest].encode("utf-8", "replace").decode("utf-8") if isinstance(found, str) else None


def _path(value: dict[str, Any], *names: str) -> str | None:
    found = _first(value, *names)
    usable = isinstance(found, str) and found.startswith("/") and "\0" not in found and len(found) < 4096
    return found if usable and isinstance(found, str) else None


def _kept_by_copilot(value: dict[str, Any], environ: Mapping[str, str]) -> str | None:
    """Where Copilot keeps what is said in a session: it tells that only when a turn ends."""
    session = _word(value, "sessionId", "session_id") or ""
    home = environ.get("COPILOT_HOME") or os.path.join(environ.get("HOME", ""), ".copilot")
    if not home.startswith("/") or not SESSION.fullmatch(session):
        return None
    return os.path.join(home, "session-state", session, "events.jsonl")


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _hash(text: str) -> str:
    import hashlib  # loaded late: it takes a fifth of the time for which a tool that only looks is held

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
