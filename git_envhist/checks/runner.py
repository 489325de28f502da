"""Run a command in a shell with a time limit, in a session of its own.

Output is passed on as it comes, and its end is kept. The run is over when the shell has ended: background processes are
killed, and cannot prolong it by keeping the output open.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from git_envhist.checks.verdicts import CommandExit
from git_envhist.git.process import LOCAL_VARIABLES
from git_envhist.platform import process_fields

SHELL = ("/bin/sh", "-c")
MAX_TAIL = 16 << 10
"""The number of bytes at the end of the output that are kept."""
TERMINATION_SECONDS = 3.0
"""Seconds between SIGTERM and SIGKILL."""
PAUSE_MS = 20
DEAD = (b"Z", b"X")
"""States of processes that have ended."""
UNDER_CHECK = "GIT_ENVHIST_CHECK"
"""Set in the environment of a check, so that a capture inside does not check again."""
OWN_VARIABLES = ("GIT_PAGER_IN_USE", "OLDPWD")

OutputListener = Callable[[bytes], None]


class RunOptions(NamedTuple):
    """The options of a run."""

    root: str
    environ: Mapping[str, str]
    limit: float | None = None
    """Time limit in seconds."""
    through: OutputListener | None = None
    """Called with each piece of output."""
    wrapper: Sequence[str] = ()
    """The words of a program that runs the command in a sandbox."""


def run(command: str, options: RunOptions) -> CommandExit:
    """Run a command to its end."""
    tail = _Tail(options.through)
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            [*options.wrapper, *SHELL, command],
            # That program changes the directory itself.
            cwd="/" if options.wrapper else options.root,
            env=environment_of(options.environ, options.root),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # No terminal: a check that asks a question would wait forever.
            start_new_session=True,
        )
    except OSError as error:
        return CommandExit(tail=os.fsencode(f"the command could not be started: {error}\n"))
    with child:
        deadline = None if options.limit is None else started + options.limit
        timed_out = _follow(child, tail, deadline)
    duration = round((time.monotonic() - started) * 1000)
    code = child.returncode
    return CommandExit(
        code if code >= 0 else None, -code if code < 0 else None, duration, bytes(tail.text), timed_out
    )


def environment_of(environ: Mapping[str, str], root: str) -> dict[str, str]:
    """Return the caller's environment without variables that git sets for one command."""
    removed = {os.fsdecode(name) for name in LOCAL_VARIABLES} | set(OWN_VARIABLES)
    text = {name: value for name, value in environ.items() if name not in removed}
    outer = [place for place in environ.get(UNDER_CHECK, "").split(os.pathsep) if place]
    return {**text, "PWD": root, UNDER_CHECK: os.pathsep.join([*outer, root])}


class _Tail:
    """Passes output on, and keeps its end from the start of a line."""

    def __init__(self, through: OutputListener | None) -> None:
        self._through = through
        self._buffer = bytearray()

    def take(self, chunk: bytes) -> None:
        if self._through is not None:
            self._through(chunk)
        self._buffer += chunk
        if len(self._buffer) > 4 * MAX_TAIL:
            del self._buffer[: -MAX_TAIL - 1]

    @property
    def text(self) -> bytes:
        if len(self._buffer) <= MAX_TAIL:
            return bytes(self._buffer)
        end = bytes(self._buffer[-MAX_TAIL:])
        _, newline, rest = end.partition(b"\n")
        return rest if newline and rest else end


def _follow(child: subprocess.Popen[bytes], tail: _Tail, deadline: float | None) -> bool:
    """Wait for a process to end; return whether it exceeded the deadline."""
    assert child.stdout is not None
    reading = child.stdout.fileno()
    os.set_blocking(reading, False)
    timed_out = False
    try:
        with _ProcessWatch(child.pid, reading) as watch:
            while not watch.is_over():
                if deadline is not None and time.monotonic() >= deadline:
                    timed_out = True
                    break
                watch.wait(deadline)
                _read_all(watch, reading, tail)
    except BaseException:
        # Ctrl-C does not reach another session.
        _end_group(child)
        raise
    _end_group(child)
    _read_all(None, reading, tail)
    return timed_out


class _ProcessWatch:
    """Waits for output or the end of a process without reaping it, so that its group id stays reserved."""

    def __init__(self, process: int, reading: int) -> None:
        self._process = process
        self._poll = select.poll()
        self._poll.register(reading, select.POLLIN)
        self._end_of_process = -1
        with suppress(OSError, AttributeError):
            self._end_of_process = os.pidfd_open(process)
            self._poll.register(self._end_of_process, select.POLLIN)

    def __enter__(self) -> _ProcessWatch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._end_of_process >= 0:
            os.close(self._end_of_process)

    def is_over(self) -> bool:
        return os.waitid(os.P_PID, self._process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self, deadline: float | None) -> None:
        left = None if deadline is None else max(0, int((deadline - time.monotonic()) * 1000)) + 1
        # Without a pidfd, the end is polled.
        self._poll.poll(left if self._end_of_process >= 0 else min(PAUSE_MS, left or PAUSE_MS))

    def forget(self, reading: int) -> None:
        with suppress(KeyError):
            self._poll.unregister(reading)


def _read_all(watch: _ProcessWatch | None, reading: int, tail: _Tail) -> None:
    """Read available output; do not wait for output that no process will write."""
    while True:
        try:
            chunk = os.read(reading, 1 << 16)
        except BlockingIOError:
            return
        if not chunk:
            if watch is not None:
                watch.forget(reading)
            return
        tail.take(chunk)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End the remaining processes of the group: SIGTERM, then SIGKILL after a while or at a second Ctrl-C."""
    ended = False
    try:
        ended = not _signal(child.pid, signal.SIGTERM) or _group_ends(
            child, time.monotonic() + TERMINATION_SECONDS
        )
    finally:
        if not ended:
            _signal(child.pid, signal.SIGKILL)
        child.wait()


def _group_ends(child: subprocess.Popen[bytes], deadline: float) -> bool:
    """Return whether the whole group has ended before the deadline."""
    while time.monotonic() < deadline:
        child.poll()
        if not _signal(child.pid, 0) or _only_dead(child.pid):
            return True
        time.sleep(PAUSE_MS / 1000)
    return False


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
