"""Optional features of the operating system, and everything that depends on them.

Linux has all of them. If one is missing, a capture reaches the same snapshot in another way;
docs/internals/elsewhere.md lists the ways and their costs. GIT_ENVHIST_WITHOUT=fork,xattr,... disables features that
exist, so that each way can be tested on any machine.

Also here: the command that starts a program of ours, mounts and processes in /proc, and descriptors that a forking
host program must not inherit.
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

# Our own programs are started by this interpreter, with this package and without looking for modules in the current
# directory: the environment may contain modules of any name, and a server keeps the version it was started as.

START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from git_envhist.cli.main import {0}; {0}()"


def own_command(program: str) -> list[str]:
    """Return the first words of the command line of `envlog`, `envdiff`, `envrestore`, `envhist` or `upkeep`."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, "-P", "-c", START.format(program), package]


class OwnProgramFailed(EnvhistError):
    """One of our programs failed. `code`, `exit_code` and the hint are taken from its error."""

    def __init__(self, message: str, code: str, status: int, hint: str | None) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.exit_code = status


def run_own_program(
    program: str, words: Sequence[str | bytes], environ: Mapping[str, str], *, session: bool = False
) -> tuple[int, str, str]:
    """Run a program of ours to its end; return its exit status, output and error output.

    The output goes to files, so that the program continues if this process is killed.

    `session`: in a session of its own, because Ctrl-C is not meant for it.
    """
    import subprocess  # loaded late: few processes run another program of ours

    with open(anonymous_file(), "w+b") as out, open(anonymous_file(), "w+b") as err:
        done = subprocess.run(
            [*own_command(program), *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environ,
            check=False,
            start_new_session=session,
        )
        out.seek(0)
        err.seek(0)
        output, errors = (file.read().decode("utf-8", "backslashreplace") for file in (out, err))
        return done.returncode, output, errors


def own_program_output(program: str, words: Sequence[str | bytes], environ: Mapping[str, str]) -> str:
    """Return the output of a program of ours that was asked for `--json`; raise its error as `OwnProgramFailed`."""
    import json  # loaded late: few processes run another program of ours

    status, output, errors = run_own_program(program, words, environ)
    if status == 0:
        return output
    try:
        error = json.loads(output)["error"]
        failure = OwnProgramFailed(error["message"], error["code"], error["status"], error["hint"])
    except (ValueError, KeyError, TypeError):
        reason = errors.strip() or f"status {status}"
        failure = OwnProgramFailed(f"git {program} failed: {reason}", "failed", status, None)
    raise failure


Path = str | bytes
NOT_A_FILE = "not a regular file: move it away"
WITHOUT = "GIT_ENVHIST_WITHOUT"


class Platform(NamedTuple):
    """The features of this system; each name is allowed in the variable."""

    fork: bool = True
    """Processes can be forked. On macOS they cannot: the system's libraries do not survive it."""
    spawn: bool = True
    """Programs can be started with chosen descriptors and blocked signals."""
    fchdir: bool = True
    """Directories can be opened, entered and listed by descriptors."""
    nofollow: bool = True
    """A file can be opened only if it is no link."""
    xattr: bool = True
    """Extended attributes can be read."""
    proc: bool = True
    """`/proc` lists mounts and processes."""
    memfd: bool = True
    """Files without a name can be created in memory."""
    affinity: bool = True
    """The system reports the cores that a process may use."""
    statvfs: bool = True
    """File systems report their free space."""
    flock: bool = True
    """File systems have locks (only known after trying)."""
    facts: bool = True
    """Facts are captured: packages, variables."""
    openat2: bool = True
    """A deep directory is opened by one call that follows no link (only known after trying)."""
    isal: bool = True
    """The faster deflate is used if it is installed."""
    nowait: bool = True
    """A read can report that it would have to wait for the disk."""
    case: bool = True
    """Names that differ in case are different names."""
    forms: bool = True
    """Names that differ in their Unicode form are different names."""
    namespaces: bool = True
    """A process can have private mounts (only known after trying)."""
    names: bool = True
    """No name is reserved, as some are on Windows."""


def read_system(environ: Mapping[str, str]) -> Platform:
    """Return the features of this machine without those that the variable disables."""
    disabled = set(environ.get(WITHOUT, "").replace(",", " ").split())
    present = Platform(
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
    return Platform(**{name: has and name not in disabled for name, has in present._asdict().items()})


SYSTEM = read_system(os.environ)

NOFOLLOW = os.O_NOFOLLOW if SYSTEM.nofollow else 0
"""For `os.open` of files that no other user can replace; others are opened by `open_nofollow`."""
PROCESSES = "/proc"
DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_DIRECTORY", 0)
"""For `os.open` of a directory."""
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a process to stop."""


def open_nofollow(name: Path, flags: int, *, dir_fd: int | None = None) -> int:
    """Open a file below an open directory; OSError if it is a symbolic link."""
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
"""Milliseconds that a wait may delay a signal's handler."""
CHUNK = 1 << 20


def open_compared(name: Path, flags: int, *, dir_fd: int | None = None) -> int:
    """Do the same on systems without O_NOFOLLOW, by comparing the file before and after it is opened."""
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
        return parse_mounts(file.read())


def parse_mounts(data: bytes) -> list[Mount]:
    """Return the mounts of the text of a table; IndexError if a line is incomplete."""
    return [_parse_mount(line) for line in data.split(b"\n") if line]


def _parse_mount(line: bytes) -> Mount:
    fields = line.rstrip(b"\n").split(b" ")
    root, point = (ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field) for field in fields[3:5])
    file_system, _, *options = fields[fields.index(b"-", 6) + 1 :] if b"-" in fields[6:] else (b"", b"")
    return Mount(fields[0], fields[1], point, fields[2], root, file_system, tuple(options))


START_TIME = 19
"""The index of the start time, in ticks since the boot, in the list that `process_fields` returns."""


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
    """Return the nearest of `fork`, `spawn` and `here` that this system supports."""
    if wanted == "fork" and not SYSTEM.fork:
        wanted = "spawn"
    if wanted == "spawn" and not SYSTEM.spawn:
        wanted = "here"
    return wanted


def core_count() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if SYSTEM.affinity else os.cpu_count() or 1


def free_bytes(path: str, reserve: int) -> int | None:
    """Return the bytes that can be written if a `reserve`-th of the file system stays free; None if it has no size."""
    if not SYSTEM.statvfs:
        return None
    place = os.statvfs(path)
    if not place.f_blocks:
        return None  # a file system without a size (ramfs, many FUSE ones) reports zeros
    return (place.f_bavail - place.f_blocks // reserve) * place.f_frsize


def limit_process(
    process: int, *, memory: int | None = None, seconds: int | None = None, file: int | None = None
) -> None:
    """Set kernel limits for a child process, on systems that have them."""
    import resource  # loaded late: few commands limit a child

    if hasattr(resource, "prlimit"):
        with suppress(OSError):
            # RLIMIT_DATA does not count mapped files; packs are mapped as a whole.
            if memory is not None:
                resource.prlimit(process, resource.RLIMIT_DATA, (memory, memory))
            if seconds is not None:
                resource.prlimit(process, resource.RLIMIT_CPU, (seconds, seconds + 10))
            if file is not None:
                resource.prlimit(process, resource.RLIMIT_FSIZE, (file, file))


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block the stopping signals while a worker is forked: the copy of a handler would clean up the parent's files."""
    # The mask is read first: the call that blocks may raise for a signal that arrived before, and has blocked
    # already.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Let stopping signals take effect after the block only; unlike a blocked signal, a command does not inherit it."""
    import threading  # loaded late: few programs start commands of the user

    arrived: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in STOPPING}
        before = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in before:
            signal.signal(number, lambda number, _frame: arrived.append(number))
        yield
    finally:
        # Block signals until all previous handlers are installed again.
        with signals_blocked():
            for number, handler in before.items():
                signal.signal(number, handler)
            for deferred in arrived:
                signal.raise_signal(deferred)


def anonymous_file() -> int:
    """Return a descriptor of an empty file that is deleted with its last descriptor."""
    if SYSTEM.memfd:
        return os.memfd_create("git-envhist", os.MFD_CLOEXEC)
    import tempfile  # loaded late: only without memory files

    descriptor, name = tempfile.mkstemp()
    os.unlink(name)
    return descriptor


class _ForkGuard:
    """Close our descriptors in a host program's forked child.

    A host program may fork while one of its threads runs our code. The child would inherit our descriptors: it would
    keep files locked that we have unlocked, and keep pipes open whose end a child of ours waits for. So each
    descriptor is registered with its device and inode, and the child closes them first. Our own programs are forked
    by our own code only and do not register any.
    """

    def __init__(self) -> None:
        self.watched = False
        self._ours: dict[int, tuple[int, int]] = {}
        self._making = allocate_lock()
        self._by_us: set[int] = set()

    def watch(self) -> None:
        """Start to register descriptors; called for host programs."""
        if not self.watched and hasattr(os, "register_at_fork"):
            self.watched = True
            os.register_at_fork(
                before=self._making.acquire,
                after_in_parent=self._making.release,
                after_in_child=self._close_in_child,
            )

    def make(self, make: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
        """Create descriptors and register them before another thread can fork."""
        with self._making:
            made = make()
            for descriptor in made:
                seen = os.fstat(descriptor)
                self._ours[descriptor] = (seen.st_dev, seen.st_ino)
        return made

    def fork(self) -> int:
        """Fork a worker, which keeps all descriptors."""
        thread = get_ident()
        self._by_us.add(thread)
        try:
            return os.fork()
        finally:
            self._by_us.discard(thread)

    def _close_in_child(self) -> None:
        self._making.release()
        if get_ident() in self._by_us:
            return
        nothing = -1
        with suppress(OSError):  # there may be no descriptor left, or no /dev
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC) if self._ours else -1
        for descriptor, what in self._ours.items():
            # The number may refer to another file by now.
            with suppress(OSError):
                seen = os.fstat(descriptor)
                if (seen.st_dev, seen.st_ino) != what:
                    continue
                if nothing < 0:
                    os.close(descriptor)
                else:
                    # The number stays in use: our code in the child may still close it, and must not close a file of
                    # the host's.
                    os.dup2(nothing, descriptor, inheritable=False)
        self._ours.clear()
        if nothing >= 0:
            os.close(nothing)


FORK_GUARD = _ForkGuard()


def guarded_open(path: str, flags: int, mode: int = 0o777) -> int:
    """Open a file whose descriptor a host program's forked child must not keep."""
    if not FORK_GUARD.watched:
        return os.open(path, flags, mode)
    return FORK_GUARD.make(lambda: (os.open(path, flags, mode),))[0]


def guard_descriptor(descriptor: int) -> None:
    """Register an open descriptor in the same way."""
    if FORK_GUARD.watched:
        FORK_GUARD.make(lambda: (descriptor,))


def guarded_pipe() -> tuple[int, int]:
    """Return the ends of a pipe, registered in the same way."""
    if not FORK_GUARD.watched:
        return os.pipe()
    reading, writing = FORK_GUARD.make(os.pipe)
    return reading, writing


def save_current_directory() -> Callable[[], None]:
    """Return a function that restores the current directory; call it once."""
    if not SYSTEM.fchdir:
        here = os.getcwdb()
        return lambda: os.chdir(here)
    descriptor = os.open(".", DIRECTORY)

    def go_back() -> None:
        os.fchdir(descriptor)
        os.close(descriptor)

    return go_back
