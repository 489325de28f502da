"""Objects by git's names, read in this process where a pack of a capture holds them; git's own reader tells the rest.

For a comparison, which reads some hundred small objects and a few large ones: a git to ask costs 2 ms to start, and
every object takes it longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from git_envhist.errors import Damaged
from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile, GitObject
from git_envhist.store.ownpacks import OwnPacks
from git_envhist.store.scattered import Scattered
from git_envhist.store.trees import DIRECTORY, decode_by_name
from git_envhist.system import open_file_only

FORMATS = {40: "sha1", 64: "sha256"}
TREE = "^{tree}"


class OwnFirst:
    """Answers as `CatFile` does, which is asked for what is not ours."""

    def __init__(self, git: Git, others: CatFile, like: str) -> None:
        """`like`: an id, as long as all of them."""
        self._others = others
        self._own = Scattered(_packs(git, like))
        self._trees: dict[tuple[str, str], dict[bytes, tuple[int, bytes]]] = {}

    def ours(self, oid: bytes) -> tuple[bytes, bytes]:
        """The kind and the bytes of an object; `KeyError` where no pack of ours has it, `Damaged` where none whole."""
        return self._own.read(oid)

    def root_tree(self, name: str) -> bytes:
        """The bytes of the tree that the whole id of a commit or a tree means; `KeyError` where it is not ours."""
        kind, data = self._own.read(_raw(name))
        if kind == b"commit" and data.startswith(b"tree "):
            kind, data = self._own.read(_raw(data[5 : data.find(b"\n")].decode("ascii", "replace")))
        if kind != b"tree":
            raise KeyError(name)
        return data

    def read(self, name: str | bytes) -> GitObject | None:
        """The object of that name; None where there is none."""
        try:
            kind, data = self._find(os.fsdecode(name))
        except (KeyError, Damaged):
            return self._others.read(name)
        return GitObject(kind.decode("ascii"), data)

    def read_many(self, names: Iterable[str | bytes]) -> Iterator[GitObject | None]:
        """The objects of these names in turn."""
        return map(self.read, names)

    def close(self) -> None:
        self._own.close()

    def _find(self, name: str) -> tuple[bytes, bytes]:
        start, colon, path = name.partition(":")
        if colon:
            above, _, last = path.rpartition("/")
            return self._own.read(self._tree(start, above)[os.fsencode(last)][1])
        if name.endswith(TREE):
            return b"tree", self.root_tree(name.removesuffix(TREE))
        return self._own.read(_raw(name))

    def _tree(self, start: str, path: str) -> dict[bytes, tuple[int, bytes]]:
        found = self._trees.get((start, path))
        if found is None:
            found = self._trees[start, path] = self._read_tree(start, path)
        return found

    def _read_tree(self, start: str, path: str) -> dict[bytes, tuple[int, bytes]]:
        if not path:
            return decode_by_name(self.root_tree(start), len(start) // 2)
        above, _, last = path.rpartition("/")
        mode, oid = self._tree(start, above)[os.fsencode(last)]
        if mode != DIRECTORY:
            raise KeyError(path)
        return decode_by_name(self._own.read(oid)[1], len(oid))


def _packs(git: Git, like: str) -> OwnPacks:
    object_format = FORMATS.get(len(like), "sha1")
    place = os.path.join(_common_dir(git.git_dir), "objects", "pack")
    try:
        return OwnPacks.open(place, object_format)
    except OSError:
        return OwnPacks(place, object_format, [])


def _raw(name: str) -> bytes:
    """The bytes of a whole id; `KeyError` where a name is none."""
    try:
        oid = bytes.fromhex(name)
    except ValueError:
        raise KeyError(name) from None
    if 2 * len(oid) != len(name) or len(name) not in FORMATS:
        raise KeyError(name)
    return oid


def _common_dir(git_dir: str) -> str:
    """Where git keeps the objects: in a linked worktree a file says it."""
    try:
        with open(os.path.join(git_dir, "commondir"), "rb", opener=open_file_only) as file:
            return os.path.join(git_dir, os.fsdecode(file.read().removesuffix(b"\n")))
    except OSError:
        return git_dir
