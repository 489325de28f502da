"""From a path to what a snapshot keeps of it: bytes read, sealed where secret, in pieces where big."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from git_envhist.errors import StorageFull
from git_envhist.lazy import dataclass
from git_envhist.model import MissingReason, StoredAs
from git_envhist.paths import join
from git_envhist.worktree.attributes import Attributes, ExtrasFormat, leaf_extras, read_xattrs
from git_envhist.worktree.databases import DatabaseFiles, WaitBudget, is_database
from git_envhist.worktree.read_file import (
    BLOCK,
    Block,
    FileRead,
    FileVanished,
    GrewTooLarge,
    KindChanged,
    Unreadable,
    lstat_of,
    open_with_stat,
    read_file,
    read_streamed,
    unreadable,
)
from git_envhist.worktree.scan import ScannedDirectory, ScannedEntry
from git_envhist.worktree.stat_cache import COLUMNS, INODE, MODE, SIZE
from git_envhist.worktree.twins import Twins

# The keyed hash of a file that is too large to be held: of what stands in it, however it is given.

NULS = bytes(BLOCK)


def chained(keyed_hash: Callable[[bytes], bytes], blocks: Iterable[Block]) -> bytes:
    """A chain of keyed hashes over blocks: bounded memory, nothing unkeyed, and nothing of a hole is looked at."""
    digest = b""
    for block in _evenly(blocks):
        # How many blocks of NULs there are is told behind one of them: no block is as long.
        digest = keyed_hash(digest + (block if isinstance(block, bytes) else NULS + b"%d" % block))
    return digest or keyed_hash(b"")


def _evenly(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same bytes in blocks of one size; for blocks of nothing but NULs, how many there are in a row."""
    nuls, held = 0, b""
    for block in blocks:
        for part in _whole(held, block):
            if isinstance(part, int):
                nuls += part
            elif len(part) < BLOCK:
                held = part
            elif part == NULS:
                nuls += 1
            else:
                if nuls:
                    yield nuls
                    nuls = 0
                yield part
    if nuls:
        yield nuls
    if held:
        yield held


def _whole(held: bytes, block: Block) -> Iterator[Block]:
    """What was held and a block behind it: whole blocks, whole blocks of a hole by their number, and at last what is
    left, if only nothing."""
    if isinstance(block, int):
        missing = -len(held) % BLOCK
        if block < missing:
            yield held + bytes(block)
            return
        if held:
            yield held + bytes(missing)
        whole, rest = divmod(block - missing, BLOCK)
        if whole:
            yield whole
        yield bytes(rest)
        return
    data = held + block if held else block
    end = len(data) - len(data) % BLOCK
    for at in range(0, end, BLOCK):
        yield data[at : at + BLOCK]
    yield data[end:]


# What is to become of the bytes of a path, and what the store must offer to those who bring them.


@dataclass(frozen=True, slots=True)
class ContentPolicy:
    """How the bytes of a path are to be kept."""

    secret_name: Callable[[bytes], bool]
    secret_names: Callable[[bytes], Callable[[bytes], bool]]
    """(directory) -> the same for the names of the files right in it."""
    scans_content: Callable[[bytes], bool]
    secret_content: Callable[[bytes, bytes], bool]
    excluded: Callable[[bytes], bool]
    """The user said that a path is not secret."""
    fingerprinted: Callable[[bytes], bool] | None
    seal: Callable[[bytes, bytes], bytes] | None
    """(path, bytes) -> sealed bytes; None where no key can be had."""
    keyed_hash: Callable[[bytes], bytes] | None
    big_file: int
    holds_databases: bool
    """Locks may be taken: this process is ours alone."""
    scan_limit: int = 64 << 10


Mark = tuple[int, int, int]


class BlobStore(Protocol):
    """Where bytes go; all that this room needs to know of the store."""

    def add_blob(self, data: bytes) -> bytes:
        """Keep some bytes; their id."""
        ...

    def add_big(self, blocks: Iterator[Block]) -> tuple[int, bytes, bytes]:
        """Keep a big file in pieces: its size, the id of the pointer that stands for it, and of its pieces' tree."""
        ...

    def mark(self) -> Mark:
        """This moment, for `forget`."""
        ...

    def forget(self, mark: Mark) -> None:
        """Undo everything that was added since."""
        ...

    def added_bytes(self) -> int:
        """How many bytes this capture has stored so far, in all of its processes."""
        ...


KIND_TRIES = 3
MAX_SEALED = 1 << 30
"""A seal is made in memory, in one piece."""


class BudgetExceeded(Exception):
    """No more bytes may be added."""


class FileSaver:
    """Takes the content of leaves into the store."""

    def __init__(
        self, store: BlobStore, extras: ExtrasFormat, policy: ContentPolicy, budget: int, home_device: int
    ) -> None:
        self._store = store
        self._extras = extras
        self._policy = policy
        self._budget = budget
        self._home_device = home_device
        self.patience = WaitBudget()
        self._scans: tuple[bytes, bool] = (b"", False)
        self.twins = Twins(b"")

    def take(self, visit: ScannedDirectory, leaf: ScannedEntry) -> bool:
        """Fill in a leaf's id and extras; False where the path is gone or cannot be had, and is no leaf any more."""
        for _ in range(KIND_TRIES):
            try:
                self._take(visit, leaf)
                leaf.waits = False
                return True
            except FileVanished:
                return False
            except Unreadable as reason:
                visit.miss(leaf.name, reason.why, reason.detail)
                return False
            except KindChanged:
                if not _look_again(visit, leaf):
                    return False
        visit.miss(leaf.name, MissingReason.UNSTABLE, "it kept turning into something else")
        return False

    def take_unit(
        self, visit: ScannedDirectory, database: ScannedEntry, sidecars: list[ScannedEntry], descriptor: int
    ) -> list[ScannedEntry]:
        """Take an open database and its sidecars as they are at one moment; those that are no leaves any more."""
        return DatabaseFiles(self, visit, database, sidecars, descriptor).take()

    def take_open(self, visit: ScannedDirectory, leaf: ScannedEntry, descriptor: int) -> None:
        """Take an open file."""
        self._take_open(visit, leaf, join(visit.path, leaf.name), descriptor)

    def forget(self) -> Callable[[], None]:
        """What undoes all that is taken from here on."""
        return partial(self._store.forget, self._store.mark())

    def _take(self, visit: ScannedDirectory, leaf: ScannedEntry) -> None:
        kind = stat.S_IFMT(leaf.row[MODE])
        if kind == stat.S_IFREG:
            self._take_file(visit, leaf)
        elif kind == stat.S_IFLNK:
            self._take_link(visit, leaf)
        elif kind == stat.S_IFDIR:
            raise Unreadable(MissingReason.UNSTABLE, "it became a directory while it was read")
        else:
            self._take_node(visit, leaf)

    def _take_node(self, visit: ScannedDirectory, leaf: ScannedEntry) -> None:
        seen = lstat_of(leaf.name)
        # A pipe that is written to has another time at every look.
        if stat.S_IFMT(seen.st_mode) != stat.S_IFMT(leaf.row[MODE]):
            raise KindChanged
        leaf.row = COLUMNS(seen)
        leaf.extras = self._describe(visit, leaf, seen, read_xattrs(leaf.name))

    def _take_link(self, visit: ScannedDirectory, leaf: ScannedEntry) -> None:
        try:
            target = os.readlink(leaf.name)
            seen = os.lstat(leaf.name)
        except FileNotFoundError as gone:
            raise FileVanished from gone
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise KindChanged from error
            raise unreadable(error) from error
        if COLUMNS(seen) != leaf.row:
            raise KindChanged
        leaf.oid = self._store.add_blob(target)
        leaf.extras = self._describe(visit, leaf, seen, read_xattrs(leaf.name))

    def _take_file(self, visit: ScannedDirectory, leaf: ScannedEntry) -> None:
        descriptor, seen = open_with_stat(leaf.name)
        try:
            size = leaf.row[SIZE]
            if self._is_held(descriptor, size):
                self._take_lone_database(visit, leaf, descriptor)
                return
            self._take_open(visit, leaf, join(visit.path, leaf.name), descriptor, seen)
            if leaf.row[SIZE] != size and self._is_held(descriptor, leaf.row[SIZE]):
                raise KindChanged  # it is a database by now
        finally:
            os.close(descriptor)

    def _is_held(self, descriptor: int, size: int) -> bool:
        return self._policy.holds_databases and is_database(descriptor, size)

    def _take_lone_database(self, visit: ScannedDirectory, leaf: ScannedEntry, descriptor: int) -> None:
        gone = self.take_unit(visit, leaf, [], descriptor)
        if gone:
            visit.leaves = [other for other in visit.leaves if other is leaf or other not in gone]
        if leaf in gone:
            raise FileVanished

    def _take_open(
        self,
        visit: ScannedDirectory,
        leaf: ScannedEntry,
        path: bytes,
        descriptor: int,
        seen: os.stat_result | None = None,
    ) -> None:
        policy = self._policy
        if policy.fingerprinted is not None and policy.fingerprinted(path):
            self._fingerprint(visit, leaf, descriptor)
        elif self._is_secret(visit, leaf, path):
            self._take_secret(visit, leaf, path, descriptor)
        else:
            try:
                read = read_file(descriptor, seen, grows=leaf.grows, limit=policy.big_file)
            except GrewTooLarge:
                if not self._take_big_twin(visit, leaf, path, descriptor):
                    self._take_big(visit, leaf, descriptor)
            else:
                self._take_small(visit, leaf, path, descriptor, read)

    def _take_small(
        self, visit: ScannedDirectory, leaf: ScannedEntry, path: bytes, descriptor: int, read: FileRead
    ) -> None:
        if self._holds_secret(visit.path, path, read.data) or self._is_copy(path, read.data):
            self._put(visit, leaf, descriptor, read, self._sealed(path, read.data), StoredAs.SEALED)
        else:
            self._put(visit, leaf, descriptor, read, read.data, StoredAs.PLAIN)

    def _is_secret(self, visit: ScannedDirectory, leaf: ScannedEntry, path: bytes) -> bool:
        """Whether a file is secret by its name, or is one that has another name that is."""
        secret = self._policy.secret_name(path) if leaf.secret is None else leaf.secret
        if secret or (visit.own.st_dev, leaf.row[INODE]) not in self.twins.files:
            return secret
        return not self._policy.excluded(path)

    def _is_copy(self, path: bytes, data: bytes) -> bool:
        return self.twins.has_content(data) and not self._policy.excluded(path)

    def _take_big_twin(
        self, visit: ScannedDirectory, leaf: ScannedEntry, path: bytes, descriptor: int
    ) -> bool:
        """Take a big file that is the copy of a sealed one; False where it is none."""
        if leaf.row[SIZE] not in self.twins.sizes:
            return False
        read = read_file(descriptor, grows=leaf.grows, limit=MAX_SEALED)
        if not self._is_copy(path, read.data):
            return False
        self._put(visit, leaf, descriptor, read, self._sealed(path, read.data), StoredAs.SEALED)
        return True

    def _take_secret(self, visit: ScannedDirectory, leaf: ScannedEntry, path: bytes, descriptor: int) -> None:
        try:
            read = read_file(descriptor, grows=leaf.grows, limit=MAX_SEALED)
        except GrewTooLarge:
            raise Unreadable(MissingReason.BUDGET, "it is secret, and too large to be sealed") from None
        self._put(visit, leaf, descriptor, read, self._sealed(path, read.data), StoredAs.SEALED)

    def _sealed(self, path: bytes, data: bytes) -> bytes:
        if self._policy.seal is None:
            raise Unreadable(MissingReason.NO_KEY, "it is secret, and no key can be kept here to seal it")
        return self._policy.seal(path, data)

    def _put(
        self,
        visit: ScannedDirectory,
        leaf: ScannedEntry,
        descriptor: int,
        read: FileRead,
        data: bytes,
        stored: StoredAs,
    ) -> None:
        store = self._store
        mark = store.mark()
        try:
            leaf.oid = store.add_blob(data)
            self._check_budget()
        except (BudgetExceeded, StorageFull) as full:
            # What fills the disk is left out like what fills the budget: there may be room for all the rest.
            store.forget(mark)
            raise BudgetExceeded from full
        self._settle(visit, leaf, read.stat, descriptor, stored, read.stable)

    def _take_big(self, visit: ScannedDirectory, leaf: ScannedEntry, descriptor: int) -> None:
        mark = self._store.mark()
        result: list[tuple[int, bytes, bytes]] = []

        def consume(blocks: Iterator[Block]) -> None:
            self._store.forget(mark)
            result[:] = [self._store.add_big(self._within_budget(blocks))]
            self._check_budget()

        try:
            seen, stable = read_streamed(descriptor, consume, grows=leaf.grows)
        except Unreadable:
            self._store.forget(mark)
            raise
        except (BudgetExceeded, StorageFull) as full:
            self._store.forget(mark)
            raise BudgetExceeded from full
        _, leaf.oid, leaf.pieces = result[0]
        self._settle(visit, leaf, seen, descriptor, StoredAs.PIECES, stable)

    def _within_budget(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            yield block
            self._check_budget()

    def _check_budget(self) -> None:
        if self._store.added_bytes() > self._budget:
            raise BudgetExceeded

    def _fingerprint(self, visit: ScannedDirectory, leaf: ScannedEntry, descriptor: int) -> None:
        if self._policy.keyed_hash is None:
            raise Unreadable(MissingReason.NO_KEY, "no key can be kept here to take its fingerprint with")
        parts: list[bytes] = []
        keyed_hash = self._policy.keyed_hash

        def consume(blocks: Iterator[Block]) -> None:
            parts[:] = [chained(keyed_hash, blocks)]

        seen, stable = read_streamed(descriptor, consume)
        leaf.oid = b""
        self._settle(visit, leaf, seen, descriptor, StoredAs.FINGERPRINT, stable, parts[0])

    def _settle(
        self,
        visit: ScannedDirectory,
        leaf: ScannedEntry,
        seen: os.stat_result,
        descriptor: int,
        stored: StoredAs,
        stable: bool,
        digest: bytes | None = None,
    ) -> None:
        leaf.row = COLUMNS(seen) if stable else (0, *COLUMNS(seen)[1:])
        leaf.extras = self._describe(visit, leaf, seen, read_xattrs(descriptor), stored, digest)
        if not stable:
            visit.miss(leaf.name, MissingReason.UNSTABLE, "it changed during every reading")

    def _holds_secret(self, directory: bytes, path: bytes, data: bytes) -> bool:
        policy = self._policy
        if len(data) > policy.scan_limit:
            return False
        if self._scans[0] != directory or not self._scans[0]:
            self._scans = (directory, policy.scans_content(directory))
        return self._scans[1] and policy.secret_content(path, data)

    def _describe(
        self,
        visit: ScannedDirectory,
        leaf: ScannedEntry,
        seen: os.stat_result,
        attributes: Attributes,
        stored: StoredAs = StoredAs.PLAIN,
        digest: bytes | None = None,
    ) -> bytes:
        xattrs, unread = attributes
        if unread:
            # A change time of zero never matches: the next capture reads the attributes again.
            leaf.row = (0, *leaf.row[1:])
            visit.miss(leaf.name, MissingReason.ATTRIBUTES, unread)
        return leaf_extras(self._extras, visit.own, seen, self._home_device, xattrs, stored, digest)


def _look_again(visit: ScannedDirectory, leaf: ScannedEntry) -> bool:
    try:
        leaf.row = COLUMNS(os.lstat(leaf.name))
    except OSError as error:
        visit.miss_for(error, leaf.name)
        return False
    return True
