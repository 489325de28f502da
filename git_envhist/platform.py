"""What the operating system offers beyond what every Unix has: asked once, and here alone.

Linux has all of it. Where something is missing, a capture takes another way to the same snapshot; docs/elsewhere.md
says which, and what each costs. GIT_ENVHIST_WITHOUT=fork,xattr,… does without them where they are there, too: so the
other ways are tried on any machine.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from git_envhist.errors import EnvhistError
from git_envhist.lazy import pattern

# How another process of ours is started: by this interpreter, with this very package.
#
# A server or a browser keeps to the version that it was started as, and the environment that it is about may hold
# modules of any name: it is nowhere that we look for ours.

START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from git_envhist.cli.main import {0}; {0}()"


def own_command(program: str) -> list[str]:
    """The words before those of a command line: `envlog`, `envdiff`, `envrestore`, `envhist`, `upkeep`."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, "-P", "-c", START.format(program), package]


class OwnProgramFailed(EnvhistError):
    """A program of ours failed; `code`, `exit_code` and hint are those of its error."""

    def __init__(self, message: str, code: str, status: int, hint: str | None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.exit_code = status


def run_own_program(program: str, words: Sequence[str | bytes], environ: Mapping[str, str]) -> bytes:
    """Return the output of a program of ours that was asked for `--json`; raise its error as `OwnProgramFailed`."""
    import json  # loaded late: few processes run another program of ours
    import subprocess  # loaded late: likewise

    command = [*own_command(program), *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environ, check=False)
    if done.returncode == 0:
        return done.stdout
    try:
        error = json.loads(done.stdout)["error"]
        failure = OwnProgramFailed(error["message"], error["code"], error["status"], error["hint"])
    except (ValueError, KeyError, TypeError):
        reason = done.stderr.decode("utf-8", "replace").strip() or f"status {done.returncode}"
        failure = OwnProgramFailed(f"git {program} failed: {reason}", "failed", done.returncode, None)
    raise failure


Path = str | bytes
NOT_A_FILE = "not a regular file: move it away"
WITHOUT = "GIT_ENVHIST_WITHOUT"


class Platform(NamedTuple):
    """What there is; each name may stand in the variable."""

    fork: bool = True
    """A process may be copied. On macOS it may not: the system's own libraries do not survive it."""
    spawn: bool = True
    """A program may be started with descriptors and held-back signals of our choice."""
    fchdir: bool = True
    """Directories can be opened, entered and looked into by descriptors."""
    nofollow: bool = True
    """A file can be opened unless it is a link."""
    xattr: bool = True
    """Extended attributes can be read."""
    proc: bool = True
    """The kernel tells of mounts and processes in `/proc`."""
    memfd: bool = True
    """Files can be had that have no name."""
    affinity: bool = True
    """The system says on which cores a process may run."""
    statvfs: bool = True
    """File systems say how much room they have."""
    flock: bool = True
    """The file systems at hand keep locks (which only trying shows)."""
    facts: bool = True
    """More than files may be told of an environment: packages, variables."""
    openat2: bool = True
    """A directory far down is opened by one call that follows no link (which only trying shows)."""
    isal: bool = True
    """A faster deflate may be used where it is installed."""
    nowait: bool = True
    """The system reads of a file what it has in memory, and says where it would have to wait for a disk."""
    case: bool = True
    """Names that differ in case are two (where they are one, file systems show it)."""
    forms: bool = True
    """Names that differ in their Unicode form are two (likewise)."""
    namespaces: bool = True
    """A process may have mounts that nobody else sees (which only trying shows)."""
    names: bool = True
    """No name is reserved, as some are on Windows (likewise)."""


def read_system(environ: Mapping[str, str]) -> Platform:
    """What this machine has, less what the variable takes away."""
    lacking = set(environ.get(WITHOUT, "").replace(",", " ").split())
    there = Platform(
        fork=hasattr(os, "fork") and sys.platform != "darwin",
        spawn=hasattr(os, "posix_spawn") and bool(sys.executable),
        fchdir=hasattr(os, "fchdir") and os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY"),
        nofollow=hasattr(os, "O_NOFOLLOW"),
        xattr=hasattr(os, "listxattr"),
        proc=os.path.isdir("/proc/self"),
        memfd=hasattr(os, "memfd_create"),
        affinity=hasattr(os, "sched_getaffinity"),
        statvfs=hasattr(os, "statvfs"),
        nowait=hasattr(os, "RWF_NOWAIT"),
        openat2=sys.platform == "linux" and sys.maxsize > 1 << 32,
    )
    return Platform(**{name: there_is and name not in lacking for name, there_is in there._asdict().items()})


SYSTEM = read_system(os.environ)

NOFOLLOW = os.O_NOFOLLOW if SYSTEM.nofollow else 0
"""For `os.open` of what nobody else makes. What others may have swapped is opened by `open_itself`."""
PROCESSES = "/proc"
DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_DIRECTORY", 0)
"""For `os.open`, of a directory."""
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a process to stop."""


def open_itself(name: Path, flags: int, *, dir_fd: int | None = None) -> int:
    """A descriptor of what bears a name itself, below an open directory; OSError where that is a link."""
    if SYSTEM.nofollow:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=dir_fd)
    return open_compared(name, flags, dir_fd=dir_fd)


def open_file_only(name: Path, flags: int) -> int:
    """Open a regular file, as the `opener` of `open`; never wait for the other end of a pipe."""
    descriptor = os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ENXIO, NOT_A_FILE, name)
    return descriptor


def read_or_stop(name: Path) -> bytes:
    """Read a file, or a pipe to its end, and let the handlers of signals run while the pipe has nothing to read.

    A plain `read` misses a signal that arrives between Python's last look for one and the system call: it would wait
    for the other end of the pipe for ever.
    """
    import select  # loaded late: few programs read a pipe by its name

    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return file.read()
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        chunks: list[bytes] = []
        while True:
            if not ready.poll(LOOK_FOR_SIGNALS):
                continue
            chunk = file.read(CHUNK)
            if chunk == b"":
                return b"".join(chunks)
            if chunk is not None:
                chunks.append(chunk)


LOOK_FOR_SIGNALS = 200
"""Milliseconds for which a wait may keep a signal's handler from running."""
CHUNK = 1 << 20


def open_compared(name: Path, flags: int, *, dir_fd: int | None = None) -> int:
    """The same where the system cannot be told to follow no link: what was opened is what was looked at."""
    before = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    if not stat.S_ISLNK(before.st_mode):
        descriptor = os.open(name, flags, dir_fd=dir_fd)
        now = os.fstat(descriptor)
        if (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino):
            return descriptor
        os.close(descriptor)
    code = errno.ENOTDIR if flags & DIRECTORY == DIRECTORY else errno.ELOOP
    raise OSError(code, os.strerror(code), name)


def list_directory(descriptor: int) -> list[bytes]:
    """Return the names in an open directory, those included that were created since it was opened."""
    # On btrfs a descriptor lists no entry that is newer than itself, so the directory is opened again.
    try:
        again = os.open(b".", DIRECTORY, dir_fd=descriptor)
    except PermissionError:
        # A directory that its owner cannot enter; it was opened before its mode was changed.
        return [os.fsencode(name) for name in os.listdir(descriptor)]
    try:
        return [os.fsencode(name) for name in os.listdir(again)]
    finally:
        os.close(again)


class Mount(NamedTuple):
    """One line of `/proc/<pid>/mountinfo`."""

    number: bytes
    parent: bytes
    point: bytes
    device: bytes = b""
    """`8:1`."""
    root: bytes = b""
    """The directory of the file system that is mounted."""
    file_system: bytes = b""
    options: tuple[bytes, ...] = ()
    """The options of the file system, not those of the mount."""


ESCAPED = pattern(rb"\\([0-7]{3})")


def list_mounts(table: str = f"{PROCESSES}/self/mountinfo") -> list[Mount]:
    """Return the mounts that a process sees, OSError or IndexError if the table cannot be read."""
    with open(table, "rb", opener=open_file_only) as file:
        return [_parse_mount(line) for line in file]


def _parse_mount(line: bytes) -> Mount:
    fields = line.rstrip(b"\n").split(b" ")
    root, point = (ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field) for field in fields[3:5])
    file_system, _, *options = fields[fields.index(b"-", 6) + 1 :] if b"-" in fields[6:] else (b"", b"")
    return Mount(fields[0], fields[1], point, fields[2], root, file_system, tuple(options))


def process_fields(pid: int, processes: str = PROCESSES) -> list[bytes]:
    """Return the fields of `/proc/<pid>/stat` after the name: state, parent, group, ...; OSError if it ended."""
    with open(f"{processes}/{pid}/stat", "rb") as file:
        # The name is in parentheses and may contain any character.
        return file.read().rpartition(b")")[2].split()


def parent_process(pid: int, processes: str = PROCESSES) -> int:
    """Return the parent of a process; 0 if that cannot be read."""
    try:
        return int(process_fields(pid, processes)[1])
    except (OSError, ValueError, IndexError):
        return 0


def worker_mode(wanted: str) -> str:
    """`fork`, `spawn` or `here`: the nearest to what was wanted that this system has."""
    if wanted == "fork" and not SYSTEM.fork:
        wanted = "spawn"
    if wanted == "spawn" and not SYSTEM.spawn:
        wanted = "here"
    return wanted


def core_count() -> int:
    """On how many cores this process may run."""
    return len(os.sched_getaffinity(0)) if SYSTEM.affinity else os.cpu_count() or 1


def free_bytes(path: str, kept_free: int) -> int | None:
    """How many bytes a file system has for us if a `kept_free`-th of it stays free; None where nobody says."""
    if not SYSTEM.statvfs:
        return None
    place = os.statvfs(path)
    if not place.f_blocks:
        return None  # a file system that has no size (ramfs, many a FUSE) says zero of everything
    return (place.f_bavail - place.f_blocks // kept_free) * place.f_frsize


def keep_below(
    process: int, *, memory: int | None = None, seconds: int | None = None, file: int | None = None
) -> None:
    """Let the kernel end a process of ours that takes more; where no system can, it may take what it likes."""
    import resource  # loaded late: hardly any command holds another to bounds

    if hasattr(resource, "prlimit"):
        with suppress(OSError):
            # Without what is mapped of files: packs are, as a whole.
            if memory is not None:
                resource.prlimit(process, resource.RLIMIT_DATA, (memory, memory))
            if seconds is not None:
                resource.prlimit(process, resource.RLIMIT_CPU, (seconds, seconds + 10))
            if file is not None:
                resource.prlimit(process, resource.RLIMIT_FSIZE, (file, file))


@contextmanager
def signals_held_back() -> Iterator[None]:
    """For a worker being made: a copy of its parent that goes the parent's way at a signal would clear up, too."""
    # Asked first: the call that holds them back may raise what came just before, and has held them back then.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def anonymous_file() -> int:
    """A descriptor of an empty file that goes with the last process that has it open."""
    if SYSTEM.memfd:
        return os.memfd_create("git-envhist", os.MFD_CLOEXEC)
    import tempfile  # loaded only where there are no memory files

    descriptor, name = tempfile.mkstemp()
    os.unlink(name)
    return descriptor


class _ForkGuard:
    """What a host program's copy of itself must not go on holding.

    A host program may fork while one of its threads is in here. The copy has our descriptors, too: it would keep locked
    what we let go of, and keep open pipes whose end some child of ours waits for. So they are known by number and by
    what they are, and a copy closes them before it does anything else. A program of ours is never copied by anybody
    but us, and looks after none of this.
    """

    def __init__(self) -> None:
        self.watched = False
        self._ours: dict[int, tuple[int, int]] = {}
        self._making = allocate_lock()
        self._by_us: set[int] = set()

    def watch(self) -> None:
        """From now on; a host program is served."""
        if not self.watched and hasattr(os, "register_at_fork"):
            self.watched = True
            os.register_at_fork(
                before=self._making.acquire, after_in_parent=self._making.release, after_in_child=self._let_go
            )

    def make(self, make: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
        """Descriptors of ours, known as such before anybody can copy them."""
        with self._making:
            made = make()
            for descriptor in made:
                seen = os.fstat(descriptor)
                self._ours[descriptor] = (seen.st_dev, seen.st_ino)
        return made

    def fork(self) -> int:
        """A copy that we make goes on with all that is open."""
        thread = get_ident()
        self._by_us.add(thread)
        try:
            return os.fork()
        finally:
            self._by_us.discard(thread)

    def _let_go(self) -> None:
        self._making.release()
        if get_ident() in self._by_us:
            return
        nothing = -1
        with suppress(OSError):  # it may have no number left, or no /dev
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC) if self._ours else -1
        for descriptor, what in self._ours.items():
            # The number may be another thing's by now.
            with suppress(OSError):
                seen = os.fstat(descriptor)
                if (seen.st_dev, seen.st_ino) != what:
                    continue
                if nothing < 0:
                    os.close(descriptor)
                else:
                    # The number stays taken: what of ours still knows it may close it, and nothing of the host's.
                    os.dup2(nothing, descriptor, inheritable=False)
        self._ours.clear()
        if nothing >= 0:
            os.close(nothing)


COPIES = _ForkGuard()


def open_cloexec_guarded(path: str, flags: int, mode: int = 0o777) -> int:
    """`os.open`, of what no copy of a host program shall hold."""
    if not COPIES.watched:
        return os.open(path, flags, mode)
    return COPIES.make(lambda: (os.open(path, flags, mode),))[0]


def know_as_ours(descriptor: int) -> None:
    """The same of one that is open, and may have become another thing."""
    if COPIES.watched:
        COPIES.make(lambda: (descriptor,))


def pipe_ours() -> tuple[int, int]:
    """`os.pipe`, likewise."""
    if not COPIES.watched:
        return os.pipe()
    reading, writing = COPIES.make(os.pipe)
    return reading, writing


def save_current_directory() -> Callable[[], None]:
    """What brings the process back to its present current directory; to be called once."""
    if not SYSTEM.fchdir:
        here = os.getcwdb()
        return lambda: os.chdir(here)
    descriptor = os.open(".", DIRECTORY)

    def go_back() -> None:
        os.fchdir(descriptor)
        os.close(descriptor)

    return go_back
