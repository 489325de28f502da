"""Compare the snapshots of a series, each with the one before."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from git_envhist.diff.compare_snapshots import find_changes, is_directory
from git_envhist.diff.tree_diff import (
    NOT_PIECES,
    NOT_RESERVED,
    RAW,
    DiffRow,
    DiffRows,
    compare_many,
    parse_row,
    sort_rows,
)
from git_envhist.errors import FSCK_HINT, GitFailed
from git_envhist.git.cat_file import CatFile
from git_envhist.git.pathspecs import at_top, match_paths, with_positive
from git_envhist.git.process import Git
from git_envhist.model import Change

# A series of snapshots.

PLAIN_DIFF = ("--no-textconv", "--no-ext-diff")
AT_ONCE = 64
"""The number of snapshots compared by one git process, whose output is read into memory."""

Step = tuple[str, str | None]
"""A snapshot's commit and the previous one."""


class ChangedPaths(NamedTuple):
    """The paths that one snapshot changed."""

    files: tuple[bytes, ...]
    directories: tuple[bytes, ...]


class ContentSearch(NamedTuple):
    """A text whose number of occurrences changes, or a regular expression that a changed line matches."""

    text: str | None = None
    pattern: str | None = None
    ignore_case: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """The options for git's diff commands."""
        searched = f"-S{self.text}" if self.text is not None else f"-G{self.pattern}"
        return (searched, "-i") if self.ignore_case else (searched,)


def commits_changing_paths(git: Git, steps: Sequence[Step], pathspecs: Sequence[bytes]) -> frozenset[str]:
    """Return the commits of snapshots that changed a path matching the pathspecs, given as from the top."""
    with CatFile(git) as reader:
        changed = {commit: _paths(reader, commit, rows) for commit, rows in _compare_all(git, steps)}
    files = {path for paths in changed.values() for path in paths.files}
    directories = {path for paths in changed.values() for path in paths.directories}
    # Matched separately, because a directory in one snapshot may be a file in another.
    meant = match_paths(git, files, (), pathspecs) if files else frozenset()
    meant_directories = match_paths(git, directories, directories, pathspecs) if directories else frozenset()
    return frozenset(
        commit
        for commit, paths in changed.items()
        if not (meant.isdisjoint(paths.files) and meant_directories.isdisjoint(paths.directories))
    )


def commits_changing_content(
    git: Git, steps: Sequence[Step], search: ContentSearch, pathspecs: Sequence[bytes]
) -> dict[str, frozenset[bytes]]:
    """Return the stored paths that differ by a text or a pattern, as for `git log -S` and `-G`, of each such commit.

    git searches the stored bytes, so its answer about sealed files and about files stored in chunks is not about their
    content (see `history.search`).
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
    return _paths_listed(git, words, steps)


def _paths_listed(
    git: Git, words: Sequence[str | bytes], steps: Sequence[Step]
) -> dict[str, frozenset[bytes]]:
    """Return the stored paths that git lists for each commit of the steps that has a difference."""
    found: dict[str, frozenset[bytes]] = {}
    for start in range(0, len(steps), AT_ONCE):
        asked = steps[start : start + AT_ONCE]
        lines = "".join(f"{commit} {before or ''}".rstrip() + "\n" for commit, before in asked)
        trees = [name for step in asked for name in step if name]
        for commit, rows in _by_commit(compare_many(git, words, lines.encode("ascii"), trees)):
            found[commit] = frozenset(stored for stored, _ in rows)
    return found


def steps_with_chunks(reader: CatFile, steps: Sequence[Step]) -> list[Step]:
    """Return the steps with files stored in chunks on a side; a copy of such a file changes no chunks."""
    names = {name for step in steps for name in step if name}
    found = {name for name in names if reader.read(f"{name}:.envhist/pieces") is not None}
    return [step for step in steps if not found.isdisjoint(step)]


def matches_pattern(git: Git, lines: bytes, search: ContentSearch) -> bool:
    """Return whether a line matches the pattern of a search; git reads the lines from a pipe."""
    pattern = search.pattern or ""
    if search.ignore_case:
        # Only `git log` has an option for it.
        lines, pattern = lines.lower(), _lower_pattern(pattern)
    words = (
        "diff",
        "--no-index",
        "--name-only",
        "--text",
        *PLAIN_DIFF,
        f"-G{pattern}",
        "--",
        os.devnull,
        "-",
    )
    done = git.try_run(*at_top(git), *words, stdin=lines)
    if done.status not in (0, 1):
        raise GitFailed(done.complaint)
    return bool(done.out)


def _lower_pattern(pattern: str) -> str:
    """Return a pattern that matches lower text where the pattern matches it in any case."""
    lower = re.sub(r"\\.|[A-Z]", lambda found: found[0].lower() if len(found[0]) == 1 else found[0], pattern)
    return lower.replace("[:upper:]", "[:alpha:]")


def changes_of(git: Git, reader: CatFile, steps: Sequence[Step]) -> Iterator[tuple[str, tuple[Change, ...]]]:
    """Yield each commit with its changes, sorted by path."""
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
    """Yield each commit with its diff rows."""
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
            # git skips a commit that it cannot read, and succeeds.
            raise GitFailed(f"git did not report the changes of '{min(left)}'", hint=FSCK_HINT)


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
