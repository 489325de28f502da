"""What git makes of changed contents: patches, counts of lines, sizes. Nothing of the user's runs for it.

No attribute, no external program and no text conversion has a say: git is given a place without attributes as its
working tree. Each piece of a patch belongs to the row at its place in git's raw diff, asked for by the same words;
so no header is ever interpreted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import NamedTuple

from git_envhist.diff.compare import environment_path, stored_side
from git_envhist.diff.tree_diff import NOT_RESERVED, RAW
from git_envhist.errors import GitFailed
from git_envhist.git.process import Git, GitStream
from git_envhist.model import Change, ChangeSide, EnvPath, ObjectId

PATCH = (
    "diff-tree", "-r", "-p", "--no-color", "--no-ext-diff", "--no-textconv",
    "--src-prefix=a/", "--dst-prefix=b/",
)  # fmt: skip
COUNTS = ("diff-tree", "-r", "-z", "--numstat", "--no-ext-diff", "--no-textconv")
PIECE = b"diff --git "
# Few paths are named one by one; git compares each entry with each pattern, so many are not.
MAX_NAMED = 200
ROOTS = b":(top).envhist/roots"

LineCounts = dict[EnvPath, tuple[int, int] | None]
"""Path -> lines added and deleted; None where the content is not text."""


class GitPatch(NamedTuple):
    """What git says of one path; its header holds stored names, which `renamed` tells to be others than the true."""

    path: EnvPath
    text: bytes
    renamed: bool


class Names(NamedTuple):
    """The stored paths of one row of a raw diff."""

    before: bytes
    after: bytes
    pieces: int


def read_patches(
    git: Git,
    before: str,
    after: str,
    changes: Sequence[Change],
    *,
    renames: int | None,
    quote_all: bool,
    whole_ids: bool = False,
) -> Iterator[GitPatch]:
    """git's patches for the contents of these changes, in git's order; others may come along."""
    inert = without_attributes(git)
    quoting = f"core.quotePath={'true' if quote_all else 'false'}"
    for paths in _selections(changes):
        words: list[str | bytes] = [*_similarity(renames), before, after, "--", *paths]
        ids = ["--full-index"] if whole_ids else []
        rows = _read_names(inert.run(*RAW, *words))
        child = GitStream(inert, "-c", quoting, "-c", "core.attributesFile=/dev/null", *PATCH, *ids, *words)
        try:
            yield from _join(rows, _split(child))
        finally:
            done = child.close()
        if done.status != 0:
            raise GitFailed(done.complaint)


def read_line_counts(
    git: Git, before: str, after: str, changes: Sequence[Change], *, renames: int | None
) -> LineCounts:
    """How many lines were added and deleted in each of the changed files, by git's count."""
    inert = without_attributes(git)
    counts: LineCounts = {}
    for paths in _selections(changes):
        words: list[str | bytes] = [*COUNTS, *_similarity(renames), before, after, "--", *paths]
        for path, lines in _parse_counts(inert.run("-c", "core.attributesFile=/dev/null", *words)):
            known = counts.get(path)
            # A link and a file of one name stand under two stored names.
            counts[path] = (known[0] + lines[0], known[1] + lines[1]) if known and lines else lines
    return counts


def read_sizes(git: Git, oids: Iterable[ObjectId]) -> dict[ObjectId, int]:
    """The size of each blob."""
    names = b"".join(oid.hex().encode("ascii") + b"\n" for oid in oids)
    if not names:
        return {}
    sizes = {}
    for line in git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=names).splitlines():
        oid, _, size = line.partition(b" ")
        if size.isdigit():
            sizes[ObjectId(bytes.fromhex(oid.decode("ascii")))] = int(size)
    return sizes


def without_attributes(git: Git) -> Git:
    """The same repository as seen from a working tree that holds nothing."""
    inert = copy(git)
    nowhere = os.fsencode(git.git_dir)
    inert.environment = {
        **git.environment,
        b"GIT_ATTR_NOSYSTEM": b"1",
        b"GIT_WORK_TREE": nowhere,
        # Attributes that no working tree holds are looked for in the index.
        **git.no_index,
    }
    return inert


def _similarity(renames: int | None) -> list[str]:
    return ["--no-renames"] if renames is None else [f"-M{renames}%"]


def _selections(changes: Sequence[Change]) -> Iterator[list[bytes]]:
    sides = [side for change in changes for side in (change.before, change.after) if side is not None]
    if len(sides) <= MAX_NAMED:
        if sides:
            yield [b":(top,literal)" + stored_side(side) for side in sides]
        return
    yield [b":(top)", NOT_RESERVED]
    if any(_is_in_root(side) for side in sides):
        yield [ROOTS]


def _is_in_root(side: ChangeSide) -> bool:
    return side.path.find(b"://") >= 0


def _read_names(raw: bytes) -> list[Names]:
    parts = iter(raw.split(b"\0")[:-1])
    found = []
    for text in parts:
        status = text.rpartition(b" ")[2]
        before = next(parts)
        after = next(parts) if status.startswith((b"R", b"C")) else before
        # Of another type: the old one is deleted, the new one added.
        found.append(Names(before, after, 2 if status == b"T" else 1))
    return found


def _split(child: GitStream) -> Iterator[bytes]:
    # In a patch only a header's first line begins so: lines of content have a sign before them, and a line break in
    # a name is quoted.
    held = bytearray(b"\n")
    searched = 0
    while chunk := child.read():
        held += chunk
        while (end := held.find(b"\n" + PIECE, searched)) >= 0:
            if end:
                yield bytes(held[1 : end + 1])
            del held[:end]
            searched = 1
        searched = max(searched, len(held) - len(PIECE))
    if len(held) > 1:
        yield bytes(held[1:])


def _join(rows: Iterable[Names], pieces: Iterator[bytes]) -> Iterator[GitPatch]:
    for row in rows:
        path = environment_path(row.after)
        text = b"".join(next(pieces, b"") for _ in range(row.pieces))
        yield GitPatch(path, text, row.after != path or row.before != environment_path(row.before))


def _parse_counts(listed: bytes) -> Iterator[tuple[EnvPath, tuple[int, int] | None]]:
    parts = iter(listed.split(b"\0")[:-1])
    for text in parts:
        added, deleted, path = text.split(b"\t", 2)
        if not path:
            next(parts)
            path = next(parts)
        yield environment_path(path), None if added == b"-" else (int(added), int(deleted))
