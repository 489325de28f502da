"""Refs: their files, their locks, and the git processes that may hold such a lock.

`gits_at_work` lists from /proc the git processes that can be working in a repository (None if the system has no
/proc). A git that finds its repository by itself runs inside one of its working trees or its git directory; another
one names it in its arguments (`--git-dir`, `git clone <path>`) or its environment. Directories are compared by device
and inode, because links and mounts give one directory several names. The directory of another user's process is
hidden; `other_users` decides whether it can have the repository open.

`remove_stale_lock` removes the lock of a git that was killed. Also here: loose refs, and the git directories of
submodules.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from git_envhist.lazy import dataclass, pattern
from git_envhist.platform import PROCESSES, START_TIME, SYSTEM, open_file_only, parent_process

if TYPE_CHECKING:
    from git_envhist.git.process_access import Access

TAKES_A_VALUE = frozenset(
    (b"-C", b"-c", b"--git-dir", b"--work-tree", b"--namespace", b"--super-prefix", b"--config-env")
)
LEADS = (b"GIT_DIR", b"GIT_COMMON_DIR", b"GIT_WORK_TREE", b"GIT_OBJECT_DIRECTORY")
OUR_OWN = b"git-env"
"""Our own programs change a repository only through git."""
MAX_DEPTH = 200
LOOKS, BETWEEN_LOOKS = 3, 0.002

Identity = tuple[int, int]
"""The device and the inode of a directory."""


@dataclass(frozen=True, slots=True)
class RunningGit:
    """A running git process."""

    pid: int
    started: float
    command: str
    """`gc`, `update-ref`; empty if it cannot be read."""
    uid: int = -1
    directory: str | None = None
    """Its working directory; None if the system hides it, and then its repository is unknown."""
    writes: bool = True
    """True if it can write in the repository."""

    def __str__(self) -> str:
        where = f"in '{self.directory}'" if self.directory is not None else "directory not readable"
        return f"git {self.command or '(unknown)'} (pid {self.pid}, user {_user_name(self.uid)}, {where})"


def gits_at_work(
    common_dir: str, roots: Iterable[str], processes: str = PROCESSES
) -> list[RunningGit] | None:
    """Return every git that may be working in a repository with these working trees, our own included."""
    if not SYSTEM.proc:
        return None
    try:
        boot_time = _boot_time(processes)
        running = [name for name in os.listdir(processes) if name.isdigit()]
    except (OSError, ValueError):
        return None
    gits = [
        (name, at) for name in running if (at := _start_of_git(f"{processes}/{name}", boot_time)) is not None
    ]
    if not gits:
        return []
    places = _identities((common_dir, *roots, *_linked(common_dir)))
    common_dir = os.path.realpath(common_dir)
    found = (_examine(name, at, places, common_dir, processes) for name, at in gits)
    return [git for git in found if git is not None]


def ancestor_processes() -> frozenset[int]:
    """Return the ancestors of this process."""
    found: set[int] = set()
    pid = os.getppid()
    while pid > 1 and pid not in found:
        found.add(pid)
        pid = parent_process(pid)
    return frozenset(found)


def is_hidden(git: RunningGit) -> bool:
    """Return whether the system hides in which repository a git works."""
    return git.directory is None


def describe_gits(gits: Iterable[RunningGit]) -> str:
    """Return a list of gits for an error."""
    return ", ".join(map(str, sorted(gits, key=lambda git: git.pid))) or "another git"


def hint_after(gits: Iterable[RunningGit]) -> str:
    """Return the hint of an error that names these gits."""
    again = "run the command again when it has ended"
    if any(map(is_hidden, gits)):
        return f"{again}; with --force if it works in another repository"
    return again


def _user_name(uid: int) -> str:
    import pwd  # loaded late: needed in errors only

    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def _boot_time(processes: str) -> float:
    with open(f"{processes}/stat", "rb") as file:
        for line in file:
            if line.startswith(b"btime "):
                return float(line.split()[1])
    raise ValueError("no boot time")


def _start_of_git(process: str, boot_time: float) -> float | None:
    try:
        with open(f"{process}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None  # it ended meanwhile
    name = text[text.index(b"(") + 1 : text.rindex(b")")]
    if name != b"git" and (not name.startswith(b"git-") or name.startswith(OUR_OWN)):
        return None
    rest = text[text.rindex(b")") + 2 :].split()
    if rest[0] in b"ZX":
        return None  # dead, but not yet reaped
    return boot_time + int(rest[START_TIME]) / os.sysconf("SC_CLK_TCK")


def _linked(common_dir: str) -> list[str]:
    """Return the tops of the linked working trees."""
    tops = []
    place = os.path.join(common_dir, "worktrees")
    for name in os.listdir(place) if os.path.isdir(place) else ():
        try:
            with open(
                os.path.join(place, name, "gitdir"), encoding="utf-8", errors="surrogateescape"
            ) as file:
                tops.append(os.path.dirname(os.path.join(place, name, file.read().rstrip("\n"))))
        except OSError:
            continue  # one that is being made, or removed
    return tops


def _identities(paths: Iterable[str]) -> frozenset[Identity]:
    return frozenset(found for path in paths if (found := _identity(path)) is not None)


def _identity(path: str | bytes) -> Identity | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def _examine(
    name: str, started: float, places: frozenset[Identity], common_dir: str, processes: str
) -> RunningGit | None:
    """Return a git if it can be working in one of the places."""
    from git_envhist.git.process_access import (
        Access,  # loaded late: few repositories are in use by another git
    )

    process = f"{processes}/{name}"
    try:
        directory, paths = _look_at(process)
    except PermissionError:
        directory, access = None, _access_of_hidden(process, places, common_dir, processes)
        if not access.reads:
            return None
    except OSError:
        return None  # it ended
    else:
        access = Access(reads=True, writes=True)
        if not any(_finds(path, places, common_dir) for path in paths):
            return None
    return RunningGit(int(name), started, _command(process), _owner(process), directory, access.writes)


def _look_at(process: str) -> tuple[str, list[bytes]]:
    """Return the directory of a process, and all paths by which it can have found its repository."""
    from git_envhist.git.process_access import (
        runs_no_code,  # loaded late: few repositories are in use by another git
    )

    for attempt in range(LOOKS):
        try:
            directory = os.readlink(f"{process}/cwd")
            named = [*_named_paths(process), *_leading_paths(process)]
            break
        except PermissionError:
            # The kernel hides a process that is just ending from its own user, too.
            if attempt + 1 == LOOKS or not runs_no_code(process):
                raise
            time.sleep(BETWEEN_LOOKS)
    # The link itself leads there, even if the path means another directory to us.
    start = os.fsencode(f"{process}/cwd")
    return directory, [start, *(os.path.join(os.fsencode(directory), path) for path in named)]


def _access_of_hidden(process: str, places: frozenset[Identity], common_dir: str, processes: str) -> Access:
    from git_envhist.git.process_access import (  # loaded late: few repositories are in use by another git
        NO_ACCESS,
        access_of,
        runs_no_code,
    )

    if runs_no_code(process):
        return NO_ACCESS
    # `git -C /srv/other fetch` works there, wherever it was started.
    directories = [path for path in _chosen_directories(process) if os.path.isabs(path)]
    if directories and not any(_finds(path, places, common_dir) for path in directories):
        return NO_ACCESS
    return access_of(process, common_dir, processes)


def _chosen_directories(process: str) -> list[bytes]:
    """Return the directories that the options of a git name for its repository."""
    try:
        words = _strings(f"{process}/cmdline")
    except OSError:
        return []
    options = words[1 : 1 + _options_of(words)]
    after = [value for option, value in pairwise(options) if option in (b"-C", b"--git-dir")]
    return after + [word.partition(b"=")[2] for word in options if word.startswith(b"--git-dir=")]


def _owner(process: str) -> int:
    try:
        return os.stat(process).st_uid
    except OSError:
        return -1


def _finds(path: bytes, places: frozenset[Identity], common_dir: str) -> bool:
    """Return whether git, started in a directory, works in one of the places."""
    for above in _upwards(path):
        own = os.path.join(above, b".git")
        if _identity(above) in places or _identity(own) in places or _leads_to(own, common_dir):
            return True
        if os.path.isfile(os.path.join(own, b"HEAD")):
            return False  # another repository, possibly inside ours
    return False


def _upwards(path: bytes) -> Iterator[bytes]:
    here, last = path if os.path.isdir(path) else os.path.dirname(path), None
    for _ in range(MAX_DEPTH):
        seen = _identity(here)
        if seen is None or seen == last:
            return
        yield here
        here, last = os.path.join(here, b".."), seen


def _leads_to(git_file: bytes, common_dir: str) -> bool:
    """Return whether a `.git` file points into this repository, as that of a moved working tree does."""
    if not os.path.isfile(git_file):
        return False
    try:
        with open(git_file, "rb", opener=open_file_only) as file:
            _, _, place = file.read(4096).partition(b"gitdir: ")
    except OSError:
        return True
    target = os.path.realpath(os.path.join(os.path.dirname(git_file), place.rstrip(b"\n")))
    return target.startswith(os.fsencode(common_dir) + b"/")


def _named_paths(process: str) -> list[bytes]:
    """Return the arguments of a process that may be paths."""
    words = _strings(f"{process}/cmdline")[1:]
    named = [word.partition(b"=")[2] if word.startswith(b"--") else word for word in words]
    return [word for word in named if word]


def _leading_paths(process: str) -> list[bytes]:
    """Return the paths of repositories that environment variables name to the git of a process."""
    pairs = (pair.partition(b"=") for pair in _strings(f"{process}/environ"))
    return [value for name, _, value in pairs if name in LEADS and value]


def _strings(path: str) -> list[bytes]:
    with open(path, "rb", opener=open_file_only) as file:
        return file.read().split(b"\0")[:-1]


def _command(process: str) -> str:
    """Return the git command that a process runs."""
    try:
        words = _strings(f"{process}/cmdline")
    except OSError:
        return ""
    program = os.path.basename(words[0]) if words else b""
    if program.startswith(b"git-"):
        return os.fsdecode(program.removeprefix(b"git-"))
    return os.fsdecode(b"".join(words[1 + _options_of(words) :][:1]))


def _options_of(words: Sequence[bytes]) -> int:
    """Return the number of arguments before the command."""
    rest = iter(words[1:])
    number = 0
    for word in rest:
        if not word.startswith(b"-"):
            break
        number += 1
        if word in TAKES_A_VALUE and next(rest, None) is not None:
            number += 1
    return number


# A loose ref, read without git, a hundred times as fast.

HASH_BYTES = pattern(rb"([0-9a-f]{40}|[0-9a-f]{64})\n")


# Git directories of submodules, in `modules` of the working tree's own git directory.

GITDIR = b"gitdir: "
MAX_LENGTH = 1 << 13


# Lock files of refs. A git that is killed leaves its lock for ever, and every later capture would fail. The file does
# not name its creator, and git closes it before renaming, so no process has it open. A lock is removed only if it is
# on a ref of ours, we hold the working tree's lock (no other capture moves the ref), the lock is old (git needs
# milliseconds), and no git that may have created it is running. If processes cannot be listed, it is not removed, and
# the user gets an error.

STALE_AFTER = 5.0
"""Seconds, enough for a git that is not visible (in another container, on another machine) to move its ref."""
LONG_AGO = 3600.0
"""Seconds, for locks that no command waits for."""
WAIT = (
    *("-c", "core.filesRefLockTimeout=2000"),
    *("-c", "core.packedRefsTimeout=5000"),
    *("-c", "reftable.lockTimeout=2000"),
)
"""Timeouts of git for another git's locks.

Packing refs locks each ref briefly; with reftable, moving one ref locks all of them.
"""
TABLES_LOCK = "reftable/tables.list.lock"
"""It locks the user's refs as well as ours, so only the user may remove it after a git was killed."""

AtWork = Callable[[], Sequence[RunningGit] | None]
