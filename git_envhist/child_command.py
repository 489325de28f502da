"""Run a command of the user: pass on its output, notice its exit, end all that it started.

In a session of its own a command has no terminal and gets no Ctrl-C; `end_group` ends it with its background processes.
The exit is noticed before the command is reaped, so that no other group gets its id. Background processes are not
waited for, even if they keep the output open.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from typing import IO

from git_envhist.git.process import LOCAL_VARIABLES
from git_envhist.platform import process_fields, signals_deferred

SHELL = ("/bin/sh", "-c")
TERMINATION_SECONDS = 3.0
"""Seconds between SIGTERM and SIGKILL."""
PAUSE_MS = 20
READ_SIZE = 1 << 16
MAX_PIPE_BYTES = 1 << 20
NOT_EXECUTABLE = 126
"""The exit status of a shell for a command that cannot be started."""
DEAD = (b"Z", b"X")
"""States of processes that have ended."""
OWN_VARIABLES = ("GIT_PAGER_IN_USE", "OLDPWD")

OutputHandler = Callable[[int, bytes], None]
"""Receives the source descriptor and the data."""


def command_environment(environ: Mapping[str, str], directory: str) -> dict[str, str]:
    """Return the caller's environment for a command in a directory, without variables that git sets for one command."""
    removed = {os.fsdecode(name) for name in LOCAL_VARIABLES} | set(OWN_VARIABLES)
    return {**{name: value for name, value in environ.items() if name not in removed}, "PWD": directory}


class OutputTail:
    """The last bytes of an output; those before them are only counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._omitted = 0

    def take(self, data: bytes) -> None:
        self._buffer += data
        # Cut rarely, so that appending stays cheap.
        if len(self._buffer) > 2 * self._limit:
            self._cut()

    @property
    def omitted(self) -> int:
        """The number of bytes before the tail."""
        self._cut()
        return self._omitted

    @property
    def text(self) -> bytes:
        self._cut()
        return bytes(self._buffer)

    def _cut(self) -> None:
        over = max(0, len(self._buffer) - self._limit)
        self._omitted += over
        del self._buffer[:over]


class ChildCommand:
    """A running command. At the end of a `with` block its output is closed, and a command without a terminal ended."""

    def __init__(
        self, process: int, outputs: Sequence[IO[bytes]], popen: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.process = process
        self.outputs = [output.fileno() for output in outputs]
        self._files = outputs
        self._popen = popen

    @classmethod
    def start(
        cls,
        words: Sequence[str],
        *,
        directory: str | None = None,
        environ: Mapping[str, str] | None = None,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
        stdout: IO[bytes] | int = subprocess.PIPE,
        stderr: IO[bytes] | int = subprocess.STDOUT,
        session: bool = False,
    ) -> ChildCommand:
        """Start a command; `session`: in a session of its own. Raise OSError if it cannot be started."""
        started: list[ChildCommand] = []
        try:
            # A signal inside of Popen would leave a command that nobody can end.
            with signals_deferred():
                popen = subprocess.Popen(
                    words,
                    cwd=directory,
                    env=environ,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=session,
                )
                files = [file for file in (popen.stdout, popen.stderr) if file is not None]
                started.append(cls(popen.pid, files, popen))
            return started[0]
        except BaseException:
            if started and session:
                started[0].end_group()
            raise

    @classmethod
    def start_on_terminal(cls, become: Callable[[], None]) -> ChildCommand:
        """Start a command on a terminal of its own; `become` replaces the forked process by the command."""
        process, master = os.forkpty()
        if process == 0:
            try:
                become()
            finally:
                os._exit(NOT_EXECUTABLE)
        return cls(process, [FileIO(master, "r+")])

    def __enter__(self) -> ChildCommand:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files:
            file.close()
        if self._popen is not None:
            self._popen.__exit__(*error)  # type: ignore[arg-type]

    def follow(self, take: OutputHandler, *, typed: int | None = None, deadline: float | None = None) -> bool:
        """Pass output on until the command exits; return False if the deadline comes first.

        `typed` is a descriptor whose input is read too; input after the exit is left for the next reader.
        """
        poll = select.poll()
        for source in self.outputs if typed is None else (*self.outputs, typed):
            poll.register(source, select.POLLIN)
        end = -1
        with suppress(OSError, AttributeError):
            end = os.pidfd_open(self.process)
            poll.register(end, select.POLLIN)
        try:
            while not self._has_exited():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                for source, _ in poll.poll(_milliseconds(left, has_end=end >= 0)):
                    if source != end and not _read_available(source, take):
                        poll.unregister(source)
        finally:
            if end >= 0:
                os.close(end)
        self.read_rest(take)
        return True

    def read_rest(self, take: OutputHandler) -> None:
        """Read what has been written, up to a limit: a background process may write forever."""
        for source in self.outputs:
            poll, taken = select.poll(), 0
            poll.register(source, select.POLLIN)
            while taken < MAX_PIPE_BYTES and poll.poll(0):
                some = _read_available(source, take)
                if not some:
                    break
                taken += some

    def wait(self) -> int:
        """Wait for the exit; return the exit status, or the negative number of the signal that killed the command."""
        if self._popen is not None:
            return self._popen.wait()
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])

    def end_group(self) -> None:
        """End the processes of its session: SIGTERM, then SIGKILL after a while or at a second Ctrl-C."""
        ended = False
        try:
            ended = not _signal(self.process, signal.SIGTERM) or self._group_ends(
                time.monotonic() + TERMINATION_SECONDS
            )
        finally:
            if not ended:
                _signal(self.process, signal.SIGKILL)
            self.wait()

    def _has_exited(self) -> bool:
        # WNOWAIT leaves the exit status for the caller.
        return os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _group_ends(self, deadline: float) -> bool:
        """Return whether the whole group has ended before the deadline."""
        while time.monotonic() < deadline:
            if self._popen is not None:
                self._popen.poll()
            if not _signal(self.process, 0) or _only_dead(self.process):
                return True
            time.sleep(PAUSE_MS / 1000)
        return False


def _milliseconds(left: float | None, *, has_end: bool) -> int | None:
    """Return how long to wait for output; without a descriptor for the exit, the exit is polled."""
    if left is None:
        return None if has_end else PAUSE_MS
    whole = max(0, int(left * 1000)) + 1
    return whole if has_end else min(PAUSE_MS, whole)


def _read_available(source: int, take: OutputHandler) -> int:
    """Read what is available, or wait for it; return the number of bytes."""
    try:
        data = os.read(source, READ_SIZE)
    except OSError:
        return 0  # the other end of a terminal was closed
    if data:
        take(source, data)
    return len(data)


def _only_dead(group: int) -> bool:
    """Return whether all processes of a group have ended: in a container, zombies may never be reaped."""
    try:
        states = [_state(int(name)) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return False
    group_states = [state for state, its_group in states if its_group == group]
    return bool(group_states) and all(state in DEAD for state in group_states)


def _state(pid: int) -> tuple[bytes, int]:
    """Return state and group of a process."""
    try:
        fields = process_fields(pid)
        return fields[0], int(fields[2])
    except (OSError, IndexError, ValueError):
        return b"", 0


def _signal(group: int, number: int) -> bool:
    """Return whether a process of the group exists, after sending a signal."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
