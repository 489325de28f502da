"""Runs the commands that the user configured for a service: by the shell, in the root, within bounds.

Each runs in a session of its own, so that one that takes too long is ended with all that it started. What it leaves
behind when it ends by itself stays: that is how a server is started.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from git_envhist.capture.masking import mask_secrets
from git_envhist.capturing.attendance import NOT_APPROVED, approve, may_run
from git_envhist.store.git import LOCAL_VARIABLES

UNDER_WAY = "GIT_ENVHIST_SERVICE"
"""Tells a command which service it is for; what captures under it asks no service again."""
PATIENCE = 600.0
"""So many seconds a command has."""
GRACE = 3.0
PAUSE = 0.02
TAIL = 2048
MOST_SAID = 1 << 24
"""So many bytes of what a command says are on the disk at a time: what one that failed said last is enough."""
BLOCK = 512
LONGEST_WORD = 200
FAILURE = re.compile(rb"\b(?:error|fatal|failed|failure|refused|denied|cannot|not found)\b", re.IGNORECASE)


class ServiceCommandContext(NamedTuple):
    """Where and how the commands of services run."""

    root: str
    environ: Mapping[str, str]
    common_dir: str
    """The repository whose configuration names the commands."""
    seconds: float = PATIENCE


def run(
    way: ServiceCommandContext, name: str, command: str, *, source: IO[bytes] | None = None
) -> str | None:
    """Run a command to its end, with some bytes as its input; why it failed, or None."""
    return _run(way, name, command, source, None, 0)


def run_into(way: ServiceCommandContext, name: str, command: str, target: IO[bytes], most: int) -> str | None:
    """Run a command and keep what it writes, at most so many bytes; why that failed, or None."""
    return _run(way, name, command, None, target, most)


def _run(
    way: ServiceCommandContext,
    name: str,
    command: str,
    source: IO[bytes] | None,
    target: IO[bytes] | None,
    most: int,
) -> str | None:
    if not may_run(way.environ, way.common_dir, command):
        return NOT_APPROVED
    approve(way.environ, way.common_dir, command)
    # Files, no pipes: a server that was started keeps its outputs open for as long as it runs.
    with TemporaryFile() as said:
        try:
            child = subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=way.root,
                env=_environment(way, name),
                stdin=subprocess.DEVNULL if source is None else source,
                stdout=said if target is None else target,
                stderr=said,
                start_new_session=True,
            )
        except OSError as error:
            return f"it could not be started: {error.strerror}"
        too_much = _watch(child, way.seconds, lambda: target is not None and _size(target) > most, said)
        if too_much is not None:
            return too_much
        return _told(child.returncode, said)


def _watch(
    child: subprocess.Popen[bytes], seconds: float, is_too_much: Callable[[], bool], said: IO[bytes]
) -> str | None:
    """Wait for its end; why it had to be ended, or None."""
    deadline = time.monotonic() + seconds
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                child.wait(PAUSE)
            _forget_most(said)
            if is_too_much():
                _end(child)
                return "it wrote more than may be kept"
            if child.returncode is not None:
                return None
            if time.monotonic() > deadline:
                _end(child)
                return f"it took longer than {seconds:g} seconds"
    except BaseException:
        # Ctrl-C does not reach another session.
        _end(child)
        raise


def _forget_most(said: IO[bytes]) -> None:
    if os.fstat(said.fileno()).st_blocks * BLOCK > MOST_SAID:
        # Whoever writes goes on where it was: what was before is a hole.
        os.ftruncate(said.fileno(), 0)


def _end(child: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)


def _told(status: int, said: IO[bytes]) -> str | None:
    if status == 0:
        return None
    how = f"it ended with status {status}" if status > 0 else f"it was ended by signal {-status}"
    size = _size(said)
    tail = os.pread(said.fileno(), TAIL, max(0, size - TAIL)).replace(b"\0", b"").strip().splitlines()
    words = mask_secrets(telling_line(tail)).decode("utf-8", "replace")[:LONGEST_WORD]
    return f"{how}: {words}" if words else how


def telling_line(lines: Sequence[bytes]) -> bytes:
    """Return the line of a program's last words that says what failed: hints and questions follow it."""
    told = [line.strip() for line in lines if line.strip()]
    found = [line for line in told if FAILURE.search(line)]
    return (found or told[::-1] or [b""])[0]


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _environment(way: ServiceCommandContext, name: str) -> dict[str, str]:
    """The caller's, without what was set for one git command alone."""
    without = {os.fsdecode(variable) for variable in LOCAL_VARIABLES}
    kept = {variable: value for variable, value in way.environ.items() if variable not in without}
    return {**kept, "PWD": way.root, UNDER_WAY: name}
