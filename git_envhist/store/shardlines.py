"""Shards of which a list of paths needs no more than the lines that differ (pure).

After most changes a shard differs in the times of its directory and of files whose bytes differ as well, which the
trees say already. What tells anything else is compared as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import compress
from operator import ne
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.store.metadata import by_directory, quoted_names, shard_directory, where_they_differ

LONG = 1 << 15
"""From here on it pays to look first for the part of a shard that differs."""

Ids = tuple[bytes, bytes]
Lines = list[tuple[bytes, bytes]]


class Differing(NamedTuple):
    """A shard, by its ids before and after: the directory it speaks of, and the lines that differ, side by side."""

    ids: Ids
    directory: bytes
    lines: Lines


def differing_lines(old: bytes, new: bytes) -> tuple[bytes, Lines] | None:
    """(directory, the lines that differ) of two shards of one directory; None where lines came or went, or others."""
    try:
        directory = shard_directory(new)
        if shard_directory(old) != directory:
            return None
    except Damaged:
        return None
    if min(len(old), len(new)) >= LONG:
        start, old_end, new_end = where_they_differ(old, new)
        old, new = old[start:old_end], new[start:new_end]
    before, after = old.split(b"\n"), new.split(b"\n")
    if len(before) != len(after):
        return None
    differ = list(map(ne, before, after))
    return directory, list(zip(compress(before, differ), compress(after, differ), strict=True))


def settled_shards(
    differing: Iterable[Differing], certain: Iterable[bytes], others: Iterable[bytes]
) -> set[Ids]:
    """The shards, by their ids, that tell nothing but times beside what is `certain`: that these stored paths were
    modified. Shards of directories that `others` stand in tell more."""
    passed_over, wanted = by_directory(certain), by_directory(others)
    return {
        ids
        for ids, directory, lines in differing
        if directory not in wanted and not _tell_more(lines, quoted_names(passed_over.get(directory, ())))
    }


def _tell_more(lines: Lines, passed_over: Collection[bytes]) -> bool:
    """Whether lines, those of some names aside, differ in anything but a time."""
    for before, after in lines:
        old, new = before.split(b" "), after.split(b" ")
        if old[0] != new[0] or (old[0] not in passed_over and old[:3] + old[4:] != new[:3] + new[4:]):
            return True
    return False
