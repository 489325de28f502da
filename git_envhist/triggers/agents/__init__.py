"""Coding agents, each a leaf behind `Integration`: one file and one line here."""

from __future__ import annotations

from git_envhist.triggers.integration import Integration

AGENTS: dict[str, Integration] = {}
"""By the name that `git envlog install --agent` takes."""
