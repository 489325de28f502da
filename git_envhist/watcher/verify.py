"""Compare every directory with the stat cache, to verify what the watcher claims."""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from git_envhist.objects.deflate import crc32
from git_envhist.worktree.scan import open_cursor
from git_envhist.worktree.stat_cache import (
    COLUMNS,
    CTIME,
    MODE,
    WIDTH,
    CacheShard,
    DirectoryRecord,
    StatCache,
    decode,
    differing_records,
    pack_columns,
)

SAME, TOUCHED, CHANGED = range(3)
"""Result of a comparison; TOUCHED: only a change time differs."""


class Differing(NamedTuple):
    """Directories that differ from the stat cache."""

    changed: list[bytes]
    touched: list[bytes]
    """Only change times differ: the contents may be the same."""


def differing_directories(directory: str, bases: Mapping[bytes, bytes], cache_id: str) -> Differing | None:
    """Return the directories that differ from the stat cache with this id; None if there is another one."""
    cache = StatCache(directory, crc32)
    head = cache.read_head()
    if head is None or head.id != cache_id or head.again is None:
        return None
    again = frozenset(head.again)
    found = Differing([], [])
    for shard in head.shards:
        if not _compare_shard(cache, shard, bases, again, found):
            return None
    return found


def _compare_shard(
    cache: StatCache,
    shard: CacheShard,
    bases: Mapping[bytes, bytes],
    again: frozenset[bytes],
    found: Differing,
) -> bool:
    """Add the differing directories of a shard; return False if it cannot be read."""
    data = cache.read_shard(shard)
    if data is None:
        return False
    cursor = open_cursor(bases)
    try:
        for encoded in differing_records(data, bases, cursor.enter):
            record = decode(encoded)
            if record.path not in again:
                result = _compare(record, cursor.enter)
                if result != SAME:
                    (found.changed if result == CHANGED else found.touched).append(record.path)
    finally:
        cursor.close()
    return True


def _compare(record: DirectoryRecord, enter: Callable[[bytes], os.stat_result]) -> int:
    """Compare a directory with its record, where the record is as young as the capture, too."""
    try:
        own = enter(record.path)
        if (own.st_mtime_ns, own.st_ino, own.st_dev, own.st_mode) != (
            record.mtime_ns, record.inode, record.device, record.mode,
        ):  # fmt: skip
            return CHANGED
        result = SAME if record.ctime_ns in (0, own.st_ctime_ns) else TOUCHED
        cells = record.cells
        rows = (cells[at : at + WIDTH] for at in range(0, len(cells), WIDTH))
        results = (_compare_row(row, os.lstat(name)) for row, name in zip(rows, record.names, strict=True))
        return max(result, max(results, default=SAME))
    except OSError:
        return CHANGED


def _compare_row(known: array[int], seen: os.stat_result) -> int:
    if not (stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode)):
        # The times of a pipe or a device change with its use, and no snapshot has them.
        return SAME if known[MODE] == seen.st_mode else CHANGED
    now = array("q", pack_columns([COLUMNS(seen)]))
    if known == now:
        return SAME
    is_young = known[CTIME] == 0
    now[CTIME] = known[CTIME]
    if known != now:
        return CHANGED
    return SAME if is_young else TOUCHED


def wrong_claims(differing: list[bytes], claimed: Iterable[bytes]) -> list[bytes]:
    """Return the directories that changed although the watcher did not know of it."""
    return sorted(set(differing).difference(claimed))
