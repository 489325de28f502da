"""Which gits are at work in a repository at this moment, as the system tells it; None where it does not tell.

A git that finds its repository by itself has its directory inside it, in one of its working trees or in the git
directory; one that is led there has it among its words (`--git-dir`, `git clone <place>`) or in its environment. What
we may not look at (another user's process) counts as being at work here. Directories are compared by device and inode,
so that links and other mounts of the same place do not mislead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

from git_envhist.system import SYSTEM, open_file_only
from git_envhist.values import dataclass

PROCESSES = "/proc"
START_TIME = 19
"""The field of /proc/<pid>/stat after the command's name that says when the process began, in ticks since the boot."""
TAKES_A_VALUE = frozenset(
    ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env")
)
LEADS = (b"GIT_DIR", b"GIT_COMMON_DIR", b"GIT_WORK_TREE", b"GIT_OBJECT_DIRECTORY")
OUR_OWN = b"git-env"
"""Our programs do nothing to a repository but through a git."""
DEEPEST = 200
LOOKS, BETWEEN_LOOKS = 3, 0.002

Identity = tuple[int, int]
"""The device and the inode of a directory."""


@dataclass(frozen=True, slots=True)
class RunningGit:
    """One git process."""

    pid: int
    started: float
    command: str
    """`gc`, `update-ref`; empty where it is not told."""


def gits_at_work(
    common_dir: str, roots: Iterable[str], processes: str = PROCESSES
) -> list[RunningGit] | None:
    """Every git that may be working in a repository, given its working trees' tops; ours are among them."""
    if not SYSTEM.proc:
        return None
    try:
        booted = _boot_time(processes)
        running = [name for name in os.listdir(processes) if name.isdigit()]
    except (OSError, ValueError):
        return None
    gits = [
        (name, at) for name in running if (at := _start_of_git(f"{processes}/{name}", booted)) is not None
    ]
    if not gits:
        return []
    places = _identities((common_dir, *roots, *_linked(common_dir)))
    return [
        RunningGit(int(name), at, _command(f"{processes}/{name}"))
        for name, at in gits
        if _may_work_in(f"{processes}/{name}", places, os.path.realpath(common_dir))
    ]


def callers() -> frozenset[int]:
    """The processes that this one was started by, directly or not."""
    found: set[int] = set()
    pid = os.getppid()
    while pid > 1 and pid not in found:
        found.add(pid)
        pid = _parent(pid)
    return frozenset(found)


def _parent(pid: int) -> int:
    try:
        with open(f"{PROCESSES}/{pid}/stat", "rb") as file:
            # The name stands in parentheses and may hold anything.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _boot_time(processes: str) -> float:
    with open(f"{processes}/stat", "rb") as file:
        for line in file:
            if line.startswith(b"btime "):
                return float(line.split()[1])
    raise ValueError("no boot time")


def _start_of_git(process: str, booted: float) -> float | None:
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
        return None  # dead, and only not yet asked for
    return booted + int(rest[START_TIME]) / os.sysconf("SC_CLK_TCK")


def _linked(common_dir: str) -> list[str]:
    """The tops of the linked working trees."""
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


def _may_work_in(process: str, places: frozenset[Identity], common_dir: str) -> bool:
    for attempt in range(LOOKS):
        try:
            directory = os.fsencode(os.readlink(f"{process}/cwd"))
            led_to = [*_named(process), *_led(process)]
            break
        except PermissionError:
            # Nobody may look at one that is just ending, either.
            if attempt + 1 == LOOKS:
                return True
            time.sleep(BETWEEN_LOOKS)
        except OSError:
            return False  # it ended meanwhile
    # The link itself leads there even where the path means something else to us.
    start = os.fsencode(f"{process}/cwd")
    return any(
        _finds(path, places, common_dir) for path in (start, *(os.path.join(directory, p) for p in led_to))
    )


def _finds(path: bytes, places: frozenset[Identity], common_dir: str) -> bool:
    """Whether git, in a directory, works in one of the places."""
    for above in _upwards(path):
        own = os.path.join(above, b".git")
        if _identity(above) in places or _identity(own) in places or _leads_to(own, common_dir):
            return True
        if os.path.isfile(os.path.join(own, b"HEAD")):
            return False  # another repository, though it may stand inside ours
    return False


def _upwards(path: bytes) -> Iterator[bytes]:
    here, last = path if os.path.isdir(path) else os.path.dirname(path), None
    for _ in range(DEEPEST):
        seen = _identity(here)
        if seen is None or seen == last:
            return
        yield here
        here, last = os.path.join(here, b".."), seen


def _leads_to(git_file: bytes, common_dir: str) -> bool:
    """Whether a `.git` file points into this repository: that of a working tree which was moved."""
    if not os.path.isfile(git_file):
        return False
    try:
        with open(git_file, "rb", opener=open_file_only) as file:
            _, _, place = file.read(4096).partition(b"gitdir: ")
    except OSError:
        return True
    target = os.path.realpath(os.path.join(os.path.dirname(git_file), place.rstrip(b"\n")))
    return target.startswith(os.fsencode(common_dir) + b"/")


def _named(process: str) -> list[bytes]:
    """What may be a path among a process's words."""
    words = _strings(f"{process}/cmdline")[1:]
    named = [word.partition(b"=")[2] if word.startswith(b"--") else word for word in words]
    return [word for word in named if word]


def _led(process: str) -> list[bytes]:
    """Where the environment leads a git."""
    pairs = (pair.partition(b"=") for pair in _strings(f"{process}/environ"))
    return [value for name, _, value in pairs if name in LEADS and value]


def _strings(path: str) -> list[bytes]:
    with open(path, "rb", opener=open_file_only) as file:
        return file.read().split(b"\0")[:-1]


def _command(process: str) -> str:
    """The command of git's that a process runs."""
    try:
        words = list(map(os.fsdecode, _strings(f"{process}/cmdline")))
    except OSError:
        return ""
    program = os.path.basename(words[0]) if words else ""
    if program.startswith("git-"):
        return program.removeprefix("git-")
    rest = iter(words[1:])
    for word in rest:
        if word in TAKES_A_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return ""
