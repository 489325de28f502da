"""What stands in a snapshot beside its trees and names paths: lists, facts, what was staged, pieces of big files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Protocol

from git_envhist.errors import Damaged
from git_envhist.store.layout import FACTS, GIT_CHANGED, MANIFEST, MISSING, PIECES, RESERVED, STAGED, UNSTABLE
from git_envhist.store.levels import TreeEditor, TreeStore
from git_envhist.store.names import stored_name
from git_envhist.store.pointers import ChunksPointer, pieces_path, read_pointer
from git_envhist.store.quoting import unquote, unquote_path
from git_envhist.store.trees import DIRECTORY

IN_PIECES = b" as=pieces"


class PathEraser(TreeStore, Protocol):
    """What the paths are taken out by."""

    @property
    def paths(self) -> Collection[bytes]: ...
    def read(self, oid: bytes) -> bytes: ...
    def write_blob(self, data: bytes) -> bytes: ...
    def facts_less(self, probe: str, text: bytes) -> bytes: ...
    def remember(self, oid: bytes, mode: int) -> None: ...


class ListEraser:
    """What stands beside the trees of one snapshot, from which the paths are taken."""

    def __init__(self, eraser: PathEraser, root: TreeEditor) -> None:
        self._eraser = eraser
        self._root = root

    def lists(self) -> int:
        """Take them out of every list; how many paths are missing in the snapshot then."""
        reserved = self._root.below(RESERVED)
        return self._lists(reserved) if reserved is not None else 0

    def pieces(self, pointers: Iterable[bytes]) -> None:
        """Take away the pieces of big files that no other file of the snapshot consists of."""
        self._pieces(pointers)

    def _lists(self, reserved: TreeEditor) -> int:
        missing = 0
        for name in (MISSING, UNSTABLE):
            _, left = self._filter(reserved, name, lambda line: not self._is_meant(line.split(b" ")[0]))
            missing += left
        self._filter(reserved, GIT_CHANGED, lambda line: not self._is_meant(line.split(b" ")[-1]))
        staged = reserved.below(STAGED)
        if staged is not None:
            self._staged(staged)
        facts = reserved.below(FACTS)
        for probe in list(facts.entries) if facts is not None else ():
            assert facts is not None
            mode, oid = facts.entries[probe]
            text = self._eraser.read(oid)
            less = self._eraser.facts_less(probe.decode("ascii", "replace"), text)
            if less != text:
                self._eraser.remember(oid, mode)
                facts.put(probe, (mode, self._eraser.write_blob(less)))
        return missing

    def _filter(
        self, level: TreeEditor, name: bytes, keep: Callable[[bytes], bool]
    ) -> tuple[list[bytes], int]:
        """Leave those lines of a list that are to be kept; the others, and how many are left."""
        row = level.entries.get(name)
        if row is None:
            return [], 0
        lines = self._eraser.read(row[1]).splitlines(keepends=True)
        gone = [line for line in lines if not keep(line.rstrip(b"\n"))]
        if gone:
            self._eraser.remember(row[1], row[0])
            left = b"".join(line for line in lines if line not in gone)
            if left or name == GIT_CHANGED:
                level.put(name, (row[0], self._eraser.write_blob(left)))
            else:
                level.take(name)
        return gone, len(lines) - len(gone)

    def _staged(self, staged: TreeEditor) -> None:
        gone, _ = self._filter(staged, b"index", lambda line: not self._is_meant(line.split(b" ")[0]))
        content = staged.below(b"content")
        if not gone or content is None:
            return
        row = staged.entries.get(b"index")
        left = (
            {content_of(line) for line in self._eraser.read(row[1]).splitlines()}
            if row is not None
            else set()
        )
        for name in {content_of(line.rstrip(b"\n")) for line in gone} - left:
            held = content.entries.get(name)
            if held is not None:
                self._eraser.remember(held[1], held[0])
                content.take(name)

    def _is_meant(self, word: bytes) -> bool:
        try:
            root, mark, below = word.partition(b"://")
            path = unquote(root) + mark + unquote(below)
        except Damaged:
            return False
        return lies_in(path, self._eraser.paths)

    def _pieces(self, pointers: Iterable[bytes]) -> None:
        left = set(self._pointers_left())
        pieces = self._root.at(RESERVED + b"/" + PIECES)
        for oid in pointers:
            pointer = self._pointer(oid)
            if pieces is None or pointer is None or pointer.tree in left:
                continue
            outer, inner = (name.encode("ascii") for name in pieces_path(pointer.tree))
            level = pieces.below(outer)
            if level is not None and inner in level.entries:
                self._eraser.remember(pointer.tree, DIRECTORY)
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
                if IN_PIECES in text:
                    yield from self._pointers_in(text.split(b"\n"))

    def _pointers_in(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        directory = bytes(unquote_path(lines[0].split(b" ")[2]))
        level = self._root.at(directory)
        for line in lines[2:]:
            if IN_PIECES in line and level is not None:
                row = level.entries.get(stored_name(name_of(line), top=not directory))
                pointer = self._pointer(row[1]) if row is not None else None
                if pointer is not None:
                    yield pointer.tree


def lies_in(path: bytes, paths: Collection[bytes]) -> bool:
    """Whether a path is one of these, or below one."""
    return any(path == one or path.startswith(one + b"/") for one in paths)


def name_of(line: bytes) -> bytes:
    """The name that a line of a manifest is about."""
    return unquote(line.partition(b" ")[0])


def content_of(line: bytes) -> bytes:
    """Where what was staged of a line stands: `path mode id stage`."""
    words = line.split(b" ")
    return words[3] + b"-" + words[2] if len(words) == 4 else b""
