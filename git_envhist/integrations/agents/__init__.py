"""Coding agents: `AGENTS` has each behind `Integration`, by the name that `git envlog install --agent` takes.

It is made when it is first asked for: a hook passes through here, too, and installs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from git_envhist.integrations.agents.registry import AGENTS


__all__ = ["AGENTS"]


def __getattr__(name: str) -> object:
    if name != "AGENTS":
        raise AttributeError(f"module 'git_envhist.integrations.agents' has no attribute '{name}'")
    from git_envhist.integrations.agents import registry  # loaded late: see above

    return registry.AGENTS
