"""Ask a waiting process to capture before a tool, or start the program if none waits.

The hook of an agent loads this module alone with `python -I -S`, which takes about 9 ms: it imports nothing of the
package and nothing that is slow. A process that has loaded the program answers it (`agent_server`). Each message is a
line: `+` the process takes the event, `t<seconds>` how long the tool may wait, `.` the snapshot exists.

Both ends ask the kernel for the process at the other end, and speak only to one of the same user that is restricted in
exactly the same way: a request contains the variables of the agent, and an answer lets its tool run.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # the module typing takes 2 ms
    import _socket
    from collections.abc import Callable, Mapping

MAX_INPUT = 8 << 20
IDLE = 5.0
"""Seconds without input after which an agent that keeps the pipe open has written everything."""
TAKEN, WAIT, DONE = b"+\n", b"t", b".\n"
AGENT_TIMEOUT = 3.0
"""The time limit of a tool until the capturing process has read the configured one, in seconds."""
ANSWER = 1.0
"""Seconds in which a waiting process takes an event."""
VERSION = 2
PRIME = (1 << 61) - 1
"""The remainder by this number names an environment; no module has to be loaded for it."""
VOLATILE = frozenset(("_", "SHLVL", "PWD", "OLDPWD", "TRACEPARENT", "TRACESTATE"))
"""Variables that differ between the hooks of one agent, and that decide nothing."""
SOL_SOCKET, SO_PEERCRED, SO_PEERPIDFD = 1, 17, 77
"""Linux's numbers; another system has no such options, and no process waits there."""
CREDENTIALS = 12
"""Bytes of the process id, the user and the group of the other end."""
FLAGS = frozenset((
    *(b"Uid", b"Gid", b"Groups", b"Umask", b"NoNewPrivs", b"Seccomp", b"Seccomp_filters"),
    *(b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb"),
))  # fmt: skip
"""Lines of a process's status that say what it may do."""
NAMESPACES = ("mnt", "user", "pid", "net", "ipc", "uts", "cgroup")
LABEL = "attr/current"
"""The label that SELinux or AppArmor gives a process."""
SOCKET = "waiting-"
PIPE_SIZE = 32 << 10
"""Bytes that fit into every pipe."""


def main() -> int:
    """Handle `<program> <shim> <agent>`; return 0, or replace this process by the program."""
    program, shim, agent = sys.argv[-3:]
    data = read_input(0)
    try:
        if ask(os.path.join(os.path.dirname(shim), "spool"), data):
            return 0
    except (OSError, ValueError):
        pass
    _give_input(data)
    return os.execv(program, [program, "agent-hook", shim, agent, "before"])


def read_input(descriptor: int) -> bytes:
    """Return the agent's input, cut to `MAX_INPUT` bytes."""
    kept = bytearray()
    try:
        while select.select([descriptor], [], [], IDLE)[0]:
            data = os.read(descriptor, 1 << 16)
            if not data:
                break
            kept += data[: MAX_INPUT - len(kept)]
    except (OSError, ValueError):
        pass
    return bytes(kept)


def ask(spool: str, data: bytes) -> bool:
    """Return whether a waiting process took the event; then the tool has waited long enough."""
    from _socket import AF_UNIX, SOCK_STREAM, socket  # loaded late: the program needs no socket

    environment = environment_of(os.environ)
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.settimeout(ANSWER)
        with_short_path(socket_path(spool, environment), connection.connect)
        if not has_same_restrictions(connection):
            return False
        trace = os.fsencode(os.environ.get("TRACEPARENT", ""))
        connection.sendall(encode_request(environment, os.fsencode(os.getcwd()), data, trace))
        if connection.recv(len(TAKEN)) != TAKEN:
            return False
        return await_done(connection.fileno(), lambda: connection.recv(64))
    finally:
        connection.close()


def has_same_restrictions(connection: _socket.socket) -> bool:
    """Return whether the process at the other end is of this user and restricted exactly as this process."""
    found = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, CREDENTIALS)
    process, user = (int.from_bytes(found[at : at + 4], sys.byteorder) for at in (0, 4))
    if user != os.geteuid():
        return False
    own = restrictions_of("self")
    if own is None or restrictions_of(str(process)) != own:
        return False
    try:
        descriptor = connection.getsockopt(SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        # Linux before 6.5 has no such option; the id of a process that ended could name another one there.
        return error.errno == errno.ENOPROTOOPT
    try:
        # A readable pidfd: the process has ended, and the values may be those of another process with the same id.
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(0)
    finally:
        os.close(descriptor)


def restrictions_of(process: str) -> tuple[bytes, ...] | None:
    """Return what decides what a process may do: user, capabilities, flags, label, root directory and namespaces."""
    place = f"/proc/{process}"
    try:
        with open(f"{place}/status", "rb") as file:
            flags = [line for line in file.read().split(b"\n") if line.partition(b":")[0] in FLAGS]
        links = ["root", *(f"ns/{name}" for name in NAMESPACES)]
        return (*flags, _label(place), *(os.fsencode(os.readlink(f"{place}/{link}")) for link in links))
    except OSError:
        return None


def _label(place: str) -> bytes:
    try:
        with open(f"{place}/{LABEL}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def await_done(descriptor: int, receive: Callable[[], bytes]) -> bool:
    """Return when the snapshot exists, at the end of the messages, or when the tool may wait no longer.

    False: the messages ended before the first one, so the other process handles no event.
    """
    started, seconds, received, has_ended = time.monotonic(), AGENT_TIMEOUT, b"", False
    while not has_ended and not received.endswith(DONE):
        left = started + seconds - time.monotonic()
        if not select.select([descriptor], [], [], max(0.0, left))[0]:
            break
        data = receive()
        has_ended = not data
        received += data
        announced = [line for line in received.split(b"\n")[:-1] if line.startswith(WAIT)]
        seconds = float(announced[-1][1:]) if announced else seconds
    return bool(received) or not has_ended


def environment_of(environ: Mapping[str, str]) -> bytes:
    """Return the variables of a hook in one order, without the volatile ones, and the namespaces of the process."""
    rows = [f"{name}={value}" for name, value in environ.items() if name not in VOLATILE]
    rows += [_target(f"/proc/self/ns/{name}") for name in ("mnt", "user")]
    return os.fsencode("\0".join(sorted(rows)))


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def socket_path(spool: str, environment: bytes) -> str:
    """Return the path at which a process waits for hooks with this environment."""
    return os.path.join(spool, f"{SOCKET}{VERSION}-{int.from_bytes(environment, 'big') % PRIME:x}")


def with_short_path(path: str, call: Callable[[str], None]) -> None:
    """Call a function with another name of a path: the system limits names of sockets to about 100 bytes."""
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        call(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
    finally:
        os.close(directory)


def encode_request(*parts: bytes) -> bytes:
    """Return parts of a request, each with its length before it."""
    return b"".join(b"%d\n%b" % (len(part), part) for part in parts)


def _give_input(data: bytes) -> None:
    """Make the input readable on standard input again."""
    reading, writing = os.pipe()
    if len(data) > PIPE_SIZE and os.fork():
        os.close(writing)
    else:
        # The parent of a writer becomes the program; a short input fits into the pipe.
        os.set_blocking(writing, True)
        try:
            _write_all(writing, data)
        finally:
            os.close(writing)
            if len(data) > PIPE_SIZE:
                os._exit(0)
    os.dup2(reading, 0)
    os.close(reading)


def _write_all(descriptor: int, data: bytes) -> None:
    at = 0
    while at < len(data):
        at += os.write(descriptor, data[at : at + PIPE_SIZE])
