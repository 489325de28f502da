"""Pathspecs as git means them, asked about true names.

A snapshot's tree spells some names in an escape (`store/names.py`), so git's own limiting by path would compare a
pattern with the wrong spelling. Hence git is asked about the true names: the paths in question are written into a
throw-away index, and `git ls-files` says which of them match. Every kind of magic that git knows works so, and no
pattern is ever interpreted here.

A path of a further root is spelled `<name>://<path>`: no path of the environment has an empty component.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import NamedTuple

from git_envhist import trace
from git_envhist.errors import GitFailed, UsageError
from git_envhist.git.process import Git, GitResult, memory_file, read_all, refuse_without_git
from git_envhist.lazy import pattern as expression
from git_envhist.platform import keep_below

FILE_MODE = 0o100644
# A gitlink is the one thing in an index that a pattern with a slash at its end matches: so directories are written.
DIRECTORY_MODE = 0o160000

SHORT_MAGIC = {b"/": b"top", b"!": b"exclude", b"^": b"exclude"}
STAT_DATA = Struct(">10I")
MAX_NAME = 0xFFF
STARS = expression(rb"\*+")
MAX_STARS = 2
"""In one name of a pathspec with (glob)."""


def anchored(typed: bytes, prefix: bytes, root: bytes) -> bytes:
    """A pathspec typed in the directory `prefix` below `root` ("" or "a/b/"), spelled as from the top."""
    magic, pattern = _split_magic(typed)
    if b"top" in magic:
        prefix = b""
    words = [word for word in magic if word not in (b"", b"top") and not word.startswith(b"prefix:")]
    path = _from_top(pattern, prefix, root)
    # What the shell's directory gave is no pattern, whatever letters it is made of: git's own word for this.
    literal = len(os.path.commonpath([prefix, path]))
    return b":(" + b",".join([b"prefix:%d" % literal, *words]) + b")" + path


def directory_prefix(directory: bytes, root: bytes) -> bytes:
    """Where a directory lies below the top, with a slash at its end; the top, or a place elsewhere, is ''."""
    inside = os.path.relpath(os.path.realpath(directory), os.path.realpath(root))
    if inside == b"." or inside == b".." or inside.startswith(b"../"):
        return b""
    return inside + b"/"


def at_top(git: Git) -> tuple[bytes, ...]:
    """The words before a git command that make it read pathspecs from the top, wherever the user stands."""
    return (b"-C", os.fsencode(git.work_tree)) if git.work_tree is not None else ()


def with_positive(pathspecs: Sequence[bytes]) -> tuple[bytes, ...]:
    """The same pathspecs; where all of them exclude, together with the top: only then does git look everywhere.

    `UsageError` if git would match one of them with unbounded work.
    """
    for spec in pathspecs:
        _refuse_endless(spec)
    if all(b"exclude" in _split_magic(spec)[0] for spec in pathspecs):
        return (b":(top)", *pathspecs)
    return tuple(pathspecs)


def patterns_of(pathspecs: Sequence[bytes]) -> frozenset[bytes]:
    """Return the patterns that choose something; an empty one chooses everything."""
    split = map(_split_magic, with_positive(pathspecs))
    return frozenset(pattern for magic, pattern in split if b"exclude" not in magic)


def matching(
    git: Git,
    paths: Iterable[bytes],
    directories: Iterable[bytes],
    pathspecs: Sequence[bytes],
) -> frozenset[bytes]:
    """Those of the paths that the pathspecs, spelled as from the top, mean; `directories` are some of the paths."""
    from tempfile import NamedTemporaryFile  # loaded late: only a diff with pathspecs needs it

    with NamedTemporaryFile(prefix="git-envhist-") as index:
        id_length = 20 if git.run("rev-parse", "--show-object-format").strip() == b"sha1" else 32
        index.write(write_index(paths, directories, id_length))
        index.flush()
        listed = git.run(
            *at_top(git), "ls-files", "-z", "--full-name", "--", *with_positive(pathspecs),
            environment={b"GIT_INDEX_FILE": os.fsencode(index.name)},
        )  # fmt: skip
    return frozenset(listed.split(b"\0")[:-1])


def write_index(paths: Iterable[bytes], directories: Iterable[bytes], id_length: int) -> bytes:
    """An index that holds just these paths, each with an id of no meaning."""
    from hashlib import sha1, sha256  # loaded late: without pathspecs nothing is hashed

    digest = sha1 if id_length == 20 else sha256
    any_id = b"\1" * id_length
    modes = dict.fromkeys(paths, FILE_MODE)
    modes.update(dict.fromkeys(directories, DIRECTORY_MODE))
    body = [b"DIRC\0\0\0\2", len(modes).to_bytes(4, "big")]
    for path in sorted(modes):
        length = min(len(path), MAX_NAME)
        entry = (
            STAT_DATA.pack(0, 0, 0, 0, 0, 0, modes[path], 0, 0, 0) + any_id + length.to_bytes(2, "big") + path
        )
        body.append(entry + b"\0" * (8 - len(entry) % 8))
    content = b"".join(body)
    return content + digest(content).digest()


def _refuse_endless(spec: bytes) -> None:
    # With (glob), git tries every way to share a name among the stars: four against a long name take minutes.
    magic, pattern = _split_magic(spec)
    is_glob = b"glob" in magic or os.environ.get("GIT_GLOB_PATHSPECS", "0").lower() in (
        "1",
        "true",
        "yes",
        "on",
    )
    if is_glob and any(len(STARS.findall(name)) > MAX_STARS for name in pattern.split(b"/")):
        raise UsageError(
            f"more than {MAX_STARS} stars in one name of the pathspec '{os.fsdecode(pattern)}'",
            hint="leave out (glob): other pathspecs have no such limit",
        )


def _split_magic(typed: bytes) -> tuple[list[bytes], bytes]:
    if typed.startswith(b":("):
        words, closed, pattern = typed[2:].partition(b")")
        if not closed:
            raise UsageError(f"missing ')' at the end of pathspec magic in '{os.fsdecode(typed)}'")
        return words.split(b","), pattern
    if not typed.startswith(b":"):
        return [], typed
    end = 1
    while typed[end : end + 1] in SHORT_MAGIC:
        end += 1
    shorts = [SHORT_MAGIC[typed[at : at + 1]] for at in range(1, end)]
    return shorts, typed[end:].removeprefix(b":")


def _from_top(pattern: bytes, prefix: bytes, root: bytes) -> bytes:
    if pattern.startswith(b"/"):
        inside = os.path.normpath(pattern)
        if inside == root:
            return b""
        if not inside.startswith(root.rstrip(b"/") + b"/"):
            raise UsageError(f"'{os.fsdecode(pattern)}' is outside the environment at '{os.fsdecode(root)}'")
        prefix, pattern = b"", pattern[len(root.rstrip(b"/")) + 1 :]
    further_root, separator, below = pattern.partition(b"://")
    if separator and b"/" not in further_root:
        return further_root + separator + _collapse(b"", below, pattern, root)
    return _collapse(prefix, pattern, pattern, root)


def _collapse(prefix: bytes, below: bytes, pattern: bytes, root: bytes) -> bytes:
    parts: list[bytes] = []
    for part in (prefix + below).split(b"/"):
        if part == b".." and not parts:
            raise UsageError(f"'{os.fsdecode(pattern)}' is outside the environment at '{os.fsdecode(root)}'")
        if part == b"..":
            parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    slash = b"/" if parts and (prefix + below).endswith(b"/") else b""
    return b"/".join(parts) + slash


# git's raw diff of two trees, told apart by what its rows are about.

ROOTS = b".envhist/roots/"
NESTED = b".envhist/dotgit/"
MANIFEST_PREFIX = b".envhist/manifest/"
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
    """The files that git takes for moved ones, among those that the pathspecs mean."""
    words = (*RAW, f"-M{similarity}%", "--diff-filter=R", before, after, "--")
    limits = (*with_positive(pathspecs), NOT_RESERVED)
    parts = git.run(*at_top(git), *words, *limits, environment=git.no_index).split(b"\0")
    for text, old, new in zip(parts[0:-1:3], parts[1::3], parts[2::3], strict=True):
        yield RenameRow(old, new, int(text.rpartition(b" R")[2]))


# What git says of two trees, asked beside other work: the rows that differ.
#
# The answer goes into a memory file: a pipe would hold git up until somebody reads it.

ROWS = (*RAW, "-t", "--no-renames")
TOP = b":(top)"
NOT_SHARDS = b":(top,exclude).envhist/manifest"
SHARDS = b":(top).envhist/manifest"
MAX_MEMORY, MAX_SECONDS = 2 << 30, 30
"""git keeps all that differs in mind before it says any of it: a few hundred bytes a path, and of a million a second.
Who makes up trees can have it go on for ever: what takes more than this is weighed, and, where it is only large, asked
for again."""
NO_MEMORY = b"ut of memory"

CheckSizes = Callable[[Git, Sequence[str]], None]
"""Raise `TreeTooLarge` if one of some trees has more entries than an environment can have."""


class TreeDiffProcess:
    """Two trees that git is comparing; to be closed."""

    def __init__(self, git: Git, before: str, after: str, *, shards: bool, check_sizes: CheckSizes) -> None:
        """All but the shards of the manifest, or these alone."""
        self._check_sizes = check_sizes
        limits = (SHARDS,) if shards else (TOP, NOT_SHARDS, NOT_PIECES)
        self._words: list[str | bytes] = [*at_top(git), *ROWS, before, after, "--", *limits]
        self._environment = {**git.environment, **git.no_index}
        self._git, self._trees = git, (before, after)
        self._running = _Running(self._git, self._words, self._environment)

    def finish(self) -> bytes:
        """The rows; `TreeTooLarge` where there are more than an environment has."""
        done = self._running.finish()
        if _took_too_much(done):
            _check_sizes(self._git, self._trees, self._check_sizes)
            self._running = _Running(self._git, self._words, self._environment, held=False)
            done = self._running.finish()
        return _rows_of(done)

    def close(self) -> None:
        if not self._running.is_finished:
            self._running.finish()


def compare_many(
    git: Git, words: Sequence[str | bytes], asked: bytes, trees: Sequence[str], check_sizes: CheckSizes
) -> bytes:
    """What git says of many comparisons that it is asked for; `trees`: all that these have to do with."""
    words, environment = [*at_top(git), *words], {**git.environment, **git.no_index}
    done = _Running(git, words, environment, asked).finish()
    if _took_too_much(done):
        _check_sizes(git, trees, check_sizes)
        done = _Running(git, words, environment, asked, held=False).finish()
    return _rows_of(done)


def _rows_of(done: GitResult) -> bytes:
    if done.by_itself().status != 0:
        raise GitFailed(done.complaint)
    return done.out


def _check_sizes(git: Git, trees: Iterable[str], check_sizes: CheckSizes) -> None:
    names = "".join(f"{tree}^{{tree}}\n" for tree in trees).encode("ascii")
    told = git.run("cat-file", "--batch-check=%(objectname)", stdin=names).decode("ascii").splitlines()
    # What is missing is told by whoever needs it.
    check_sizes(git, [tree for tree in told if " " not in tree and tree not in EMPTY_TREES.values()])


class _Running:
    """A git command at work."""

    def __init__(
        self,
        git: Git,
        words: Sequence[str | bytes],
        environment: Mapping[bytes, bytes],
        stdin: bytes = b"",
        *,
        held: bool = True,
    ) -> None:
        self.is_finished = False
        self._answer = memory_file(b"")
        self._complaints = memory_file(b"")
        self._asked = memory_file(stdin)
        actions = [
            (os.POSIX_SPAWN_DUP2, self._asked, 0),
            (os.POSIX_SPAWN_DUP2, self._answer, 1),
            (os.POSIX_SPAWN_DUP2, self._complaints, 2),
        ]
        self._told, self._began = ("git", *words), trace.now()
        try:
            self._child = os.posix_spawnp("git", [*git.command, *words], environment, file_actions=actions)
        except BaseException as failure:
            self._close()
            refuse_without_git(failure)
            raise
        if held:
            keep_below(self._child, memory=MAX_MEMORY, seconds=MAX_SECONDS)

    def finish(self) -> GitResult:
        """Wait for its end, and say what came of it."""
        self.is_finished = True
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
            trace.tell_git(self._told, self._began, status)
            return GitResult(status, _content(self._answer), _content(self._complaints))
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._asked)
        os.close(self._answer)
        os.close(self._complaints)


def _took_too_much(done: GitResult) -> bool:
    return done.status == -signal.SIGXCPU or (done.status != 0 and NO_MEMORY in done.err)


def _content(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return read_all(descriptor)
