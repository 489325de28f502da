"""When a file came to be, where system and file system tell: `statx`, which Python does not offer."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from struct import Struct

AT_FDCWD, AT_SYMLINK_NOFOLLOW, STATX_BTIME = -100, 0x100, 0x800
SIZE = 256
BIRTH = Struct("@I76xqI")
"""The mask of what is filled in, and seconds and nanoseconds of the birth, as the kernel lays them out."""


def birth_time_ns(path: bytes) -> int | None:
    """The nanosecond in which a file was made; None where nobody knows."""
    ask = _statx()
    if ask is None:
        return _by_stat(path)
    buffer = ctypes.create_string_buffer(SIZE)
    if ask(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, buffer) != 0:
        return None
    mask, seconds, rest = BIRTH.unpack_from(buffer)
    return seconds * 10**9 + rest if mask & STATX_BTIME else None


def _by_stat(path: bytes) -> int | None:
    try:
        born = getattr(os.lstat(path), "st_birthtime", None)
    except OSError:
        return None
    return None if born is None else int(born * 10**9)


@cache
def _statx() -> Callable[..., int] | None:
    try:
        found: Callable[..., int] = ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError):
        return None
    return found
