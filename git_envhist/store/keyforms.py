"""One key: its id, the subkeys derived from it, and its form as a file and as a line of text.

A key is 512 random bits and the id of the repository that made it. Everything is done with subkeys derived from both by
a label, so that no two uses and no two repositories share one. The id of a key is a hash keyed by itself: it names the
key and tells nothing about it. Keys of the first form have no repository, and ids of 48 bits.
"""

from __future__ import annotations

import base64
import re

from git_envhist.errors import SealingError
from git_envhist.store.mac import keyed
from git_envhist.values import dataclass, field

SECRET_LENGTH, REPOSITORY_LENGTH = 64, 16
FIRST_FORM_LENGTH = 12
"""Of an id, in hex; ids of later keys are longer."""
FORMS = (SECRET_LENGTH, SECRET_LENGTH + REPOSITORY_LENGTH)
"""The lengths of the bytes of a key, by the number of its form, which begins at 1."""
FILE_HEAD = b"envhist-key "
OPENING_HEAD = b"envhist-open 1"
OPENING = (b"seal", b"place")
"""The labels of the subkeys that open what is sealed."""
OPENING_LENGTH = 64
TEXT_HEAD = "envhist-key-"


@dataclass(frozen=True, slots=True)
class Key:
    """One secret, its name, and what is derived from it."""

    id: str
    secret: bytes = field(repr=False)
    repository: bytes = field(default=b"", repr=False)
    """The id of the repository that made it; it is in no object, so it is part of the secret."""

    @classmethod
    def of(cls, material: bytes) -> Key:
        """Return the key that some bytes are: a secret, or a secret and a repository id."""
        if len(material) not in FORMS:
            raise SealingError(f"a key has {FORMS[0]} or {FORMS[1]} bytes, not '{len(material)}'")
        secret, repository = material[:SECRET_LENGTH], material[SECRET_LENGTH:]
        if not repository:
            return cls(keyed(secret, b"envhist key id", "sha512")[:6].hex(), secret)
        return cls(keyed(secret, b"envhist key id 2 " + repository, "sha512")[:16].hex(), secret, repository)

    @property
    def material(self) -> bytes:
        """The bytes from which `of` makes this key."""
        return self.secret + self.repository

    @property
    def form(self) -> int:
        return FORMS.index(len(self.material)) + 1

    def derive(self, label: bytes) -> bytes:
        """The subkey of 64 bytes for one use."""
        bound = b"2 " + self.repository + b" " if self.repository else b""
        return keyed(self.secret, b"envhist subkey " + bound + label, "sha512")

    def mac(self, data: bytes) -> str:
        """What only a holder of this key can write under some data, in hex."""
        return keyed(self.derive(b"mac"), data, "sha256").hex()


@dataclass(frozen=True, slots=True)
class OpeningKey:
    """The part of a key that its owner gives to recipients: it opens what the key sealed, and signs nothing."""

    id: str
    subkeys: tuple[bytes, ...] = field(repr=False)

    def derive(self, label: bytes) -> bytes:
        """Return the subkey of one of the `OPENING` uses."""
        if label not in OPENING:
            raise SealingError(f"the key '{self.id}' came wrapped for a recipient: it only opens")
        return self.subkeys[OPENING.index(label)]


def write_opening_key(key: Key) -> bytes:
    """Return the text that a recipient of a key gets."""
    lines = [b"%b %b" % (label, key.derive(label).hex().encode("ascii")) for label in OPENING]
    return b"\n".join([OPENING_HEAD, b"key " + key.id.encode("ascii"), *lines, b""])


def read_opening_key(text: bytes) -> OpeningKey:
    """Return the opening key of such a text; `SealingError` if it holds none."""
    first, *lines = text.decode("ascii", "replace").splitlines()[: len(OPENING) + 2] or [""]
    words = [line.partition(" ") for line in lines]
    names = [word.encode("ascii", "replace") for word, _, _ in words]
    if first.encode("ascii", "replace") != OPENING_HEAD or names != [b"key", *OPENING]:
        raise SealingError("this is no opening key", hint="a newer git-envhist may read it")
    try:
        subkeys = tuple(bytes.fromhex(value) for _, _, value in words[1:])
    except ValueError as odd:
        raise SealingError("the opening key is damaged") from odd
    if any(len(subkey) != OPENING_LENGTH for subkey in subkeys):
        raise SealingError("the opening key is damaged")
    return OpeningKey(words[0][2], subkeys)


def write_key_file(key: Key) -> bytes:
    """The bytes of a key's file."""
    return b"%b%d\n%b\n" % (FILE_HEAD, key.form, key.material.hex().encode("ascii"))


def read_key_file(content: bytes) -> Key:
    """The key that a file holds; `SealingError` where it holds none."""
    head, _, body = content.partition(b"\n")
    if head not in (FILE_HEAD + b"1", FILE_HEAD + b"2"):
        raise SealingError("this is not a key file")
    try:
        key = Key.of(bytes.fromhex(body.decode("ascii").strip()))
    except ValueError as broken:
        raise SealingError("the key file is damaged") from broken
    if head != b"%b%d" % (FILE_HEAD, key.form):
        raise SealingError("the key file is damaged")
    return key


def write_key_text(key: Key) -> str:
    """A key on one line, to be kept outside this machine; its id is the checksum."""
    letters = base64.b32encode(key.material).decode("ascii").rstrip("=").lower()
    return f"{TEXT_HEAD}{key.form}-{key.id}-{letters}"


def read_key_text(text: str) -> Key:
    """The key that such a line holds, however it was wrapped; `SealingError` tells a slip from a stranger."""
    if text.startswith(FILE_HEAD.decode("ascii")):
        return read_key_file(text.encode("utf-8"))
    plain = "".join(text.split()).lower()
    found = re.fullmatch(TEXT_HEAD + r"[12]-([0-9a-f]{12}|[0-9a-f]{32})-([a-z2-7]+)", plain)
    if found is None:
        raise SealingError(
            "this is not an exported key",
            hint=f"it is one line that begins with {TEXT_HEAD}2-: 'git envlog key export'",
        )
    expected, letters = found.groups()
    try:
        key = Key.of(base64.b32decode(letters.upper() + "=" * (-len(letters) % 8)))
    except (ValueError, SealingError):
        key = None
    # The last letter can have bits to spare: compared as text, a slip in these is found too.
    if key is None or write_key_text(key) != plain:
        raise SealingError(
            f"the checksum of the exported key '{expected}' does not match: it was mistyped or cut short",
            hint="copy the whole line again, or print it again with 'git envlog key export'",
        )
    return key
