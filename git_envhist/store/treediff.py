"""What git says of two trees, asked beside other work: the rows that differ.

The answer goes into a memory file: a pipe would hold git up until somebody reads it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping, Sequence

from git_envhist import trace
from git_envhist.errors import GitFailed
from git_envhist.store.git import Git, GitResult, memory_file, read_all, refuse_without_git
from git_envhist.store.pathspecs import at_top
from git_envhist.store.rows import EMPTY_TREES, NOT_PIECES, RAW
from git_envhist.system import keep_below

ROWS = (*RAW, "-t", "--no-renames")
TOP = b":(top)"
NOT_SHARDS = b":(top,exclude).envhist/manifest"
SHARDS = b":(top).envhist/manifest"
MOST_MEMORY, MOST_SECONDS = 2 << 30, 30
"""git keeps all that differs in mind before it says any of it: a few hundred bytes a path, and of a million a second.
Who makes up trees can have it go on for ever: what takes more than this is weighed, and, where it is only large, asked
for again."""
NO_MEMORY = b"ut of memory"


class TreeDiffProcess:
    """Two trees that git is comparing; to be closed."""

    def __init__(self, git: Git, before: str, after: str, *, shards: bool) -> None:
        """All but the shards of the manifest, or these alone."""
        limits = (SHARDS,) if shards else (TOP, NOT_SHARDS, NOT_PIECES)
        self._words: list[str | bytes] = [*at_top(git), *ROWS, before, after, "--", *limits]
        self._environment = {**git.environment, **git.no_index}
        self._git, self._trees = git, (before, after)
        self._running = _Running(self._git, self._words, self._environment)

    def finish(self) -> bytes:
        """The rows; `TreeTooLarge` where there are more than an environment has."""
        done = self._running.finish()
        if _took_too_much(done):
            _refuse_endless(self._git, self._trees)
            self._running = _Running(self._git, self._words, self._environment, held=False)
            done = self._running.finish()
        return _rows_of(done)

    def close(self) -> None:
        if not self._running.is_finished:
            self._running.finish()


def compare_many(git: Git, words: Sequence[str | bytes], asked: bytes, trees: Sequence[str]) -> bytes:
    """What git says of many comparisons that it is asked for; `trees`: all that these have to do with."""
    words, environment = [*at_top(git), *words], {**git.environment, **git.no_index}
    done = _Running(git, words, environment, asked).finish()
    if _took_too_much(done):
        _refuse_endless(git, trees)
        done = _Running(git, words, environment, asked, held=False).finish()
    return _rows_of(done)


def _rows_of(done: GitResult) -> bytes:
    if done.by_itself().status != 0:
        raise GitFailed(done.complaint)
    return done.out


def _refuse_endless(git: Git, trees: Iterable[str]) -> None:
    from git_envhist.store.unfolding import refuse_too_large  # loaded late: hardly anything takes so much

    names = "".join(f"{tree}^{{tree}}\n" for tree in trees).encode("ascii")
    told = git.run("cat-file", "--batch-check=%(objectname)", stdin=names).decode("ascii").splitlines()
    # What is missing is told by whoever needs it.
    refuse_too_large(git, [tree for tree in told if " " not in tree and tree not in EMPTY_TREES.values()])


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
            keep_below(self._child, memory=MOST_MEMORY, seconds=MOST_SECONDS)

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
