"""What a tree cannot say of two snapshots: modes, owners, attributes, empty directories, pipes.

Only the manifest shards that differ are read, and of these only the lines that differ: a directory of 20,000 files in
which one was touched costs two comparisons of text and two parsed lines. Times are no change: a build touches files
that stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.model import Entry, EntryKind, StoredAs
from git_envhist.store.manifest import read_shard, shard_path
from git_envhist.store.names import stored_name, true_name
from git_envhist.store.objects import Answer, CatFile
from git_envhist.store.quoting import quote, unquote_path
from git_envhist.store.rows import SHARDS


class Traits(NamedTuple):
    """What the manifest says of one path, less its times."""

    kind: EntryKind
    mode: int
    stored: StoredAs
    owner: tuple[int | None, int | None]
    xattrs: tuple[tuple[bytes, bytes], ...]
    device: int | None
    fingerprint: str | None


class Both(NamedTuple):
    """One path on both sides; None where the manifest does not name it."""

    before: Traits | None
    after: Traits | None


Texts = dict[bytes, tuple[bytes | None, bytes | None]]
"""Stored directory -> its shard before and after; the same object twice where they are equal."""


def read_differences(
    reader: CatFile,
    shards: Iterable[tuple[bytes | None, bytes | None]],
    contents: Iterable[bytes],
    after: str,
) -> dict[bytes, Both]:
    """Stored path -> what is known of it: the paths whose lines differ, and those in `contents`, whose bytes do.

    `shards` are the ids, in hex, of the shards that differ.
    """
    wanted: dict[bytes, list[bytes]] = {}
    for path in contents:
        directory, _, name = path.rpartition(b"/")
        wanted.setdefault(directory, []).append(name)
    texts = _read_pairs(reader, shards)
    texts.update(_read_unchanged(reader, [name for name in wanted if name not in texts], after))
    found: dict[bytes, Both] = {}
    for directory, (old, new) in texts.items():
        for path, both in _compare_shards(directory, old, new, wanted.get(directory, ())):
            found[path] = _merge(found.get(path), both)
    return found


def _merge(known: Both | None, more: Both) -> Both:
    # A file in whose place a directory came is in its parent's shard, the directory in one of its own.
    return more if known is None else Both(more.before or known.before, more.after or known.after)


def _read_pairs(reader: CatFile, shards: Iterable[tuple[bytes | None, bytes | None]]) -> Texts:
    pairs = list(shards)
    blobs = reader.read_many([oid for pair in pairs for oid in pair if oid is not None])
    texts: Texts = {}
    for pair in pairs:
        old, new = (_text(next(blobs)) if oid is not None else None for oid in pair)
        texts[_directory(old if new is None else new)] = (old, new)
    return texts


def _read_unchanged(reader: CatFile, directories: list[bytes], after: str) -> Texts:
    # Bytes that changed under the same time leave the shard as it was; how they are stored stands in it all the same.
    places = [shard_path(directory) for directory in directories]
    answers = reader.read_many(f"{after}:{SHARDS.decode()}{first}/{rest}" for first, rest in places)
    found = zip(directories, answers, strict=True)
    return {directory: (blob.data, blob.data) for directory, blob in found if blob is not None}


def _text(answer: Answer | None) -> bytes:
    if answer is None:
        raise Damaged("a shard of the manifest is missing from the repository")
    return answer.data


def _directory(text: bytes | None) -> bytes:
    assert text is not None
    head = text.partition(b"\n")[0].split(b" ")
    if len(head) != 3:
        raise Damaged("a shard of the manifest does not begin as one")
    return unquote_path(head[2])


def _compare_shards(
    directory: bytes, old: bytes | None, new: bytes | None, names: Iterable[bytes]
) -> Iterator[tuple[bytes, Both]]:
    if old is not None and new is not None:
        old, new = _without_equal_lines(old, new, names)
    before, after = _read(old), _read(new)
    for path in {**before, **after}:
        yield path, Both(before.get(path), after.get(path))


def _without_equal_lines(old: bytes, new: bytes, names: Iterable[bytes]) -> tuple[bytes, bytes]:
    head, old_own, *old_lines = old.rstrip(b"\n").split(b"\n")
    _, new_own, *new_lines = new.rstrip(b"\n").split(b"\n")
    if _owner(old_own) != _owner(new_own):
        # Lines that name no owner mean the directory's.
        return old, new
    kept = set(old_lines) ^ set(new_lines) if old is not new else set()
    sought = {quote(true_name(name)) for name in names}.difference(map(_name, kept))
    if sought:
        kept.update(line for lines in (old_lines, new_lines) for line in lines if _name(line) in sought)
    return (
        b"\n".join([head, old_own, *(line for line in old_lines if line in kept)]) + b"\n",
        b"\n".join([head, new_own, *(line for line in new_lines if line in kept)]) + b"\n",
    )


def _name(line: bytes) -> bytes:
    return line.partition(b" ")[0]


def _owner(own: bytes) -> list[bytes]:
    return own.split(b" ")[4:6]


def _read(text: bytes | None) -> Mapping[bytes, Traits]:
    if text is None:
        return {}
    shard = read_shard(text)
    owner = (shard.own.uid, shard.own.gid)
    found = {shard.directory: _traits(shard.own, owner)}
    prefix = shard.directory + b"/" if shard.directory else b""
    for entry in shard.entries:
        # Named only: a directory's own shard says what it is.
        if entry.kind is EntryKind.DIRECTORY:
            continue
        name = entry.path.rpartition(b"/")[2]
        stored = stored_name(name, top=not prefix, link=entry.kind is EntryKind.LINK)
        found[prefix + stored] = _traits(entry, owner)
    return found


def _traits(entry: Entry, owner: tuple[int | None, int | None]) -> Traits:
    uid = owner[0] if entry.uid is None else entry.uid
    gid = owner[1] if entry.gid is None else entry.gid
    fingerprint = dict(entry.notes).get("h") if entry.notes else None
    return Traits(
        entry.kind, entry.mode, entry.stored, (uid, gid), entry.xattrs, entry.device, fingerprint
    )  # fmt: skip
