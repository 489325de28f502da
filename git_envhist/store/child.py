"""A git command that is talked to while it runs: its answers are read as they come, closing ends it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from io import FileIO

from git_envhist import trace
from git_envhist.store.git import Git, GitResult, memory_file, read_all, refuse_without_git
from git_envhist.system import pipe_ours

_meanwhile: list[Callable[[], None]] = []


def meanwhile(work: Callable[[], None]) -> None:
    """Have something done while the next git that is talked to thinks: modules loaded that are needed in any case."""
    _meanwhile.append(work)


# What a pipe holds: more is never there at once.
READ_SIZE = 1 << 16


class GitStream:
    """One running git command, with a pipe from its output and, if asked for, one to its input."""

    def __init__(
        self, git: Git, *arguments: str | bytes, talks: bool = False, source: int | None = None
    ) -> None:
        """`source`: an open file that it reads, which is closed here."""
        self._complaints = memory_file(b"")
        # Files of Python's: what stops this program comes before or after they are closed, and never between that
        # and the mark of it, where the next one to close them would close what is not there, or somebody else's.
        self._input: FileIO | None = None
        if source is None and talks:
            source, asked = pipe_ours()
            self._input = FileIO(asked, "w")
        elif source is None:
            source = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        answer, sink = pipe_ours()
        self._output = FileIO(answer)
        self._process = 0
        try:
            self._process = _start(git, arguments, source, sink, self._complaints)
        finally:
            os.close(source)
            os.close(sink)
            if not self._process:
                self._close_pipes()
                os.close(self._complaints)
        while _meanwhile:
            _meanwhile.pop()()

    @property
    def process(self) -> int:
        """Its number, while it runs."""
        return self._process

    def write(self, data: bytes) -> None:
        assert self._input is not None
        view = memoryview(data)
        while view:
            view = view[self._input.write(view) :]

    def read(self, size: int = READ_SIZE) -> bytes:
        """Up to `size` bytes of what it says, as soon as there are any; nothing at its end."""
        return os.read(self._output.fileno(), size)

    def finish(self) -> GitResult:
        """Let it come to its own end, with all that it has still to say, and say what came of it."""
        if self._input is not None:
            self._input.close()
        said = read_all(self._output.fileno())
        done = self.close()
        return GitResult(done.status, said, done.err)

    def stop(self) -> None:
        """Have it end now, whatever it is doing; `close` then waits for that."""
        if self._process:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGTERM)

    def close(self) -> GitResult:
        """End it, whatever it is doing, and say what came of it."""
        if not self._process:
            return GitResult(0, b"", b"")
        # Its input ends, and what it still has to say has no reader: either way it ends by itself.
        self._close_pipes()
        status = _wait(self._process)
        self._process = 0
        os.lseek(self._complaints, 0, os.SEEK_SET)
        complaints = read_all(self._complaints)
        os.close(self._complaints)
        return GitResult(status, b"", complaints)

    def _close_pipes(self) -> None:
        if self._input is not None:
            self._input.close()
        self._output.close()


def _start(git: Git, arguments: tuple[str | bytes, ...], source: int, sink: int, complaints: int) -> int:
    trace.tell_git(("git", *arguments, "(goes on)"))
    try:
        return os.posix_spawnp(
            "git",
            [*git.command, *arguments],
            git.environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, source, 0),
                (os.POSIX_SPAWN_DUP2, sink, 1),
                (os.POSIX_SPAWN_DUP2, complaints, 2),
            ],
            # Python ignores SIGPIPE and the child would inherit that: it must die when nobody reads it.
            setsigdef=[signal.SIGPIPE],
        )
    except OSError as failure:
        refuse_without_git(failure)
        raise


def _wait(process: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    except ChildProcessError:  # somebody made us ignore SIGCHLD: it ended, and nobody knows how
        return 0
