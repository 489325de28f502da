"""Compare manifest shards: modes, owners, attributes, empty directories, pipes, which git's trees do not contain.

Only differing shards are read, and of these only differing lines: for a directory of 20,000 files of which one was
touched, two texts are compared and two lines parsed. Times are not compared, because a build touches files without
changing them.
"""

from __future__ import annotations

import re
from binascii import hexlify, unhexlify
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from git_envhist.diff.tree_diff import ABSENT, MANIFEST_PREFIX, DiffRow
from git_envhist.errors import Damaged
from git_envhist.git.cat_file import CatFile, GitObject
from git_envhist.model import Entry, EntryKind, StoredAs
from git_envhist.objects.object_readers import PackFirstReader
from git_envhist.objects.trees import DIRECTORY, FILE, decode_by_name
from git_envhist.snapshots.layout import MANIFEST
from git_envhist.snapshots.quoting import (
    UNSAFE,
    first_word,
    owner_words,
    quote,
    unquote_path,
    without_equal_pairs,
)
from git_envhist.snapshots.stored_names import RESERVED, may_need_escape, stored_name, true_name

LINE_FEED = 0x0A


class PathMetadata(NamedTuple):
    """The manifest's metadata of a path, without times."""

    kind: EntryKind
    mode: int
    stored: StoredAs
    owner: tuple[int | None, int | None]
    xattrs: tuple[tuple[bytes, bytes], ...]
    device: int | None
    fingerprint: str | None


class MetadataPair(NamedTuple):
    """The metadata of a path on both sides; None if the manifest does not name it."""

    before: PathMetadata | None
    after: PathMetadata | None


Texts = dict[bytes, tuple[bytes | None, bytes | None]]
"""The shards before and after, by stored directory; the same object twice if they are equal."""


def read_differences(
    reader: CatFile | PackFirstReader,
    shards: Iterable[tuple[bytes | None, bytes | None]],
    contents: Iterable[bytes],
    after: str,
    certain: Iterable[bytes] = (),
) -> dict[bytes, MetadataPair]:
    """Return the metadata, by stored path, of paths with differing lines, and of the paths in `contents`.

    `shards` are the ids, in hex, of differing shards. Nothing is returned for paths in `certain`.
    """
    wanted, skipped = by_directory(contents), by_directory(certain)
    texts = _read_pairs(reader, shards)
    texts.update(_read_unchanged(reader, [name for name in wanted if name not in texts], after))
    found: dict[bytes, MetadataPair] = {}
    for directory, (old, new) in texts.items():
        names, excluded = wanted.get(directory, ()), skipped.get(directory, ())
        for path, both in _compare_shards(directory, old, new, names, excluded):
            found[path] = _merge(found.get(path), both)
    return found


def by_directory(paths: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """Return the names of stored paths by their directories."""
    found: dict[bytes, list[bytes]] = {}
    for path in paths:
        directory, _, name = path.rpartition(b"/")
        found.setdefault(directory, []).append(name)
    return found


def _merge(known: MetadataPair | None, more: MetadataPair) -> MetadataPair:
    # If a directory replaces a file, the file is in its parent's shard and the directory in its own.
    return more if known is None else MetadataPair(more.before or known.before, more.after or known.after)


def _read_pairs(
    reader: CatFile | PackFirstReader, shards: Iterable[tuple[bytes | None, bytes | None]]
) -> Texts:
    pairs = list(shards)
    blobs = reader.read_many([oid for pair in pairs for oid in pair if oid is not None])
    texts: Texts = {}
    for pair in pairs:
        old, new = (_text(next(blobs)) if oid is not None else None for oid in pair)
        texts[shard_directory(old if new is None else new)] = (old, new)
    return texts


def _read_unchanged(reader: CatFile | PackFirstReader, directories: list[bytes], after: str) -> Texts:
    # A change of bytes with the same time leaves the shard unchanged; it contains the storage of the file.
    if not directories:
        return {}
    from git_envhist.snapshots.layout import shard_path  # loaded late: most lists of paths need no line

    places = [shard_path(directory) for directory in directories]
    answers = reader.read_many(f"{after}:{MANIFEST_PREFIX.decode()}{first}/{rest}" for first, rest in places)
    found = zip(directories, answers, strict=True)
    return {directory: (blob.data, blob.data) for directory, blob in found if blob is not None}


def _text(answer: GitObject | None) -> bytes:
    if answer is None:
        raise Damaged("a shard of the manifest is missing from the repository")
    return answer.data


def shard_directory(text: bytes | None) -> bytes:
    """Return the stored directory of a shard."""
    assert text is not None
    head = text.partition(b"\n")[0].split(b" ")
    if len(head) != 3:
        raise Damaged("a shard of the manifest has an invalid first line")
    return unquote_path(head[2])


def _compare_shards(
    directory: bytes,
    old: bytes | None,
    new: bytes | None,
    names: Iterable[bytes],
    certain: Iterable[bytes] = (),
) -> Iterator[tuple[bytes, MetadataPair]]:
    if old is not None and new is not None:
        old, new = _without_equal_lines(old, new, names, certain)
        if not names and _without_times(old) == _without_times(new):
            return
    before = _read(old)
    after = before if new == old else _read(new)
    for path in {**before, **after} if after is not before else before:
        yield path, MetadataPair(before.get(path), after.get(path))


def _without_equal_lines(
    old: bytes, new: bytes, names: Iterable[bytes], certain: Iterable[bytes] = ()
) -> tuple[bytes, bytes]:
    """Return both texts without equal lines, except for lines of `names`, and without lines of `certain`."""
    old_head, old_own, old_body = _split(old)
    new_head, new_own, new_body = _split(new)
    if old_head != new_head or owner_words(old_own) != owner_words(new_own):
        # A line without an owner means the directory's owner.
        return old, new
    start, old_end, new_end = _where_they_differ(old_body, new_body)
    old_lines, new_lines = without_equal_pairs(
        _lines(old_body[start:old_end]), _lines(new_body[start:new_end])
    )
    remaining = set(old_lines) ^ set(new_lines)
    if certain:
        excluded = quoted_names(certain)
        remaining = {line for line in remaining if first_word(line) not in excluded}
    required = quoted_names(names).difference(map(first_word, remaining))
    return (
        _joined(old_head, old_own, old_body, old_lines, remaining, required),
        _joined(new_head, new_own, new_body, new_lines, remaining, required),
    )


def _split(text: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a shard's first line, its directory's own line, and the others with a line feed after each."""
    head, _, rest = text.partition(b"\n")
    own, _, body = rest.partition(b"\n")
    return head, own, body.rstrip(b"\n") + b"\n" if body else b""


def _where_they_differ(old: bytes, new: bytes) -> tuple[int, int, int]:
    """Return (start of the first differing line, end of the last one in either text)."""
    start = old.rfind(b"\n", 0, _same_at_start(old, new)) + 1
    same = _same_at_end(old, new, min(len(old), len(new)) - start)
    old_end, new_end = len(old) - same, len(new) - same
    if not (_begins_line(old, old_end) and _begins_line(new, new_end)):
        rest_of_line = old.find(b"\n", old_end) + 1 - old_end
        old_end, new_end = old_end + rest_of_line, new_end + rest_of_line
    return start, old_end, new_end


def _begins_line(text: bytes, at: int) -> bool:
    return at == 0 or text[at - 1] == LINE_FEED


def _same_at_start(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix, by bisection, because comparing bytes is fast."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _same_at_end(one: bytes, other: bytes, limit: int) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def _without_times(text: bytes) -> list[list[bytes]]:
    """Return the words of all lines without times."""
    lines = [line.split(b" ") for line in text.split(b"\n")]
    for words in lines[1:]:
        del words[3:4]
    return lines


def _lines(body: bytes) -> list[bytes]:
    return body.split(b"\n")[:-1]


def quoted_names(names: Iterable[bytes]) -> set[bytes]:
    """Return the quoted forms of stored names that a shard contains."""
    listed = list(names)
    joined = b"\0".join(listed)
    if may_need_escape(joined) or UNSAFE.search(joined.replace(b"\0", b"")) is not None:
        return {quote(true_name(name)) for name in listed}
    return set(listed)


def _joined(
    head: bytes, own: bytes, body: bytes, differing: list[bytes], remaining: set[bytes], required: set[bytes]
) -> bytes:
    lines = [line for line in differing if line in remaining]
    if required:
        lines = [line for line in _lines(body) if line in remaining or first_word(line) in required]
    return b"\n".join([head, own, *lines]) + b"\n"


def _read(text: bytes | None) -> Mapping[bytes, PathMetadata]:
    if text is None:
        return {}
    from git_envhist.snapshots.manifest import scan_shard  # loaded late: most lists of paths need no line

    shard = scan_shard(text)
    prefix = shard.directory + b"/" if shard.directory else b""
    # A directory is only named here; its own shard has its metadata.
    rows = [row for row in shard.rows if row.kind is not EntryKind.DIRECTORY]
    has_escapes = may_need_escape(b"\0".join([row.name for row in rows]))
    owner = (shard.own.uid, shard.own.gid)
    found = {shard.directory: _traits(shard.own, owner)}
    known: dict[tuple[EntryKind, int, bytes], PathMetadata] = {}
    for row in rows:
        key = (row.kind, row.mode, row.words)
        traits = known.get(key)
        if traits is None:
            traits = known[key] = _traits(row.entry(shard.own), owner)
        name = row.name
        if has_escapes:
            name = stored_name(name, top=not prefix, link=row.kind is EntryKind.LINK)
        found[prefix + name] = traits
    return found


def _traits(entry: Entry, owner: tuple[int | None, int | None]) -> PathMetadata:
    uid = owner[0] if entry.uid is None else entry.uid
    gid = owner[1] if entry.gid is None else entry.gid
    fingerprint = dict(entry.notes).get("h") if entry.notes else None
    return PathMetadata(
        entry.kind, entry.mode, entry.stored, (uid, gid), entry.xattrs, entry.device, fingerprint
    )  # fmt: skip


# Find the shards that need no complete comparison to list the changed paths. After most changes, two shards differ only
# in times: of their directory, and of files whose bytes differ. The git trees show these files already.

LONG, STRETCH = 1 << 14, 1 << 11
"""From this size on, it is faster to find the differing parts first, in steps of the second number."""

IdPair = tuple[bytes, bytes]
Lines = list[tuple[bytes, bytes]]


class ShardDiff(NamedTuple):
    """A shard by its ids before and after: its directory, and its differing lines in pairs."""

    ids: IdPair
    directory: bytes
    lines: Lines


def differing_lines(old: bytes, new: bytes) -> tuple[bytes, Lines] | None:
    """Return (directory, differing lines) of two shards of a directory; None if lines were added or removed."""
    head = new[: new.find(b"\n") + 1]
    try:
        if not old.startswith(head):
            return None
        directory = shard_directory(head)
    except Damaged:
        return None
    stretches = _stretches(old, new) if len(old) == len(new) >= LONG else [(old, new)]
    lines: Lines = []
    for one, other in stretches:
        before, after = one.split(b"\n"), other.split(b"\n")
        if len(before) != len(after):
            return None
        lines += zip(*without_equal_pairs(before, after), strict=True)
    return directory, lines


def _stretches(old: bytes, new: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the differing parts of two texts of equal length; if only times differ, their lines align."""
    start = 0
    while start < len(old):
        end = old.find(b"\n", start + STRETCH) + 1 or len(old)
        one, other = old[start:end], new[start:end]
        if one != other:
            yield one, other
        start = end


def shards_without_other_changes(
    differing: Iterable[ShardDiff], certain: Collection[bytes], others: Iterable[bytes]
) -> set[IdPair]:
    """Return the shards, by their ids, whose differences are only times and the modifications in `certain`.

    Shards of directories that contain one of `others` are not settled.
    """
    wanted = {path.rpartition(b"/")[0] for path in others}
    return {
        ids
        for ids, directory, lines in differing
        if directory not in wanted and not _has_more(lines, directory, certain)
    }


def _has_more(lines: Lines, directory: bytes, certain: Collection[bytes]) -> bool:
    """Return whether any pair of lines differs in more than its time; paths in `certain` are ignored."""
    prefix = directory + b"/" if directory else b""
    for before, after in lines:
        name, space, _ = before.partition(b" ")
        # A name without an escape has the same spelling in a shard and in a tree.
        if prefix + name in certain and b"%" not in name and after.startswith(name + space):
            continue
        old, new = before.split(b" "), after.split(b" ")
        if old[:3] + old[4:] != new[:3] + new[4:]:
            return True
    return False


# The differing shards of two snapshots, read from our packs while git compares the environment's trees.

TREE_WORD, BLOB_WORD = b"40000", b"100644"
Ids = tuple[bytes | None, bytes | None]


def differing_shards(own: PackFirstReader, before: str, after: str) -> list[DiffRow] | None:
    """Return both ids of each differing shard, as rows; None if our packs do not have all of them."""
    try:
        manifests: list[Ids] = [(_manifest(own, before), _manifest(own, after))]
        return [_row(*ids) for ids in _differing(own, _differing(own, manifests, TREE_WORD), BLOB_WORD)]
    except (KeyError, Damaged):
        return None


def differing_manifest_lines(own: PackFirstReader, shards: Iterable[DiffRow]) -> list[ShardDiff]:
    """Return the differing lines of shards, if they can be found quickly."""
    both = [row for row in shards if row.old_mode and row.new_mode]
    # Read all objects of one side first, because the objects of a capture are in one pack.
    try:
        olds = [own.read_own(unhexlify(row.old_oid))[1] for row in both]
        news = [own.read_own(unhexlify(row.new_oid))[1] for row in both]
    except (KeyError, Damaged):
        return []
    pairs = map(differing_lines, olds, news)
    return [
        ShardDiff((row.old_oid, row.new_oid), *lines)
        for row, lines in zip(both, pairs, strict=True)
        if lines is not None
    ]


def _manifest(own: PackFirstReader, name: str) -> bytes:
    data = own.root_tree(name)
    mode, reserved = decode_by_name(data, len(name) // 2)[RESERVED]
    inner, manifest = decode_by_name(own.read_own(reserved)[1], len(reserved))[MANIFEST]
    if (mode, inner) != (DIRECTORY, DIRECTORY):
        raise Damaged("a manifest is not a tree")
    return manifest


def _differing(own: PackFirstReader, trees: list[Ids], word: bytes) -> list[Ids]:
    """Return the ids, before and after, of differing entries in pairs of trees with entries of one mode."""
    olds, news = ([_entries(own, pair[side]) for pair in trees] for side in (0, 1))
    found: list[Ids] = []
    for old, new in zip(olds, news, strict=True):
        old, new = without_equal_pairs(old, new)
        before, after = dict(_parsed(old, word)), dict(_parsed(new, word))
        pairs = [(before.get(name), after.get(name)) for name in {**before, **after}]
        found += [pair for pair in pairs if pair[0] != pair[1]]
    return found


def _entries(own: PackFirstReader, oid: bytes | None) -> list[bytes]:
    if oid is None:
        return []
    kind, data = own.read_own(oid)
    entries: list[bytes] = _pattern(len(oid)).findall(data)
    # Matches do not overlap, so their lengths add up to the whole only if nothing is between them.
    if kind != b"tree" or sum(map(len, entries)) != len(data):
        raise Damaged("a tree of the manifest is damaged")
    return entries


@lru_cache
def _pattern(hash_length: int) -> re.Pattern[bytes]:
    return re.compile(rb"[0-7]+ [^\0]+\0.{%d}" % hash_length, re.DOTALL)


def _parsed(entries: Iterable[bytes], word: bytes) -> Iterable[tuple[bytes, bytes]]:
    for entry in entries:
        head, _, oid = entry.partition(b"\0")
        mode, _, name = head.partition(b" ")
        if mode != word:
            raise Damaged("a tree of the manifest has an unexpected entry")
        yield name, oid


def _row(before: bytes | None, after: bytes | None) -> DiffRow:
    nothing = bytes(len(before or after or b""))
    old, new = (ABSENT if oid is None else FILE for oid in (before, after))
    return DiffRow(old, new, hexlify(before or nothing), hexlify(after or nothing))
