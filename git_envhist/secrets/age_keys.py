"""Parse public keys to encrypt for, and the private keys that decrypt.

Accepts keys of age (`age1…`, `AGE-SECRET-KEY-1…`) and SSH keys of the type ed25519. An SSH key signs on the Edwards
curve; like age, this module converts it to the Montgomery curve for key agreement.
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
"""The alphabet of bech32, by value."""
GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
OPENSSH = "-----BEGIN OPENSSH PRIVATE KEY-----"


@dataclass(frozen=True, slots=True)
class Recipient:
    """A public key to encrypt for."""

    point: bytes
    """The key on the Montgomery curve."""
    wire: bytes = b""
    """An SSH key in SSH's wire format; empty for a key of age."""

    @property
    def text(self) -> str:
        """The key in its usual textual form."""
        if self.wire:
            return f"{SSH} {base64.b64encode(self.wire).decode('ascii')}"
        return write_bech32(AGE, self.point)


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its public half."""

    secret: bytes = field(repr=False)
    """The scalar on the Montgomery curve."""
    recipient: Recipient


def read_recipient(text: str) -> tuple[Recipient, str]:
    """Return the public key of a line and its comment. Raise `SealingError` if it is malformed."""
    word, _, rest = text.strip().partition(" ")
    if word == SSH:
        blob, _, comment = rest.strip().partition(" ")
        return _of_ssh(blob), comment.strip()
    if word.lower().startswith(AGE + "1"):
        name, key = read_bech32(word)
        if name == AGE and len(key) == LENGTH:
            return Recipient(key), rest.strip().removeprefix("#").strip()
    raise SealingError(
        f"not a public key for sharing: '{word[:80]}'",
        hint="use a key of age (age1…) or an SSH key of the type ed25519 (ssh-ed25519 AAAA…)",
    )


def read_identities(text: str) -> tuple[Identity, ...]:
    """Return the private keys of a file. Raise `SealingError` if it has no usable key."""
    if OPENSSH in text:
        return (_of_openssh(text),)
    lines = [line.strip() for line in text.splitlines()]
    found = [line for line in lines if line.lower().startswith(AGE_SECRET + "1")]
    if not found:
        raise SealingError("the file contains neither a key of age nor an SSH key")
    return tuple(map(_of_age_secret, found))


def make_identity() -> tuple[Identity, str]:
    """Return a new private key and the text of its file, which age can read too."""
    secret = os.urandom(LENGTH)
    identity = Identity(secret, Recipient(public_of(secret)))
    key = write_bech32(AGE_SECRET, secret).upper()
    return identity, f"# public key: {identity.recipient.text}\n{key}\n"


def public_of(secret: bytes) -> bytes:
    """Return the public key of a scalar."""
    # loaded late: only sharing a sealed history needs it
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _of_age_secret(line: str) -> Identity:
    name, secret = read_bech32(line)
    if name != AGE_SECRET or len(secret) != LENGTH:
        raise SealingError("its key of age is damaged")
    return Identity(secret, Recipient(public_of(secret)))


def _of_openssh(text: str) -> Identity:
    # loaded late: only sharing a sealed history needs it
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        key = load_ssh_private_key(text.encode("utf-8", "replace"), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as refused:
        # cryptography reports a missing passphrase only in the text of the error.
        locked = "assw" in str(refused) or "assphrase" in str(refused)
        why = "has a passphrase" if locked else "is damaged"
        raise SealingError(f"its SSH key {why}") from refused
    if not isinstance(key, Ed25519PrivateKey):
        raise SealingError("its SSH key is not of the type ed25519")
    secret = hashlib.sha512(key.private_bytes_raw()).digest()[:LENGTH]
    public = key.public_key().public_bytes_raw()
    return Identity(secret, Recipient(to_montgomery(public), _wire(public)))


def _of_ssh(blob: str) -> Recipient:
    try:
        wire = base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError):
        wire = b""
    public = wire[-LENGTH:]
    if wire != _wire(public):
        raise SealingError("the SSH key is damaged", hint="copy the whole line of the .pub file")
    return Recipient(to_montgomery(public), wire)


def _wire(public: bytes) -> bytes:
    parts = (SSH.encode("ascii"), public)
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def to_montgomery(public: bytes) -> bytes:
    """Return the Montgomery point of an Ed25519 key. Raise `SealingError` if it is not on the curve."""
    number = int.from_bytes(public, "little") & ~(1 << 255)
    y = number % PRIME
    square = (y * y - 1) * pow(EDWARDS_D * y * y + 1, -1, PRIME) % PRIME
    is_point = square == 0 or pow(square, (PRIME - 1) // 2, PRIME) == 1
    if number >= PRIME or not is_point or y in (1, PRIME - 1):
        raise SealingError("the SSH key is not a point of its curve")
    return ((1 + y) * pow(1 - y, -1, PRIME) % PRIME).to_bytes(LENGTH, "little")


def write_bech32(name: str, data: bytes) -> str:
    """Encode bytes as bech32 (BIP 173, of any length)."""
    places = _regrouped(data, 8, 5)
    check = _checksum(_expanded(name) + places + [0] * 6) ^ 1
    places += [check >> 5 * (5 - number) & 31 for number in range(6)]
    return f"{name}1{''.join(LETTERS[place] for place in places)}"


def read_bech32(word: str) -> tuple[str, bytes]:
    """Decode bech32 into its name and bytes. Raise `SealingError` if it is mistyped."""
    mistyped = SealingError("the key is mistyped or incomplete", hint="copy the whole line")
    name, _, letters = word.lower().rpartition("1")
    if word not in (word.lower(), word.upper()) or not name or not set(letters) <= set(LETTERS):
        raise mistyped
    places = [LETTERS.index(letter) for letter in letters]
    bits = len(places[:-6]) * 5
    data = bytes(_regrouped(places[:-6], 5, 8)[: bits // 8])
    # Another spelling of the same bytes differs in the unused last bits.
    if _checksum(_expanded(name) + places) != 1 or write_bech32(name, data) != word.lower():
        raise mistyped
    return name, data


def _regrouped(values: bytes | list[int], size: int, wanted: int) -> list[int]:
    """Regroup the bits of values into groups of another size, the last padded with zeros."""
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
