"""What a tree cannot say of two snapshots: modes, owners, attributes, empty directories, pipes.

Only the manifest shards that differ are read, and of these only the lines that differ: a directory of 20,000 files in
which one was touched costs two comparisons of text and two parsed lines. Times are no change: a build touches files
that stay the same.
"""

from __future__ import annotations

import re
from binascii import hexlify, unhexlify
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import compress
from operator import ne
from typing import NamedTuple

from git_envhist.diff.tree_diff import ABSENT, MANIFEST_PREFIX, DiffRow
from git_envhist.errors import Damaged
from git_envhist.git.cat_file import CatFile, GitObject
from git_envhist.model import Entry, EntryKind, StoredAs
from git_envhist.objects.reader import NamedObjectReader
from git_envhist.objects.trees import DIRECTORY, FILE, decode_by_name
from git_envhist.snapshots.layout import MANIFEST
from git_envhist.snapshots.names import RESERVED, stored_name, suspicious, true_name
from git_envhist.snapshots.quoting import UNSAFE, quote, unquote_path

LINE_FEED = 0x0A


class PathMetadata(NamedTuple):
    """What the manifest says of one path, less its times."""

    kind: EntryKind
    mode: int
    stored: StoredAs
    owner: tuple[int | None, int | None]
    xattrs: tuple[tuple[bytes, bytes], ...]
    device: int | None
    fingerprint: str | None


class MetadataPair(NamedTuple):
    """One path on both sides; None where the manifest does not name it."""

    before: PathMetadata | None
    after: PathMetadata | None


Texts = dict[bytes, tuple[bytes | None, bytes | None]]
"""Stored directory -> its shard before and after; the same object twice where they are equal."""


def read_differences(
    reader: CatFile | NamedObjectReader,
    shards: Iterable[tuple[bytes | None, bytes | None]],
    contents: Iterable[bytes],
    after: str,
    certain: Iterable[bytes] = (),
) -> dict[bytes, MetadataPair]:
    """Stored path -> what is known of it: the paths whose lines differ, and those in `contents`, whose bytes do.

    `shards` are the ids, in hex, of the shards that differ; of the paths in `certain` nothing needs to be known.
    """
    wanted, passed_over = by_directory(contents), by_directory(certain)
    texts = _read_pairs(reader, shards)
    texts.update(_read_unchanged(reader, [name for name in wanted if name not in texts], after))
    found: dict[bytes, MetadataPair] = {}
    for directory, (old, new) in texts.items():
        names, less = wanted.get(directory, ()), passed_over.get(directory, ())
        for path, both in _compare_shards(directory, old, new, names, less):
            found[path] = _merge(found.get(path), both)
    return found


def by_directory(paths: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """The names of stored paths, by their directories."""
    found: dict[bytes, list[bytes]] = {}
    for path in paths:
        directory, _, name = path.rpartition(b"/")
        found.setdefault(directory, []).append(name)
    return found


def _merge(known: MetadataPair | None, more: MetadataPair) -> MetadataPair:
    # A file in whose place a directory came is in its parent's shard, the directory in one of its own.
    return more if known is None else MetadataPair(more.before or known.before, more.after or known.after)


def _read_pairs(
    reader: CatFile | NamedObjectReader, shards: Iterable[tuple[bytes | None, bytes | None]]
) -> Texts:
    pairs = list(shards)
    blobs = reader.read_many([oid for pair in pairs for oid in pair if oid is not None])
    texts: Texts = {}
    for pair in pairs:
        old, new = (_text(next(blobs)) if oid is not None else None for oid in pair)
        texts[shard_directory(old if new is None else new)] = (old, new)
    return texts


def _read_unchanged(reader: CatFile | NamedObjectReader, directories: list[bytes], after: str) -> Texts:
    # Bytes that changed under the same time leave the shard as it was; how they are stored stands in it all the same.
    if not directories:
        return {}
    from git_envhist.snapshots.layout import shard_path  # loaded late: see `_read`

    places = [shard_path(directory) for directory in directories]
    answers = reader.read_many(f"{after}:{MANIFEST_PREFIX.decode()}{first}/{rest}" for first, rest in places)
    found = zip(directories, answers, strict=True)
    return {directory: (blob.data, blob.data) for directory, blob in found if blob is not None}


def _text(answer: GitObject | None) -> bytes:
    if answer is None:
        raise Damaged("a shard of the manifest is missing from the repository")
    return answer.data


def shard_directory(text: bytes | None) -> bytes:
    """The stored directory that a shard speaks of."""
    assert text is not None
    head = text.partition(b"\n")[0].split(b" ")
    if len(head) != 3:
        raise Damaged("a shard of the manifest does not begin as one")
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
    """Both texts without the lines in which they do not differ, but for those of `names`; none of `certain`."""
    old_head, old_own, old_body = _split(old)
    new_head, new_own, new_body = _split(new)
    if old_head != new_head or _owner(old_own) != _owner(new_own):
        # Lines that name no owner mean the directory's.
        return old, new
    start, old_end, new_end = _where_they_differ(old_body, new_body)
    old_lines, new_lines = _without_pairs(_lines(old_body[start:old_end]), _lines(new_body[start:new_end]))
    kept = set(old_lines) ^ set(new_lines)
    if certain:
        less = quoted_names(certain)
        kept = {line for line in kept if _name(line) not in less}
    sought = quoted_names(names).difference(map(_name, kept))
    return (
        _joined(old_head, old_own, old_body, old_lines, kept, sought),
        _joined(new_head, new_own, new_body, new_lines, kept, sought),
    )


def _without_pairs(old: list[bytes], new: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Both lists without what stands at the same place in either: in most shards nothing came and nothing went."""
    if len(old) != len(new):
        return old, new
    differ = list(map(ne, old, new))
    return list(compress(old, differ)), list(compress(new, differ))


def _split(text: bytes) -> tuple[bytes, bytes, bytes]:
    """A shard's first line, its directory's own, and all others, each with a line feed at its end."""
    head, _, rest = text.partition(b"\n")
    own, _, body = rest.partition(b"\n")
    return head, own, body.rstrip(b"\n") + b"\n" if body else b""


def _where_they_differ(old: bytes, new: bytes) -> tuple[int, int, int]:
    """(start of the first line that differs, end of the last one in either text)."""
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
    """How many bytes both begin with; found by halves, for comparing bytes is what the processor does fastest."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _same_at_end(one: bytes, other: bytes, most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def _without_times(text: bytes) -> list[list[bytes]]:
    """The words of all lines but the times, which are no difference."""
    lines = [line.split(b" ") for line in text.split(b"\n")]
    for words in lines[1:]:
        del words[3:4]
    return lines


def _lines(body: bytes) -> list[bytes]:
    return body.split(b"\n")[:-1]


def quoted_names(names: Iterable[bytes]) -> set[bytes]:
    """The words under which a shard lists stored names."""
    listed = list(names)
    joined = b"\0".join(listed)
    if suspicious(joined) or UNSAFE.search(joined.replace(b"\0", b"")) is not None:
        return {quote(true_name(name)) for name in listed}
    return set(listed)


def _joined(
    head: bytes, own: bytes, body: bytes, differing: list[bytes], kept: set[bytes], sought: set[bytes]
) -> bytes:
    lines = [line for line in differing if line in kept]
    if sought:
        lines = [line for line in _lines(body) if line in kept or _name(line) in sought]
    return b"\n".join([head, own, *lines]) + b"\n"


def _name(line: bytes) -> bytes:
    return line.partition(b" ")[0]


def _owner(own: bytes) -> list[bytes]:
    return own.split(b" ")[4:6]


def _read(text: bytes | None) -> Mapping[bytes, PathMetadata]:
    if text is None:
        return {}
    from git_envhist.snapshots.manifest import scan_shard  # loaded late: a list of paths mostly needs no line

    shard = scan_shard(text)
    prefix = shard.directory + b"/" if shard.directory else b""
    # Named only: a directory's own shard says what it is.
    rows = [row for row in shard.rows if row.kind is not EntryKind.DIRECTORY]
    told = suspicious(b"\0".join([row.name for row in rows]))
    owner = (shard.own.uid, shard.own.gid)
    found = {shard.directory: _traits(shard.own, owner)}
    known: dict[tuple[EntryKind, int, bytes], PathMetadata] = {}
    for row in rows:
        said = (row.kind, row.mode, row.words)
        traits = known.get(said)
        if traits is None:
            traits = known[said] = _traits(row.entry(shard.own), owner)
        name = row.name
        if told:
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


# Shards of which a list of paths needs no more than the lines that differ (pure).
#
# After most changes a shard differs in the times of its directory and of files whose bytes differ as well, which the
# trees say already. What tells anything else is compared as ever.

LONG, STRETCH = 1 << 14, 1 << 11
"""From so many bytes on it pays to look first, by so many at a time, for the parts of a shard that differ."""

IdPair = tuple[bytes, bytes]
Lines = list[tuple[bytes, bytes]]


class ShardDiff(NamedTuple):
    """A shard, by its ids before and after: the directory it speaks of, and the lines that differ, side by side."""

    ids: IdPair
    directory: bytes
    lines: Lines


def differing_lines(old: bytes, new: bytes) -> tuple[bytes, Lines] | None:
    """(directory, the lines that differ) of two shards of one directory; None where lines came or went, or others."""
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
        differ = list(map(ne, before, after))
        lines += zip(compress(before, differ), compress(after, differ), strict=True)
    return directory, lines


def _stretches(old: bytes, new: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The parts that differ of two texts of one length; where another time is all that differs, their lines align."""
    start = 0
    while start < len(old):
        end = old.find(b"\n", start + STRETCH) + 1 or len(old)
        one, other = old[start:end], new[start:end]
        if one != other:
            yield one, other
        start = end


def settled_shards(
    differing: Iterable[ShardDiff], certain: Collection[bytes], others: Iterable[bytes]
) -> set[IdPair]:
    """The shards, by their ids, that tell nothing but times beside what is `certain`: that these stored paths were
    modified. Shards of directories that `others` stand in tell more."""
    wanted = {path.rpartition(b"/")[0] for path in others}
    return {
        ids
        for ids, directory, lines in differing
        if directory not in wanted and not _tell_more(lines, directory, certain)
    }


def _tell_more(lines: Lines, directory: bytes, certain: Collection[bytes]) -> bool:
    """Whether lines differ in anything but a time, those aside of what is certain."""
    prefix = directory + b"/" if directory else b""
    for before, after in lines:
        name, space, _ = before.partition(b" ")
        # Where there is no escape a name is spelled alike in a shard and in a tree.
        if prefix + name in certain and b"%" not in name and after.startswith(name + space):
            continue
        old, new = before.split(b" "), after.split(b" ")
        if old[:3] + old[4:] != new[:3] + new[4:]:
            return True
    return False


# Which shards of the manifest differ between two snapshots, and in which lines: read in the packs of captures.
#
# While git compares the environment's trees, which takes it as long.

TREE_WORD, BLOB_WORD = b"40000", b"100644"
Ids = tuple[bytes | None, bytes | None]


def differing_shards(own: NamedObjectReader, before: str, after: str) -> list[DiffRow] | None:
    """Both sides of each, as rows; None where packs of ours do not tell all of it."""
    try:
        manifests: list[Ids] = [(_manifest(own, before), _manifest(own, after))]
        return [_row(*ids) for ids in _differing(own, _differing(own, manifests, TREE_WORD), BLOB_WORD)]
    except (KeyError, Damaged):
        return None


def differing_manifest_lines(own: NamedObjectReader, shards: Iterable[DiffRow]) -> list[ShardDiff]:
    """In which lines shards differ, as far as that is quickly told."""
    both = [row for row in shards if row.old_mode and row.new_mode]
    # One side after the other: what one capture wrote lies in one pack.
    try:
        olds = [own.read_own(unhexlify(row.old_oid))[1] for row in both]
        news = [own.read_own(unhexlify(row.new_oid))[1] for row in both]
    except (KeyError, Damaged):
        return []
    told = map(differing_lines, olds, news)
    return [
        ShardDiff((row.old_oid, row.new_oid), *lines)
        for row, lines in zip(both, told, strict=True)
        if lines is not None
    ]


def _manifest(own: NamedObjectReader, name: str) -> bytes:
    data = own.root_tree(name)
    mode, reserved = decode_by_name(data, len(name) // 2)[RESERVED]
    inner, manifest = decode_by_name(own.read_own(reserved)[1], len(reserved))[MANIFEST]
    if (mode, inner) != (DIRECTORY, DIRECTORY):
        raise Damaged("a manifest is no directory")
    return manifest


def _differing(own: NamedObjectReader, trees: list[Ids], word: bytes) -> list[Ids]:
    """The ids, before and after, of what differs in pairs of trees that hold entries of one mode."""
    olds, news = ([_entries(own, pair[side]) for pair in trees] for side in (0, 1))
    found: list[Ids] = []
    for old, new in zip(olds, news, strict=True):
        if len(old) == len(new):
            # Mostly nothing came and nothing went.
            differ = list(map(ne, old, new))
            old, new = list(compress(old, differ)), list(compress(new, differ))
        before, after = dict(_taken_apart(old, word)), dict(_taken_apart(new, word))
        pairs = [(before.get(name), after.get(name)) for name in {**before, **after}]
        found += [pair for pair in pairs if pair[0] != pair[1]]
    return found


def _entries(own: NamedObjectReader, oid: bytes | None) -> list[bytes]:
    if oid is None:
        return []
    kind, data = own.read_own(oid)
    entries: list[bytes] = _pattern(len(oid)).findall(data)
    # Matches never overlap, so that their lengths add up to the whole only if nothing stood between them.
    if kind != b"tree" or sum(map(len, entries)) != len(data):
        raise Damaged("a tree of the manifest is damaged")
    return entries


@lru_cache
def _pattern(hash_length: int) -> re.Pattern[bytes]:
    return re.compile(rb"[0-7]+ [^\0]+\0.{%d}" % hash_length, re.DOTALL)


def _taken_apart(entries: Iterable[bytes], word: bytes) -> Iterable[tuple[bytes, bytes]]:
    for entry in entries:
        head, _, oid = entry.partition(b"\0")
        mode, _, name = head.partition(b" ")
        if mode != word:
            raise Damaged("a tree of the manifest holds what none does")
        yield name, oid


def _row(before: bytes | None, after: bytes | None) -> DiffRow:
    nothing = bytes(len(before or after or b""))
    old, new = (ABSENT if oid is None else FILE for oid in (before, after))
    return DiffRow(old, new, hexlify(before or nothing), hexlify(after or nothing))
