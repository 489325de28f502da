"""In the place of `chimera.checkpoints`: checkpoints with names, on anything that has `checkpoint` and `restore`.

With an environment of ours, or with the path of a directory, they are there again in the next process.
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
    """What can be brought back."""

    def checkpoint(self) -> str: ...

    def restore(self, checkpoint_id: str) -> None: ...


@runtime_checkable
class LabelledEnvironment(Protocol):
    """An environment that keeps what its checkpoints are called."""

    def label(self, info: CheckpointInfo) -> None: ...

    def labels(self) -> list[CheckpointInfo]: ...

    def remove_labels(self) -> None: ...


class CheckpointManager:
    """Named checkpoints of one environment, or of one directory."""

    def __init__(self, env: Environment | str | os.PathLike[str], interval: int = 1) -> None:
        """`interval`: of so many automatic checkpoints one is made."""
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
        """Whether whoever goes in a loop is to make checkpoints by itself."""
        return self._auto

    @auto_checkpoint.setter
    def auto_checkpoint(self, value: bool) -> None:
        self._auto = value

    def create(self, name: str = "", description: str = "") -> CheckpointInfo:
        """A checkpoint of now; without a name it gets the next number."""
        name = name or f"checkpoint-{_next_number(self.list_checkpoints())}"
        info = CheckpointInfo(self._env.checkpoint(), name, time.time(), description)
        if isinstance(self._env, LabelledEnvironment):
            self._env.label(info)
        else:
            self._here.append(info)
        return info

    def automatic(self, description: str = "") -> CheckpointInfo | None:
        """A checkpoint, where automatic ones are wanted and it is time for one."""
        if not self._auto:
            return None
        self._asked += 1
        return self.create(description=description) if (self._asked - 1) % self._interval == 0 else None

    def every(self, interval: int) -> EveryNthManager:
        """This manager for a loop that asks for a checkpoint after each tool: it makes one in so many."""
        return EveryNthManager(self, interval)

    def restore_by_name(self, name: str) -> CheckpointInfo:
        """Go back to the newest checkpoint of a name; `KeyError` where there is none."""
        found = self.get(name)
        if found is None:
            raise KeyError(f"No checkpoint named {name!r}")
        self._env.restore(found.id)
        return found

    def restore_by_id(self, checkpoint_id: str) -> CheckpointInfo:
        """Go back to the checkpoint of an id; `KeyError` where there is none."""
        found = next((one for one in self.list_checkpoints() if one.id == checkpoint_id), None)
        if found is None:
            raise KeyError(f"No checkpoint with ID {checkpoint_id!r}")
        self._env.restore(found.id)
        return found

    def undo(self) -> CheckpointInfo | None:
        """Go back to the latest checkpoint, which stays the latest; None where there is none."""
        every = self.list_checkpoints()
        if not every:
            return None
        self._env.restore(every[-1].id)
        return every[-1]

    def list_checkpoints(self) -> list[CheckpointInfo]:
        """All of them, oldest first."""
        return self._env.labels() if isinstance(self._env, LabelledEnvironment) else list(self._here)

    def get(self, name: str) -> CheckpointInfo | None:
        """The newest checkpoint of a name; nothing is restored."""
        return next((one for one in reversed(self.list_checkpoints()) if one.name == name), None)

    def clear(self) -> None:
        """Forget what all of them are called; nothing is restored."""
        if isinstance(self._env, LabelledEnvironment):
            self._env.remove_labels()
        self._here.clear()


class EveryNthManager(CheckpointManager):
    """A manager that makes one of so many checkpoints that it is asked for."""

    def __init__(self, manager: CheckpointManager, interval: int) -> None:
        self.__dict__.update(manager.__dict__)
        self._of = max(1, interval)
        self._count = 0

    def create(self, name: str = "", description: str = "") -> CheckpointInfo:
        """A checkpoint, where it is time for one or it has a name; else the latest that there is."""
        self._count += 1
        latest = self.list_checkpoints()[-1:]
        if name or not latest or (self._count - 1) % self._of == 0:
            return super().create(name, description)
        return latest[0]


def _next_number(every: list[CheckpointInfo]) -> int:
    # As many as there are, and above all that are there: of some that are kept the first may be gone.
    given = [int(found[1]) for one in every if (found := NUMBERED.fullmatch(one.name))]
    return max(len(every), *given, 0) + 1
