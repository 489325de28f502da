"""In the place of `chimera.checkpoints_ghost`: files as they were before each tool that changes them.

A snapshot is a moment that holds the named paths alone, so that it costs little, and their bytes, modes and links
exactly. The stack of them is there again in the next process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock

from git_envhist.compat.chimera.keeping import PathEscapes, as_os_error
from git_envhist.compat.chimera.stack import Ghost, GhostStack, Stack
from git_envhist.errors import EnvhistError

__all__ = ["GhostCommitManager", "GhostSnapshot"]


@dataclass
class GhostSnapshot:
    """Some files as they were."""

    id: str
    label: str
    timestamp: float
    files: dict[str, str]
    """Path -> its text, for people to look at; empty for a file that was not there."""


class GhostCommitManager:
    """A stack of snapshots of files."""

    def __init__(self, workdir: str | os.PathLike[str], max_snapshots: int = 50) -> None:
        self._workdir = os.path.realpath(workdir)
        self._max_snapshots = max_snapshots
        self._ghosts = GhostStack(self._workdir)
        self._files: dict[str, dict[str, str]] = {}
        self._lock = RLock()

    @property
    def depth(self) -> int:
        """How many there are."""
        return len(self._stack().ghosts)

    @property
    def history(self) -> list[GhostSnapshot]:
        """All of them, oldest first."""
        return [self._as_snapshot(ghost) for ghost in self._stack().ghosts]

    def snapshot(self, label: str, paths: list[str] | None = None) -> str:
        """Keep these files as they are, those of the last snapshot where none are named; gives `ghost-N`."""
        with self._lock, self._told(), self._ghosts.locked() as stack:
            named = list(paths) if paths is not None else list(stack.ghosts[-1].paths if stack.ghosts else ())
            places = {path: self._contain(path) for path in named}
            number = stack.counter + 1
            name = f"ghost-{number}"
            also = tuple(
                sorted({end for place in places.values() if (end := self._led_to(place)) is not None})
            )
            taken = self._ghosts.take(name, label, [*places.values(), *also]) if places else None
            ghost = Ghost(name, label, time.time(), tuple(places.items()), taken, also)
            every = (*stack.ghosts, ghost)
            keep = every[max(0, len(every) - self._max_snapshots) :]
            self._ghosts.write(Stack(number, keep))
            self._ghosts.let_go(every[: len(every) - len(keep)])
            return ghost.id

    def undo(self, n: int = 1) -> list[str]:
        """Bring files back to what they were before the last snapshots; says what was done with each."""
        done: list[str] = []
        with self._lock, self._told(), self._ghosts.locked() as stack:
            for _ in range(min(n, len(stack.ghosts))):
                *rest, ghost = stack.ghosts
                done += self._ghosts.bring_back(ghost)
                stack = Stack(stack.counter, tuple(rest))
                self._ghosts.write(stack)
                self._ghosts.let_go([ghost])
        return done

    def peek(self) -> GhostSnapshot | None:
        """The last snapshot; it stays."""
        ghosts = self._stack().ghosts
        return self._as_snapshot(ghosts[-1]) if ghosts else None

    def clear(self) -> None:
        """Let all of them go."""
        with self._lock, self._told(), self._ghosts.locked() as stack:
            self._ghosts.write(Stack(stack.counter, ()))
            self._ghosts.let_go(stack.ghosts)

    def _stack(self) -> Stack:
        with self._lock:
            return self._ghosts.read()

    def _as_snapshot(self, ghost: Ghost) -> GhostSnapshot:
        if ghost.id not in self._files:
            self._files[ghost.id] = self._ghosts.texts(ghost)
        return GhostSnapshot(ghost.id, ghost.label, ghost.timestamp, dict(self._files[ghost.id]))

    def _contain(self, path: str) -> str:
        """The path below the working directory that is meant; `PathEscapes` where it leads out of it."""
        full = os.path.normpath(os.path.join(self._workdir, path))
        # What a link leads to is not asked of the path itself: the link is what is kept.
        real = os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))
        if not real.startswith(self._workdir.rstrip("/") + "/"):
            raise PathEscapes(path)
        return os.path.relpath(real, self._workdir)

    def _led_to(self, place: str) -> str | None:
        """The path that a link leads to, where that is in the working directory: a tool writes through it."""
        full = os.path.join(self._workdir, place)
        real = os.path.realpath(full)
        inside = real.startswith(self._workdir.rstrip("/") + "/")
        return os.path.relpath(real, self._workdir) if os.path.islink(full) and inside else None

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except EnvhistError as error:
            raise as_os_error(error) from error
