"""Store the history of a directory for a library, in a repository of its own that survives a rename of the directory.

If the directory is inside a git repository, that is not changed: no branch, no index, no ref. Each directory has a
place below the base:

    <base>/<12 hex of the hash of its path>/home      the directory: its path, and its identity
    <base>/<12 hex of the hash of its path>/<inner>   our repository

A renamed directory is recognised by its identity (`discovery.identify`), and its place is renamed, too. If another
directory now exists at the old path, it continues with a copy, so that both have the earlier history.
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

from git_envhist.directories_of_others import refuse_others_directory
from git_envhist.discovery import OBJECT_FORMAT, DirectoryId, identify, is_same, is_successor, make_repository
from git_envhist.disk import Durability, replace_file, state_directory, system_errors
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.lazy import dataclass, replace
from git_envhist.locks import locked

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory


# Locks between the threads of a host program, which may fork at any time, and between its processes.


class ThreadLock:
    """A reentrant lock between threads; after a fork, the child process does not hold it."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process, self._lock = os.getpid(), RLock()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            # The thread with the lock does not exist in this process and would never release it.
            self._begin()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        # A lock that was acquired before the fork does not belong to this process.
        if self._process == os.getpid():
            self._lock.release()


class ProcessLock(ThreadLock):
    """A reentrant lock between processes, for one thread at a time."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self._name = name
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._locks: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        super().__enter__()
        try:
            if not self._locks:
                state_directory(self._directory)
            lock = nullcontext() if self._locks else locked(os.path.join(self._directory, self._name))
            lock.__enter__()
            self._locks.append(lock)
        except BaseException:
            super().__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self._process != os.getpid():
            return
        try:
            self._locks.pop().__exit__(None, None, None)
        finally:
            super().__exit__()


T = TypeVar("T")
SURROGATES = "surrogateescape"
HOME, LOCK = "home", ".lock"
HEX = 12
REMOVED = re.compile(rf"[0-9a-f]{{{HEX}}}\.going-[0-9a-f]{{1,10}}")


@dataclass(frozen=True, slots=True)
class LibraryRules:
    """Settings of a library's captures: excluded paths, and the author."""

    exclude: tuple[str, ...] = ()
    user_name: str | None = None
    user_email: str | None = None
    named_only: bool = False
    """Captures contain only the named paths, including those that `.envhistignore` excludes."""


@dataclass(frozen=True, slots=True)
class StoredDirectory:
    """The directory that a place belongs to."""

    path: str
    identity: DirectoryId


@dataclass(frozen=True, slots=True)
class LibraryStorage:
    """The location of the histories of one library."""

    base: str
    inner: str = ".git"

    def place_of(self, root: str) -> str:
        """Return the place of a directory by its path."""
        return os.path.join(self.base, place_name(os.path.realpath(root)))

    def repository(self, root: str) -> Repository:
        """Return the repository of a directory, created if needed; after a rename its place is renamed, too."""
        real = os.path.realpath(root)
        place = self.place_of(real)
        refuse_others_directory(self.base)
        state_directory(self.base)
        with locked(os.path.join(self.base, LOCK)):
            _remove_leftovers(self.base)
            _assign_place(self.base, place, real)
            inner = os.path.join(place, self.inner)
            if not os.path.isdir(os.path.join(inner, "objects")):
                make_repository(inner)
        return Repository(real, inner, inner, OBJECT_FORMAT, Git(inner, real), plain=True, library=True)

    def open(self, root: str, rules: LibraryRules, looking_at: str | None = None) -> EnvHistory:
        """Open the history of a directory with the library's rules; `looking_at` is another directory to capture."""
        repository = self.repository(root)
        if looking_at is not None:
            looked_at = os.path.realpath(looking_at)
            repository = replace(repository, root=looked_at, git=Git(repository.git_dir, looked_at))
        inside = os.path.relpath(os.path.realpath(self.base), repository.root)
        if not inside.startswith(os.pardir):
            rules = replace(rules, exclude=(*rules.exclude, f"/{literal_pattern(inside)}/"))
        return _open_kept(repository, rules)

    def lock(self, root: str) -> ProcessLock:
        """Return a lock for several operations on a directory's history that belong together."""
        return ProcessLock(self.base, f".{place_name(os.path.realpath(root))}.lock")

    def forget(self, root: str) -> None:
        """Remove the history of a directory."""
        if not os.path.isdir(self.base):
            return
        real = os.path.realpath(root)
        place = self.place_of(real)
        with locked(os.path.join(self.base, LOCK)):
            # A renamed directory still has its history at the place of its old path; move that here first.
            _assign_place(self.base, place, real)
            if os.path.lexists(place):
                # Rename it first, so that no process finds a half-removed place.
                removed = f"{place}.going-{os.urandom(3).hex()}"
                os.rename(place, removed)
                shutil.rmtree(removed)


def literal_pattern(path: str) -> str:
    """Return a gitignore pattern that matches exactly this path."""
    return "".join(f"\\{letter}" if letter in "\\*?[]!# " else letter for letter in path)


def place_name(real: str) -> str:
    """Return the name of the directory (a hash) that stores a workspace, from its real path."""
    return hashlib.sha256(os.fsencode(real)).hexdigest()[:HEX]


def _open_kept(repository: Repository, rules: LibraryRules) -> EnvHistory:
    """Open a library history with its own rules; the user's configuration does not apply."""
    from git_envhist.api import EnvHistory  # loaded late: not needed to import the types
    from git_envhist.discovery import OpenedRepository  # loaded late: likewise

    # A hook or git's own variables must not change the author.
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
        # A killed process left an interrupted restore; finish it.
        history.restorer.continue_restore()
    return history


def _remove_leftovers(base: str) -> None:
    """Remove places whose removal was interrupted."""
    for name in os.listdir(base):
        if REMOVED.fullmatch(name):
            shutil.rmtree(os.path.join(base, name), ignore_errors=True)


def _assign_place(base: str, place: str, real: str) -> None:
    """Assign the place of a path to the directory that exists there now."""
    here = identify(real)
    if here is None:
        return
    known = _read_home(place)
    if known is not None and _belongs_to(known, real, here):
        if known != StoredDirectory(real, here):
            _write_home(place, StoredDirectory(real, here))
        return
    before = _place_elsewhere(base, place, here)
    if os.path.isdir(place):
        _rename_place(place, copied=before is None)
    if before is not None:
        os.rename(before, place)
    os.makedirs(place, mode=0o700, exist_ok=True)
    _write_home(place, StoredDirectory(real, here))


def _belongs_to(known: StoredDirectory, real: str, here: DirectoryId) -> bool:
    return is_same(known.identity, here) or (known.path == real and not is_successor(known.identity, here))


def _place_elsewhere(base: str, place: str, here: DirectoryId) -> str | None:
    """Return the place that this directory had under an earlier path."""
    for name in sorted(os.listdir(base)):
        other = os.path.join(base, name)
        known = _read_home(other) if other != place else None
        if known is not None and is_same(known.identity, here) and not _exists_unchanged(known):
            return other
    return None


def _exists_unchanged(known: StoredDirectory) -> bool:
    # One directory may have two paths, e.g. with a bind mount; each path then has its own history.
    current = identify(known.path)
    return current is not None and is_same(current, known.identity)


def _rename_place(place: str, *, copied: bool) -> None:
    """Rename the place of another directory that was at this path before, until that directory is found again."""
    aside = f"{place}.{os.urandom(3).hex()}"
    os.rename(place, aside)
    if copied:
        shutil.copytree(aside, place, symlinks=True, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    # Packs never change and can be linked; everything else is copied.
    if f"{os.sep}pack{os.sep}" in source:
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)


def _read_home(place: str) -> StoredDirectory | None:
    try:
        with open(os.path.join(place, HOME), encoding="utf-8", errors=SURROGATES) as file:
            values = json.load(file)
        return StoredDirectory(
            str(values["path"]), DirectoryId(int(values["inode"]), int(values["device"]), str(values["mark"]))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_home(place: str, home: StoredDirectory) -> None:
    write_json(os.path.join(place, HOME), {"path": home.path, **home.identity._asdict()})


def read_json(path: str, read: Callable[[Any], T], nothing: T) -> T:
    """Read a small JSON file; return `nothing` if there is none.

    An invalid file is renamed and never overwritten. A file that cannot be read is an error: treating it as empty
    would lose its content with the next write.
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
    """Replace a small JSON file atomically and sync it."""
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", SURROGATES)
    replace_file(path, data, durability=Durability.FULL, unique=True)
