"""How much somebody else's snapshot may ask for, told from the headers of its objects before any is inflated.

A kilobyte that inflates to gigabytes, a file said to be longer than the disk, directories in directories without end:
each is refused here, before anything is written. What is only large, not absurd, is restored with --force.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from git_envhist.errors import Damaged, Refused
from git_envhist.model import DirectoryPair, Entry, EntryKind, EnvPath, StoredAs, shown_path
from git_envhist.store.contents import ObjectReader
from git_envhist.store.pieces import LARGEST
from git_envhist.store.pointers import read_pointer
from git_envhist.store.quoting import show
from git_envhist.store.sizes import HeaderReader
from git_envhist.store.trees import decode_tree

POINTER = 256
"""No pointer to pieces is longer."""
SMALL_PIECE = 4096
LAST_PIECES = 64
HINT = "it is not as a capture writes it: restore another snapshot"


class SnapshotLimits(NamedTuple):
    """The most that a snapshot which no key of ours signed may hold."""

    bytes: int = 8 << 30
    blob: int = 64 << 20
    """Of one object that is read as a whole; captures cut files of 8 MiB and more into pieces."""
    entries: int = 2_000_000
    depth: int = 1024
    metadata: int = 256 << 20
    """Of all trees and manifests together."""
    metadata_object: int = 64 << 20


BUDGET = SnapshotLimits()
UNBOUNDED = SnapshotLimits(bytes=1 << 62, blob=1 << 30, entries=1 << 62)
"""With --force: as much as there is room for."""


class LimitedReader:
    """Reads trees and manifests whose sizes are known beforehand."""

    def __init__(self, contents: ObjectReader, sizes: HeaderReader, budget: SnapshotLimits = BUDGET) -> None:
        self._contents = contents
        self._sizes = sizes
        self._budget = budget
        self._read = 0

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        """The kind and the bytes of an object; `Damaged` where it, or all together, are absurdly large."""
        size = self._sizes.of(oid).size
        self._read += size
        if size > self._budget.metadata_object or self._read > self._budget.metadata:
            raise Damaged(f"a tree or a manifest holds too much: {oid.hex()}", hint=HINT)
        return self._contents.read(oid)


def gather(pairs: Iterable[DirectoryPair], budget: SnapshotLimits) -> list[DirectoryPair]:
    """The directories of a snapshot, as long as they are not too many, nor too deep."""
    found = []
    entries = 0
    for pair in pairs:
        entries += 1 + (len(pair.after.entries) if pair.after is not None else 0)
        if entries > budget.entries:
            raise _too_much(f"it holds more than {budget.entries:,} paths")
        if pair.path.count(b"/") >= budget.depth:
            raise Damaged(f"a directory stands too deep: '{show(pair.path[:100])}…'", hint=HINT)
        found.append(pair)
    return found


def check_sizes(
    pairs: Iterable[DirectoryPair],
    contents: ObjectReader,
    sizes: HeaderReader,
    budget: SnapshotLimits,
    room: int,
) -> int:
    """How many bytes a snapshot would write; `Refused` where these are too many, `Damaged` where it lies about it."""
    files = _files(pairs)
    told = sizes.of_many(oid for entry in files if (oid := entry.oid) is not None)
    total = 0
    for entry in files:
        assert entry.oid is not None
        kind, size = told[entry.oid]
        if kind != "blob":
            raise Damaged(f"there is no file where one should be: '{show(entry.path)}'", hint=HINT)
        limit = POINTER if entry.stored is StoredAs.PIECES else budget.blob
        if size > limit:
            raise _too_much(f"'{show(entry.path)}' inflates to {size:,} bytes")
        total += read_pointer(contents.blob(entry.oid)).size if entry.stored is StoredAs.PIECES else size
        if total > min(budget.bytes, room):
            what = "than there is room for" if total > room else f"than {budget.bytes:,} bytes"
            raise _too_much(f"it holds more {what}", forcible=total <= room)
    for entry in files:
        if entry.stored is StoredAs.PIECES:
            _check_pieces(entry, contents, sizes, budget)
    return total


def _files(pairs: Iterable[DirectoryPair]) -> list[Entry]:
    """Each file once, also where it has many names."""
    found: dict[object, Entry] = {}
    for pair in pairs:
        for entry in pair.after.entries.values() if pair.after is not None else ():
            if entry.kind is EntryKind.FILE and entry.oid is not None:
                path = shown_path(pair.realm, entry.path)
                one = path if entry.link_group is None else (entry.link_group, entry.oid, entry.stored)
                found.setdefault(one, entry)
    return list(found.values())


def _check_pieces(entry: Entry, contents: ObjectReader, sizes: HeaderReader, budget: SnapshotLimits) -> None:
    assert entry.oid is not None
    told = read_pointer(contents.blob(entry.oid))
    most = LAST_PIECES + told.size // SMALL_PIECE
    total = 0
    lengths: dict[bytes, list[bytes]] = {}
    for run in _listed(told.tree, contents, sizes, budget):
        if run not in lengths:
            lengths[run] = _listed(run, contents, sizes, budget)
            _check_each(entry.path, lengths[run], sizes)
        known = sizes.of_many(())
        total += sum(known[piece].size for piece in lengths[run])
        most -= len(lengths[run])
        if total > told.size or most < 0:
            break
    if total != told.size or most < 0:
        raise Damaged(
            f"the pieces are not as long as the file is said to be: '{show(entry.path)}'", hint=HINT
        )


def _check_each(path: EnvPath, pieces: list[bytes], sizes: HeaderReader) -> None:
    known = sizes.of_many(pieces)
    if any(known[piece].kind != "blob" or known[piece].size > LARGEST for piece in pieces):
        raise Damaged(f"a piece is larger than pieces are: '{show(path)}'", hint=HINT)


def _listed(tree: bytes, contents: ObjectReader, sizes: HeaderReader, budget: SnapshotLimits) -> list[bytes]:
    if sizes.of(tree).size > budget.metadata_object:
        raise Damaged(f"a tree of pieces holds too much: {tree.hex()}", hint=HINT)
    kind, data = contents.read(tree)
    if kind != b"tree":
        raise Damaged(f"object {tree.hex()} is no tree of pieces", hint=HINT)
    return [oid for _, _, oid in decode_tree(data, len(tree))]


def _too_much(what: str, *, forcible: bool = True) -> Refused:
    hint = "--force, if you trust who made it" if forcible else "make room, or restore a part of it"
    return Refused(f"this snapshot, which no key that is here signed, asks for too much: {what}", hint=hint)
