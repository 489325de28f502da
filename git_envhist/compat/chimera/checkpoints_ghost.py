"""Replacement for `chimera.checkpoints_ghost`: a stack of snapshots of files, taken before each tool that changes them.

A snapshot contains only the named paths, with their exact bytes, modes and links. The stack of snapshots is stored in a
small list next to the repository, and is still available in the next process.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from git_envhist.api import EnvHistory
from git_envhist.compat.chimera.storage import (
    UNDO,
    USER_EMAIL,
    USER_NAME,
    PathEscapes,
    errors_as_os_errors,
    library_storage,
)
from git_envhist.compat.storage import LibraryRules, ThreadLock, literal_pattern, read_json, write_json
from git_envhist.lazy import replace
from git_envhist.locks import locked
from git_envhist.model import EnvPath, Snapshot
from git_envhist.rewrite.mark_for_drop import drop_soon
from git_envhist.snapshots.reader import FileReader, NoSuchFile

STACK, LOCK = "stack", "stack.lock"
LEADS_OUT = "it leads out of the working directory"
UNCHANGED = "it was not changed"


@dataclass(frozen=True, slots=True)
class Ghost:
    """An entry of the stack: its name, the requested paths and their places, and the snapshot that contains them."""

    id: str
    label: str
    timestamp: float
    places: tuple[tuple[str, str], ...]
    commit: str | None
    also: tuple[str, ...] = ()
    """Targets of the links among the paths."""
    skipped: tuple[tuple[str, str], ...] = ()
    """Paths that could not be captured, each with the reason."""
    process: str = ""
    """The process that created it."""
    left: tuple[tuple[str, str], ...] = ()
    """Digests of the paths as that process left them."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path, _ in self.places)


@dataclass(frozen=True, slots=True)
class Stack:
    """All snapshots, oldest first, and the number ever created."""

    counter: int = 0
    ghosts: tuple[Ghost, ...] = ()


class GhostStack:
    """The stack of one working directory."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._keeping = library_storage(UNDO)

    @contextmanager
    def locked(self) -> Iterator[Stack]:
        """Yield the stack under its lock."""
        directory = self._keeping.repository(self._root).git_dir
        with locked(os.path.join(directory, LOCK)):
            yield self.read()

    def read(self) -> Stack:
        """Return the stack."""
        return read_json(self._file, _read_stack, Stack())

    def found(self) -> Stack:
        """Return the stack, also for a directory that was renamed."""
        if not os.path.isdir(self._keeping.place_of(self._root)) and os.path.isdir(self._root):
            self._keeping.repository(self._root)
        return self.read()

    def write(self, stack: Stack) -> None:
        """Replace the stored stack."""
        names = ("id", "label", "timestamp", "places", "commit", "also", "skipped", "process", "left")
        ghosts = [{name: getattr(ghost, name) for name in names} for ghost in stack.ghosts]
        write_json(self._file, {"counter": stack.counter, "ghosts": ghosts})

    def take(self, name: str, label: str, places: Iterable[str]) -> str:
        """Capture these paths; return the id of the snapshot."""
        history = self._open(places)
        snapshot = history.capture(label or name, meta=[("ghost", name)]).snapshot
        assert snapshot is not None
        return snapshot.id

    def missing_paths(self, commit: str, places: Iterable[tuple[str, str]]) -> list[str]:
        """Return the paths that exist but are not in the snapshot."""
        contents = self._contents(Ghost("", "", 0.0, tuple(places), commit))
        return [path for path, place in places if path not in contents and os.path.lexists(self._at(place))]

    def restore(self, ghost: Ghost) -> list[str]:
        """Restore the paths of a snapshot; return the result of each, as found on disk."""
        skipped = [f"skipped: {path} ({reason})" for path, reason in ghost.skipped]
        if ghost.commit is None:
            return skipped
        contents = self._contents(ghost)
        before = {place: _entry_state(self._at(place)) for _, place in ghost.places}
        history = self._open([*(place for _, place in ghost.places), *ghost.also])
        history.restore(_known(history, ghost.commit))
        done = []
        for path, place in ghost.places:
            now = _entry_state(self._at(place))
            if path in contents and before[place] == now and self._leads_out(place):
                done.append(f"skipped: {path} ({LEADS_OUT})")
            elif path in contents:
                done.append(f"restored: {path}" if now else f"skipped: {path} ({UNCHANGED})")
            elif before[place]:
                done.append(f"skipped: {path} ({UNCHANGED})" if now else f"deleted: {path}")
        return [*done, *skipped]

    def changed_since(self, ghost: Ghost) -> list[str]:
        """Return the paths that changed since the process that created the snapshot ended."""
        left = dict(ghost.left)
        return [path for path, place in ghost.places if left.get(place) != self.digest(place)]

    def digest(self, place: str) -> str:
        """Return a digest of the current content of a path; empty if nothing exists there."""
        full = self._at(place)
        if os.path.islink(full) or not os.path.isfile(full):
            return _entry_state(full)
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
        """Return the files as text; empty for files that did not exist."""
        contents = self._contents(ghost) if ghost.commit is not None else {}
        return {path: contents.get(path, b"").decode("utf-8", "replace") for path in ghost.paths}

    def drop(self, ghosts: Sequence[Ghost]) -> None:
        """Drop snapshots that are no longer needed."""
        commits = {ghost.commit for ghost in ghosts if ghost.commit is not None}
        if commits:
            history = self._open(())
            drop_soon(history, [one for one in history.log() if one.id in commits])

    def _contents(self, ghost: Ghost) -> dict[str, bytes]:
        """Return the content of each path that existed; none for directories."""
        history = self._open(())
        contents = {}
        with closing(history.reader(_known(history, ghost.commit or ""))) as reader:
            for path, place in ghost.places:
                name = EnvPath(os.fsencode(place))
                if reader.entry(name) is not None:
                    contents[path] = _bytes_of(reader, name)
        return contents

    @property
    def _file(self) -> str:
        return os.path.join(self._keeping.place_of(self._root), self._keeping.inner, STACK)

    def _open(self, places: Iterable[str]) -> EnvHistory:
        return self._keeping.open(
            self._root, LibraryRules(only_patterns(places), USER_NAME, USER_EMAIL, named_only=True)
        )


def only_patterns(places: Iterable[str]) -> tuple[str, ...]:
    """Return gitignore patterns that exclude everything except some paths and their content."""
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


def _read_stack(values: dict[str, Any]) -> Stack:
    return Stack(int(values["counter"]), tuple(map(_read_ghost, values["ghosts"])))


def _read_ghost(values: dict[str, Any]) -> Ghost:
    places = tuple((str(path), str(place)) for path, place in values["places"])
    skipped, left = (
        tuple((str(one), str(other)) for one, other in values.get(name, ())) for name in ("skipped", "left")
    )
    also, process = tuple(values["also"]), str(values.get("process", ""))
    return Ghost(
        values["id"],
        values["label"],
        values["timestamp"],
        places,
        values["commit"],
        also,
        skipped,
        process,
        left,
    )


def with_digests(ghosts: Sequence[Ghost], process: str, now: Mapping[str, str]) -> tuple[Ghost, ...]:
    """Return snapshots with the digests of some places, in the newest one of a process that names each of them.

    Existing digests are kept.
    """
    found, open_places = list(ghosts), set(now)
    for number in range(len(found) - 1, -1, -1):
        ghost = found[number]
        own = {place for _, place in ghost.places} & open_places
        open_places -= own
        missing = own - set(dict(ghost.left))
        if missing and ghost.process == process:
            left = (*ghost.left, *((place, now[place]) for place in sorted(missing)))
            found[number] = replace(ghost, left=left)
    return tuple(found)


def _entry_state(path: str) -> str:
    """Return the type of the entry at a path, and the target of a link; empty if nothing exists."""
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


PROCESS = os.urandom(8).hex()
"""Identifies this process and its forks."""
CHANGED = "changed since that process ended; undo(force=True) restores it"


@dataclass
class GhostSnapshot:
    """Some files at one point in time."""

    id: str
    label: str
    timestamp: float
    files: dict[str, str]
    """Texts by path, for display; empty for a file that did not exist."""


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
        """The number of snapshots."""
        return len(self._stack().ghosts)

    @property
    def history(self) -> list[GhostSnapshot]:
        """Return all snapshots, oldest first."""
        with errors_as_os_errors():
            return [self._as_snapshot(ghost) for ghost in self._stack().ghosts]

    def snapshot(self, label: str, paths: Sequence[str | os.PathLike[str]] | None = None) -> str:
        """Capture these files, or those of the last snapshot if none are named; return `ghost-N`.

        A path that cannot be captured raises nothing, because the agent's loop calls this before the tool refuses
        such a path; `undo` reports it as skipped.
        """
        # A tool is about to write to the directory.
        os.makedirs(self._workdir, exist_ok=True)
        if not self._notes_at_exit:
            self._notes_at_exit = True
            atexit.register(self._record_digests)
        with self._lock, errors_as_os_errors(), self._ghosts.locked() as stack:
            named = paths if paths is not None else self._named_last(stack)
            places, skipped = self._places([os.fspath(path) for path in named])
            number = stack.counter + 1
            name = f"ghost-{number}"
            also = tuple(
                sorted({end for place in places.values() if (end := self._link_target(place)) is not None})
            )
            taken = self._ghosts.take(name, label, [*places.values(), *also]) if places else None
            if taken is not None:
                for path in self._ghosts.missing_paths(taken, list(places.items())):
                    skipped[path] = "it could not be kept"
                    del places[path]
            kept = tuple(places.items())
            ghost = Ghost(name, label, time.time(), kept, taken, also, tuple(skipped.items()), PROCESS)
            now = {place: self._ghosts.digest(place) for place in places.values()}
            every = (*with_digests(stack.ghosts, PROCESS, now), ghost)
            keep = every[max(0, len(every) - self._max_snapshots) :]
            self._ghosts.write(Stack(number, keep))
            self._ghosts.drop(every[: len(every) - len(keep)])
            return ghost.id

    def undo(self, n: int = 1, *, force: bool = False) -> list[str]:
        """Restore files to their state before the last snapshots; return the result of each.

        `force` includes files that were changed after the process that created the snapshot ended.
        """
        done: list[str] = []
        with self._lock, errors_as_os_errors(), self._ghosts.locked() as stack:
            for _ in range(min(n, len(stack.ghosts))):
                *rest, ghost = stack.ghosts
                changed = [] if force or ghost.process == PROCESS else self._ghosts.changed_since(ghost)
                if changed:
                    done += [f"skipped: {path} ({CHANGED})" for path in changed]
                    break
                done += self._ghosts.restore(ghost)
                stack = Stack(stack.counter, tuple(rest))
                self._ghosts.write(stack)
                self._ghosts.drop([ghost])
        return done

    def peek(self) -> GhostSnapshot | None:
        """Return the last snapshot without removing it."""
        with errors_as_os_errors():
            ghosts = self._stack().ghosts
            return self._as_snapshot(ghosts[-1]) if ghosts else None

    def clear(self) -> None:
        """Drop all snapshots."""
        with self._lock, errors_as_os_errors(), self._ghosts.locked() as stack:
            self._ghosts.write(Stack(stack.counter, ()))
            self._ghosts.drop(stack.ghosts)

    @staticmethod
    def _named_last(stack: Stack) -> tuple[str, ...]:
        return stack.ghosts[-1].paths if stack.ghosts else ()

    def _places(self, named: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return paths with their places, and paths that cannot be captured with the reasons."""
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

    def _record_digests(self) -> None:
        """Record the files as this process leaves them, so that a later process detects changes."""
        # Errors must not disturb the exit of the process.
        with suppress(Exception), self._ghosts.locked() as stack:
            places = {place for one in stack.ghosts if one.process == PROCESS for _, place in one.places}
            now = {place: self._ghosts.digest(place) for place in places}
            ghosts = with_digests(stack.ghosts, PROCESS, now)
            if ghosts != stack.ghosts:
                self._ghosts.write(Stack(stack.counter, ghosts))

    def _stack(self) -> Stack:
        with self._lock, errors_as_os_errors():
            return self._ghosts.found()

    def _as_snapshot(self, ghost: Ghost) -> GhostSnapshot:
        if ghost not in self._files:
            self._files[ghost] = self._ghosts.texts(ghost)
        return GhostSnapshot(ghost.id, ghost.label, ghost.timestamp, dict(self._files[ghost]))

    def _contain(self, path: str) -> str:
        """Return the path below the working directory; raises `PathEscapes` if it leads outside."""
        directory, name = os.path.split(os.path.join(self._workdir, path).rstrip(os.sep))
        # The target of the last component is not resolved, because the link itself is captured. Parent directories
        # are resolved: `..` after a link is above the link's target.
        named = name not in ("", os.curdir, os.pardir)
        real = os.path.realpath(directory if named else os.path.join(directory, name))
        real = os.path.join(real, name) if named else real
        if not real.startswith(self._workdir.rstrip("/") + "/"):
            raise PathEscapes(path)
        return os.path.relpath(real, self._workdir)

    def _link_target(self, place: str) -> str | None:
        """Return the target of a link inside the working directory, because a tool writes through it."""
        full = os.path.join(self._workdir, place)
        real = os.path.realpath(full)
        inside = real.startswith(self._workdir.rstrip("/") + "/")
        return os.path.relpath(real, self._workdir) if os.path.islink(full) and inside else None
