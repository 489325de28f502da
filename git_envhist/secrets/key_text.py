"""Keys as text: exported on one line, wrapped with a passphrase, and the opening key that a recipient gets."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata

from git_envhist.errors import SealingError
from git_envhist.secrets.keys import FILE_HEAD, OPENING, Key, OpeningKey, read_key_file

OPENING_HEAD = b"envhist-open 1"
OPENING_LENGTH = 64
TEXT_HEAD = "envhist-key-"


def write_opening_key(key: Key) -> bytes:
    """Return the text of a key that a recipient gets."""
    lines = [b"%b %b" % (label, key.derive(label).hex().encode("ascii")) for label in OPENING]
    return b"\n".join([OPENING_HEAD, b"key " + key.id.encode("ascii"), *lines, b""])


def read_opening_key(text: bytes) -> OpeningKey:
    """Return the opening key of such a text. Raise `SealingError` if it is malformed."""
    first, *lines = text.decode("ascii", "replace").splitlines()[: len(OPENING) + 2] or [""]
    words = [line.partition(" ") for line in lines]
    names = [word.encode("ascii", "replace") for word, _, _ in words]
    if first.encode("ascii", "replace") != OPENING_HEAD or names != [b"key", *OPENING]:
        raise SealingError("not an opening key", hint="upgrade git-envhist to read it")
    try:
        subkeys = tuple(bytes.fromhex(value) for _, _, value in words[1:])
    except ValueError as odd:
        raise SealingError("the opening key is damaged") from odd
    if any(len(subkey) != OPENING_LENGTH for subkey in subkeys):
        raise SealingError("the opening key is damaged")
    return OpeningKey(words[0][2], subkeys)


def write_key_text(key: Key) -> str:
    """Return a key on one line, for storage outside this machine; its id is the checksum."""
    letters = base64.b32encode(key.material).decode("ascii").rstrip("=").lower()
    return f"{TEXT_HEAD}{key.form}-{key.id}-{letters}"


def read_key_text(text: str) -> Key:
    """Return the key in a line of `write_key_text`, even with line breaks. Raise `SealingError` if it is wrong."""
    if text.startswith(FILE_HEAD.decode("ascii")):
        return read_key_file(text.encode("utf-8"))
    plain = "".join(text.split()).lower()
    found = re.fullmatch(TEXT_HEAD + r"[12]-([0-9a-f]{12}|[0-9a-f]{32})-([a-z2-7]+)", plain)
    if found is None:
        raise SealingError(
            "not an exported key",
            hint=f"an exported key is one line that begins with {TEXT_HEAD}2-: git envlog key export",
        )
    expected, letters = found.groups()
    try:
        key = Key.of(base64.b32decode(letters.upper() + "=" * (-len(letters) % 8)))
    except (ValueError, SealingError):
        key = None
    # The last letter may have unused bits: comparing the text finds a typo in these too.
    if key is None or write_key_text(key) != plain:
        raise SealingError(
            f"the checksum of the exported key '{expected}' does not match: it is mistyped or incomplete",
            hint="copy the whole line, or print it again: git envlog key export",
        )
    return key


# Exported keys wrapped with a passphrase, one line:
#
#     envhist-key-w1-<id of the key>-<base32: salt, wrapped secret, checksum>
#
# The passphrase is stretched with scrypt (128 MiB, about half a second per guess), and the secret is encrypted with
# AES-256 in SIV mode, bound to the id. The checksum distinguishes a typo from a wrong passphrase.

HEAD = "envhist-key-w1-"
SALT, WRAPPED_TAG, CHECK = 16, 16, 4
COST, SCRYPT_BLOCK, LANES = 1 << 17, 8, 1
LINE = re.compile(HEAD + r"([0-9a-f]{12}|[0-9a-f]{32})-([a-z2-7]+)")
MIN_LENGTH = 8
"""Minimum length of a passphrase: shorter ones are guessed easily."""


def wrap_with_passphrase(key_id: str, secret: bytes, passphrase: str, salt: bytes) -> str:
    """Return one line from which the passphrase recovers the secret; `salt`: 16 random bytes."""
    if len(passphrase.strip()) < MIN_LENGTH:
        raise SealingError(
            f"a passphrase needs at least {MIN_LENGTH} characters", hint="use four or more words"
        )
    # loaded late: only an export needs it
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    body = salt + AESSIV(_stretched(passphrase, salt)).encrypt(secret, _key_binding(key_id))
    return HEAD + key_id + "-" + _encode(body + _check(key_id, body))


def is_wrapped(text: str) -> bool:
    """Return whether a text is such a line."""
    return "".join(text.split()).lower().startswith(HEAD)


def unwrap(text: str, passphrase: str) -> bytes:
    """Return the secret. Raise `SealingError` if the line or the passphrase is wrong."""
    # loaded late: only an import needs it
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    key_id, body = _read(text)
    salt, wrapped = body[:SALT], body[SALT:]
    try:
        return AESSIV(_stretched(passphrase, salt)).decrypt(wrapped, _key_binding(key_id))
    except InvalidTag as wrong:
        raise SealingError(
            f"authentication failed: wrong passphrase for the wrapped key '{key_id}'",
            hint="use the passphrase given to 'git envlog key export'",
        ) from wrong


def _read(text: str) -> tuple[str, bytes]:
    plain = "".join(text.split()).lower()
    found = LINE.fullmatch(plain)
    raw = _decode(found[2]) if found is not None else b""
    body = raw[:-CHECK]
    if (
        found is None
        or len(body) <= SALT + WRAPPED_TAG
        or plain != HEAD + found[1] + "-" + _encode(body + _check(found[1], body))
    ):
        raise SealingError(
            "the checksum of the wrapped key does not match: it is mistyped or incomplete",
            hint="copy the whole line",
        )
    return found[1], body


def _stretched(passphrase: str, salt: bytes) -> bytes:
    # loaded late: only export and import need it
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    # The same passphrase, however a keyboard composes its letters.
    words = unicodedata.normalize("NFKC", passphrase).encode("utf-8", "surrogateescape")
    return Scrypt(salt, 64, COST, SCRYPT_BLOCK, LANES).derive(words)


def _key_binding(key_id: str) -> list[bytes]:
    return [HEAD.encode("ascii") + key_id.encode("ascii")]


def _check(key_id: str, body: bytes) -> bytes:
    return hashlib.sha256(key_id.encode("ascii") + body).digest()[:CHECK]


def _encode(data: bytes) -> str:
    return base64.b32encode(data).decode("ascii").rstrip("=").lower()


def _decode(letters: str) -> bytes:
    try:
        return base64.b32decode(letters.upper() + "=" * (-len(letters) % 8))
    except ValueError:
        return b""
