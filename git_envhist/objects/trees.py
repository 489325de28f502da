"""git's tree objects, and the id of any object (pure).

A tree is `<mode> <name>\\0<raw id>` for each entry, ordered by name as if each directory's name ended in a slash.
Measured with 20,000 entries: encoding takes 6 ms (dulwich 19), decoding with all checks 9 ms.
tests/objects/test_trees.py repeats the measurement, and compares the order with git's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from operator import itemgetter
from typing import Protocol

from git_envhist.errors import Damaged
from git_envhist.model import ObjectId
from git_envhist.printable_text import display_bytes

FILE = 0o100644
EXECUTABLE = 0o100755
LINK = 0o120000
DIRECTORY = 0o40000
GITLINK = 0o160000
"""Not used in our trees: the files of a nested repository are ordinary entries."""

TreeEntry = tuple[bytes, int, bytes]
"""(stored name, git's mode, raw id)."""

_WORDS = {mode: b"%o " % mode for mode in (FILE, EXECUTABLE, LINK, DIRECTORY)}
_MODES = {b"%o" % mode: mode for mode in (FILE, EXECUTABLE, LINK, DIRECTORY, GITLINK)}
_IMPOSSIBLE = frozenset((b"", b".", b".."))


def encode_tree(entries: Iterable[TreeEntry]) -> bytes:
    """Return the tree object with these entries, given in any order."""
    ordered = sorted(entries, key=_order)
    if len({entry[0] for entry in ordered}) != len(ordered):
        raise ValueError("a tree cannot contain a name twice")
    words = _WORDS
    try:
        return b"".join([b"%b%b\0%b" % (words[mode], name, oid) for name, mode, oid in ordered])
    except KeyError as unknown:
        raise ValueError(f"not a mode of our trees: {unknown.args[0]:o}") from None


def decode_tree(data: bytes, hash_length: int, *, gitlinks: bool = False) -> list[TreeEntry]:
    """Return the entries of a tree object after the checks of git's fsck; `gitlinks` are allowed in trees of code."""
    return list(zip(*_columns(data, hash_length, gitlinks), strict=True))


def decode_by_name(data: bytes, hash_length: int) -> dict[bytes, tuple[int, bytes]]:
    """Return (git's mode, raw id) by stored name."""
    names, modes, oids = _columns(data, hash_length, False)
    return dict(zip(names, zip(modes, oids, strict=True), strict=True))


def object_id(kind: bytes, data: bytes, object_format: str) -> ObjectId:
    """Return git's id of an object of this type and content."""
    import hashlib  # loaded late: a list of paths hashes nothing

    digest = hashlib.new(object_format, b"%b %d\0" % (kind, len(data)), usedforsecurity=False)
    digest.update(data)
    return ObjectId(digest.digest())


def _order(entry: TreeEntry) -> bytes:
    return entry[0] + b"/" if entry[1] == DIRECTORY else entry[0]


@lru_cache
def _pattern(hash_length: int, gitlinks: bool) -> re.Pattern[bytes]:
    modes = [b"100644", b"100755", b"120000", b"40000", *([b"160000"] if gitlinks else [])]
    return re.compile(rb"(" + b"|".join(modes) + rb") ([^\0/]+)\0(.{%d})" % hash_length, re.DOTALL)


def _columns(data: bytes, hash_length: int, gitlinks: bool) -> tuple[list[bytes], list[int], list[bytes]]:
    """Return names, modes and ids as three lists, computed without a loop over the entries."""
    found: list[tuple[bytes, bytes, bytes]] = _pattern(hash_length, gitlinks).findall(data)
    words, names, oids = (list(map(itemgetter(column), found)) for column in range(3))
    # Matches do not overlap, so their lengths add up to the whole only if nothing is between them.
    if sum(map(len, words)) + sum(map(len, names)) + len(found) * (2 + hash_length) != len(data):
        raise Damaged(_what_is_wrong(data, hash_length, gitlinks))
    modes = list(map(_MODES.__getitem__, words))
    _check_names(names, modes)
    null = bytes(hash_length)
    if null in oids:
        raise Damaged(f"a tree contains no content for '{display_bytes(names[oids.index(null)])}'")
    return names, modes, oids


def _check_names(names: list[bytes], modes: list[int]) -> None:
    known = set(names)
    if len(known) != len(names):
        raise Damaged("a tree contains a name twice")
    if not known.isdisjoint(_IMPOSSIBLE):
        raise Damaged("a tree contains a name that leads out of it")
    keys = names
    if DIRECTORY in modes:
        keys = [name + b"/" if mode == DIRECTORY else name for name, mode in zip(names, modes, strict=True)]
    if keys != sorted(keys):
        raise Damaged("the entries of a tree are not in order")


def _what_is_wrong(data: bytes, hash_length: int, gitlinks: bool) -> str:
    at = 0
    pattern = _pattern(hash_length, gitlinks)
    while entry := pattern.match(data, at):
        at = entry.end()
    mode, space, rest = data[at : at + 4096].partition(b" ")
    name, nul, _ = rest.partition(b"\0")
    if not space or not nul or at + len(mode) + len(name) + 2 + hash_length > len(data):
        return "a tree ends in the middle of an entry"
    if b"/" in name or not name:
        return f"a tree contains an impossible name: '{display_bytes(name)}'"
    return f"a tree contains an entry of unknown mode: '{display_bytes(mode)} {display_bytes(name)}'"


# Change trees within trees.

Row = tuple[int, bytes]
Tree = dict[bytes, Row]
TYPE = 0o170000


class TreeStore(Protocol):
    """Read and write trees."""

    def tree(self, oid: bytes | None) -> Tree: ...
    def write_tree(self, tree: Tree) -> bytes: ...


class TreeEditor:
    """A tree that is being changed; subtrees are read at first use."""

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
        """Store the changed trees and return the id; None if the tree is empty, which git does not store."""
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
