"""Find files that are sealed by name before anything is read, so that copies of them are sealed, too.

Workers judge the names of the files to read. Files found by earlier captures are checked by stat and read
only if they changed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from git_envhist.objects.deflate import crc32
from git_envhist.paths import DirectoryCursor, join, path_below_root, root_name_of
from git_envhist.secrets.keys import Key
from git_envhist.workers import Frame, Pool
from git_envhist.worktree.scan import ScannedDirectory
from git_envhist.worktree.sealed_copies import (
    SealedSource,
    SealedSources,
    read_sources,
    sources_at,
    write_sources,
)
from git_envhist.worktree.stat_cache import MODE, CacheDamaged, CacheHeader, DirectoryRecords, StatCache
from git_envhist.worktree.store_content import ContentPolicy

TWINS = b"twins"
"""Label of the derived key that recognises copies."""
MAX_REMEMBERED = 5000
Rows = list[tuple[Any, ...]]


def find_sealed_sources(pool: Pool, job: dict[str, Any], cache: CacheHeader | None) -> SealedSources:
    """Return all files sealed by name, from the workers and earlier captures, and store the list for the next
    one."""
    key, state = job["twin"], os.path.dirname(job["cache"])
    remembered = read_sources(state, key)
    known = remembered if remembered is not None else _among_records(job, cache)
    arguments: list[tuple[object, ...]] = [([],) for _ in pool.lines]
    arguments[0] = ([tuple(source) for source in known if not source.is_past],)
    frames = pool.ask_all("sources", arguments)
    found = sorted({SealedSource(*frame[1:]) for _, frame in frames}, key=_place)  # type: ignore[arg-type]
    kept = [*found, *_past(known, {source.digest for source in found})][:MAX_REMEMBERED]
    twins = SealedSources(key)
    for source in (*found, *kept[len(found) :]):
        twins.add(source)
    if kept != remembered and job["key"] is not None:
        write_sources(state, key, kept)
    return twins


def _past(known: Iterable[SealedSource], present: set[bytes]) -> Iterator[SealedSource]:
    """Yield contents that were sealed earlier and are in no such file now, each once, newest first.

    They recognise a sealed file that was renamed, or copied before it was changed.
    """
    for source in sorted(known, key=lambda source: source.is_past):
        if source.digest and source.digest not in present:
            present.add(source.digest)
            yield source.as_past()


def _place(source: SealedSource) -> tuple[bytes, int]:
    return source.path, source.number


def remembered_sealed_sources(state: str, key: Key | None) -> SealedSources:
    """Return the sources found so far, for contents that are in no file (the staged index)."""
    twins = SealedSources(key.derive(TWINS) if key is not None else b"")
    for source in (read_sources(state, twins.key) or []) if key is not None else []:
        twins.add(source)
    return twins


def _among_records(job: dict[str, Any], cache: CacheHeader | None) -> list[SealedSource]:
    """Return files with secret names from the stat cache if the stored list was lost."""
    from git_envhist.capture.capture_worker import make_policy  # loaded late: only after an update

    if cache is None:
        return []
    policy = make_policy(job)
    records = DirectoryRecords(StatCache(job["cache"], crc32), cache.shards, cache.files)
    try:
        paths = [join(directory, name) for directory in records for name in _names(records, directory)]
    except CacheDamaged:
        return []  # the capture detects the same damage and reads everything
    return [SealedSource(path, (), 0, 0, b"") for path in paths if policy.secret_name(path)]


def _names(records: DirectoryRecords, directory: bytes) -> list[bytes]:
    record = records.get(directory)
    return record.names if record is not None else []


def sources_among(
    key: bytes, visits: dict[bytes, ScannedDirectory], descent: DirectoryCursor, policy: ContentPolicy
) -> Iterator[Frame]:
    """Yield ("source", ...) for each file that this worker will read and that is sealed by name."""
    from git_envhist.secrets.rules import (
        is_secret_directory,  # loaded late: an unchanged capture does not need it
    )

    for directory, visit in visits.items():
        is_secret = policy.secret_names(directory)
        for leaf in visit.pending:
            leaf.secret = is_secret(leaf.name)
            is_link = bool(leaf.row) and stat.S_ISLNK(leaf.row[MODE])
            if leaf.secret or (is_link and is_secret_directory(join(directory, leaf.name))):
                path = join(directory, leaf.name)
                try:
                    descent.enter(directory)
                except OSError:
                    break
                for source in sources_at(key, path, leaf.name):
                    yield ("source", *source)


def sources_again(
    key: bytes, known: Rows, bases: dict[bytes, bytes], policy: ContentPolicy
) -> Iterator[Frame]:
    """Yield ("source", ...) for files found by earlier captures that still exist and are still secret."""
    from git_envhist.secrets.rules import (
        is_secret_directory,  # loaded late: an unchanged capture does not need it
    )

    for row in known:
        source = SealedSource(*row)
        base = bases.get(root_name_of(source.path))
        if base is not None and (policy.secret_name(source.path) or is_secret_directory(source.path)):
            place = os.path.join(base, path_below_root(source.path))
            for found in sources_at(key, source.path, place, source):
                yield ("source", *found)
