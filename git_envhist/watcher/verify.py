"""Compare every directory with the stat cache, to verify what the watcher claims."""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable, Iterable, Mapping

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


def differing_directories(directory: str, bases: Mapping[bytes, bytes], cache_id: str) -> list[bytes] | None:
    """Return the directories that differ from the stat cache with this id; None if there is another one."""
    cache = StatCache(directory, crc32)
    head = cache.read_head()
    if head is None or head.id != cache_id or head.again is None:
        return None
    again = frozenset(head.again)
    found: list[bytes] = []
    for shard in head.shards:
        of_shard = _differing_in(cache, shard, bases, again)
        if of_shard is None:
            return None
        found += of_shard
    return found


def _differing_in(
    cache: StatCache, shard: CacheShard, bases: Mapping[bytes, bytes], again: frozenset[bytes]
) -> list[bytes] | None:
    data = cache.read_shard(shard)
    if data is None:
        return None
    cursor = open_cursor(bases)
    try:
        records = [decode(one) for one in differing_records(data, bases, cursor.enter)]
        return [one.path for one in records if one.path not in again and _has_changed(one, cursor.enter)]
    finally:
        cursor.close()


def _has_changed(record: DirectoryRecord, enter: Callable[[bytes], os.stat_result]) -> bool:
    """Return whether a directory differs from its record, where the record is as young as the capture, too."""
    try:
        own = enter(record.path)
        if (own.st_mtime_ns, own.st_ino, own.st_dev, own.st_mode) != (
            record.mtime_ns, record.inode, record.device, record.mode,
        ):  # fmt: skip
            return True
        if record.ctime_ns not in (0, own.st_ctime_ns):
            return True
        cells = record.cells
        rows = (cells[at : at + WIDTH] for at in range(0, len(cells), WIDTH))
        return any(_differs(row, os.lstat(name)) for row, name in zip(rows, record.names, strict=True))
    except OSError:
        return True


def _differs(known: array[int], seen: os.stat_result) -> bool:
    if not (stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode)):
        # The times of a pipe or a device change with its use, and no snapshot has them.
        return known[MODE] != seen.st_mode
    now = array("q", pack_columns([COLUMNS(seen)]))
    if known[CTIME] == 0:
        now[CTIME] = 0
    return known != now


def wrong_claims(differing: list[bytes], claimed: Iterable[bytes]) -> list[bytes]:
    """Return the directories that changed although the watcher did not know of it."""
    return sorted(set(differing).difference(claimed))
