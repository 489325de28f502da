"""git's patches, line counts and sizes for changed contents.

No attribute, external program or text conversion of the user applies: git gets a working tree without attributes.
Each part of a patch is assigned to a row of git's raw diff by its position, with the same options, so no header is
parsed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import NamedTuple

from git_envhist.diff.compare_snapshots import environment_path, stored_side
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
# Only few paths are passed to git by name: it compares each entry with each pattern, which is slow for many paths.
MAX_NAMED = 200
ROOTS = b":(top).envhist/roots"

LineCounts = dict[EnvPath, tuple[int, int] | None]
"""Numbers of added and deleted lines by path; None if the content is not text."""


class GitPatch(NamedTuple):
    """git's patch for one path. Its header contains stored names; `renamed` if they differ from the true ones."""

    path: EnvPath
    text: bytes
    renamed: bool


class StoredNames(NamedTuple):
    """The stored paths of a row of a raw diff."""

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
    """Yield git's patches for the contents of these changes, in git's order; other patches may be among them."""
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
    """Return git's numbers of added and deleted lines for each changed file."""
    inert = without_attributes(git)
    counts: LineCounts = {}
    for paths in _selections(changes):
        words: list[str | bytes] = [*COUNTS, *_similarity(renames), before, after, "--", *paths]
        for path, lines in _parse_counts(inert.run("-c", "core.attributesFile=/dev/null", *words)):
            known = counts.get(path)
            # A link and a file of one name have two stored names.
            counts[path] = (known[0] + lines[0], known[1] + lines[1]) if known and lines else lines
    return counts


def read_sizes(git: Git, oids: Iterable[ObjectId]) -> dict[ObjectId, int]:
    """Return the size of each blob."""
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
    """Return the same repository with an empty working tree."""
    inert = copy(git)
    nowhere = os.fsencode(git.git_dir)
    inert.environment = {
        **git.environment,
        b"GIT_ATTR_NOSYSTEM": b"1",
        b"GIT_WORK_TREE": nowhere,
        # Without a working tree, git would read attributes from the index.
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


def _read_names(raw: bytes) -> list[StoredNames]:
    parts = iter(raw.split(b"\0")[:-1])
    found = []
    for text in parts:
        status = text.rpartition(b" ")[2]
        before = next(parts)
        after = next(parts) if status.startswith((b"R", b"C")) else before
        # A change of type is displayed as a deletion and an addition.
        found.append(StoredNames(before, after, 2 if status == b"T" else 1))
    return found


def _split(child: GitStream) -> Iterator[bytes]:
    # Only the first line of a header begins like this: content lines begin with a sign, and line feeds in names are
    # quoted.
    buffer = bytearray(b"\n")
    searched = 0
    while chunk := child.read():
        buffer += chunk
        while (end := buffer.find(b"\n" + PIECE, searched)) >= 0:
            if end:
                yield bytes(buffer[1 : end + 1])
            del buffer[:end]
            searched = 1
        searched = max(searched, len(buffer) - len(PIECE))
    if len(buffer) > 1:
        yield bytes(buffer[1:])


def _join(rows: Iterable[StoredNames], pieces: Iterator[bytes]) -> Iterator[GitPatch]:
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
