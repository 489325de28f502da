"""Messages about metadata that a restore could not set."""

from __future__ import annotations

from collections.abc import Iterable

from git_envhist.model import EnvPath, SkippedPath
from git_envhist.restore.storable_times import NOT_STORABLE

TIME_FIELDS = ("mtime", NOT_STORABLE)


def describe_losses(losses: Iterable[tuple[bytes, str]]) -> tuple[SkippedPath, ...]:
    """Return the losses as messages, given path and field; all lost mtimes are one message."""
    messages, untimed = [], []
    for path, what in losses:
        if what in TIME_FIELDS:
            untimed.append(path)
        else:
            messages.append(SkippedPath(EnvPath(path), f"its {what} could not be set"))
    if untimed:
        more = len(set(untimed)) - 1
        others = (
            ""
            if not more
            else " or that of another path"
            if more == 1
            else f" or those of {more:,} other paths"
        )
        messages.append(SkippedPath(EnvPath(min(untimed)), f"the file system cannot store its mtime{others}"))
    return tuple(messages)
