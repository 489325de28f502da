"""Coding agents: hooks in their settings report events, and events become captures.

`registry` lists the agents, `install` writes their settings, `jsonc` edits JSON text byte for byte, `events` reads
the input of a hook and decides which capture is due, `outcomes` reads the last results.

`AGENTS` maps each name of `git envlog install --agent` to its `Integration`. It is created on first access, because
hooks import this package and install nothing.
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
