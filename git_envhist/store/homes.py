"""Which history belongs to which directory without git: one small record a history, beside all histories.

Nothing is put into the directory itself. A record says where the directory was last and what makes it itself
(`sameness`), so that it is found again after it was moved, and taken for no other that stands at its old place.

    envhist-home 1
    path /home/me/notes
    repository /home/me/.local/share/git-envhist/histories/notes-3fa2c1.git
    inode 2526124
    device 65024
    mark generation-920059277

A record without an inode is of a history that nobody goes on with; it can be taken up again. One with the line
`fork yes` is of a fork: it has a timeline of its own in a repository that another directory's history is kept in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from git_envhist.errors import EnvhistError
from git_envhist.store.durable import remove_if_present, sync_directory
from git_envhist.store.quoting import quote, unquote
from git_envhist.store.sameness import DirectoryId, identify, is_same, is_successor
from git_envhist.system import open_file_only
from git_envhist.values import dataclass, replace

FIRST_LINE = b"envhist-home 1"
LARGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class RegisteredDirectory:
    """A directory, and the repository that holds its history."""

    name: str
    path: str
    """Where the directory was when it was last seen."""
    repository: str
    identity: DirectoryId | None = None
    """None: let go."""
    fork: bool = False
    """It shares the repository of another directory's history."""


class DuplicateDirectory(EnvhistError):
    """A copy that the file system made claims the history of what it was copied from."""

    code = "two-directories"


class DirectoryRegistry:
    """The records of one user."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def all(self) -> list[RegisteredDirectory]:
        """Every record that can be read."""
        found = map(self._read, self._names())
        return [home for home in found if home is not None]

    def damaged(self) -> list[str]:
        """Return the names of the records that cannot be read."""
        return [name for name in self._names() if self._read(name) is None]

    def _names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.directory) if not name.startswith("."))
        except OSError:
            return []

    def find(self, directory: str) -> tuple[RegisteredDirectory, str] | None:
        """The record of the nearest directory from here upwards that is itself, and where that is now."""
        homes = self.all()
        inodes = {home.identity.inode for home in homes if home.identity is not None}
        for place in parent_directories(directory) if inodes else ():
            identity = _identify_one_of(place, inodes)
            home = _best(homes, place, identity) if identity is not None else None
            if home is not None and identity is not None:
                return self._seen(home, place, identity), place
        return None

    def stood_here(self, directory: str) -> RegisteredDirectory | None:
        """The record of a directory that stood, from here upwards, where another one stands now."""
        by_path = {home.path: home for home in self.all() if home.identity is not None}
        return next((by_path[place] for place in parent_directories(directory) if place in by_path), None)

    def write(self, home: RegisteredDirectory) -> None:
        """Put a record in its place, whole and durable."""
        new = os.path.join(self.directory, f".new-{os.getpid()}-{os.urandom(4).hex()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(_spell(home))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, os.path.join(self.directory, home.name))
        sync_directory(self.directory)

    def forget(self, home: RegisteredDirectory) -> None:
        """Take a record away."""
        remove_if_present(os.path.join(self.directory, home.name))
        sync_directory(self.directory)

    def _read(self, name: str) -> RegisteredDirectory | None:
        try:
            with open(os.path.join(self.directory, name), "rb", opener=open_file_only) as file:
                return _parse(name, file.read(LARGEST))
        except (OSError, EnvhistError, ValueError, KeyError):
            return None

    def _seen(self, home: RegisteredDirectory, place: str, identity: DirectoryId) -> RegisteredDirectory:
        """The record, saying where its directory is now."""
        if place == home.path and identity == home.identity:
            return home
        before = identify(home.path) if place != home.path else None
        if before is not None and is_meant(home, home.path, before):
            if before.device != identity.device:
                raise DuplicateDirectory(
                    f"'{place}' is a copy of '{home.path}', and both claim one history",
                    hint="'git envlog init --new' begins a history of its own for the copy",
                )
            # One directory by two paths, as with a bind mount.
            return home
        now = replace(home, path=place, identity=identity)
        # What cannot be noted now is noticed again the next time.
        with suppress(OSError):
            self.write(now)
        return now


def is_meant(home: RegisteredDirectory, place: str, identity: DirectoryId) -> bool:
    """Whether a directory, and not only its place, is the one of a record."""
    if home.identity is None:
        return False
    if is_same(home.identity, identity):
        return True
    return place == home.path and not is_successor(home.identity, identity)


def _best(
    homes: Iterable[RegisteredDirectory], place: str, identity: DirectoryId
) -> RegisteredDirectory | None:
    # A copy by the file system has all marks of the original; once it has a record too, place and device decide.
    meant = [home for home in homes if is_meant(home, place, identity)]
    device = identity.device
    return max(
        meant,
        key=lambda home: (home.path == place, home.identity and home.identity.device == device),
        default=None,
    )


def parent_directories(directory: str) -> Iterable[str]:
    """A directory and all above it, the innermost first."""
    place = os.path.realpath(directory)
    yield place
    while place != (place := os.path.dirname(place)):
        yield place


def _identify_one_of(place: str, inodes: set[int]) -> DirectoryId | None:
    try:
        return identify(place) if os.stat(place).st_ino in inodes else None
    except OSError:
        return None


def _spell(home: RegisteredDirectory) -> bytes:
    lines = [FIRST_LINE, b"path " + quote(os.fsencode(home.path))]
    lines.append(b"repository " + quote(os.fsencode(home.repository)))
    if home.fork:
        lines.append(b"fork yes")
    if home.identity is not None:
        for word, value in zip(DirectoryId._fields, home.identity, strict=True):
            lines.append(f"{word} {value}".encode("ascii"))
    return b"".join(line + b"\n" for line in lines)


def _parse(name: str, text: bytes) -> RegisteredDirectory | None:
    first, *lines = text.split(b"\n")
    if first != FIRST_LINE:
        return None
    said = dict(line.partition(b" ")[::2] for line in lines if line)
    path, repository = (os.fsdecode(unquote(said[word])) for word in (b"path", b"repository"))
    fork = said.get(b"fork") == b"yes"
    if b"inode" not in said:
        return RegisteredDirectory(name, path, repository, fork=fork)
    identity = DirectoryId(int(said[b"inode"]), int(said[b"device"]), said[b"mark"].decode("ascii"))
    return RegisteredDirectory(name, path, repository, identity, fork)
