"""The byte format of a commit: a few header lines, a blank one, the message (pure)."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.git.current_actor import time_of


class Commit(NamedTuple):
    """A parsed commit; author and committer are complete lines: name, address, time."""

    tree: str
    parents: tuple[str, ...]
    author: bytes
    committer: bytes
    message: bytes

    @property
    def at(self) -> datetime:
        """The committer's time, with its offset."""
        return time_of(self.committer)


def encode_commit(tree: str, parent: str | None, author: bytes, committer: bytes, message: bytes) -> bytes:
    """Return the content of a commit object."""
    parents = b"parent %s\n" % parent.encode("ascii") if parent is not None else b""
    return b"tree %s\n%sauthor %s\ncommitter %s\n\n%s" % (
        tree.encode("ascii"),
        parents,
        author,
        committer,
        message,
    )


def parse_commit(data: bytes) -> Commit:
    """Parse the content of a commit object."""
    header, blank, message = data.partition(b"\n\n")
    lines = [line.partition(b" ") for line in header.split(b"\n")]
    first = {key: value for key, _, value in reversed(lines)}
    if not blank or not {b"tree", b"author", b"committer"} <= first.keys():
        raise Damaged("a commit is not in git's format")
    parents = tuple(_hex(value) for key, _, value in lines if key == b"parent")
    return Commit(_hex(first[b"tree"]), parents, first[b"author"], first[b"committer"], message)


def _hex(value: bytes) -> str:
    text = value.decode("ascii", "replace")
    if len(text) not in (40, 64) or text.strip("0123456789abcdef"):
        raise Damaged("a commit is not in git's format")
    return text
