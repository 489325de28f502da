"""What git says of two trees: the rows that differ and, side by side with them, the lines in which shards do.

Answers go into memory files: a pipe would hold up the one git while the other is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from git_envhist.errors import GitFailed
from git_envhist.store.git import COMMAND, Completed, Git, memory_file, read_all
from git_envhist.store.pathspecs import at_top
from git_envhist.store.rows import NOT_PIECES, RAW

ROWS = (*RAW, "-t", "--no-renames")
# One line around each change shows the first line where the second differs. Nothing of the user's has a say in it.
LINES = (
    *("diff-tree", "-r", "-p", "-U1", "--inter-hunk-context=0", "--text", "--no-color", "--no-renames"),
    *("--full-index", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"),
)
NO_ATTRIBUTES = ("-c", "core.attributesFile=/dev/null")
SHARDS = b":(top).envhist/manifest"


def compare_trees(git: Git, before: str, after: str, *, lines: bool) -> tuple[bytes, bytes]:
    """All rows; and where `lines` are wanted a patch of the shards, empty where git cannot tell it."""
    environment = {**git.environment, **git.no_index}
    place = at_top(git)
    words: list[str | bytes] = [*place, *ROWS, before, after, "--", b":(top)", NOT_PIECES]
    # For a patch git asks the working tree what a file's attributes are: of the user's it must read nothing, and a
    # named pipe in the place of `.gitattributes` would have it wait for ever. Below the git directory there are none.
    own = os.fsencode(git.git_dir)
    elsewhere = {**environment, b"GIT_WORK_TREE": own}
    beside: list[str | bytes] = [b"-C", own, *NO_ATTRIBUTES, *LINES, before, after, "--", SHARDS]
    running = _Running(words, environment)
    try:
        patch = _Running(beside, elsewhere).finish() if lines else None
    finally:
        rows = running.finish()
    if rows.status != 0:
        raise GitFailed(rows.complaint)
    return rows.out, patch.out if patch is not None and patch.status == 0 else b""


class _Running:
    """A git command at work; `finish` has to be called."""

    def __init__(self, words: Sequence[str | bytes], environment: Mapping[bytes, bytes]) -> None:
        self._answer = memory_file(b"")
        self._complaints = memory_file(b"")
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, self._answer, 1),
            (os.POSIX_SPAWN_DUP2, self._complaints, 2),
        ]
        try:
            self._child = os.posix_spawnp("git", [*COMMAND, *words], environment, file_actions=actions)
        except BaseException as failure:
            self._close()
            if isinstance(failure, FileNotFoundError):
                raise GitFailed("git is not on the PATH", hint="install git 2.30 or newer") from failure
            raise

    def finish(self) -> Completed:
        """Wait for its end, and say what came of it."""
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
            return Completed(status, _content(self._answer), _content(self._complaints))
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._answer)
        os.close(self._complaints)


def _content(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return read_all(descriptor)
