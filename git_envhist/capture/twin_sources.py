"""Find the files that are sealed by their names before anything is read, so that their twins are sealed as well.

The workers judge the names of what they will read. What earlier captures found is looked at again where it was: a few
calls of `stat`, and a file is read only if it changed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from git_envhist.objects.compress import crc32
from git_envhist.paths import DirectoryCursor, join, path_below_root, root_name_of
from git_envhist.secrets.keys import Key
from git_envhist.workers import Frame, Pool
from git_envhist.worktree.content import ContentPolicy
from git_envhist.worktree.scan import ScannedDirectory
from git_envhist.worktree.stat_cache import MODE, CacheDamaged, CacheHeader, DirectoryRecords, StatCache
from git_envhist.worktree.twins import Source, Twins, read_sources, sources_at, write_sources

TWINS = b"twins"
"""The label of the key that copies are recognised by."""
MAX_REMEMBERED = 5000
Rows = list[tuple[Any, ...]]


def find_twins(pool: Pool, job: dict[str, Any], cache: CacheHeader | None) -> Twins:
    """Ask the workers for all files that are sealed by their names, and remember these for the next capture."""
    key, state = job["twin"], os.path.dirname(job["cache"])
    remembered = read_sources(state, key)
    known = remembered if remembered is not None else _among_records(job, cache)
    arguments: list[tuple[object, ...]] = [([],) for _ in pool.lines]
    arguments[0] = ([tuple(source) for source in known if not source.is_past],)
    frames = pool.ask_all("sources", arguments)
    found = sorted({Source(*frame[1:]) for _, frame in frames}, key=_place)  # type: ignore[arg-type]
    kept = [*found, *_past(known, {source.digest for source in found})][:MAX_REMEMBERED]
    twins = Twins(key)
    for source in (*found, *kept[len(found) :]):
        twins.add(source)
    if kept != remembered and job["key"] is not None:
        write_sources(state, key, kept)
    return twins


def _past(known: Iterable[Source], present: set[bytes]) -> Iterator[Source]:
    """Yield the contents that earlier captures sealed and that are in no such file now, each once, the newest first.

    A sealed file that was moved to another name, or copied and then changed, is recognised by them.
    """
    for source in sorted(known, key=lambda source: source.is_past):
        if source.digest and source.digest not in present:
            present.add(source.digest)
            yield source.as_past()


def _place(source: Source) -> tuple[bytes, int]:
    return source.path, source.number


def remembered_twins(state: str, key: Key | None) -> Twins:
    """What earlier captures, and this one, found to be sealed; for contents that stand in no file."""
    twins = Twins(key.derive(TWINS) if key is not None else b"")
    for source in (read_sources(state, twins.key) or []) if key is not None else []:
        twins.add(source)
    return twins


def _among_records(job: dict[str, Any], cache: CacheHeader | None) -> list[Source]:
    """The files with secret names that earlier captures took, where the list of them was lost."""
    from git_envhist.capture.worker import make_policy  # loaded late: once after an update

    if cache is None:
        return []
    policy = make_policy(job)
    records = DirectoryRecords(StatCache(job["cache"], crc32), cache.shards, cache.files)
    try:
        paths = [join(directory, name) for directory in records for name in _names(records, directory)]
    except CacheDamaged:
        return []  # the capture will meet the same, and look at everything
    return [Source(path, (), 0, 0, b"") for path in paths if policy.secret_name(path)]


def _names(records: DirectoryRecords, directory: bytes) -> list[bytes]:
    record = records.get(directory)
    return record.names if record is not None else []


def sources_among(
    key: bytes, visits: dict[bytes, ScannedDirectory], descent: DirectoryCursor, policy: ContentPolicy
) -> Iterator[Frame]:
    """("source", …) for each file that a worker will read and that is sealed by its name; the leaves remember it."""
    from git_envhist.secrets.rules import (
        is_secret_directory,  # loaded late: an unchanged capture asks nothing
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
    """The same for those that earlier captures found, and that are still there and still secret."""
    from git_envhist.secrets.rules import is_secret_directory  # loaded late: likewise

    for row in known:
        source = Source(*row)
        base = bases.get(root_name_of(source.path))
        if base is not None and (policy.secret_name(source.path) or is_secret_directory(source.path)):
            place = os.path.join(base, path_below_root(source.path))
            for found in sources_at(key, source.path, place, source):
                yield ("source", *found)
