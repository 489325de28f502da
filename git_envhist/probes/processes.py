"""The sockets on which somebody listens.

The kernel is asked for those alone where it lets itself be asked (`sock_diag`): that takes 0.04 ms. The lists in
`/proc/net` name every connection there is, and to find these the kernel walks a table that grows with the machine's
memory: 9 ms on one of 8 GB without a single connection.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

TCP, LISTENING = 6, 10
FAMILIES = (2, 10)
"""IPv4 and IPv6, as the kernel numbers them."""
SOCK_DIAG, BY_FAMILY = 4, 20
"""The kernel's numbers of the protocol, and of the question."""
DUMP = 0x301
DONE, FAILED = 3, 2
HEAD = struct.Struct("=IHHII")
QUESTION = struct.Struct("=BBBBI48x")
PORT = struct.Struct("!H")
WHOSE = struct.Struct("=II")
PORT_AT, WHOSE_AT = HEAD.size + 4, HEAD.size + 64
SECONDS = 1.0
ACCEPTING = 0x10000
"""Of a Unix socket: somebody waits for connections."""


class Listener(NamedTuple):
    """A TCP socket that waits for connections."""

    inode: int
    owner: int
    port: int


def tcp_listeners(proc: str = "/proc") -> list[Listener]:
    """Every one of them."""
    try:
        return [found for family in FAMILIES for found in _ask_kernel(family)]
    except (ImportError, OSError, struct.error):
        return [found for name in ("tcp", "tcp6") for found in parse_tcp(_read(f"{proc}/net/{name}"))]


def unix_listeners(proc: str = "/proc") -> dict[int, bytes]:
    """By inode, the paths at which somebody listens, as they were spelled."""
    return dict(parse_unix(_read(f"{proc}/net/unix")))


def parse_tcp(table: bytes) -> Iterator[Listener]:
    """What the kernel's list says."""
    for line in table.splitlines()[1:]:
        words = line.split(None, 10)
        try:
            if len(words) > 9 and int(words[3], 16) == LISTENING:
                yield Listener(int(words[9]), int(words[7]), int(words[1].rpartition(b":")[2], 16))
        except ValueError:
            continue


def parse_unix(table: bytes) -> Iterator[tuple[int, bytes]]:
    """(inode, path); those without a name in the file system are none of an environment's."""
    for line in table.split(b"\n")[1:]:
        words = line.split(None, 7)
        try:
            if len(words) == 8 and int(words[3], 16) & ACCEPTING and not words[7].startswith(b"@"):
                yield int(words[6]), words[7]
        except ValueError:
            continue


def _ask_kernel(family: int) -> Iterator[Listener]:
    # `socket` itself brings 2 ms of names along.
    from _socket import AF_NETLINK, SOCK_CLOEXEC, SOCK_RAW, socket  # loaded late: no other system has them

    asking = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, SOCK_DIAG)
    try:
        asking.settimeout(SECONDS)
        question = QUESTION.pack(family, TCP, 0, 0, 1 << LISTENING)
        asking.send(HEAD.pack(HEAD.size + len(question), BY_FAMILY, DUMP, 1, 0) + question)
        while True:
            answer = asking.recv(1 << 16)
            for kind, message in _messages(answer):
                if kind == DONE:
                    return
                if kind == FAILED:
                    raise OSError("the kernel does not tell who listens")
                owner, inode = WHOSE.unpack_from(message, WHOSE_AT)
                yield Listener(inode, owner, PORT.unpack_from(message, PORT_AT)[0])
    finally:
        asking.close()


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + HEAD.size <= len(data):
        size, kind = HEAD.unpack_from(data, at)[:2]
        if size < HEAD.size:
            raise OSError("the kernel says what nobody understands")
        yield kind, data[at : at + size]
        at += size + 3 & ~3


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def namespace(proc: str = "/proc") -> str:
    """Which network is seen, and since when: numbers of sockets begin anew with either."""
    try:
        with open(f"{proc}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink(f'{proc}/self/ns/net')}"
    except OSError:
        return ""


# Other processes, as `/proc` tells of them: as far as it may be read, and nothing where there is none.

PROC = b"/proc"
GONE = b" (deleted)"
MAX_LENGTH = 1 << 14
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
            told = file.read(MAX_LENGTH).rstrip(b"\0")
    except OSError:
        return []
    return told.split(b"\0") if told else []


def owner_of(pid: int, proc: bytes = PROC) -> int | None:
    """Whose it is."""
    try:
        return os.stat(b"%b/%d" % (proc, pid)).st_uid
    except OSError:
        return None
