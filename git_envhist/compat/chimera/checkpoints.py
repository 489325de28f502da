"""Replacement for `chimera.checkpoints`: named checkpoints of anything that has `checkpoint` and `restore`.

With one of our environments, or the path of a directory, the checkpoints are still available in the next process.
"""

from __future__ import annotations

import os
import re
import time
from typing import Protocol, runtime_checkable

from git_envhist.compat.chimera.env.local import LocalEnvironment
from git_envhist.compat.chimera.storage import CheckpointInfo

NUMBERED = re.compile(r"checkpoint-(\d{1,9})")


class Environment(Protocol):
    """Anything that can be checkpointed and restored."""

    def checkpoint(self) -> str: ...

    def restore(self, checkpoint_id: str) -> None: ...


@runtime_checkable
class LabelledEnvironment(Protocol):
    """An environment that stores the names of its checkpoints."""

    def label(self, info: CheckpointInfo) -> None: ...

    def labels(self) -> list[CheckpointInfo]: ...

    def remove_labels(self) -> None: ...


class CheckpointManager:
    """Named checkpoints of one environment or directory."""

    def __init__(self, env: Environment | str | os.PathLike[str], interval: int = 1) -> None:
        """Manage an environment, or a directory; one of `interval` automatic checkpoints is made."""
        self._env: Environment = (
            LocalEnvironment(os.fspath(env)) if isinstance(env, str | os.PathLike) else env
        )
        if isinstance(self._env, LocalEnvironment):
            self._env.setup()
        self._here: list[CheckpointInfo] = []
        self._auto = False
        self._interval = max(1, interval)
        self._asked = 0

    @property
    def auto_checkpoint(self) -> bool:
        """Whether a loop should make checkpoints automatically."""
        return self._auto

    @auto_checkpoint.setter
    def auto_checkpoint(self, value: bool) -> None:
        self._auto = value

    def create(self, name: str = "", description: str = "") -> CheckpointInfo:
        """Create a checkpoint; without a name it gets the next number."""
        name = name or f"checkpoint-{_next_number(self.list_checkpoints())}"
        info = CheckpointInfo(self._env.checkpoint(), name, time.time(), description)
        if isinstance(self._env, LabelledEnvironment):
            self._env.label(info)
        else:
            self._here.append(info)
        return info

    def automatic(self, description: str = "") -> CheckpointInfo | None:
        """Create a checkpoint if automatic ones are enabled and one is due."""
        if not self._auto:
            return None
        self._asked += 1
        return self.create(description=description) if (self._asked - 1) % self._interval == 0 else None

    def every(self, interval: int) -> EveryNthManager:
        """Return a manager for a loop that asks after each tool: it creates one in `interval` checkpoints."""
        return EveryNthManager(self, interval)

    def restore_by_name(self, name: str) -> CheckpointInfo:
        """Restore the newest checkpoint with this name; raises `KeyError` if there is none."""
        found = self.get(name)
        if found is None:
            raise KeyError(f"No checkpoint named {name!r}")
        self._env.restore(found.id)
        return found

    def restore_by_id(self, checkpoint_id: str) -> CheckpointInfo:
        """Restore the checkpoint with this id; raises `KeyError` if there is none."""
        found = next((one for one in self.list_checkpoints() if one.id == checkpoint_id), None)
        if found is None:
            raise KeyError(f"No checkpoint with ID {checkpoint_id!r}")
        self._env.restore(found.id)
        return found

    def undo(self) -> CheckpointInfo | None:
        """Restore the latest checkpoint, which remains the latest; return None if there is none."""
        every = self.list_checkpoints()
        if not every:
            return None
        self._env.restore(every[-1].id)
        return every[-1]

    def list_checkpoints(self) -> list[CheckpointInfo]:
        """Return all checkpoints, oldest first."""
        return self._env.labels() if isinstance(self._env, LabelledEnvironment) else list(self._here)

    def get(self, name: str) -> CheckpointInfo | None:
        """Return the newest checkpoint with this name, without restoring it."""
        return next((one for one in reversed(self.list_checkpoints()) if one.name == name), None)

    def clear(self) -> None:
        """Delete the names of all checkpoints, without restoring anything."""
        if isinstance(self._env, LabelledEnvironment):
            self._env.remove_labels()
        self._here.clear()


class EveryNthManager(CheckpointManager):
    """A manager that creates one of every n requested checkpoints."""

    def __init__(self, manager: CheckpointManager, interval: int) -> None:
        self.__dict__.update(manager.__dict__)
        self._of = max(1, interval)
        self._count = 0

    def create(self, name: str = "", description: str = "") -> CheckpointInfo:
        """Create a checkpoint if one is due or it has a name; else return the latest one."""
        self._count += 1
        latest = self.list_checkpoints()[-1:]
        if name or not latest or (self._count - 1) % self._of == 0:
            return super().create(name, description)
        return latest[0]


def _next_number(every: list[CheckpointInfo]) -> int:
    # Count the checkpoints, and use a higher number than all of them, because the first may have been dropped.
    given = [int(found[1]) for one in every if (found := NUMBERED.fullmatch(one.name))]
    return max(len(every), *given, 0) + 1
