"""Recognise private keys by their first bytes, under any name: DER, key stores, password safes."""

from __future__ import annotations

import re
from functools import cache

STORES = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x03\xd9\xa2\x9a", b"openssh-key-v1\0")
"""Java's two stores, KeePass, and OpenSSH's form without armour."""

_LENGTH = rb"(?:[\x00-\x7f]|\x81[\x00-\xff]|\x82[\x00-\xff]{2})"
_DER = (
    rb"0" + _LENGTH + rb"(?:"
    # PKCS#1 and DSA: version 0, then a large number. PKCS#8: version 0 or 1, then the algorithm, then the key.
    rb"\x02\x01\x00\x02(?:\x81[\x00-\xff]|\x82[\x00-\xff]{2}|[\x10-\x7f])"
    rb"|\x02\x01[\x00\x01]0(?:[\x05-\x7f]|\x82[\x00-\xff]{2})\x06[\x03-\x0b]"
    # SEC 1: version 1, then 28 to 66 bytes.
    rb"|\x02\x01\x01\x04[\x1c-\x42]"
    # PKCS#8, encrypted: the algorithm begins with PKCS#5 or PKCS#12. PKCS#12: version 3, then content.
    rb"|0[\x0b-\x7f]\x06[\x09-\x0b]\x2a\x86\x48\x86\xf7\x0d\x01(?:\x05|\x0c)"
    rb"|\x02\x01\x030)"
)


def is_key_material(data: bytes) -> bool:
    """Whether some bytes are those of a private key, or of a store of keys."""
    if data[:1] == b"0":
        return _der().match(data) is not None
    return data.startswith(STORES)


@cache
def _der() -> re.Pattern[bytes]:
    return re.compile(_DER, re.DOTALL)
