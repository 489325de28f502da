"""The byte format of a commit: a few header lines, a blank one, the message (pure)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from git_envhist.errors import Damaged

# What git itself strips from a name or an address: it would end them too early.
CRUD = str.maketrans("", "", "<>\n\r\0")
EDGES = " .,:;\"\\'" + "".join(map(chr, range(32)))


class Commit(NamedTuple):
    """A commit, taken apart; author and committer are whole lines: name, address, moment."""

    tree: str
    parents: tuple[str, ...]
    author: bytes
    committer: bytes
    message: bytes

    @property
    def at(self) -> datetime:
        """The committer's moment, with the offset it was written with."""
        return moment_of(self.committer)


def encode_commit(tree: str, parent: str | None, author: bytes, committer: bytes, message: bytes) -> bytes:
    """The bytes of a commit object."""
    parents = b"parent %s\n" % parent.encode("ascii") if parent is not None else b""
    return b"tree %s\n%sauthor %s\ncommitter %s\n\n%s" % (
        tree.encode("ascii"),
        parents,
        author,
        committer,
        message,
    )


def parse_commit(data: bytes) -> Commit:
    """A commit object, taken apart."""
    header, blank, message = data.partition(b"\n\n")
    lines = [line.partition(b" ") for line in header.split(b"\n")]
    first = {key: value for key, _, value in reversed(lines)}
    if not blank or not {b"tree", b"author", b"committer"} <= first.keys():
        raise Damaged("a commit is not in git's format")
    parents = tuple(_hex(value) for key, _, value in lines if key == b"parent")
    return Commit(_hex(first[b"tree"]), parents, first[b"author"], first[b"committer"], message)


def identity_line(name: str, email: str, at: datetime) -> bytes:
    """An author line that git's fsck accepts, whatever the name holds."""
    offset = int((at.utcoffset() or timedelta()).total_seconds()) // 60
    sign, minutes = "-" if offset < 0 else "+", abs(offset)
    clean_name, clean_email = (text.translate(CRUD).strip(EDGES) for text in (name, email))
    text = f"{clean_name or 'unknown'} <{clean_email}> {int(at.timestamp())} {sign}{minutes // 60:02}{minutes % 60:02}"
    return text.encode("utf-8", "surrogateescape")


def moment_of(identity: bytes) -> datetime:
    """The moment at the end of an author line."""
    try:
        seconds, offset = identity.rsplit(b"> ", 1)[1].split(b" ")
        minutes = int(offset[1:3]) * 60 + int(offset[3:5])
        zone = (
            timezone(timedelta(minutes=-minutes if offset.startswith(b"-") else minutes)) if minutes else UTC
        )
        return datetime.fromtimestamp(int(seconds), zone)
    except (IndexError, ValueError, OverflowError, OSError):
        raise Damaged("a commit has no moment that can be read") from None


def _hex(value: bytes) -> str:
    text = value.decode("ascii", "replace")
    if len(text) not in (40, 64) or text.strip("0123456789abcdef"):
        raise Damaged("a commit is not in git's format")
    return text
