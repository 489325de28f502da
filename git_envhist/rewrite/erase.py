"""Erase paths from snapshots: from the trees, the manifest, and every list that names them.

The result is a valid snapshot of an environment that never contained the paths. Trees shared by snapshots are
rewritten once. `Eraser` handles many snapshots; `ListEraser` the lists of one: missing paths, facts, staged files,
chunks of big files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol

from git_envhist.errors import Damaged
from git_envhist.model import EnvPath
from git_envhist.objects.trees import DIRECTORY, TYPE, Tree, TreeEditor, TreeStore, decode_tree, encode_tree
from git_envhist.snapshots.chunks import ChunksPointer, chunks_path, read_pointer
from git_envhist.snapshots.layout import (
    FACTS,
    GIT_CHANGED,
    MANIFEST,
    MISSING,
    PIECES,
    STAGED,
    UNSTABLE,
    ObjectSink,
    dotgit_directory,
    shard_path,
    stored_places,
)
from git_envhist.snapshots.quoting import unquote, unquote_path
from git_envhist.snapshots.stored_names import RESERVED, stored_name

IN_CHUNKS = b" as=pieces"


class PathEraser(TreeStore, Protocol):
    """The part of `Eraser` that `ListEraser` needs."""

    @property
    def paths(self) -> Collection[bytes]: ...
    def read(self, oid: bytes) -> bytes: ...
    def write_blob(self, data: bytes) -> bytes: ...
    def facts_without(self, probe: str, text: bytes) -> bytes: ...
    def record_erased(self, oid: bytes, mode: int) -> None: ...


class ListEraser:
    """Erases paths from the lists of one snapshot."""

    def __init__(self, eraser: PathEraser, root: TreeEditor) -> None:
        self._eraser = eraser
        self._root = root

    def lists(self) -> int:
        """Erase the paths from every list. Return the number of paths still missing in the snapshot."""
        reserved = self._root.below(RESERVED)
        return self._lists(reserved) if reserved is not None else 0

    def remove_chunks(self, pointers: Iterable[bytes]) -> None:
        """Remove the chunks of big files that no other file of the snapshot uses."""
        self._remove_chunks(pointers)

    def _lists(self, reserved: TreeEditor) -> int:
        missing = 0
        for name in (MISSING, UNSTABLE):
            _, left = self._filter(reserved, name, lambda line: not self._is_erased(line.split(b" ")[0]))
            missing += left
        self._filter(reserved, GIT_CHANGED, lambda line: not self._is_erased(line.split(b" ")[-1]))
        staged = reserved.below(STAGED)
        if staged is not None:
            self._staged(staged)
        facts = reserved.below(FACTS)
        for probe in list(facts.entries) if facts is not None else ():
            assert facts is not None
            mode, oid = facts.entries[probe]
            text = self._eraser.read(oid)
            reduced = self._eraser.facts_without(probe.decode("ascii", "replace"), text)
            if reduced != text:
                self._eraser.record_erased(oid, mode)
                facts.put(probe, (mode, self._eraser.write_blob(reduced)))
        return missing

    def _filter(
        self, level: TreeEditor, name: bytes, keep: Callable[[bytes], bool]
    ) -> tuple[list[bytes], int]:
        """Keep the lines of a list that `keep` accepts. Return the others, and the number of lines left."""
        row = level.entries.get(name)
        if row is None:
            return [], 0
        lines = self._eraser.read(row[1]).splitlines(keepends=True)
        removed = [line for line in lines if not keep(line.rstrip(b"\n"))]
        if removed:
            self._eraser.record_erased(row[1], row[0])
            left = b"".join(line for line in lines if line not in removed)
            if left or name == GIT_CHANGED:
                level.put(name, (row[0], self._eraser.write_blob(left)))
            else:
                level.take(name)
        return removed, len(lines) - len(removed)

    def _staged(self, staged: TreeEditor) -> None:
        removed, _ = self._filter(staged, b"index", lambda line: not self._is_erased(line.split(b" ")[0]))
        content = staged.below(b"content")
        if not removed or content is None:
            return
        row = staged.entries.get(b"index")
        left = (
            {content_of(line) for line in self._eraser.read(row[1]).splitlines()}
            if row is not None
            else set()
        )
        for name in {content_of(line.rstrip(b"\n")) for line in removed} - left:
            stored = content.entries.get(name)
            if stored is not None:
                self._eraser.record_erased(stored[1], stored[0])
                content.take(name)

    def _is_erased(self, word: bytes) -> bool:
        try:
            root, mark, below = word.partition(b"://")
            path = unquote(root) + mark + unquote(below)
        except Damaged:
            return False
        return is_inside(path, self._eraser.paths)

    def _remove_chunks(self, pointers: Iterable[bytes]) -> None:
        left = set(self._pointers_left())
        remove_chunks = self._root.at(RESERVED + b"/" + PIECES)
        for oid in pointers:
            pointer = self._pointer(oid)
            if remove_chunks is None or pointer is None or pointer.tree in left:
                continue
            outer, inner = (name.encode("ascii") for name in chunks_path(pointer.tree))
            level = remove_chunks.below(outer)
            if level is not None and inner in level.entries:
                self._eraser.record_erased(pointer.tree, DIRECTORY)
                level.take(inner)

    def _pointer(self, oid: bytes) -> ChunksPointer | None:
        try:
            return read_pointer(self._eraser.read(oid))
        except Damaged:
            return None

    def _pointers_left(self) -> Iterator[bytes]:
        manifest = self._root.at(RESERVED + b"/" + MANIFEST)
        for outer in list(manifest.entries) if manifest is not None else ():
            assert manifest is not None
            level = manifest.below(outer)
            for _, oid in level.entries.values() if level is not None else ():
                text = self._eraser.read(oid)
                if IN_CHUNKS in text:
                    yield from self._pointers_in(text.split(b"\n"))

    def _pointers_in(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        directory = bytes(unquote_path(lines[0].split(b" ")[2]))
        level = self._root.at(directory)
        for line in lines[2:]:
            if IN_CHUNKS in line and level is not None:
                row = level.entries.get(stored_name(manifest_line_name(line), top=not directory))
                pointer = self._pointer(row[1]) if row is not None else None
                if pointer is not None:
                    yield pointer.tree


def is_inside(path: bytes, paths: Collection[bytes]) -> bool:
    """Return whether a path is one of these, or below one."""
    return any(path == one or path.startswith(one + b"/") for one in paths)


def manifest_line_name(line: bytes) -> bytes:
    """Return the name in a line of a manifest."""
    return unquote(line.partition(b" ")[0])


def content_of(line: bytes) -> bytes:
    """Return the stored name of the content of a staged line (`path mode id stage`)."""
    words = line.split(b" ")
    return words[3] + b"-" + words[2] if len(words) == 4 else b""


SUBMODULE = 0o160000

Reader = Callable[[bytes], bytes]


FactsWithout = Callable[[str, bytes, Collection[bytes]], bytes]
"""Returns the facts of a probe without those about some paths, or read from them."""


class Eraser:
    """Erases the same paths from many snapshots."""

    def __init__(
        self,
        read: Reader,
        sink: ObjectSink,
        width: int,
        paths: Sequence[EnvPath],
        facts_without: FactsWithout,
    ) -> None:
        self.erased: dict[bytes, None] = {}
        """Every object at or below one of the paths."""
        self.found: dict[EnvPath, None] = {}
        """The paths that any snapshot contained."""
        self._read = read
        self._sink = sink
        self._width = width
        self._paths = tuple(paths)
        self._facts_without = facts_without
        self._known: dict[bytes, bytes] = {}
        self._missing: dict[bytes, int] = {}
        self._new: dict[bytes, bytes] = {}
        """Objects written for the current snapshot, which cannot be read from elsewhere yet."""

    def erase(self, root: str) -> str:
        """Return the tree of a snapshot without the paths; the same if it contains none of them."""
        oid = bytes.fromhex(root)
        if oid not in self._known:
            self._new.clear()
            snapshot = _Snapshot(self, oid)
            new = self._known[oid] = snapshot.run()
            self._missing[new] = snapshot.missing
        return self._known[oid].hex()

    def missing_in(self, root: str) -> int:
        """Return how many paths a rewritten snapshot lists as missing."""
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

    def facts_without(self, probe: str, text: bytes) -> bytes:
        return self._facts_without(probe, text, self._paths)

    def record_erased(self, oid: bytes, mode: int) -> None:
        """Record an erased object and everything below it."""
        todo = [(mode, oid)]
        while todo:
            mode, oid = todo.pop()
            if oid not in self.erased and mode != SUBMODULE:
                self.erased[oid] = None
                todo += self.tree(oid).values() if mode & TYPE == DIRECTORY else ()


class _Snapshot:
    """One snapshot while paths are erased from it."""

    def __init__(self, eraser: Eraser, root: bytes) -> None:
        self._eraser = eraser
        self._root = TreeEditor(eraser, root)
        self._pointers: dict[bytes, None] = {}
        self.missing = 0

    def run(self) -> bytes:
        for path in self._eraser.paths:
            for directory, name in stored_places(path):
                self._erase(path, directory, name)
        lists = ListEraser(self._eraser, self._root)
        self.missing = lists.lists()
        if self._pointers:
            lists.remove_chunks(self._pointers)
        return self._root.write() or self._eraser.write_tree({})

    def _erase(self, path: EnvPath, directory: bytes, name: bytes) -> None:
        """Erase one entry and its line in the manifest."""
        lines = self._shard_lines(directory)
        at = next(
            (n for n, line in enumerate(lines) if n > 1 and line and manifest_line_name(line) == name), None
        )
        if at is None:
            return
        self._eraser.found[path] = None
        line = lines.pop(at)
        self._put_shard(directory, lines)
        kind = line.split(b" ", 2)[1]
        stored = stored_name(name, top=not directory, link=kind == b"l")
        below = directory + b"/" + stored if directory else stored
        if kind == b"d":
            self._erase_shards(path, below)
        self._erase_entry(directory, stored, in_chunks=IN_CHUNKS in line)

    def _erase_entry(self, directory: bytes, stored: bytes, *, in_chunks: bool) -> None:
        level = self._root.at(directory)
        row = level.entries.get(stored) if level is not None else None
        if level is None or row is None:
            return
        if in_chunks:
            self._pointers[row[1]] = None
        self._eraser.record_erased(row[1], row[0])
        level.take(stored)

    def _erase_shards(self, path: EnvPath, stored: bytes) -> None:
        """Erase the shards of a directory and all below it, including nested repositories."""
        todo = [(path, stored)]
        while todo:
            path, stored = todo.pop()
            lines = self._shard_lines(stored)
            if not lines:
                continue
            for line in filter(None, lines[2:]):
                name, kind = manifest_line_name(line), line.split(b" ", 2)[1]
                if kind == b"d" and name == b".git" and not stored.startswith(RESERVED + b"/"):
                    self._erase_nested(path)
                elif kind == b"d":
                    todo.append((EnvPath(path + b"/" + name), stored + b"/" + stored_name(name)))
                elif IN_CHUNKS in line:
                    self._remember_pointer(stored, stored_name(name, link=kind == b"l"))
            self._put_shard(stored, [])

    def _erase_nested(self, path: EnvPath) -> None:
        directory = dotgit_directory(path)
        self._erase_shards(EnvPath(path + b"/.git"), directory)
        above, _, name = directory.rpartition(b"/")
        self._erase_entry(above, name, in_chunks=False)

    def _remember_pointer(self, directory: bytes, stored: bytes) -> None:
        level = self._root.at(directory)
        row = level.entries.get(stored) if level is not None else None
        if row is not None:
            self._pointers[row[1]] = None

    # The manifest.

    def _shard_level(self, directory: bytes) -> tuple[TreeEditor | None, bytes]:
        outer, inner = (name.encode("ascii") for name in shard_path(directory))
        return self._root.at(b"/".join((RESERVED, MANIFEST, outer))), inner

    def _shard_lines(self, directory: bytes) -> list[bytes]:
        """Return the lines of a shard, the last of which is empty; none if it does not exist."""
        level, inner = self._shard_level(directory)
        row = level.entries.get(inner) if level is not None else None
        return self._eraser.read(row[1]).split(b"\n") if row is not None else []

    def _put_shard(self, directory: bytes, lines: Sequence[bytes]) -> None:
        level, inner = self._shard_level(directory)
        if level is None:
            raise Damaged("the manifest of a snapshot is incomplete", hint="git envlog fsck")
        old = level.entries[inner]
        self._eraser.record_erased(old[1], old[0])
        if lines:
            level.put(inner, (old[0], self._eraser.write_blob(b"\n".join(lines))))
        else:
            level.take(inner)
