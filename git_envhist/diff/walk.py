"""Two snapshots side by side for a restore: every directory that differs, with what differs in it.

Trees are walked in lockstep and equal subtrees skipped; the manifest likewise. What is read may come from anywhere,
and a restore writes what it says: so the tree and the manifest must say the same of every name, each directory must
hang in the one above it, and whatever a capture would not have written is `Damaged` before anything is touched.

An unchanged directory is given too where it holds a hard link of a group that has to do with what differs: which names
one file has cannot be told from a part of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import compress
from operator import ne
from typing import NamedTuple

from git_envhist.model import DirectoryListing, DirectoryPair, Entry, EntryKind, EnvPath, ObjectId
from git_envhist.objects.trees import DIRECTORY, EXECUTABLE, LINK, decode_by_name
from git_envhist.snapshots.layout import dotgit_directory, shard_path, split_root
from git_envhist.snapshots.manifest import BUDGET, Shard, plain_entries, plain_own, read_shard, scan_shard
from git_envhist.snapshots.names import stored_name, suspicious, true_name
from git_envhist.snapshots.quoting import quote, unquote
from git_envhist.snapshots.reader import (
    GIT,
    NESTED,
    ROOT,
    DirectoryPlace,
    Objects,
    SnapshotReader,
    Tree,
    damage_context,
    damaged,
    tree_text,
)

# Two sides of one directory, less the lines that say the same on both (pure).
#
# A directory of 20,000 files in which one was touched costs a comparison of text and two parsed lines. Lines of hard
# links stay: which names are one file is only known from all of them.

HEAD = 2
"""The header and the directory's own line."""
LINK_WORD = b" l="


class TrimmedPair(NamedTuple):
    """The texts of two shards without equal lines, and the two trees that belong to them."""

    texts: tuple[bytes, bytes]
    trees: tuple[Tree, Tree]


def drop_equal_lines(texts: tuple[bytes, bytes], trees: tuple[Tree, Tree], *, top: bool) -> TrimmedPair:
    """Leave out what is equal; nothing where the directory changed hands, since its lines mean its owner."""
    whole = TrimmedPair(texts, trees)
    if max(map(len, texts)) > BUDGET.size:
        return whole
    old, new = (text.removesuffix(b"\n").split(b"\n") for text in texts)
    if min(len(old), len(new)) < HEAD or _owner(old[1]) != _owner(new[1]):
        return whole
    moved = {name for name, _ in trees[0].items() ^ trees[1].items()}
    told = {quote(name) for name in _true_names(moved)}
    kept = _differing(old[HEAD:], new[HEAD:], told, linked=LINK_WORD in texts[0])
    wanted = moved.union(_stored_names_of({unquote(_word(line)) for lines in kept for line in lines}, top))
    return TrimmedPair(
        (_join_lines(old, kept[0]), _join_lines(new, kept[1])),
        (_choose(trees[0], wanted), _choose(trees[1], wanted)),
    )


def _differing(
    old: list[bytes], new: list[bytes], told: set[bytes], *, linked: bool
) -> tuple[list[bytes], list[bytes]]:
    """Return the lines that differ between the two sides, and those of names that are `told`."""
    if len(old) == len(new) and not linked:
        # Mostly no name came or went: line beside line is twenty times as fast as looking each of them up.
        differs = list(map(ne, old, new))
        mine, theirs = list(compress(old, differs)), list(compress(new, differs))
        if told.issubset(map(_word, mine)):
            old, new = mine, theirs
    common = {line for line in set(old).intersection(new) if LINK_WORD not in line}
    if told:
        common = {line for line in common if _word(line) not in told}
    kept = tuple([line for line in lines if line not in common] if common else lines for lines in (old, new))
    return kept[0], kept[1]


def _true_names(stored: Collection[bytes]) -> Collection[bytes]:
    return set(map(true_name, stored)) if suspicious(b"\0".join(stored)) else stored


def _stored_names_of(names: Collection[bytes], top: bool) -> set[bytes]:
    """Whatever the tree may call them."""
    if b"" not in names and not suspicious(b"\0".join(names)):
        return set(names)
    return set().union(*(_stored(name, top) for name in names))


def _stored(name: bytes, top: bool) -> tuple[bytes, bytes]:
    # What no tree can hold is refused where the line is read.
    if not name or b"/" in name or b"\0" in name or name in (b".", b".."):
        return (name, name)
    return stored_name(name, top=top), stored_name(name, top=top, link=True)


def _join_lines(lines: list[bytes], kept: list[bytes]) -> bytes:
    return b"\n".join([*lines[:HEAD], *kept]) + b"\n"


def _choose(tree: Tree, wanted: set[bytes]) -> Tree:
    return {name: tree[name] for name in wanted if name in tree}


def _owner(own: bytes) -> list[bytes]:
    return own.split(b" ")[4:6]


def _word(line: bytes) -> bytes:
    return line.partition(b" ")[0]


def differing_directories(objects: Objects, before: bytes | None, after: bytes) -> Iterator[DirectoryPair]:
    """Every directory that differs between two trees, given by their raw ids; `before` None: nothing is there."""
    old = SnapshotReader(objects, before)
    new = SnapshotReader(objects, after, old)
    differing = _differing_shards(old, new)
    differing.update(_differing_trees(old, new))
    met: set[int] = set()
    for stored in sorted(differing):
        pair = _pair(old, new, stored)
        met.update(_groups_that_differ(pair))
        yield pair
        old.forget(stored)
        new.forget(stored)
    if met:
        for stored in sorted(old.directories_with_links(met) | new.directories_with_links(met)):
            if stored not in differing:
                yield _pair(old, new, stored)


def compare_directories(
    objects: Objects, before: bytes, after: bytes, directories: Iterable[bytes]
) -> Iterator[DirectoryPair]:
    """Some directories, given by their stored paths, whether they differ or not."""
    old = SnapshotReader(objects, before)
    new = SnapshotReader(objects, after, old)
    for stored in directories:
        yield _pair(old, new, stored)


def same_environment(objects: Objects, one: bytes, other: bytes) -> bool:
    """Whether two trees hold the same environment: facts and the like, which each keeps beside it, may differ."""
    old = SnapshotReader(objects, one)
    return old.environment == SnapshotReader(objects, other, old).environment


def _pair(old: SnapshotReader, new: SnapshotReader, stored: bytes) -> DirectoryPair:
    place = new.place(stored) if new.has(stored) else old.place(stored)
    if not _is_directory(old, stored) or not _is_directory(new, stored):
        return DirectoryPair(place.root, place.path, _listing(old, stored), _listing(new, stored))
    if stored and (ids := old.ids(stored)) == new.ids(stored):
        alike = _alike(old, place, ids[1])
        if alike is not None:
            return alike
    trimmed = drop_equal_lines(
        (old.text(stored), new.text(stored)), (old.tree(stored), new.tree(stored)), top=not stored
    )
    before, after = (
        read_listing(half, half.place(stored), text, tree)
        for half, text, tree in zip((old, new), trimmed.texts, trimmed.trees, strict=True)
    )
    return DirectoryPair(place.root, place.path, before, after)


def _alike(half: SnapshotReader, place: DirectoryPlace, tree: bytes) -> DirectoryPair | None:
    """A directory that is the same on both sides, its objects read and nothing taken apart; None where that tells too
    little."""
    text = half.text(place.stored)
    if LINK_WORD in text or len(text) > BUDGET.size or text.count(b"\n") < HEAD:
        return None
    with damage_context(place.stored):
        if tree:
            tree_text(half.objects, tree)
    head = text[: text.index(b"\n", text.index(b"\n") + 1) + 1]
    own = read_listing(half, place, head, {})
    return DirectoryPair(place.root, place.path, own, own)


def _listing(half: SnapshotReader, stored: bytes) -> DirectoryListing | None:
    """A directory, its tree and its manifest joined; None where it is none on this side."""
    if not _is_directory(half, stored):
        return None
    return read_listing(half, half.place(stored), half.text(stored), half.tree(stored))


def _is_directory(half: SnapshotReader, stored: bytes) -> bool:
    """Whether a directory stands there on this side; the manifest, the tree and the directory above must agree."""
    described, named = half.has(stored), half.is_named(stored)
    if described and not named:
        raise damaged("a directory is described that nothing holds:", stored)
    if not described and (named or half.tree(stored)):
        raise damaged("no directory is described for what stands in", stored)
    return described


def read_listing(half: SnapshotReader, place: DirectoryPlace, text: bytes, tree: Tree) -> DirectoryListing:
    """What a directory holds, its shard and its tree joined."""
    listing = _read_plain(place, text, tree)
    if listing is None:
        listing = _join(read_shard(text, directory=place.stored), place, tree)
    for name, entry in listing.entries.items():
        if entry.kind is EntryKind.DIRECTORY and not half.has(_below(place, name)):
            raise damaged("a directory is named that nothing describes:", entry.path)
    return listing


def _read_plain(place: DirectoryPlace, text: bytes, tree: Tree) -> DirectoryListing | None:
    """The same, quickly, where nothing is out of the ordinary; None where anything is."""
    start = text.find(b"\n", text.find(b"\n") + 1) + 1
    if not start:
        return None
    own = plain_own(text[:start], place.stored, place.path)
    if own is None:
        line = scan_shard(text[:start], directory=place.stored).own
        own = _whole(line, place.path, line, None)
    entries = plain_entries(text, start, place.path, own, tree)
    return None if entries is None else DirectoryListing(own, entries)


def _below(place: DirectoryPlace, name: bytes) -> bytes:
    if name == GIT and not place.root and not place.stored.startswith(NESTED + b"/") and place.path:
        return dotgit_directory(place.path)
    return place.stored + b"/" + stored_name(name) if place.stored else stored_name(name, top=True)


def _groups_that_differ(pair: DirectoryPair) -> Iterator[int]:
    before = pair.before.entries if pair.before is not None else {}
    after = pair.after.entries if pair.after is not None else {}
    for mine, theirs in ((before, after), (after, before)):
        for name, entry in mine.items():
            if entry.link_group is not None:
                other = theirs.get(name)
                if other != entry:
                    yield entry.link_group


def _differing_shards(old: SnapshotReader, new: SnapshotReader) -> set[bytes]:
    found: set[bytes] = set()
    for outer in old.manifest.keys() | new.manifest.keys():
        if old.manifest.get(outer) == new.manifest.get(outer):
            continue
        mine, theirs = old.shards_below(outer), new.shards_below(outer)
        for inner in mine.keys() | theirs.keys():
            if mine.get(inner) != theirs.get(inner):
                names = (outer, inner)
                found.update(
                    side.stored_at(*names) for side in (old, new) if inner in side.shards_below(outer)
                )
    return found


def _differing_trees(old: SnapshotReader, new: SnapshotReader) -> Iterator[bytes]:
    todo = [b"", *_roots(old, new)]
    while todo:
        stored = todo.pop()
        mine, theirs = old.tree(stored), new.tree(stored)
        if mine == theirs:
            continue
        yield stored
        for side, entries in ((old, mine), (new, theirs)):
            # Whoever nests trees without end would have to describe each of them.
            if entries and not side.has(stored):
                raise damaged("no directory is described for what stands in", stored)
        below = {name for name, (mode, _) in mine.items() ^ theirs.items() if mode == DIRECTORY}
        todo += [stored + b"/" + name if stored else name for name in below]
        old.forget(stored)
        new.forget(stored)


def _roots(old: SnapshotReader, new: SnapshotReader) -> Iterator[bytes]:
    for above in (NESTED, ROOT):
        for name in old.tree(above).keys() | new.tree(above).keys():
            yield above + b"/" + name


def _join(shard: Shard, place: DirectoryPlace, tree: Tree) -> DirectoryListing:
    """The entries with the ids that the tree has for them and the owners they inherit; both must name the same."""
    own = shard.own
    prefix = place.path + b"/" if place.path else b""
    cut = len(shard.entries[0].path.rpartition(b"/")[0]) if shard.entries else 0
    cut += 1 if cut else 0
    names = [entry.path[cut:] for entry in shard.entries]
    stored = _stored_names(shard, names)
    left = dict(tree)
    entries = {}
    for name, kept_as, entry in zip(names, stored, shard.entries, strict=True):
        found = left.pop(kept_as, None)
        oid = _checked(entry, found) if found is not None else None
        entries[name] = _whole(entry, EnvPath(prefix + name), own, oid)
    if left:
        raise damaged("the manifest does not name what the tree holds:", shard.directory + b"/" + min(left))
    return DirectoryListing(_whole(own, place.path, own, None), entries)


def _stored_names(shard: Shard, names: list[bytes]) -> list[bytes]:
    top = not shard.directory
    if top and GIT in names:
        raise damaged("the environment's own repository is no part of a snapshot:", GIT)
    if not suspicious(b"\0".join(names)):
        return names
    links = [entry.kind is EntryKind.LINK for entry in shard.entries]
    return [stored_name(name, top=top, link=link) for name, link in zip(names, links, strict=True)]


def _checked(entry: Entry, found: tuple[int, bytes]) -> bytes | None:
    mode, oid = found
    if entry.kind is EntryKind.DIRECTORY:
        fits = mode == DIRECTORY
    elif entry.kind is EntryKind.LINK:
        fits = mode == LINK
    else:
        fits = (
            entry.kind is EntryKind.FILE and (mode == EXECUTABLE) == bool(entry.mode & 0o100) and mode != LINK
        )
        fits = fits and mode != DIRECTORY
    if not fits:
        raise damaged("the tree and the manifest disagree about", entry.path)
    return None if mode == DIRECTORY else oid


def _whole(entry: Entry, path: EnvPath, own: Entry, oid: bytes | None) -> Entry:
    # Spelled out: `replace` takes three times as long, and this is done for every path.
    return Entry(
        path,
        entry.kind,
        entry.mode,
        entry.mtime_ns,
        None if oid is None else ObjectId(oid),
        entry.stored,
        own.uid if entry.uid is None else entry.uid,
        own.gid if entry.gid is None else entry.gid,
        entry.xattrs,
        entry.link_group,
        entry.device,
        entry.notes,
    )


# One snapshot, directory by directory, for who writes all of it.
#
# Which directories there are is told by the trees, and for those that no tree can hold (empty ones, say) by what is
# left of the manifest then. What stands in one is read with the same suspicion as `pairs` has, in any process: 100,000
# entries take a second to read, which the processes that write the files share.

ShardIds = tuple[bytes, bytes]
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
        self._left: set[ShardIds] = set()

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
        return sorted({self._half.place(stored).root for stored in self._tops(ROOT)})

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
            if not split_root(stored)[0].startswith(ROOT + b"/"):
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
