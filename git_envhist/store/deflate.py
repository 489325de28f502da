"""The deflate of git objects: isal where it is installed (four times as fast), else zlib; the streams are alike."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from git_envhist.system import SYSTEM

if TYPE_CHECKING:
    from zlib import adler32, compress, crc32, decompressobj

    InflateError: tuple[type[Exception], ...]
    QUICKEST: int
else:
    try:
        if not SYSTEM.isal:
            raise ImportError
        from isal.isal_zlib import IsalError, adler32, compress, crc32, decompressobj
    except ImportError:  # no wheel for this machine
        from zlib import adler32, compress, crc32, decompressobj

        InflateError = (zlib.error,)
        QUICKEST = 1
    else:
        InflateError = (IsalError, zlib.error)
        QUICKEST = 0

__all__ = ["QUICKEST", "InflateError", "adler32", "compress", "crc32", "decompressobj"]
