"""The small blob that stands for a big file whose bytes are kept in pieces (pure).

    envhist-pieces 1
    size 220200960
    tree 5f2c…

The tree with that id stands below `.envhist/pieces`; its blobs, in the order of their names, are the file.
"""

from __future__ import annotations

import re

from git_envhist.errors import Damaged
from git_envhist.model import ObjectId
from git_envhist.values import dataclass

HEADER = b"envhist-pieces "
LARGEST_SIZE = 2**63 - 1

_POINTER = re.compile(rb"envhist-pieces 1\nsize (0|[1-9][0-9]{0,18})\ntree ([0-9a-f]{40}(?:[0-9a-f]{24})?)\n")


@dataclass(frozen=True, slots=True)
class ChunksPointer:
    """A file in pieces: how long it is, and the tree that holds its pieces."""

    size: int
    tree: ObjectId


def write_pointer(size: int, tree: bytes) -> bytes:
    """The blob that stands in the tree for the file."""
    return b"envhist-pieces 1\nsize %d\ntree %b\n" % (size, tree.hex().encode("ascii"))


def read_pointer(data: bytes) -> ChunksPointer:
    """Read a pointer; `Damaged` where it is none."""
    found = _POINTER.fullmatch(data)
    if found is None or int(found[1]) > LARGEST_SIZE:
        raise Damaged("the pointer to the pieces of a file cannot be read")
    return ChunksPointer(int(found[1]), ObjectId(bytes.fromhex(found[2].decode("ascii"))))


def pieces_path(tree: bytes) -> tuple[str, str]:
    """The two names, below the directory of pieces, under which a file's tree stands."""
    text = tree.hex()
    return text[:2], text[2:]
