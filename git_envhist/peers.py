"""Recognise the process at the other end of a local socket, and reach sockets with long paths.

Two processes trust each other's messages only if both belong to one user and are restricted in exactly the same way:
else a process in a sandbox could tell one outside of it what to do, or hide a change from it. `handlers.agent_client`
has the same test once more, because it is loaded alone.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _socket import socket

SOL_SOCKET, SO_PEERCRED, SO_PEERPIDFD = 1, 17, 77
"""Linux's numbers; another system has no such options."""
CREDENTIALS = 12
"""Bytes of the process id, the user and the group of the other end."""
FLAGS = frozenset((
    *(b"Uid", b"Gid", b"Groups", b"NoNewPrivs", b"Seccomp", b"Seccomp_filters"),
    *(b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb"),
))  # fmt: skip
"""Lines of a process's status that say what it may do."""
NO_NEW_PRIVILEGES = b"NoNewPrivs:\t1"
LINKS = ("root", "ns/mnt", "ns/user", "ns/pid")


def is_alike(connection: socket) -> bool:
    """Return whether the process at the other end is of this user and restricted exactly as this process."""
    try:
        found = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, CREDENTIALS)
    except OSError:
        return False
    process, user = (int.from_bytes(found[at : at + 4], sys.byteorder) for at in (0, 4))
    own = restrictions_of("self")
    if user != os.geteuid() or own is None or not can_recognise(own) or restrictions_of(str(process)) != own:
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


def can_recognise(own: tuple[bytes, ...]) -> bool:
    """Return whether a process with these restrictions can tell whether another one is in a sandbox.

    The system does not tell which processes Landlock restricts, but they have `NoNewPrivs`, unless root entered it.
    """
    return NO_NEW_PRIVILEGES not in own


def restrictions_of(process: str) -> tuple[bytes, ...] | None:
    """Return what decides what a process may do: user, capabilities, flags, label, root directory and namespaces."""
    place = f"/proc/{process}"
    try:
        with open(f"{place}/status", "rb", buffering=0) as file:
            flags = [line for line in file.read().split(b"\n") if line.partition(b":")[0] in FLAGS]
        links = (os.fsencode(os.readlink(f"{place}/{link}")) for link in LINKS)
        return (*flags, _label(place), *links)
    except OSError:
        return None


def _label(place: str) -> bytes:
    try:
        with open(f"{place}/attr/current", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def with_short_path(path: str, call: Callable[[str], None]) -> None:
    """Call a function with another name of a path: the system limits names of sockets to about 100 bytes."""
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        call(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
    finally:
        os.close(directory)
