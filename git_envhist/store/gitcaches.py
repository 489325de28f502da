"""git's own caches over its packs: dropped where they speak of a pack that is taken back.

A multi-pack-index that names a missing pack hides every object it would find there, even one that the user has in
another pack; a commit-graph with a missing commit fails `git fsck`. git derives both anew whenever it wants them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection

from git_envhist.store.durable import forget

# The file that stands alone; the directory of a layered one, and the list of its layers.
CACHES = (
    ("pack/multi-pack-index", "pack/multi-pack-index.d", "multi-pack-index-chain"),
    ("info/commit-graph", "info/commit-graphs", "commit-graph-chain"),
)


def drop_caches_naming(objects_dir: str, needles: Collection[bytes]) -> None:
    """Remove each cache in which one of the names or ids occurs."""
    for single, layered, chain in CACHES:
        alone = os.path.join(objects_dir, single)
        if _holds(alone, needles):
            forget(alone)
        layers = _files_in(os.path.join(objects_dir, layered))
        if any(_holds(layer, needles) for layer in layers):
            # Without the list no layer counts, so that a stop half way leaves nothing that misleads.
            forget(os.path.join(objects_dir, layered, chain))
            for layer in layers:
                forget(layer)


def _holds(path: str, needles: Collection[bytes]) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return False
        # git replaces these files by rename, never in place.
        with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as content:
            return any(content.find(needle) >= 0 for needle in needles)
    finally:
        os.close(descriptor)


def _files_in(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory)]
    except FileNotFoundError:
        return []
