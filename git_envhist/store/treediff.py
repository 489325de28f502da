"""What git says of two trees, asked beside other work: the rows that differ.

The answer goes into a memory file: a pipe would hold git up until somebody reads it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from git_envhist import trace
from git_envhist.errors import GitFailed
from git_envhist.store.git import COMMAND, Completed, Git, memory_file, read_all
from git_envhist.store.pathspecs import at_top
from git_envhist.store.rows import NOT_PIECES, RAW

ROWS = (*RAW, "-t", "--no-renames")
TOP = b":(top)"
NOT_SHARDS = b":(top,exclude).envhist/manifest"
SHARDS = b":(top).envhist/manifest"


class Comparison:
    """Two trees that git is comparing; to be closed."""

    def __init__(self, git: Git, before: str, after: str, *, shards: bool) -> None:
        """All but the shards of the manifest, or these alone."""
        limits = (SHARDS,) if shards else (TOP, NOT_SHARDS, NOT_PIECES)
        words: list[str | bytes] = [*at_top(git), *ROWS, before, after, "--", *limits]
        self._running = _Running(words, {**git.environment, **git.no_index})

    def finish(self) -> bytes:
        """The rows."""
        done = self._running.finish().by_itself()
        if done.status != 0:
            raise GitFailed(done.complaint)
        return done.out

    def close(self) -> None:
        if not self._running.is_finished:
            self._running.finish()


class _Running:
    """A git command at work."""

    def __init__(self, words: Sequence[str | bytes], environment: Mapping[bytes, bytes]) -> None:
        self.is_finished = False
        self._answer = memory_file(b"")
        self._complaints = memory_file(b"")
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, self._answer, 1),
            (os.POSIX_SPAWN_DUP2, self._complaints, 2),
        ]
        self._told, self._began = ("git", *words), trace.now()
        try:
            self._child = os.posix_spawnp("git", [*COMMAND, *words], environment, file_actions=actions)
        except BaseException as failure:
            self._close()
            if isinstance(failure, FileNotFoundError):
                raise GitFailed("git is not on the PATH", hint="install git 2.30 or newer") from failure
            raise

    def finish(self) -> Completed:
        """Wait for its end, and say what came of it."""
        self.is_finished = True
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
            trace.tell_git(self._told, self._began, status)
            return Completed(status, _content(self._answer), _content(self._complaints))
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._answer)
        os.close(self._complaints)


def _content(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return read_all(descriptor)
