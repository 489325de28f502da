"""Chosen snapshots as a chain of their own: what leaves is what was chosen, and not what lies between.

A snapshot whose predecessor was chosen too is the same commit as before. Another one gets a new commit that says its
id (`Env-Was`); the key that signed it signs it again, so that whoever has that key knows it for what it is. Without the
key it is a claim. Its notes are those of every writer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass
from git_envhist.model import NoteRecord, ObjectId, Snapshot
from git_envhist.objects.commits import encode_commit, parse_commit
from git_envhist.snapshots.layout import ATTACHMENTS
from git_envhist.snapshots.message import FindKey, is_signed, mac_input, split_mac, with_mac
from git_envhist.snapshots.names import stored_name
from git_envhist.snapshots.notes import NO_FILES, NamedObjectReader, add_records

WAS = re.compile(rb"^Env-Was: ", re.MULTILINE)
KEY = re.compile(rb"^Env-Key: ", re.MULTILINE)


class Writer(Protocol):
    """Takes new objects."""

    def add(self, kind: bytes, data: bytes) -> ObjectId: ...


@dataclass(frozen=True, slots=True)
class SelectedSnapshots:
    """Some snapshots of one timeline, as they leave."""

    timeline: str
    head: str
    notes: str | None
    snapshots: tuple[Snapshot, ...]
    """Oldest first."""


def build_selected_chain(
    reader: NamedObjectReader,
    writer: Writer,
    timeline: str,
    snapshots: Sequence[Snapshot],
    find_key: FindKey,
    *,
    identity: bytes,
    object_format: str,
    beside: Mapping[bytes, bytes] = NO_FILES,
) -> SelectedSnapshots:
    """Write a chain of chosen snapshots (oldest first) with their records; `beside`: more files of the notes tree."""
    tip: str | None = None
    said: dict[str, Sequence[NoteRecord]] = {}
    files = dict(beside)
    for snapshot in snapshots:
        tip = _commit(reader, writer, snapshot, tip, find_key)
        if snapshot.records:
            said[tip] = snapshot.records
            files.update(_attached_later(reader, snapshot))
    if tip is None:
        raise ValueError("nothing was chosen")
    notes = None
    if said or files:
        form = object_format
        notes = add_records(reader, writer, None, said, identity=identity, object_format=form, files=files)
    return SelectedSnapshots(timeline, tip, notes, tuple(snapshots))


def _attached_later(reader: NamedObjectReader, snapshot: Snapshot) -> Iterator[tuple[bytes, bytes]]:
    """What the notes hold of a snapshot beside the records: (path in their tree, sealed bytes)."""
    key = snapshot.id.encode("ascii")
    for one in snapshot.attached:
        found = reader.read(one.blob)
        if found is not None and found.kind == "blob":
            name = stored_name(one.name.encode("utf-8", "surrogateescape"))
            yield b"/".join((ATTACHMENTS, key[:2], key, name)), found.data


def _commit(
    reader: NamedObjectReader, writer: Writer, snapshot: Snapshot, parent: str | None, find_key: FindKey
) -> str:
    if snapshot.parent == parent:
        return snapshot.commit
    found = reader.read(snapshot.commit)
    if found is None or found.kind != "commit":
        raise Damaged(f"the snapshot '{snapshot.id}' cannot be read")
    commit = parse_commit(found.data)
    message = _renamed(snapshot, commit.message, find_key)
    data = encode_commit(commit.tree, parent, commit.author, commit.committer, message)
    return writer.add(b"commit", data).hex()


def _renamed(snapshot: Snapshot, message: bytes, find_key: FindKey) -> bytes:
    """The message, saying what the snapshot's id is, signed again where it was signed by a key that is here."""
    bare, _ = split_mac(message)
    trailers = bare.rfind(b"\n\n", 0, len(bare.rstrip(b"\n")))
    if WAS.search(bare, max(trailers, 0)) is None:
        line = b"Env-Was: %s\n" % snapshot.id.encode("ascii")
        key_line = KEY.search(bare, max(trailers, 0))
        place = key_line.start() if key_line is not None else len(bare)
        bare = bare[:place] + line + bare[place:]
    key = find_key(snapshot.key) if snapshot.key is not None and is_signed(snapshot, find_key) else None
    return bare if key is None else with_mac(bare, key.mac(mac_input(snapshot.tree, snapshot.author, bare)))
