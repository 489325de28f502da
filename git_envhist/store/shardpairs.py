"""Which shards of the manifest differ between two snapshots, and in which lines: read in the packs of captures.

While git compares the environment's trees, which takes it as long.
"""

from __future__ import annotations

import re
from binascii import hexlify, unhexlify
from collections.abc import Iterable
from functools import lru_cache
from itertools import compress
from operator import ne

from git_envhist.errors import Damaged
from git_envhist.store.layout import MANIFEST, RESERVED
from git_envhist.store.ownfirst import OwnFirst
from git_envhist.store.rows import ABSENT, DiffRow
from git_envhist.store.shardlines import ShardDiff, differing_lines
from git_envhist.store.trees import DIRECTORY, FILE, decode_by_name

TREE_WORD, BLOB_WORD = b"40000", b"100644"
Ids = tuple[bytes | None, bytes | None]


def differing_shards(own: OwnFirst, before: str, after: str) -> list[DiffRow] | None:
    """Both sides of each, as rows; None where packs of ours do not tell all of it."""
    try:
        manifests: list[Ids] = [(_manifest(own, before), _manifest(own, after))]
        return [_row(*ids) for ids in _differing(own, _differing(own, manifests, TREE_WORD), BLOB_WORD)]
    except (KeyError, Damaged):
        return None


def differing_manifest_lines(own: OwnFirst, shards: Iterable[DiffRow]) -> list[ShardDiff]:
    """In which lines shards differ, as far as that is quickly told."""
    both = [row for row in shards if row.old_mode and row.new_mode]
    # One side after the other: what one capture wrote lies in one pack.
    try:
        olds = [own.ours(unhexlify(row.old_oid))[1] for row in both]
        news = [own.ours(unhexlify(row.new_oid))[1] for row in both]
    except (KeyError, Damaged):
        return []
    told = map(differing_lines, olds, news)
    return [
        ShardDiff((row.old_oid, row.new_oid), *lines)
        for row, lines in zip(both, told, strict=True)
        if lines is not None
    ]


def _manifest(own: OwnFirst, name: str) -> bytes:
    data = own.root_tree(name)
    mode, reserved = decode_by_name(data, len(name) // 2)[RESERVED]
    inner, manifest = decode_by_name(own.ours(reserved)[1], len(reserved))[MANIFEST]
    if (mode, inner) != (DIRECTORY, DIRECTORY):
        raise Damaged("a manifest is no directory")
    return manifest


def _differing(own: OwnFirst, trees: list[Ids], word: bytes) -> list[Ids]:
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


def _entries(own: OwnFirst, oid: bytes | None) -> list[bytes]:
    if oid is None:
        return []
    kind, data = own.ours(oid)
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
