"""Finds what changed since a moment by the times that the kernel keeps: all of a tree, one look at each entry.

The time of change (ctime) cannot be set by programs, as that of modification can, which pip, tar and the like set back.
A directory that was written to, while nothing in it changed, has lost something, or something was moved out of it: what
that was nobody can tell.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from git_envhist.model import EnvPath
from git_envhist.recently.births import birth_time_ns

GIT = b".git"


class RecentEntry(NamedTuple):
    """An entry that changed."""

    path: EnvPath
    mode: int
    at: int
    """When, in nanoseconds."""
    born: bool
    """It came to be since; False also where that cannot be known."""


class RecentScan(NamedTuple):
    """What there is to see in a tree."""

    found: list[RecentEntry]
    lost: list[EnvPath]
    """Directories that lost something."""
    unread: list[EnvPath]
    looked: int


def walk(root: bytes, since: int, left_out: Callable[[bytes], bool]) -> RecentScan:
    """Look at everything below a directory, other file systems and git's own files left out."""
    walked = RecentScan([], [], [], 0)
    looked = 0
    device = os.lstat(root).st_dev
    waiting: list[tuple[bytes, bool]] = [(b"", os.lstat(root).st_mtime_ns >= since)]
    while waiting:
        here, written = waiting.pop()
        below = _look(root, here, since, device, walked, left_out)
        if below is None:
            walked.unread.append(EnvPath(here))
            continue
        directories, count, touched = below
        looked += count
        waiting += directories
        if written and not touched and not _came_to_be(os.path.join(root, here), since, empty=not count):
            walked.lost.append(EnvPath(here))
    return walked._replace(looked=looked)


def _came_to_be(place: bytes, since: int, *, empty: bool) -> bool:
    """Whether a directory was made since; an empty one may have been, where nobody knows."""
    born = birth_time_ns(place)
    return empty if born is None else born >= since


def _look(
    root: bytes, here: bytes, since: int, device: int, walked: RecentScan, left_out: Callable[[bytes], bool]
) -> tuple[list[tuple[bytes, bool]], int, bool] | None:
    """The directories in one, how many entries it has, and whether any of them changed."""
    place = root + b"/" + here if here else root
    prefix = here + b"/" if here else b""
    directories: list[tuple[bytes, bool]] = []
    count, touched = 0, False
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                count += 1
                path = prefix + entry.name
                try:
                    told = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                changed = told.st_ctime_ns >= since
                touched = touched or changed
                if entry.name == GIT or not (changed or stat.S_ISDIR(told.st_mode)) or left_out(path):
                    continue
                if stat.S_ISDIR(told.st_mode):
                    if told.st_dev == device:
                        directories.append((path, told.st_mtime_ns >= since))
                else:
                    born = (birth_time_ns(place + b"/" + entry.name) or 0) >= since
                    walked.found.append(RecentEntry(EnvPath(path), told.st_mode, told.st_ctime_ns, born))
    except OSError:
        return None
    return directories, count, touched
