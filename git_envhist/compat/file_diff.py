"""Compare two snapshots of a library history file by file, with line counts and contents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing

from git_envhist.api import EnvHistory
from git_envhist.diff.compare_snapshots import compare
from git_envhist.diff.config_files import is_binary, unified_hunks
from git_envhist.diff.patches import read_line_counts, read_patches
from git_envhist.diff.path_classes import content_differs
from git_envhist.diff.summary import is_stored
from git_envhist.errors import EnvhistError
from git_envhist.git.cat_file import empty_tree
from git_envhist.git.process import Git
from git_envhist.lazy import dataclass
from git_envhist.model import Change, ChangeKind, EntryKind, EnvPath, Snapshot, StoredAs
from git_envhist.snapshots.reader import FileReader

ADDED, MODIFIED, DELETED = "added", "modified", "deleted"
STATUS = {ChangeKind.ADDED: ADDED, ChangeKind.REMOVED: DELETED}
WITH_LINES = (EntryKind.FILE, EntryKind.LINK)
MAX_TEXT, MAX_TEXTS = 1 << 20, 200
"""Larger contents, and contents of more files, are left out of the result; their lines are still counted."""
Read = Callable[[Change, bool], bytes | None]


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that differs."""

    path: str
    status: str
    additions: int = 0
    deletions: int = 0
    before: str | None = None
    after: str | None = None


def changed_files(git: Git, before: str, after: str) -> tuple[FileChange, ...]:
    """Return the files that differ between two trees, without contents."""
    changes = _files(git, before, after)
    counts = read_line_counts(git, before, after, list(filter(_is_plain, changes)), renames=None)
    return tuple(_file_change(change, counts.get(change.path) or (0, 0)) for change in changes)


def compare_contents(
    history: EnvHistory, before: Snapshot, after: Snapshot | str
) -> tuple[tuple[FileChange, ...], str]:
    """Return the changed files with text contents, and all changes as one patch; `now` is the live workspace."""
    with history.sides(before, after) as (git, old, new):
        earlier, later = old or empty_tree(git, new), new
        changes = _files(git, earlier, later)
        counts = read_line_counts(git, earlier, later, list(filter(_is_plain, changes)), renames=None)
        packs = history.repository.pack_dir
        with (
            closing(FileReader(git, earlier, history.open_sealed, packs)) as left,
            closing(FileReader(git, later, history.open_sealed, packs)) as right,
        ):
            read = _reader(left, right, few=len(changes) <= MAX_TEXTS)
            changed = tuple(_with_contents(change, counts.get(change.path), read) for change in changes)
            return changed, "".join(_patch(git, earlier, later, changes, read))


def _files(git: Git, before: str, after: str) -> list[Change]:
    return [change for change in compare(git, before, after) if _is_file(change)]


def _is_file(change: Change) -> bool:
    return any(side is not None and side.kind in WITH_LINES for side in (change.before, change.after))


def _is_plain(change: Change) -> bool:
    other = is_stored(change, StoredAs.SEALED) or is_stored(change, StoredAs.PIECES)
    return content_differs(change) and not other


def _file_change(change: Change, lines: tuple[int, int]) -> FileChange:
    status = STATUS.get(change.kind, MODIFIED)
    return FileChange(os.fsdecode(change.path), status, *lines)


def _reader(left: FileReader, right: FileReader, *, few: bool) -> Read:
    def read(change: Change, later: bool) -> bytes | None:
        side = change.after if later else change.before
        if side is None or side.kind not in WITH_LINES or not few:
            return None
        return _read(right if later else left, side.path)

    return read


def _read(reader: FileReader, path: EnvPath) -> bytes | None:
    content = bytearray()
    try:
        for block in reader.read(path):
            content += block
            if len(content) > MAX_TEXT:
                return None
    except EnvhistError:
        # A sealed file without its key, or one stored as a fingerprint, has no readable content.
        return None
    return bytes(content)


def _with_contents(change: Change, lines: tuple[int, int] | None, read: Read) -> FileChange:
    old, new = read(change, False), read(change, True)
    counted = lines or (_count(old or b"", new or b"") if not _is_plain(change) else (0, 0))
    status = STATUS.get(change.kind, MODIFIED)
    return FileChange(os.fsdecode(change.path), status, *counted, _text(old), _text(new))


def _text(data: bytes | None) -> str | None:
    if data is None or is_binary(data):
        return None
    return data.decode("utf-8", "replace")


def _count(old: bytes, new: bytes) -> tuple[int, int]:
    if is_binary(old) or is_binary(new):
        return 0, 0
    lines = [line for line in unified_hunks(old, new).split(b"\n") if line]
    added = sum(line.startswith(b"+") for line in lines)
    return added, sum(line.startswith(b"-") for line in lines)


def _patch(git: Git, before: str, after: str, changes: list[Change], read: Read) -> Iterator[str]:
    plain = {change.path: change for change in changes if _is_plain(change)}
    for patch in read_patches(git, before, after, tuple(plain.values()), renames=None, quote_all=False):
        if patch.path in plain:
            yield patch.text.decode("utf-8", "replace")
    for change in changes:
        if change.path not in plain and content_differs(change):
            yield from _patch_text(change, read)


def _patch_text(change: Change, read: Read) -> Iterator[str]:
    name = os.fsdecode(change.path)
    yield f"diff --git a/{name} b/{name}\n"
    if is_stored(change, StoredAs.SEALED):
        yield f"the sealed content of '{name}' differs\n"
        return
    old, new = read(change, False) or b"", read(change, True) or b""
    if is_binary(old) or is_binary(new) or not (old or new):
        yield f"Binary files a/{name} and b/{name} differ\n"
        return
    yield f"--- a/{name}\n+++ b/{name}\n" + unified_hunks(old, new).decode("utf-8", "replace")
