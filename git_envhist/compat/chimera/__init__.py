"""Replacement for `chimera`'s checkpoints: named checkpoints, undo of tool calls, environments with restore.

    from git_envhist.compat.chimera import CheckpointManager, LocalEnvironment

    manager = CheckpointManager(LocalEnvironment("/path/to/project"))
    manager.create("before-refactor")
    manager.undo()

The modules `checkpoints`, `checkpoints_ghost`, `env.local` and `env.git_env` have the same names as
in chimera. docs/guide/compat.md lists the differences and their reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from git_envhist.compat.chimera.checkpoints import CheckpointManager
    from git_envhist.compat.chimera.checkpoints_ghost import GhostCommitManager, GhostSnapshot
    from git_envhist.compat.chimera.env.container import ContainerEnvironment
    from git_envhist.compat.chimera.env.git_env import GitEnvironment
    from git_envhist.compat.chimera.env.local import LocalEnvironment
    from git_envhist.compat.chimera.storage import CheckpointInfo, CommandResult, TestResult


MODULES = {
    "CheckpointInfo": "checkpoints",
    "CheckpointManager": "checkpoints",
    "GhostCommitManager": "checkpoints_ghost",
    "GhostSnapshot": "checkpoints_ghost",
    "LocalEnvironment": "env.local",
    "GitEnvironment": "env.git_env",
    "ContainerEnvironment": "env.container",
    "CommandResult": "storage",
    "TestResult": "storage",
}

__all__ = [
    "CheckpointInfo",
    "CheckpointManager",
    "CommandResult",
    "ContainerEnvironment",
    "GhostCommitManager",
    "GhostSnapshot",
    "GitEnvironment",
    "LocalEnvironment",
    "TestResult",
]


def __getattr__(name: str) -> object:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # loaded late: each name is loaded on first access

    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
