"""Wraps an exported key for a passphrase: a line that opens nothing for whoever finds it without the words.

    envhist-key-w1-<id of the key>-<base32: salt, wrapped secret, checksum>

The passphrase is stretched by scrypt (128 MiB, about half a second: what somebody pays for each guess), and the secret
is encrypted with AES-256 in SIV mode; the id is bound to it. The checksum tells a slip of the pen from wrong words.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata

from git_envhist.errors import SealingError

HEAD = "envhist-key-w1-"
SALT, TAG, CHECK = 16, 16, 4
COST, BLOCK, LANES = 1 << 17, 8, 1
LINE = re.compile(HEAD + r"([0-9a-f]{12}|[0-9a-f]{32})-([a-z2-7]+)")
SHORTEST = 8
"""So many letters are the least that is taken for a passphrase: anybody guesses less."""


def wrap(key_id: str, secret: bytes, passphrase: str, salt: bytes) -> str:
    """One line that gives the secret to whoever has the passphrase; `salt`: 16 random bytes."""
    if len(passphrase.strip()) < SHORTEST:
        raise SealingError(f"a passphrase has {SHORTEST} letters or more", hint="four words are easy to keep")
    # loaded late: only an export needs it
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    body = salt + AESSIV(_stretched(passphrase, salt)).encrypt(secret, _binding(key_id))
    return HEAD + key_id + "-" + _encode(body + _check(key_id, body))


def is_wrapped(text: str) -> bool:
    """Whether a text is meant to be such a line."""
    return "".join(text.split()).lower().startswith(HEAD)


def unwrap(text: str, passphrase: str) -> bytes:
    """The secret; `SealingError` says whether the line or the passphrase is wrong."""
    # loaded late: only an import needs it
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    key_id, body = _read(text)
    salt, wrapped = body[:SALT], body[SALT:]
    try:
        return AESSIV(_stretched(passphrase, salt)).decrypt(wrapped, _binding(key_id))
    except InvalidTag as wrong:
        raise SealingError(
            f"authentication failed: this passphrase does not open the wrapped key '{key_id}'",
            hint="the passphrase that was given to 'git envlog key export' opens it",
        ) from wrong


def _read(text: str) -> tuple[str, bytes]:
    plain = "".join(text.split()).lower()
    found = LINE.fullmatch(plain)
    raw = _decode(found[2]) if found is not None else b""
    body = raw[:-CHECK]
    if (
        found is None
        or len(body) <= SALT + TAG
        or plain != HEAD + found[1] + "-" + _encode(body + _check(found[1], body))
    ):
        raise SealingError(
            "the checksum of the wrapped key does not match: it was mistyped or cut short",
            hint="copy the whole line again",
        )
    return found[1], body


def _stretched(passphrase: str, salt: bytes) -> bytes:
    # loaded late: likewise
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    # The same words, however a keyboard composes their letters.
    words = unicodedata.normalize("NFKC", passphrase).encode("utf-8", "surrogateescape")
    return Scrypt(salt, 64, COST, BLOCK, LANES).derive(words)


def _binding(key_id: str) -> list[bytes]:
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
