"""From the records of directories to the trees of a snapshot: rebuilt where something changed, reused elsewhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator

from git_envhist.capture.descent import DOT_GIT, REALM_MARK, join
from git_envhist.capture.records import INCOMPLETE, MODE, NO_ID, WIDTH, Record, decode
from git_envhist.capturing.shards import shard_text, stored_directory
from git_envhist.errors import Damaged
from git_envhist.store.snapshots import (
    DIRECTORY,
    ManifestTree,
    ObjectSink,
    TreeEntry,
    leaf_entries,
    write_tree,
)
from git_envhist.values import dataclass, field


class Records:
    """Every directory of the environment by its path; decoded when looked at, so that most stay as they are."""

    def __init__(self, encoded: dict[bytes, bytes]) -> None:
        self.encoded = encoded
        self._decoded: dict[bytes, Record] = {}

    def __contains__(self, path: bytes) -> bool:
        return path in self.encoded

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.encoded)

    def get(self, path: bytes) -> Record | None:
        if path in self._decoded:
            return self._decoded[path]
        if path not in self.encoded:
            return None
        record, _ = decode(self.encoded[path])
        self._decoded[path] = record
        return record

    def keep(self, record: Record) -> None:
        """Take back a record that was changed."""
        self._decoded[record.path] = record
        self.encoded[record.path] = record.encode()

    def replace(self, path: bytes, encoded: bytes) -> None:
        self.encoded[path] = encoded
        self._decoded.pop(path, None)

    def drop(self, path: bytes) -> None:
        self.encoded.pop(path, None)
        self._decoded.pop(path, None)


@dataclass(slots=True)
class Assembled:
    """The environment as trees, less what stands below the reserved name beside it."""

    top: list[TreeEntry]
    manifest: bytes | None
    reserved: dict[bytes, TreeEntry] = field(default_factory=dict)
    """Nested repositories and further roots, by their path below the reserved name."""
    content: str = ""


def reachable(records: Records) -> set[bytes]:
    """The directories that a walk from the tops meets; records of any other are of the past."""
    found: set[bytes] = set()
    stack = [path for path in records if not path or (path.startswith(REALM_MARK) and b"/" not in path)]
    while stack:
        path = stack.pop()
        record = records.get(path)
        if record is None:
            continue
        found.add(path)
        stack.extend(join(path, name) for name in record.subdirectories)
    return found


Holds = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Assembler:
    """Builds trees from records into a sink."""

    records: Records
    manifest: ManifestTree
    sink: ObjectSink
    width: int
    holds: Holds | None
    """Whether the store has an object. Asked about all that a rebuilt tree names, where some of it comes from a cache:
    whatever the cache says, no ref may ever lead to an object that is not there."""

    def assemble(self, changed: Iterable[bytes], gone: Iterable[bytes]) -> Assembled:
        """Build the trees of changed directories and of all above them; store what is new."""
        changed, gone = set(changed), set(gone)
        touched = _with_ancestors({b"", *changed, *gone})
        for path in sorted(touched, key=lambda path: (path != b"", path.count(b"/")), reverse=True):
            record = self.records.get(path)
            if record is not None:
                self._build(record)
        for path in gone:
            self.manifest.put(stored_directory(path), None)
        for path in changed:
            record = self.records.get(path)
            if record is not None:
                self.manifest.put(stored_directory(path), record.shard[: self.width])
        return _join(self.records, self.manifest.write(), self.width)

    def _build(self, record: Record) -> None:
        """Give one record its tree and its digest of modes; those of the directories below it are built already."""
        self._drop_vanished(record)
        entries = _entries(record, self.width)
        digest = hashlib.sha256(record.leaf_modes)
        for name in record.subdirectories:
            below = self.records.get(join(record.path, name))
            assert below is not None
            digest.update(name + b"\0" + below.modes)
            if not _hangs_elsewhere(join(record.path, name)):
                entries += _subtree(record, name, below, self.width)
        self._check(record, entries)
        if record.path:
            # The top itself is written once the reserved name has joined it.
            record.tree = write_tree(self.sink, entries) or NO_ID
        record.modes = digest.digest()
        self.records.keep(record)

    def _drop_vanished(self, record: Record) -> None:
        """Directories that went away between the listing and the look into them were never seen."""
        there = [name for name in record.subdirectories if join(record.path, name) in self.records]
        if there != record.subdirectories:
            record.subdirectories = there
            record.flags |= INCOMPLETE
            record.shard = self.sink.add(b"blob", shard_text(record))

    def _check(self, record: Record, entries: list[TreeEntry]) -> None:
        if self.holds is None:
            return
        for name, _, oid in (*entries, (b"its manifest", 0, record.shard[: self.width])):
            if not self.holds(oid):
                raise Damaged(f"an object is missing of '{os.fsdecode(join(record.path, name))}'")


def _with_ancestors(paths: set[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for path in paths:
        while path not in found:
            found.add(path)
            path = path.rpartition(b"/")[0]
    return found


def _entries(record: Record, width: int) -> list[TreeEntry]:
    ids = [record.ids[at : at + width] for at in range(0, len(record.ids), width)]
    modes = record.cells[MODE::WIDTH]
    return leaf_entries(record.names, modes, ids, top=not record.path)


def _subtree(record: Record, name: bytes, below: Record, width: int) -> list[TreeEntry]:
    tree = below.tree[:width]
    if not any(tree):
        return []
    stored = stored_directory(join(record.path, name)).rpartition(b"/")[2]
    return [(stored, DIRECTORY, tree)]


def _join(records: Records, manifest: bytes | None, width: int) -> Assembled:
    top = records.get(b"")
    digest = hashlib.sha256(top.modes if top else b"")
    assembled = Assembled(_top_entries(records, width), manifest)
    digest.update(b"".join(b"%o %b\0%b" % (mode, name, oid) for name, mode, oid in sorted(assembled.top)))
    for path in sorted(records):
        if not _hangs_elsewhere(path):
            continue
        record = records.get(path)
        assert record is not None
        digest.update(path + b"\0" + record.tree + record.modes)
        if any(record.tree):
            below = stored_directory(path).partition(b"/")[2]
            assembled.reserved[below] = (b"", DIRECTORY, record.tree[:width])
    assembled.content = digest.hexdigest()
    return assembled


def _top_entries(records: Records, width: int) -> list[TreeEntry]:
    record = records.get(b"")
    if record is None:
        return []
    entries = _entries(record, width)
    for name in record.subdirectories:
        below = records.get(name)
        if below is not None and name != DOT_GIT:
            entries += _subtree(record, name, below, width)
    return entries


def _hangs_elsewhere(path: bytes) -> bool:
    """Whether a directory is the `.git` of a nested repository, or the top of a further root."""
    if path.startswith(REALM_MARK):
        return b"/" not in path
    return path.endswith(b"/" + DOT_GIT) and DOT_GIT not in path.split(b"/")[:-1]


def count_entries(records: Records) -> int:
    """How many paths a first snapshot adds: all that are no directories, and the empty directories."""
    total = 0
    for path in records:
        record = records.get(path)
        assert record is not None
        if _hangs_elsewhere(path) and not path.startswith(REALM_MARK):
            total += 1
        elif not _inside_git(path):
            total += len(record.names) + len(record.boundaries)
            total += bool(path and not record.names and not record.subdirectories and not record.boundaries)
    return total


def _inside_git(path: bytes) -> bool:
    return not path.startswith(REALM_MARK) and DOT_GIT in path.split(b"/")
