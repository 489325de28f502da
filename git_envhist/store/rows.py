"""git's raw diff of two trees, told apart by what its rows are about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from git_envhist.store.git import Git
from git_envhist.store.pathspecs import at_top, with_positive

RESERVED = b".envhist/"
ROOTS = b".envhist/roots/"
NESTED = b".envhist/dotgit/"
SHARDS = b".envhist/manifest/"
NOT_RESERVED = b":(top,exclude).envhist"
# Never asked about here, and as numerous as a big file is long.
NOT_PIECES = b":(top,exclude).envhist/pieces"

RAW = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev")
TREE_MODE = 0o040000
ABSENT = 0
# By the length of an id in hex; git knows this tree without having it.
EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}


class DiffRow(NamedTuple):
    """One row: git's two modes, 0 where there is nothing, and two ids in hex."""

    old_mode: int
    new_mode: int
    old_oid: bytes
    new_oid: bytes

    @property
    def before(self) -> bytes | None:
        return self.old_oid if self.old_mode else None

    @property
    def after(self) -> bytes | None:
        return self.new_oid if self.new_mode else None


class DiffRows(NamedTuple):
    """The rows of one diff, by stored path where that matters."""

    contents: dict[bytes, DiffRow]
    nested: dict[bytes, DiffRow]
    shards: list[DiffRow]

    @property
    def id_length(self) -> int:
        """How many bytes an id has in this repository; 0 where nothing differs."""
        row = next(chain(self.contents.values(), self.shards, self.nested.values()), None)
        return 0 if row is None else len(row.old_oid) // 2


class RenameRow(NamedTuple):
    """One file that git takes for another one moved: stored paths, and how alike in percent."""

    before: bytes
    after: bytes
    similarity: int


@lru_cache(64)
def is_modified(old_mode: int, new_mode: int) -> bool:
    """Whether both sides are there and of one type."""
    return bool(old_mode and new_mode) and old_mode >> 12 == new_mode >> 12


def empty_tree(git: Git, like: str) -> str:
    """The tree without entries, in the hash of a repository that has the object `like`."""
    return EMPTY_TREES[len(git.run("rev-parse", "--verify", "--end-of-options", like).strip())]


def parse_rows(listed: bytes) -> DiffRows:
    """All that git saw differ between two trees."""
    parts = listed.split(b"\0")
    return sort_rows(zip(parts[1::2], map(parse_row, parts[0:-1:2]), strict=True))


def parse_row(text: bytes) -> DiffRow:
    """The row that `:100644 100644 <id> <id> M` tells."""
    old_mode, new_mode, old_oid, new_oid, _ = text.split(b" ")
    return DiffRow(_mode(old_mode[1:]), _mode(new_mode), old_oid, new_oid)


@lru_cache(64)
def _mode(word: bytes) -> int:
    return int(word, 8)


def sort_rows(rows: Iterable[tuple[bytes, DiffRow]]) -> DiffRows:
    """Tell the rows of the environment from those of what is kept beside it."""
    found = DiffRows({}, {}, [])
    for path, row in rows:
        is_tree = TREE_MODE in (row.old_mode, row.new_mode)
        if not path.startswith(b".envhist") or path[8:9] not in (b"/", b""):
            if not is_tree:
                found.contents[path] = row
        elif path.startswith(SHARDS):
            if not is_tree:
                found.shards.append(row)
        elif path.startswith(NESTED):
            if path.count(b"/") == NESTED.count(b"/"):
                found.nested[path] = row
        elif path.startswith(ROOTS) and not is_tree:
            found.contents[path] = row
    return found


def read_renames(
    git: Git, before: str, after: str, pathspecs: Sequence[bytes], similarity: int
) -> Iterable[RenameRow]:
    """The files that git takes for moved ones, among those that the pathspecs mean."""
    words = (*RAW, f"-M{similarity}%", "--diff-filter=R", before, after, "--")
    limits = (*with_positive(pathspecs), NOT_RESERVED)
    parts = git.run(*at_top(git), *words, *limits, environment=git.no_index).split(b"\0")
    for text, old, new in zip(parts[0:-1:3], parts[1::3], parts[2::3], strict=True):
        yield RenameRow(old, new, int(text.rpartition(b" R")[2]))
