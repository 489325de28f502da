"""A file system served from Python, by the kernel's own protocol: what real disks do only when they are old.

`python -m tests.support.fuse MANNER SOURCE PLACE` shows a directory, read-only, at another place, until it is ended:

- plain      as it is
- folding    names are found in any case, as on macOS and Windows
- failing    every file with `rotten` in its name gives EIO when it is read
- hanging    nothing is ever answered, as by a server that is gone
- stuttering a read gives a few hundred bytes at most, whatever was asked for
- slow       each reading of a file takes a tenth of a second
- short      no name may be longer than twenty bytes, as the system tells of it

It needs the right to mount, and `/dev/fuse`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress

LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ, WRITE = 1, 2, 3, 5, 14, 15, 16
STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = 17, 18, 20, 25, 26, 27, 28, 29
INTERRUPT, DESTROY, BATCH_FORGET = 36, 38, 42
SILENT = {FORGET, BATCH_FORGET, INTERRUPT}

HEADER_IN = struct.Struct("<IIQQIIII")
HEADER_OUT = struct.Struct("<IiQ")
INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
ATTRIBUTES = struct.Struct("<6Q10I")
ENTRY = struct.Struct("<4Q2I")
STATISTICS = struct.Struct("<5Q3I28x")
READ_IN = struct.Struct("<QQII")
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22
LARGEST = 1 << 20
DIRECT_IO = 1
ROOT = 1


class Server:
    """Answers the kernel's questions about a directory; what is not written here is not to be had."""

    longest = 255

    def __init__(self, source: str) -> None:
        self._paths = {ROOT: os.fsencode(source)}
        self._numbers = {os.fsencode(source): ROOT}
        self._answers: dict[int, Callable[[int, bytes], bytes]] = {
            INIT: self.init,
            LOOKUP: self.lookup,
            GETATTR: self.getattr,
            READLINK: lambda node, _: os.readlink(self.path(node)),
            OPEN: self.open,
            OPENDIR: self.open,
            READ: self.read,
            WRITE: self.write,
            FSYNC: self.fsync,
            READDIR: self.readdir,
            STATFS: lambda node, _: STATISTICS.pack(*bytes(5), 4096, self.longest, 0),
            RELEASE: lambda node, _: b"",
            RELEASEDIR: lambda node, _: b"",
            FLUSH: lambda node, _: b"",
        }

    def serve(self, place: str) -> None:
        """Mount, say so on standard output, and answer until the mount is gone."""
        device = os.open("/dev/fuse", os.O_RDWR)
        words = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"tests", os.fsencode(place), b"fuse", 6, words.encode()) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        print("ready", flush=True)
        while True:
            try:
                question = os.read(device, LARGEST + (1 << 16))
            except InterruptedError:
                continue
            except OSError as gone:
                if gone.errno == errno.ENODEV:
                    return
                raise
            self._answer(device, question)

    def _answer(self, device: int, question: bytes) -> None:
        _, what, unique, node, *_ = HEADER_IN.unpack_from(question)
        if what in SILENT or not self.answers(what):
            return
        try:
            answer, error = self._ask(what, node, question[HEADER_IN.size :]), 0
        except OSError as refused:
            answer, error = b"", -(refused.errno or errno.EIO)
        # Whoever asked may have been interrupted meanwhile.
        with suppress(FileNotFoundError):
            os.write(device, HEADER_OUT.pack(HEADER_OUT.size + len(answer), error, unique) + answer)

    def _ask(self, what: int, node: int, words: bytes) -> bytes:
        if what not in self._answers:
            raise OSError(errno.ENOSYS, "not here")
        return self._answers[what](node, words)

    # What a manner of its own overrides.

    def answers(self, what: int) -> bool:
        return True

    def find(self, directory: bytes, name: bytes) -> bytes:
        return directory + b"/" + name

    def may_read(self, path: bytes) -> None:
        pass

    # The questions.

    def path(self, node: int) -> bytes:
        return self._paths[node]

    def init(self, node: int, words: bytes) -> bytes:
        return INIT_OUT.pack(7, 31, 0, BIG_WRITES | MAX_PAGES, 16, 12, LARGEST, 1, LARGEST >> 12, 0, 0)

    def lookup(self, node: int, words: bytes) -> bytes:
        path = self.find(self.path(node), words.rstrip(b"\0"))
        seen = self.attributes(path)
        number = self._numbers.setdefault(path, len(self._numbers) + 1)
        self._paths[number] = path
        return ENTRY.pack(number, 0, 0, 0, 0, 0) + seen

    def getattr(self, node: int, words: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self.attributes(self.path(node))

    def attributes(self, path: bytes) -> bytes:
        seen = os.lstat(path)
        times = [divmod(when, 10**9) for when in (seen.st_atime_ns, seen.st_mtime_ns, seen.st_ctime_ns)]
        return ATTRIBUTES.pack(
            seen.st_ino, seen.st_size, seen.st_blocks, *(when[0] for when in times),
            *(when[1] for when in times), seen.st_mode, seen.st_nlink, seen.st_uid, seen.st_gid, seen.st_rdev,
            4096, 0,
        )  # fmt: skip

    def open(self, node: int, words: bytes) -> bytes:
        return struct.pack("<QII", 0, DIRECT_IO, 0)

    def read(self, node: int, words: bytes) -> bytes:
        _, offset, size, _ = READ_IN.unpack_from(words)
        self.may_read(self.path(node))
        with open(self.path(node), "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, offset)

    def write(self, node: int, words: bytes) -> bytes:
        raise OSError(errno.EROFS, "read-only")

    def fsync(self, node: int, words: bytes) -> bytes:
        return b""

    def readdir(self, node: int, words: bytes) -> bytes:
        _, offset, size, _ = READ_IN.unpack_from(words)
        found = b""
        names = sorted(os.listdir(self.path(node)))
        for number, name in enumerate(names[offset:], start=offset + 1):
            seen = os.lstat(self.path(node) + b"/" + name)
            entry = (
                struct.pack("<QQII", seen.st_ino, number, len(name), stat.S_IFMT(seen.st_mode) >> 12) + name
            )
            entry += bytes(-len(entry) % 8)
            if len(found) + len(entry) > size:
                break
            found += entry
        return found


class Folding(Server):
    def find(self, directory: bytes, name: bytes) -> bytes:
        wanted = os.fsdecode(name).casefold()
        for listed in os.listdir(directory):
            if os.fsdecode(listed).casefold() == wanted:
                return directory + b"/" + listed
        return directory + b"/" + name


class Failing(Server):
    def may_read(self, path: bytes) -> None:
        if b"rotten" in os.path.basename(path):
            raise OSError(errno.EIO, "the disk is old")


class Hanging(Server):
    def answers(self, what: int) -> bool:
        return what == INIT


class Stuttering(Server):
    def read(self, node: int, words: bytes) -> bytes:
        return super().read(node, words)[:700]


class Slow(Server):
    def may_read(self, path: bytes) -> None:
        time.sleep(0.1)


class Short(Server):
    longest = 20


MANNERS = {
    "plain": Server,
    "folding": Folding,
    "failing": Failing,
    "hanging": Hanging,
    "stuttering": Stuttering,
    "slow": Slow,
    "short": Short,
}

if __name__ == "__main__":
    MANNERS[sys.argv[1]](sys.argv[2]).serve(sys.argv[3])
