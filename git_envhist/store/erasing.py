"""Takes paths out of snapshots: from the trees, the manifest, and every list that names them.

What is left is a snapshot like any other, of an environment that never had them. The same trees come again from one
snapshot to the next, so each is rewritten once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from git_envhist.errors import Damaged
from git_envhist.model import EnvPath
from git_envhist.store.erasinglists import IN_PIECES, ListEraser, name_of
from git_envhist.store.layout import MANIFEST, RESERVED, dotgit_directory, stored_places
from git_envhist.store.levels import TYPE, Tree, TreeEditor
from git_envhist.store.manifest import shard_path
from git_envhist.store.names import stored_name
from git_envhist.store.trees import DIRECTORY, decode_tree, encode_tree

SUBMODULE = 0o160000

Reader = Callable[[bytes], bytes]


class ObjectSink(Protocol):
    """Takes new objects, wherever they go."""

    def add(self, kind: bytes, data: bytes) -> bytes: ...


FactsLess = Callable[[str, bytes, Collection[bytes]], bytes]
"""The facts of a probe without what is told of some paths, or read from them."""


class Eraser:
    """Takes the same paths out of many snapshots."""

    def __init__(
        self, read: Reader, sink: ObjectSink, width: int, paths: Sequence[EnvPath], facts_less: FactsLess
    ) -> None:
        self.erased: dict[bytes, None] = {}
        """Every object that stood at one of the paths or below it."""
        self.found: dict[EnvPath, None] = {}
        """The paths that any snapshot held."""
        self._read = read
        self._sink = sink
        self._width = width
        self._paths = tuple(paths)
        self._facts_less = facts_less
        self._known: dict[bytes, bytes] = {}
        self._missing: dict[bytes, int] = {}
        self._new: dict[bytes, bytes] = {}
        """What was written for the snapshot at hand, and cannot be read from elsewhere yet."""

    def erase(self, root: str) -> str:
        """The tree of a snapshot without the paths; the same where it holds none of them."""
        oid = bytes.fromhex(root)
        if oid not in self._known:
            self._new.clear()
            snapshot = _Snapshot(self, oid)
            new = self._known[oid] = snapshot.run()
            self._missing[new] = snapshot.missing
        return self._known[oid].hex()

    def missing_in(self, root: str) -> int:
        """How many paths the lists of a snapshot, as it is now, say are missing."""
        return self._missing.get(bytes.fromhex(root), 0)

    def read(self, oid: bytes) -> bytes:
        return self._new[oid] if oid in self._new else self._read(oid)

    def tree(self, oid: bytes | None) -> Tree:
        if oid is None:
            return {}
        return {name: (mode, one) for name, mode, one in decode_tree(self._read(oid), self._width)}

    def write_tree(self, tree: Tree) -> bytes:
        return self._sink.add(b"tree", encode_tree([(name, *row) for name, row in tree.items()]))

    def write_blob(self, data: bytes) -> bytes:
        oid = self._sink.add(b"blob", data)
        self._new[oid] = data
        return oid

    @property
    def paths(self) -> tuple[EnvPath, ...]:
        return self._paths

    def facts_less(self, probe: str, text: bytes) -> bytes:
        return self._facts_less(probe, text, self._paths)

    def remember(self, oid: bytes, mode: int) -> None:
        """Keep in mind all that stands below an object that went."""
        todo = [(mode, oid)]
        while todo:
            mode, oid = todo.pop()
            if oid not in self.erased and mode != SUBMODULE:
                self.erased[oid] = None
                todo += self.tree(oid).values() if mode & TYPE == DIRECTORY else ()


class _Snapshot:
    """One snapshot, from which the paths are taken."""

    def __init__(self, eraser: Eraser, root: bytes) -> None:
        self._eraser = eraser
        self._root = TreeEditor(eraser, root)
        self._pointers: dict[bytes, None] = {}
        self.missing = 0

    def run(self) -> bytes:
        for path in self._eraser.paths:
            for directory, name in stored_places(path):
                self._take(path, directory, name)
        beside = ListEraser(self._eraser, self._root)
        self.missing = beside.lists()
        if self._pointers:
            beside.pieces(self._pointers)
        return self._root.write() or self._eraser.write_tree({})

    def _take(self, path: EnvPath, directory: bytes, name: bytes) -> None:
        """Take away what stands at one place, and what the manifest says of it."""
        lines = self._shard_lines(directory)
        at = next((n for n, line in enumerate(lines) if n > 1 and line and name_of(line) == name), None)
        if at is None:
            return
        self._eraser.found[path] = None
        line = lines.pop(at)
        self._put_shard(directory, lines)
        kind = line.split(b" ", 2)[1]
        stored = stored_name(name, top=not directory, link=kind == b"l")
        below = directory + b"/" + stored if directory else stored
        if kind == b"d":
            self._forget_directories(path, below)
        self._take_entry(directory, stored, in_pieces=IN_PIECES in line)

    def _take_entry(self, directory: bytes, stored: bytes, *, in_pieces: bool) -> None:
        level = self._root.at(directory)
        row = level.entries.get(stored) if level is not None else None
        if level is None or row is None:
            return
        if in_pieces:
            self._pointers[row[1]] = None
        self._eraser.remember(row[1], row[0])
        level.take(stored)

    def _forget_directories(self, path: EnvPath, stored: bytes) -> None:
        """Take away what the manifest says of a directory and of all below it, and nested repositories in there."""
        todo = [(path, stored)]
        while todo:
            path, stored = todo.pop()
            lines = self._shard_lines(stored)
            if not lines:
                continue
            for line in filter(None, lines[2:]):
                name, kind = name_of(line), line.split(b" ", 2)[1]
                if kind == b"d" and name == b".git" and not stored.startswith(RESERVED + b"/"):
                    self._forget_nested(path)
                elif kind == b"d":
                    todo.append((EnvPath(path + b"/" + name), stored + b"/" + stored_name(name)))
                elif IN_PIECES in line:
                    self._point(stored, stored_name(name, link=kind == b"l"))
            self._put_shard(stored, [])

    def _forget_nested(self, path: EnvPath) -> None:
        directory = dotgit_directory(path)
        self._forget_directories(EnvPath(path + b"/.git"), directory)
        above, _, name = directory.rpartition(b"/")
        self._take_entry(above, name, in_pieces=False)

    def _point(self, directory: bytes, stored: bytes) -> None:
        level = self._root.at(directory)
        row = level.entries.get(stored) if level is not None else None
        if row is not None:
            self._pointers[row[1]] = None

    # --- the manifest

    def _shard_level(self, directory: bytes) -> tuple[TreeEditor | None, bytes]:
        outer, inner = (name.encode("ascii") for name in shard_path(directory))
        return self._root.at(b"/".join((RESERVED, MANIFEST, outer))), inner

    def _shard_lines(self, directory: bytes) -> list[bytes]:
        """The lines of a shard, the last of which is empty; none where there is no such shard."""
        level, inner = self._shard_level(directory)
        row = level.entries.get(inner) if level is not None else None
        return self._eraser.read(row[1]).split(b"\n") if row is not None else []

    def _put_shard(self, directory: bytes, lines: Sequence[bytes]) -> None:
        level, inner = self._shard_level(directory)
        if level is None:
            raise Damaged("the manifest of a snapshot is not whole", hint="git envlog fsck")
        old = level.entries[inner]
        self._eraser.remember(old[1], old[0])
        if lines:
            level.put(inner, (old[0], self._eraser.write_blob(b"\n".join(lines))))
        else:
            level.take(inner)
