"""Seals secret files before anything of them is stored, and opens them again.

A sealed file is a head in plain text and then its content, encrypted with AES-256 in SIV mode:

    envhist-sealed 1
    key <id of the key>
    kind <what was sealed: file, attachment, ...>
    place <keyed hash of the path, 32 hex>

    <ciphertext>

SIV is deterministic: the same content at the same path under the same key gives the same bytes, so that an unchanged
file is stored once, and without the key nobody can try out what it might be. Before it is encrypted, content is
padded with 0x80 and zeros to a multiple of 256 bytes, so that not even the length of a short secret shows. It is
encrypted in segments of 16 MiB; each is bound to the kind, the path, its number and the count of segments, so that
none can be moved, dropped or exchanged. `place` only lets an error say that a file was moved rather than damaged.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from git_envhist.errors import SealingError

MAGIC = b"envhist-sealed "
VERSION = b"1"
SEGMENT = 16 << 20
TAG = 16
"""How much longer a segment gets by being encrypted."""
BLOCK = 256
HEAD_LIMIT = 512
EXCHANGED = "it was moved or exchanged after the capture: do not trust this history"


class SealingKey(Protocol):
    """What is needed of a key."""

    @property
    def id(self) -> str: ...

    def derive(self, label: bytes) -> bytes: ...


class SealedHeader(NamedTuple):
    """What the plain text at the head of a sealed file says, and where it ends."""

    key_id: str
    kind: bytes
    place: bytes
    length: int


def seal(key: SealingKey, path: bytes, kind: bytes, plain: bytes) -> bytes:
    """The sealed form of some bytes; it opens only at this path, as this kind, with this key."""
    padding = b"\x80" + bytes(BLOCK - 1 - len(plain) % BLOCK)
    count = (len(plain) + len(padding) + SEGMENT - 1) // SEGMENT
    encrypt = _cipher(key).encrypt
    segments = (
        encrypt(segment, _binding(kind, path, number, count))
        for number, segment in enumerate(_cut(plain, padding))
    )
    return b"".join((_write_head(key, path, kind), *segments))


def unseal(find_key: Callable[[str], SealingKey | None], path: bytes, kind: bytes, sealed: bytes) -> bytes:
    """The bytes that were sealed; `SealingError` says whether the key, the place or the content is wrong."""
    head = _read_head(path, sealed)
    key = _key_of(find_key, path, head)
    if head.kind != kind:
        raise SealingError(
            f"'{_show(path)}' was sealed as '{_show(head.kind)}', not as '{_show(kind)}'", hint=EXCHANGED
        )
    if not hmac.compare_digest(head.place, _place(key, path)):
        raise SealingError(
            f"what is sealed at '{_show(path)}' was sealed for another path, or not with the key '{key.id}': "
            "authentication failed",
            hint=EXCHANGED,
        )
    return _strip_padding(path, _open_segments(key, path, kind, memoryview(sealed)[head.length :]))


def sealed_key_id(blob: bytes) -> str | None:
    """The id of the key that opens a sealed file; None where it is none."""
    try:
        return _read_head(b"", blob).key_id
    except SealingError:
        return None


def keyed_hash(key: SealingKey, data: bytes, context: bytes = b"") -> bytes:
    """32 bytes that tell equal data from different and, without the key, nothing else."""
    # Values of one context can be compared with each other only: DEBUG=1 shall not show what else is "1".
    told_apart = len(context).to_bytes(8, "big") + context
    return hmac.digest(key.derive(b"fingerprint"), told_apart + data, "sha256")


class _Cipher(Protocol):
    def encrypt(self, data: bytes, associated_data: list[bytes]) -> bytes: ...
    def decrypt(self, data: bytes, associated_data: list[bytes]) -> bytes: ...


def _cipher(key: SealingKey) -> _Cipher:
    # loaded late: keeps a capture without secrets, and every listing, fast
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    return AESSIV(key.derive(b"seal"))


def _cut(plain: bytes, padding: bytes) -> Iterator[bytes]:
    view = memoryview(plain)
    whole = len(plain) - len(plain) % SEGMENT
    for start in range(0, whole, SEGMENT):
        yield bytes(view[start : start + SEGMENT])
    # SEGMENT is a multiple of BLOCK: the tail and its padding never need a segment more.
    yield bytes(view[whole:]) + padding


def _binding(kind: bytes, path: bytes, number: int, count: int) -> list[bytes]:
    counted = number.to_bytes(8, "big") + count.to_bytes(8, "big")
    return [MAGIC + VERSION, b"kind " + kind, b"path " + path, counted]


def _place(key: SealingKey, path: bytes) -> bytes:
    return hmac.digest(key.derive(b"place"), path, "sha256")[:16].hex().encode("ascii")


def _write_head(key: SealingKey, path: bytes, kind: bytes) -> bytes:
    lines = (b"key " + key.id.encode("ascii"), b"kind " + kind, b"place " + _place(key, path))
    return MAGIC + VERSION + b"\n" + b"\n".join(lines) + b"\n\n"


def _read_head(path: bytes, sealed: bytes) -> SealedHeader:
    text, end, _ = sealed[:HEAD_LIMIT].partition(b"\n\n")
    first, *lines = text.split(b"\n")
    if not first.startswith(MAGIC) or not end:
        raise SealingError(f"'{_show(path)}' is not a sealed file")
    if first != MAGIC + VERSION:
        raise SealingError(
            f"'{_show(path)}' is sealed in a form that this version does not know: '{_show(first)}'",
            hint="a newer git-envhist opens it",
        )
    words = [line.partition(b" ") for line in lines]
    if [word for word, _, _ in words] != [b"key", b"kind", b"place"]:
        raise _damaged(path)
    key_id, kind, place = (value for _, _, value in words)
    return SealedHeader(key_id.decode("ascii", "replace"), kind, place, len(text) + len(end))


def _key_of(find_key: Callable[[str], SealingKey | None], path: bytes, head: SealedHeader) -> SealingKey:
    key = find_key(head.key_id)
    if key is None or key.id != head.key_id:
        raise SealingError(
            f"'{_show(path)}' is sealed with the key '{_show(head.key_id.encode())}', which is not here",
            hint="take it in from a backup or from where it was captured: 'git envlog key import'",
        )
    return key


def _open_segments(key: SealingKey, path: bytes, kind: bytes, body: memoryview) -> list[bytes]:
    # loaded late: keeps a capture without secrets, and every listing, fast
    from cryptography.exceptions import InvalidTag

    step = SEGMENT + TAG
    count = (len(body) + step - 1) // step
    decrypt = _cipher(key).decrypt
    try:
        return [
            decrypt(bytes(body[number * step : (number + 1) * step]), _binding(kind, path, number, count))
            for number in range(count)
        ]
    except InvalidTag as wrong:
        raise _damaged(path, f": authentication failed under the key '{key.id}'") from wrong


def _strip_padding(path: bytes, segments: list[bytes]) -> bytes:
    if not segments:
        raise _damaged(path)
    tail, mark, zeros = segments[-1].rpartition(b"\x80")
    if not mark or zeros.strip(b"\0"):
        raise _damaged(path)
    segments[-1] = tail
    return b"".join(segments)


def _damaged(path: bytes, how: str = "") -> SealingError:
    return SealingError(
        f"the sealed content of '{_show(path)}' is damaged or was tampered with{how}",
        hint="it is not what the key sealed: 'git envlog show' lists other snapshots of it",
    )


def _show(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")


# Wraps an exported key for a passphrase: a line that opens nothing for whoever finds it without the words.
#
# envhist-key-w1-<id of the key>-<base32: salt, wrapped secret, checksum>
#
# The passphrase is stretched by scrypt (128 MiB, about half a second: what somebody pays for each guess), and the
# secret is encrypted with AES-256 in SIV mode; the id is bound to it. The checksum tells a slip of the pen from wrong
# words.

HEAD = "envhist-key-w1-"
SALT, WRAPPED_TAG, CHECK = 16, 16, 4
COST, SCRYPT_BLOCK, LANES = 1 << 17, 8, 1
LINE = re.compile(HEAD + r"([0-9a-f]{12}|[0-9a-f]{32})-([a-z2-7]+)")
SHORTEST = 8
"""So many letters are the least that is taken for a passphrase: anybody guesses less."""


def wrap(key_id: str, secret: bytes, passphrase: str, salt: bytes) -> str:
    """One line that gives the secret to whoever has the passphrase; `salt`: 16 random bytes."""
    if len(passphrase.strip()) < SHORTEST:
        raise SealingError(f"a passphrase has {SHORTEST} letters or more", hint="four words are easy to keep")
    # loaded late: only an export needs it
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    body = salt + AESSIV(_stretched(passphrase, salt)).encrypt(secret, _key_binding(key_id))
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
        return AESSIV(_stretched(passphrase, salt)).decrypt(wrapped, _key_binding(key_id))
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
        or len(body) <= SALT + WRAPPED_TAG
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
