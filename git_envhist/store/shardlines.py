"""Shards of which a list of paths needs no more than the lines that differ, as git's own comparison shows them (pure).

After most changes a shard differs in the times of its directory and of files whose bytes differ as well, which the
trees say already. Then nothing of it is read. A shard whose first line git does not show, as whose directory it speaks,
or that tells anything else, is read and compared as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from git_envhist.errors import Damaged
from git_envhist.store.manifest import HEADER, VERSION
from git_envhist.store.metadata import by_directory, quoted_names
from git_envhist.store.quoting import unquote_path

Ids = tuple[bytes | None, bytes | None]


def settled_shards(patch: bytes, certain: Iterable[bytes], others: Iterable[bytes]) -> set[Ids]:
    """The shards, by their ids before and after, that tell nothing but times beside what is `certain`: that these
    stored paths were modified. Shards of directories that `others` stand in tell more."""
    if not patch:
        return set()
    passed_over, wanted = by_directory(certain), by_directory(others)
    found: set[Ids] = set()
    for ids, directory, lines in _pieces(patch):
        if directory not in wanted and not _tell_more(lines, quoted_names(passed_over.get(directory, ()))):
            found.add(ids)
    return found


def _pieces(patch: bytes) -> Iterator[tuple[Ids, bytes, list[bytes]]]:
    """(ids, directory, lines with their signs) of each shard whose first line is shown, the same on both sides."""
    for piece in patch.split(b"\ndiff --git "):
        header, found, body = piece.partition(b"\n@@ -1,")
        index = header.partition(b"\nindex ")[2].partition(b" ")[0]
        before, dots, after = index.partition(b"..")
        lines = body.split(b"\n")
        words = lines[1].split(b" ") if len(lines) > 1 else []
        if found and dots and len(words) == 4 and words[:3] == [b"", HEADER, b"%d" % VERSION]:
            with suppress(Damaged):
                yield (before, after), unquote_path(words[3]), lines[2:]


def _tell_more(lines: Iterable[bytes], passed_over: Collection[bytes]) -> bool:
    """Whether lines differ, those of some names aside, in anything but a time."""
    sides: dict[bytes, set[bytes]] = {b"-": set(), b"+": set()}
    for line in lines:
        sign, name = line[:1], line[1:].partition(b" ")[0]
        if sign in sides and name not in passed_over:
            words = line[1:].split(b" ")
            told = b" ".join(words[:3] + words[4:])
            if told in sides[sign]:
                return True  # no shard says anything twice
            sides[sign].add(told)
    return sides[b"-"] != sides[b"+"]
