"""The deflate of git objects: isal where it is installed (four times as fast), else zlib; the streams are alike."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from git_envhist.system import SYSTEM

if TYPE_CHECKING:
    from zlib import adler32, compress, crc32, decompressobj

    InflateError: tuple[type[Exception], ...]
else:
    try:
        if not SYSTEM.isal:
            raise ImportError
        from isal.isal_zlib import IsalError, adler32, compress, crc32, decompressobj
    except ImportError:  # no wheel for this machine
        from zlib import adler32, compress, crc32, decompressobj

        InflateError = (zlib.error,)
    else:
        InflateError = (IsalError, zlib.error)

__all__ = ["InflateError", "adler32", "compress", "crc32", "decompressobj"]
