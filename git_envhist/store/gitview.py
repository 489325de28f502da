"""git's own view of a working tree at one moment: the code commit, what differs from it, what is staged.

Computed from the index and from bytes we hash ourselves (`judge`): `git status` and `git diff` run filters and rewrite
the index.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from git_envhist.errors import EnvhistError, in_words
from git_envhist.model import EnvPath, GitChange
from git_envhist.store.git import Git
from git_envhist.store.index import IndexEntry, parse_index
from git_envhist.store.judge import GITLINK, TREE, GitAttributes, IndexComparer
from git_envhist.system import open_file_only
from git_envhist.values import dataclass


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
class GitStatus:
    """What git sees; `changed` is None where it could not be told."""

    head: str | None = None
    branch: str | None = None
    subject: bytes = b""
    changed: tuple[GitChange, ...] | None = ()
    staged: tuple[StagedEntry, ...] = ()
    warnings: tuple[str, ...] = ()


def read_head(git: Git) -> tuple[str | None, str | None, bytes]:
    """The code commit that is checked out, its branch, and its subject; each as far as it can be told."""
    branch = git.ask("symbolic-ref", "--quiet", "HEAD")
    shown = git.ask("log", "-1", "--no-notes", "--format=%H%x00%s", "HEAD", "--")
    head, _, subject = shown.out.rstrip(b"\n").partition(b"\0")
    if shown.status != 0 or not head:
        verified = git.ask("rev-parse", "--verify", "--quiet", "HEAD")
        head, subject = verified.out.strip() if verified.status == 0 else b"", b""
    name = os.fsdecode(branch.out.strip()) if branch.status == 0 else None
    return head.decode("ascii", "replace") or None, name, subject


def read_view(
    git: Git, root: str, git_dir: str, object_format: str, closed: Iterable[bytes] = ()
) -> GitStatus:
    """The whole view; whatever of it cannot be had costs a warning. Nothing is said of what stands at `closed`."""
    head, branch, subject = None, None, b""
    try:
        head, branch, subject = read_head(git)
        entries = _read_index(git, git_dir, 20 if object_format == "sha1" else 32)
        staged = _staged_rows(git, head)
        judge = IndexComparer(root, object_format, _index_time(git_dir), GitAttributes(git), closed)
        changed = _changed(judge, entries, staged, _unmerged_in_head(git, head, entries))
        kept = tuple(_keep(judge, entries, staged))
    except (EnvhistError, OSError) as error:
        return GitStatus(
            head, branch, subject, None, (), (f"git's view could not be read: {in_words(error)}",)
        )
    return GitStatus(head, branch, subject, changed, kept)


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
    """What HEAD has of the paths in conflict: the index has only the sides."""
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
    judge: IndexComparer,
    entries: Iterable[IndexEntry],
    staged: dict[bytes, _StagedRow],
    unmerged: dict[bytes, IndexEntry],
) -> tuple[GitChange, ...]:
    """What `git diff --name-status HEAD` would list, without running it."""
    letters: dict[bytes, str] = {}
    for entry in entries:
        row = staged.get(entry.path)
        if entry.stage:
            letter = _conflict(judge, entry, unmerged.get(entry.path))
        elif row is None:
            letter = judge.letter(entry)
        else:
            letter = _against_head(judge, entry, row, judge.letter(entry))
        if letter != "=":
            letters[entry.path] = letter
    for path, row in staged.items():
        if row.status == "D":
            letters[path] = "D"
    return tuple(GitChange(letters[path], EnvPath(path)) for path in sorted(letters))


def _conflict(judge: IndexComparer, entry: IndexEntry, in_head: IndexEntry | None) -> str:
    if in_head is not None:
        return judge.letter(in_head)
    return "=" if judge.letter(entry) == "D" else "A"


def _against_head(judge: IndexComparer, entry: IndexEntry, row: _StagedRow, letter: str) -> str:
    if row.status == "A":
        return "=" if letter == "D" else "A"
    if letter in ("D", "T"):
        return letter
    head_entry = IndexEntry(entry.path, row.old_mode, bytes.fromhex(row.old_oid), 0, ())
    return judge.letter(head_entry) if letter == "M" else row.status


def _keep(
    judge: IndexComparer, entries: Iterable[IndexEntry], staged: dict[bytes, _StagedRow]
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
