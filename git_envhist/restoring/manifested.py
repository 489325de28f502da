"""The paths that a manifest names, also those that no git tree holds: empty directories, sockets, further roots."""

from __future__ import annotations

from collections.abc import Iterator

from git_envhist.errors import Damaged
from git_envhist.model import TOP, EntryKind, EnvPath, shown_path
from git_envhist.store.git import Git
from git_envhist.store.halves import SnapshotReader
from git_envhist.store.manifest import BUDGET, scan_shard
from git_envhist.store.objects import CatFile


class _Objects:
    def __init__(self, reader: CatFile) -> None:
        self._reader = reader

    def read(self, oid: bytes) -> tuple[bytes, bytes]:
        found = self._reader.read(oid.hex())
        if found is None:
            raise Damaged(f"an object is missing: {oid.hex()}")
        return found.kind.encode("ascii"), found.data


def manifested_paths(git: Git, tree: str) -> Iterator[tuple[bytes, bool]]:
    """Yield each path as people see it, and whether it is a directory; the tops are left out."""
    with CatFile(git, largest=BUDGET.size) as reader:
        half = SnapshotReader(_Objects(reader), bytes.fromhex(tree))
        for outer in half.manifest:
            for inner in half.shards_below(outer):
                stored = half.stored_at(outer, inner)
                place = half.place(stored)
                if place.path != TOP:
                    yield shown_path(place.realm, place.path), True
                for row in scan_shard(half.text(stored)).rows:
                    if row.kind is not EntryKind.DIRECTORY:
                        path = place.path + b"/" + row.name if place.path else row.name
                        yield shown_path(place.realm, EnvPath(path)), False
