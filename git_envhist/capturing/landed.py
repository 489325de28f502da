"""Directories of which it is known what was put into them: their records are made of that and of one more look.

A restore has read back every byte that it wrote, and knows which blob they are. What else a record says is told by a
stat: so nothing is read again, and no worker is asked. Whatever a worker would look at is looked at, and where anything
is not exactly as it was left, or out of the ordinary, none of this counts: the workers look as ever.

The next capture reads these files itself all the same: it relies on no word but a capture's.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import NamedTuple

from git_envhist.capture.attributes import read_xattrs
from git_envhist.capture.databases import SIDECARS
from git_envhist.capture.descent import DOT_GIT, join, path_below_root, root_name_of
from git_envhist.capture.known import CacheDamaged, DirectoryRecords
from git_envhist.capture.pool import WorkerHandle
from git_envhist.capture.records import COLUMNS, INCOMPLETE, DirectoryRecord
from git_envhist.capture.servers import may_have_servers
from git_envhist.capture.statcache import CacheHeader
from git_envhist.capture.visits import ScannedDirectory, ScannedEntry, build_record, is_settled, leaf_of
from git_envhist.capturing.gather import ScanResult
from git_envhist.capturing.policy import make_policy
from git_envhist.capturing.shards import leaf_modes, shard_of
from git_envhist.capturing.since import Told, WrittenFile
from git_envhist.errors import Damaged
from git_envhist.store.manifest import format_extras
from git_envhist.store.snapshots import ObjectSink
from git_envhist.system import DIRECTORY, NOFOLLOW, SYSTEM

MANY = 2_000
"""To name the entries of a larger directory one by one takes longer than to have it looked into."""


class RecordTools(NamedTuple):
    """What records are made with."""

    records: DirectoryRecords
    sink: ObjectSink
    read: Callable[[bytes], bytes]
    width: int
    job: Mapping[str, object]
    """What the workers would be told."""


class KnownWritesDriver:
    """Stands in for the workers: all that they could find is known."""

    def __init__(self, cache: CacheHeader, gathered: ScanResult) -> None:
        self.cache: CacheHeader | None = cache
        self.lines: list[WorkerHandle] = []
        self._gathered = gathered

    def gather(self, *, dry_run: bool = False) -> ScanResult:
        return self._gathered

    def finish_packs(self) -> ScanResult:
        return self._gathered

    def close(self) -> None:
        """There is nothing to end."""


def records_from_writes(told: Told, cache: CacheHeader, means: RecordTools) -> KnownWritesDriver | None:
    """The records of directories in which something landed; None where they have to be looked into."""
    gathered = ScanResult()
    job = dict(means.job)
    if job["ignore"] or job["exclude"] or not job["mounts_known"] or not SYSTEM.nofollow:
        return None
    policy = make_policy(job)
    for path, names in told.items():
        full = [join(path, name) for name, landed in names.items() if landed is not None]
        if any(map(policy.secret_name, full)) or (
            policy.fingerprinted and any(map(policy.fingerprinted, full))
        ):
            return None
        try:
            record = _record(path, names, means)
        except (OSError, CacheDamaged, Damaged):
            record = None
        if record is None:
            return None
        gathered.directories[path] = record.encode()
        gathered.pieces[path] = list(record.pieces.values())
    return KnownWritesDriver(cache, gathered)


def _record(
    path: bytes, names: Mapping[bytes, WrittenFile | None], means: RecordTools
) -> DirectoryRecord | None:
    old = means.records.get(path)
    if old is None or old.flags & INCOMPLETE or old.boundaries:
        return None
    bases: Mapping[bytes, bytes] = means.job["bases"]  # type: ignore[assignment]
    below = path_below_root(path)
    base = bases[root_name_of(path)]
    # A link on the way leads to another directory than the one that the record tells of, or to the very one.
    directory = os.open(base + b"/" + below if below else base, DIRECTORY | NOFOLLOW)
    try:
        return _look(directory, old, names, means)
    finally:
        os.close(directory)


def _look(
    directory: int, old: DirectoryRecord, names: Mapping[bytes, WrittenFile | None], means: RecordTools
) -> DirectoryRecord | None:
    own = os.fstat(directory)
    if (own.st_ino, own.st_dev, own.st_uid, own.st_gid) != (old.inode, old.device, old.uid, old.gid):
        return None
    fresh = _fresh(directory, own, names)
    if fresh is None or not _is_listed(directory, old, names, means):
        return None
    started: int = means.job["started_ns"]  # type: ignore[assignment]
    visit = _visit(old, own, fresh, names)
    if visit is None:
        return None
    visit.young = not is_settled(own.st_ctime_ns, own.st_mtime_ns, started)
    like, changed = visit.like, visit.fresh
    xattrs, unread = read_xattrs(directory)
    if unread:
        return None
    extras = format_extras(uid=own.st_uid, gid=own.st_gid, xattrs=xattrs)
    record = build_record(visit, started, means.width, extras)
    record.shard = means.sink.add(
        b"blob", shard_of(record, like, changed, lambda oid: means.read(oid[: means.width]))
    )
    record.leaf_modes = leaf_modes(record)
    return record


def _fresh(
    directory: int, own: os.stat_result, names: Mapping[bytes, WrittenFile | None]
) -> dict[bytes, ScannedEntry] | None:
    """What landed, looked at once more; None where it is not as it was left."""
    fresh = {}
    for name, landed in names.items():
        if landed is None:
            continue
        seen = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if COLUMNS(seen) != landed.row or seen.st_nlink != 1:
            return None
        if (seen.st_uid, seen.st_gid, seen.st_dev) != (own.st_uid, own.st_gid, own.st_dev):
            return None
        # A change time of zero never matches: the next capture looks for itself.
        fresh[name] = ScannedEntry(name, (0, *landed.row[1:]), False, landed.oid)
    return fresh


def _is_listed(
    directory: int, old: DirectoryRecord, names: Mapping[bytes, WrittenFile | None], means: RecordTools
) -> bool:
    """Whether the directory has the entries that it should have and no others, and none that mean more than a file."""
    listed = _names_in(directory)
    if not old.path:
        listed.discard(DOT_GIT)
    expected = {*old.names, *old.subdirectories}
    for name, landed in names.items():
        (expected.discard if landed is None else expected.add)(name)
    pruned: Mapping[bytes, object] = means.job["pruned"]  # type: ignore[assignment]
    if listed != expected or any(join(old.path, name) in pruned for name in names):
        return False
    joined = b"\0".join(listed) + b"\0"
    return not may_have_servers(listed) and not any(tail + b"\0" in joined for tail in SIDECARS)


def _names_in(directory: int) -> set[bytes]:
    if SYSTEM.proc:
        # By another name of what is open: names come as bytes then, which is quicker than to make them of words.
        return set(os.listdir(b"/proc/self/fd/%d" % directory))
    return set(map(os.fsencode, os.listdir(directory)))


def _visit(
    old: DirectoryRecord,
    own: os.stat_result,
    fresh: dict[bytes, ScannedEntry],
    names: Mapping[bytes, WrittenFile | None],
) -> ScannedDirectory | None:
    visit = ScannedDirectory(old.path, own)
    visit.subdirectories = old.subdirectories
    numbers = {name: number for name in names if (number := _number(old, name)) is not None}
    if len(numbers) == len(fresh) == len(names):
        visit.like = old
        visit.fresh = {numbers[name]: leaf for name, leaf in fresh.items()}
        return visit
    if len(old.names) > MANY or not fresh.keys().isdisjoint(old.subdirectories):
        return None
    kept = [leaf_of(old, number) for number, name in enumerate(old.names) if name not in names]
    visit.leaves = sorted([*kept, *fresh.values()], key=lambda leaf: leaf.name)
    return visit


def _number(record: DirectoryRecord, name: bytes) -> int | None:
    """Which entry bears a name; they stand in the order of their names."""
    number = bisect_left(record.names, name)
    return number if number < len(record.names) and record.names[number] == name else None
