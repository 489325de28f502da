"""Two sides of one directory, less the lines that say the same on both (pure).

A directory of 20,000 files in which one was touched costs a comparison of text and two parsed lines. Lines of hard
links stay: which names are one file is only known from all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from git_envhist.store.halves import Tree
from git_envhist.store.manifest import BUDGET
from git_envhist.store.names import stored_name, true_name
from git_envhist.store.quoting import quote, unquote

HEAD = 2
"""The header and the directory's own line."""
LINK_WORD = b" l="


class Trimmed(NamedTuple):
    """The texts of two shards and the two trees that belong to them; how many lines were left out."""

    texts: tuple[bytes, bytes]
    trees: tuple[Tree, Tree]
    left_out: int


def trim(texts: tuple[bytes, bytes], trees: tuple[Tree, Tree], *, top: bool) -> Trimmed:
    """Leave out what is equal; nothing where the directory changed hands, since its lines mean its owner."""
    whole = Trimmed(texts, trees, 0)
    if max(map(len, texts)) > BUDGET.size:
        return whole
    old, new = (text.removesuffix(b"\n").split(b"\n") for text in texts)
    if min(len(old), len(new)) < HEAD or _owner(old[1]) != _owner(new[1]):
        return whole
    moved = {name for name in trees[0].keys() | trees[1].keys() if trees[0].get(name) != trees[1].get(name)}
    told = {quote(true_name(name)) for name in moved}
    common = {line for line in set(old[HEAD:]).intersection(new[HEAD:]) if LINK_WORD not in line}
    common = {line for line in common if _word(line) not in told} if told else common
    kept = [line for lines in (old, new) for line in lines[HEAD:] if line not in common]
    wanted = moved.union(*(_stored(unquote(_word(line)), top) for line in kept))
    return Trimmed(
        (_join(old, common), _join(new, common)),
        (_choose(trees[0], wanted), _choose(trees[1], wanted)),
        len(common),
    )


def _stored(name: bytes, top: bool) -> tuple[bytes, bytes]:
    # What no tree can hold is refused where the line is read.
    if not name or b"/" in name or b"\0" in name or name in (b".", b".."):
        return (name, name)
    return stored_name(name, top=top), stored_name(name, top=top, link=True)


def _join(lines: list[bytes], common: set[bytes]) -> bytes:
    return b"\n".join([*lines[:HEAD], *(line for line in lines[HEAD:] if line not in common)]) + b"\n"


def _choose(tree: Tree, wanted: set[bytes]) -> Tree:
    return {name: item for name, item in tree.items() if name in wanted}


def _owner(own: bytes) -> list[bytes]:
    return own.split(b" ")[4:6]


def _word(line: bytes) -> bytes:
    return line.partition(b" ")[0]
