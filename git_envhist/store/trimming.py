"""Two sides of one directory, less the lines that say the same on both (pure).

A directory of 20,000 files in which one was touched costs a comparison of text and two parsed lines. Lines of hard
links stay: which names are one file is only known from all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import compress
from operator import ne
from typing import NamedTuple

from git_envhist.store.halves import Tree
from git_envhist.store.manifest import BUDGET
from git_envhist.store.names import stored_name, suspicious, true_name
from git_envhist.store.quoting import quote, unquote

HEAD = 2
"""The header and the directory's own line."""
LINK_WORD = b" l="


class TrimmedPair(NamedTuple):
    """The texts of two shards and the two trees that belong to them; how many lines were left out."""

    texts: tuple[bytes, bytes]
    trees: tuple[Tree, Tree]
    left_out: int


def drop_equal_lines(texts: tuple[bytes, bytes], trees: tuple[Tree, Tree], *, top: bool) -> TrimmedPair:
    """Leave out what is equal; nothing where the directory changed hands, since its lines mean its owner."""
    whole = TrimmedPair(texts, trees, 0)
    if max(map(len, texts)) > BUDGET.size:
        return whole
    old, new = (text.removesuffix(b"\n").split(b"\n") for text in texts)
    if min(len(old), len(new)) < HEAD or _owner(old[1]) != _owner(new[1]):
        return whole
    moved = {name for name, _ in trees[0].items() ^ trees[1].items()}
    told = {quote(name) for name in _true_names(moved)}
    kept, left_out = _differing(old[HEAD:], new[HEAD:], told, linked=LINK_WORD in texts[0])
    wanted = moved.union(_stored_names({unquote(_word(line)) for lines in kept for line in lines}, top))
    return TrimmedPair(
        (_join(old, kept[0]), _join(new, kept[1])),
        (_choose(trees[0], wanted), _choose(trees[1], wanted)),
        left_out,
    )


def _differing(
    old: list[bytes], new: list[bytes], told: set[bytes], *, linked: bool
) -> tuple[tuple[list[bytes], list[bytes]], int]:
    """The lines that are not the same on both sides, and those of names that are `told`; how many are left out."""
    left_out = 0
    if len(old) == len(new) and not linked:
        # Mostly no name came or went: line beside line is twenty times as fast as looking each of them up.
        differs = list(map(ne, old, new))
        mine, theirs = list(compress(old, differs)), list(compress(new, differs))
        if told.issubset(map(_word, mine)):
            left_out = len(old) - len(mine)
            old, new = mine, theirs
    common = {line for line in set(old).intersection(new) if LINK_WORD not in line}
    if told:
        common = {line for line in common if _word(line) not in told}
    kept = tuple([line for line in lines if line not in common] if common else lines for lines in (old, new))
    return (kept[0], kept[1]), left_out + len(common)


def _true_names(stored: Collection[bytes]) -> Collection[bytes]:
    return set(map(true_name, stored)) if suspicious(b"\0".join(stored)) else stored


def _stored_names(names: Collection[bytes], top: bool) -> set[bytes]:
    """Whatever the tree may call them."""
    if b"" not in names and not suspicious(b"\0".join(names)):
        return set(names)
    return set().union(*(_stored(name, top) for name in names))


def _stored(name: bytes, top: bool) -> tuple[bytes, bytes]:
    # What no tree can hold is refused where the line is read.
    if not name or b"/" in name or b"\0" in name or name in (b".", b".."):
        return (name, name)
    return stored_name(name, top=top), stored_name(name, top=top, link=True)


def _join(lines: list[bytes], kept: list[bytes]) -> bytes:
    return b"\n".join([*lines[:HEAD], *kept]) + b"\n"


def _choose(tree: Tree, wanted: set[bytes]) -> Tree:
    return {name: tree[name] for name in wanted if name in tree}


def _owner(own: bytes) -> list[bytes]:
    return own.split(b" ")[4:6]


def _word(line: bytes) -> bytes:
    return line.partition(b" ")[0]
