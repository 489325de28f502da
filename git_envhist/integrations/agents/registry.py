"""The coding agents there are, each a leaf behind `Integration`: one shape and one line here."""

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
"""By the name that `git envlog install --agent` takes."""
