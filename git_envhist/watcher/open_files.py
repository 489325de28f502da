"""Find directories with files that a process holds open or mapped for writing.

A store through a mapping gives no event before the mapping ends, and neither does an asynchronous write. Such files
are looked at by each capture; their end is an event (`IN_CLOSE_WRITE`).

The descriptors of every process that this one may read are listed each time. Its mappings are read again if it had a
page fault since, because a store into a new mapping is one, and each time if it shares a file of these file systems,
because the file may have another path now.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress

from git_envhist.lazy import dataclass, pattern
from git_envhist.platform import PROCESSES, Mount, parse_mounts
from git_envhist.watcher.mounted_files import Places, path_in

STATE, FLAGS, MINOR_FAULTS, MAJOR_FAULTS, THREADS, START_TIME = 0, 6, 7, 9, 17, 19
"""Indexes in the fields of `/proc/<pid>/stat` after the name."""
KERNEL_THREAD = 0x200000
ENDED = frozenset((b"Z", b"X"))
SHARED = pattern(rb"(?m)^([0-9a-f]+)-([0-9a-f]+) (...)s [0-9a-f]+ ([0-9a-f]+):([0-9a-f]+) ([0-9]+) +(/.*)$")
"""A shared mapping of a file: addresses, modes, device, inode and path. A read-only one may have been writable."""
MOUNT_NUMBER = pattern(rb"(?m)^mnt_id:\s*([0-9]+)$")
BLOCK_DEVICES, LOOP = b"/sys/block", b"loop"
DELETED = b" (deleted)"
COMPARE = {"x86_64": 312, "aarch64": 272}
"""The number of the system call `kcmp` on some machines."""
COMPARE_FILES = 2
NEWLINE = b"\\012"
"""A line break in the path of a mapping."""
UNREADABLE = (FileNotFoundError, ProcessLookupError, PermissionError)
"""A process that ended, or whose files this user may not list."""
Mounts = dict[bytes, Mount]
"""The mounts of a namespace by their numbers, which are unique in the system."""
Tables = dict[bytes, Mounts]


class OutOfSight(Exception):
    """A file of the environment may be written to without a name by which it is found; the text is the reason."""


@dataclass(slots=True)
class _Process:
    start: bytes
    faults: tuple[bytes, bytes] = (b"", b"")
    mapped: frozenset[bytes] = frozenset()
    shares: bool = False
    """True if it maps a file of the environment's file systems for writing, or any file of the environment."""


class OpenFiles:
    """Look for files of an environment that processes hold open for writing."""

    def __init__(self, bases: Mapping[bytes, bytes], processes: str = PROCESSES) -> None:
        self._bases = dict(bases)
        self._processes = os.fsencode(processes)
        self._seen: dict[bytes, _Process] = {}
        self._own = b"%d" % os.getpid()
        self._call = ctypes.CDLL(None).syscall
        self._places: Places
        self._own_mounts: Mounts
        self._namespaces: dict[bytes, Mounts] = {}
        """Mount namespace -> its mounts by their numbers, in one look."""
        self._tables: Tables = {}
        """The text of a table of mounts -> the mounts, of this look and the one before."""

    def directories(self) -> set[bytes]:
        """Return the directories of such files. Raise `OutOfSight` if a file cannot be assigned to one."""
        seen: dict[bytes, _Process] = {}
        try:
            found = self._find(seen)
        except OSError as error:
            raise OutOfSight(f"open files cannot be listed: {error.strerror}") from error
        finally:
            self._seen = seen
        return found

    def _find(self, seen: dict[bytes, _Process]) -> set[bytes]:
        before, self._tables = self._tables, {}
        self._own_mounts = self._read_mounts(b"self", before)
        self._places = Places(self._bases, list(self._own_mounts.values()))
        self._namespaces = {self._namespace_of(b"self"): self._own_mounts}
        self._refuse_overlays(self._own_mounts)
        found: set[bytes] = set(self._loop_devices())
        for pid in os.listdir(self._processes):
            if pid.isdigit() and pid != self._own:
                with suppress(*UNREADABLE):
                    for directory, fields in self._live(pid):
                        with suppress(*UNREADABLE):
                            found.update(self._look(directory, fields, seen, before))
        return found

    def _live(self, pid: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield the directory of a process in /proc and its state, or those of its threads if the main thread ended."""
        fields = self._fields(pid)
        if int(fields[FLAGS]) & KERNEL_THREAD:
            return
        if fields[STATE] not in ENDED:
            yield pid, fields
            return
        for thread in os.listdir(b"%b/%b/task" % (self._processes, pid)):
            if thread != pid:
                with suppress(*UNREADABLE):
                    directory = b"%b/task/%b" % (pid, thread)
                    yield directory, self._fields(directory)

    def _look(
        self, directory: bytes, fields: list[bytes], seen: dict[bytes, _Process], before: Tables
    ) -> set[bytes]:
        """Return the directories of the files that a process or thread holds."""
        mounts = self._mounts_of(directory, before)
        process = self._seen.get(directory)
        if process is None or process.start != fields[START_TIME]:
            process = _Process(fields[START_TIME])
        faults = fields[MINOR_FAULTS], fields[MAJOR_FAULTS]
        if process.shares or faults != process.faults:
            self._read_mappings(directory, process, mounts)
            process.faults = faults
        seen[directory] = process
        found = {*self._opened(directory, mounts), *process.mapped}
        if int(fields[THREADS]) > 1 and b"/" not in directory:
            for thread in self._separate_threads(directory):
                with suppress(*UNREADABLE):
                    found.update(self._opened(b"%b/task/%b" % (directory, thread), mounts))
        return found

    def _separate_threads(self, pid: bytes) -> Iterator[bytes]:
        """Yield the threads of a process that may have descriptors of their own."""
        number = COMPARE.get(os.uname().machine)
        for thread in os.listdir(b"%b/%b/task" % (self._processes, pid)):
            same = (
                number is not None
                and thread != pid
                and self._call(number, int(pid), int(thread), COMPARE_FILES, 0, 0) == 0
            )
            if thread != pid and not same:
                yield thread

    def _fields(self, directory: bytes) -> list[bytes]:
        with open(b"%b/%b/stat" % (self._processes, directory), "rb", buffering=0) as file:
            fields = file.read(4096).rpartition(b")")[2].split()
        if len(fields) <= START_TIME:
            raise ProcessLookupError
        return fields

    # Mounts.

    def _namespace_of(self, directory: bytes) -> bytes:
        return os.readlink(b"%b/%b/ns/mnt" % (self._processes, directory))

    def _mounts_of(self, directory: bytes, before: Tables) -> Mounts:
        """Return the mounts of a process's namespace by their numbers."""
        namespace = self._namespace_of(directory)
        mounts = self._namespaces.get(namespace)
        if mounts is None:
            mounts = self._namespaces[namespace] = self._read_mounts(directory, before)
            self._refuse_overlays(mounts)
        return mounts

    def _read_mounts(self, directory: bytes, before: Tables) -> Mounts:
        with open(b"%b/%b/mountinfo" % (self._processes, directory), "rb", buffering=0) as file:
            data = file.readall()
        mounts = before.get(data)
        if mounts is None:
            mounts = {mount.number: mount for mount in parse_mounts(data)}
        self._tables[data] = mounts
        return mounts

    def _refuse_overlays(self, mounts: Mounts) -> None:
        if self._places.may_be_upper(list(mounts.values())):
            self._note_hidden("an overlay may write into the environment")

    # Descriptors.

    def _opened(self, directory: bytes, mounts: Mounts) -> Iterator[bytes]:
        above = b"%b/%b/" % (self._processes, directory)
        for number in os.listdir(above + b"fd"):
            # It may be closed meanwhile.
            with suppress(FileNotFoundError):
                link = above + b"fd/" + number
                target = os.readlink(link)
                # Sockets, pipes and the like have no path.
                if target.startswith(b"/") and os.lstat(link).st_mode & stat.S_IWUSR:
                    inside = self._directory_of(
                        link, target, _mount_number(above + b"fdinfo/" + number), mounts
                    )
                    if inside is not None:
                        yield inside

    def _directory_of(self, link: bytes, target: bytes, number: bytes, mounts: Mounts) -> bytes | None:
        """Return the directory of an open file; None if it is outside of the environment."""
        places = self._places
        mount = self._own_mounts.get(number)
        is_own = mount is not None
        mount = mount or mounts.get(number)
        if mount is not None and mount.device not in places.devices:
            return None
        path = None if mount is None else path_in(mount, target)
        if mount is not None and not target.endswith(DELETED):
            if is_own and path is not None:
                return places.directory_of(mount.device, path)
            if places.is_apart(mount):
                return None
        # The path is that of another namespace, or the name by which the file was opened is gone.
        seen = os.stat(link)
        if not stat.S_ISREG(seen.st_mode) or not seen.st_nlink:
            return None
        if (
            mount is not None
            and path is not None
            and places.is_at(mount.device, path, seen.st_ino, seen.st_dev)
        ):
            return places.directory_of(mount.device, path)
        if mount is not None or seen.st_dev in places.numbers:
            self._note_hidden("a process writes to a file whose name is unknown")
        return None

    # Mappings.

    def _read_mappings(self, directory: bytes, process: _Process, mounts: Mounts) -> None:
        with open(b"%b/%b/maps" % (self._processes, directory), "rb") as file:
            data = file.read()
        mapped: set[bytes] = set()
        process.shares = True
        is_written = False
        for begin, end, modes, major, minor, inode, target in SHARED.findall(data):
            device = b"%d:%d" % (int(major, 16), int(minor, 16))
            if device in self._places.devices:
                paths = self._paths(device, target.replace(NEWLINE, b"\n"), mounts)
                inside = (self._places.directory_of(device, path) for path in paths)
                mapped.update(one for one in inside if one is not None)
                if b"w" in modes:
                    is_written = True
                    link = b"%b/%b/map_files/%x-%x" % (
                        self._processes,
                        directory,
                        int(begin, 16),
                        int(end, 16),
                    )
                    self._require_name(device, paths, int(inode), link)
        process.mapped, process.shares = frozenset(mapped), is_written or bool(mapped)

    def _paths(self, device: bytes, target: bytes, mounts: Mounts) -> list[bytes]:
        """Return the paths in its file system that a mapped file can have: the mount is not known."""
        paths = (path_in(mount, target) for mount in mounts.values() if mount.device == device)
        return [path for path in paths if path is not None]

    def _require_name(self, device: bytes, paths: list[bytes], inode: int, link: bytes) -> None:
        """Raise `OutOfSight` if a mapped file exists and has none of these paths."""
        if not any(self._places.is_at(device, path, inode) for path in paths) and _may_have_name(link):
            self._note_hidden("a process has a file mapped whose name is unknown")

    def _note_hidden(self, reason: str) -> None:
        raise OutOfSight(reason)

    # Loop devices.

    def _loop_devices(self) -> Iterator[bytes]:
        """Yield the directories of files that are block devices: the kernel writes to them without an event."""
        for name in os.listdir(BLOCK_DEVICES) if os.path.isdir(BLOCK_DEVICES) else ():
            if name.startswith(LOOP):
                with suppress(*UNREADABLE):
                    yield from self._backing_file(b"%b/%b" % (BLOCK_DEVICES, name))

    def _backing_file(self, device: bytes) -> Iterator[bytes]:
        with open(device + b"/loop/backing_file", "rb") as file, open(device + b"/ro", "rb") as mode:
            target, is_read_only = file.read().removesuffix(b"\n"), mode.read().strip() == b"1"
        if is_read_only or not target:
            return
        try:
            os.lstat(target)
        except PermissionError:
            # Not in a directory that a capture by this user reads.
            return
        except OSError:
            self._note_hidden("a loop device writes to a file whose name is unknown")
        for mount in self._own_mounts.values():
            path = path_in(mount, target)
            inside = None if path is None else self._places.directory_of(mount.device, path)
            if inside is not None:
                yield inside


def _mount_number(description: bytes) -> bytes:
    """Return the number of the mount of an open file; empty if it cannot be read."""
    with suppress(PermissionError), open(description, "rb", buffering=0) as file:
        if found := MOUNT_NUMBER.search(file.read(4096)):
            return found[1]
    return b""


def _may_have_name(link: bytes) -> bool:
    """Return whether a mapped file has a name, or this user cannot know it."""
    try:
        return bool(os.stat(link).st_nlink)
    except OSError:
        return True
