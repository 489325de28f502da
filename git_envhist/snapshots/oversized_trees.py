"""Limit the number of paths that trees from elsewhere represent, without walking them.

Sixty small trees, each containing the one before it twice, represent more paths than any environment has, and every
git that lists them runs without end. So trees are weighed before anything else reads them: when they arrive with a
fetch or an import, and when a command reads trees that plain git brought. The weight of a tree is the size of a list
of all its paths; it is computed from each distinct tree once. A tree is too large only if its weight is far more than
the bytes that define it.

The chunks of big files are weighed separately: a file of zeros repeats the same few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from git_envhist.errors import Damaged, EnvhistError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git
from git_envhist.snapshots.layout import PIECES
from git_envhist.snapshots.stored_names import RESERVED

ALLOWED = 256 << 20
"""Two million paths of a hundred-odd bytes are always allowed."""
ALLOWED_CHUNKS = 1 << 30
"""The chunks of several terabytes are always allowed."""
MAX_RATIO = 50
"""Above the allowed size, the maximum ratio of the size of all trees to that of the distinct ones.

No real environment repeats directories more often.
"""
MAX_DEPTH = 4096
"""git recurses once per level."""
BATCH = 500


class TreeTooLarge(EnvhistError):
    """A few trees that list each other many times contain more paths than any real environment."""

    code = "too-much"

    def __init__(self) -> None:
        super().__init__(
            "more paths differ than an environment has: no capture writes such trees",
            hint="compare with another snapshot, and check this one: git envlog fsck",
        )


class _TreeSize(NamedTuple):
    """The number of paths below a tree, the bytes of a list of them, and their depth."""

    paths: int
    listed: int
    depth: int


class _ParsedTree(NamedTuple):
    """A parsed tree: its number of entries, the bytes of a list of them, and its subtrees."""

    entries: int
    listed: int
    below: tuple[tuple[bytes, int], ...]
    """Each with the length of its name."""
    trees: tuple[bytes, ...]
    """The same, and the chunks, which are weighed separately."""
    apart: tuple[bytes, ...] = ()


class TreeSizer:
    """Weighs trees and remembers their weights."""

    def __init__(self, reader: CatFile, hash_length: int) -> None:
        self._reader = reader
        self._length = hash_length
        self._known: dict[bytes, _TreeSize] = {}
        self._read = 0

    def find_endless(self, trees: Iterable[str]) -> str | None:
        """Return the first of some trees that is too large. Raise `Damaged` if a subtree is missing."""
        wanted = list(dict.fromkeys(trees))
        for start in range(0, len(wanted), BATCH):
            some = wanted[start : start + BATCH]
            tops = [bytes.fromhex(tree) + TOP for tree in some]
            rows = self._read_below(tops)
            for tree, top in zip(some, tops, strict=True):
                self._weigh(top, rows)
                if self._is_endless(self._known[top]):
                    return tree
        return None

    def _is_endless(self, weight: _TreeSize) -> bool:
        return weight.depth > MAX_DEPTH or weight.listed > self._limit(ALLOWED)

    def _limit(self, allowed: int) -> int:
        return max(allowed, MAX_RATIO * self._read)

    def _read_below(self, tops: Sequence[bytes]) -> Mapping[bytes, _ParsedTree]:
        """Read all trees that are not weighed yet, each once."""
        found: dict[bytes, _ParsedTree] = {}
        wanted = [top for top in tops if top not in self._known]
        while wanted:
            answers = self._reader.read_many(name[: self._length].hex() for name in wanted)
            for name, answer in zip(wanted, answers, strict=True):
                if answer is None or answer.kind != "tree":
                    raise Damaged(f"a directory is missing: {name[: self._length].hex()}")
                self._read += len(answer.data)
                found[name] = _rows(name, answer.data, self._length)
            below = (tree for name in wanted for tree in found[name].trees)
            wanted = [tree for tree in dict.fromkeys(below) if tree not in found and tree not in self._known]
        return found

    def _weigh(self, top: bytes, rows: Mapping[bytes, _ParsedTree]) -> None:
        # Bottom up and without recursion: the author of a hostile tree decides its depth.
        waiting = [top]
        while waiting:
            name = waiting[-1]
            if name in self._known:
                waiting.pop()
                continue
            unknown = [tree for tree in rows[name].trees if tree not in self._known]
            waiting += unknown
            if not unknown:
                self._known[name] = self._sum(rows[name])

    def _sum(self, rows: _ParsedTree) -> _TreeSize:
        paths, listed, depth = rows.entries, rows.listed, 0
        for tree, name in rows.below:
            more, below, deep = self._known[tree]
            paths += more
            listed += below + more * (name + 1)
            depth = max(depth, deep)
        too_many = any(self._known[tree].listed > self._limit(ALLOWED_CHUNKS) for tree in rows.apart)
        return _TreeSize(paths, listed, MAX_DEPTH if too_many else depth + 1)


TOP, RESERVED_TREE = b"top", b"ours"
"""Appended to the id of a tree that is parsed in a special way for its place: the top tree, and the reserved one."""


def _rows(name: bytes, data: bytes, length: int) -> _ParsedTree:
    where = name[length:]
    entries = _entry(length).findall(data)
    trees = [(stored, oid) for mode, stored, oid in entries if mode]
    apart: list[bytes] = []
    if where == RESERVED_TREE:
        apart = [oid for stored, oid in trees if stored == PIECES]
    elif where == TOP:
        trees = [(stored, oid + RESERVED_TREE if stored == RESERVED else oid) for stored, oid in trees]
    below = tuple((oid, len(stored)) for stored, oid in trees if not apart or stored != PIECES)
    # The mode of a file has six digits, that of a tree five.
    listed = len(data) - len(entries) * (length + 7) + len(trees)
    return _ParsedTree(len(entries), listed, below, tuple(oid for _, oid in trees), tuple(apart))


@lru_cache
def _entry(length: int) -> re.Pattern[bytes]:
    # A capture writes 40000. git takes for a directory whatever has the type bits of one.
    mode = rb"(?:1[0-7]{5}|(40000|[0-7]*?(?<![1357])4[0-7]{4})|[0-7]+)"
    return re.compile(mode + rb" ([^\0]*)\0(.{%d})" % length, re.DOTALL)


def trees_of_snapshots(git: Git, tips: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """Return the trees of all commits that reach the tips and are not reachable from `known`."""
    asked = "".join([*(f"{oid}\n" for oid in tips), *(f"^{oid}\n" for oid in known)])
    if not asked or asked.startswith("^"):
        return []
    listed = git.run("log", "--format=%T", "--no-notes", "--stdin", stdin=asked.encode("ascii"))
    return list(dict.fromkeys(listed.decode("ascii").split()))


def trees_of_notes(git: Git, tips: Iterable[str]) -> list[str]:
    """Return the trees of notes tips; earlier versions of notes are never read."""
    asked = "".join(f"{oid}^{{tree}}\n" for oid in tips).encode("ascii")
    listed = git.run("cat-file", "--batch-check=%(objectname)", stdin=asked) if asked else b""
    # An object that is not a commit has no notes.
    return [line for line in listed.decode("ascii", "replace").splitlines() if " " not in line]


def refuse_oversized(git: Git, trees: Sequence[str]) -> None:
    """Raise `TreeTooLarge` if one of the trees represents an excessive number of paths."""
    with CatFile(git) as reader:
        if trees and TreeSizer(reader, len(trees[0]) // 2).find_endless(trees) is not None:
            raise TreeTooLarge
