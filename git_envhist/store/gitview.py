"""git's own view of a working tree at one moment: the code commit, what differs from it, what is staged.

Computed from the index and from bytes we hash ourselves: `git status` and `git diff` run filters and rewrite the
index. Where a stat says that a file is as the index has it, git believes it, and so do we; else the bytes decide, and
also the two harmless ways in which bytes on disk differ from a blob: line ends that git turns, and LFS pointers.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from git_envhist.errors import EnvhistError
from git_envhist.model import EnvPath, GitChange
from git_envhist.store.git import Git
from git_envhist.store.index import IndexEntry, parse_index

GITLINK, SYMLINK, TREE = 0o160000, 0o120000, 0o040000
CRLF_LIMIT = 16 << 20


@dataclass(frozen=True, slots=True)
class StagedEntry:
    """One entry of the index that differs from HEAD; `mode` 0: staged for removal."""

    path: EnvPath
    mode: int
    stage: int
    oid: str
    needs_content: bool
    """Neither the working tree nor HEAD has these bytes."""


@dataclass(frozen=True, slots=True)
class GitView:
    """What git sees; `changed` is None where it could not be told."""

    head: str | None = None
    branch: str | None = None
    subject: bytes = b""
    changed: tuple[GitChange, ...] | None = ()
    staged: tuple[StagedEntry, ...] = ()
    warnings: tuple[str, ...] = ()


def read_head(git: Git) -> tuple[str | None, str | None, bytes]:
    """The code commit that is checked out, its branch, and its subject; each as far as it can be told."""
    branch = git.try_run("symbolic-ref", "--quiet", "HEAD")
    shown = git.try_run("log", "-1", "--no-notes", "--format=%H%x00%s", "HEAD", "--")
    head, _, subject = shown.out.rstrip(b"\n").partition(b"\0")
    if shown.status != 0 or not head:
        verified = git.try_run("rev-parse", "--verify", "--quiet", "HEAD")
        head, subject = verified.out.strip() if verified.status == 0 else b"", b""
    name = os.fsdecode(branch.out.strip()) if branch.status == 0 else None
    return head.decode("ascii", "replace") or None, name, subject


def read_view(git: Git, root: str, git_dir: str, object_format: str) -> GitView:
    """The whole view; whatever of it cannot be had costs a warning."""
    head, branch, subject = read_head(git)
    try:
        entries = _read_index(git, git_dir, 20 if object_format == "sha1" else 32)
        staged = _staged_rows(git, head)
        judge = _Judge(root, object_format, _index_time(git_dir))
        changed = _changed(judge, entries, staged)
        kept = tuple(_keep(judge, entries, staged))
    except (EnvhistError, OSError) as error:
        return GitView(head, branch, subject, None, (), (f"git's view could not be read: {error}",))
    return GitView(head, branch, subject, changed, kept)


def _read_index(git: Git, git_dir: str, hash_length: int) -> list[IndexEntry]:
    try:
        with open(os.path.join(git_dir, "index"), "rb") as file:
            index = parse_index(file.read(), hash_length)
    except FileNotFoundError:
        return []
    if not index.split:
        return list(index.entries)
    return [_listed(line) for line in git.run("ls-files", "--stage", "-z").split(b"\0") if line]


def _listed(line: bytes) -> IndexEntry:
    words, _, path = line.partition(b"\t")
    mode, oid, stage = words.split(b" ")
    return IndexEntry(path, int(mode, 8), bytes.fromhex(oid.decode("ascii")), int(stage), ())


@dataclass(frozen=True, slots=True)
class _StagedRow:
    old_mode: int
    new_mode: int
    old_oid: str
    new_oid: str
    status: str


def _staged_rows(git: Git, head: str | None) -> dict[bytes, _StagedRow]:
    against = head or git.run("hash-object", "-t", "tree", "--stdin").decode("ascii").strip()
    out = git.run("diff-index", "--cached", "--raw", "--no-abbrev", "--no-renames", "-z", against, "--")
    fields = out.split(b"\0")
    rows = {}
    for meta, path in zip(fields[0::2], fields[1::2], strict=False):
        old_mode, new_mode, old_oid, new_oid, status = meta[1:].decode("ascii").split(" ")
        rows[path] = _StagedRow(int(old_mode, 8), int(new_mode, 8), old_oid, new_oid, status[0])
    return rows


def _index_time(git_dir: str) -> int:
    try:
        return os.stat(os.path.join(git_dir, "index")).st_mtime_ns
    except OSError:
        return 0


class _Judge:
    """Tells how the working tree's file compares with an entry of the index."""

    def __init__(self, root: str, object_format: str, index_time_ns: int) -> None:
        self._root = os.fsencode(root)
        self._format = object_format
        self._index_time_ns = index_time_ns

    def letter(self, entry: IndexEntry) -> str:
        """`=`, `M`, `T` or `D`."""
        if entry.skip_worktree or entry.assume_valid or entry.mode == TREE:
            return "="
        path = self._root + b"/" + entry.path
        try:
            seen = os.lstat(path)
        except OSError:
            return "D"
        if entry.mode == GITLINK:
            return "=" if stat.S_ISDIR(seen.st_mode) else "T"
        if stat.S_IFMT(seen.st_mode) != stat.S_IFMT(entry.mode):
            return "D" if stat.S_ISDIR(seen.st_mode) else "T"
        if self._believes(entry, seen):
            return "="
        if entry.mode != SYMLINK and (entry.mode ^ seen.st_mode) & 0o100:
            return "M"
        return "=" if self.holds(path, seen, entry.oid) else "M"

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
            and not (entry.mode ^ seen.st_mode) & 0o100
        )

    def holds(self, path: bytes, seen: os.stat_result, oid: bytes) -> bool:
        """Whether a path's bytes are those of a blob, as they are or as git would take them in."""
        try:
            if stat.S_ISLNK(seen.st_mode):
                return self._id(os.readlink(path)) == oid
            return self._file_holds(path, seen.st_size, oid)
        except OSError:
            return False

    def _file_holds(self, path: bytes, size: int, oid: bytes) -> bool:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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
        return b"\r\n" in data and self._id(data.replace(b"\r\n", b"\n")) == oid

    def _id(self, data: bytes) -> bytes:
        return hashlib.new(self._format, b"blob %d\0%b" % (len(data), data), usedforsecurity=False).digest()


def _lfs_pointer(sha256: str, size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode("ascii")


def _changed(
    judge: _Judge, entries: Iterable[IndexEntry], staged: dict[bytes, _StagedRow]
) -> tuple[GitChange, ...]:
    """What `git diff --name-status HEAD` would list, without running it."""
    letters: dict[bytes, str] = {}
    for entry in entries:
        if entry.stage:
            letters[entry.path] = "U"
            continue
        letter = judge.letter(entry)
        row = staged.get(entry.path)
        if row is not None:
            letter = _against_head(judge, entry, row, letter)
        if letter != "=":
            letters[entry.path] = letter
    for path, row in staged.items():
        if row.status == "D":
            letters[path] = "D"
    return tuple(GitChange(letters[path], EnvPath(path)) for path in sorted(letters))


def _against_head(judge: _Judge, entry: IndexEntry, row: _StagedRow, letter: str) -> str:
    if row.status == "A":
        return "=" if letter == "D" else "A"
    if letter in ("D", "T"):
        return letter
    head_entry = IndexEntry(entry.path, row.old_mode, bytes.fromhex(row.old_oid), 0, ())
    return judge.letter(head_entry) if letter == "M" else row.status


def _keep(
    judge: _Judge, entries: Iterable[IndexEntry], staged: dict[bytes, _StagedRow]
) -> Iterable[StagedEntry]:
    """The staged tree, as far as it differs from HEAD."""
    for path, row in staged.items():
        if row.status == "D":
            yield StagedEntry(EnvPath(path), 0, 0, "0" * len(row.old_oid), False)
    for entry in entries:
        row_of = staged.get(entry.path)
        if row_of is None and not entry.stage:
            continue
        unlike = entry.mode not in (GITLINK, TREE) and not entry.intent_to_add and judge.letter(entry) != "="
        yield StagedEntry(EnvPath(entry.path), entry.mode, entry.stage, entry.oid.hex(), unlike)
