"""The trees of a snapshot: what the user sees at the top, and what git cannot say of it below one reserved name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from git_envhist.store.layout import MANIFEST, PIECES, RESERVED
from git_envhist.store.manifest import shard_path
from git_envhist.store.names import stored_name, suspicious
from git_envhist.store.trees import decode_tree, encode_tree

DIRECTORY = 0o040000
FILE = 0o100644
EXECUTABLE = 0o100755
LINK = 0o120000
TYPE = 0o170000

TreeEntry = tuple[bytes, int, bytes]


class ObjectSink(Protocol):
    """Takes objects; what it holds already costs nothing."""

    def add(self, kind: bytes, data: bytes) -> bytes: ...


def git_mode(mode: int) -> int:
    """The mode that a tree has for a file or link."""
    if mode & TYPE == LINK:
        return LINK
    return EXECUTABLE if mode & 0o100 else FILE


def leaf_entries(
    names: list[bytes], modes: Iterable[int], ids: Iterable[bytes], *, top: bool
) -> list[TreeEntry]:
    """The tree entries of a directory's files and links; those without an id stand in the manifest alone."""
    git_modes = list(map(git_mode, modes))
    stored = names
    if suspicious(b"\0".join(names)):
        pairs = zip(names, git_modes, strict=True)
        stored = [stored_name(name, top=top, link=mode == LINK) for name, mode in pairs]
    return [entry for entry in zip(stored, git_modes, ids, strict=True) if any(entry[2])]


def write_tree(sink: ObjectSink, entries: Iterable[TreeEntry]) -> bytes | None:
    """Store a tree; None for one that holds nothing, which no tree has an entry for."""
    listed = list(entries)
    return sink.add(b"tree", encode_tree(listed)) if listed else None


def write_nested(sink: ObjectSink, blobs: Mapping[bytes, TreeEntry]) -> bytes | None:
    """Store entries given by their paths of one or more components, as trees within trees."""
    here: list[TreeEntry] = []
    below: dict[bytes, dict[bytes, TreeEntry]] = {}
    for path, entry in blobs.items():
        first, slash, rest = path.partition(b"/")
        if slash:
            below.setdefault(first, {})[rest] = entry
        else:
            here.append((first, entry[1], entry[2]))
    for name, inner in below.items():
        oid = write_nested(sink, inner)
        if oid is not None:
            here.append((name, DIRECTORY, oid))
    return write_tree(sink, here)


class ManifestTree:
    """The shards of a snapshot's directories; only the part of the tree around a changed one is read and written."""

    def __init__(
        self, sink: ObjectSink, read: Callable[[bytes], bytes], root: bytes | None, width: int
    ) -> None:
        self._sink = sink
        self._read = read
        self._width = width
        self._root = self._entries(root)
        self._touched: dict[bytes, dict[bytes, bytes]] = {}

    def put(self, stored_directory: bytes, shard: bytes | None) -> None:
        """Set the shard of a directory, or take it away."""
        outer, inner = (name.encode("ascii") for name in shard_path(stored_directory))
        if outer not in self._touched:
            self._touched[outer] = self._entries(self._root.get(outer))
        if shard is None:
            self._touched[outer].pop(inner, None)
        else:
            self._touched[outer][inner] = shard

    def write(self) -> bytes | None:
        """Store what changed; the id of the whole."""
        for outer, inner in self._touched.items():
            oid = write_tree(self._sink, [(name, FILE, shard) for name, shard in inner.items()])
            if oid is None:
                self._root.pop(outer, None)
            else:
                self._root[outer] = oid
        self._touched = {}
        return write_tree(self._sink, [(name, DIRECTORY, oid) for name, oid in self._root.items()])

    def _entries(self, tree: bytes | None) -> dict[bytes, bytes]:
        if tree is None:
            return {}
        return {name: oid for name, _, oid in decode_tree(self._read(tree), self._width)}


def pieces_entries(trees: Iterable[bytes]) -> dict[bytes, TreeEntry]:
    """Where the trees of the pieces of big files hang: each under its own id."""
    found = {}
    for tree in trees:
        name = tree.hex().encode("ascii")
        path = PIECES + b"/" + name[:2] + b"/" + name[2:]
        found[path] = (b"", DIRECTORY, tree)
    return found


def whole_tree(
    sink: ObjectSink, top: Iterable[TreeEntry], manifest: bytes | None, reserved: Mapping[bytes, TreeEntry]
) -> bytes:
    """Store the root: the environment's own entries, and the reserved name with everything else."""
    inside = dict(reserved)
    if manifest is not None:
        inside[MANIFEST] = (b"", DIRECTORY, manifest)
    oid = write_nested(sink, inside)
    entries = [*top]
    if oid is not None:
        entries.append((RESERVED, DIRECTORY, oid))
    return sink.add(b"tree", encode_tree(entries))
