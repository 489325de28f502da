"""The words at the end of a manifest line, read with suspicion (pure).

Known words come in one order, each at most once (but for extended attributes, which are sorted by name); their
numbers have one spelling and a range. Words that this version does not know are kept for whoever does.
"""

from __future__ import annotations

import re
from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable

from git_envhist.errors import Damaged
from git_envhist.model import EntryKind, StoredAs
from git_envhist.store.devices import join_device
from git_envhist.store.quoting import show, unquote
from git_envhist.values import dataclass, field, pattern

LARGEST_ID = 2**32 - 1
LONGEST_ATTRIBUTE_NAME = 255

_WORD = pattern(rb"([a-z][a-z0-9-]{0,63})=(.*)", re.DOTALL)
_DECIMAL = pattern(rb"(?:0|[1-9][0-9]{0,9})\Z")
_GROUP = pattern(rb"(?:0|[1-9a-f][0-9a-f]{0,15})\Z")
_KEYED_HASH = pattern(rb"[0-9a-f]{1,128}\Z")

_DEVICES = (EntryKind.CHARACTER_DEVICE, EntryKind.BLOCK_DEVICE)
_WITH_BYTES = (EntryKind.FILE, EntryKind.LINK)


@dataclass(slots=True)
class ExtraWords:
    """What the words of one line said so far."""

    kind: EntryKind
    uid: int | None = None
    gid: int | None = None
    link_group: int | None = None
    device: int | None = None
    stored: StoredAs = StoredAs.PLAIN
    xattrs: list[tuple[bytes, bytes]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)


def read_extras(text: bytes, kind: EntryKind) -> ExtraWords:
    """Read the words behind a line's times; `text` is empty or begins with a space."""
    extras = ExtraWords(kind)
    last = -1
    for item in text[1:].split(b" ") if text else ():
        word = _WORD.fullmatch(item)
        if word is None:
            raise _unreadable(item)
        rank, read = _READERS.get(word[1], _OTHER)
        if rank < last or (rank == last and rank < _ATTRIBUTES):
            raise Damaged(f"the words of a manifest line are not in order: '{show(text)}'")
        last = rank
        if not read(extras, word[1], word[2]):
            raise _unreadable(item)
    return extras


def _read_uid(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    extras.uid = _number(value)
    return extras.uid is not None


def _read_gid(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    extras.gid = _number(value)
    return extras.gid is not None


def _read_link_group(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    if _GROUP.match(value) is None or extras.kind is EntryKind.DIRECTORY:
        return False
    extras.link_group = int(value, 16)
    return True


def _read_device(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    major, colon, minor = value.partition(b":")
    numbers = _number(major), _number(minor)
    if not colon or numbers[0] is None or numbers[1] is None or extras.kind not in _DEVICES:
        return False
    extras.device = join_device(numbers[0], numbers[1])
    return True


def _read_stored(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    if value not in _STORED or extras.kind not in _WITH_BYTES:
        return False
    extras.stored = _STORED[value]
    return True


def _read_keyed_hash(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    extras.notes.append(("h", value.decode("ascii", "replace")))
    return _KEYED_HASH.match(value) is not None


def _read_attribute(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    # A name may hold a colon, base64 never does.
    quoted, colon, encoded = value.rpartition(b":")
    name = unquote(quoted)
    try:
        content = a2b_base64(encoded, strict_mode=True)
    except NotBase64:
        return False
    if not colon or not 0 < len(name) <= LONGEST_ATTRIBUTE_NAME or b"\0" in name:
        return False
    if b2a_base64(content, newline=False) != encoded:
        return False
    extras.xattrs.append((name, content))
    return len(extras.xattrs) == 1 or extras.xattrs[-2][0] < name


def _read_note(extras: ExtraWords, word: bytes, value: bytes) -> bool:
    extras.notes.append((word.decode("ascii"), unquote(value).decode("utf-8", "surrogateescape")))
    return True


def _number(text: bytes) -> int | None:
    number = int(text) if _DECIMAL.match(text) else LARGEST_ID + 1
    return number if number <= LARGEST_ID else None


def _unreadable(item: bytes) -> Damaged:
    return Damaged(f"a word of a manifest line cannot be read: '{show(item)}'")


_Reader = Callable[[ExtraWords, bytes, bytes], bool]
"""Takes the word and its value; False where the value is none that we write."""

_STORED = {stored.value.encode("ascii"): stored for stored in StoredAs if stored is not StoredAs.PLAIN}
_ATTRIBUTES = 6
_READERS: dict[bytes, tuple[int, _Reader]] = {
    b"u": (0, _read_uid),
    b"g": (1, _read_gid),
    b"l": (2, _read_link_group),
    b"r": (3, _read_device),
    b"as": (4, _read_stored),
    b"h": (5, _read_keyed_hash),
    b"x": (_ATTRIBUTES, _read_attribute),
}
_OTHER: tuple[int, _Reader] = (_ATTRIBUTES + 1, _read_note)
