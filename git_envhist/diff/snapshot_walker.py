"""Walk two snapshots in parallel for a restore: every directory that differs, with its entries on both sides.

Trees and manifest are walked in lockstep, and equal subtrees are skipped. A snapshot may be untrusted, and a restore
writes everything it reads: so the tree and the manifest must agree on every name, each directory must be named by its
parent, and anything that a capture would not write raises Damaged before a file is changed.

An unchanged directory is returned as well if it has a hard link of a group with differences, because all names of a
group are needed. `SnapshotWalker` walks a single snapshot, for a fork.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from git_envhist.model import DirectoryListing, DirectoryPair, Entry, EntryKind, EnvPath, ObjectId
from git_envhist.objects.trees import DIRECTORY, EXECUTABLE, LINK, decode_by_name
from git_envhist.snapshots.layout import dotgit_directory, shard_path, split_root
from git_envhist.snapshots.manifest import BUDGET, Shard, plain_entries, plain_own, read_shard, scan_shard
from git_envhist.snapshots.quoting import first_word, owner_words, quote, unquote, without_equal_pairs
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
from git_envhist.snapshots.stored_names import may_need_escape, stored_name, true_name

# A directory without the lines that are equal on both sides: for 20,000 files of which one was touched, two texts
# are compared and two lines parsed. Lines of hard links are kept, because all names of a group are needed.

HEAD = 2
"""The first line and the directory's own line."""
LINK_WORD = b" l="


class TrimmedPair(NamedTuple):
    """The texts of two shards without equal lines, and their trees."""

    texts: tuple[bytes, bytes]
    trees: tuple[Tree, Tree]


def drop_equal_lines(texts: tuple[bytes, bytes], trees: tuple[Tree, Tree], *, top: bool) -> TrimmedPair:
    """Leave out equal lines; none if the directory's owner changed, because lines may inherit it."""
    whole = TrimmedPair(texts, trees)
    if max(map(len, texts)) > BUDGET.size:
        return whole
    old, new = (text.removesuffix(b"\n").split(b"\n") for text in texts)
    if min(len(old), len(new)) < HEAD or owner_words(old[1]) != owner_words(new[1]):
        return whole
    moved = {name for name, _ in trees[0].items() ^ trees[1].items()}
    changed = {quote(name) for name in _true_names(moved)}
    remaining = _differing(old[HEAD:], new[HEAD:], changed, linked=LINK_WORD in texts[0])
    wanted = moved.union(
        _stored_names_of({unquote(first_word(line)) for lines in remaining for line in lines}, top)
    )
    return TrimmedPair(
        (_join_lines(old, remaining[0]), _join_lines(new, remaining[1])),
        (_choose(trees[0], wanted), _choose(trees[1], wanted)),
    )


def _differing(
    old: list[bytes], new: list[bytes], changed: set[bytes], *, linked: bool
) -> tuple[list[bytes], list[bytes]]:
    """Return the lines that are not on both sides, and those of names in `changed`."""
    if len(old) == len(new) and not linked:
        only_old, only_new = without_equal_pairs(old, new)
        if changed.issubset(map(first_word, only_old)):
            old, new = only_old, only_new
    common = {line for line in set(old).intersection(new) if LINK_WORD not in line}
    if changed:
        common = {line for line in common if first_word(line) not in changed}
    remaining = tuple(
        [line for line in lines if line not in common] if common else lines for lines in (old, new)
    )
    return remaining[0], remaining[1]


def _true_names(stored: Collection[bytes]) -> Collection[bytes]:
    return set(map(true_name, stored)) if may_need_escape(b"\0".join(stored)) else stored


def _stored_names_of(names: Collection[bytes], top: bool) -> set[bytes]:
    """Return all stored names that a tree may have for these names."""
    if b"" not in names and not may_need_escape(b"\0".join(names)):
        return set(names)
    return set().union(*(_stored(name, top) for name in names))


def _stored(name: bytes, top: bool) -> tuple[bytes, bytes]:
    # A name that no tree can contain is refused when its line is read.
    if not name or b"/" in name or b"\0" in name or name in (b".", b".."):
        return (name, name)
    return stored_name(name, top=top), stored_name(name, top=top, link=True)


def _join_lines(lines: list[bytes], remaining: list[bytes]) -> bytes:
    return b"\n".join([*lines[:HEAD], *remaining]) + b"\n"


def _choose(tree: Tree, wanted: set[bytes]) -> Tree:
    return {name: tree[name] for name in wanted if name in tree}


def differing_directories(objects: Objects, before: bytes | None, after: bytes) -> Iterator[DirectoryPair]:
    """Yield every directory that differs between two trees, given by raw ids; `before` None: an empty tree."""
    old = SnapshotReader(objects, before)
    new = SnapshotReader(objects, after, old)
    differing = _differing_shards(old, new)
    differing.update(_differing_trees(old, new))
    groups: set[int] = set()
    for stored in sorted(differing):
        pair = _pair(old, new, stored)
        groups.update(_groups_that_differ(pair))
        yield pair
        old.forget(stored)
        new.forget(stored)
    if groups:
        for stored in sorted(old.directories_with_links(groups) | new.directories_with_links(groups)):
            if stored not in differing:
                yield _pair(old, new, stored)


def compare_directories(
    objects: Objects, before: bytes, after: bytes, directories: Iterable[bytes]
) -> Iterator[DirectoryPair]:
    """Yield some directories, given by stored paths, whether they differ or not."""
    old = SnapshotReader(objects, before)
    new = SnapshotReader(objects, after, old)
    for stored in directories:
        yield _pair(old, new, stored)


def same_environment(objects: Objects, one: bytes, other: bytes) -> bool:
    """Return whether two trees have the same environment; facts and other stored data may differ."""
    old = SnapshotReader(objects, one)
    return old.environment == SnapshotReader(objects, other, old).environment


def _pair(old: SnapshotReader, new: SnapshotReader, stored: bytes) -> DirectoryPair:
    place = new.place(stored) if new.has(stored) else old.place(stored)
    if not _is_directory(old, stored) or not _is_directory(new, stored):
        return DirectoryPair(place.root, place.path, _listing(old, stored), _listing(new, stored))
    if stored and (ids := old.ids(stored)) == new.ids(stored):
        equal = _equal_directory(old, place, ids[1])
        if equal is not None:
            return equal
    trimmed = drop_equal_lines(
        (old.text(stored), new.text(stored)), (old.tree(stored), new.tree(stored)), top=not stored
    )
    before, after = (
        read_listing(side, side.place(stored), text, tree)
        for side, text, tree in zip((old, new), trimmed.texts, trimmed.trees, strict=True)
    )
    return DirectoryPair(place.root, place.path, before, after)


def _equal_directory(side: SnapshotReader, place: DirectoryPlace, tree: bytes) -> DirectoryPair | None:
    """Return a directory that is equal on both sides without parsing its lines; None if they must be parsed."""
    text = side.text(place.stored)
    if LINK_WORD in text or len(text) > BUDGET.size or text.count(b"\n") < HEAD:
        return None
    with damage_context(place.stored):
        if tree:
            tree_text(side.objects, tree)
    head = text[: text.index(b"\n", text.index(b"\n") + 1) + 1]
    own = read_listing(side, place, head, {})
    return DirectoryPair(place.root, place.path, own, own)


def _listing(side: SnapshotReader, stored: bytes) -> DirectoryListing | None:
    """Return a directory with its tree and manifest joined; None if it does not exist on this side."""
    if not _is_directory(side, stored):
        return None
    return read_listing(side, side.place(stored), side.text(stored), side.tree(stored))


def _is_directory(side: SnapshotReader, stored: bytes) -> bool:
    """Return whether a directory exists on this side; the manifest, the tree and the parent must agree."""
    described, named = side.has(stored), side.is_named(stored)
    if described and not named:
        raise damaged("the manifest has a directory that its parent does not name:", stored)
    if not described and (named or side.tree(stored)):
        raise damaged("the manifest has no directory for", stored)
    return described


def read_listing(side: SnapshotReader, place: DirectoryPlace, text: bytes, tree: Tree) -> DirectoryListing:
    """Return the entries of a directory, from its shard and its tree."""
    listing = _read_plain(place, text, tree)
    if listing is None:
        listing = _join(read_shard(text, directory=place.stored), place, tree)
    for name, entry in listing.entries.items():
        if entry.kind is EntryKind.DIRECTORY and not side.has(_below(place, name)):
            raise damaged("a directory is named that is not in the manifest:", entry.path)
    return listing


def _read_plain(place: DirectoryPlace, text: bytes, tree: Tree) -> DirectoryListing | None:
    """Do the same by a fast path for plain shards; None for any other."""
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
    for one, other_side in ((before, after), (after, before)):
        for name, entry in one.items():
            if entry.link_group is not None:
                other = other_side.get(name)
                if other != entry:
                    yield entry.link_group


def _differing_shards(old: SnapshotReader, new: SnapshotReader) -> set[bytes]:
    found: set[bytes] = set()
    for outer in old.manifest.keys() | new.manifest.keys():
        if old.manifest.get(outer) == new.manifest.get(outer):
            continue
        before, after = old.shards_below(outer), new.shards_below(outer)
        for inner in before.keys() | after.keys():
            if before.get(inner) != after.get(inner):
                names = (outer, inner)
                found.update(
                    side.stored_at(*names) for side in (old, new) if inner in side.shards_below(outer)
                )
    return found


def _differing_trees(old: SnapshotReader, new: SnapshotReader) -> Iterator[bytes]:
    todo = [b"", *_roots(old, new)]
    while todo:
        stored = todo.pop()
        before, after = old.tree(stored), new.tree(stored)
        if before == after:
            continue
        yield stored
        for side, entries in ((old, before), (new, after)):
            # Each directory must have a shard, so trees cannot be nested without limit.
            if entries and not side.has(stored):
                raise damaged("the manifest has no directory for", stored)
        below = {name for name, (mode, _) in before.items() ^ after.items() if mode == DIRECTORY}
        todo += [stored + b"/" + name if stored else name for name in below]
        old.forget(stored)
        new.forget(stored)


def _roots(old: SnapshotReader, new: SnapshotReader) -> Iterator[bytes]:
    for above in (NESTED, ROOT):
        for name in old.tree(above).keys() | new.tree(above).keys():
            yield above + b"/" + name


def _join(shard: Shard, place: DirectoryPlace, tree: Tree) -> DirectoryListing:
    """Join the entries with the tree's ids and with inherited owners; both must have the same names."""
    own = shard.own
    prefix = place.path + b"/" if place.path else b""
    cut = len(shard.entries[0].path.rpartition(b"/")[0]) if shard.entries else 0
    cut += 1 if cut else 0
    names = [entry.path[cut:] for entry in shard.entries]
    stored = _stored_names(shard, names)
    left = dict(tree)
    entries = {}
    for name, stored_as, entry in zip(names, stored, shard.entries, strict=True):
        found = left.pop(stored_as, None)
        oid = _checked(entry, found) if found is not None else None
        entries[name] = _whole(entry, EnvPath(prefix + name), own, oid)
    if left:
        raise damaged(
            "the tree contains a name that the manifest does not:", shard.directory + b"/" + min(left)
        )
    return DirectoryListing(_whole(own, place.path, own, None), entries)


def _stored_names(shard: Shard, names: list[bytes]) -> list[bytes]:
    top = not shard.directory
    if top and GIT in names:
        raise damaged("a snapshot cannot contain the environment's own repository:", GIT)
    if not may_need_escape(b"\0".join(names)):
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
    # Written out because `replace` takes three times as long, and this runs for every path.
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


# A single snapshot, directory by directory. Trees list the directories; those that no tree can contain (empty ones)
# are in the rest of the manifest. The entries of a directory are read later with the same checks, in any process:
# 100,000 entries take a second, which the processes that write the files share.

ShardIds = tuple[bytes, bytes]
NESTED_DEPTH = 2
OF_DIRECTORIES = b"40000 "
"""The beginning of a directory's entry in a tree."""


class FoundDirectory(NamedTuple):
    """A directory of a snapshot with unread entries."""

    place: DirectoryPlace
    tree: bytes | None
    """The content of its tree; None if no tree contains it."""
    shard: bytes
    entries: int
    """The approximate number of entries in its tree."""
    directories: tuple[bytes, ...]
    """The true names of its subdirectories that trees contain."""

    @property
    def is_nested(self) -> bool:
        """Return whether it is the `.git` of a nested repository, whose tree is stored in another place."""
        return self.place.stored.startswith(NESTED + b"/") and self.place.stored.count(b"/") == NESTED_DEPTH


class SnapshotWalker:
    """The working tree of one snapshot; of additional roots only the names are read."""

    def __init__(self, objects: Objects, root: bytes) -> None:
        self._objects = objects
        self._reader = SnapshotReader(objects, root)
        # Read before the process is forked, so that each copy has them.
        self._top = self._reader.tree(b"")
        self._shards = {
            (outer, inner) for outer in self._reader.manifest for inner in self._reader.shards_below(outer)
        }
        self._left: set[ShardIds] = set()

    def directories(self) -> Iterator[FoundDirectory]:
        """Yield every directory, each after its parent."""
        self._left = set(self._shards)
        yield from self._walk(b"", None)
        nested = [found for stored in self._tops(NESTED) for found in self._nested(stored)]
        rest = sorted(self._rest(), key=lambda stored: stored.split(b"/"))
        yield from (self._bare(stored) for stored in rest if not stored.startswith(NESTED + b"/"))
        inside = [self._bare(stored) for stored in rest if stored.startswith(NESTED + b"/")]
        yield from sorted([*nested, *inside], key=lambda found: found.place.path.split(b"/"))

    def roots(self) -> list[bytes]:
        """Return the names of the additional roots in the snapshot."""
        return sorted({self._reader.place(stored).root for stored in self._tops(ROOT)})

    def listing(self, found: FoundDirectory, objects: Objects) -> DirectoryListing:
        """Return the entries of a directory, read through the `objects` of this process."""
        kind, text = objects.read(found.shard)
        if kind != b"blob":
            raise damaged("a shard of the manifest is not a blob:", found.place.stored)
        if not found.place.stored:
            tree = self._top
        else:
            tree = {} if found.tree is None else decode_by_name(found.tree, len(found.shard))
        return read_listing(self._reader, found.place, text, tree)

    def below(self, path: EnvPath) -> Iterator[Entry]:
        """Yield all entries below a directory, each directory before its contents."""
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
                # The reader of its entries checks that it is a tree.
                entries = text.count(b"\0")
            names = tuple([true_name(name) for name, _ in below])
            yield FoundDirectory(self._reader.place(stored), text, self._shard(stored), entries, names)
            prefix = stored + b"/" if stored else b""
            todo += [(prefix + name, inner) for name, inner in reversed(below)]

    def _nested(self, stored: bytes) -> Iterator[FoundDirectory]:
        if not self._reader.is_named(stored):
            raise damaged("the manifest does not name the nested repository", stored)
        mode, oid = self._reader.tree(NESTED)[stored.rpartition(b"/")[2]]
        return self._walk(stored, oid) if mode == DIRECTORY else iter(())

    def _tops(self, above: bytes) -> Iterable[bytes]:
        return [above + b"/" + name for name in sorted(self._reader.tree(above))]

    def _rest(self) -> Iterator[bytes]:
        """Yield directories of the manifest that no tree contains, without those of additional roots."""
        for outer, inner in sorted(self._left):
            stored = self._reader.stored_at(outer, inner)
            if not split_root(stored)[0].startswith(ROOT + b"/"):
                yield stored

    def _bare(self, stored: bytes) -> FoundDirectory:
        if not self._reader.is_named(stored):
            raise damaged("the manifest has a directory that its parent does not name:", stored)
        return FoundDirectory(self._reader.place(stored), None, self._shard(stored), 0, ())

    def _shard(self, stored: bytes) -> bytes:
        outer, inner = (name.encode("ascii") for name in shard_path(stored))
        found = self._reader.shards_below(outer).get(inner)
        if found is None:
            raise damaged("the manifest has no directory for", stored)
        self._left.discard((outer, inner))
        return found[1]


def _directories(tree: Tree) -> list[tuple[bytes, bytes]]:
    """Return the stored name and the id of each directory in a tree."""
    return [(name, item[1]) for name, item in tree.items() if item[0] == DIRECTORY]
