"""Store the content of files: plain, sealed, in chunks, or only as a fingerprint.

`FileSaver` reads each path with `read_file` or `databases`, applies the `ContentPolicy`, and writes through a
`BlobStore`. It fills in the id and the manifest words of the entry.
"""

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
from git_envhist.worktree.databases import DatabaseFiles, WaitBudget, is_database
from git_envhist.worktree.owner_and_xattrs import Attributes, ExtrasFormat, leaf_extras, read_xattrs
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
from git_envhist.worktree.sealed_copies import SealedSources
from git_envhist.worktree.stat_cache import COLUMNS, INODE, MODE, SIZE

# Keyed hash of a file too large for memory; the result depends only on the content, not on how it was split.

NULS = bytes(BLOCK)


def chained_hash(keyed_hash: Callable[[bytes], bytes], blocks: Iterable[Block]) -> bytes:
    """Return a chain of keyed hashes over blocks, in bounded memory; holes are not read."""
    digest = b""
    for block in _equal_blocks(blocks):
        # A run of zero blocks is hashed as one block followed by their number; no other block is that long.
        digest = keyed_hash(digest + (block if isinstance(block, bytes) else NULS + b"%d" % block))
    return digest or keyed_hash(b"")


def _equal_blocks(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the same bytes in blocks of equal size; a run of zero blocks as their number."""
    nuls, rest = 0, b""
    for block in blocks:
        for part in _full_blocks(rest, block):
            if isinstance(part, int):
                nuls += part
            elif len(part) < BLOCK:
                rest = part
            elif part == NULS:
                nuls += 1
            else:
                if nuls:
                    yield nuls
                    nuls = 0
                yield part
    if nuls:
        yield nuls
    if rest:
        yield rest


def _full_blocks(rest: bytes, block: Block) -> Iterator[Block]:
    """Yield full blocks of `rest` + `block` (holes as a number of blocks), then the remainder, which may be
    empty."""
    if isinstance(block, int):
        missing = -len(rest) % BLOCK
        if block < missing:
            yield rest + bytes(block)
            return
        if rest:
            yield rest + bytes(missing)
        whole, remainder = divmod(block - missing, BLOCK)
        if whole:
            yield whole
        yield bytes(remainder)
        return
    data = rest + block if rest else block
    end = len(data) - len(data) % BLOCK
    for at in range(0, end, BLOCK):
        yield data[at : at + BLOCK]
    yield data[end:]


# How content is stored, and the interface of the store.


@dataclass(frozen=True, slots=True)
class ContentPolicy:
    """Rules that decide how the content of a path is stored."""

    secret_name: Callable[[bytes], bool]
    secret_names: Callable[[bytes], Callable[[bytes], bool]]
    """(directory) -> the same test for names of files in that directory."""
    scans_content: Callable[[bytes], bool]
    secret_content: Callable[[bytes, bytes], bool]
    excluded: Callable[[bytes], bool]
    """The user declared the path not secret."""
    fingerprinted: Callable[[bytes], bool] | None
    seal: Callable[[bytes, bytes], bytes] | None
    """(path, bytes) -> sealed bytes; None without a key."""
    keyed_hash: Callable[[bytes], bytes] | None
    big_file: int
    holds_databases: bool
    """True if this process may take POSIX locks: it runs no other program's code."""
    scan_limit: int = 64 << 10


Mark = tuple[int, int, int]


class BlobStore(Protocol):
    """Interface of the store that contents are written to."""

    def add_blob(self, data: bytes) -> bytes:
        """Store a blob and return its id."""
        ...

    def add_big(self, blocks: Iterator[Block]) -> tuple[int, bytes, bytes]:
        """Store a big file in chunks; return its size, the id of its pointer blob, and that of its chunk
        tree."""
        ...

    def mark(self) -> Mark:
        """Return the current position, for `forget`."""
        ...

    def forget(self, mark: Mark) -> None:
        """Remove everything added since `mark`."""
        ...

    def added_bytes(self) -> int:
        """Return the number of bytes stored by this capture in all processes."""
        ...


TYPE_CHANGE_TRIES = 3
MAX_SEALED = 1 << 30
"""A file is sealed in memory as one piece."""


class BudgetExceeded(Exception):
    """The byte budget of the capture is used up."""


class FileSaver:
    """Store the content of entries."""

    def __init__(
        self, store: BlobStore, extras: ExtrasFormat, policy: ContentPolicy, budget: int, home_device: int
    ) -> None:
        self._store = store
        self._extras = extras
        self._policy = policy
        self._budget = budget
        self._home_device = home_device
        self.wait_budget = WaitBudget()
        self._scans: tuple[bytes, bool] = (b"", False)
        self.twins = SealedSources(b"")

    def store(self, visit: ScannedDirectory, leaf: ScannedEntry) -> bool:
        """Fill in the id and extras of an entry; return False if the path is gone or cannot be read."""
        for _ in range(TYPE_CHANGE_TRIES):
            try:
                self._store_entry(visit, leaf)
                leaf.is_pending = False
                return True
            except FileVanished:
                return False
            except Unreadable as reason:
                visit.report_missing(leaf.name, reason.why, reason.detail)
                return False
            except KindChanged:
                if not _refresh(visit, leaf):
                    return False
        visit.report_missing(leaf.name, MissingReason.UNSTABLE, "its type kept changing")
        return False

    def store_database(
        self, visit: ScannedDirectory, database: ScannedEntry, sidecars: list[ScannedEntry], descriptor: int
    ) -> list[ScannedEntry]:
        """Store an open database and its sidecars in one consistent state; return the entries that cannot be
        stored."""
        return DatabaseFiles(self, visit, database, sidecars, descriptor).store()

    def store_open_file(self, visit: ScannedDirectory, leaf: ScannedEntry, descriptor: int) -> None:
        """Store an open file."""
        self._store_open(visit, leaf, join(visit.path, leaf.name), descriptor)

    def forget(self) -> Callable[[], None]:
        """Return a function that removes everything stored after this call."""
        return partial(self._store.forget, self._store.mark())

    def _store_entry(self, visit: ScannedDirectory, leaf: ScannedEntry) -> None:
        kind = stat.S_IFMT(leaf.row[MODE])
        if kind == stat.S_IFREG:
            self._store_file(visit, leaf)
        elif kind == stat.S_IFLNK:
            self._store_link(visit, leaf)
        elif kind == stat.S_IFDIR:
            raise Unreadable(MissingReason.UNSTABLE, "it became a directory while it was read")
        else:
            self._store_node(visit, leaf)

    def _store_node(self, visit: ScannedDirectory, leaf: ScannedEntry) -> None:
        seen = lstat_of(leaf.name)
        # Compare only the type: the time stamps of a pipe change with every write.
        if stat.S_IFMT(seen.st_mode) != stat.S_IFMT(leaf.row[MODE]):
            raise KindChanged
        leaf.row = COLUMNS(seen)
        leaf.extras = self._describe(visit, leaf, seen, read_xattrs(leaf.name))

    def _store_link(self, visit: ScannedDirectory, leaf: ScannedEntry) -> None:
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

    def _store_file(self, visit: ScannedDirectory, leaf: ScannedEntry) -> None:
        descriptor, seen = open_with_stat(leaf.name)
        try:
            size = leaf.row[SIZE]
            if self._is_lockable_database(descriptor, size):
                self._store_lone_database(visit, leaf, descriptor)
                return
            self._store_open(visit, leaf, join(visit.path, leaf.name), descriptor, seen)
            if leaf.row[SIZE] != size and self._is_lockable_database(descriptor, leaf.row[SIZE]):
                raise KindChanged  # it became a database meanwhile
        finally:
            os.close(descriptor)

    def _is_lockable_database(self, descriptor: int, size: int) -> bool:
        return self._policy.holds_databases and is_database(descriptor, size)

    def _store_lone_database(self, visit: ScannedDirectory, leaf: ScannedEntry, descriptor: int) -> None:
        gone = self.store_database(visit, leaf, [], descriptor)
        if gone:
            visit.leaves = [other for other in visit.leaves if other is leaf or other not in gone]
        if leaf in gone:
            raise FileVanished

    def _store_open(
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
            self._store_secret(visit, leaf, path, descriptor)
        else:
            try:
                read = read_file(descriptor, seen, is_append_only=leaf.is_append_only, limit=policy.big_file)
            except GrewTooLarge:
                if not self._store_big_copy(visit, leaf, path, descriptor):
                    self._store_big(visit, leaf, descriptor)
            else:
                self._store_small(visit, leaf, path, descriptor, read)

    def _store_small(
        self, visit: ScannedDirectory, leaf: ScannedEntry, path: bytes, descriptor: int, read: FileRead
    ) -> None:
        if self._contains_secret(visit.path, path, read.data) or self._is_copy(path, read.data):
            self._put(visit, leaf, descriptor, read, self._sealed(path, read.data), StoredAs.SEALED)
        else:
            self._put(visit, leaf, descriptor, read, read.data, StoredAs.PLAIN)

    def _is_secret(self, visit: ScannedDirectory, leaf: ScannedEntry, path: bytes) -> bool:
        """Return whether the name of a file, or another hard link of it, is secret."""
        secret = self._policy.secret_name(path) if leaf.secret is None else leaf.secret
        if secret or (visit.own_stat.st_dev, leaf.row[INODE]) not in self.twins.files:
            return secret
        return not self._policy.excluded(path)

    def _is_copy(self, path: bytes, data: bytes) -> bool:
        return self.twins.has_content(data) and not self._policy.excluded(path)

    def _store_big_copy(
        self, visit: ScannedDirectory, leaf: ScannedEntry, path: bytes, descriptor: int
    ) -> bool:
        """Store a big file sealed if it is a copy of a sealed one; return False if not."""
        if leaf.row[SIZE] not in self.twins.sizes:
            return False
        read = read_file(descriptor, is_append_only=leaf.is_append_only, limit=MAX_SEALED)
        if not self._is_copy(path, read.data):
            return False
        self._put(visit, leaf, descriptor, read, self._sealed(path, read.data), StoredAs.SEALED)
        return True

    def _store_secret(
        self, visit: ScannedDirectory, leaf: ScannedEntry, path: bytes, descriptor: int
    ) -> None:
        try:
            read = read_file(descriptor, is_append_only=leaf.is_append_only, limit=MAX_SEALED)
        except GrewTooLarge:
            raise Unreadable(MissingReason.BUDGET, "it is secret and too large to seal") from None
        self._put(visit, leaf, descriptor, read, self._sealed(path, read.data), StoredAs.SEALED)

    def _sealed(self, path: bytes, data: bytes) -> bytes:
        if self._policy.seal is None:
            raise Unreadable(MissingReason.NO_KEY, "it is secret and there is no key to seal it")
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
            # A full disk is handled like a used-up budget: smaller files may still fit.
            store.forget(mark)
            raise BudgetExceeded from full
        self._settle(visit, leaf, read.stat, descriptor, stored, read.stable)

    def _store_big(self, visit: ScannedDirectory, leaf: ScannedEntry, descriptor: int) -> None:
        mark = self._store.mark()
        result: list[tuple[int, bytes, bytes]] = []

        def consume(blocks: Iterator[Block]) -> None:
            self._store.forget(mark)
            result[:] = [self._store.add_big(self._limited(blocks))]
            self._check_budget()

        try:
            seen, stable = read_streamed(descriptor, consume, is_append_only=leaf.is_append_only)
        except Unreadable:
            self._store.forget(mark)
            raise
        except (BudgetExceeded, StorageFull) as full:
            self._store.forget(mark)
            raise BudgetExceeded from full
        _, leaf.oid, leaf.pieces = result[0]
        self._settle(visit, leaf, seen, descriptor, StoredAs.PIECES, stable)

    def _limited(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            yield block
            self._check_budget()

    def _check_budget(self) -> None:
        if self._store.added_bytes() > self._budget:
            raise BudgetExceeded

    def _fingerprint(self, visit: ScannedDirectory, leaf: ScannedEntry, descriptor: int) -> None:
        if self._policy.keyed_hash is None:
            raise Unreadable(MissingReason.NO_KEY, "there is no key for its fingerprint")
        parts: list[bytes] = []
        keyed_hash = self._policy.keyed_hash

        def consume(blocks: Iterator[Block]) -> None:
            parts[:] = [chained_hash(keyed_hash, blocks)]

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
            visit.report_missing(leaf.name, MissingReason.UNSTABLE, "it changed during every read")

    def _contains_secret(self, directory: bytes, path: bytes, data: bytes) -> bool:
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
            visit.report_missing(leaf.name, MissingReason.ATTRIBUTES, unread)
        return leaf_extras(self._extras, visit.own_stat, seen, self._home_device, xattrs, stored, digest)


def _refresh(visit: ScannedDirectory, leaf: ScannedEntry) -> bool:
    try:
        leaf.row = COLUMNS(os.lstat(leaf.name))
    except OSError as error:
        visit.report_error(error, leaf.name)
        return False
    return True
