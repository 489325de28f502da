"""Public keys that something is encrypted for, and the private keys that open it.

Taken are keys of age (`age1…`, `AGE-SECRET-KEY-1…`) and SSH keys of the kind ed25519. An SSH key signs on the Edwards
curve; the same key on the Montgomery curve, which the formulas below give, agrees on secrets, as age does it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os

from git_envhist.errors import SealingError
from git_envhist.lazy import dataclass, field

AGE, AGE_SECRET, SSH = "age", "age-secret-key-", "ssh-ed25519"
LENGTH = 32
MAX_FILE = 1 << 16
PRIME = 2**255 - 19
EDWARDS_D = -121665 * pow(121666, -1, PRIME) % PRIME
LETTERS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
"""Of bech32, each for its place."""
GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
OPENSSH = "-----BEGIN OPENSSH PRIVATE KEY-----"


@dataclass(frozen=True, slots=True)
class Recipient:
    """A public key that something can be encrypted for."""

    point: bytes
    """The key on the Montgomery curve."""
    wire: bytes = b""
    """An SSH key as SSH sends it; empty for a key of age."""

    @property
    def text(self) -> str:
        """The key as its owner gives it."""
        if self.wire:
            return f"{SSH} {base64.b64encode(self.wire).decode('ascii')}"
        return write_bech32(AGE, self.point)


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key, and what it is the other half of."""

    secret: bytes = field(repr=False)
    """The scalar on the Montgomery curve."""
    recipient: Recipient


def read_recipient(text: str) -> tuple[Recipient, str]:
    """Return the public key of a line, and the comment behind it; `SealingError` if it holds none."""
    word, _, rest = text.strip().partition(" ")
    if word == SSH:
        blob, _, comment = rest.strip().partition(" ")
        return _of_ssh(blob), comment.strip()
    if word.lower().startswith(AGE + "1"):
        name, key = read_bech32(word)
        if name == AGE and len(key) == LENGTH:
            return Recipient(key), rest.strip().removeprefix("#").strip()
    raise SealingError(
        f"this is no public key that can open: '{word[:80]}'",
        hint="a key of age (age1…), or an SSH key of the kind ed25519 (ssh-ed25519 AAAA…)",
    )


def read_identities(text: str) -> tuple[Identity, ...]:
    """Return the private keys of a file; `SealingError` if it holds none that can be used."""
    if OPENSSH in text:
        return (_of_openssh(text),)
    lines = [line.strip() for line in text.splitlines()]
    found = [line for line in lines if line.lower().startswith(AGE_SECRET + "1")]
    if not found:
        raise SealingError("it holds neither a key of age nor an SSH key")
    return tuple(map(_of_age_secret, found))


def make_identity() -> tuple[Identity, str]:
    """Return a new private key, and the text of its file, which age reads as well."""
    secret = os.urandom(LENGTH)
    identity = Identity(secret, Recipient(public_of(secret)))
    key = write_bech32(AGE_SECRET, secret).upper()
    return identity, f"# public key: {identity.recipient.text}\n{key}\n"


def public_of(secret: bytes) -> bytes:
    """Return the public key of a scalar."""
    # loaded late: only somebody who shares a sealed history needs it
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _of_age_secret(line: str) -> Identity:
    name, secret = read_bech32(line)
    if name != AGE_SECRET or len(secret) != LENGTH:
        raise SealingError("the key of age in it is damaged")
    return Identity(secret, Recipient(public_of(secret)))


def _of_openssh(text: str) -> Identity:
    # loaded late: likewise
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        key = load_ssh_private_key(text.encode("utf-8", "replace"), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as refused:
        # cryptography has no other way to say that it wants a passphrase.
        locked = "assw" in str(refused) or "assphrase" in str(refused)
        why = "has a passphrase" if locked else "is damaged"
        raise SealingError(f"the SSH key in it {why}") from refused
    if not isinstance(key, Ed25519PrivateKey):
        raise SealingError("the SSH key in it is not of the kind ed25519")
    secret = hashlib.sha512(key.private_bytes_raw()).digest()[:LENGTH]
    public = key.public_key().public_bytes_raw()
    return Identity(secret, Recipient(montgomery(public), _wire(public)))


def _of_ssh(blob: str) -> Recipient:
    try:
        wire = base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError):
        wire = b""
    public = wire[-LENGTH:]
    if wire != _wire(public):
        raise SealingError("the SSH key is damaged", hint="copy the whole line of the .pub file")
    return Recipient(montgomery(public), wire)


def _wire(public: bytes) -> bytes:
    parts = (SSH.encode("ascii"), public)
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def montgomery(public: bytes) -> bytes:
    """Return the point of an Ed25519 key on the other curve; `SealingError` if it is no point."""
    number = int.from_bytes(public, "little") & ~(1 << 255)
    y = number % PRIME
    square = (y * y - 1) * pow(EDWARDS_D * y * y + 1, -1, PRIME) % PRIME
    is_point = square == 0 or pow(square, (PRIME - 1) // 2, PRIME) == 1
    if number >= PRIME or not is_point or y in (1, PRIME - 1):
        raise SealingError("the SSH key is no point of its curve")
    return ((1 + y) * pow(1 - y, -1, PRIME) % PRIME).to_bytes(LENGTH, "little")


def write_bech32(name: str, data: bytes) -> str:
    """Return bytes as a word of bech32 (BIP 173, of any length)."""
    places = _regrouped(data, 8, 5)
    check = _checksum(_expanded(name) + places + [0] * 6) ^ 1
    places += [check >> 5 * (5 - number) & 31 for number in range(6)]
    return f"{name}1{''.join(LETTERS[place] for place in places)}"


def read_bech32(word: str) -> tuple[str, bytes]:
    """Return the name and the bytes of a word of bech32; `SealingError` if it was mistyped."""
    mistyped = SealingError("the key was mistyped or cut short", hint="copy the whole line again")
    name, _, letters = word.lower().rpartition("1")
    if word not in (word.lower(), word.upper()) or not name or not set(letters) <= set(LETTERS):
        raise mistyped
    places = [LETTERS.index(letter) for letter in letters]
    bits = len(places[:-6]) * 5
    data = bytes(_regrouped(places[:-6], 5, 8)[: bits // 8])
    # A second word for the same bytes has other bits behind the last of them.
    if _checksum(_expanded(name) + places) != 1 or write_bech32(name, data) != word.lower():
        raise mistyped
    return name, data


def _regrouped(values: bytes | list[int], size: int, wanted: int) -> list[int]:
    """Return the bits of some values in groups of another size, the last filled with zeros."""
    bits = "".join(format(value, f"0{size}b") for value in values)
    groups = (bits[start : start + wanted] for start in range(0, len(bits), wanted))
    return [int(group.ljust(wanted, "0"), 2) for group in groups]


def _expanded(name: str) -> list[int]:
    return [ord(letter) >> 5 for letter in name] + [0] + [ord(letter) & 31 for letter in name]


def _checksum(places: list[int]) -> int:
    check = 1
    for place in places:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ place
        for number, generator in enumerate(GENERATORS):
            check ^= generator if top >> number & 1 else 0
    return check
