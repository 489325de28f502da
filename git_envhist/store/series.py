"""Which of many snapshots changed some paths: told of all of them together, as exactly as of each alone.

One git compares them all, one reads the shards that differ, and one is asked which paths are meant: on 2,000 snapshots
that is 4,000 processes less than comparing each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from git_envhist.errors import GitFailed
from git_envhist.model import Change
from git_envhist.store.compare import find_changes, is_directory
from git_envhist.store.git import Git
from git_envhist.store.objects import CatFile
from git_envhist.store.pathspecs import matching, with_positive
from git_envhist.store.rows import NOT_PIECES, NOT_RESERVED, RAW, DiffRow, DiffRows, parse_row, sort_rows
from git_envhist.store.treediff import compare_many

HINT = "'git envlog fsck' says what is missing"
PLAIN_DIFF = ("--no-textconv", "--no-ext-diff")
AT_ONCE = 64
"""So many snapshots are compared by one git: what it says of them is held in memory."""

Step = tuple[str, str | None]
"""A snapshot's commit and the one before it."""


class ChangedPaths(NamedTuple):
    """What one snapshot changed."""

    files: tuple[bytes, ...]
    directories: tuple[bytes, ...]


class ContentSearch(NamedTuple):
    """A text whose number of occurrences changes, or a regular expression that a changed line matches."""

    text: str | None = None
    pattern: str | None = None
    ignore_case: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """The options of git's diff commands."""
        searched = f"-S{self.text}" if self.text is not None else f"-G{self.pattern}"
        return (searched, "-i") if self.ignore_case else (searched,)


def commits_changing_paths(git: Git, steps: Sequence[Step], pathspecs: Sequence[bytes]) -> frozenset[str]:
    """The commits of those snapshots that changed a path which the pathspecs, spelled as from the top, mean."""
    with CatFile(git) as reader:
        changed = {commit: _paths(reader, commit, rows) for commit, rows in _compare_all(git, steps)}
    files = {path for paths in changed.values() for path in paths.files}
    directories = {path for paths in changed.values() for path in paths.directories}
    # Apart: what is a directory in one snapshot may be a file in another.
    meant = matching(git, files, (), pathspecs) if files else frozenset()
    meant_directories = matching(git, directories, directories, pathspecs) if directories else frozenset()
    return frozenset(
        commit
        for commit, paths in changed.items()
        if not (meant.isdisjoint(paths.files) and meant_directories.isdisjoint(paths.directories))
    )


def those_with_content(
    git: Git, steps: Sequence[Step], search: ContentSearch, pathspecs: Sequence[bytes]
) -> frozenset[str]:
    """Return the commits whose files differ from those before by a text or a pattern, as `git log -S` and `-G` do.

    git reads the stored bytes: nothing is found in a sealed file, nor in one that is stored in pieces.
    """
    limits: tuple[bytes, ...] = (
        (*with_positive(pathspecs), NOT_RESERVED) if pathspecs else (b":(top)", NOT_RESERVED)
    )
    words: tuple[str | bytes, ...] = (
        *RAW,
        *PLAIN_DIFF,
        "--stdin",
        "--root",
        "--no-renames",
        *search.options,
        "--",
        *limits,
    )
    found: set[str] = set()
    for start in range(0, len(steps), AT_ONCE):
        asked = steps[start : start + AT_ONCE]
        lines = "".join(f"{commit} {before or ''}".rstrip() + "\n" for commit, before in asked)
        trees = [name for step in asked for name in step if name]
        found.update(
            commit for commit, _ in _by_commit(compare_many(git, words, lines.encode("ascii"), trees))
        )
    return frozenset(found)


def changes_of(git: Git, reader: CatFile, steps: Sequence[Step]) -> Iterator[tuple[str, tuple[Change, ...]]]:
    """Each of those commits, and in what it differs from the one that it stands beside: in the order of the paths."""
    for commit, rows in _compare_all(git, steps):
        changes = find_changes(reader, rows, commit)
        yield commit, tuple(changes[path] for path in sorted(changes))


def _paths(reader: CatFile, commit: str, rows: DiffRows) -> ChangedPaths:
    changes = find_changes(reader, rows, commit)
    # The top has no name that a pattern could match.
    files = tuple([path for path, change in changes.items() if path and not is_directory(change)])
    directories = tuple([path for path, change in changes.items() if path and is_directory(change)])
    return ChangedPaths(files, directories)


def _compare_all(git: Git, steps: Sequence[Step]) -> Iterator[tuple[str, DiffRows]]:
    """Each snapshot, and in what it differs from the one before it."""
    for start in range(0, len(steps), AT_ONCE):
        asked = steps[start : start + AT_ONCE]
        lines = "".join(f"{commit} {before or ''}".rstrip() + "\n" for commit, before in asked)
        words = (*RAW, "--stdin", "--always", "--root", "-t", "--no-renames", "--", b":(top)", NOT_PIECES)
        trees = [name for step in asked for name in step if name]
        listed = compare_many(git, words, lines.encode("ascii"), trees)
        left = {commit for commit, _ in asked}
        for commit, rows in _by_commit(listed):
            left.discard(commit)
            yield commit, sort_rows(rows)
        if left:
            # A commit that it cannot read git passes over, and ends as if nothing had been.
            raise GitFailed(f"git does not say what '{min(left)}' changed", hint=HINT)


def _by_commit(listed: bytes) -> Iterator[tuple[str, Iterable[tuple[bytes, DiffRow]]]]:
    commit, rows = b"", []
    fields = iter(listed.split(b"\0"))
    for field in fields:
        if field.startswith(b":"):
            rows.append((next(fields), parse_row(field)))
            continue
        if commit:
            yield commit.decode("ascii"), rows
        commit, rows = field, []
