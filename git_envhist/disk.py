"""Write to disk: whole writes, sync, atomic replacement of files, locks, errors with a hint.

Locks are kernel locks (flock), which end with the process that holds them; the content of a lock file means nothing.
If the file system has no locks (some network shares), a file of the same inode number in a private directory of this
machine is locked instead. That separates the processes of one user on one machine only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum

from git_envhist.errors import EnvhistError, StorageFull
from git_envhist.platform import DIRECTORY, NOFOLLOW

OUT_OF_SPACE_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
READ_ONLY_ERRNOS = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
MOVED = "it was moved or removed: run the command again in its new place"
MORE_FILES = "raise the limit: ulimit -n 1024"


class CannotWrite(EnvhistError):
    """The git directory cannot be written."""

    code = "read-only"


def write_all(descriptor: int, data: bytes | bytearray, offset: int) -> None:
    """Write all bytes at an offset."""
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
    """The part of a write that is on the medium when the call returns."""

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
    """Replace a file atomically: readers see the old content or the new. Options: as of `open_replacement`."""
    with open_replacement(
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
def open_replacement(
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
    and never follows a link, for directories that other users may write to. `mode` None means the umask's, and
    `keep_mode` the mode of the file that is replaced, if there is one. Without `replace` an existing file raises
    `FileExistsError`.
    """
    new = _unique_name(path) if unique else temporary or f"{path}.new"
    descriptor = _create(new, 0o666 if mode is None else 0o600, exclusive=exclusive or unique)
    try:
        _set_mode(descriptor, mode, like=path if keep_mode else None)
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


def _unique_name(path: str) -> str:
    """Return a new name for a temporary file in the directory of a path."""
    return os.path.join(os.path.dirname(path), f".new-{os.getpid()}-{os.urandom(6).hex()}")


def _set_mode(descriptor: int, mode: int | None, *, like: str | None) -> None:
    """Set the mode of a new file: that of the file `like`, if it exists, otherwise `mode`; None keeps the umask's."""
    if mode not in (None, 0o600):
        os.fchmod(descriptor, mode)
    if like is not None:
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(os.stat(like).st_mode))


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
    """Append a line by one write, so that lines of concurrent processes do not mix.

    Only where the system writes a part of it, e.g. on a full file system, another write adds the rest.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(line + b"\n")
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if durability is not Durability.NONE:
            sync(descriptor)
    finally:
        os.close(descriptor)
    if durability is Durability.FULL:
        sync_directory(os.path.dirname(path) or os.curdir)


def remove_if_present(path: str) -> bool:
    """Remove a file; return False if it did not exist."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def cannot_write(error: OSError, place: str) -> EnvhistError:
    """Return the error, with a hint, for a failed write."""
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
        return _missing_directory(place, message)
    if error.errno in READ_ONLY_ERRNOS:
        hint = "allow writing to the git directory: a sandbox or its permissions prevent it"
        return CannotWrite(message, hint=hint)
    return EnvhistError(message)


def _missing_directory(place: str, message: str) -> EnvhistError:
    """Return the error for a write into a directory that does not exist."""
    above = os.path.dirname(os.path.abspath(place))
    if os.path.isdir(above):
        return EnvhistError(message, hint=MOVED)
    while not os.path.isdir(parent := os.path.dirname(above)):
        above = parent
    return EnvhistError(
        f"cannot write '{place}': the directory '{above}' does not exist",
        hint="create it, or correct the path; if the repository was moved, run the command again there",
    )


@contextmanager
def system_errors(place: str) -> Iterator[None]:
    """Convert any remaining OSError into an EnvhistError."""
    try:
        yield
    except OSError as error:
        where = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else place
        if error.errno in OUT_OF_SPACE_ERRNOS | READ_ONLY_ERRNOS:
            raise cannot_write(error, where) from error
        if error.errno == errno.ENOENT and where == os.curdir:
            raise EnvhistError(
                "the current directory was removed", hint="cd to an existing directory"
            ) from error
        reason = (error.strerror or str(error)).lower()
        hint = {errno.EMFILE: MORE_FILES, errno.ENOENT: MOVED}.get(error.errno or 0)
        raise EnvhistError(f"cannot access '{where}': {reason}", hint=hint) from error


STATE_PART = "/envhist/"
"""The state directories inside a git directory have this name."""


def state_directory(path: str) -> str:
    """Create a private state directory if it is missing and return its path; never create the git directory."""
    try:
        make_private_directory(path)
    except OSError as error:
        raise cannot_write(error, path) from error
    return path


def make_private_directory(path: str) -> None:
    """Create a private directory and its missing parents, down from `envhist` in the git directory.

    Raise FileNotFoundError if the git directory does not exist: the repository was moved or removed since it was
    opened, and a new directory at its old path would collect locks, keys and packs of no history.
    """
    if os.path.isdir(path):
        return
    above, _, below = f"{path}/".rpartition(STATE_PART)
    if not above:
        os.makedirs(path, mode=0o700, exist_ok=True)
        return
    place = above
    for name in filter(None, (STATE_PART + below).split("/")):
        place = f"{place}/{name}"
        try:
            os.mkdir(place, 0o700)
        except FileExistsError:
            if not os.path.isdir(place):
                raise


STAGING_IN_STATE = "staging"


def make_directory(path: str, mode: int) -> None:
    """Create a directory with a mode regardless of the umask; leave an existing one unchanged."""
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    os.chmod(path, mode)


def can_rename(source: str | int, target: str | int, rename: Callable[[str], object]) -> bool:
    """Return whether entries of one directory can be renamed into another; `rename` tries it with a name."""
    if os.stat(source).st_dev != os.stat(target).st_dev:
        return False
    # The kernel compares the mounts before it looks up the file, so the file need not exist.
    try:
        rename(f"absent-{os.urandom(8).hex()}")
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
