"""Shards of which a list of paths needs no more than the lines that differ (pure).

After most changes a shard differs in the times of its directory and of files whose bytes differ as well, which the
trees say already. What tells anything else is compared as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import compress
from operator import ne
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.store.metadata import shard_directory

LONG, STRETCH = 1 << 14, 1 << 11
"""From so many bytes on it pays to look first, by so many at a time, for the parts of a shard that differ."""

Ids = tuple[bytes, bytes]
Lines = list[tuple[bytes, bytes]]


class ShardDiff(NamedTuple):
    """A shard, by its ids before and after: the directory it speaks of, and the lines that differ, side by side."""

    ids: Ids
    directory: bytes
    lines: Lines


def differing_lines(old: bytes, new: bytes) -> tuple[bytes, Lines] | None:
    """(directory, the lines that differ) of two shards of one directory; None where lines came or went, or others."""
    head = new[: new.find(b"\n") + 1]
    try:
        if not old.startswith(head):
            return None
        directory = shard_directory(head)
    except Damaged:
        return None
    stretches = _stretches(old, new) if len(old) == len(new) >= LONG else [(old, new)]
    lines: Lines = []
    for one, other in stretches:
        before, after = one.split(b"\n"), other.split(b"\n")
        if len(before) != len(after):
            return None
        differ = list(map(ne, before, after))
        lines += zip(compress(before, differ), compress(after, differ), strict=True)
    return directory, lines


def _stretches(old: bytes, new: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The parts that differ of two texts of one length; where another time is all that differs, their lines align."""
    start = 0
    while start < len(old):
        end = old.find(b"\n", start + STRETCH) + 1 or len(old)
        one, other = old[start:end], new[start:end]
        if one != other:
            yield one, other
        start = end


def settled_shards(
    differing: Iterable[ShardDiff], certain: Collection[bytes], others: Iterable[bytes]
) -> set[Ids]:
    """The shards, by their ids, that tell nothing but times beside what is `certain`: that these stored paths were
    modified. Shards of directories that `others` stand in tell more."""
    wanted = {path.rpartition(b"/")[0] for path in others}
    return {
        ids
        for ids, directory, lines in differing
        if directory not in wanted and not _tell_more(lines, directory, certain)
    }


def _tell_more(lines: Lines, directory: bytes, certain: Collection[bytes]) -> bool:
    """Whether lines differ in anything but a time, those aside of what is certain."""
    prefix = directory + b"/" if directory else b""
    for before, after in lines:
        name, space, _ = before.partition(b" ")
        # Where there is no escape a name is spelled alike in a shard and in a tree.
        if prefix + name in certain and b"%" not in name and after.startswith(name + space):
            continue
        old, new = before.split(b" "), after.split(b" ")
        if old[:3] + old[4:] != new[:3] + new[4:]:
            return True
    return False
