"""Two snapshots side by side for a restore: every directory that differs, with what differs in it.

Trees are walked in lockstep and equal subtrees skipped; the manifest likewise. What is read may come from anywhere,
and a restore writes what it says: so the tree and the manifest must say the same of every name, each directory must
hang in the one above it, and whatever a capture would not have written is `Damaged` before anything is touched.

An unchanged directory is given too where it holds a hard link of a group that has to do with what differs: which names
one file has cannot be told from a part of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from git_envhist.model import DirectoryListing, DirectoryPair, Entry, EntryKind, EnvPath, ObjectId
from git_envhist.store.halves import (
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
from git_envhist.store.layout import dotgit_directory
from git_envhist.store.manifest import BUDGET, Shard, read_shard, scan_shard
from git_envhist.store.names import stored_name, suspicious
from git_envhist.store.plainlists import plain_entries, plain_own
from git_envhist.store.trees import DIRECTORY, EXECUTABLE, LINK
from git_envhist.store.trimming import HEAD, LINK_WORD, drop_equal_lines


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
        return DirectoryPair(place.realm, place.path, _listing(old, stored), _listing(new, stored))
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
    return DirectoryPair(place.realm, place.path, before, after, trimmed.left_out)


def _alike(half: SnapshotReader, place: DirectoryPlace, tree: bytes) -> DirectoryPair | None:
    """A directory that is the same on both sides, its objects read and nothing taken apart; None where that tells too
    little."""
    text = half.text(place.stored)
    lines = text.count(b"\n") - HEAD
    if LINK_WORD in text or len(text) > BUDGET.size or lines < 0:
        return None
    with damage_context(place.stored):
        if tree:
            tree_text(half.objects, tree)
    head = text[: text.index(b"\n", text.index(b"\n") + 1) + 1]
    own = read_listing(half, place, head, {})
    return DirectoryPair(place.realm, place.path, own, own, lines)


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
    if name == GIT and not place.realm and not place.stored.startswith(NESTED + b"/") and place.path:
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
    todo = [b"", *_realms(old, new)]
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


def _realms(old: SnapshotReader, new: SnapshotReader) -> Iterator[bytes]:
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
