"""How much a tree stands for, told without walking it: a directory that is held in many places is read once.

Sixty small trees, each of which holds the one before it twice, stand for more paths than anybody has, and every git
that lists them goes on for ever. So what came from elsewhere is weighed here before anybody else reads a tree of it:
when it comes with a fetch or an import, and, where plain git put it among our own, when somebody asks for it. The
weight is what a list of all its paths would take. However large a tree is, it may be: it is endless only where it is
told in few bytes.

The pieces of large files are weighed apart: of a file of zeros they are the same few, over and over.
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
from git_envhist.snapshots.names import RESERVED

PLENTY = 256 << 20
"""Two million paths of a hundred and some bytes. Nobody has to explain so many."""
PLENTY_OF_PIECES = 1 << 30
"""Those of some terabytes."""
ALIKE = 50
"""So many times what its directories take, each read once: an environment in which each stands so often is none."""
MAX_DEPTH = 4096
"""git goes down by calling itself."""
AT_ONCE = 500


class TreeTooLarge(EnvhistError):
    """A few trees that hold each other many times over stand for more paths than anybody has."""

    code = "too-much"

    def __init__(self) -> None:
        super().__init__(
            "more paths differ than an environment has: these trees are not as a capture writes them",
            hint="compare with another snapshot, and ask 'git envlog fsck' about this one",
        )


class _TreeSize(NamedTuple):
    """Of a tree: its paths, the bytes of a list of them, and how deep they go."""

    paths: int
    listed: int
    depth: int


class _ParsedTree(NamedTuple):
    """One tree, read: how many entries it has, what a list of them takes, and the trees in it."""

    entries: int
    listed: int
    below: tuple[tuple[bytes, int], ...]
    """Each with the length of its name."""
    trees: tuple[bytes, ...]
    """The same, and the pieces, which are weighed apart."""
    apart: tuple[bytes, ...] = ()


class TreeSizer:
    """Weighs trees; what was weighed once is known."""

    def __init__(self, reader: CatFile, hash_length: int) -> None:
        self._reader = reader
        self._length = hash_length
        self._known: dict[bytes, _TreeSize] = {}
        self._read = 0

    def find_endless(self, trees: Iterable[str]) -> str | None:
        """The first of some trees that stands for more than it may; `Damaged` where a directory is not there."""
        wanted = list(dict.fromkeys(trees))
        for start in range(0, len(wanted), AT_ONCE):
            some = wanted[start : start + AT_ONCE]
            tops = [bytes.fromhex(tree) + TOP for tree in some]
            rows = self._read_below(tops)
            for tree, top in zip(some, tops, strict=True):
                self._weigh(top, rows)
                if self._is_endless(self._known[top]):
                    return tree
        return None

    def _is_endless(self, weight: _TreeSize) -> bool:
        return weight.depth > MAX_DEPTH or weight.listed > self._most(PLENTY)

    def _most(self, plenty: int) -> int:
        return max(plenty, ALIKE * self._read)

    def _read_below(self, tops: Sequence[bytes]) -> Mapping[bytes, _ParsedTree]:
        """All trees that are not weighed yet, each once."""
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
        # From below, without calls of calls: who makes up trees decides how deep they go.
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
        too_many = any(self._known[tree].listed > self._most(PLENTY_OF_PIECES) for tree in rows.apart)
        return _TreeSize(paths, listed, MAX_DEPTH if too_many else depth + 1)


TOP, OURS = b"top", b"ours"
"""Stand behind the id of a tree that is read in another way for where it hangs."""


def _rows(name: bytes, data: bytes, length: int) -> _ParsedTree:
    where = name[length:]
    entries = _entry(length).findall(data)
    trees = [(stored, oid) for mode, stored, oid in entries if mode]
    apart: list[bytes] = []
    if where == OURS:
        apart = [oid for stored, oid in trees if stored == PIECES]
    elif where == TOP:
        trees = [(stored, oid + OURS if stored == RESERVED else oid) for stored, oid in trees]
    below = tuple((oid, len(stored)) for stored, oid in trees if not apart or stored != PIECES)
    # The mode of a file has six digits, that of a tree five.
    listed = len(data) - len(entries) * (length + 7) + len(trees)
    return _ParsedTree(len(entries), listed, below, tuple(oid for _, oid in trees), tuple(apart))


@lru_cache
def _entry(length: int) -> re.Pattern[bytes]:
    # A capture writes 40000. git takes for a directory whatever says so in the four bits that tell what a thing is.
    mode = rb"(?:1[0-7]{5}|(40000|[0-7]*?(?<![1357])4[0-7]{4})|[0-7]+)"
    return re.compile(mode + rb" ([^\0]*)\0(.{%d})" % length, re.DOTALL)


def trees_of_moments(git: Git, tips: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """The trees of all commits that lead to tips, and to none that is known."""
    asked = "".join([*(f"{oid}\n" for oid in tips), *(f"^{oid}\n" for oid in known)])
    if not asked or asked.startswith("^"):
        return []
    told = git.run("log", "--format=%T", "--no-notes", "--stdin", stdin=asked.encode("ascii"))
    return list(dict.fromkeys(told.decode("ascii").split()))


def trees_of_notes(git: Git, tips: Iterable[str]) -> list[str]:
    """The trees of tips: nobody reads what notes were."""
    asked = "".join(f"{oid}^{{tree}}\n" for oid in tips).encode("ascii")
    told = git.run("cat-file", "--batch-check=%(objectname)", stdin=asked) if asked else b""
    # What is no commit holds no notes.
    return [line for line in told.decode("ascii", "replace").splitlines() if " " not in line]


def refuse_too_large(git: Git, trees: Sequence[str]) -> None:
    """`TreeTooLarge` where one of some trees stands for any number of paths."""
    with CatFile(git) as reader:
        if trees and TreeSizer(reader, len(trees[0]) // 2).find_endless(trees) is not None:
            raise TreeTooLarge
