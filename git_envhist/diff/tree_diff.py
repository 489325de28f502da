"""Compare two trees with `git diff-tree`, and sort its rows by subject.

git writes into a memory file, because a pipe would block it until it is read. Trees of unlimited size can be built
from a few objects, so git runs under limits of memory and time (`MAX_MEMORY`, `MAX_SECONDS`). A comparison that exceeds
them is repeated without limits only if the trees are large but finite (`snapshots/oversized_trees`).
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from git_envhist.errors import GitFailed
from git_envhist.git.cat_file import EMPTY_TREES
from git_envhist.git.pathspecs import at_top, with_positive
from git_envhist.git.process import Git, GitProcess, GitResult
from git_envhist.platform import limit_process

ROOTS = b".envhist/roots/"
NESTED = b".envhist/dotgit/"
MANIFEST_PREFIX = b".envhist/manifest/"
NOT_RESERVED = b":(top,exclude).envhist"
# Chunks are not compared here, and a big file has many.
NOT_PIECES = b":(top,exclude).envhist/pieces"

RAW = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev")
TREE_MODE = 0o040000
ABSENT = 0


class DiffRow(NamedTuple):
    """A row of diff-tree: two modes of git's, 0 on a side that does not exist, and two ids in hex."""

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
    """The rows of a diff, sorted by subject: contents of the environment, nested repositories, manifest shards."""

    contents: dict[bytes, DiffRow]
    nested: dict[bytes, DiffRow]
    shards: list[DiffRow]

    @property
    def id_length(self) -> int:
        """The length of an id in bytes; 0 if nothing differs."""
        row = next(chain(self.contents.values(), self.shards, self.nested.values()), None)
        return 0 if row is None else len(row.old_oid) // 2


class RenameRow(NamedTuple):
    """A renamed file as git detects it: stored paths, similarity in percent."""

    before: bytes
    after: bytes
    similarity: int


@lru_cache(64)
def has_same_type(old_mode: int, new_mode: int) -> bool:
    """Return whether both sides exist and have the same type."""
    return bool(old_mode and new_mode) and old_mode >> 12 == new_mode >> 12


def parse_rows(listed: bytes) -> DiffRows:
    """Parse the output of diff-tree."""
    parts = listed.split(b"\0")
    return sort_rows(zip(parts[1::2], map(parse_row, parts[0:-1:2]), strict=True))


def parse_row(text: bytes) -> DiffRow:
    """Parse a row such as `:100644 100644 <id> <id> M`."""
    old_mode, new_mode, old_oid, new_oid, _ = text.split(b" ")
    return DiffRow(_mode(old_mode[1:]), _mode(new_mode), old_oid, new_oid)


@lru_cache(64)
def _mode(word: bytes) -> int:
    return int(word, 8)


def sort_rows(rows: Iterable[tuple[bytes, DiffRow]]) -> DiffRows:
    """Sort rows by the part of the snapshot they are about."""
    found = DiffRows({}, {}, [])
    for path, row in rows:
        is_tree = TREE_MODE in (row.old_mode, row.new_mode)
        if not path.startswith(b".envhist") or path[8:9] not in (b"/", b""):
            if not is_tree:
                found.contents[path] = row
        elif path.startswith(MANIFEST_PREFIX):
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
    """Return the renames that git detects among the files that match the pathspecs."""
    words = (*RAW, f"-M{similarity}%", "--diff-filter=R", before, after, "--")
    limits = (*with_positive(pathspecs), NOT_RESERVED)
    parts = git.run(*at_top(git), *words, *limits, environment=git.no_index).split(b"\0")
    for text, old, new in zip(parts[0:-1:3], parts[1::3], parts[2::3], strict=True):
        yield RenameRow(old, new, int(text.rpartition(b" R")[2]))


ROWS = (*RAW, "-t", "--no-renames")
TOP = b":(top)"
NOT_SHARDS = b":(top,exclude).envhist/manifest"
SHARDS = b":(top).envhist/manifest"
MAX_MEMORY, MAX_SECONDS = 2 << 30, 30
"""git collects all differences before it prints any: a few hundred bytes per path, a million paths per second."""
NO_MEMORY = b"ut of memory"


class TreeDiffProcess:
    """A running comparison of two trees; call `close` at the end."""

    def __init__(self, git: Git, before: str, after: str, *, shards: bool) -> None:
        """Compare everything but the manifest shards, or with `shards` only these."""
        limits = (SHARDS,) if shards else (TOP, NOT_SHARDS, NOT_PIECES)
        self._words: list[str | bytes] = [*at_top(git), *ROWS, before, after, "--", *limits]
        self._environment = {**git.environment, **git.no_index}
        self._git, self._trees = git, (before, after)
        self._running = _start(self._git, self._words, self._environment)

    def finish(self) -> bytes:
        """Return the rows; raise TreeTooLarge if a few objects expand to an unlimited number of paths."""
        done = self._running.finish()
        if _exceeded_limits(done):
            _refuse_endless_trees(self._git, self._trees)
            self._running = _start(self._git, self._words, self._environment, limited=False)
            done = self._running.finish()
        return _rows_of(done)

    def close(self) -> None:
        if self._running.process:
            self._running.finish()


def compare_many(git: Git, words: Sequence[str | bytes], questions: bytes, trees: Sequence[str]) -> bytes:
    """Return git's output for many comparisons in one process; `trees` are all trees involved."""
    words, environment = [*at_top(git), *words], {**git.environment, **git.no_index}
    done = _start(git, words, environment, questions).finish()
    if _exceeded_limits(done):
        _refuse_endless_trees(git, trees)
        done = _start(git, words, environment, questions, limited=False).finish()
    return _rows_of(done)


def _rows_of(done: GitResult) -> bytes:
    if done.unless_killed().status != 0:
        raise GitFailed(done.complaint)
    return done.out


def _refuse_endless_trees(git: Git, trees: Iterable[str]) -> None:
    from git_envhist.snapshots.oversized_trees import refuse_oversized  # loaded late: few trees are so large

    names = "".join(f"{tree}^{{tree}}\n" for tree in trees).encode("ascii")
    listed = git.run("cat-file", "--batch-check=%(objectname)", stdin=names).decode("ascii").splitlines()
    # Missing trees are skipped here; the caller that needs one reports it.
    refuse_oversized(git, [tree for tree in listed if " " not in tree and tree not in EMPTY_TREES.values()])


def _start(
    git: Git,
    words: Sequence[str | bytes],
    environment: Mapping[bytes, bytes],
    stdin: bytes = b"",
    *,
    limited: bool = True,
) -> GitProcess:
    """Start a command whose output goes to a file in memory."""
    running = GitProcess([*git.command, *words], environment, stdin=stdin, keeps_output=True)
    if limited:
        limit_process(running.process, memory=MAX_MEMORY, seconds=MAX_SECONDS)
    return running


def _exceeded_limits(done: GitResult) -> bool:
    return done.status == -signal.SIGXCPU or (done.status != 0 and NO_MEMORY in done.err)
