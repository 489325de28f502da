"""One snapshot, directory by directory, for who writes all of it.

Which directories there are is told by the trees, and for those that no tree can hold (empty ones, say) by what is left
of the manifest then. What stands in one is read with the same suspicion as `pairs` has, in any process: 100,000
entries take a second to read, which the processes that write the files share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from git_envhist.model import DirectoryListing, Entry, EntryKind, EnvPath
from git_envhist.store.halves import (
    NESTED,
    ROOT,
    DirectoryPlace,
    Objects,
    SnapshotReader,
    Tree,
    damaged,
    tree_text,
)
from git_envhist.store.layout import split_realm
from git_envhist.store.manifest import shard_path
from git_envhist.store.names import true_name
from git_envhist.store.pairs import read_listing
from git_envhist.store.trees import DIRECTORY, decode_by_name

Shard = tuple[bytes, bytes]
NESTED_DEPTH = 2
OF_DIRECTORIES = b"40000 "
"""How the entry of a directory begins in a tree."""


class FoundDirectory(NamedTuple):
    """A directory of a snapshot, not looked into yet."""

    place: DirectoryPlace
    tree: bytes | None
    """What its tree says; None where no tree can hold what it holds."""
    shard: bytes
    entries: int
    """About how many its tree has."""
    directories: tuple[bytes, ...]
    """The true names of those in it that trees hold."""

    @property
    def is_nested(self) -> bool:
        """Whether it is the `.git` of a nested repository: its tree hangs elsewhere."""
        return self.place.stored.startswith(NESTED + b"/") and self.place.stored.count(b"/") == NESTED_DEPTH


class SnapshotWalker:
    """The working tree of one snapshot; what hangs beside it as further roots is only named."""

    def __init__(self, objects: Objects, root: bytes) -> None:
        self._objects = objects
        self._half = SnapshotReader(objects, root)
        # Read before processes are made of this one, so that each has them.
        self._top = self._half.tree(b"")
        self._shards = {
            (outer, inner) for outer in self._half.manifest for inner in self._half.shards_below(outer)
        }
        self._left: set[Shard] = set()

    def directories(self) -> Iterator[FoundDirectory]:
        """Every directory, each behind the one it stands in."""
        self._left = set(self._shards)
        yield from self._walk(b"", None)
        nested = [found for stored in self._tops(NESTED) for found in self._nested(stored)]
        rest = sorted(self._rest(), key=lambda stored: stored.split(b"/"))
        yield from (self._bare(stored) for stored in rest if not stored.startswith(NESTED + b"/"))
        inside = [self._bare(stored) for stored in rest if stored.startswith(NESTED + b"/")]
        yield from sorted([*nested, *inside], key=lambda found: found.place.path.split(b"/"))

    def roots(self) -> list[bytes]:
        """The names of the further roots that it holds."""
        return sorted({self._half.place(stored).realm for stored in self._tops(ROOT)})

    def listing(self, found: FoundDirectory, objects: Objects) -> DirectoryListing:
        """What stands in a directory; `objects`: who reads them in this process."""
        kind, text = objects.read(found.shard)
        if kind != b"blob":
            raise damaged("a shard of the manifest is no file:", found.place.stored)
        if not found.place.stored:
            tree = self._top
        else:
            tree = {} if found.tree is None else decode_by_name(found.tree, len(found.shard))
        return read_listing(self._half, found.place, text, tree)

    def below(self, path: EnvPath) -> Iterator[Entry]:
        """All entries below a directory, each directory before what it holds."""
        prefix = path + b"/"
        for found in self.directories():
            if found.place.path == path or found.place.path.startswith(prefix):
                listing = self.listing(found, self._objects)
                if found.place.path != path:
                    yield listing.own
                yield from (one for one in listing.entries.values() if one.kind is not EntryKind.DIRECTORY)

    def _walk(self, top: bytes, oid: bytes | None) -> Iterator[FoundDirectory]:
        todo = [(top, oid)]
        while todo:
            stored, oid = todo.pop()
            text = None if oid is None else tree_text(self._objects, oid)
            below: list[tuple[bytes, bytes]] = []
            entries = len(self._top)
            if oid is None or text is None:
                below = _directories(self._top)
            elif OF_DIRECTORIES in text:
                tree = decode_by_name(text, len(oid))
                below, entries = _directories(tree), len(tree)
            else:
                # Whoever reads what stands in it looks whether it is one.
                entries = text.count(b"\0")
            names = tuple([true_name(name) for name, _ in below])
            yield FoundDirectory(self._half.place(stored), text, self._shard(stored), entries, names)
            prefix = stored + b"/" if stored else b""
            todo += [(prefix + name, inner) for name, inner in reversed(below)]

    def _nested(self, stored: bytes) -> Iterator[FoundDirectory]:
        if not self._half.is_named(stored):
            raise damaged("nothing holds the nested repository at", stored)
        mode, oid = self._half.tree(NESTED)[stored.rpartition(b"/")[2]]
        return self._walk(stored, oid) if mode == DIRECTORY else iter(())

    def _tops(self, above: bytes) -> Iterable[bytes]:
        return [above + b"/" + name for name in sorted(self._half.tree(above))]

    def _rest(self) -> Iterator[bytes]:
        """Directories of the manifest that no tree holds; those of further roots are nobody's business here."""
        for outer, inner in sorted(self._left):
            stored = self._half.stored_at(outer, inner)
            if not split_realm(stored)[0].startswith(ROOT + b"/"):
                yield stored

    def _bare(self, stored: bytes) -> FoundDirectory:
        if not self._half.is_named(stored):
            raise damaged("a directory is described that nothing holds:", stored)
        return FoundDirectory(self._half.place(stored), None, self._shard(stored), 0, ())

    def _shard(self, stored: bytes) -> bytes:
        outer, inner = (name.encode("ascii") for name in shard_path(stored))
        found = self._half.shards_below(outer).get(inner)
        if found is None:
            raise damaged("no directory is described for what stands in", stored)
        self._left.discard((outer, inner))
        return found[1]


def _directories(tree: Tree) -> list[tuple[bytes, bytes]]:
    """Stored name and id of each directory that a tree holds."""
    return [(name, item[1]) for name, item in tree.items() if item[0] == DIRECTORY]
