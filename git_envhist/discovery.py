"""Begins the history of a plain directory, or goes on with one; where git has a repository there is nothing to do."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypedDict

from git_envhist.config import data_home
from git_envhist.disk import (
    Durability,
    cannot_write,
    locked,
    remove_if_present,
    replace_file,
    state_directory,
    sync_directory,
)
from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.git.process import COMMAND, Git, clean_environment, spawn
from git_envhist.git.repository import FORKS, NoRepository, Repository
from git_envhist.lazy import dataclass, replace
from git_envhist.platform import DIRECTORY, open_file_only
from git_envhist.snapshots.quoting import quote, unquote
from git_envhist.snapshots.timelines import FILE as TIMELINE
from git_envhist.snapshots.timelines import slug


def refuse_home(root: str, environ: Mapping[str, str]) -> None:
    """A whole home directory, or a whole machine, is hardly ever meant."""
    real = os.path.realpath(root)
    for place, what in ((environ.get("HOME") or "", "your home directory"), ("/", "the whole machine")):
        if place and real == os.path.realpath(place):
            raise Refused(
                f"the environment would be {what}: '{root}'", hint="--force, if that is what you want"
            )


# What makes a directory itself, whatever it is called: its inode, and a mark that no later bearer of the inode has.
#
# An inode number alone is given to the next directory as soon as the first is removed (on ext4 at once). The mark is
# the generation of the inode, or where the file system does not tell that, the time of its birth; either stays through
# any rename. Neither needs anything written into the directory.

GET_GENERATION = 0x80087601 if struct.calcsize("l") == 8 else 0x80047601
GENERATION, BIRTH = "generation", "born"

STATX_BTIME = 0x800
HERE = -100
STATX_SIZE = 256
MASK = struct.Struct("=I")
TIME = struct.Struct("=qI")
TIME_OF_BIRTH = 80


class DirectoryId(NamedTuple):
    """One directory."""

    inode: int
    device: int
    mark: str
    """A kind and a number; empty where the file system tells neither."""


def identify(path: str) -> DirectoryId | None:
    """Which directory stands at a path; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return DirectoryId(found.st_ino, found.st_dev, _generation(path) or _birth(path, found) or "")


def is_same(one: DirectoryId, other: DirectoryId) -> bool:
    """Whether both are surely one directory. The device may have another number since the machine was started."""
    return one.inode == other.inode and one.mark == other.mark != ""


def is_successor(one: DirectoryId, other: DirectoryId) -> bool:
    """Of two that stood at one path: whether the inode was given to another directory after the first was removed."""
    # In a container a directory gets another time of birth when it is first written to: that proves nothing.
    both = (one.mark, other.mark)
    return one.inode != other.inode or (
        one.mark != other.mark and all(mark.startswith(GENERATION) for mark in both)
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
    told = getattr(found, "st_birthtime_ns", None) or getattr(found, "st_birthtime", None)
    if told:
        return f"{BIRTH}-{told}"
    return _statx(path)


def _statx(path: str) -> str | None:
    import ctypes  # loaded late: only where a file system tells of no generations

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


# Which history belongs to which directory without git: one small record a history, beside all histories.
#
# Nothing is put into the directory itself. A record says where the directory was last and what makes it itself
# (`sameness`), so that it is found again after it was moved, and taken for no other that stands at its old place.
#
# envhist-home 1
# path /home/me/notes
# repository /home/me/.local/share/git-envhist/histories/notes-3fa2c1.git
# inode 2526124
# device 65024
# mark generation-920059277
#
# A record without an inode is of a history that nobody goes on with; it can be taken up again. One with the line
# `fork yes` is of a fork: it has a timeline of its own in a repository that another directory's history is kept in.

FIRST_LINE = b"envhist-home 1"
MAX_SIZE = 1 << 16


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
        path = os.path.join(self.directory, home.name)
        replace_file(path, _spell(home), durability=Durability.FULL, unique=True)

    def forget(self, home: RegisteredDirectory) -> None:
        """Take a record away."""
        remove_if_present(os.path.join(self.directory, home.name))
        sync_directory(self.directory)

    def _read(self, name: str) -> RegisteredDirectory | None:
        try:
            with open(os.path.join(self.directory, name), "rb", opener=open_file_only) as file:
                return _parse(name, file.read(MAX_SIZE))
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


# Repositories for directories without git: bare, private, made by us, with nothing of the user's templates.

OBJECT_FORMAT = "sha1"
# Nothing of it is written by `git config`: whatever that would lock or ask for is settled before it could matter.
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
    """The repository of a plain directory's history is not where it was made."""

    code = "history-away"


def make_repository(place: str) -> None:
    """An empty repository at a place where nothing is yet; it is there whole or not at all."""
    new = f"{place}.new-{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        os.mkdir(new, 0o700)
        try:
            _fill(new)
            os.rename(new, place)
        except BaseException:
            import shutil  # loaded late: every program passes through this module

            shutil.rmtree(new, ignore_errors=True)
            raise
        sync_directory(os.path.dirname(place))
    except OSError as error:
        raise cannot_write(error, os.path.dirname(place)) from error


def open_plain(home: RegisteredDirectory, root: str) -> Repository:
    """The repository of a plain directory, which is at `root` now."""
    place = home.repository
    if not os.path.isdir(os.path.join(place, "objects")):
        raise HistoryMissing(
            f"the history of '{root}' is not where it was kept: '{place}'",
            hint="bring it back there, or begin another: git envlog init --new",
        )
    own = _directory_of_fork(place, home.name) if home.fork else place
    return Repository(root, own, place, OBJECT_FORMAT, Git(place, root), plain=True)


def _directory_of_fork(place: str, name: str) -> str:
    """Return the directory of one fork's own state, made if it is missing; `place` exists."""
    own = os.path.join(place, FORKS, name)
    try:
        os.makedirs(own, mode=0o700, exist_ok=True)
    except OSError as error:
        raise cannot_write(error, place) from error
    return own


def _fill(place: str) -> None:
    environment = clean_environment()
    # Whatever the user prefers for repositories of their own.
    environment[b"GIT_DEFAULT_REF_FORMAT"] = b"files"
    words = ["init", "--quiet", "--bare", "--template=", f"--object-format={OBJECT_FORMAT}", place]
    done = spawn([*COMMAND, *words], environment)
    if done.status != 0:
        raise EnvhistError(f"no repository could be made: {done.complaint}")
    with open(os.path.join(place, "config"), "w", encoding="ascii") as file:
        file.write(CONFIG)
    for directory, _, names in os.walk(place, topdown=False):
        for name in names:
            _make_private(os.path.join(directory, name), 0o600)
        _make_private(directory, 0o700)


def _make_private(path: str, mode: int) -> None:
    os.chmod(path, mode)
    # git syncs none of these, and without any one of them it is no repository.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Which history is meant by a directory: that of its git repository, or one kept for a plain directory; the nearer.
#
# A repository of git's is found by git. A plain directory is found by the records of `store/homes.py`, which are looked
# at first, because there are hardly ever any. Where both begin at one directory, git's is the one: somebody said
# `git init` there later.

HOMES, HISTORIES, COMPAT = "homes", "histories", "compat"


class DirectoryReplaced(EnvhistError):
    """Another directory stands where the one was whose history is kept."""

    code = "another-directory"

    def __init__(self, home: RegisteredDirectory) -> None:
        super().__init__(
            f"'{home.path}' is not the directory whose history was kept, but another one at its place",
            hint=f"go on with that history: git envlog init --adopt={home.name}\nbegin another: git envlog init --new",
        )


@dataclass(frozen=True, slots=True)
class OpenedRepository:
    """A repository, and what is to be said about how it was found."""

    repository: Repository
    remarks: tuple[str, ...] = ()


def own_data(environ: Mapping[str, str]) -> str:
    """Where the histories of plain directories are, with all that belongs to them."""
    return os.path.join(data_home(environ), "git-envhist")


def homes_of(environ: Mapping[str, str]) -> DirectoryRegistry:
    """The records of the user's plain directories."""
    return DirectoryRegistry(os.path.join(own_data(environ), HOMES))


def history_directories(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where the histories of plain directories are, those of other libraries' interfaces too, with the keys of each."""
    usual = [os.path.join(own_data(environ), place) for place in (HOMES, HISTORIES, COMPAT)]
    return (*usual, *(home.repository for home in homes_of(environ).all()))


def open_repository(directory: str, environ: Mapping[str, str], *, bare: bool = False) -> OpenedRepository:
    """Return the repository with a directory's history; `bare`: also one without a working tree."""
    told = in_bytes(environ)
    if "GIT_DIR" in environ:
        return OpenedRepository(Repository.open(directory, told, bare=bare))
    homes = homes_of(environ)
    found = homes.find(directory)
    try:
        repository = Repository.open(directory, told, bare=bare)
    except NoRepository:
        if found is None:
            _refuse_another(homes, directory)
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
    """Variables as a process is given them."""
    return {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}


def is_below(path: str, top: str) -> bool:
    """Whether a path is inside a directory and not that directory itself."""
    return path != top and path.startswith(top.rstrip("/") + "/")


def earlier_history_remark(home: RegisteredDirectory, repository: Repository) -> str:
    """What is to be said where a directory that had a history became a git repository."""
    return (
        f"'{repository.root}' is a git repository now, and its history is kept there; the earlier one stays in "
        f"'{home.repository}': git --git-dir='{home.repository}' --work-tree='{repository.root}' envlog"
    )


def _remarks(home: RegisteredDirectory, root: str, repository: Repository) -> tuple[str, ...]:
    # Once something was captured into git's, nobody needs to be told again.
    told = root != repository.root or os.path.exists(os.path.join(repository.state, TIMELINE))
    return () if told else (earlier_history_remark(home, repository),)


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


def _refuse_another(homes: DirectoryRegistry, directory: str) -> None:
    home = homes.stood_here(directory)
    if home is not None:
        raise DirectoryReplaced(home)


LOCK = "lock"


class InitKeywords(TypedDict, total=False):
    """How a history for a plain directory is to begin."""

    storage: str
    """Where its repository is to be made."""
    force: bool
    anew: bool
    adopt: str | None
    """The name of a history, its repository, or where its directory was."""
    environ: Mapping[str, str]


def init_history(directory: str, environ: Mapping[str, str], wish: InitKeywords) -> OpenedRepository:
    """The repository of a directory's history, made where there is none yet."""
    root = os.path.realpath(directory)
    if not os.path.isdir(root):
        raise EnvhistError(f"there is no such directory: '{directory}'", hint=f"mkdir '{directory}' makes it")
    if wish.get("anew") and wish.get("adopt") is not None:
        raise UsageError("either --new or --adopt", hint="git envlog init -h")
    opened = _covered_by_git(root, environ)
    if opened is not None:
        return opened
    with _records(environ) as homes:
        return _begin(homes, root, environ, wish)


def _covered_by_git(root: str, environ: Mapping[str, str]) -> OpenedRepository | None:
    """git's repository, where a directory is in one and has no nearer history of its own."""
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
    """The records, private and with nobody else writing any."""
    homes = homes_of(environ)
    place = state_directory(homes.directory)
    try:
        for directory in (own_data(environ), place):
            os.chmod(directory, 0o700)
    except OSError as error:
        raise cannot_write(error, place) from error
    with locked(os.path.join(own_data(environ), LOCK)):
        yield homes


def _begin(
    homes: DirectoryRegistry, root: str, environ: Mapping[str, str], wish: InitKeywords
) -> OpenedRepository:
    own = _own(homes, root, wish)
    if own is not None and not wish.get("anew") and wish.get("adopt") is None:
        _refuse_elsewhere(own, wish.get("storage"))
        return OpenedRepository(open_plain(own, root))
    if not wish.get("force"):
        refuse_home(root, environ)
    if wish.get("adopt") is not None:
        taken_up = _adopt_history(homes, root, wish)
        _release_record(homes, root, own, taken_up)
        return OpenedRepository(open_plain(taken_up, root))
    if not wish.get("anew"):
        _refuse_anothers_place(homes, root)
    made = _make(homes, root, own_data(environ), wish)
    _release_record(homes, root, own, made)
    return OpenedRepository(open_plain(made, root), tuple(_beside(homes, root)))


def _own(homes: DirectoryRegistry, root: str, wish: InitKeywords) -> RegisteredDirectory | None:
    try:
        found = homes.find(root)
    except DuplicateDirectory:
        if wish.get("anew") or wish.get("adopt") is not None:
            return None
        raise
    return found[0] if found is not None and found[1] == root else None


def _refuse_elsewhere(own: RegisteredDirectory, storage: str | None) -> None:
    if storage is not None and os.path.realpath(storage) != own.repository:
        raise Refused(
            f"the history of '{own.path}' is kept in '{own.repository}'",
            hint="a history is moved by nobody but you; to begin another: --new",
        )


def _refuse_anothers_place(homes: DirectoryRegistry, root: str) -> None:
    there = [home for home in homes.all() if home.path == root and home.identity is not None]
    if there:
        refusal = DirectoryReplaced(there[0])
        raise Refused(refusal.message, hint=refusal.hint)


def _adopt_history(homes: DirectoryRegistry, root: str, wish: InitKeywords) -> RegisteredDirectory:
    words = wish.get("adopt") or ""
    places = {words, os.path.realpath(words)}
    found = [h for h in homes.all() if h.name == words or places & {h.path, h.repository}]
    if not found:
        found = _without_record(homes, root, words)
    if len(found) != 1:
        told = ", ".join(home.name for home in found or homes.all())
        what = "more than one history is" if found else "no history is"
        raise EnvhistError(f"{what} meant by '{words}'", hint=f"one of: {told}" if told else None)
    home = found[0]
    there = identify(home.path)
    if there is not None and is_meant(home, home.path, there) and home.path != root and not wish.get("force"):
        raise Refused(
            f"'{home.path}' goes on with this history", hint="--force takes the history away from there"
        )
    taken_up = replace(home, path=root, identity=identify(root))
    homes.write(taken_up)
    return taken_up


def _without_record(homes: DirectoryRegistry, root: str, name: str) -> list[RegisteredDirectory]:
    """Return the history of a name if its record is damaged and its repository is where it is usually made."""
    place = os.path.join(os.path.dirname(homes.directory), HISTORIES, f"{name}.git")
    exists = name in homes.damaged() and os.path.isdir(os.path.join(place, "objects"))
    return [RegisteredDirectory(name, root, place, identify(root))] if exists else []


def _make(homes: DirectoryRegistry, root: str, data: str, wish: InitKeywords) -> RegisteredDirectory:
    name = f"{slug(os.path.basename(root))}-{os.urandom(3).hex()}"
    place = os.path.join(data, HISTORIES, f"{name}.git")
    if "storage" in wish:
        place = os.path.realpath(wish["storage"])
        with suppress(OSError):
            os.rmdir(place)  # an empty directory was meant to be filled
        if os.path.lexists(place):
            raise Refused(
                f"something is there already: '{place}'", hint="name a directory that is not there yet"
            )
    make_repository(place)
    home = RegisteredDirectory(name, root, place, identify(root))
    homes.write(home)
    return home


def unregister_directory(repository: Repository, environ: Mapping[str, str]) -> None:
    """Have a plain directory, and the forks that share its repository, be as if they never had a history."""
    import shutil  # loaded late: hardly ever asked for

    with _records(environ) as homes:
        for home in homes.all():
            if os.path.realpath(home.repository) == os.path.realpath(repository.common_dir):
                homes.forget(home)
    # Nothing leads there any more, and what it held has gone before.
    shutil.rmtree(repository.common_dir, ignore_errors=True)


def _release_record(
    homes: DirectoryRegistry, root: str, own: RegisteredDirectory | None, kept: RegisteredDirectory
) -> None:
    """No other record claims this directory, or its place, from now on."""
    for home in homes.all():
        mine = home.path == root or (own is not None and home.name == own.name)
        if mine and home.name != kept.name and home.identity is not None:
            homes.write(replace(home, identity=None))


def _beside(homes: DirectoryRegistry, root: str) -> Iterator[str]:
    warning = damaged_record(homes)
    if warning is not None:
        yield warning
    outer = homes.find(os.path.dirname(root))
    if outer is not None:
        yield f"'{outer[1]}' has a history too, and it holds this directory as before"
    for home in homes.all():
        if os.path.basename(home.path) == os.path.basename(root) and not os.path.exists(home.path):
            yield (
                f"'{home.path}', which is gone, has a history; if this is the same directory: "
                f"git envlog init --adopt={home.name}"
            )
