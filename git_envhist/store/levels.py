"""Trees within trees, while something in them is changed; what nobody looks into is not read."""

from __future__ import annotations

from typing import Protocol

from git_envhist.store.trees import DIRECTORY

Row = tuple[int, bytes]
Tree = dict[bytes, Row]
TYPE = 0o170000


class TreeStore(Protocol):
    """Reads trees and writes new ones."""

    def tree(self, oid: bytes | None) -> Tree: ...
    def write_tree(self, tree: Tree) -> bytes: ...


class TreeEditor:
    """One tree while it is changed; those below are opened when somebody looks into them."""

    def __init__(self, trees: TreeStore, oid: bytes) -> None:
        self.entries = trees.tree(oid)
        self._trees = trees
        self._oid = oid
        self._opened: dict[bytes, TreeEditor] = {}
        self._touched = False

    def below(self, name: bytes) -> TreeEditor | None:
        if name not in self._opened:
            row = self.entries.get(name)
            if row is None or row[0] & TYPE != DIRECTORY:
                return None
            self._opened[name] = TreeEditor(self._trees, row[1])
        return self._opened[name]

    def at(self, path: bytes) -> TreeEditor | None:
        level: TreeEditor | None = self
        for name in path.split(b"/") if path else ():
            level = level.below(name) if level is not None else None
        return level

    def take(self, name: bytes) -> None:
        self._touched = True
        self._opened.pop(name, None)
        self.entries.pop(name, None)

    def put(self, name: bytes, row: Row) -> None:
        self._touched = True
        self.entries[name] = row

    def write(self) -> bytes | None:
        """Store what changed; None where nothing is left, which no tree has an entry for."""
        for name, level in list(self._opened.items()):
            oid = level.write()
            if oid is None:
                self.take(name)
            elif oid != self.entries[name][1]:
                self._touched = True
                self.entries[name] = (self.entries[name][0], oid)
        if not self._touched:
            return self._oid
        return self._trees.write_tree(self.entries) if self.entries else None
