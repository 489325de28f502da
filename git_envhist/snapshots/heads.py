"""The signed head of a timeline: its number, its tip and its notes, under a signature (pure).

A commit's hash covers all snapshots before it, and the hash of a tree of notes covers every verdict, name and note. So
a head of a few lines says which snapshots a timeline has, in which order, and what is said of them. It is a file of
the notes tree, written by a push, and the hash of the notes leaves it out.
"""

from __future__ import annotations

from typing import Protocol

from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass, pattern
from git_envhist.objects.trees import decode_tree, encode_tree, object_id
from git_envhist.secrets.keys import constant_time_equal
from git_envhist.text import show

NAME = b"head"
"""Of the file in the notes tree; git passes over what is no hash."""
FIRST = "envhist-head 1"
MAX_SIZE = 1 << 16
NO_NOTES = "-"
SSH_BEGINS = "-----BEGIN SSH SIGNATURE-----\n"
NAMESPACE = "envhist-head"
"""Of the SSH signature: one that was made for anything else is none."""
_TEXT = pattern(
    r"envhist-head 1\ntimeline (\S{1,210})\nnumber ([1-9][0-9]{0,17})\n"
    r"tip ([0-9a-f]{40}|[0-9a-f]{64})\nnotes (-|[0-9a-f]{40}|[0-9a-f]{64})\n"
)
_MAC = pattern(r"key (\S{1,128})\nmac ([0-9a-f]{64})\n")


class SigningKey(Protocol):
    """What is needed of a sealing key."""

    @property
    def id(self) -> str: ...

    def mac(self, data: bytes) -> str: ...


@dataclass(frozen=True, slots=True)
class Head:
    """A head as it was read, or is to be signed."""

    timeline: str
    number: int
    """Larger at each signing."""
    tip: str
    notes: str
    """The hash of the notes tree without the head itself; `-` if there is nothing else in it."""
    key: str | None = None
    mac: str | None = None
    ssh: str | None = None
    """An armoured signature by an SSH key."""

    @property
    def text(self) -> str:
        """The lines that are signed."""
        return (
            f"{FIRST}\ntimeline {self.timeline}\nnumber {self.number}\ntip {self.tip}\nnotes {self.notes}\n"
        )


def write_head(head: Head) -> bytes:
    """Return the bytes of a head's file."""
    mac = f"key {head.key}\nmac {head.mac}\n" if head.key is not None and head.mac is not None else ""
    return f"{head.text}{mac}{head.ssh or ''}".encode("ascii")


def read_head(data: bytes) -> Head:
    """Return the head that a file holds; `Damaged` if it holds none."""
    text = data.decode("ascii", "replace") if len(data) <= MAX_SIZE else ""
    found = _TEXT.match(text)
    if found is None:
        raise Damaged(f"not a signed head: '{show(data)}'")
    rest = text[found.end() :]
    mac = _MAC.match(rest)
    ssh = rest[mac.end() :] if mac is not None else rest
    if ssh and not ssh.startswith(SSH_BEGINS):
        raise Damaged(f"not a signed head: '{show(data)}'")
    key, signed = (mac[1], mac[2]) if mac is not None else (None, None)
    return Head(found[1], int(found[2]), found[3], found[4], key, signed, ssh or None)


def with_key(head: Head, key: SigningKey) -> Head:
    """Return the head signed with a sealing key."""
    return Head(
        head.timeline, head.number, head.tip, head.notes, key.id, key.mac(_mac_input(head, key.id)), head.ssh
    )


def is_signed_by(head: Head, key: SigningKey) -> bool:
    """Return whether a sealing key signed the head."""
    if head.mac is None or head.key != key.id:
        return False
    return constant_time_equal(key.mac(_mac_input(head, key.id)), head.mac)


def _mac_input(head: Head, key_id: str) -> bytes:
    return f"{head.text}key {key_id}\n".encode("ascii")


def notes_without_head(tree: bytes, object_format: str) -> str:
    """Return the hash that a tree of notes has without its head."""
    length = 20 if object_format == "sha1" else 32
    entries = [entry for entry in decode_tree(tree, length) if entry[0] != NAME]
    return object_id(b"tree", encode_tree(entries), object_format).hex() if entries else NO_NOTES
