"""Read and write small armored files of age (age-encryption.org/v1), encrypted for public keys.

    age-encryption.org/v1
    -> X25519 <share>                    once per recipient: a key of age,
    <file key, encrypted>
    -> ssh-ed25519 <tag> <share>         or an SSH key
    <file key, encrypted>
    --- <MAC of the header>
    <nonce, and one chunk of ChaCha20-Poly1305>

Anyone can write such a file for a public key, so the content says nothing about its author.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from git_envhist.errors import SealingError
from git_envhist.secrets.age_keys import SSH, Identity, Recipient, public_of

FIRST = "age-encryption.org/v1"
INFO = "age-encryption.org/v1/"
BEGIN, END = "-----BEGIN AGE ENCRYPTED FILE-----", "-----END AGE ENCRYPTED FILE-----"
COLUMNS = 64
X25519 = "X25519"
FILE_KEY, NONCE, TAG, CHUNK = 16, 16, 16, 1 << 16
NO_NONCE, ONLY_CHUNK = bytes(12), bytes(11) + b"\1"
MAX_SIZE = 1 << 20
MAX_STANZAS = 1000


class Stanza(NamedTuple):
    """The file key, encrypted for one recipient."""

    words: tuple[str, ...]
    body: bytes


class AgeFile(NamedTuple):
    """A parsed age file."""

    stanzas: tuple[Stanza, ...]
    header: bytes
    """The bytes that the MAC covers."""
    mac: bytes
    nonce: bytes
    chunk: bytes


def encrypt(plain: bytes, recipients: Sequence[Recipient]) -> bytes:
    """Return an armored file that each of the recipients can open."""
    if not recipients or len(plain) > CHUNK:
        raise ValueError("no recipient, or more than one chunk")
    file_key, nonce = os.urandom(FILE_KEY), os.urandom(NONCE)
    lines = [FIRST]
    for recipient in recipients:
        stanza = _wrap(file_key, recipient)
        lines += ["-> " + " ".join(stanza.words), *_columns(stanza.body)]
    header = "\n".join([*lines, "---"]).encode("ascii")
    mac = _encode(_header_mac(file_key, header)).encode("ascii")
    chunk = _encrypted(_derived(file_key, nonce, b"payload"), ONLY_CHUNK, plain)
    return _armoured(header + b" " + mac + b"\n" + nonce + chunk)


def decrypt(data: bytes, identities: Iterable[Identity]) -> bytes | None:
    """Return the content of a file, or None if it was not encrypted for any of these keys.

    Raise `SealingError` if it is malformed or was modified.
    """
    file = read_age_file(data)
    for identity in identities:
        for stanza in file.stanzas:
            file_key = _unwrap(stanza, identity)
            if file_key is None:
                continue
            if not hmac.compare_digest(_header_mac(file_key, file.header), file.mac):
                raise _damaged()
            plain = _decrypted(_derived(file_key, file.nonce, b"payload"), ONLY_CHUNK, file.chunk)
            if plain is None:
                raise _damaged()
            return plain
    return None


def read_age_file(data: bytes) -> AgeFile:
    """Parse a file. Raise `SealingError` if it is malformed, or larger than any that this program writes."""
    if len(data) > MAX_SIZE:
        raise _damaged()
    raw = _without_armour(data)
    header, mark, rest = raw.partition(b"\n---")
    mac, line_end, payload = rest.partition(b"\n")
    try:
        lines = header.decode("ascii").split("\n")
        code = _decode(mac.decode("ascii").removeprefix(" "))
    except UnicodeDecodeError as odd:
        raise _damaged() from odd
    if not mark or not line_end or lines[0] != FIRST or not mac.startswith(b" ") or len(code) != 32:
        raise _damaged()
    if not NONCE + TAG <= len(payload) <= NONCE + CHUNK + TAG:
        raise _damaged()
    return AgeFile(tuple(_stanzas(lines[1:])), header + mark, code, payload[:NONCE], payload[NONCE:])


def _stanzas(lines: Sequence[str]) -> Iterable[Stanza]:
    words: tuple[str, ...] = ()
    body: list[str] = []
    count = 0
    for line in lines:
        if words:
            body.append(line)
            if len(line) < COLUMNS:
                yield Stanza(words, _decode("".join(body)))
                words, body, count = (), [], count + 1
        elif line.startswith("-> ") and count < MAX_STANZAS:
            words = tuple(line.removeprefix("-> ").split(" "))
        else:
            raise _damaged()
    if words or not count:
        raise _damaged()


def _wrap(file_key: bytes, recipient: Recipient) -> Stanza:
    secret = os.urandom(32)
    share = public_of(secret)
    agreed = _agreed(secret, recipient.point, recipient)
    if agreed is None:
        raise SealingError("this public key is invalid: a point of low order")
    body = _encrypted(_wrap_key(agreed, share, recipient), NO_NONCE, file_key)
    if recipient.wire:
        return Stanza((SSH, _tag(recipient), _encode(share)), body)
    return Stanza((X25519, _encode(share)), body)


def _unwrap(stanza: Stanza, identity: Identity) -> bytes | None:
    recipient = identity.recipient
    kind = (SSH, _tag(recipient)) if recipient.wire else (X25519,)
    if stanza.words[:-1] != kind:
        return None
    share = _decode(stanza.words[-1])
    if len(share) != 32 or len(stanza.body) != FILE_KEY + TAG:
        raise _damaged()
    agreed = _agreed(identity.secret, share, recipient)
    if agreed is None:
        raise _damaged()
    return _decrypted(_wrap_key(agreed, share, recipient), NO_NONCE, stanza.body)


def _agreed(secret: bytes, point: bytes, recipient: Recipient) -> bytes | None:
    """Return the Diffie-Hellman secret. For an SSH key a further step binds it to the key's SSH form."""
    shared = _exchanged(secret, point)
    if shared is None or not recipient.wire:
        return shared
    return _exchanged(_derived(b"", recipient.wire, (INFO + SSH).encode("ascii")), shared)


def _exchanged(secret: bytes, point: bytes) -> bytes | None:
    # loaded late: only sharing a sealed history needs it
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    try:
        return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(point))
    except ValueError:  # the result for a point of low order is always zero
        return None


def _wrap_key(agreed: bytes, share: bytes, recipient: Recipient) -> bytes:
    kind = SSH if recipient.wire else X25519
    return _derived(agreed, share + recipient.point, (INFO + kind).encode("ascii"))


def _tag(recipient: Recipient) -> str:
    return _encode(hashlib.sha256(recipient.wire).digest()[:4])


def _derived(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """Return 32 bytes of HKDF-SHA-256."""
    return hmac.digest(hmac.digest(salt or bytes(32), secret, "sha256"), info + b"\1", "sha256")


def _header_mac(file_key: bytes, header: bytes) -> bytes:
    return hmac.digest(_derived(file_key, b"", b"header"), header, "sha256")


def _encrypted(key: bytes, nonce: bytes, plain: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import (
        ChaCha20Poly1305,  # loaded late: only sharing a sealed history needs it
    )

    return ChaCha20Poly1305(key).encrypt(nonce, plain, None)


def _decrypted(key: bytes, nonce: bytes, data: bytes) -> bytes | None:
    # loaded late: only sharing a sealed history needs it
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(nonce, data, None)
    except InvalidTag:
        return None


def _columns(body: bytes) -> list[str]:
    """Return the lines of a body; the last line is shorter than the others, which marks the end."""
    text = _encode(body)
    return [text[start : start + COLUMNS] for start in range(0, len(text) + 1, COLUMNS)]


def _armoured(raw: bytes) -> bytes:
    text = base64.b64encode(raw).decode("ascii")
    lines = [text[start : start + COLUMNS] for start in range(0, len(text), COLUMNS)]
    return "\n".join([BEGIN, *lines, END, ""]).encode("ascii")


def _without_armour(data: bytes) -> bytes:
    lines = data.decode("ascii", "replace").splitlines()
    if len(lines) < 3 or lines[0] != BEGIN or lines[-1] != END:
        raise SealingError("not an armored file of age")
    try:
        return base64.b64decode("".join(lines[1:-1]), validate=True)
    except (binascii.Error, ValueError) as odd:
        raise _damaged() from odd


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as odd:
        raise _damaged() from odd
    # Reject padding and unused bits: they would be other spellings of the same bytes.
    if _encode(data) != text:
        raise _damaged()
    return data


def _damaged() -> SealingError:
    return SealingError("the file of age is damaged or was changed")
