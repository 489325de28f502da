"""git's own caches over its packs: dropped where they speak of a pack that is taken back.

A multi-pack-index that names a missing pack hides every object it would find there, even one that the user has in
another pack; a commit-graph with a missing commit fails `git fsck`. git derives both anew whenever it wants them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection, Container, Iterator

from git_envhist.store.durable import read_exactly, remove_if_present
from git_envhist.store.idx import map_or_read

# The file that stands alone; the directory of a layered one, and the list of its layers.
CACHES = (
    ("pack/multi-pack-index", "pack/multi-pack-index.d", "multi-pack-index-chain"),
    ("info/commit-graph", "info/commit-graphs", "commit-graph-chain"),
)
MIDX_HEADER = 12
GRAPH_HEADER = 8
CHUNK_ROW = 12
"""The table of chunks: four letters and where the chunk begins."""


def drop_caches_naming(objects_dir: str, needles: Collection[bytes]) -> None:
    """Remove each cache in which one of the names or ids occurs."""
    for single, layered, chain in CACHES:
        alone = os.path.join(objects_dir, single)
        if _holds(alone, needles):
            remove_if_present(alone)
        layers = _files_in(os.path.join(objects_dir, layered))
        if any(_holds(layer, needles) for layer in layers):
            # Without the list no layer counts, so that a stop half way leaves nothing that misleads.
            remove_if_present(os.path.join(objects_dir, layered, chain))
            for layer in layers:
                remove_if_present(layer)


def drop_graphs_of(objects_dir: str, gone: Container[bytes], hash_length: int) -> tuple[str, ...]:
    """Remove the commit-graph where one of the commits in it is gone; the words by which git makes it anew, if so."""
    single, layered, chain = CACHES[1]
    files = [os.path.join(objects_dir, single)]
    layers = _files_in(os.path.join(objects_dir, layered))
    files += [path for path in layers if path.endswith(".graph")]
    if not any(oid in gone for path in files for oid in _commits_in(path, hash_length)):
        return ()
    changed = ("--changed-paths",) if any(_holds(path, [b"BDAT"]) for path in files) else ()
    remove_if_present(files[0])
    remove_if_present(os.path.join(objects_dir, layered, chain))
    for layer in layers:
        remove_if_present(layer)
    return "commit-graph", "write", "--reachable", *changed


def _commits_in(path: str, hash_length: int) -> Iterator[bytes]:
    """The ids in one file of a commit-graph; none where it cannot be read as one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        header = read_exactly(descriptor, GRAPH_HEADER, 0)
        if header[:5] != b"CGPH\1" or len(header) < GRAPH_HEADER:
            return
        start, end = _chunk(descriptor, GRAPH_HEADER, header[6], b"OIDL")
        ids = read_exactly(descriptor, end - start, start)
    finally:
        os.close(descriptor)
    yield from (ids[at : at + hash_length] for at in range(0, len(ids), hash_length))


def drop_broken_index(pack_dir: str) -> bool:
    """Remove a multi-pack-index that names a pack which is not there; whether there was one.

    A git that was writing one while packs were replaced names some that have gone since.
    """
    files = [os.path.join(pack_dir, "multi-pack-index")]
    layered = os.path.join(pack_dir, "multi-pack-index.d")
    files += [path for path in _files_in(layered) if path.endswith(".midx")]
    named = {name for path in files for name in packs_named(path)}
    missing = [name for name in named if not os.path.exists(os.path.join(os.fsencode(pack_dir), name))]
    if missing:
        drop_caches_naming(os.path.dirname(pack_dir), missing)
    return bool(missing)


def packs_named(path: str) -> list[bytes]:
    """The names of the indexes that a multi-pack-index stands for; none where it cannot be read as one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        start, end = _chunk_of_names(descriptor)
        return [name for name in read_exactly(descriptor, end - start, start).split(b"\0") if name]
    finally:
        os.close(descriptor)


def _chunk_of_names(descriptor: int) -> tuple[int, int]:
    header = read_exactly(descriptor, MIDX_HEADER, 0)
    if header[:5] not in (b"MIDX\1", b"MIDX\2") or len(header) < MIDX_HEADER:
        return 0, 0
    return _chunk(descriptor, MIDX_HEADER, header[6], b"PNAM")


def _chunk(descriptor: int, table: int, chunks: int, wanted: bytes) -> tuple[int, int]:
    """Where a chunk begins and ends, given where the table of chunks stands."""
    rows = read_exactly(descriptor, CHUNK_ROW * (chunks + 1), table)
    for at in range(0, len(rows) - CHUNK_ROW, CHUNK_ROW):
        if rows[at : at + 4] == wanted:
            places = (rows[at + 4 : at + CHUNK_ROW], rows[at + CHUNK_ROW + 4 : at + 2 * CHUNK_ROW])
            start, end = (int.from_bytes(place, "big") for place in places)
            return start, end
    return 0, 0


def _holds(path: str, needles: Collection[bytes]) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return False
        # git replaces these files by rename, never in place.
        content = map_or_read(descriptor, size)
        try:
            return any(content.find(needle) >= 0 for needle in needles)
        finally:
            if isinstance(content, mmap.mmap):
                content.close()
    finally:
        os.close(descriptor)


def _files_in(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory)]
    except FileNotFoundError:
        return []
