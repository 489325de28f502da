"""What the first capture of a fork need not read: the original's records, with the stat of what was written in them.

A fork was read back, byte by byte, when it was written. Where the original remembers what the very moment holds, its
records say under which ids, and the fork's own stat is put beside them. What has not the size, mode and time that it
was written with, what could not be had there as it was, what has more names than one, and what is too young to be
relied on is left for the capture to read.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from git_envhist.capture.records import (
    COLUMNS,
    CTIME,
    MODE,
    MTIME,
    SIZE,
    WIDTH,
    DirectoryRecord,
    cut,
    decode,
    pack_columns,
)
from git_envhist.capture.statcache import CacheHeader, CacheShard, StatCache
from git_envhist.capture.visits import is_settled
from git_envhist.capturing.capture import CapturePipeline
from git_envhist.capturing.survey import CaptureScope
from git_envhist.capturing.take import cache_of
from git_envhist.errors import EnvhistError
from git_envhist.model import EnvPath, Snapshot
from git_envhist.restore.workers import share_out
from git_envhist.values import replace

NOTHING = (0,) * WIDTH
DOT_GIT = b".git"


def seed(source: CapturePipeline, own: CapturePipeline, snapshot: Snapshot, lost: frozenset[EnvPath]) -> None:
    """Give a fork that was just written what the original remembers of the moment; nothing where it does not.

    `lost`: the paths of which something could not be had there: an owner, an attribute.
    """
    theirs, mine = cache_of(source.repository), cache_of(own.repository)
    head = theirs.read_head()
    if head is None or head.base != snapshot.id:
        return
    there, here = source.survey(None), own.survey(None)
    if head.naming != there.naming or not _same_extent(there, here):
        return
    started = time.time_ns()
    # Whatever cannot be read is read by the capture.
    with suppress(EnvhistError, OSError, ValueError):
        look = _SeedSource(here.bases[b""], started, lost)
        shards, _ = share_out(
            head.shards,
            lambda: look,
            lambda look, shard: _looked_at(theirs, shard, look),
            lambda _: None,
            how="fork" if own.how == "fork" else "here",
        )
        mine.write(
            CacheHeader(here.naming, head.keeping, head.base, (), head.pieces, head.elsewhere, head.files),
            shards,
        )


def _same_extent(there: CaptureScope, here: CaptureScope) -> bool:
    """Whether the same paths are part of both, and all of them stand in the working tree."""
    if set(there.bases) != {b""} or set(here.bases) != {b""} or set(there.pruned) - {DOT_GIT} or here.pruned:
        return False
    return all(getattr(there, name) == getattr(here, name) for name in ("ignore", "exclude", "fingerprint"))


class _SeedSource(NamedTuple):
    """What a record is held against."""

    root: bytes
    started: int
    lost: frozenset[EnvPath]


def _looked_at(cache: StatCache, shard: CacheShard, look: _SeedSource) -> tuple[bytes, bytes]:
    data = cache.read_shard(shard)
    if data is None:
        raise ValueError("a shard of the records is gone")
    return shard.first, b"".join(_seen(decode(encoded), look).encode() for _, encoded in cut(data))


def _seen(record: DirectoryRecord, look: _SeedSource) -> DirectoryRecord:
    """A record of the original's with what stands in the fork."""
    place = os.path.join(look.root, record.path) if record.path else look.root
    columns = pack_columns(_rows(record, place + b"/", look))
    try:
        own = os.lstat(place)
    except FileNotFoundError:
        return replace(record, ctime_ns=0, columns=columns)
    # What came into it since has moved its time; nothing else would tell of a name that no record knows.
    same = own.st_mtime_ns == record.mtime_ns and EnvPath(record.path) not in look.lost
    same = same and (own.st_mode, own.st_uid, own.st_gid) == (record.mode, record.uid, record.gid)
    settled = same and is_settled(own.st_ctime_ns, own.st_mtime_ns, look.started)
    return replace(
        record,
        ctime_ns=own.st_ctime_ns if settled else 0,
        mtime_ns=own.st_mtime_ns,
        inode=own.st_ino,
        device=own.st_dev,
        columns=columns,
    )


def _rows(record: DirectoryRecord, above: bytes, look: _SeedSource) -> Iterator[tuple[int, ...]]:
    cells = record.cells
    inside = record.path + b"/" if record.path else b""
    for number, name in enumerate(record.names):
        try:
            seen = os.lstat(above + name)
        except FileNotFoundError:
            yield NOTHING
            continue
        row, at = COLUMNS(seen), number * WIDTH
        as_written = all(row[cell] == cells[at + cell] for cell in (MTIME, SIZE, MODE))
        as_written = as_written and EnvPath(inside + name) not in look.lost
        # The number that its names share tells of the inode: the fork's is another.
        alone = seen.st_nlink == 1 or not stat.S_ISREG(seen.st_mode)
        if not (as_written and alone and is_settled(row[CTIME], row[MTIME], look.started)):
            row = (0, *row[1:])
        yield row
