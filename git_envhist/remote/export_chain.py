"""Build a chain of chosen snapshots for an export, without the snapshots between them.

A snapshot whose predecessor was also chosen keeps its commit. Another one gets a new commit that names its id
(`Env-Was`) and is signed again with the key that signed it, if that key is stored here; without it, it is unsigned.
The notes contain the records of every writer.
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
from git_envhist.snapshots.notes import NO_FILES, NamedObjectReader, add_records
from git_envhist.snapshots.stored_names import stored_name

WAS = re.compile(rb"^Env-Was: ", re.MULTILINE)
KEY = re.compile(rb"^Env-Key: ", re.MULTILINE)


class Writer(Protocol):
    """Stores new objects."""

    def add(self, kind: bytes, data: bytes) -> ObjectId: ...


@dataclass(frozen=True, slots=True)
class SelectedSnapshots:
    """The chosen snapshots of one timeline, ready to be sent."""

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
    extra_files: Mapping[bytes, bytes] = NO_FILES,
) -> SelectedSnapshots:
    """Write a chain of the chosen snapshots, oldest first, with their records and extra files for the notes tree."""
    tip: str | None = None
    records: dict[str, Sequence[NoteRecord]] = {}
    files = dict(extra_files)
    for snapshot in snapshots:
        tip = _commit(reader, writer, snapshot, tip, find_key)
        if snapshot.records:
            records[tip] = snapshot.records
            files.update(_attached_in_notes(reader, snapshot))
    if tip is None:
        raise ValueError("no snapshot chosen")
    notes = None
    if records or files:
        form = object_format
        notes = add_records(reader, writer, None, records, identity=identity, object_format=form, files=files)
    return SelectedSnapshots(timeline, tip, notes, tuple(snapshots))


def _attached_in_notes(reader: NamedObjectReader, snapshot: Snapshot) -> Iterator[tuple[bytes, bytes]]:
    """Yield the attached files of a snapshot in the notes: (path in their tree, sealed bytes)."""
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
    message = _message_with_id(snapshot, commit.message, find_key)
    data = encode_commit(commit.tree, parent, commit.author, commit.committer, message)
    return writer.add(b"commit", data).hex()


def _message_with_id(snapshot: Snapshot, message: bytes, find_key: FindKey) -> bytes:
    """Return the message with the snapshot's id, signed again if a key stored here had signed it."""
    bare, _ = split_mac(message)
    trailers = bare.rfind(b"\n\n", 0, len(bare.rstrip(b"\n")))
    if WAS.search(bare, max(trailers, 0)) is None:
        line = b"Env-Was: %s\n" % snapshot.id.encode("ascii")
        key_line = KEY.search(bare, max(trailers, 0))
        place = key_line.start() if key_line is not None else len(bare)
        bare = bare[:place] + line + bare[place:]
    key = find_key(snapshot.key) if snapshot.key is not None and is_signed(snapshot, find_key) else None
    return bare if key is None else with_mac(bare, key.mac(mac_input(snapshot.tree, snapshot.author, bare)))
