"""From the records of directories to the trees of a snapshot: rebuilt where something changed, reused elsewhere."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping

from git_envhist.capture.descent import REALM_MARK, join
from git_envhist.capture.known import DirectoryRecords
from git_envhist.capture.records import BELOW, INCOMPLETE, NO_ID, DirectoryRecord
from git_envhist.capturing.merge import UNKNOWN, RecordChanges
from git_envhist.capturing.patch import PATCHED_FROM, patched_tree
from git_envhist.capturing.shards import shard_text, stored_directory
from git_envhist.capturing.stored import entries_of, is_inside_git_directory, is_stored_outside_tree
from git_envhist.errors import Damaged
from git_envhist.store.snapshots import DIRECTORY, ManifestTree, ObjectSink, TreeEntry, write_tree
from git_envhist.values import dataclass, field


@dataclass(slots=True)
class BuiltTree:
    """The environment as trees, less what stands below the reserved name beside it."""

    top: list[TreeEntry]
    manifest: bytes | None
    reserved: dict[bytes, TreeEntry] = field(default_factory=dict)
    """Nested repositories and further roots, by their path below the reserved name."""
    content: str = ""
    elsewhere: dict[bytes, bytes] = field(default_factory=dict)
    """The same by their directories: tree, and digest of the modes."""


Holds = Callable[[bytes], bool]
Read = Callable[[bytes], bytes]


class TreeBuilder:
    """Builds trees from records into a sink."""

    def __init__(
        self,
        records: DirectoryRecords,
        manifest: ManifestTree,
        sink: ObjectSink,
        width: int,
        *,
        holds: Holds | None,
        read: Read,
        elsewhere: Mapping[bytes, bytes],
    ) -> None:
        """`holds`: whether the store has an object. Asked about all that a rebuilt tree names, where some of it comes
        from a cache: whatever the cache says, no ref may ever lead to an object that is not there. `read` gives a tree
        of the snapshot before, `elsewhere` what is known of those that hang beside the environment.
        """
        self._records = records
        self._manifest = manifest
        self._sink = sink
        self._width = width
        self._holds = holds
        self._read = read
        self._elsewhere = dict(elsewhere)
        self._built: dict[bytes, bytes] = {}
        self._before: dict[bytes, dict[bytes, bytes]] = {}

    def assemble(self, merged: RecordChanges) -> BuiltTree:
        """Build the trees of changed directories and of all above them; store what is new."""
        touched = _with_ancestors({b"", *merged.changed, *merged.gone})
        for path in sorted(touched, key=lambda path: (path != b"", path.count(b"/")), reverse=True):
            record = self._records.get(path)
            if record is not None:
                self._build(record, merged)
            if is_stored_outside_tree(path):
                self._elsewhere.pop(path, None)
                if record is not None:
                    self._elsewhere[path] = self._built[path]
        for path in merged.gone:
            self._manifest.put(stored_directory(path), None)
        for path in merged.changed:
            record = self._records.get(path)
            if record is not None:
                self._manifest.put(stored_directory(path), record.shard[: self._width])
        return self._join(self._manifest.write())

    def _build(self, record: DirectoryRecord, merged: RecordChanges) -> None:
        """Give one record the trees below it, built already, and tell those above of its own."""
        self._before[record.path] = known = record.below_by_name()
        below = {name: self._tree_below(join(record.path, name), known[name], merged) for name in known}
        if UNKNOWN in below.values():
            self._drop_vanished(record, below)
        old = record if record.path not in merged.changed else merged.before.get(record.path)
        old_below, record.below = record.below, b"".join(below[name] for name in record.subdirectories)
        tree = NO_ID
        if record.path:
            # The top itself is written once the reserved name has joined it.
            tree = self._write(record, old, old_below) or NO_ID
        else:
            self._check(record, entries_of(record, self._width))
        digest = hashlib.sha256(record.leaf_modes + b"\0".join(record.subdirectories) + b"\0" + record.below)
        self._built[record.path] = tree.ljust(BELOW // 2, b"\0") + digest.digest()
        if record.below != old_below:
            self._records.keep(record)

    def _tree_below(self, path: bytes, known: bytes, merged: RecordChanges) -> bytes:
        return self._built.get(path) or (UNKNOWN if path in merged.gone else known)

    def _drop_vanished(self, record: DirectoryRecord, below: Mapping[bytes, bytes]) -> None:
        """Directories that went away between the listing and the look into them were never seen."""
        record.subdirectories = [name for name in record.subdirectories if below[name] != UNKNOWN]
        record.below = b""
        record.flags |= INCOMPLETE
        record.shard = self._sink.add(b"blob", shard_text(record))
        self._manifest.put(stored_directory(record.path), record.shard)

    def _write(self, record: DirectoryRecord, old: DirectoryRecord | None, old_below: bytes) -> bytes | None:
        """The tree of a directory; of a large one the old tree, where little in it changed."""
        above, _, name = record.path.rpartition(b"/")
        if old is not None and len(record.names) + len(record.subdirectories) >= PATCHED_FROM:
            before = self._known_below(above).get(name, UNKNOWN)[: self._width]
            patch = patched_tree(record, old, old_below, before, self._read, self._width)
            if patch is not None:
                self._check(record, patch.entries)
                return self._sink.add(b"tree", patch.data)
        entries = entries_of(record, self._width)
        self._check(record, entries)
        return write_tree(self._sink, entries)

    def _known_below(self, path: bytes) -> dict[bytes, bytes]:
        if path not in self._before:
            record = self._records.get(path)
            self._before[path] = record.below_by_name() if record is not None else {}
        return self._before[path]

    def _check(self, record: DirectoryRecord, entries: list[TreeEntry]) -> None:
        if self._holds is None:
            return
        for name, _, oid in (*entries, (b"its manifest", 0, record.shard[: self._width])):
            if not self._holds(oid):
                raise Damaged(f"an object is missing of '{os.fsdecode(join(record.path, name))}'")

    def _join(self, manifest: bytes | None) -> BuiltTree:
        top = self._records.get(b"")
        digest = hashlib.sha256(self._built[b""][BELOW // 2 :] if top else b"")
        assembled = BuiltTree(entries_of(top, self._width) if top else [], manifest)
        digest.update(b"".join(b"%o %b\0%b" % (mode, name, oid) for name, mode, oid in sorted(assembled.top)))
        for path, told in sorted(self._elsewhere.items()):
            digest.update(path + b"\0" + told)
            tree = told[: self._width]
            if any(tree):
                if self._holds is not None and not self._holds(tree):
                    raise Damaged(f"the tree of '{os.fsdecode(path)}' is missing")
                assembled.reserved[stored_directory(path).partition(b"/")[2]] = (b"", DIRECTORY, tree)
        assembled.content = digest.hexdigest()
        assembled.elsewhere = self._elsewhere
        return assembled


def _with_ancestors(paths: set[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for path in paths:
        while path not in found:
            found.add(path)
            path = path.rpartition(b"/")[0]
    return found


def count_added_paths(records: DirectoryRecords) -> int:
    """How many paths a first snapshot adds: all that are no directories, and the empty directories."""
    total = 0
    for path in records:
        record = records.get(path)
        assert record is not None
        if is_stored_outside_tree(path) and not path.startswith(REALM_MARK):
            total += 1
        elif not is_inside_git_directory(path):
            total += len(record.names) + len(record.boundaries)
            total += bool(path and not record.names and not record.subdirectories and not record.boundaries)
    return total
