"""A history that is kept for a directory without a word in it: in a repository of its own, found after a rename.

Where the directory is in a git repository, nothing of that is touched: no branch, no index, no ref. A place below the
base belongs to one directory:

    <base>/<12 hex of the hash of its path>/home      which directory it is: its path, and what makes it itself
    <base>/<12 hex of the hash of its path>/<inner>   a repository of ours

A directory that was renamed is known by what makes it itself (`store/sameness`), and its place goes along. Another
one that stands at the old path now goes on with a copy: either of the two has the whole history that far.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from git_envhist.discovery import OBJECT_FORMAT, DirectoryId, identify, is_same, is_successor, make_repository
from git_envhist.disk import Durability, locked, replace_file, state_directory, system_errors
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.lazy import dataclass, replace

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory


# Locks of those who go one by one: threads of a host that may be copied at any time, and its other processes.


class ThreadLock:
    """A lock between threads; whoever holds it may take it again, and a copy of the process begins without it."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process, self._lock = os.getpid(), RLock()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            # Whoever held it there has no thread here, and would hold it for ever.
            self._begin()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        # Of one that was taken before the copy was made nothing is left here.
        if self._process == os.getpid():
            self._lock.release()


class ProcessLock(ThreadLock):
    """A lock for one thread of one process; whoever holds it may take it again."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self._name = name
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._held: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        super().__enter__()
        try:
            if not self._held:
                state_directory(self._directory)
            lock = nullcontext() if self._held else locked(os.path.join(self._directory, self._name))
            lock.__enter__()
            self._held.append(lock)
        except BaseException:
            super().__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._process != os.getpid():
            return
        try:
            self._held.pop().__exit__(None, None, None)
        finally:
            super().__exit__()


T = TypeVar("T")
SURROGATES = "surrogateescape"
HOME, LOCK = "home", ".lock"
HEX = 12
GOING = re.compile(rf"[0-9a-f]{{{HEX}}}\.going-[0-9a-f]{{1,10}}")


@dataclass(frozen=True, slots=True)
class LibraryRules:
    """What belongs to the captures of a library, and in whose name they are taken."""

    exclude: tuple[str, ...] = ()
    user_name: str | None = None
    user_email: str | None = None
    named_only: bool = False
    """The captures hold only the named paths, also those that `.envhistignore` excludes."""


@dataclass(frozen=True, slots=True)
class StoredDirectory:
    """The directory that a place belongs to."""

    path: str
    identity: DirectoryId


@dataclass(frozen=True, slots=True)
class LibraryStorage:
    """Where a library keeps the histories of directories."""

    base: str
    inner: str = ".git"

    def place_of(self, root: str) -> str:
        """Where the history of a directory is, by its path."""
        return os.path.join(self.base, place_name(os.path.realpath(root)))

    def repository(self, root: str) -> Repository:
        """The repository of a directory's history, made where there is none; its place comes along after a rename."""
        real = os.path.realpath(root)
        place = self.place_of(real)
        state_directory(self.base)
        with locked(os.path.join(self.base, LOCK)):
            _sweep(self.base)
            _settle(self.base, place, real)
            inner = os.path.join(place, self.inner)
            if not os.path.isdir(os.path.join(inner, "objects")):
                make_repository(inner)
        return Repository(real, inner, inner, OBJECT_FORMAT, Git(inner, real), plain=True, library=True)

    def open(self, root: str, rules: LibraryRules, looking_at: str | None = None) -> EnvHistory:
        """The verbs of a directory's history, under rules of its own; `looking_at`: captures are of that one."""
        repository = self.repository(root)
        if looking_at is not None:
            looked_at = os.path.realpath(looking_at)
            repository = replace(repository, root=looked_at, git=Git(repository.git_dir, looked_at))
        inside = os.path.relpath(os.path.realpath(self.base), repository.root)
        if not inside.startswith(os.pardir):
            rules = replace(rules, exclude=(*rules.exclude, f"/{literal_pattern(inside)}/"))
        return _open_kept(repository, rules)

    def lock(self, root: str) -> ProcessLock:
        """Held by whoever does several things with a directory's history that belong together."""
        return ProcessLock(self.base, f".{place_name(os.path.realpath(root))}.lock")

    def forget(self, root: str) -> None:
        """Remove the history of a directory, and its place."""
        if not os.path.isdir(self.base):
            return
        real = os.path.realpath(root)
        place = self.place_of(real)
        with locked(os.path.join(self.base, LOCK)):
            # That of a directory which was renamed is its own, too.
            _settle(self.base, place, real)
            if os.path.lexists(place):
                # Out of the way at once, so that nobody finds a part of it.
                going = f"{place}.going-{os.urandom(3).hex()}"
                os.rename(place, going)
                shutil.rmtree(going)


def literal_pattern(path: str) -> str:
    """A pattern in gitignore's syntax that means this path and nothing else."""
    return "".join(f"\\{letter}" if letter in "\\*?[]!# " else letter for letter in path)


def place_name(real: str) -> str:
    """The name of the place that a path has."""
    return hashlib.sha256(os.fsencode(real)).hexdigest()[:HEX]


def _open_kept(repository: Repository, rules: LibraryRules) -> EnvHistory:
    """The verbs of a kept history, under rules of its own; what the user configured for theirs plays no part."""
    from git_envhist.api import EnvHistory  # loaded late: whoever imports the types alone needs none of it
    from git_envhist.discovery import OpenedRepository  # loaded late: likewise

    # A hook's caller, or git's own variables for a name, have no say in whose name this is.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_COMMITTER_")}
    history = EnvHistory(OpenedRepository(repository), environ, directory=repository.root, one_command=True)
    history.settings = replace(
        history.settings,
        exclude=rules.exclude,
        named_only=rules.named_only,
        fingerprint=(),
        roots=(),
        services=(),
        verify=None,
        user_name=rules.user_name or history.settings.user_name,
        user_email=rules.user_email or history.settings.user_email,
    )
    if history.restorer.is_interrupted:
        # A process that was killed on its way back meant to arrive.
        history.restorer.continue_restore()
    return history


def _sweep(base: str) -> None:
    """Remove what is forgotten, also where whoever began to was killed."""
    for name in os.listdir(base):
        if GOING.fullmatch(name):
            shutil.rmtree(os.path.join(base, name), ignore_errors=True)


def _settle(base: str, place: str, real: str) -> None:
    """See to it that the place of a path belongs to the directory that stands there now."""
    here = identify(real)
    if here is None:
        return
    known = _read_home(place)
    if known is not None and _is_meant(known, real, here):
        if known != StoredDirectory(real, here):
            _write_home(place, StoredDirectory(real, here))
        return
    before = _place_elsewhere(base, place, here)
    if os.path.isdir(place):
        _set_aside(place, copied=before is None)
    if before is not None:
        os.rename(before, place)
    os.makedirs(place, mode=0o700, exist_ok=True)
    _write_home(place, StoredDirectory(real, here))


def _is_meant(known: StoredDirectory, real: str, here: DirectoryId) -> bool:
    return is_same(known.identity, here) or (known.path == real and not is_successor(known.identity, here))


def _place_elsewhere(base: str, place: str, here: DirectoryId) -> str | None:
    """The place of this very directory under a path that it had before."""
    for name in sorted(os.listdir(base)):
        other = os.path.join(base, name)
        known = _read_home(other) if other != place else None
        if known is not None and is_same(known.identity, here) and not _is_still_there(known):
            return other
    return None


def _is_still_there(known: StoredDirectory) -> bool:
    # One directory by two paths, as with a bind mount: each path has a history then.
    seen = identify(known.path)
    return seen is not None and is_same(seen, known.identity)


def _set_aside(place: str, *, copied: bool) -> None:
    """Another directory stood here: its history waits under another name until that comes back."""
    aside = f"{place}.{os.urandom(3).hex()}"
    os.rename(place, aside)
    if copied:
        shutil.copytree(aside, place, symlinks=True, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    # A pack never changes; everything else may.
    if f"{os.sep}pack{os.sep}" in source:
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)


def _read_home(place: str) -> StoredDirectory | None:
    try:
        with open(os.path.join(place, HOME), encoding="utf-8", errors=SURROGATES) as file:
            said = json.load(file)
        return StoredDirectory(
            str(said["path"]), DirectoryId(int(said["inode"]), int(said["device"]), str(said["mark"]))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_home(place: str, home: StoredDirectory) -> None:
    write_json(os.path.join(place, HOME), {"path": home.path, **home.identity._asdict()})


def read_json(path: str, read: Callable[[Any], T], nothing: T) -> T:
    """What a small file says; `nothing` where there is none.

    What cannot be understood is put beside, and never written over; what cannot be read at all is an error: to whoever
    took it for empty, all that it says would be lost with the next word that is written.
    """
    if not os.path.lexists(path):
        return nothing
    try:
        with system_errors(path), open(path, encoding="utf-8", errors=SURROGATES) as file:
            text = file.read()
        return read(json.loads(text))
    except (ValueError, LookupError, TypeError, AttributeError):
        os.replace(path, f"{path}.damaged-{os.urandom(3).hex()}")
        return nothing


def write_json(path: str, value: object) -> None:
    """Put a small file in its place, whole and durable."""
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", SURROGATES)
    replace_file(path, data, durability=Durability.FULL, unique=True)
