"""Holds a SQLite database still while it is read, by the very locks that SQLite's own readers take.

The files themselves are what a snapshot keeps, raw and exact: the database and its log or journal as one unit. Opening
the database through SQLite instead would write into the user's files (even a read-only connection rewrites the
`-shm`), or would keep a copy that is no longer the same bytes.

- In rollback mode a writer changes the database only under an exclusive lock. With the shared one held, the file is
  as the last commit left it; a journal next to it belongs to a transaction that has changed nothing yet, unless
  nobody holds the reserved lock: then it is hot, left by a crash, and belongs to the unit.
- In WAL mode the database changes only while somebody checkpoints, and the log is only appended to unless somebody
  starts it over. Both need locks in the `-shm` that a shared one on the same bytes keeps from them. Writers go on
  writing; what was committed before we looked is in what we read, and a torn tail is what recovery drops.
- What is not there cannot be locked: a database without a log may be opened, and get one, while we read. So it is
  asked afterwards whether everything still is what it was.

The `-shm` holds no data and is never part of a snapshot. Locks belong to a process and go when it closes any
descriptor of the file: this must run in a worker of our own, never inside a program that uses the database itself.
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

from git_envhist.lazy import dataclass
from git_envhist.model import SQLITE_HEADER, SQLITE_SIDECARS, MissingReason
from git_envhist.model.entries import database_of_sidecar
from git_envhist.platform import open_itself
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
"""The lock of one reader of the log. It keeps the log from being started over, for which all of them are needed; the
others are left to readers, who wait for us where they find none."""

DATABASE_LOCK_TIMEOUT = 5.0
"""For how long a database is waited for."""
DATABASES_WAITED_FOR, LEAST_SECONDS = 2, 0.05
"""So many may cost all of that; each further one that is kept from us costs no more than a look."""
LINUX, BSD = struct.Struct("hhqqi4x"), struct.Struct("qqihh")
"""`struct flock`, as the C libraries lay it out."""
BUSY = (errno.EAGAIN, errno.EACCES)


Identity = tuple[int, int]


class DatabaseBusy(Exception):
    """The database could not be held still, and why."""


@dataclass(frozen=True, slots=True)
class DatabaseLock:
    """A database that stands still."""

    is_hot: bool
    """A journal is there that a crash has left. One that comes later, or that somebody is writing, belongs to a
    transaction that has changed nothing yet, and is of no use to anybody else."""
    memory: Identity | None
    """The shared memory whose locks are held."""


def is_sidecar(descriptor: int, name: bytes) -> bool:
    """Whether an open file is the log or the journal of a database, by its first bytes: those of an encrypted
    database, which cannot be told by its own, stand in the clear."""
    if name.endswith(LOG):
        return _first_bytes(descriptor, 4) in LOG_MAGIC
    return name.endswith(JOURNAL) and _first_bytes(descriptor, len(JOURNAL_MAGIC)) == JOURNAL_MAGIC


def is_database(descriptor: int, size: int) -> bool:
    """Whether an open file is a SQLite database, by its first bytes."""
    if size < SMALLEST_PAGE or size % SMALLEST_PAGE:
        return False
    return _first_bytes(descriptor, len(SQLITE_HEADER)) == SQLITE_HEADER


def _first_bytes(descriptor: int, size: int) -> bytes:
    try:
        return os.pread(descriptor, size, 0)
    except OSError:
        return b""  # whoever reads the whole of it will say what is wrong


class WaitBudget:
    """What is left of the time that a capture waits for databases."""

    def __init__(self) -> None:
        self._left = DATABASE_LOCK_TIMEOUT * DATABASES_WAITED_FOR

    @contextmanager
    def waiting(self) -> Iterator[float]:
        """Until when to wait; how long it was is counted."""
        started = time.monotonic()
        try:
            yield started + max(LEAST_SECONDS, min(DATABASE_LOCK_TIMEOUT, self._left))
        finally:
            self._left -= time.monotonic() - started


@contextmanager
def locked_database(descriptor: int, name: bytes, patience: WaitBudget) -> Iterator[DatabaseLock]:
    """Hold the database that is open on `descriptor` and called `name` here; `DatabaseBusy` where somebody else won't
    let go of it in time, or where the file system knows no locks."""
    with patience.waiting() as deadline:
        _patiently(lambda: _share_database(descriptor), deadline)
    memory = -1
    try:
        memory = _open_memory(name)
        if memory >= 0:
            with patience.waiting() as deadline:
                _patiently(lambda: _share_log(memory), deadline)
        # In this order: a journal that is there although nobody writes was there before we came.
        has_journal = os.path.lexists(name + JOURNAL)
        is_hot = has_journal and not is_locked(descriptor, RESERVED_BYTE)
        yield DatabaseLock(is_hot, _identity(os.fstat(memory)) if memory >= 0 else None)
    finally:
        if memory >= 0:
            os.close(memory)
        with suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_UN, SHARED_SIZE, SHARED_FIRST)


def changed_during_lock(descriptor: int, name: bytes, hold: DatabaseLock) -> str | None:
    """What has happened, to be asked at the end of the hold, that the locks could not keep away."""
    if _identity_of(name) != _identity(os.fstat(descriptor)):
        return "another one took its place"
    if _identity_of(name + SHARED_MEMORY) != hold.memory:
        return "somebody opened it"
    return None


def _identity_of(name: bytes) -> Identity | None:
    try:
        return _identity(os.lstat(name))
    except OSError:
        return None


def _identity(seen: os.stat_result) -> Identity:
    return seen.st_dev, seen.st_ino


def _share_database(descriptor: int) -> None:
    # Through the pending byte, as SQLite does: a writer that waits for readers to end lets no new one in.
    fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, PENDING_BYTE)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, SHARED_SIZE, SHARED_FIRST)
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, PENDING_BYTE)


def _share_log(memory: int) -> None:
    fcntl.lockf(memory, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, CHECKPOINT_BYTE)
    try:
        fcntl.lockf(memory, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, READER_BYTE)
    except OSError:
        fcntl.lockf(memory, fcntl.LOCK_UN, 1, CHECKPOINT_BYTE)
        raise


def _open_memory(name: bytes) -> int:
    try:
        return open_itself(name + SHARED_MEMORY, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    except OSError as error:
        raise DatabaseBusy(
            f"its shared memory cannot be opened: {os.strerror(error.errno or 0).lower()}"
        ) from error


def _patiently(lock: object, deadline: float) -> None:
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
        # Programs that write and checkpoint one after the other let a reader in for moments only: look often.
        wait = min(wait * 2, 0.000_4)


def is_locked(descriptor: int, byte: int, length: int = 1) -> bool:
    """Whether another process has a lock on some bytes that would keep us from writing them; 0: all from there on."""
    is_linux = sys.platform.startswith("linux")
    asked = (
        LINUX.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, length, 0)
        if is_linux
        else BSD.pack(byte, length, 0, fcntl.F_WRLCK, os.SEEK_SET)
    )
    try:
        told = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    except OSError:
        return False
    kind = LINUX.unpack(told)[0] if is_linux else BSD.unpack(told)[3]
    return bool(kind != fcntl.F_UNLCK)


# Takes a database and what belongs to it as they are at one moment, while it is held still.

HOLD_TRIES = 3


class Keeper(Protocol):
    """What takes content into the store."""

    @property
    def patience(self) -> WaitBudget:
        """What is left of the time that locks are waited for."""
        ...

    def take(self, visit: ScannedDirectory, leaf: ScannedEntry) -> bool:
        """Take what stands under a name; False where it is no leaf any more."""
        ...

    def take_open(self, visit: ScannedDirectory, leaf: ScannedEntry, descriptor: int) -> None:
        """Take an open file."""
        ...

    def forget(self) -> Callable[[], None]:
        """What undoes all that is taken from here on."""
        ...


class DatabaseFiles:
    """An open database with its sidecars.

    Until it is taken nothing else may open the database here: closing it would let go of our locks.
    """

    def __init__(
        self,
        keeper: Keeper,
        visit: ScannedDirectory,
        database: ScannedEntry,
        sidecars: list[ScannedEntry],
        descriptor: int,
    ) -> None:
        self._keeper = keeper
        self._visit = visit
        self._database = database
        self._sidecars = list(sidecars)
        self._descriptor = descriptor
        self._belated: list[ScannedEntry] = []

    def take(self) -> list[ScannedEntry]:
        """Take all of it; those that are no leaves any more."""
        try:
            return self._take()
        except Unreadable as reason:
            self._visit.miss(self._database.name, reason.why, reason.detail)
            return [self._database, *self._sidecars]
        except Exception:
            self._visit.leaves = [leaf for leaf in self._visit.leaves if leaf not in self._belated]
            raise

    def _take(self) -> list[ScannedEntry]:
        noted, undo = len(self._visit.missing), self._keeper.forget()
        moved: str | None = None
        gone: list[ScannedEntry] = []
        for attempt in range(HOLD_TRIES):
            if attempt:
                del self._visit.missing[noted:]
                undo()
            try:
                with locked_database(self._descriptor, self._database.name, self._keeper.patience) as hold:
                    gone = self._take_held(hold)
                    moved = changed_during_lock(self._descriptor, self._database.name, hold)
            except DatabaseBusy as reason:
                gone = self._take_held(None)
                moved = str(reason)
                break
            if moved is None and not self._lacks_a_place(gone):
                return gone
        self._tell(moved or "somebody opened it while it was read")
        return [leaf for leaf in gone if leaf in self._visit.leaves]

    def _take_held(self, hold: DatabaseLock | None) -> list[ScannedEntry]:
        if hold is not None:
            self._find_belated(hold)
        self._take_database()
        return [leaf for leaf in self._sidecars if not self._take_sidecar(leaf, hold)]

    def _find_belated(self, hold: DatabaseLock) -> None:
        """What belongs to the database by now, and did not when the directory was looked at."""
        known = {leaf.name for leaf in self._sidecars}
        for suffix in (LOG, JOURNAL) if hold.is_hot else (LOG,):
            name = self._database.name + suffix
            if name not in known and os.path.lexists(name):
                self._sidecars.append(self._leaf_of(name))

    def _leaf_of(self, name: bytes) -> ScannedEntry:
        visit = self._visit
        leaf = next((leaf for leaf in visit.leaves if leaf.name == name), None)
        if leaf is None:
            leaf = ScannedEntry(name, ())
            self._belated.append(leaf)
            # A file that is taken alone has no directory here that the others could be put in.
            if self._database in visit.leaves:
                insort(visit.leaves, leaf, key=lambda other: other.name)
        elif leaf in visit.unread:
            visit.unread.remove(leaf)
        leaf.grows = name.endswith(LOG)
        return leaf

    def _lacks_a_place(self, gone: list[ScannedEntry]) -> bool:
        return self._database not in self._visit.leaves and any(leaf not in gone for leaf in self._belated)

    def _take_database(self) -> None:
        leaf = self._database
        if not leaf.waits:
            seen = stat_of(self._descriptor)
            if COLUMNS(seen) == leaf.row:
                return  # as it was at the last capture
            leaf.waits, leaf.row = True, COLUMNS(seen)
        self._keeper.take_open(self._visit, leaf, self._descriptor)

    def _take_sidecar(self, leaf: ScannedEntry, hold: DatabaseLock | None) -> bool:
        if hold is not None and not hold.is_hot and leaf.name.endswith(JOURNAL):
            return False
        try:
            leaf.row = COLUMNS(os.lstat(leaf.name))
        except OSError as error:
            self._visit.miss_for(error, leaf.name)
            return False
        leaf.waits = True
        return self._keeper.take(self._visit, leaf)

    def _tell(self, what: str) -> None:
        self._visit.miss(self._database.name, MissingReason.UNSTABLE, f"its database is in use: {what}")
        for leaf in (self._database, *self._sidecars):
            # However still it stands from now on, what was read is no state of it: to be read afresh next time.
            leaf.row = (0, *leaf.row[1:])


# Directories that a database server works on: read file by file they are no state of its data, and it is said so.
#
# What tells is the server's own sign, never a guess by names: the lock that it keeps on a file of its own for as long
# as it runs (a crash lets go of it), or a process of its name that has the directory as its working directory. Who
# works where we can see neither (on another machine, in a container whose processes are hidden from us) is not seen.

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


# Files that are only worth something together: a SQLite database with its log or journal.


def find_database_files(visit: ScannedDirectory) -> None:
    """Set databases with sidecars apart from what is read file by file; called with their directory entered.

    The shared memory of a log holds no data, and is no entry.
    """
    if not visit.names_end_with(SIDECARS):
        return
    sidecars = [leaf for leaf in visit.leaves if database_of_sidecar(leaf.name) is not None]
    by_name = {leaf.name: leaf for leaf in visit.leaves}
    units: dict[bytes, list[ScannedEntry]] = {}
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
            leaf.grows = leaf.name.endswith(LOG)
            units.setdefault(base.name, []).append(leaf)
    for name, belonging in units.items():
        _set_apart(visit, by_name[name], belonging)


def _set_apart(visit: ScannedDirectory, database: ScannedEntry, sidecars: list[ScannedEntry]) -> None:
    members = [database, *sidecars]
    # Whatever is still to be read brings the others along: they are true for one moment only together.
    if not any(leaf.waits for leaf in members):
        return
    visit.unread = [leaf for leaf in visit.unread if leaf not in members]
    visit.units.append((database, sidecars))


def _databases(by_name: dict[bytes, ScannedEntry], sidecars: list[ScannedEntry]) -> set[bytes]:
    """The names of the databases that sidecars belong to; an encrypted one is known by these alone."""
    found: set[bytes] = set()
    for leaf in sidecars:
        base = by_name.get(database_of_sidecar(leaf.name) or b"")
        if base is None or base.name in found or not stat.S_ISREG(base.row[MODE]):
            continue
        if _answers(base, is_database, base.row[SIZE]) or _answers(leaf, is_sidecar, leaf.name):
            found.add(base.name)
    return found


def _answers(leaf: ScannedEntry, question: Callable[[int, Any], bool], hint: object) -> bool:
    """What is to be said of an open file; no, where it cannot be opened."""
    try:
        descriptor = open_file(leaf.name)
    except (FileVanished, Unreadable, KindChanged):
        return False
    try:
        return question(descriptor, hint)
    finally:
        os.close(descriptor)
