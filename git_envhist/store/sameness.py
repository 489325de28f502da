"""What makes a directory itself, whatever it is called: its inode, and a mark that no later bearer of the inode has.

An inode number alone is given to the next directory as soon as the first is removed (on ext4 at once). The mark is
the generation of the inode, or where the file system does not tell that, the time of its birth; either stays through
any rename. Neither needs anything written into the directory.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import NamedTuple

from git_envhist.system import DIRECTORY

GET_GENERATION = 0x80087601 if struct.calcsize("l") == 8 else 0x80047601
GENERATION, BIRTH = "generation", "born"

STATX_BTIME = 0x800
HERE = -100
STATX_SIZE = 256
MASK = struct.Struct("=I")
TIME = struct.Struct("=qI")
TIME_OF_BIRTH = 80


class DirectoryId(NamedTuple):
    """One directory."""

    inode: int
    device: int
    mark: str
    """A kind and a number; empty where the file system tells neither."""


def identify(path: str) -> DirectoryId | None:
    """Which directory stands at a path; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return DirectoryId(found.st_ino, found.st_dev, _generation(path) or _birth(path, found) or "")


def is_same(one: DirectoryId, other: DirectoryId) -> bool:
    """Whether both are surely one directory. The device may have another number since the machine was started."""
    return one.inode == other.inode and one.mark == other.mark != ""


def is_successor(one: DirectoryId, other: DirectoryId) -> bool:
    """Of two that stood at one path: whether the inode was given to another directory after the first was removed."""
    # In a container a directory gets another time of birth when it is first written to: that proves nothing.
    both = (one.mark, other.mark)
    return one.inode != other.inode or (
        one.mark != other.mark and all(mark.startswith(GENERATION) for mark in both)
    )


def _generation(path: str) -> str | None:
    answer = bytearray(8)
    try:
        descriptor = os.open(path, DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.ioctl(descriptor, GET_GENERATION, answer)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    number = int.from_bytes(answer[:4], "little" if struct.pack("=I", 1)[0] else "big")
    return f"{GENERATION}-{number}" if number else None


def _birth(path: str, found: os.stat_result) -> str | None:
    told = getattr(found, "st_birthtime_ns", None) or getattr(found, "st_birthtime", None)
    if told:
        return f"{BIRTH}-{told}"
    return _statx(path)


def _statx(path: str) -> str | None:
    import ctypes  # loaded late: only where a file system tells of no generations

    ask = getattr(ctypes.CDLL(None), "statx", None)
    if ask is None:
        return None
    answer = ctypes.create_string_buffer(STATX_SIZE)
    if ask(HERE, os.fsencode(path), 0, STATX_BTIME, answer) != 0:
        return None
    if not MASK.unpack_from(answer.raw)[0] & STATX_BTIME:
        return None
    seconds, nanoseconds = TIME.unpack_from(answer.raw, TIME_OF_BIRTH)
    return f"{BIRTH}-{seconds}.{nanoseconds:09d}"
