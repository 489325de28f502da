"""Choose the timelines of a push by names and patterns."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from git_envhist.errors import SnapshotNotFound
from git_envhist.history.hints import BEGIN, NOTHING_HERE


def chosen(names: Iterable[str], words: Sequence[str], own: str | None) -> list[str]:
    """The timelines that are meant: names, or patterns such as `laptop/*`; none: this working tree's own."""
    known = sorted(names)
    if not words:
        if own is None or own not in known:
            raise SnapshotNotFound("@", hint=BEGIN, message=NOTHING_HERE)
        return [own]
    found: dict[str, None] = {}
    for word in words:
        matched = fnmatch.filter(known, word)
        if not matched:
            raise SnapshotNotFound(
                word, hint="'git envlog --all' tells the timelines; first the remote is named"
            )
        found.update(dict.fromkeys(matched))
    return list(found)
