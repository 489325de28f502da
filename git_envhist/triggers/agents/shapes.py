"""What stands in each agent's settings: where they are, what its events are called, how a hook is written there."""

from __future__ import annotations

from typing import Any

from git_envhist.values import dataclass, field

MARK = "envhist/hooks/agent-"
"""What every command of ours holds; by it ours is told from others'."""
BRIEFLY, PATIENTLY, AT_LAST = 10, 120, 3
"""Seconds after which an agent may end a hook: one that leaves at once, one that a tool waits for, one that is called
as the agent itself ends (Codex grants those no more, and warns of more).
"""
TIMEOUTS = {"before": PATIENTLY, "end": AT_LAST}
TRUSTED = "{} runs the hooks of a project only where its directory is trusted: {}"


@dataclass(frozen=True, slots=True)
class Hook:
    """One event of an agent, and what it is to us."""

    event: str
    kind: str
    """`prompt`, `before`, `after`, `end`."""
    matcher: str | None = None
    """Which tools it is about, where the agent can be told."""


@dataclass(frozen=True, slots=True)
class AgentSettingsForm:
    """The settings of one agent."""

    name: str
    project: str
    """The file below the top of the working tree."""
    user: str
    """The file below the home directory, or below what `home_variable` says."""
    hooks: tuple[Hook, ...]
    home_variable: str | None = None
    """Says where the first directory of `user` is, where it is set."""
    grouped: bool = True
    """Whether hooks stand in groups with a matcher each."""
    command: str = "command"
    """The member that holds the command."""
    timeout: str = "timeout"
    unit: int = 1
    """Of the timeout: 1 for seconds, 1000 for milliseconds."""
    named: bool = False
    typed: bool = True
    skeleton: dict[str, Any] = field(default_factory=dict)
    """What the file needs beside the hooks."""
    remark: str = ""
    """What the user has to do beside."""

    def element(self, hook: Hook, command: str) -> dict[str, Any]:
        """What stands in the list of an event."""
        seconds = TIMEOUTS.get(hook.kind, BRIEFLY)
        handler: dict[str, Any] = {"name": "git-envhist"} if self.named else {}
        if self.typed:
            handler["type"] = "command"
        handler |= {self.command: command, self.timeout: seconds * self.unit}
        matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
        return {**matcher, "hooks": [handler]} if self.grouped else {**handler, **matcher}


def is_ours(value: object) -> bool:
    """Whether an element of a list is ours alone: a hook, or a group of nothing but our hooks."""
    if not isinstance(value, dict):
        return False
    inner = value.get("hooks")
    if isinstance(inner, list):
        return bool(inner) and all(map(is_ours, inner))
    return any(MARK in word for word in (value.get("command"), value.get("bash")) if isinstance(word, str))


CLAUDE_CODE = AgentSettingsForm(
    "claude-code",
    ".claude/settings.local.json",
    ".claude/settings.json",
    (
        Hook("UserPromptSubmit", "prompt"),
        Hook("PreToolUse", "before", "Bash|PowerShell|Edit|MultiEdit|Write|NotebookEdit|mcp__.*"),
        Hook("Stop", "after"),
        Hook("SessionEnd", "end"),
    ),
    home_variable="CLAUDE_CONFIG_DIR",
)
CODEX = AgentSettingsForm(
    "codex",
    ".codex/hooks.json",
    ".codex/hooks.json",
    (
        Hook("UserPromptSubmit", "prompt"),
        Hook("PreToolUse", "before", "Bash|apply_patch|mcp__.*"),
        Hook("Stop", "after"),
        Hook("SessionEnd", "end"),
    ),
    home_variable="CODEX_HOME",
    remark="codex runs new hooks only once they are approved: it asks when it starts, or at /hooks",
)
GEMINI = AgentSettingsForm(
    "gemini",
    ".gemini/settings.json",
    ".gemini/settings.json",
    (
        Hook("BeforeAgent", "prompt"),
        Hook("BeforeTool", "before", "run_shell_command|write_file|replace|mcp_.*"),
        Hook("AfterAgent", "after"),
        Hook("SessionEnd", "end"),
    ),
    unit=1000,
    named=True,
    remark=TRUSTED.format("gemini", "it asks when it starts there"),
)
CURSOR = AgentSettingsForm(
    "cursor",
    ".cursor/hooks.json",
    ".cursor/hooks.json",
    (
        Hook("beforeSubmitPrompt", "prompt"),
        Hook("preToolUse", "before", "Shell|Write|StrReplace|Edit|EditNotebook|ApplyPatch|Delete|MCP:.*"),
        Hook("stop", "after"),
        Hook("sessionEnd", "end"),
    ),
    grouped=False,
    typed=False,
    skeleton={"version": 1},
)
COPILOT = AgentSettingsForm(
    "copilot",
    ".github/hooks/git-envhist.json",
    ".copilot/hooks/git-envhist.json",
    (
        Hook("userPromptSubmitted", "prompt"),
        Hook("preToolUse", "before"),
        Hook("agentStop", "after"),
        Hook("sessionEnd", "end"),
    ),
    home_variable="COPILOT_HOME",
    grouped=False,
    command="bash",
    timeout="timeoutSec",
    skeleton={"version": 1},
    remark=TRUSTED.format("copilot", "it asks when it starts there, with -p it wants --trust-folder"),
)
