"""Read SQLite databases consistently, and report directories that a database server uses.

The files are stored byte by byte: the database and its log or journal as one unit, read under the same locks
that SQLite's readers take. Opening the database with SQLite would write to the user's files (even a read-only
connection rewrites the `-shm`), or would store a copy with other bytes.

- Rollback mode: a writer changes the database only under an exclusive lock, so with a shared lock the
  file is as the last commit left it. A journal without a reserved lock is hot: a crash left it, and it
  belongs to the unit. Any other journal belongs to a transaction that has changed nothing yet.
- WAL mode: the database changes only in a checkpoint, and the log is otherwise only appended to. Shared
  locks in the `-shm` prevent a checkpoint and a restart of the log. Writers continue; transactions
  committed before the read are included, and recovery drops a torn tail.
- A file that does not exist cannot be locked: a database may be opened and get a log while it is read. So
  the identities of the files are compared afterwards.

The `-shm` contains no data and is never stored. POSIX locks belong to a process and are released when it
closes any descriptor of the file, so this must run in a worker process, never inside a program that uses the
database.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
import time
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from git_envhist.disk import read_exactly
from git_envhist.lazy import dataclass
from git_envhist.model import SQLITE_HEADER, SQLITE_SIDECARS, MissingReason
from git_envhist.model.entries import database_of_sidecar
from git_envhist.platform import open_nofollow
from git_envhist.worktree.read_file import FileVanished, KindChanged, Unreadable, open_file, stat_of
from git_envhist.worktree.scan import ScannedDirectory, ScannedEntry
from git_envhist.worktree.stat_cache import COLUMNS, MODE, SIZE

SMALLEST_PAGE = 512
LOG, JOURNAL, SHARED_MEMORY = SIDECARS = SQLITE_SIDECARS
LOG_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"

PENDING_BYTE = 0x40000000
RESERVED_BYTE = PENDING_BYTE + 1
SHARED_FIRST, SHARED_SIZE = PENDING_BYTE + 2, 510
CHECKPOINT_BYTE = 121
READER_BYTE = 127
"""The lock byte of one log reader. A shared lock on it prevents a restart of the log, which needs all of
them; the other bytes remain free for readers."""

DATABASE_LOCK_TIMEOUT = 5.0
"""Seconds to wait for the locks of a database."""
MAX_FULL_WAITS, MIN_WAIT_SECONDS = 2, 0.05
"""At most this many databases get the full timeout; all others get `LEAST_SECONDS`."""
LINUX, BSD = struct.Struct("hhqqi4x"), struct.Struct("qqihh")
"""Layout of `struct flock` in the C libraries."""
BUSY = (errno.EAGAIN, errno.EACCES)


Identity = tuple[int, int]


class DatabaseBusy(Exception):
    """The database could not be locked; the message is the reason."""


@dataclass(frozen=True, slots=True)
class DatabaseLock:
    """A database under shared locks."""

    is_hot: bool
    """True if a crash left a journal. A journal of a running transaction is of no use, because that
    transaction has changed nothing yet."""
    shared_memory: Identity | None
    """Identity of the shared memory file that is locked."""


def is_sidecar(descriptor: int, name: bytes) -> bool:
    """Return whether an open file starts like the log or journal of a database.

    These headers are not encrypted even if the database is.
    """
    if name.endswith(LOG):
        return _first_bytes(descriptor, 4) in LOG_MAGIC
    return name.endswith(JOURNAL) and _first_bytes(descriptor, len(JOURNAL_MAGIC)) == JOURNAL_MAGIC


def is_database(descriptor: int, size: int) -> bool:
    """Return whether an open file starts like a SQLite database."""
    if size < SMALLEST_PAGE or size % SMALLEST_PAGE:
        return False
    return _first_bytes(descriptor, len(SQLITE_HEADER)) == SQLITE_HEADER


def _first_bytes(descriptor: int, size: int) -> bytes:
    try:
        return read_exactly(descriptor, size, 0)
    except OSError:
        return b""  # reading the whole file will report the error


class WaitBudget:
    """Remaining time that a capture may wait for databases."""

    def __init__(self) -> None:
        self._left = DATABASE_LOCK_TIMEOUT * MAX_FULL_WAITS

    @contextmanager
    def waiting(self) -> Iterator[float]:
        """Yield the deadline for one wait, and subtract the time that passed."""
        started = time.monotonic()
        try:
            yield started + max(MIN_WAIT_SECONDS, min(DATABASE_LOCK_TIMEOUT, self._left))
        finally:
            self._left -= time.monotonic() - started


@contextmanager
def locked_database(descriptor: int, name: bytes, wait_budget: WaitBudget) -> Iterator[DatabaseLock]:
    """Lock the database open at `descriptor` and named `name` in the current directory.

    Raise `DatabaseBusy` after the timeout, or if the file system has no locks.
    """
    with wait_budget.waiting() as deadline:
        _wait_for_lock(lambda: _lock_database(descriptor), deadline)
    shared_memory = -1
    try:
        shared_memory = _open_memory(name)
        if shared_memory >= 0:
            with wait_budget.waiting() as deadline:
                _wait_for_lock(lambda: _lock_log(shared_memory), deadline)
        # The order matters: a journal that exists without a reserved lock existed before our lock.
        has_journal = os.path.lexists(name + JOURNAL)
        is_hot = has_journal and not is_locked(descriptor, RESERVED_BYTE)
        yield DatabaseLock(is_hot, _identity(os.fstat(shared_memory)) if shared_memory >= 0 else None)
    finally:
        if shared_memory >= 0:
            os.close(shared_memory)
        with suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_UN, SHARED_SIZE, SHARED_FIRST)


def changed_during_lock(descriptor: int, name: bytes, lock: DatabaseLock) -> str | None:
    """Return what happened in spite of the locks, or None; call this at the end of the lock."""
    if _identity_of(name) != _identity(os.fstat(descriptor)):
        return "it was replaced"
    if _identity_of(name + SHARED_MEMORY) != lock.shared_memory:
        return "another program opened it"
    return None


def _identity_of(name: bytes) -> Identity | None:
    try:
        return _identity(os.lstat(name))
    except OSError:
        return None


def _identity(seen: os.stat_result) -> Identity:
    return seen.st_dev, seen.st_ino


def _lock_database(descriptor: int) -> None:
    # SQLite takes the pending byte first, too: a writer waiting for readers then admits no new ones.
    fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, PENDING_BYTE)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, SHARED_SIZE, SHARED_FIRST)
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, PENDING_BYTE)


def _lock_log(shared_memory: int) -> None:
    fcntl.lockf(shared_memory, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, CHECKPOINT_BYTE)
    try:
        fcntl.lockf(shared_memory, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, READER_BYTE)
    except OSError:
        fcntl.lockf(shared_memory, fcntl.LOCK_UN, 1, CHECKPOINT_BYTE)
        raise


def _open_memory(name: bytes) -> int:
    try:
        return open_nofollow(name + SHARED_MEMORY, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise DatabaseBusy(
            f"its shared memory cannot be opened: {os.strerror(error.errno or 0).lower()}"
        ) from error


def _wait_for_lock(lock: object, deadline: float) -> None:
    assert callable(lock)
    wait = 0.000_1
    while True:
        try:
            lock()
            return
        except OSError as error:
            if error.errno not in BUSY:
                raise DatabaseBusy(f"it cannot be locked: {os.strerror(error.errno or 0).lower()}") from error
            if time.monotonic() > deadline:
                raise DatabaseBusy("another program keeps it locked") from error
        time.sleep(wait)
        # A program that writes and checkpoints continuously admits readers only briefly, so retry often.
        wait = min(wait * 2, 0.000_4)


def is_locked(descriptor: int, byte: int, length: int = 1) -> bool:
    """Return whether another process holds a lock that conflicts with a write lock; length 0 means to the
    end."""
    is_linux = sys.platform.startswith("linux")
    asked = (
        LINUX.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, length, 0)
        if is_linux
        else BSD.pack(byte, length, 0, fcntl.F_WRLCK, os.SEEK_SET)
    )
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    except OSError:
        return False
    kind = LINUX.unpack(answer)[0] if is_linux else BSD.unpack(answer)[3]
    return bool(kind != fcntl.F_UNLCK)


# Store a database with its sidecars in one consistent state.

LOCK_TRIES = 3


class EntrySaver(Protocol):
    """Interface of `content.FileSaver` as used here."""

    @property
    def wait_budget(self) -> WaitBudget:
        """Remaining time to wait for locks."""
        ...

    def store(self, visit: ScannedDirectory, leaf: ScannedEntry) -> bool:
        """Store the entry; False if it cannot be stored."""
        ...

    def store_open_file(self, visit: ScannedDirectory, leaf: ScannedEntry, descriptor: int) -> None:
        """Store an open file."""
        ...

    def forget(self) -> Callable[[], None]:
        """Return a function that removes everything stored after this call."""
        ...


class DatabaseFiles:
    """An open database with its sidecars.

    Nothing else in this process may open the database until it is stored: closing it would release the locks.
    """

    def __init__(
        self,
        saver: EntrySaver,
        visit: ScannedDirectory,
        database: ScannedEntry,
        sidecars: list[ScannedEntry],
        descriptor: int,
    ) -> None:
        self._saver = saver
        self._visit = visit
        self._database = database
        self._sidecars = list(sidecars)
        self._descriptor = descriptor
        self._late: list[ScannedEntry] = []

    def store(self) -> list[ScannedEntry]:
        """Store all files; return the entries that cannot be stored."""
        try:
            return self._store()
        except Unreadable as reason:
            self._visit.report_missing(self._database.name, reason.why, reason.detail)
            return [self._database, *self._sidecars]
        except Exception:
            self._visit.leaves = [leaf for leaf in self._visit.leaves if leaf not in self._late]
            raise

    def _store(self) -> list[ScannedEntry]:
        missing_count, undo = len(self._visit.missing), self._saver.forget()
        change: str | None = None
        gone: list[ScannedEntry] = []
        for attempt in range(LOCK_TRIES):
            if attempt:
                del self._visit.missing[missing_count:]
                undo()
            try:
                with locked_database(self._descriptor, self._database.name, self._saver.wait_budget) as lock:
                    gone = self._store_locked(lock)
                    change = changed_during_lock(self._descriptor, self._database.name, lock)
            except DatabaseBusy as reason:
                gone = self._store_locked(None)
                change = str(reason)
                break
            if change is None and not self._has_unlisted_sidecar(gone):
                return gone
        self._report_in_use(change or "another program opened it while it was read")
        return [leaf for leaf in gone if leaf in self._visit.leaves]

    def _store_locked(self, lock: DatabaseLock | None) -> list[ScannedEntry]:
        if lock is not None:
            self._add_late_sidecars(lock)
        self._store_database()
        return [leaf for leaf in self._sidecars if not self._store_sidecar(leaf, lock)]

    def _add_late_sidecars(self, lock: DatabaseLock) -> None:
        """Add sidecars that appeared after the directory was listed."""
        known = {leaf.name for leaf in self._sidecars}
        for suffix in (LOG, JOURNAL) if lock.is_hot else (LOG,):
            name = self._database.name + suffix
            if name not in known and os.path.lexists(name):
                self._sidecars.append(self._leaf_of(name))

    def _leaf_of(self, name: bytes) -> ScannedEntry:
        visit = self._visit
        leaf = next((leaf for leaf in visit.leaves if leaf.name == name), None)
        if leaf is None:
            leaf = ScannedEntry(name, ())
            self._late.append(leaf)
            # A single file is read without a listing of its directory, so there is no list to add the sidecar to.
            if self._database in visit.leaves:
                insort(visit.leaves, leaf, key=lambda other: other.name)
        elif leaf in visit.unread:
            visit.unread.remove(leaf)
        leaf.is_append_only = name.endswith(LOG)
        return leaf

    def _has_unlisted_sidecar(self, gone: list[ScannedEntry]) -> bool:
        return self._database not in self._visit.leaves and any(leaf not in gone for leaf in self._late)

    def _store_database(self) -> None:
        leaf = self._database
        if not leaf.is_pending:
            seen = stat_of(self._descriptor)
            if COLUMNS(seen) == leaf.row:
                return  # unchanged since the last capture
            leaf.is_pending, leaf.row = True, COLUMNS(seen)
        self._saver.store_open_file(self._visit, leaf, self._descriptor)

    def _store_sidecar(self, leaf: ScannedEntry, lock: DatabaseLock | None) -> bool:
        if lock is not None and not lock.is_hot and leaf.name.endswith(JOURNAL):
            return False
        try:
            leaf.row = COLUMNS(os.lstat(leaf.name))
        except OSError as error:
            self._visit.report_error(error, leaf.name)
            return False
        leaf.is_pending = True
        return self._saver.store(self._visit, leaf)

    def _report_in_use(self, what: str) -> None:
        self._visit.report_missing(
            self._database.name, MissingReason.UNSTABLE, f"its database is in use: {what}"
        )
        for leaf in (self._database, *self._sidecars):
            # The copy is inconsistent, so the next capture must read it again.
            leaf.row = (0, *leaf.row[1:])


# Directories in use by a database server: read file by file they are no consistent state.
# A server is recognised by the lock that it holds on one of its files, or by a process of its name with the
# directory as working directory; never by file names alone. Servers on another machine, or in a container
# with hidden processes, are not detected.

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
    """A kind of directory in which the server locks a file."""

    server: str
    mark: bytes
    lock: bytes


LOCK_FILE_RULES = (
    LockFileRule("MySQL", b"ibdata1", b"ibdata1"),
    LockFileRule("MongoDB", b"WiredTiger", b"WiredTiger.lock"),
    LockFileRule("LMDB", b"data.mdb", b"lock.mdb"),
    LockFileRule("LevelDB", b"CURRENT", b"LOCK"),
)
MARKER_FILES = {kind.mark for kind in LOCK_FILE_RULES} | {CLUSTER_MARK} | REDIS_MARKS


def may_have_servers(names: set[bytes]) -> bool:
    """Return whether a directory with these names may be used by a server."""
    joined = b"\0".join(names) + b"\0"
    return not MARKER_FILES.isdisjoint(names) or any(
        tail + b"\0" in joined for tail in (LMDB_LOCK, REDIS_LOG_MARK)
    )


def report_servers(visit: ScannedDirectory) -> None:
    """Report servers that use the directory, which must be the current directory."""
    names = {*visit.names, *visit.subdirectories}
    if not MARKER_FILES.isdisjoint(names):
        _report_directory(visit, names)
    for name in names:
        if name.endswith(LMDB_LOCK):
            _report_lmdb_file(visit, name.removesuffix(LMDB_LOCK))
        elif name.endswith(REDIS_LOG_MARK):
            _report_in_use(visit, "Redis", _process_in(b"..", REDIS))


def _report_directory(visit: ScannedDirectory, names: set[bytes]) -> None:
    for kind in LOCK_FILE_RULES:
        if kind.mark in names and _has_locks(kind.lock):
            _report_in_use(visit, kind.server, 0)
    if CLUSTER_MARK in names:
        _report_in_use(visit, "PostgreSQL", _postgres())
    if not REDIS_MARKS.isdisjoint(names):
        _report_in_use(visit, "Redis", _process_in(b".", REDIS))


def _report_lmdb_file(visit: ScannedDirectory, name: bytes) -> None:
    if _read_bytes(name, LMDB_MAGIC_AT, len(LMDB_MAGIC)) == LMDB_MAGIC and _has_locks(name + LMDB_LOCK):
        visit.report_missing(
            name,
            MissingReason.UNSTABLE,
            "another program has this LMDB file open: the copy may be torn",
        )


def _report_in_use(visit: ScannedDirectory, server: str, process: int | None) -> None:
    if process is not None:
        process_text = f" (process {process})" if process else ""
        visit.report_missing(
            b"",
            MissingReason.UNSTABLE,
            f"{server} is using it{process_text}: take a dump",
        )


def _has_locks(name: bytes) -> bool:
    """Return whether another process has locked any part of a file."""
    try:
        descriptor = open_file(name)
    except (FileVanished, Unreadable, KindChanged):
        return False
    try:
        return is_locked(descriptor, 0, 0)
    finally:
        os.close(descriptor)


def _read_bytes(name: bytes, start: int, size: int) -> bytes:
    try:
        descriptor = open_file(name)
    except (FileVanished, Unreadable, KindChanged):
        return b""
    try:
        return read_exactly(descriptor, size, start)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _postgres() -> int | None:
    """Return the process of a PostgreSQL server. The process named in the lock file may be gone and its id
    reused."""
    if not stat.S_ISREG(_mode(CLUSTER_LOCK)):
        return None
    named = _read_bytes(CLUSTER_LOCK, 0, 64).partition(b"\n")[0].strip()
    if named.isdigit() and _is_alive(int(named)) and _is_in(named, b".") is not False:
        return int(named)
    # Inside a container the server has another process id.
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
        return True  # of another user
    except (OSError, OverflowError):
        return False
    return True


def _process_in(directory: bytes, names: tuple[bytes, ...]) -> int | None:
    """Return a process with one of these names that has the directory as working directory."""
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
    """Return whether the directory is the working directory of a process; None if that cannot be read."""
    try:
        return os.path.samestat(os.stat(os.path.join(PROCESSES, process, b"cwd")), os.stat(directory))
    except OSError:
        return None


# Group SQLite databases with their logs or journals.


def find_database_files(visit: ScannedDirectory) -> None:
    """Group databases with their sidecars, so that they are read together, not file by file.

    The directory must be the current directory. Shared memory files contain no data and are dropped.
    """
    if not visit.names_end_with(SIDECARS):
        return
    sidecars = [leaf for leaf in visit.leaves if database_of_sidecar(leaf.name) is not None]
    by_name = {leaf.name: leaf for leaf in visit.leaves}
    databases: dict[bytes, list[ScannedEntry]] = {}
    bases = _databases(by_name, sidecars)
    for leaf in sidecars:
        base = by_name.get(database_of_sidecar(leaf.name) or b"")
        if base is None or base.name not in bases:
            continue
        if leaf.name.endswith(SHARED_MEMORY):
            visit.drop([leaf])
            if leaf in visit.unread:
                visit.unread.remove(leaf)
        else:
            leaf.is_append_only = leaf.name.endswith(LOG)
            databases.setdefault(base.name, []).append(leaf)
    for name, unit_sidecars in databases.items():
        _add_unit(visit, by_name[name], unit_sidecars)


def _add_unit(visit: ScannedDirectory, database: ScannedEntry, sidecars: list[ScannedEntry]) -> None:
    members = [database, *sidecars]
    # All files of a unit are read together if any of them changed.
    if not any(leaf.is_pending for leaf in members):
        return
    visit.unread = [leaf for leaf in visit.unread if leaf not in members]
    visit.databases.append((database, sidecars))


def _databases(by_name: dict[bytes, ScannedEntry], sidecars: list[ScannedEntry]) -> set[bytes]:
    """Return the names of the databases that sidecars belong to; an encrypted one is recognised by its
    sidecar."""
    found: set[bytes] = set()
    for leaf in sidecars:
        base = by_name.get(database_of_sidecar(leaf.name) or b"")
        if base is None or base.name in found or not stat.S_ISREG(base.row[MODE]):
            continue
        if _test_open_file(base, is_database, base.row[SIZE]) or _test_open_file(leaf, is_sidecar, leaf.name):
            found.add(base.name)
    return found


def _test_open_file(leaf: ScannedEntry, question: Callable[[int, Any], bool], hint: object) -> bool:
    """Return the result of `question` for an open file; False if it cannot be opened."""
    try:
        descriptor = open_file(leaf.name)
    except (FileVanished, Unreadable, KindChanged):
        return False
    try:
        return question(descriptor, hint)
    finally:
        os.close(descriptor)
