"""Counts what a restore into a new directory left there, read from the disk and not from what the writers report."""

from __future__ import annotations

import os
from collections.abc import Sequence

from git_envhist.errors import EnvhistError
from git_envhist.model import EntryKind, SkippedPath
from git_envhist.restore.fresh import WrittenTree
from git_envhist.restore.way import OpenPath
from git_envhist.system import DIRECTORY


def refuse_if_missing(top: int, directory: bytes, fresh: WrittenTree, kept: Sequence[SkippedPath]) -> None:
    """Raise EnvhistError if a directory holds fewer entries than were written into it."""
    skipped = {item.path for item in kept}
    expected = {path: entry for path, entry in fresh.tops.items() if path not in skipped}
    missing = sum(
        _count_missing(top, path, entry.kind, fresh.counts[path]) for path, entry in expected.items()
    )
    if missing:
        raise EnvhistError(
            f"{missing} of the paths that were written into '{os.fsdecode(directory)}' are not there",
            hint="restore into another directory, and look at the kernel's log for errors of the disk",
        )


def _count_missing(top: int, name: bytes, kind: EntryKind, below: int) -> int:
    try:
        if kind is EntryKind.DIRECTORY:
            return max(0, below - count_entries(top, name))
        os.stat(name, dir_fd=top, follow_symlinks=False)
    except PermissionError:
        # An ordinary user wrote a directory that its owner cannot list.
        return 0
    except FileNotFoundError:
        return below + 1
    return 0


def count_entries(base: int, path: bytes) -> int:
    """Return how many entries are below a directory; PermissionError if one of its directories cannot be listed."""
    fresh_base = os.open(b".", DIRECTORY, dir_fd=base)
    way = OpenPath(fresh_base)
    count, to_visit = 0, [path]
    try:
        while to_visit:
            directory = to_visit.pop()
            with os.scandir(way.enter(directory)) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        to_visit.append(directory + b"/" + os.fsencode(entry.name))
    finally:
        way.close()
        os.close(fresh_base)
    return count
