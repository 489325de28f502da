"""Find directories with files that a process holds open or mapped for writing.

A store through a mapping gives no event before the mapping ends, and neither does an asynchronous write. Such files
are looked at by each capture; their end is an event (`IN_CLOSE_WRITE`).

The descriptors of every process that this one may read are listed each time. Its mappings are read again only if it
had a page fault since: a store into a new mapping is one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress

from git_envhist.lazy import dataclass
from git_envhist.paths import DOT_GIT, ROOT_PREFIX, join
from git_envhist.platform import PROCESSES

FLAGS, MINOR_FAULTS, MAJOR_FAULTS, START_TIME = 6, 7, 9, 19
"""Indexes in the fields of `/proc/<pid>/stat` after the name."""
KERNEL_THREAD = 0x200000
SHARED_WRITABLE = b" rw-s ", b" -w-s ", b" rwxs "
BLOCK_DEVICES, LOOP = b"/sys/block", b"loop"
DELETED = b" (deleted)"
NEWLINE = b"\\012"
"""A line break in the path of a mapping."""


class OutOfSight(Exception):
    """A process of another mount namespace writes to a file on a file system of the environment."""


@dataclass(slots=True)
class _Process:
    start: bytes
    faults: tuple[bytes, bytes] = (b"", b"")
    mapped: frozenset[bytes] = frozenset()
    is_elsewhere: bool = False
    """True if it is in another mount namespace, so that its paths mean something else."""
    is_kernel: bool = False


class OpenFiles:
    """Look for files of an environment that processes hold open for writing."""

    def __init__(self, bases: Mapping[bytes, bytes], processes: str = PROCESSES) -> None:
        self._bases = {root: os.path.realpath(base) for root, base in bases.items()}
        self._devices = {os.stat(base).st_dev for base in self._bases.values()}
        self._processes = os.fsencode(processes)
        self._seen: dict[bytes, _Process] = {}
        self._namespace = self._namespace_of(b"self")
        self._own = b"%d" % os.getpid()

    def directories(self) -> set[bytes]:
        """Return the directories of such files. Raise `OutOfSight` if a file cannot be assigned to one."""
        found: set[bytes] = set()
        seen: dict[bytes, _Process] = {}
        for pid in os.listdir(self._processes):
            if pid.isdigit() and pid != self._own:
                with suppress(OSError, IndexError):
                    process = seen[pid] = self._look(pid)
                    if not process.is_kernel:
                        found.update(self._opened(pid, process), process.mapped)
        self._seen = seen
        found.update(self._loop_devices())
        return found

    def _loop_devices(self) -> Iterator[bytes]:
        """Yield the directories of files that are block devices: the kernel writes to them without an event."""
        for name in os.listdir(BLOCK_DEVICES) if os.path.isdir(BLOCK_DEVICES) else ():
            if name.startswith(LOOP):
                with (
                    suppress(OSError),
                    open(b"%b/%b/loop/backing_file" % (BLOCK_DEVICES, name), "rb") as file,
                ):
                    inside = self._directory_of(file.read().rstrip(b"\n"))
                    if inside is not None:
                        yield inside

    def _look(self, pid: bytes) -> _Process:
        with open(b"%b/%b/stat" % (self._processes, pid), "rb", buffering=0) as file:
            fields = file.read(4096).rpartition(b")")[2].split()
        process = self._seen.get(pid)
        if process is None or process.start != fields[START_TIME]:
            process = _Process(fields[START_TIME], is_kernel=bool(int(fields[FLAGS]) & KERNEL_THREAD))
            if not process.is_kernel:
                process.is_elsewhere = self._namespace_of(pid) != self._namespace
        faults = fields[MINOR_FAULTS], fields[MAJOR_FAULTS]
        if faults != process.faults and not process.is_kernel:
            process.mapped = frozenset(self._mapped(pid, process))
            process.faults = faults
        return process

    def _namespace_of(self, pid: bytes) -> bytes:
        return os.readlink(b"%b/%b/ns/mnt" % (self._processes, pid))

    def _opened(self, pid: bytes, process: _Process) -> Iterator[bytes]:
        directory = b"%b/%b/fd/" % (self._processes, pid)
        for number in os.listdir(directory):
            with suppress(OSError):
                link = directory + number
                target = os.readlink(link)
                # Sockets, pipes and the like have no path.
                if target.startswith(b"/"):
                    inside = self._directory_of(target)
                    if (inside is not None or process.is_elsewhere) and os.lstat(link).st_mode & stat.S_IWUSR:
                        if process.is_elsewhere:
                            seen = os.stat(link)
                            self._require_same_file(seen.st_dev, seen.st_ino, target)
                        if inside is not None:
                            yield inside

    def _mapped(self, pid: bytes, process: _Process) -> Iterator[bytes]:
        with open(b"%b/%b/maps" % (self._processes, pid), "rb") as file:
            data = file.read()
        if not any(mode in data for mode in SHARED_WRITABLE):
            return
        for line in data.split(b"\n"):
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and b"w" in fields[1] and b"s" in fields[1] and fields[5].startswith(b"/"):
                inside = self._directory_of(fields[5])
                if process.is_elsewhere:
                    major, _, minor = fields[3].partition(b":")
                    device = os.makedev(int(major, 16), int(minor, 16))
                    self._require_same_file(device, int(fields[4]), fields[5])
                if inside is not None:
                    yield inside

    def _directory_of(self, target: bytes) -> bytes | None:
        """Return the directory of a file as the stat cache names it; None for a file outside of the environment."""
        for root, base in self._bases.items():
            if target.startswith(base + b"/"):
                below = target[len(base) + 1 :].removesuffix(DELETED).replace(NEWLINE, b"\n")
                if not root and below.startswith(DOT_GIT + b"/"):
                    # A capture's own files are open there.
                    return None
                above = below.rpartition(b"/")[0]
                top = ROOT_PREFIX + root if root else b""
                return join(top, above) if above else top
        return None

    def _require_same_file(self, device: int, inode: int, target: bytes) -> None:
        """Raise `OutOfSight` if another namespace's path of a file on our file systems is not its path here."""
        if device not in self._devices or target.endswith(DELETED):
            return
        with suppress(OSError):
            seen = os.stat(target)
            if (seen.st_dev, seen.st_ino) == (device, inode):
                return
        raise OutOfSight
