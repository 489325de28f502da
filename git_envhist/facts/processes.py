"""Other processes, as `/proc` tells of them: as far as it may be read, and nothing where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator

PROC = b"/proc"
GONE = b" (deleted)"
LONGEST = 1 << 14
"""So many bytes of a command line are looked at."""


def others(proc: bytes = PROC) -> Iterator[int]:
    """Every process but this one."""
    try:
        names = os.listdir(proc)
    except OSError:
        return
    here = os.getpid()
    yield from (int(name) for name in names if name.isdigit() and int(name) != here)


def open_files(pid: int, proc: bytes = PROC) -> Iterator[bytes]:
    """What a process has open: paths, `socket:[1234]`."""
    directory = b"%b/%d/fd" % (proc, pid)
    try:
        numbers = os.listdir(directory)
    except OSError:
        return  # gone, or somebody else's
    for number in numbers:
        yield target(b"%b/%b" % (directory, number))


def is_serving(pid: int, proc: bytes = PROC) -> bool:
    """Return whether a process listens on a socket."""
    from git_envhist.facts.listeners import tcp_listeners, unix_listeners  # loaded late: few ask for it

    sockets = {path for path in open_files(pid, proc) if path.startswith(b"socket:[")}
    if not sockets:
        return False
    root = os.fsdecode(proc)
    numbers = {found.inode for found in tcp_listeners(root)} | set(unix_listeners(root))
    return any(b"socket:[%d]" % number in sockets for number in numbers)


def places(pid: int, proc: bytes = PROC) -> tuple[bytes, bytes]:
    """Where it stands, and its program; empty where that is not to be known."""
    return target(b"%b/%d/cwd" % (proc, pid)), target(b"%b/%d/exe" % (proc, pid))


def target(link: bytes) -> bytes:
    """Where one of the links in `/proc` leads."""
    try:
        return os.readlink(link).removesuffix(GONE)
    except OSError:
        return b""


def words_of(pid: int, proc: bytes = PROC) -> list[bytes]:
    """What it was called with."""
    try:
        with open(b"%b/%d/cmdline" % (proc, pid), "rb") as file:
            told = file.read(LONGEST).rstrip(b"\0")
    except OSError:
        return []
    return told.split(b"\0") if told else []


def parent_of(pid: int, proc: bytes = PROC) -> int:
    """Who started it; 0 where that is not to be known."""
    try:
        with open(b"%b/%d/stat" % (proc, pid), "rb") as file:
            # The name stands in parentheses and may hold anything.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def owner_of(pid: int, proc: bytes = PROC) -> int | None:
    """Whose it is."""
    try:
        return os.stat(b"%b/%d" % (proc, pid)).st_uid
    except OSError:
        return None
