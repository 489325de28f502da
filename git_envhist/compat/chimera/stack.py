"""The stack of snapshots of files: a small list beside the repository, and a moment of the named paths for each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from git_envhist.api import EnvHistory
from git_envhist.compat.chimera.keeping import UNDO, USER_EMAIL, USER_NAME, keeping
from git_envhist.compat.keeping import Rules, literal_pattern, read_json, write_json
from git_envhist.keeping.marking import drop_soon
from git_envhist.model import EnvPath, Snapshot
from git_envhist.store.files import FileReader, NoSuchFile
from git_envhist.store.locks import locked
from git_envhist.values import dataclass

STACK, LOCK = "stack", "stack.lock"


@dataclass(frozen=True, slots=True)
class Ghost:
    """One snapshot: its name, the paths it was asked for and where these are, and the moment that holds them."""

    id: str
    label: str
    timestamp: float
    places: tuple[tuple[str, str], ...]
    commit: str | None
    also: tuple[str, ...] = ()
    """What the links among them lead to."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path, _ in self.places)


@dataclass(frozen=True, slots=True)
class Stack:
    """All of them, oldest first, and how many there ever were."""

    counter: int = 0
    ghosts: tuple[Ghost, ...] = ()


class GhostStack:
    """The stack of one working directory."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._keeping = keeping(UNDO)

    @contextmanager
    def locked(self) -> Iterator[Stack]:
        """The stack, with nobody else changing it."""
        directory = self._keeping.repository(self._root).git_dir
        with locked(os.path.join(directory, LOCK)):
            yield self.read()

    def read(self) -> Stack:
        """The stack as it is."""
        return read_json(self._file, _read_stack, Stack())

    def found(self) -> Stack:
        """The stack, of a directory that was renamed as well."""
        if not os.path.isdir(self._keeping.place_of(self._root)) and os.path.isdir(self._root):
            self._keeping.repository(self._root)
        return self.read()

    def write(self, stack: Stack) -> None:
        """Put another in its place."""
        names = ("id", "label", "timestamp", "places", "commit", "also")
        ghosts = [{name: getattr(ghost, name) for name in names} for ghost in stack.ghosts]
        write_json(self._file, {"counter": stack.counter, "ghosts": ghosts})

    def take(self, name: str, label: str, places: Iterable[str]) -> str:
        """The id of a moment that holds these paths."""
        history = self._open(places)
        snapshot = history.capture(label or name, meta=[("ghost", name)]).snapshot
        assert snapshot is not None
        return snapshot.id

    def bring_back(self, ghost: Ghost) -> list[str]:
        """Bring the paths of a snapshot back; what was done with each."""
        if ghost.commit is None:
            return []
        held = self._held(ghost)
        there = {path: os.path.lexists(os.path.join(self._root, place)) for path, place in ghost.places}
        history = self._open([*(place for _, place in ghost.places), *ghost.also])
        history.restore(_known(history, ghost.commit))
        done = []
        for path, _ in ghost.places:
            if path in held:
                done.append(f"restored: {path}")
            elif there[path]:
                done.append(f"deleted: {path}")
        return done

    def texts(self, ghost: Ghost) -> dict[str, str]:
        """The files as text; empty for what was not there."""
        held = self._held(ghost) if ghost.commit is not None else {}
        return {path: held.get(path, b"").decode("utf-8", "replace") for path in ghost.paths}

    def let_go(self, ghosts: Sequence[Ghost]) -> None:
        """Nobody goes back to these any more."""
        commits = {ghost.commit for ghost in ghosts if ghost.commit is not None}
        if commits:
            history = self._open(())
            drop_soon(history, [one for one in history.log() if one.id in commits])

    def _held(self, ghost: Ghost) -> dict[str, bytes]:
        """The paths that were there, and their bytes; of a directory none."""
        history = self._open(())
        held = {}
        with closing(history.reader(_known(history, ghost.commit or ""))) as reader:
            for path, place in ghost.places:
                name = EnvPath(os.fsencode(place))
                if reader.entry(name) is not None:
                    held[path] = _bytes_of(reader, name)
        return held

    @property
    def _file(self) -> str:
        return os.path.join(self._keeping.place_of(self._root), self._keeping.inner, STACK)

    def _open(self, places: Iterable[str]) -> EnvHistory:
        return self._keeping.open(self._root, Rules(only(places), USER_NAME, USER_EMAIL))


def only(places: Iterable[str]) -> tuple[str, ...]:
    """Patterns in gitignore's syntax that leave out everything but some paths, and what is below these."""
    patterns: dict[str, None] = {"/*": None}
    wanted = set(places)
    for place in sorted(wanted):
        if any(place.startswith(f"{other}{os.sep}") for other in wanted):
            continue
        parts = place.split(os.sep)
        for depth in range(1, len(parts) + 1):
            above = "/" + "".join(f"{literal_pattern(part)}/" for part in parts[: depth - 1])
            patterns[f"{above}*"] = None
            patterns[f"!{above}{literal_pattern(parts[depth - 1])}"] = None
    return tuple(patterns)


def _read_stack(said: dict[str, Any]) -> Stack:
    return Stack(int(said["counter"]), tuple(map(_read_ghost, said["ghosts"])))


def _read_ghost(said: dict[str, Any]) -> Ghost:
    places = tuple((str(path), str(place)) for path, place in said["places"])
    return Ghost(said["id"], said["label"], said["timestamp"], places, said["commit"], tuple(said["also"]))


def _bytes_of(reader: FileReader, path: EnvPath) -> bytes:
    try:
        return b"".join(reader.read(path))
    except NoSuchFile:
        # A directory, or an empty file.
        return b""


def _known(history: EnvHistory, commit: str) -> Snapshot:
    return next(one for one in history.log() if one.id == commit)
