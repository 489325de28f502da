"""The words for what a path could not get back in the place that it was written to."""

from __future__ import annotations

from collections.abc import Iterable

from git_envhist.model import EnvPath, SkippedPath
from git_envhist.restore.held_times import UNHELD

TIMES = ("mtime", UNHELD)


def told_losses(losses: Iterable[tuple[bytes, str]]) -> tuple[SkippedPath, ...]:
    """Return the losses, given by path and what was lost; the times of all paths as one, with the first path."""
    told, timeless = [], []
    for path, what in losses:
        if what in TIMES:
            timeless.append(path)
        else:
            told.append(SkippedPath(EnvPath(path), f"its {what} cannot be had here"))
    if timeless:
        more = len(set(timeless)) - 1
        others = (
            ""
            if not more
            else " or that of another path"
            if more == 1
            else f" or those of {more:,} other paths"
        )
        told.append(SkippedPath(EnvPath(min(timeless)), f"the file system does not hold its time{others}"))
    return tuple(told)
