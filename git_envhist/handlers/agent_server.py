"""Wait for the next tools of an agent with the program loaded: a hook then takes a third of the time.

The first hook before a tool starts this process when its own capture is done. For each event a forked child captures,
as in a process of its own. The process ends after `envhist.agentIdle` without an event, when its socket is gone, or
when the program was changed.

The environment of an agent decides which programs run, e.g. by `PATH`, so it is never taken from a request: a request
must name the same variables and come from a process of the same user with exactly the capabilities, groups, flags
(`NoNewPrivs`: a sandbox that a program enters by itself sets it), label, root and namespaces of this process. Other
processes are refused and start the program themselves.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from socket import AF_UNIX, SOCK_STREAM, socket

from git_envhist.disk import remove_if_present
from git_envhist.errors import EnvhistError
from git_envhist.handlers.agent_client import (
    MAX_INPUT,
    SOCKET,
    TAKEN,
    environment_of,
    has_same_restrictions,
    restrictions_of,
    socket_path,
    with_short_path,
)
from git_envhist.integrations.agents.events import spool_lock
from git_envhist.platform import SYSTEM

TICK = 2.0
"""Seconds between two looks at the socket."""
MAX_WAITING = 4
"""How many such processes may wait at once for the agents of one user."""
READ_TIMEOUT = 1.0
"""Seconds in which a whole request must arrive."""
MAX_PART = MAX_INPUT + (1 << 20)

Handle = Callable[[bytes, int, str], None]
"""Capture for the input of a hook, with its trace context; messages go to the descriptor."""


def may_wait(spool: str) -> bool:
    """Return whether a process may wait here: the system tells who asks, and few processes wait already."""
    own = restrictions_of("self")
    if not SYSTEM.proc or not SYSTEM.fork or own is None or b"NoNewPrivs:\t0" not in own:
        return False
    with suppress(OSError):
        paths = [os.path.join(spool, name) for name in os.listdir(spool) if name.startswith(SOCKET)]
        return sum(map(_is_answered, paths)) < MAX_WAITING
    return False


def _is_answered(path: str) -> bool:
    """Return whether a process listens at a socket; a killed one leaves its socket behind."""
    with socket(AF_UNIX, SOCK_STREAM) as made:
        made.setblocking(False)
        try:
            with_short_path(path, made.connect)
        except BlockingIOError:
            # A process listens, and its queue is full.
            return True
        except OSError:
            return False
        return True


def wait_for_events(
    spool: str, idle: float, environ: Mapping[str, str], load: Callable[[], None], handle: Handle
) -> None:
    """Answer hooks until none came for `idle` seconds; `load` loads what they need."""
    environment = environment_of(environ)
    path = socket_path(spool, environment)
    listening = _listen(spool, path)
    if listening is None:
        return
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    load()
    os.chdir("/")
    gc.collect()
    gc.freeze()
    program, place, last = _program_state(), os.lstat(path).st_ino, time.monotonic()
    while time.monotonic() < last + idle and _inode(path) == place and _program_state() == program:
        _reap()
        if select.select([listening], [], [], min(TICK, idle))[0]:
            try:
                connection, _ = listening.accept()
            except OSError:
                # No descriptor is left: the hooks start the program themselves.
                break
            # The program may have been changed during the wait. A process that is refused does not prolong it.
            if _program_state() == program and _answer(connection, listening, environment, handle):
                last = time.monotonic()
            connection.close()
    if _inode(path) == place:
        remove_if_present(path)


def stop_waiting(spool: str, environ: Mapping[str, str]) -> None:
    """End the process that waits for hooks with this environment."""
    with suppress(EnvhistError, OSError):
        remove_if_present(socket_path(spool, environment_of(environ)))


def _listen(spool: str, path: str) -> socket | None:
    """Return a socket at a path; None if another process answers there, or if the system allows none."""
    with spool_lock(spool):
        for attempt in ("connect", "bind"):
            made = socket(AF_UNIX, SOCK_STREAM)
            try:
                with_short_path(path, getattr(made, attempt))
            except OSError:
                made.close()
                remove_if_present(path)
                continue
            if attempt == "connect":
                made.close()
                return None
            os.chmod(path, stat.S_IRUSR | stat.S_IWUSR)
            made.listen(16)
            return made
    return None


def _answer(connection: socket, listening: socket, environment: bytes, handle: Handle) -> bool:
    """Read one request, and let a child capture for it; return whether it was answered."""
    with suppress(OSError, ValueError):
        if not has_same_restrictions(connection):
            return False
        sent, directory, data, trace = _read_parts(connection, 4)
        if sent != environment:
            return False
        if os.fork():
            return True
        try:
            listening.close()
            connection.settimeout(None)
            connection.sendall(TAKEN)
            os.chdir(directory)
            handle(data, connection.fileno(), os.fsdecode(trace))
        finally:
            os._exit(0)
    return False


def _read_parts(connection: socket, number: int) -> list[bytes]:
    """Return the parts of a request; raise ValueError for a malformed one."""
    received, parts, until = b"", list[bytes](), time.monotonic() + READ_TIMEOUT
    while len(parts) < number:
        head, found, rest = received.partition(b"\n")
        size = int(head) if found else 0
        if len(head) > 8 or not 0 <= size <= MAX_PART:
            raise ValueError("malformed request")
        if found and len(rest) >= size:
            parts.append(rest[:size])
            received = rest[size:]
            continue
        connection.settimeout(max(0.001, until - time.monotonic()))
        data = connection.recv(1 << 16)
        if not data or time.monotonic() > until:
            raise ValueError("incomplete request")
        received += data
    return parts


def _program_state() -> tuple[int, ...]:
    """Return a state that changes when another version of the program is installed."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return (
        _inode(package),
        *(_changed(os.path.join(package, name)) for name in ("", "_version.py", "api.py")),
    )


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def _reap() -> None:
    with suppress(OSError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
