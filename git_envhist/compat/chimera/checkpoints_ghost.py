"""The stack of snapshots of files: a small list beside the repository, and a moment of the named paths for each."""

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
    keeping,
    told_as_os_errors,
)
from git_envhist.compat.storage import LibraryRules, ThreadLock, literal_pattern, read_json, write_json
from git_envhist.disk import locked
from git_envhist.lazy import replace
from git_envhist.model import EnvPath, Snapshot
from git_envhist.rewrite.marking import drop_soon
from git_envhist.snapshots.reader import FileReader, NoSuchFile

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


# In the place of `chimera.checkpoints_ghost`: files as they were before each tool that changes them.
#
# A snapshot is a moment that holds the named paths alone, so that it costs little, and their bytes, modes and links
# exactly. The stack of them is there again in the next process.

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
