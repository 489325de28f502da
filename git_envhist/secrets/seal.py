"""Encrypt ("seal") secret files before they are stored, and decrypt them.

A sealed file is a header in plain text and the content, encrypted with AES-256 in SIV mode:

    envhist-sealed 1
    key <id of the key>
    kind <file, attachment, ...>
    place <keyed hash of the path, 32 hex>

    <ciphertext>

SIV is deterministic: the same content at the same path under the same key gives the same bytes, so an unchanged file is
stored once; without the key no guess of the content can be tested. Before encryption, content is padded with 0x80 and
zeros to a multiple of 256 bytes, which hides the length of short secrets. It is encrypted in segments of 16 MiB, each
bound to the kind, the path, its number and the count of segments, so that none can be moved, dropped or exchanged.
`place` is only used to report that a file was moved rather than damaged.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from git_envhist.errors import KeyMissing, SealingError

MAGIC = b"envhist-sealed "
VERSION = b"1"
SEGMENT = 16 << 20
TAG = 16
"""The bytes that encryption adds to a segment."""
BLOCK = 256
HEAD_LIMIT = 512
EXCHANGED = "the file was moved or exchanged after the capture: do not trust this history"


class SealingKey(Protocol):
    """The part of a key that sealing needs."""

    @property
    def id(self) -> str: ...

    def derive(self, label: bytes) -> bytes: ...


class SealedHeader(NamedTuple):
    """The parsed header of a sealed file, and its length."""

    key_id: str
    kind: bytes
    place: bytes
    length: int


def seal(key: SealingKey, path: bytes, kind: bytes, plain: bytes) -> bytes:
    """Return the sealed form of some bytes. It opens only with this path, kind and key."""
    padding = b"\x80" + bytes(BLOCK - 1 - len(plain) % BLOCK)
    count = (len(plain) + len(padding) + SEGMENT - 1) // SEGMENT
    encrypt = _cipher(key).encrypt
    segments = (
        encrypt(segment, _binding(kind, path, number, count))
        for number, segment in enumerate(_cut(plain, padding))
    )
    return b"".join((_write_head(key, path, kind), *segments))


def unseal(find_key: Callable[[str], SealingKey | None], path: bytes, kind: bytes, sealed: bytes) -> bytes:
    """Return the bytes that were sealed. Raise `SealingError` if the key, the place or the content is wrong."""
    head = _read_head(path, sealed)
    key = _key_of(find_key, path, head)
    if head.kind != kind:
        raise SealingError(
            f"'{_show(path)}' was sealed as '{_show(head.kind)}', not as '{_show(kind)}'", hint=EXCHANGED
        )
    if not hmac.compare_digest(head.place, _place(key, path)):
        raise SealingError(
            f"the sealed content at '{_show(path)}' was sealed for another path, or not with the key '{key.id}': "
            "authentication failed",
            hint=EXCHANGED,
        )
    return _strip_padding(path, _open_segments(key, path, kind, memoryview(sealed)[head.length :]))


def sealed_key_id(blob: bytes) -> str | None:
    """Return the id of the key that opens a sealed file, or None if it is not sealed."""
    try:
        return _read_head(b"", blob).key_id
    except SealingError:
        return None


def keyed_hash(key: SealingKey, data: bytes, context: bytes = b"") -> bytes:
    """Return 32 bytes that allow comparing data for equality and, without the key, reveal nothing else."""
    # Only values of one context can be compared: DEBUG=1 must not reveal which other values are "1".
    prefix = len(context).to_bytes(8, "big") + context
    return hmac.digest(key.derive(b"fingerprint"), prefix + data, "sha256")


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
    # SEGMENT is a multiple of BLOCK: the tail and its padding fit into one segment.
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
            hint="upgrade git-envhist to open it",
        )
    words = [line.partition(b" ") for line in lines]
    if [word for word, _, _ in words] != [b"key", b"kind", b"place"]:
        raise _damaged(path)
    key_id, kind, place = (value for _, _, value in words)
    return SealedHeader(key_id.decode("ascii", "replace"), kind, place, len(text) + len(end))


def _key_of(find_key: Callable[[str], SealingKey | None], path: bytes, head: SealedHeader) -> SealingKey:
    key = find_key(head.key_id)
    if key is None or key.id != head.key_id:
        raise KeyMissing(
            f"'{_show(path)}' is sealed with the key '{_show(head.key_id.encode())}', which is missing",
            hint="import the key from a backup: git envlog key import <file>",
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
        hint="restore the file from another snapshot; list them: git envlog -- <path>",
    )


def _show(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
