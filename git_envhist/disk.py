"""Kernel locks: gone with the process that held them, whatever ended it. No file's content means anything.

Some file systems keep no locks (Lustre as it is often mounted, some network shares). What is locked there is locked in
a directory of this machine instead, under the file's number: that keeps one user's processes on one machine apart, and
nobody else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum

from git_envhist.errors import EnvhistError, StorageFull
from git_envhist.platform import DIRECTORY, NOFOLLOW, SYSTEM, know_as_ours, open_cloexec_guarded

# Bytes onto a disk, for good: whole writes, fsync that counts, and errors a person can act on.

OUT_OF_SPACE_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
READ_ONLY_ERRNOS = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
MOVED = "it was moved or removed meanwhile: run the command again where it is now"
MORE_FILES = "raise the limit: ulimit -n 1024"


class CannotWrite(EnvhistError):
    """The git directory cannot be written."""

    code = "read-only"


def write_all(descriptor: int, data: bytes | bytearray, offset: int) -> None:
    """Write every byte at an offset, however few the kernel takes at a time."""
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.pwrite(descriptor, view[done:], offset + done)


def read_exactly(descriptor: int, size: int, offset: int) -> bytes:
    """Read `size` bytes at an offset; fewer only where the file ends before."""
    block = os.pread(descriptor, size, offset)
    if len(block) == size:
        return block
    parts = [block]
    missing = size - len(block)
    while missing and (block := os.pread(descriptor, missing, offset + size - missing)):
        parts.append(block)
        missing -= len(block)
    return b"".join(parts)


def sync(descriptor: int) -> None:
    """Return when the file is on the medium, not only on its way to it."""
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is None:
        os.fsync(descriptor)
    else:  # macOS: fsync stops at the drive's cache
        fcntl.fcntl(descriptor, full_sync)


def sync_directory(path: str) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(paths: Iterable[str]) -> None:
    """Return when these files are on the medium."""
    for path in paths:
        with open(path, "rb") as file:
            sync(file.fileno())


class Durability(Enum):
    """How much of a write must be on the medium when the call returns."""

    NONE = "none"
    """Nothing: after a power cut the file may be missing or torn, and its reader copes with that."""
    FILE = "file"
    """The content, before the file gets its name. The new name itself may be lost."""
    FULL = "full"
    """The content, then the name."""


def replace_file(
    path: str,
    data: bytes,
    *,
    durability: Durability,
    mode: int | None = 0o600,
    unique: bool = False,
    keep_mode: bool = False,
    exclusive: bool = False,
    replace: bool = True,
    temporary: str | None = None,
) -> None:
    """Replace a file atomically: readers see the old content or the new. The options are those of `replacement`."""
    with replacement(
        path,
        durability=durability,
        mode=mode,
        unique=unique,
        keep_mode=keep_mode,
        exclusive=exclusive,
        replace=replace,
        temporary=temporary,
    ) as descriptor:
        write_all(descriptor, data, 0)


@contextmanager
def replacement(
    path: str,
    *,
    durability: Durability,
    mode: int | None = 0o600,
    unique: bool = False,
    keep_mode: bool = False,
    exclusive: bool = False,
    replace: bool = True,
    temporary: str | None = None,
) -> Iterator[int]:
    """Yield a descriptor of a temporary file, which gets the name `path` at the end and is removed after an error.

    The temporary file is `temporary`, by default `<path>.new`, which the next writer overwrites: the caller holds a
    lock. With `unique` it is a new name in the same directory, for writers without a lock. `exclusive` creates it
    anew and never follows a link, for directories that other users may write to. `mode` None means the umask's, and
    `keep_mode` the mode of the file that is replaced, if there is one. Without `replace` an existing file raises
    `FileExistsError`.
    """
    new = temporary or f"{path}.new"
    if unique:
        new = os.path.join(os.path.dirname(path), f".new-{os.getpid()}-{os.urandom(6).hex()}")
    descriptor = _create(new, 0o666 if mode is None else 0o600, exclusive=exclusive or unique)
    try:
        if mode not in (None, 0o600):
            os.fchmod(descriptor, mode)
        if keep_mode:
            with suppress(FileNotFoundError):
                os.fchmod(descriptor, stat.S_IMODE(os.stat(path).st_mode))
        yield descriptor
        if durability is Durability.NONE:
            # Without a sync, a network file system reports a failed write only here.
            closing, descriptor = descriptor, -1
            os.close(closing)
        else:
            sync(descriptor)
        _give_name(new, path, replace=replace)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    if durability is Durability.FULL:
        sync_directory(os.path.dirname(path) or os.curdir)


def _create(path: str, mode: int, *, exclusive: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    if exclusive:
        remove_if_present(path)
        return os.open(path, flags | os.O_EXCL | NOFOLLOW, mode)
    return os.open(path, flags | os.O_TRUNC, mode)


def _give_name(temporary: str, path: str, *, replace: bool) -> None:
    if not replace:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:
            # Some file systems (FAT) have no links: reserve the name by an empty file, then replace that.
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        else:
            os.unlink(temporary)
            return
    os.replace(temporary, path)


def replace_with_symlink(path: str, target: bytes, *, temporary: str) -> None:
    """Replace a file by a symbolic link, atomically."""
    remove_if_present(temporary)
    os.symlink(target, os.fsencode(temporary))
    os.replace(temporary, path)


def append_line(path: str, line: bytes, *, durability: Durability) -> None:
    """Append a line by one write, so that lines of concurrent processes do not mix."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line + b"\n")
        if durability is not Durability.NONE:
            sync(descriptor)
    finally:
        os.close(descriptor)
    if durability is Durability.FULL:
        sync_directory(os.path.dirname(path) or os.curdir)


def remove_if_present(path: str) -> bool:
    """Remove a file; False where there was none."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def cannot_write(error: OSError, place: str) -> EnvhistError:
    """What a failed write means to the person who waits for it."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    message = f"cannot write below '{place}': {reason.lower()}"
    if error.errno in OUT_OF_SPACE_ERRNOS:
        return StorageFull(
            message,
            hint="make room there (or raise the quota) and run the command again; nothing was changed",
        )
    if error.errno == errno.EMFILE:
        return EnvhistError(message, hint=MORE_FILES)
    if error.errno == errno.ENOENT:
        return EnvhistError(message, hint=MOVED)
    if error.errno in READ_ONLY_ERRNOS:
        hint = "a sandbox or another owner closes it: allow writing in the git directory"
        return CannotWrite(message, hint=hint)
    return EnvhistError(message)


@contextmanager
def system_errors(place: str) -> Iterator[None]:
    """What the system refused, and nobody foresaw at that very call, is told as an error of ours."""
    try:
        yield
    except OSError as error:
        where = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else place
        if error.errno in OUT_OF_SPACE_ERRNOS | READ_ONLY_ERRNOS:
            raise cannot_write(error, where) from error
        if error.errno == errno.ENOENT and where == os.curdir:
            raise EnvhistError(
                "the directory that this was called in is gone", hint="cd to one that is there"
            ) from error
        reason = (error.strerror or str(error)).lower()
        hint = {errno.EMFILE: MORE_FILES, errno.ENOENT: MOVED}.get(error.errno or 0)
        raise EnvhistError(f"the system refused '{where}': {reason}", hint=hint) from error


COMMON_LOCK = "lock.shared"
"""In the common state: captures share it; whoever takes packs away has it alone."""
UPKEEP_LOCK = "lock.upkeep"
"""Beside it: who writes packs anew, while captures go on."""
NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP))


LIMIT = 600.0
"""Seconds that commands which rewrite or clean a history wait for other processes."""
INTERVAL = 0.05
STATE = "/envhist/"
"""Every directory of this program inside a git directory lies in one of this name."""
HINT = "set XDG_RUNTIME_DIR to a directory of yours on a local disk"


class LocksUnavailable(EnvhistError):
    """Neither the file system nor this machine's own directory gives a lock."""

    code = "no-locks"


class StillLocked(EnvhistError):
    """Another process held a lock for longer than a command waits."""

    code = "locked"


def state_directory(path: str) -> str:
    """Return a private directory of this program, made if missing, without the git directory that it lies in."""
    try:
        make_private(path)
    except OSError as error:
        raise cannot_write(error, path) from error
    return path


def make_private(path: str) -> None:
    """Make a private directory and those above it, down from `envhist`, which lies in the git directory.

    FileNotFoundError if the git directory does not exist: the repository was moved or removed since it was opened, and
    a new one at its old place would hold locks, keys and packs that no history has.
    """
    if os.path.isdir(path):
        return
    above, _, below = f"{path}/".rpartition(STATE)
    if not above:
        os.makedirs(path, mode=0o700, exist_ok=True)
        return
    place = above
    for name in filter(None, (STATE + below).split("/")):
        place = f"{place}/{name}"
        try:
            os.mkdir(place, 0o700)
        except FileExistsError:
            if not os.path.isdir(place):
                raise


def lock_file(descriptor: int, kind: int) -> bool:
    """Lock an open file until its descriptor is closed; whether it is locked for everybody who can open it.

    `BlockingIOError` where somebody else holds it and `kind` says not to wait.
    """
    if SYSTEM.flock:
        try:
            fcntl.flock(descriptor, kind)
            return True
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
    elsewhere = _open_elsewhere(os.fstat(descriptor))
    try:
        fcntl.flock(elsewhere, kind)
        # Under the descriptor's own number, so that closing it lets go, whoever does, and a child that has it holds it.
        os.dup2(elsewhere, descriptor, inheritable=os.get_inheritable(descriptor))
        know_as_ours(descriptor)
    finally:
        os.close(elsewhere)
    return False


def _open_elsewhere(seen: os.stat_result) -> int:
    import tempfile  # loaded late: hardly any file system keeps no locks

    place = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    place = os.path.join(place, f"git-envhist-{os.getuid()}")
    try:
        os.makedirs(place, mode=0o700, exist_ok=True)
        made = os.lstat(place)
        if not stat.S_ISDIR(made.st_mode) or made.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "somebody else's")
        path = os.path.join(place, f"{seen.st_dev:x}-{seen.st_ino:x}")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NOFOLLOW, 0o600)
    except OSError as error:
        raise LocksUnavailable(
            f"the file system keeps no locks, and none can be kept in '{place}'", hint=HINT
        ) from error


def lock_within(descriptor: int, kind: int, path: str, limit: float) -> bool:
    """Lock an open file as `lock_file` does; `StillLocked` with the holders' names after `limit` seconds."""
    until = time.monotonic() + limit
    while True:
        try:
            return lock_file(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise _still_locked(descriptor, path, limit) from None
        time.sleep(INTERVAL)


def _still_locked(descriptor: int, path: str, limit: float) -> StillLocked:
    holders = ", ".join(_holders(os.fstat(descriptor))) or "another process"
    return StillLocked(
        f"'{path}' is still locked by {holders} after {limit:g} s",
        hint="run the command again when it has ended",
    )


def _holders(seen: os.stat_result) -> Iterator[str]:
    """Name the processes that Linux lists as holders of a lock on a file."""
    place = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    with suppress(OSError), open("/proc/locks", encoding="ascii") as file:
        rows = [line.split() for line in file]
        for pid in sorted({row[4] for row in rows if len(row) > 5 and row[5] == place and row[4].isdigit()}):
            with suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as name:
                yield f"{name.read().strip()} ({pid})"


@contextmanager
def locked(
    path: str,
    *,
    shared: bool = False,
    waiting: Callable[[], None] | None = None,
    reading: bool = False,
    limited: bool = False,
) -> Iterator[None]:
    """Hold a lock; `waiting` is called once where somebody else holds it.

    `reading`: whoever wants it changes nothing, and does without where there is none and none can be made. `limited`:
    raise `StillLocked` instead of waiting for longer than `LIMIT`.
    """
    try:
        descriptor = open_cloexec_guarded(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if not reading:
            raise cannot_write(error, path) from error
        try:
            descriptor = open_cloexec_guarded(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            yield
            return
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        try:
            lock_file(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            if limited:
                lock_within(descriptor, kind, path, LIMIT)
            else:
                lock_file(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def locked_now(path: str) -> Iterator[bool]:
    """Hold a lock if that is possible without waiting; whether it was."""
    descriptor = open_cloexec_guarded(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            lock_file(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


BESIDE_STATE = "staging"


def make_directory(path: str, mode: int) -> None:
    """A directory with that mode, whatever the umask; one that is there stays as it is."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    os.chmod(path, mode)
