"""git's status of a working tree, computed without git: HEAD, changed files, staged entries.

`git status` and `git diff` run filters and rewrite the index. So the index is parsed here (versions 2 to 4; a split
index is read through git), and files are compared by stat, as git does, else by their bytes. Bytes also count as
equal if they differ only by line endings that git converts, or by an LFS pointer.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterable, Iterator

from git_envhist.errors import Damaged, EnvhistError, in_words
from git_envhist.git.process import Git
from git_envhist.lazy import dataclass, once
from git_envhist.model import EnvPath, GitChange
from git_envhist.platform import open_file_only, open_nofollow

HEAD = struct.Struct(">4sII")
STATS = struct.Struct(">10I")
ASSUME_VALID, EXTENDED, STAGE_SHIFT, NAME_MASK = 0x8000, 0x4000, 12, 0xFFF
SKIP_WORKTREE, INTENT_TO_ADD = 0x4000, 0x2000
MAX_ENTRIES = 50_000_000


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An entry of the index."""

    path: bytes
    mode: int
    oid: bytes
    stage: int
    stat: tuple[int, ...]
    """ctime s, ctime ns, mtime s, mtime ns, device, inode, mode, uid, gid, size: 32 bits each."""
    assume_valid: bool = False
    skip_worktree: bool = False
    intent_to_add: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """A parsed index file."""

    entries: tuple[IndexEntry, ...]
    split: bool
    """Most entries are in another file."""


def parse_index(data: bytes, hash_length: int) -> Index:
    """Parse an index file; raise Damaged if it is invalid."""
    try:
        return _parse(data, hash_length)
    except (struct.error, IndexError, ValueError) as error:
        raise Damaged(
            "git's index is damaged", hint="'git status' shows more; 'git read-tree HEAD' rebuilds it"
        ) from error


def _parse(data: bytes, hash_length: int) -> Index:
    signature, version, count = HEAD.unpack_from(data, 0)
    if signature != b"DIRC" or version not in (2, 3, 4) or count > MAX_ENTRIES:
        raise ValueError("not an index")
    at, entries, previous = HEAD.size, [], b""
    for _ in range(count):
        entry, at = _entry(data, at, hash_length, version, previous)
        previous = entry.path
        entries.append(entry)
    names = set(_extensions(data, at, hash_length))
    return Index(tuple(entries), b"link" in names)


def _entry(data: bytes, at: int, hash_length: int, version: int, previous: bytes) -> tuple[IndexEntry, int]:
    start = at
    stats = STATS.unpack_from(data, at)
    at += STATS.size
    oid = data[at : at + hash_length]
    at += hash_length
    flags = int.from_bytes(data[at : at + 2], "big")
    at += 2
    extended = 0
    if flags & EXTENDED:
        extended = int.from_bytes(data[at : at + 2], "big")
        at += 2
    if version == 4:
        dropped, at = _varint(data, at)
        end = data.index(b"\0", at)
        path = previous[: len(previous) - dropped] + data[at:end]
        at = end + 1
    else:
        end = data.index(b"\0", at + min(flags & NAME_MASK, 0xFFE))
        path = data[at:end]
        at = start + (end - start + 8) // 8 * 8
    entry = IndexEntry(
        path,
        stats[6],
        oid,
        flags >> STAGE_SHIFT & 3,
        stats,
        bool(flags & ASSUME_VALID),
        bool(extended & SKIP_WORKTREE),
        bool(extended & INTENT_TO_ADD),
    )
    return entry, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    value = byte & 127
    while byte & 128:
        byte = data[at]
        at += 1
        value = (value + 1 << 7) + (byte & 127)
    return value, at


def _extensions(data: bytes, at: int, hash_length: int) -> Iterator[bytes]:
    end = len(data) - hash_length
    while at + 8 <= end:
        yield data[at : at + 4]
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")


GITLINK, SYMLINK, TREE = 0o160000, 0o120000, 0o040000
CRLF_LIMIT = 16 << 20


class GitAttributes:
    """git's configuration and attributes for contents and modes, read on demand."""

    def __init__(self, git: Git) -> None:
        self._git = git

    @once
    def tracks_modes(self) -> bool:
        """True if git tracks the executable bit."""
        return self._flag("core.filemode", "true") != "false"

    def converts_line_endings(self, path: bytes, *, is_text: bool) -> bool:
        """Return whether git converts a file's CRLF to LF when it is added."""
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
        """Return the commit checked out in a submodule; None if there is none."""
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
    """Compare files of the working tree with entries of the index."""

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
        """Mount points that must not be accessed, because that may hang."""

    def letter(self, entry: IndexEntry) -> str:
        """Return `=`, `M`, `T` or `D` for an entry."""
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
        if self._is_clean_by_stat(entry, seen):
            return "="
        if entry.mode != SYMLINK and self._differs_in_mode(entry, seen):
            return "M"
        return "=" if self._has_bytes(entry.path, seen, entry.oid) else "M"

    def _is_real(self, directory: bytes) -> bool:
        """Return whether no component of a directory is a link: git tracks nothing behind a link."""
        known = self._real.get(directory)
        if known is None:
            known = self._is_real(directory.rpartition(b"/")[0]) and stat.S_ISDIR(
                os.lstat(self._root + b"/" + directory).st_mode
            )
            self._real[directory] = known
        return known

    def _differs_in_mode(self, entry: IndexEntry, seen: os.stat_result) -> bool:
        return bool((entry.mode ^ seen.st_mode) & 0o100) and self._conversions.tracks_modes

    def _submodule_letter(self, entry: IndexEntry, path: bytes, seen: os.stat_result) -> str:
        # Changes inside it are in the snapshot as files, so only its commit is compared.
        if not stat.S_ISDIR(seen.st_mode):
            return "T"
        head = self._conversions.head_of(path)
        return "=" if head is None or head == entry.oid else "M"

    def _is_clean_by_stat(self, entry: IndexEntry, seen: os.stat_result) -> bool:
        if not entry.stat or seen.st_mtime_ns >= self._index_time_ns:
            return False  # as new as the index ("racily clean"): git reads its bytes as well
        low = (1 << 32) - 1
        ctime_s, ctime_ns, mtime_s, mtime_ns, _, inode, _, _, _, size = entry.stat
        return (
            (mtime_s, mtime_ns) == (seen.st_mtime_ns // 10**9 & low, seen.st_mtime_ns % 10**9)
            and (ctime_s, ctime_ns) == (seen.st_ctime_ns // 10**9 & low, seen.st_ctime_ns % 10**9)
            and inode == seen.st_ino & low
            and size == seen.st_size & low
            and not self._differs_in_mode(entry, seen)
        )

    def _has_bytes(self, path: bytes, seen: os.stat_result, oid: bytes) -> bool:
        """Return whether a path has the bytes of a blob, as they are or as git would add them."""
        try:
            if stat.S_ISLNK(seen.st_mode):
                return self._id(os.readlink(self._root + b"/" + path)) == oid
            return self._file_has_bytes(path, seen.st_size, oid)
        except OSError:
            return False

    def _file_has_bytes(self, path: bytes, size: int, oid: bytes) -> bool:
        descriptor = open_nofollow(self._root + b"/" + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
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
            and self._conversions.converts_line_endings(path, is_text=b"\0" not in data)
        )

    def _id(self, data: bytes) -> bytes:
        return hashlib.new(self._format, b"blob %d\0%b" % (len(data), data), usedforsecurity=False).digest()


def _lfs_pointer(sha256: str, size: int) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode("ascii")


# HEAD, changed files and staged entries of a working tree.


@dataclass(frozen=True, slots=True)
class StagedEntry:
    """An entry of the index that differs from HEAD; `mode` 0: staged for removal."""

    path: EnvPath
    mode: int
    stage: int
    oid: str
    needs_content: bool
    """Its bytes are neither in the working tree nor in HEAD."""


@dataclass(frozen=True, slots=True)
class GitStatus:
    """git's status of a working tree; `changed` is None if it could not be determined."""

    head: str | None = None
    branch: str | None = None
    subject: bytes = b""
    changed: tuple[GitChange, ...] | None = ()
    staged: tuple[StagedEntry, ...] = ()
    warnings: tuple[str, ...] = ()


def read_head(git: Git) -> tuple[str | None, str | None, bytes]:
    """Return the checked-out commit, its branch and its subject, as far as they can be read."""
    branch = git.ask("symbolic-ref", "--quiet", "HEAD")
    shown = git.ask("log", "-1", "--no-notes", "--format=%H%x00%s", "HEAD", "--")
    head, _, subject = shown.out.rstrip(b"\n").partition(b"\0")
    if shown.status != 0 or not head:
        verified = git.ask("rev-parse", "--verify", "--quiet", "HEAD")
        head, subject = verified.out.strip() if verified.status == 0 else b"", b""
    name = os.fsdecode(branch.out.strip()) if branch.status == 0 else None
    return head.decode("ascii", "replace") or None, name, subject


def read_git_status(
    git: Git, root: str, git_dir: str, object_format: str, closed: Iterable[bytes] = ()
) -> GitStatus:
    """Return the status; a part that cannot be read gives a warning. Paths in `closed` are not accessed."""
    head, branch, subject = None, None, b""
    try:
        head, branch, subject = read_head(git)
        entries = _read_index(git, git_dir, 20 if object_format == "sha1" else 32)
        staged = _staged_rows(git, head)
        comparer = IndexComparer(root, object_format, _index_time(git_dir), GitAttributes(git), closed)
        changed = _changed(comparer, entries, staged, _unmerged_in_head(git, head, entries))
        index_changes = tuple(_index_changes(comparer, entries, staged))
    except (EnvhistError, OSError) as error:
        return GitStatus(
            head, branch, subject, None, (), (f"git's status could not be read: {in_words(error)}",)
        )
    return GitStatus(head, branch, subject, changed, index_changes)


def _read_index(git: Git, git_dir: str, hash_length: int) -> list[IndexEntry]:
    try:
        with open(os.path.join(git_dir, "index"), "rb", opener=open_file_only) as file:
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


def _unmerged_in_head(git: Git, head: str | None, entries: Iterable[IndexEntry]) -> dict[bytes, IndexEntry]:
    """Return HEAD's entries of paths in conflict; the index has only the sides."""
    paths = sorted({entry.path for entry in entries if entry.stage})
    if not paths or head is None:
        return {}
    lines = git.run("ls-tree", "-z", "--full-tree", head, "--", *paths).split(b"\0")
    found = {}
    for line in filter(None, lines):
        words, _, path = line.partition(b"\t")
        mode, _, oid = words.split(b" ")
        found[path] = IndexEntry(path, int(mode, 8), bytes.fromhex(oid.decode("ascii")), 0, ())
    return found


def _index_time(git_dir: str) -> int:
    try:
        return os.stat(os.path.join(git_dir, "index")).st_mtime_ns
    except OSError:
        return 0


def _changed(
    comparer: IndexComparer,
    entries: Iterable[IndexEntry],
    staged: dict[bytes, _StagedRow],
    unmerged: dict[bytes, IndexEntry],
) -> tuple[GitChange, ...]:
    """Return what `git diff --name-status HEAD` would list."""
    letters: dict[bytes, str] = {}
    for entry in entries:
        row = staged.get(entry.path)
        if entry.stage:
            letter = _conflict(comparer, entry, unmerged.get(entry.path))
        elif row is None:
            letter = comparer.letter(entry)
        else:
            letter = _against_head(comparer, entry, row, comparer.letter(entry))
        if letter != "=":
            letters[entry.path] = letter
    for path, row in staged.items():
        if row.status == "D":
            letters[path] = "D"
    return tuple(GitChange(letters[path], EnvPath(path)) for path in sorted(letters))


def _conflict(comparer: IndexComparer, entry: IndexEntry, in_head: IndexEntry | None) -> str:
    if in_head is not None:
        return comparer.letter(in_head)
    return "=" if comparer.letter(entry) == "D" else "A"


def _against_head(comparer: IndexComparer, entry: IndexEntry, row: _StagedRow, letter: str) -> str:
    if row.status == "A":
        return "=" if letter == "D" else "A"
    if letter in ("D", "T"):
        return letter
    head_entry = IndexEntry(entry.path, row.old_mode, bytes.fromhex(row.old_oid), 0, ())
    return comparer.letter(head_entry) if letter == "M" else row.status


def _index_changes(
    comparer: IndexComparer, entries: Iterable[IndexEntry], staged: dict[bytes, _StagedRow]
) -> Iterable[StagedEntry]:
    """Yield the entries of the index that differ from HEAD."""
    for path, row in staged.items():
        if row.status == "D":
            yield StagedEntry(EnvPath(path), 0, 0, "0" * len(row.old_oid), False)
    for entry in entries:
        row_of = staged.get(entry.path)
        if row_of is None and not entry.stage:
            continue
        needs_content = (
            entry.mode not in (GITLINK, TREE) and not entry.intent_to_add and comparer.letter(entry) != "="
        )
        yield StagedEntry(EnvPath(entry.path), entry.mode, entry.stage, entry.oid.hex(), needs_content)
