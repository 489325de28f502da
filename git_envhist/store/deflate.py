"""The deflate of git objects: isal where it is installed (four times as fast), else zlib; the streams are alike."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from git_envhist.system import SYSTEM

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

__all__ = ["InflateError", "adler32", "compress", "crc32", "decompress", "decompressobj", "pack"]

SMALL = (16 << 10) - 1
"""Up to here the codes of a stream of its own cost a third to three quarters of the time (9 microseconds, whatever the
size), for a quarter to an eighth of the bytes. All that is so small takes a tenth of a pack. A page of a database is
one byte longer: it gains a quarter by them, and there are many."""
WORTH_A_LOOK = 32 << 10
GLANCE, SAMPLE = 256, 2048
MIXED = 130
"""So many values are among 256 random bytes at least; in text they are 40, in machine code 110."""
STORED_BLOCK = 65_535
"""The longest that deflate knows."""
FRAME = 11
"""What a stream adds to bytes that stand in one such block."""


def pack(data: bytes, level: int) -> bytes:
    """A zlib stream of the data: as small as the level makes it, or quickly where that would not make it smaller."""
    if len(data) <= SMALL:
        quickly = compress(data, QUICKEST)
        # Codes that were made for text make what is dense already longer.
        return _stored(data) if data and len(quickly) > len(data) + FRAME else quickly
    if len(data) >= WORTH_A_LOOK and _is_dense(data):
        return _stored(data)
    return compress(data, level)


def _is_dense(data: bytes) -> bool:
    """Whether the data look as if compressed or encrypted already: a glance first, then samples are tried."""
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
        # Of what goes into the stream, not of what it was made from: it tells whether bytes changed on the way.
        checksum = adler32(block, checksum)
    parts.append(checksum.to_bytes(4, "big"))
    return b"".join(parts)
