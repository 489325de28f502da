"""The signed head of a timeline: its number, tip and notes hash under a signature (pure).

A commit's hash covers all snapshots before it, and the hash of a notes tree covers every verdict, name and note. So a
head of a few lines fixes which snapshots a timeline has, in which order, with which notes. A push writes it as a file
of the notes tree; the notes hash is computed without it.
"""

from __future__ import annotations

from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass, pattern
from git_envhist.objects.trees import decode_tree, encode_tree, object_id
from git_envhist.printable_text import display_bytes
from git_envhist.secrets.keys import SigningKey, constant_time_equal

NAME = b"head"
"""The file's name in the notes tree. git ignores names that are not hashes."""
FIRST = "envhist-head 1"
MAX_SIZE = 1 << 16
NO_NOTES = "-"
SSH_BEGINS = "-----BEGIN SSH SIGNATURE-----\n"
NAMESPACE = "envhist-head"
"""Namespace of the SSH signature; a signature made for another namespace is not accepted."""
_TEXT = pattern(
    r"envhist-head 1\ntimeline (\S{1,210})\nnumber ([1-9][0-9]{0,17})\n"
    r"tip ([0-9a-f]{40}|[0-9a-f]{64})\nnotes (-|[0-9a-f]{40}|[0-9a-f]{64})\n"
)
_MAC = pattern(r"key (\S{1,128})\nmac ([0-9a-f]{64})\n")


@dataclass(frozen=True, slots=True)
class Head:
    """A head, signed or still to be signed."""

    timeline: str
    number: int
    """Increases with each signing."""
    tip: str
    notes: str
    """The hash of the notes tree without the head, or `-` if nothing else is in it."""
    key: str | None = None
    mac: str | None = None
    ssh: str | None = None
    """An armored signature by an SSH key."""

    @property
    def text(self) -> str:
        """Return the lines that are signed."""
        return (
            f"{FIRST}\ntimeline {self.timeline}\nnumber {self.number}\ntip {self.tip}\nnotes {self.notes}\n"
        )


def write_head(head: Head) -> bytes:
    """Return the bytes of a head's file."""
    mac = f"key {head.key}\nmac {head.mac}\n" if head.key is not None and head.mac is not None else ""
    return f"{head.text}{mac}{head.ssh or ''}".encode("ascii")


def read_head(data: bytes) -> Head:
    """Parse the file of a head. Raise `Damaged` if it is malformed."""
    text = data.decode("ascii", "replace") if len(data) <= MAX_SIZE else ""
    found = _TEXT.match(text)
    if found is None:
        raise Damaged(f"not a signed head: '{display_bytes(data)}'")
    rest = text[found.end() :]
    mac = _MAC.match(rest)
    ssh = rest[mac.end() :] if mac is not None else rest
    if ssh and not ssh.startswith(SSH_BEGINS):
        raise Damaged(f"not a signed head: '{display_bytes(data)}'")
    key, signed = (mac[1], mac[2]) if mac is not None else (None, None)
    return Head(found[1], int(found[2]), found[3], found[4], key, signed, ssh or None)


def sign_head(head: Head, key: SigningKey) -> Head:
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
    """Return the hash of a notes tree without its head."""
    length = 20 if object_format == "sha1" else 32
    entries = [entry for entry in decode_tree(tree, length) if entry[0] != NAME]
    return object_id(b"tree", encode_tree(entries), object_format).hex() if entries else NO_NOTES
