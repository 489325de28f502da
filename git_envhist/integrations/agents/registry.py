"""The supported coding agents. A new one needs its form in `install` or `other_forms`, and an entry here."""

from __future__ import annotations

from git_envhist.integrations.agents.antigravity_and_opencode import (
    ANTIGRAVITY,
    OPENCODE,
    NamedHooksIntegration,
    PluginFileIntegration,
)
from git_envhist.integrations.agents.install import (
    CLAUDE_CODE,
    CODEX,
    COPILOT,
    CURSOR,
    GEMINI,
    AgentIntegration,
)
from git_envhist.integrations.base import Integration

AGENTS: dict[str, Integration] = {
    integration.name: integration
    for integration in (
        *map(AgentIntegration, (CLAUDE_CODE, CODEX, GEMINI, CURSOR, COPILOT)),
        PluginFileIntegration(OPENCODE),
        NamedHooksIntegration(ANTIGRAVITY),
    )
}
"""The integration of each name that `git envlog install --agent` takes."""
