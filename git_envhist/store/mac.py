"""Keyed hashes (HMAC) by what the interpreter itself brings.

`hmac` and `hashlib` load OpenSSL: 2 ms of every command that says who signed a moment, which has a few hundred bytes to
hash. As the library's `random` does, the interpreter's own modules are asked first.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

BLOCKS = {"sha256": 64, "sha512": 128}
_INNER, _OUTER = bytes(byte ^ 0x36 for byte in range(256)), bytes(byte ^ 0x5C for byte in range(256))


def _found(name: str, *modules: str) -> Any:
    for module in modules:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this Python has no {name}")


# Under their names of Python 3.12, of 3.11, and where an interpreter was built without.
_HASHES = {name: _found(name, "_sha2", f"_{name}", "hashlib") for name in BLOCKS}
try:
    _compare = _found("_compare_digest", "_operator")
except ImportError:
    _compare = _found("compare_digest", "hmac")


def keyed(key: bytes, data: bytes, name: str) -> bytes:
    """The HMAC of some data, by `sha256` or `sha512`."""
    new, block = _HASHES[name], BLOCKS[name]
    padded = (key if len(key) <= block else new(key).digest()).ljust(block, b"\0")
    inner = new(padded.translate(_INNER))
    inner.update(data)
    outer = new(padded.translate(_OUTER))
    outer.update(inner.digest())
    told: bytes = outer.digest()
    return told


def constant_time_equal(one: str, other: str) -> bool:
    """Whether two texts are one, in a time that says nothing of where they differ."""
    # As bytes: what somebody else wrote for a signature may be any text.
    same: bool = _compare(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
    return same
