"""In the place of `chimera.checkpoints_ghost`: files as they were before each tool that changes them.

A snapshot is a moment that holds the named paths alone, so that it costs little, and their bytes, modes and links
exactly. The stack of them is there again in the next process.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from git_envhist.compat.chimera.keeping import PathEscapes, told_as_os_errors
from git_envhist.compat.chimera.stack import Ghost, GhostStack, Stack, with_what_is_left
from git_envhist.compat.onebyone import ThreadLock

__all__ = ["GhostCommitManager", "GhostSnapshot"]
PROCESS = os.urandom(8).hex()
"""Tells this process, and what it forks, from any other."""
CHANGED = "changed since that process ended; undo(force=True) restores it"


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
        self._files: dict[Ghost, dict[str, str]] = {}
        self._lock = ThreadLock()
        self._notes_at_exit = False

    @property
    def depth(self) -> int:
        """How many there are."""
        return len(self._stack().ghosts)

    @property
    def history(self) -> list[GhostSnapshot]:
        """All of them, oldest first."""
        with told_as_os_errors():
            return [self._as_snapshot(ghost) for ghost in self._stack().ghosts]

    def snapshot(self, label: str, paths: Sequence[str | os.PathLike[str]] | None = None) -> str:
        """Keep these files as they are, those of the last snapshot if none are named; return `ghost-N`.

        A path that cannot be kept raises nothing, because the agent's loop calls this before the tool refuses such a
        path; `undo` reports it as skipped.
        """
        # A tool is about to write there.
        os.makedirs(self._workdir, exist_ok=True)
        if not self._notes_at_exit:
            self._notes_at_exit = True
            atexit.register(self._note_what_is_left)
        with self._lock, told_as_os_errors(), self._ghosts.locked() as stack:
            named = paths if paths is not None else self._named_last(stack)
            places, skipped = self._places([os.fspath(path) for path in named])
            number = stack.counter + 1
            name = f"ghost-{number}"
            also = tuple(
                sorted({end for place in places.values() if (end := self._led_to(place)) is not None})
            )
            taken = self._ghosts.take(name, label, [*places.values(), *also]) if places else None
            if taken is not None:
                for path in self._ghosts.not_kept(taken, list(places.items())):
                    skipped[path] = "it could not be kept"
                    del places[path]
            kept = tuple(places.items())
            ghost = Ghost(name, label, time.time(), kept, taken, also, tuple(skipped.items()), PROCESS)
            now = {place: self._ghosts.digest(place) for place in places.values()}
            every = (*with_what_is_left(stack.ghosts, PROCESS, now), ghost)
            keep = every[max(0, len(every) - self._max_snapshots) :]
            self._ghosts.write(Stack(number, keep))
            self._ghosts.let_go(every[: len(every) - len(keep)])
            return ghost.id

    def undo(self, n: int = 1, *, force: bool = False) -> list[str]:
        """Bring files back to what they were before the last snapshots; return what happened to each.

        `force`: also files that were changed after the process that made the snapshot had ended.
        """
        done: list[str] = []
        with self._lock, told_as_os_errors(), self._ghosts.locked() as stack:
            for _ in range(min(n, len(stack.ghosts))):
                *rest, ghost = stack.ghosts
                changed = [] if force or ghost.process == PROCESS else self._ghosts.changed_since(ghost)
                if changed:
                    done += [f"skipped: {path} ({CHANGED})" for path in changed]
                    break
                done += self._ghosts.bring_back(ghost)
                stack = Stack(stack.counter, tuple(rest))
                self._ghosts.write(stack)
                self._ghosts.let_go([ghost])
        return done

    def peek(self) -> GhostSnapshot | None:
        """The last snapshot; it stays."""
        with told_as_os_errors():
            ghosts = self._stack().ghosts
            return self._as_snapshot(ghosts[-1]) if ghosts else None

    def clear(self) -> None:
        """Let all of them go."""
        with self._lock, told_as_os_errors(), self._ghosts.locked() as stack:
            self._ghosts.write(Stack(stack.counter, ()))
            self._ghosts.let_go(stack.ghosts)

    @staticmethod
    def _named_last(stack: Stack) -> tuple[str, ...]:
        return stack.ghosts[-1].paths if stack.ghosts else ()

    def _places(self, named: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return paths with their places, and the paths that cannot be kept with the reasons."""
        places: dict[str, str] = {}
        skipped: dict[str, str] = {}
        for path in named:
            try:
                place = self._contain(path)
            except PathEscapes:
                skipped[path] = "it is outside the working directory"
                continue
            if ".git" in place.split(os.sep):
                skipped[path] = "it belongs to a git repository"
            else:
                places[path] = place
        return places, skipped

    def _note_what_is_left(self) -> None:
        """Note the files as this process leaves them, so that a later one knows what was changed since."""
        # The end of the process is not the time for errors.
        with suppress(Exception), self._ghosts.locked() as stack:
            places = {place for one in stack.ghosts if one.process == PROCESS for _, place in one.places}
            now = {place: self._ghosts.digest(place) for place in places}
            ghosts = with_what_is_left(stack.ghosts, PROCESS, now)
            if ghosts != stack.ghosts:
                self._ghosts.write(Stack(stack.counter, ghosts))

    def _stack(self) -> Stack:
        with self._lock, told_as_os_errors():
            return self._ghosts.found()

    def _as_snapshot(self, ghost: Ghost) -> GhostSnapshot:
        if ghost not in self._files:
            self._files[ghost] = self._ghosts.texts(ghost)
        return GhostSnapshot(ghost.id, ghost.label, ghost.timestamp, dict(self._files[ghost]))

    def _contain(self, path: str) -> str:
        """The path below the working directory that is meant; `PathEscapes` where it leads out of it."""
        directory, name = os.path.split(os.path.join(self._workdir, path).rstrip(os.sep))
        # What a link leads to is not asked of the path itself: the link is what is kept. On the way there it is: `..`
        # behind one is above what that leads to.
        named = name not in ("", os.curdir, os.pardir)
        real = os.path.realpath(directory if named else os.path.join(directory, name))
        real = os.path.join(real, name) if named else real
        if not real.startswith(self._workdir.rstrip("/") + "/"):
            raise PathEscapes(path)
        return os.path.relpath(real, self._workdir)

    def _led_to(self, place: str) -> str | None:
        """The path that a link leads to, where that is in the working directory: a tool writes through it."""
        full = os.path.join(self._workdir, place)
        real = os.path.realpath(full)
        inside = real.startswith(self._workdir.rstrip("/") + "/")
        return os.path.relpath(real, self._workdir) if os.path.islink(full) and inside else None
