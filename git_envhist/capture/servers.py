"""Directories that a database server works on: read file by file they are no state of its data, and it is said so.

What tells is the server's own sign, never a guess by names: the lock that it keeps on a file of its own for as long as
it runs (a crash lets go of it), or a process of its name that has the directory as its working directory. Who works
where we can see neither (on another machine, in a container whose processes are hidden from us) is not seen.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from git_envhist.capture.databases import is_locked
from git_envhist.capture.reading import FileVanished, KindChanged, Unreadable, open_file
from git_envhist.capture.visits import ScannedDirectory
from git_envhist.model import MissingReason
from git_envhist.values import dataclass

CLUSTER_MARK, CLUSTER_LOCK = b"PG_VERSION", b"postmaster.pid"
POSTGRES = (b"postgres", b"postmaster")
REDIS = (b"redis-server", b"valkey-server", b"keydb-server")
REDIS_MARKS = frozenset((b"dump.rdb", b"appendonly.aof", b"appendonlydir"))
REDIS_LOG_MARK = b".aof.manifest"
LMDB_LOCK = b"-lock"
LMDB_MAGIC, LMDB_MAGIC_AT = b"\xde\xc0\xef\xbe", 16
PROCESSES = b"/proc"


@dataclass(frozen=True, slots=True)
class LockFileRule:
    """A kind of directory whose server keeps a lock on one of its files."""

    server: str
    mark: bytes
    lock: bytes


LOCKED = (
    LockFileRule("MySQL", b"ibdata1", b"ibdata1"),
    LockFileRule("MongoDB", b"WiredTiger", b"WiredTiger.lock"),
    LockFileRule("LMDB", b"data.mdb", b"lock.mdb"),
    LockFileRule("LevelDB", b"CURRENT", b"LOCK"),
)
MARKS = {kind.mark for kind in LOCKED} | {CLUSTER_MARK} | REDIS_MARKS


def may_have_servers(names: set[bytes]) -> bool:
    """Whether a directory with entries of these names may be one that a server works on."""
    joined = b"\0".join(names) + b"\0"
    return not MARKS.isdisjoint(names) or any(tail + b"\0" in joined for tail in (LMDB_LOCK, REDIS_LOG_MARK))


def report_servers(visit: ScannedDirectory) -> None:
    """Say so where a server is at work; called with the directory entered."""
    names = {*visit.names, *visit.subdirectories}
    if not MARKS.isdisjoint(names):
        _tell_directory(visit, names)
    for name in names:
        if name.endswith(LMDB_LOCK):
            _tell_lone_lmdb(visit, name.removesuffix(LMDB_LOCK))
        elif name.endswith(REDIS_LOG_MARK):
            _tell(visit, "Redis", _process_in(b"..", REDIS))


def _tell_directory(visit: ScannedDirectory, names: set[bytes]) -> None:
    for kind in LOCKED:
        if kind.mark in names and _is_held(kind.lock):
            _tell(visit, kind.server, 0)
    if CLUSTER_MARK in names:
        _tell(visit, "PostgreSQL", _postgres())
    if not REDIS_MARKS.isdisjoint(names):
        _tell(visit, "Redis", _process_in(b".", REDIS))


def _tell_lone_lmdb(visit: ScannedDirectory, name: bytes) -> None:
    if _reads(name, LMDB_MAGIC_AT, len(LMDB_MAGIC)) == LMDB_MAGIC and _is_held(name + LMDB_LOCK):
        visit.miss(name, MissingReason.UNSTABLE, "another program has this LMDB file open: it may be torn")


def _tell(visit: ScannedDirectory, server: str, process: int | None) -> None:
    if process is not None:
        who = f" (process {process})" if process else ""
        visit.miss(b"", MissingReason.UNSTABLE, f"{server} is at work on it{who}: a dump holds its state")


def _is_held(name: bytes) -> bool:
    """Whether another process has a lock anywhere in a file."""
    try:
        descriptor = open_file(name)
    except (FileVanished, Unreadable, KindChanged):
        return False
    try:
        return is_locked(descriptor, 0, 0)
    finally:
        os.close(descriptor)


def _reads(name: bytes, start: int, size: int) -> bytes:
    try:
        descriptor = open_file(name)
    except (FileVanished, Unreadable, KindChanged):
        return b""
    try:
        return os.pread(descriptor, size, start)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _postgres() -> int | None:
    """The server of a cluster; the one that its lock file names may be gone, and its number another's by now."""
    if not stat.S_ISREG(_mode(CLUSTER_LOCK)):
        return None
    named = _reads(CLUSTER_LOCK, 0, 64).partition(b"\n")[0].strip()
    if named.isdigit() and _is_alive(int(named)) and _is_in(named, b".") is not False:
        return int(named)
    # In a container it knows itself by another number.
    return _process_in(b".", POSTGRES)


def _mode(name: bytes) -> int:
    try:
        return os.lstat(name).st_mode
    except OSError:
        return 0


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True  # another user's
    except (OSError, OverflowError):
        return False
    return True


def _process_in(directory: bytes, names: tuple[bytes, ...]) -> int | None:
    """A process of one of these names that has a directory as its own."""
    with suppress(OSError):
        for process in os.listdir(PROCESSES):
            if process.isdigit() and _name_of(process) in names and _is_in(process, directory):
                return int(process)
    return None


def _name_of(process: bytes) -> bytes:
    try:
        with open(os.path.join(PROCESSES, process, b"comm"), "rb") as file:
            return file.read().rstrip(b"\n")
    except OSError:
        return b""


def _is_in(process: bytes, directory: bytes) -> bool | None:
    """Whether a process has a directory as its own; None where that is not to be known."""
    try:
        return os.path.samestat(os.stat(os.path.join(PROCESSES, process, b"cwd")), os.stat(directory))
    except OSError:
        return None
