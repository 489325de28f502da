"""The stack of snapshots of files: a small list beside the repository, and a moment of the named paths for each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from git_envhist.api import EnvHistory
from git_envhist.compat.chimera.keeping import UNDO, USER_EMAIL, USER_NAME, keeping
from git_envhist.compat.keeping import LibraryRules, literal_pattern, read_json, write_json
from git_envhist.keeping.marking import drop_soon
from git_envhist.model import EnvPath, Snapshot
from git_envhist.store.files import FileReader, NoSuchFile
from git_envhist.store.locks import locked
from git_envhist.values import dataclass, replace

STACK, LOCK = "stack", "stack.lock"
LEADS_OUT = "it leads out of the working directory"
STAYED = "it stayed as it is"


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
    skipped: tuple[tuple[str, str], ...] = ()
    """Paths that could not be kept, each with the reason."""
    process: str = ""
    """The process that made it."""
    left: tuple[tuple[str, str], ...] = ()
    """Digests of the paths as that process left them."""

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
        names = ("id", "label", "timestamp", "places", "commit", "also", "skipped", "process", "left")
        ghosts = [{name: getattr(ghost, name) for name in names} for ghost in stack.ghosts]
        write_json(self._file, {"counter": stack.counter, "ghosts": ghosts})

    def take(self, name: str, label: str, places: Iterable[str]) -> str:
        """The id of a moment that holds these paths."""
        history = self._open(places)
        snapshot = history.capture(label or name, meta=[("ghost", name)]).snapshot
        assert snapshot is not None
        return snapshot.id

    def not_kept(self, commit: str, places: Iterable[tuple[str, str]]) -> list[str]:
        """Return the paths that exist and that a moment does not hold."""
        held = self._held(Ghost("", "", 0.0, tuple(places), commit))
        return [path for path, place in places if path not in held and os.path.lexists(self._at(place))]

    def bring_back(self, ghost: Ghost) -> list[str]:
        """Bring the paths of a snapshot back; return what happened to each, as it is found on the disk."""
        skipped = [f"skipped: {path} ({reason})" for path, reason in ghost.skipped]
        if ghost.commit is None:
            return skipped
        held = self._held(ghost)
        before = {place: _looks(self._at(place)) for _, place in ghost.places}
        history = self._open([*(place for _, place in ghost.places), *ghost.also])
        history.restore(_known(history, ghost.commit))
        done = []
        for path, place in ghost.places:
            now = _looks(self._at(place))
            if path in held and before[place] == now and self._leads_out(place):
                done.append(f"skipped: {path} ({LEADS_OUT})")
            elif path in held:
                done.append(f"restored: {path}" if now else f"skipped: {path} ({STAYED})")
            elif before[place]:
                done.append(f"skipped: {path} ({STAYED})" if now else f"deleted: {path}")
        return [*done, *skipped]

    def changed_since(self, ghost: Ghost) -> list[str]:
        """Return the paths that are not as the process that made a snapshot left them."""
        left = dict(ghost.left)
        return [path for path, place in ghost.places if left.get(place) != self.digest(place)]

    def digest(self, place: str) -> str:
        """Return a digest of the present content of a path; empty if nothing exists there."""
        full = self._at(place)
        if os.path.islink(full) or not os.path.isfile(full):
            return _looks(full)
        try:
            with open(full, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return f"unreadable {error.errno}"

    def _at(self, place: str) -> str:
        return os.path.join(self._root, place)

    def _leads_out(self, place: str) -> bool:
        full = self._at(place)
        return os.path.islink(full) and not os.path.realpath(full).startswith(self._root.rstrip("/") + "/")

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
        return self._keeping.open(
            self._root, LibraryRules(only(places), USER_NAME, USER_EMAIL, named_only=True)
        )


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
    skipped, left = (
        tuple((str(one), str(other)) for one, other in said.get(name, ())) for name in ("skipped", "left")
    )
    also, process = tuple(said["also"]), str(said.get("process", ""))
    return Ghost(
        said["id"], said["label"], said["timestamp"], places, said["commit"], also, skipped, process, left
    )


def with_what_is_left(ghosts: Sequence[Ghost], process: str, now: Mapping[str, str]) -> tuple[Ghost, ...]:
    """Return snapshots with the digests of some places noted in the newest of a process that names each of them.

    What was noted before stays.
    """
    found, open_places = list(ghosts), set(now)
    for number in range(len(found) - 1, -1, -1):
        ghost = found[number]
        mine = {place for _, place in ghost.places} & open_places
        open_places -= mine
        missing = mine - set(dict(ghost.left))
        if missing and ghost.process == process:
            left = (*ghost.left, *((place, now[place]) for place in sorted(missing)))
            found[number] = replace(ghost, left=left)
    return tuple(found)


def _looks(path: str) -> str:
    """Return the kind of what exists at a path, and the target of a link; empty if nothing does."""
    try:
        return f"link {os.readlink(path)}"
    except OSError:
        return "directory" if os.path.isdir(path) else "file" if os.path.lexists(path) else ""


def _bytes_of(reader: FileReader, path: EnvPath) -> bytes:
    try:
        return b"".join(reader.read(path))
    except NoSuchFile:
        # A directory, or an empty file.
        return b""


def _known(history: EnvHistory, commit: str) -> Snapshot:
    return next(one for one in history.log() if one.id == commit)
