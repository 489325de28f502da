"""The supported coding agents. A new agent needs its settings form in `install` and one entry here."""

from __future__ import annotations

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
    shape.name: AgentIntegration(shape) for shape in (CLAUDE_CODE, CODEX, GEMINI, CURSOR, COPILOT)
}
"""The integration of each name that `git envlog install --agent` takes."""
