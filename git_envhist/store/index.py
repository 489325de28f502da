"""Reads git's index without git: asking git itself could run filters and rewrite the file.

Versions 2 to 4, with both lengths of ids. A split index keeps its entries in another file; the caller asks git then.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from git_envhist.errors import Damaged
from git_envhist.values import dataclass

HEAD = struct.Struct(">4sII")
STATS = struct.Struct(">10I")
ASSUME_VALID, EXTENDED, STAGE_SHIFT, NAME_MASK = 0x8000, 0x4000, 12, 0xFFF
SKIP_WORKTREE, INTENT_TO_ADD = 0x4000, 0x2000
MOST_ENTRIES = 50_000_000


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One tracked path as the index has it."""

    path: bytes
    mode: int
    oid: bytes
    stage: int
    stat: tuple[int, ...]
    """ctime s, ctime ns, mtime s, mtime ns, device, inode, mode, uid, gid, size: 32 bits each."""
    assume_valid: bool = False
    skip_worktree: bool = False
    intent_to_add: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    entries: tuple[IndexEntry, ...]
    split: bool
    """Most entries stand in another file."""


def parse_index(data: bytes, hash_length: int) -> Index:
    """The entries of an index file; `Damaged` where it is none."""
    try:
        return _parse(data, hash_length)
    except (struct.error, IndexError, ValueError) as error:
        raise Damaged(
            "git's index is damaged", hint="'git status' says more; 'git read-tree HEAD' makes it anew"
        ) from error


def _parse(data: bytes, hash_length: int) -> Index:
    signature, version, count = HEAD.unpack_from(data, 0)
    if signature != b"DIRC" or version not in (2, 3, 4) or count > MOST_ENTRIES:
        raise ValueError("not an index")
    at, entries, previous = HEAD.size, [], b""
    for _ in range(count):
        entry, at = _entry(data, at, hash_length, version, previous)
        previous = entry.path
        entries.append(entry)
    names = set(_extensions(data, at, hash_length))
    return Index(tuple(entries), b"link" in names)


def _entry(data: bytes, at: int, hash_length: int, version: int, previous: bytes) -> tuple[IndexEntry, int]:
    start = at
    stats = STATS.unpack_from(data, at)
    at += STATS.size
    oid = data[at : at + hash_length]
    at += hash_length
    flags = int.from_bytes(data[at : at + 2], "big")
    at += 2
    extended = 0
    if flags & EXTENDED:
        extended = int.from_bytes(data[at : at + 2], "big")
        at += 2
    if version == 4:
        dropped, at = _varint(data, at)
        end = data.index(b"\0", at)
        path = previous[: len(previous) - dropped] + data[at:end]
        at = end + 1
    else:
        end = data.index(b"\0", at + min(flags & NAME_MASK, 0xFFE))
        path = data[at:end]
        at = start + (end - start + 8) // 8 * 8
    entry = IndexEntry(
        path,
        stats[6],
        oid,
        flags >> STAGE_SHIFT & 3,
        stats,
        bool(flags & ASSUME_VALID),
        bool(extended & SKIP_WORKTREE),
        bool(extended & INTENT_TO_ADD),
    )
    return entry, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    value = byte & 127
    while byte & 128:
        byte = data[at]
        at += 1
        value = (value + 1 << 7) + (byte & 127)
    return value, at


def _extensions(data: bytes, at: int, hash_length: int) -> Iterator[bytes]:
    end = len(data) - hash_length
    while at + 8 <= end:
        yield data[at : at + 4]
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")
