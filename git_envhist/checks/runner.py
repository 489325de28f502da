"""Runs a command by the shell, in a session of its own, and ends all of it with it.

What it writes goes on as it comes, and the end of it is kept. It is over when the shell is: what it left in the
background is ended too, and cannot hold us by keeping its output open.
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
KEPT = 16 << 10
"""So many bytes of the end of its output are kept."""
GRACE = 3.0
"""So many seconds are given to what was asked to end."""
PAUSE_MS = 20
DEAD = (b"Z", b"X")
"""How the system tells of processes that have ended."""
UNDER_CHECK = "GIT_ENVHIST_CHECK"
"""Tells what a check runs that it is one: a capture in there does not check again."""
OURS_ALONE = ("GIT_PAGER_IN_USE", "OLDPWD")

Take = Callable[[bytes], None]


class RunOptions(NamedTuple):
    """How a command is run."""

    root: str
    environ: Mapping[str, str]
    limit: float | None = None
    """Seconds after which it is ended."""
    through: Take | None = None
    """Given what it writes, as it comes."""
    inside: Sequence[str] = ()
    """The words that put it where it is to run."""


def run(command: str, manner: RunOptions) -> CommandExit:
    """Run it to its end."""
    tail = _Tail(manner.through)
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            [*manner.inside, *SHELL, command],
            # Whoever puts it elsewhere goes there.
            cwd="/" if manner.inside else manner.root,
            env=environment_of(manner.environ, manner.root),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # No terminal: a check that asks somebody a question would wait for ever.
            start_new_session=True,
        )
    except OSError as error:
        return CommandExit(tail=os.fsencode(f"it could not be started: {error}\n"))
    with child:
        deadline = None if manner.limit is None else started + manner.limit
        too_long = _follow(child, tail, deadline)
    duration = round((time.monotonic() - started) * 1000)
    code = child.returncode
    return CommandExit(
        code if code >= 0 else None, -code if code < 0 else None, duration, bytes(tail.kept), too_long
    )


def environment_of(environ: Mapping[str, str], root: str) -> dict[str, str]:
    """The caller's environment, without what was set for one git command and would lead all others astray."""
    without = {os.fsdecode(name) for name in LOCAL_VARIABLES} | set(OURS_ALONE)
    kept = {name: value for name, value in environ.items() if name not in without}
    above = [place for place in environ.get(UNDER_CHECK, "").split(os.pathsep) if place]
    return {**kept, "PWD": root, UNDER_CHECK: os.pathsep.join([*above, root])}


class _Tail:
    """Hands on what comes, and keeps the end of it, from the beginning of a line."""

    def __init__(self, through: Take | None) -> None:
        self._through = through
        self._held = bytearray()

    def take(self, chunk: bytes) -> None:
        if self._through is not None:
            self._through(chunk)
        self._held += chunk
        if len(self._held) > 4 * KEPT:
            del self._held[: -KEPT - 1]

    @property
    def kept(self) -> bytes:
        if len(self._held) <= KEPT:
            return bytes(self._held)
        end = bytes(self._held[-KEPT:])
        _, newline, rest = end.partition(b"\n")
        return rest if newline and rest else end


def _follow(child: subprocess.Popen[bytes], tail: _Tail, deadline: float | None) -> bool:
    """Wait for its end; whether it had to be ended because it took too long."""
    assert child.stdout is not None
    reading = child.stdout.fileno()
    os.set_blocking(reading, False)
    too_long = False
    try:
        with _ProcessWatch(child.pid, reading) as watch:
            while not watch.is_over():
                if deadline is not None and time.monotonic() >= deadline:
                    too_long = True
                    break
                watch.wait(deadline)
                _read_all(watch, reading, tail)
    except BaseException:
        # Ctrl-C does not reach another session.
        _end_group(child)
        raise
    _end_group(child)
    _read_all(None, reading, tail)
    return too_long


class _ProcessWatch:
    """Waits for output, and for the end of a process without taking notice of it: its group is still its own then."""

    def __init__(self, process: int, reading: int) -> None:
        self._process = process
        self._poll = select.poll()
        self._poll.register(reading, select.POLLIN)
        self._end = -1
        with suppress(OSError, AttributeError):
            self._end = os.pidfd_open(process)
            self._poll.register(self._end, select.POLLIN)

    def __enter__(self) -> _ProcessWatch:
        return self

    def __exit__(self, *_: object) -> None:
        if self._end >= 0:
            os.close(self._end)

    def is_over(self) -> bool:
        return os.waitid(os.P_PID, self._process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self, deadline: float | None) -> None:
        left = None if deadline is None else max(0, int((deadline - time.monotonic()) * 1000)) + 1
        # Where nobody tells of its end, it is looked for.
        self._poll.poll(left if self._end >= 0 else min(PAUSE_MS, left or PAUSE_MS))

    def forget(self, reading: int) -> None:
        with suppress(KeyError):
            self._poll.unregister(reading)


def _read_all(watch: _ProcessWatch | None, reading: int, tail: _Tail) -> None:
    """Take what is there; what nobody will write any more is not waited for."""
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
    """End what is left of it: asked first, and made to after a while, or at a second Ctrl-C."""
    gone = False
    try:
        gone = not _signal(child.pid, signal.SIGTERM) or _goes(child, time.monotonic() + GRACE)
    finally:
        if not gone:
            _signal(child.pid, signal.SIGKILL)
        child.wait()


def _goes(child: subprocess.Popen[bytes], deadline: float) -> bool:
    """Whether all of the group is gone before it is too late."""
    while time.monotonic() < deadline:
        child.poll()
        if not _signal(child.pid, 0) or _only_dead(child.pid):
            return True
        time.sleep(PAUSE_MS / 1000)
    return False


def _only_dead(group: int) -> bool:
    """Whether nobody of a group runs any more: in a container it may be that nobody takes notice of the dead."""
    try:
        states = [_state(int(name)) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return False
    ours = [state for state, its_group in states if its_group == group]
    return bool(ours) and all(state in DEAD for state in ours)


def _state(pid: int) -> tuple[bytes, int]:
    """(state, group) of a process."""
    try:
        fields = process_fields(pid)
        return fields[0], int(fields[2])
    except (OSError, IndexError, ValueError):
        return b"", 0


def _signal(group: int, number: int) -> bool:
    """Whether there was somebody in the group."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
