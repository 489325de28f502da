"""Find or create the repository with the history of a directory.

Inside a git repository that is git's own repository. A plain directory has a private bare repository in the user's
data directory, and a record that maps the directory to it. Nothing is written into the directory itself: it is
recognized by its inode and a mark of the inode, so it keeps its history when it is renamed, and another directory at
its old path does not get it. The nearer of the two wins; for the same directory, git's repository does.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypedDict

from git_envhist.config import data_home
from git_envhist.directories_of_others import is_trusted_owner, refuse_others_directory
from git_envhist.disk import (
    Durability,
    cannot_write,
    remove_if_present,
    replace_file,
    state_directory,
    sync_directory,
)
from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.git.process import COMMAND, Git, clean_environment, run_to_end
from git_envhist.git.repository import FORKS, NoRepository, Repository
from git_envhist.lazy import dataclass, replace
from git_envhist.locks import locked
from git_envhist.platform import DIRECTORY, open_file_only
from git_envhist.snapshots.quoting import quote, unquote
from git_envhist.worktree.timeline_name import FILE as TIMELINE
from git_envhist.worktree.timeline_name import slug


def refuse_home(root: str, environ: Mapping[str, str]) -> None:
    """Raise `Refused` for a home directory or the root directory: few users want to capture all of it."""
    real = os.path.realpath(root)
    for place, what in ((environ.get("HOME") or "", "your home directory"), ("/", "the whole machine")):
        if place and real == os.path.realpath(place):
            raise Refused(
                f"the environment would be {what}: '{root}'", hint="--force, if that is what you want"
            )


# Identify a directory by its inode and a mark of the inode.
#
# The number of an inode is reused when a directory is removed (on ext4 at once). The mark is the inode's generation, or
# its time of birth if the file system has no generations; both survive a rename.

GET_GENERATION = 0x80087601 if struct.calcsize("l") == 8 else 0x80047601
GENERATION, BIRTH = "generation", "born"

STATX_BTIME = 0x800
HERE = -100
STATX_SIZE = 256
MASK = struct.Struct("=I")
TIME = struct.Struct("=qI")
TIME_OF_BIRTH = 80


class DirectoryId(NamedTuple):
    """The identity of a directory."""

    inode: int
    device: int
    mark: str
    """A kind and a number; empty if the file system has neither."""


def identify(path: str) -> DirectoryId | None:
    """Return the identity of the directory at a path; None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return DirectoryId(found.st_ino, found.st_dev, _generation(path) or _birth(path, found) or "")


def is_same(one: DirectoryId, other: DirectoryId) -> bool:
    """Return whether both are certainly one directory; the device number may change when the machine restarts."""
    return one.inode == other.inode and one.mark == other.mark != ""


def is_successor(one: DirectoryId, other: DirectoryId) -> bool:
    """Return whether `other`, at the path where `one` was, is certainly another directory."""
    # In a container the time of birth changes with the first write (copy up), so only generations count.
    marks = (one.mark, other.mark)
    return one.inode != other.inode or (
        one.mark != other.mark and all(mark.startswith(GENERATION) for mark in marks)
    )


def _generation(path: str) -> str | None:
    answer = bytearray(8)
    try:
        descriptor = os.open(path, DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.ioctl(descriptor, GET_GENERATION, answer)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    number = int.from_bytes(answer[:4], "little" if struct.pack("=I", 1)[0] else "big")
    return f"{GENERATION}-{number}" if number else None


def _birth(path: str, found: os.stat_result) -> str | None:
    born = getattr(found, "st_birthtime_ns", None) or getattr(found, "st_birthtime", None)
    if born:
        return f"{BIRTH}-{born}"
    return _statx(path)


def _statx(path: str) -> str | None:
    import ctypes  # loaded late: only a file system without generations needs it

    ask = getattr(ctypes.CDLL(None), "statx", None)
    if ask is None:
        return None
    answer = ctypes.create_string_buffer(STATX_SIZE)
    if ask(HERE, os.fsencode(path), 0, STATX_BTIME, answer) != 0:
        return None
    if not MASK.unpack_from(answer.raw)[0] & STATX_BTIME:
        return None
    seconds, nanoseconds = TIME.unpack_from(answer.raw, TIME_OF_BIRTH)
    return f"{BIRTH}-{seconds}.{nanoseconds:09d}"


# Records: one small file per history of a plain directory, with its last path and its identity.
#
# envhist-home 1
# path /home/me/notes
# repository /home/me/.local/share/git-envhist/histories/notes-3fa2c1.git
# inode 2526124
# device 65024
# mark generation-920059277
#
# A record without an inode is a history without a directory; another directory can adopt it. `fork yes` is a fork: it
# has its own timeline in the repository of another directory.

FIRST_LINE = b"envhist-home 1"
MAX_SIZE = 1 << 16


@dataclass(frozen=True, slots=True)
class RegisteredDirectory:
    """The record of a directory: its path, its identity, and the repository of its history."""

    name: str
    path: str
    """The path when the directory was last used."""
    repository: str
    identity: DirectoryId | None = None
    """None: no directory uses this history."""
    fork: bool = False
    """True for a fork, in the repository of another directory."""


class DuplicateDirectory(EnvhistError):
    """Two directories have the identity of one record, e.g. after a copy of the file system."""

    code = "two-directories"


class DirectoryRegistry:
    """The records of a user's plain directories."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def all(self) -> list[RegisteredDirectory]:
        """Return every record that can be read."""
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
        """Return the record of the nearest registered directory, this one or a parent, and its current path."""
        homes = self.all()
        inodes = {home.identity.inode for home in homes if home.identity is not None}
        for place in parent_directories(directory) if inodes else ():
            identity = _identify_one_of(place, inodes)
            home = _best(homes, place, identity) if identity is not None else None
            if home is not None and identity is not None:
                return self._with_current_path(home, place, identity), place
        return None

    def replaced_at(self, directory: str) -> RegisteredDirectory | None:
        """Return the record of a directory, this one or a parent, with a path that another directory has now."""
        by_path = {home.path: home for home in self.all() if home.identity is not None}
        return next((by_path[place] for place in parent_directories(directory) if place in by_path), None)

    def write(self, home: RegisteredDirectory) -> None:
        """Write a record: synced, then renamed into place."""
        path = os.path.join(self.directory, home.name)
        replace_file(path, _format(home), durability=Durability.FULL, unique=True)

    def forget(self, home: RegisteredDirectory) -> None:
        """Delete a record."""
        remove_if_present(os.path.join(self.directory, home.name))
        sync_directory(self.directory)

    def _read(self, name: str) -> RegisteredDirectory | None:
        try:
            with open(os.path.join(self.directory, name), "rb", opener=open_file_only) as file:
                # git obeys the configuration of the repository that a record names.
                if not is_trusted_owner(os.fstat(file.fileno()).st_uid):
                    return None
                return _parse(name, file.read(MAX_SIZE))
        except (OSError, EnvhistError, ValueError, KeyError):
            return None

    def _with_current_path(
        self, home: RegisteredDirectory, place: str, identity: DirectoryId
    ) -> RegisteredDirectory:
        """Return the record with the current path, and write it if the directory was moved."""
        if place == home.path and identity == home.identity:
            return home
        before = identify(home.path) if place != home.path else None
        if before is not None and is_directory_of(home, home.path, before):
            if before.device != identity.device:
                raise DuplicateDirectory(
                    f"'{place}' is a copy of '{home.path}', and there is one history for both",
                    hint="create a history for the copy: git envlog init --new",
                )
            # The same directory at two paths, e.g. by a bind mount.
            return home
        now = replace(home, path=place, identity=identity)
        # A record that cannot be written now is written the next time.
        with suppress(OSError):
            self.write(now)
        return now


def is_directory_of(home: RegisteredDirectory, place: str, identity: DirectoryId) -> bool:
    """Return whether the directory that is at `place` now is the recorded one."""
    if home.identity is None:
        return False
    if is_same(home.identity, identity):
        return True
    return place == home.path and not is_successor(home.identity, identity)


def _best(
    homes: Iterable[RegisteredDirectory], place: str, identity: DirectoryId
) -> RegisteredDirectory | None:
    # A copy of the file system has the marks of the original; if both have records, path and device decide.
    matching = [home for home in homes if is_directory_of(home, place, identity)]
    device = identity.device
    return max(
        matching,
        key=lambda home: (home.path == place, home.identity and home.identity.device == device),
        default=None,
    )


def parent_directories(directory: str) -> Iterable[str]:
    """Yield a directory and its parents, the innermost first."""
    place = os.path.realpath(directory)
    yield place
    while place != (place := os.path.dirname(place)):
        yield place


def _identify_one_of(place: str, inodes: set[int]) -> DirectoryId | None:
    try:
        return identify(place) if os.stat(place).st_ino in inodes else None
    except OSError:
        return None


def _format(home: RegisteredDirectory) -> bytes:
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
    fields = dict(line.partition(b" ")[::2] for line in lines if line)
    path, repository = (os.fsdecode(unquote(fields[word])) for word in (b"path", b"repository"))
    fork = fields.get(b"fork") == b"yes"
    if b"inode" not in fields:
        return RegisteredDirectory(name, path, repository, fork=fork)
    identity = DirectoryId(int(fields[b"inode"]), int(fields[b"device"]), fields[b"mark"].decode("ascii"))
    return RegisteredDirectory(name, path, repository, identity, fork)


# Repositories of plain directories: bare and private, without the user's templates.

OBJECT_FORMAT = "sha1"
# Written directly: `git config` would need a lock and read other configuration first.
CONFIG = """\
[core]
	repositoryFormatVersion = 0
	fileMode = true
	bare = true
	logAllRefUpdates = false
	sharedRepository = 0600
[gc]
	auto = 0
[maintenance]
	auto = false
"""


class HistoryMissing(EnvhistError):
    """The repository of a plain directory's history is missing."""

    code = "history-away"


def make_repository(place: str) -> None:
    """Create an empty repository at a path that does not exist, atomically."""
    new = f"{place}.new-{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        os.mkdir(new, 0o700)
        try:
            _fill(new)
            os.rename(new, place)
        except BaseException:
            import shutil  # loaded late: every command loads this module

            shutil.rmtree(new, ignore_errors=True)
            raise
        sync_directory(os.path.dirname(place))
    except OSError as error:
        raise cannot_write(error, os.path.dirname(place)) from error


def open_plain(home: RegisteredDirectory, root: str) -> Repository:
    """Return the repository of a plain directory that is at `root` now; raise `HistoryMissing`."""
    place = home.repository
    if not os.path.isdir(os.path.join(place, "objects")):
        raise HistoryMissing(
            f"the history of '{root}' is missing: '{place}'",
            hint="put the directory back there, or start a new history: git envlog init --new",
        )
    own = _directory_of_fork(place, home.name) if home.fork else place
    return Repository(root, own, place, OBJECT_FORMAT, Git(place, root), plain=True)


def _directory_of_fork(place: str, name: str) -> str:
    """Return the directory of a fork's own state, created if it is missing; `place` exists."""
    own = os.path.join(place, FORKS, name)
    try:
        os.makedirs(own, mode=0o700, exist_ok=True)
    except OSError as error:
        raise cannot_write(error, place) from error
    return own


def _fill(place: str) -> None:
    environment = clean_environment()
    # Regardless of the user's preference for new repositories.
    environment[b"GIT_DEFAULT_REF_FORMAT"] = b"files"
    words = ["init", "--quiet", "--bare", "--template=", f"--object-format={OBJECT_FORMAT}", place]
    done = run_to_end([*COMMAND, *words], environment)
    if done.status != 0:
        raise EnvhistError(f"cannot create a repository: {done.complaint}")
    with open(os.path.join(place, "config"), "w", encoding="ascii") as file:
        file.write(CONFIG)
    for directory, _, names in os.walk(place, topdown=False):
        for name in names:
            _make_private(os.path.join(directory, name), 0o600)
        _make_private(directory, 0o700)


def _make_private(path: str, mode: int) -> None:
    os.chmod(path, mode)
    # git does not sync these files, and the repository needs each of them.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Open the repository of a directory: git's own, or the one of a plain directory; the nearer.
#
# The records are read first, because most users have none. If both are at one directory, git's repository is taken:
# the user ran `git init` there later.

HOMES, HISTORIES, COMPAT = "homes", "histories", "compat"


class DirectoryReplaced(EnvhistError):
    """Another directory is at the path of a registered one."""

    code = "another-directory"

    def __init__(self, home: RegisteredDirectory) -> None:
        super().__init__(
            f"'{home.path}' is not the directory that has a history, but another one at its path",
            hint=f"continue that history: git envlog init --adopt={home.name}\nstart a new one: git envlog init --new",
        )


@dataclass(frozen=True, slots=True)
class OpenedRepository:
    """A repository, and warnings about how it was found."""

    repository: Repository
    remarks: tuple[str, ...] = ()


def own_data(environ: Mapping[str, str]) -> str:
    """Return the directory of our data: histories of plain directories, records, private lists."""
    return os.path.join(data_home(environ), "git-envhist")


def homes_of(environ: Mapping[str, str]) -> DirectoryRegistry:
    """Return the records of the user's plain directories."""
    return DirectoryRegistry(os.path.join(own_data(environ), HOMES))


def history_directories(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories with histories of plain directories and of compat interfaces, and their keys."""
    usual = [os.path.join(own_data(environ), place) for place in (HOMES, HISTORIES, COMPAT)]
    return (*usual, *(home.repository for home in homes_of(environ).all()))


def open_repository(directory: str, environ: Mapping[str, str], *, bare: bool = False) -> OpenedRepository:
    """Return the repository with a directory's history; `bare`: also one without a working tree."""
    variables = in_bytes(environ)
    if "GIT_DIR" in environ:
        return OpenedRepository(Repository.open(directory, variables, bare=bare))
    homes = homes_of(environ)
    found = homes.find(directory)
    try:
        repository = Repository.open(directory, variables, bare=bare)
    except NoRepository:
        if found is None:
            _refuse_replaced(homes, directory)
            _refuse_damaged(homes)
            raise
        return OpenedRepository(open_plain(*found))
    if found is None:
        return OpenedRepository(repository)
    home, root = found
    if is_below(root, repository.root):
        return OpenedRepository(open_plain(home, root))
    return OpenedRepository(repository, _remarks(home, root, repository))


def in_bytes(environ: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return environment variables as bytes."""
    return {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}


def is_below(path: str, top: str) -> bool:
    """Return whether a path is inside a directory, and not that directory itself."""
    return path != top and path.startswith(top.rstrip("/") + "/")


def earlier_history_remark(home: RegisteredDirectory, repository: Repository) -> str:
    """Return the warning for a directory with a history that became a git repository."""
    return (
        f"'{repository.root}' is a git repository now and has its history there; the earlier history is in "
        f"'{home.repository}': git --git-dir='{home.repository}' --work-tree='{repository.root}' envlog"
    )


def _remarks(home: RegisteredDirectory, root: str, repository: Repository) -> tuple[str, ...]:
    # After the first capture into git's repository the warning is not needed any more.
    is_captured = os.path.exists(os.path.join(repository.state, TIMELINE))
    return () if root != repository.root or is_captured else (earlier_history_remark(home, repository),)


def damaged_record(homes: DirectoryRegistry) -> str | None:
    """Return a warning about a record that cannot be read, with the command that writes it again; None if all can."""
    lost = homes.damaged()
    if not lost:
        return None
    path = os.path.join(homes.directory, lost[0])
    return f"'{path}' is damaged; if it was the record of this directory: git envlog init --adopt={lost[0]}"


def _refuse_damaged(homes: DirectoryRegistry) -> None:
    warning = damaged_record(homes)
    if warning is not None:
        raise NoRepository(
            "not a git repository, and no record of a history names this directory", hint=warning
        )


def _refuse_replaced(homes: DirectoryRegistry, directory: str) -> None:
    home = homes.replaced_at(directory)
    if home is not None:
        raise DirectoryReplaced(home)


# Create the history of a plain directory, or adopt one.

LOCK = "lock"


class InitKeywords(TypedDict, total=False):
    """The keywords of `EnvHistory.init`."""

    storage: str
    """The path at which the repository is created."""
    force: bool
    new: bool
    adopt: str | None
    """An existing history, by its name, its repository or its directory's old path."""
    environ: Mapping[str, str]


def init_history(directory: str, environ: Mapping[str, str], keywords: InitKeywords) -> OpenedRepository:
    """Return the repository with a directory's history, created if there is none."""
    root = os.path.realpath(directory)
    if not os.path.isdir(root):
        raise EnvhistError(f"no such directory: '{directory}'", hint=f"create it: mkdir '{directory}'")
    if keywords.get("new") and keywords.get("adopt") is not None:
        raise UsageError("either --new or --adopt", hint="git envlog init -h")
    opened = _covered_by_git(root, environ)
    if opened is not None:
        return opened
    with _records(environ) as homes:
        return _begin(homes, root, environ, keywords)


def _covered_by_git(root: str, environ: Mapping[str, str]) -> OpenedRepository | None:
    """Return the repository if a directory is in git's and has no nearer history; None otherwise."""
    try:
        repository = Repository.open(root, in_bytes(environ))
    except NoRepository:
        return None
    found = homes_of(environ).find(root)
    if found is None or not (found[1] == root or is_below(found[1], repository.root)):
        return OpenedRepository(repository)
    if is_below(found[1], repository.root):
        return OpenedRepository(open_plain(*found))
    return OpenedRepository(repository, (earlier_history_remark(found[0], repository),))


@contextmanager
def _records(environ: Mapping[str, str]) -> Iterator[DirectoryRegistry]:
    """Yield the records, with private modes and locked against other writers."""
    homes = homes_of(environ)
    refuse_others_directory(homes.directory)
    place = state_directory(homes.directory)
    try:
        for directory in (own_data(environ), place):
            os.chmod(directory, 0o700)
    except OSError as error:
        raise cannot_write(error, place) from error
    with locked(os.path.join(own_data(environ), LOCK)):
        yield homes


def _begin(
    homes: DirectoryRegistry, root: str, environ: Mapping[str, str], keywords: InitKeywords
) -> OpenedRepository:
    own = _own(homes, root, keywords)
    if own is not None and not keywords.get("new") and keywords.get("adopt") is None:
        _refuse_elsewhere(own, keywords.get("storage"))
        return OpenedRepository(open_plain(own, root))
    if not keywords.get("force"):
        refuse_home(root, environ)
    if keywords.get("adopt") is not None:
        adopted = _adopt_history(homes, root, keywords)
        _release_record(homes, root, own, adopted)
        return OpenedRepository(open_plain(adopted, root))
    if not keywords.get("new"):
        _refuse_registered_path(homes, root)
    made = _create(homes, root, own_data(environ), keywords)
    _release_record(homes, root, own, made)
    return OpenedRepository(open_plain(made, root), tuple(_warnings(homes, root)))


def _own(homes: DirectoryRegistry, root: str, keywords: InitKeywords) -> RegisteredDirectory | None:
    try:
        found = homes.find(root)
    except DuplicateDirectory:
        if keywords.get("new") or keywords.get("adopt") is not None:
            return None
        raise
    return found[0] if found is not None and found[1] == root else None


def _refuse_elsewhere(own: RegisteredDirectory, storage: str | None) -> None:
    if storage is not None and os.path.realpath(storage) != own.repository:
        raise Refused(
            f"the history of '{own.path}' is in '{own.repository}'",
            hint="move it yourself, or start a new one: --new",
        )


def _refuse_registered_path(homes: DirectoryRegistry, root: str) -> None:
    there = [home for home in homes.all() if home.path == root and home.identity is not None]
    if there:
        refusal = DirectoryReplaced(there[0])
        raise Refused(refusal.message, hint=refusal.hint)


def _adopt_history(homes: DirectoryRegistry, root: str, keywords: InitKeywords) -> RegisteredDirectory:
    words = keywords.get("adopt") or ""
    places = {words, os.path.realpath(words)}
    found = [h for h in homes.all() if h.name == words or places & {h.path, h.repository}]
    if not found:
        found = _without_record(homes, root, words)
    if len(found) != 1:
        names = ", ".join(home.name for home in found or homes.all())
        what = "more than one history" if found else "no history"
        raise EnvhistError(f"{what} matches '{words}'", hint=f"one of: {names}" if names else None)
    home = found[0]
    there = identify(home.path)
    if (
        there is not None
        and is_directory_of(home, home.path, there)
        and home.path != root
        and not keywords.get("force")
    ):
        raise Refused(f"'{home.path}' uses this history", hint="--force takes it from there")
    adopted = replace(home, path=root, identity=identify(root))
    homes.write(adopted)
    return adopted


def _without_record(homes: DirectoryRegistry, root: str, name: str) -> list[RegisteredDirectory]:
    """Return the history of a damaged record if its repository is at the usual path."""
    place = os.path.join(os.path.dirname(homes.directory), HISTORIES, f"{name}.git")
    exists = name in homes.damaged() and os.path.isdir(os.path.join(place, "objects"))
    return [RegisteredDirectory(name, root, place, identify(root))] if exists else []


def _create(homes: DirectoryRegistry, root: str, data: str, keywords: InitKeywords) -> RegisteredDirectory:
    name = f"{slug(os.path.basename(root))}-{os.urandom(3).hex()}"
    place = os.path.join(data, HISTORIES, f"{name}.git")
    if "storage" in keywords:
        place = os.path.realpath(keywords["storage"])
        with suppress(OSError):
            os.rmdir(place)  # the user may have created an empty directory for it
        if os.path.lexists(place):
            raise Refused(f"path exists: '{place}'", hint="name a directory that does not exist")
    make_repository(place)
    home = RegisteredDirectory(name, root, place, identify(root))
    homes.write(home)
    return home


def unregister_directory(repository: Repository, environ: Mapping[str, str]) -> None:
    """Delete the history of a plain directory and of the forks in its repository, with their records."""
    import shutil  # loaded late: hardly ever needed

    with _records(environ) as homes:
        for home in homes.all():
            if os.path.realpath(home.repository) == os.path.realpath(repository.common_dir):
                homes.forget(home)
    # No record names the repository any more.
    shutil.rmtree(repository.common_dir, ignore_errors=True)


def _release_record(
    homes: DirectoryRegistry, root: str, own: RegisteredDirectory | None, kept: RegisteredDirectory
) -> None:
    """Remove the identity from other records of this directory or its path."""
    for home in homes.all():
        is_of_directory = home.path == root or (own is not None and home.name == own.name)
        if is_of_directory and home.name != kept.name and home.identity is not None:
            homes.write(replace(home, identity=None))


def _warnings(homes: DirectoryRegistry, root: str) -> Iterator[str]:
    warning = damaged_record(homes)
    if warning is not None:
        yield warning
    outer = homes.find(os.path.dirname(root))
    if outer is not None:
        yield f"'{outer[1]}' has a history too, which includes this directory"
    for home in homes.all():
        if os.path.basename(home.path) == os.path.basename(root) and not os.path.exists(home.path):
            yield (
                f"'{home.path}' does not exist any more and has a history; if this is the same directory: "
                f"git envlog init --adopt={home.name}"
            )
