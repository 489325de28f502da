"""How a file of the working tree compares with an entry of the index, without a filter or a line of git's diff.

Where a stat says that a file is as the index has it, git believes it, and so do we; else the bytes decide, and also the
two harmless ways in which bytes on disk differ from a blob: line ends that git turns, and LFS pointers.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable

from git_envhist.store.git import Git
from git_envhist.store.index import IndexEntry
from git_envhist.system import open_itself
from git_envhist.values import once

GITLINK, SYMLINK, TREE = 0o160000, 0o120000, 0o040000
CRLF_LIMIT = 16 << 20


class GitAttributes:
    """What git's configuration and attributes say of bytes and modes; asked only where it decides something."""

    def __init__(self, git: Git) -> None:
        self._git = git

    @once
    def modes_count(self) -> bool:
        """Whether git looks at the executable bit."""
        return self._flag("core.filemode", "true") != "false"

    def turns_line_ends(self, path: bytes, *, is_text: bool) -> bool:
        """Whether git takes a file's CRLF in as LF."""
        asked = self._git.try_run("check-attr", "-z", "--stdin", "text", "eol", "crlf", stdin=path + b"\0")
        text, eol, crlf = [*asked.out.split(b"\0")[2::3], b"", b"", b""][:3]
        for word in (text, crlf):
            if word == b"unset":
                return False
            if word in (b"set", b"input"):
                return True
            if word == b"auto":
                return is_text
        if eol in (b"lf", b"crlf"):
            return True
        return is_text and self._flag("core.autocrlf", "false", "input") != "false"

    def head_of(self, directory: bytes) -> bytes | None:
        """The commit that is checked out in a submodule; None where there is none."""
        if not os.path.lexists(directory + b"/.git"):
            return None
        inner = Git(os.fsdecode(directory + b"/.git"), os.fsdecode(directory))
        done = inner.try_run("rev-parse", "--verify", "--quiet", "HEAD")
        return bytes.fromhex(done.out.decode("ascii")) if done.status == 0 else None

    def _flag(self, key: str, default: str, *others: str) -> str:
        value = self._git.try_run("config", "--get", key).out.decode("utf-8", "replace").strip()
        if value in others:
            return value
        asked = (
            self._git.try_run("config", "--type=bool", "--get", key).out.decode("ascii", "replace").strip()
        )
        return asked or default


class IndexComparer:
    """Tells how the working tree's file compares with an entry of the index."""

    def __init__(
        self,
        root: str,
        object_format: str,
        index_time_ns: int,
        conversions: GitAttributes,
        closed: Iterable[bytes] = (),
    ) -> None:
        self._root = os.fsencode(root)
        self._format = object_format
        self._index_time_ns = index_time_ns
        self._conversions = conversions
        self._real = {b"": True}
        self._closed = tuple(path + b"/" for path in closed)
        """Where something is mounted that is not to be touched: it may hang whoever does."""

    def letter(self, entry: IndexEntry) -> str:
        """`=`, `M`, `T` or `D`."""
        if entry.skip_worktree or entry.assume_valid or entry.mode == TREE:
            return "="
        if self._closed and (entry.path + b"/").startswith(self._closed):
            return "="
        path = self._root + b"/" + entry.path
        try:
            if not self._is_real(entry.path.rpartition(b"/")[0]):
                return "D"
            seen = os.lstat(path)
        except OSError:
            return "D"
        if entry.mode == GITLINK:
            return self._submodule_letter(entry, path, seen)
        if stat.S_IFMT(seen.st_mode) != stat.S_IFMT(entry.mode):
            return "D" if stat.S_ISDIR(seen.st_mode) else "T"
        if self._believes(entry, seen):
            return "="
        if entry.mode != SYMLINK and self._differs_in_mode(entry, seen):
            return "M"
        return "=" if self._holds(entry.path, seen, entry.oid) else "M"

    def _is_real(self, directory: bytes) -> bool:
        """Whether a directory is one all the way down: what stands behind a link is not what git tracks there."""
        known = self._real.get(directory)
        if known is None:
            known = self._is_real(directory.rpartition(b"/")[0]) and stat.S_ISDIR(
                os.lstat(self._root + b"/" + directory).st_mode
            )
            self._real[directory] = known
        return known

    def _differs_in_mode(self, entry: IndexEntry, seen: os.stat_result) -> bool:
        return bool((entry.mode ^ seen.st_mode) & 0o100) and self._conversions.modes_count

    def _submodule_letter(self, entry: IndexEntry, path: bytes, seen: os.stat_result) -> str:
        # Its own changes are not looked for: they stand in the snapshot as what they are, files.
        if not stat.S_ISDIR(seen.st_mode):
            return "T"
        head = self._conversions.head_of(path)
        return "=" if head is None or head == entry.oid else "M"

    def _believes(self, entry: IndexEntry, seen: os.stat_result) -> bool:
        if not entry.stat or seen.st_mtime_ns >= self._index_time_ns:
            return False  # written in the same moment as the index: git calls it racy and reads it, too
        low = (1 << 32) - 1
        ctime_s, ctime_ns, mtime_s, mtime_ns, _, inode, _, _, _, size = entry.stat
        return (
            (mtime_s, mtime_ns) == (seen.st_mtime_ns // 10**9 & low, seen.st_mtime_ns % 10**9)
            and (ctime_s, ctime_ns) == (seen.st_ctime_ns // 10**9 & low, seen.st_ctime_ns % 10**9)
            and inode == seen.st_ino & low
            and size == seen.st_size & low
            and not self._differs_in_mode(entry, seen)
        )

    def _holds(self, path: bytes, seen: os.stat_result, oid: bytes) -> bool:
        """Whether a path's bytes are those of a blob, as they are or as git would take them in."""
        try:
            if stat.S_ISLNK(seen.st_mode):
                return self._id(os.readlink(self._root + b"/" + path)) == oid
            return self._file_holds(path, seen.st_size, oid)
        except OSError:
            return False

    def _file_holds(self, path: bytes, size: int, oid: bytes) -> bool:
        descriptor = open_itself(self._root + b"/" + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", closefd=True) as file:
            digest = hashlib.new(self._format, b"blob %d\0" % size, usedforsecurity=False)
            sha256 = hashlib.sha256()
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
                sha256.update(block)
            if digest.digest() == oid or self._id(_lfs_pointer(sha256.hexdigest(), size)) == oid:
                return True
            if size > CRLF_LIMIT:
                return False
            file.seek(0)
            data = file.read(CRLF_LIMIT + 1)
        return (
            b"\r\n" in data
            and self._id(data.replace(b"\r\n", b"\n")) == oid
            and self._conversions.turns_line_ends(path, is_text=b"\0" not in data)
        )

    def _id(self, data: bytes) -> bytes:
        return hashlib.new(self._format, b"blob %d\0%b" % (len(data), data), usedforsecurity=False).digest()


def _lfs_pointer(sha256: str, size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode("ascii")
