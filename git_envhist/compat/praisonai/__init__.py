"""Replacement for `praisonaiagents.checkpoints`: a service that saves and restores a workspace.

    from git_envhist.compat.praisonai import CheckpointService

    service = CheckpointService(workspace_dir="/path/to/project")
    await service.initialize()
    saved = await service.save("Before refactoring")
    await service.restore(saved)

The modules `types` and `service` have the same names as in that library. docs/guide/compat.md lists the differences and
their reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from git_envhist.compat.praisonai.service import CheckpointService
    from git_envhist.compat.praisonai.types import (
        Checkpoint,
        CheckpointConfig,
        CheckpointDiff,
        CheckpointEvent,
        CheckpointResult,
        FileDiff,
    )


__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointDiff",
    "CheckpointEvent",
    "CheckpointResult",
    "CheckpointService",
    "FileDiff",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # loaded late: each name is loaded on first access

    module = "service" if name == "CheckpointService" else "types"
    return getattr(import_module(f"{__name__}.{module}"), name)
