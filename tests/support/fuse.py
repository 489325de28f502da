"""A file system served from Python by the kernel's FUSE protocol, to imitate failing disks."""

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
SETATTR, SYMLINK, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK = 4, 6, 8, 9, 10, 11, 12, 13
FSYNCDIR, CREATE, RENAME2 = 30, 35, 45
INTERRUPT, DESTROY, BATCH_FORGET = 36, 38, 42
SILENT = {FORGET, BATCH_FORGET, INTERRUPT}

HEADER_IN = struct.Struct("<IIQQIIII")
HEADER_OUT = struct.Struct("<IiQ")
INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
ATTRIBUTES = struct.Struct("<6Q10I")
ENTRY = struct.Struct("<4Q2I")
STATISTICS = struct.Struct("<5Q3I28x")
READ_IN = struct.Struct("<QQII")
SETATTR_IN = struct.Struct("<II6Q8I")
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22
LARGEST = 1 << 20
DIRECT_IO = 1
ROOT = 1


class Server:
    """Answer the kernel's requests about a directory; other requests are not supported."""

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
        """Mount, print that on standard output, and answer until it is unmounted."""
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
        # The requesting process may have been interrupted meanwhile.
        with suppress(FileNotFoundError):
            os.write(device, HEADER_OUT.pack(HEADER_OUT.size + len(answer), error, unique) + answer)

    def _ask(self, what: int, node: int, words: bytes) -> bytes:
        if what not in self._answers:
            raise OSError(errno.ENOSYS, "not here")
        return self._answers[what](node, words)

    # Subclasses override these.

    def answers(self, what: int) -> bool:
        return True

    def find(self, directory: bytes, name: bytes) -> bytes:
        return directory + b"/" + name

    def may_read(self, path: bytes) -> None:
        pass

    # The requests.

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


class Hiding(Server):
    """A writable file system on which a removed open file keeps a name."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        os.umask(0)
        self._count = ROOT
        self._opened: dict[int, int] = {}
        self._hidden: dict[int, bytes] = {}
        self._answers |= {
            SETATTR: self.setattr,
            SYMLINK: self.symlink,
            MKNOD: self.mknod,
            MKDIR: self.mkdir,
            UNLINK: self.unlink,
            RMDIR: lambda node, words: self.gone(self.below(node, words), os.rmdir),
            RENAME: lambda node, words: self.rename(node, words, 8),
            RENAME2: lambda node, words: self.rename(node, words, 16),
            LINK: self.link,
            CREATE: self.create,
            RELEASE: self.release,
            FSYNCDIR: self.fsync,
        }

    def below(self, node: int, words: bytes) -> bytes:
        return self.path(node) + b"/" + words.partition(b"\0")[0]

    def lookup(self, node: int, words: bytes) -> bytes:
        path = self.below(node, words)
        seen = self.attributes(path)
        if path not in self._numbers:
            self._count += 1
            self._numbers[path], self._paths[self._count] = self._count, path
        return ENTRY.pack(self._numbers[path], 0, 0, 0, 0, 0) + seen

    def open(self, node: int, words: bytes) -> bytes:
        self._opened[node] = self._opened.get(node, 0) + 1
        return struct.pack("<QII", 0, 0, 0)

    def create(self, node: int, words: bytes) -> bytes:
        _, mode, _, _ = struct.unpack_from("<4I", words)
        os.close(os.open(self.below(node, words[16:]), os.O_CREAT | os.O_EXCL | os.O_RDWR, mode & 0o7777))
        entry = self.lookup(node, words[16:])
        return entry + self.open(struct.unpack_from("<Q", entry)[0], b"")

    def release(self, node: int, words: bytes) -> bytes:
        self._opened[node] -= 1
        if not self._opened[node] and node in self._hidden:
            os.unlink(self._hidden.pop(node))
        return b""

    def write(self, node: int, words: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", words)
        descriptor = os.open(self.path(node), os.O_WRONLY)
        try:
            done = os.pwrite(descriptor, words[40 : 40 + size], offset)
        finally:
            os.close(descriptor)
        return struct.pack("<II", done, 0)

    def setattr(self, node: int, words: bytes) -> bytes:
        valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _ = (
            SETATTR_IN.unpack_from(words)
        )
        path = self.path(node)
        if valid & 6:
            os.lchown(path, uid if valid & 2 else -1, gid if valid & 4 else -1)
        if valid & 1:
            os.chmod(path, mode & 0o7777)
        if valid & 8:
            os.truncate(path, size)
        if valid & 48:
            seen, now = os.lstat(path), time.time_ns()
            accessed = now if valid & 128 else atime * 10**9 + atime_ns if valid & 16 else seen.st_atime_ns
            changed = now if valid & 256 else mtime * 10**9 + mtime_ns if valid & 32 else seen.st_mtime_ns
            os.utime(path, ns=(accessed, changed), follow_symlinks=False)
        return self.getattr(node, b"")

    def symlink(self, node: int, words: bytes) -> bytes:
        name, target, _ = words.split(b"\0")
        os.symlink(target, self.path(node) + b"/" + name)
        return self.lookup(node, name)

    def mknod(self, node: int, words: bytes) -> bytes:
        mode, device = struct.unpack_from("<II", words)
        os.mknod(self.below(node, words[16:]), mode, device)
        return self.lookup(node, words[16:])

    def mkdir(self, node: int, words: bytes) -> bytes:
        os.mkdir(self.below(node, words[8:]), struct.unpack_from("<I", words)[0] & 0o7777)
        return self.lookup(node, words[8:])

    def link(self, node: int, words: bytes) -> bytes:
        os.link(
            self.path(struct.unpack_from("<Q", words)[0]), self.below(node, words[8:]), follow_symlinks=False
        )
        return self.lookup(node, words[8:])

    def unlink(self, node: int, words: bytes) -> bytes:
        path = self.below(node, words)
        return b"" if self.hide(path) else self.gone(path, os.unlink)

    def rename(self, node: int, words: bytes, head: int) -> bytes:
        directory = struct.unpack_from("<Q", words)[0]
        if head == 16 and struct.unpack_from("<I", words, 8)[0]:
            raise OSError(errno.EINVAL, "no flags")
        old, new, _ = words[head:].split(b"\0")
        source, target = self.path(node) + b"/" + old, self.path(directory) + b"/" + new
        if source != target and os.path.lexists(target):
            self.hide(target)
        os.rename(source, target)
        self._numbers.pop(target, None)
        self.moved(source, target)
        return b""

    def hide(self, path: bytes) -> bool:
        """Rename an open file that would be removed; return False if it is not open."""
        node = self._numbers.get(path, 0)
        if not self._opened.get(node):
            return False
        if node in self._hidden:
            raise OSError(errno.EBUSY, "it is open")
        hidden = b"%b/.fuse_hidden%016x" % (os.path.dirname(path), node)
        os.rename(path, hidden)
        self.moved(path, hidden)
        self._hidden[node] = hidden
        return True

    def moved(self, source: bytes, target: bytes) -> None:
        for path in [one for one in self._numbers if one == source or one.startswith(source + b"/")]:
            number = self._numbers.pop(path)
            self._paths[number] = target + path[len(source) :]
            self._numbers[self._paths[number]] = number
            if number in self._hidden:
                self._hidden[number] = self._paths[number]

    def gone(self, path: bytes, remove: Callable[[bytes], None]) -> bytes:
        remove(path)
        self._numbers.pop(path, None)
        return b""


class Stingy(Hiding):
    """Like Hiding, but takes at most a few hundred bytes per write, past the page cache, as a loaded network file
    system may."""

    def open(self, node: int, words: bytes) -> bytes:
        super().open(node, words)
        return struct.pack("<QII", 0, DIRECT_IO, 0)

    def write(self, node: int, words: bytes) -> bytes:
        fh, offset, size = struct.unpack_from("<QQI", words)
        return super().write(node, struct.pack("<QQI", fh, offset, min(size, 300)) + words[20:])


MANNERS = {
    "stingy": Stingy,
    "hiding": Hiding,
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
