"""Compression: zstd frames with a checksum for the stat cache and for archives, deflate for git's objects.

zstd is the module zstandard if it is installed, otherwise that of Python 3.15. deflate is isal if it is installed
(four times as fast), otherwise zlib; both produce streams of the same format.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from git_envhist.platform import SYSTEM

# The deflate of git objects.

if TYPE_CHECKING:
    from zlib import adler32, compress, crc32, decompress, decompressobj

    InflateError: tuple[type[Exception], ...]
    QUICKEST: int
else:
    try:
        if not SYSTEM.isal:
            raise ImportError
        from isal.isal_zlib import IsalError, adler32, compress, crc32, decompress, decompressobj
    except ImportError:  # no wheel for this machine
        from zlib import adler32, compress, crc32, decompress, decompressobj

        InflateError = (zlib.error,)
        QUICKEST = 1
    else:
        InflateError = (IsalError, zlib.error)
        QUICKEST = 0

__all__ = ["InflateError", "adler32", "compress", "crc32", "decompress", "decompressobj", "deflate_object"]

SMALL = (16 << 10) - 1
"""Up to this size the fixed codes of the fastest level are used.

Codes for each stream would take 9 µs whatever its size, a third to three quarters of the time, and save a quarter to
an eighth of the bytes; such objects are a tenth of a pack. A page of a database is one byte longer: codes save a
quarter of it, and databases have many pages.
"""
WORTH_A_LOOK = 32 << 10
GLANCE, SAMPLE = 256, 2048
MIXED = 130
"""256 random bytes have at least this number of different values; text has 40, machine code 110."""
STORED_BLOCK = 65_535
"""The longest stored block of deflate."""
FRAME = 11
"""The bytes that a stream adds to data in one stored block."""


def deflate_object(data: bytes, level: int) -> bytes:
    """Return a zlib stream of the data, stored uncompressed if compression would not make it smaller."""
    if len(data) <= SMALL:
        quickly = compress(data, QUICKEST)
        # The fixed codes of the fastest level make compressed data longer.
        return _stored(data) if data and len(quickly) > len(data) + FRAME else quickly
    if len(data) >= WORTH_A_LOOK and _is_dense(data):
        return _stored(data)
    return compress(data, level)


def _is_dense(data: bytes) -> bool:
    """Return whether data seems to be compressed or encrypted: count a few values, then compress samples."""
    middle = len(data) // 2
    if len(set(data[middle : middle + GLANCE])) < MIXED:
        return False
    starts = (len(data) // 4, middle, len(data) // 4 * 3)
    sample = b"".join([data[start : start + SAMPLE] for start in starts])
    return len(compress(sample, 1)) > len(sample) * 0.98


def _stored(data: bytes) -> bytes:
    parts, checksum = [b"\x78\x01"], 1
    for start in range(0, len(data), STORED_BLOCK):
        block = data[start : start + STORED_BLOCK]
        size = len(block)
        last = start + size == len(data)
        parts += (b"%c" % last, size.to_bytes(2, "little"), (size ^ 0xFFFF).to_bytes(2, "little"), block)
        # The checksum of the written bytes, so that a comparison with the original's detects a change in memory.
        checksum = adler32(block, checksum)
    parts.append(checksum.to_bytes(4, "big"))
    return b"".join(parts)
