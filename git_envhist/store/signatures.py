"""Says which snapshots and which verdicts a key of ours signed (pure); what the others say is a claim.

A verdict is signed as the line that its note holds, together with the id of the snapshot that it is about: it counts
nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from git_envhist.model import NoteRecord, Snapshot, SnapshotId, Verdict
from git_envhist.store.mac import constant_time_equal
from git_envhist.store.message import mac_input, split_mac
from git_envhist.store.records import VERDICT, format_record, read_verdict
from git_envhist.values import replace


class SigningKey(Protocol):
    """What is needed of a key."""

    @property
    def id(self) -> str: ...

    def mac(self, data: bytes) -> str: ...


KEY, MAC, AUTHOR = "key", "mac", "by"
NOBODY = "somebody"

FindKey = Callable[[str], SigningKey | None]


def with_trust(snapshot: Snapshot, find_key: FindKey) -> Snapshot:
    """The snapshot, with `trusted` filled in."""
    return replace(snapshot, trusted=is_signed(snapshot, find_key))


def is_signed(snapshot: Snapshot, find_key: FindKey) -> bool:
    """Whether a key that is here signed just this tree, this author and this message."""
    message, mac = split_mac(snapshot.message)
    key = find_key(snapshot.key) if mac is not None and snapshot.key is not None else None
    if key is None or mac is None:
        return False
    return constant_time_equal(key.mac(mac_input(snapshot.tree, snapshot.author, message)), mac)


def signed(record: NoteRecord, snapshot: SnapshotId, key: SigningKey) -> NoteRecord:
    """The record of a verdict on a snapshot, signed."""
    named = NoteRecord(record.kind, record.at, {**record.fields, KEY: key.id})
    return NoteRecord(record.kind, record.at, {**named.fields, MAC: key.mac(_verdict_input(named, snapshot))})


def signed_again(
    record: NoteRecord, changed: Mapping[str, object], snapshot: SnapshotId, find_key: FindKey
) -> NoteRecord:
    """The record of a verdict with other fields; signed by the key that had signed it, where that is here."""
    fields = {name: value for name, value in record.fields.items() if name != MAC}
    told, mac = NoteRecord(record.kind, record.at, {**fields, **changed}), record.fields.get(MAC)
    if mac is None:
        return told
    name = signing_key_id(record)
    key = find_key(name) if name is not None else None
    before = NoteRecord(record.kind, record.at, fields)
    is_ours = key is not None and constant_time_equal(str(mac), key.mac(_verdict_input(before, snapshot)))
    # What none of ours signed stays somebody's claim.
    now = key.mac(_verdict_input(told, snapshot)) if key is not None and is_ours else mac
    return NoteRecord(record.kind, record.at, {**told.fields, MAC: now})


def with_judged_verdicts(snapshot: Snapshot, find_key: FindKey) -> Snapshot:
    """The snapshot; of each verdict that no key here signed it is said whose claim it is."""
    read = [
        (record, verdict)
        for record in snapshot.records
        if record.kind == VERDICT and (verdict := read_verdict(record)) is not None
    ]
    told = [_judged_verdict(record, verdict, snapshot, find_key) for record, verdict in read]
    return replace(snapshot, verdicts=tuple(sorted(told, key=lambda verdict: verdict.at)))


def signing_key_id(record: NoteRecord) -> str | None:
    """The id of the key that a record says it is signed with."""
    found = record.fields.get(KEY)
    return found if isinstance(found, str) else None


def _judged_verdict(record: NoteRecord, verdict: Verdict, snapshot: Snapshot, find_key: FindKey) -> Verdict:
    if _is_signed_verdict(record, snapshot, find_key):
        return verdict
    by = record.fields.get(AUTHOR)
    return replace(verdict, claimed_by=by if isinstance(by, str) and by else NOBODY)


def _is_signed_verdict(record: NoteRecord, snapshot: Snapshot, find_key: FindKey) -> bool:
    name, mac = signing_key_id(record), record.fields.get(MAC)
    key = find_key(name) if name is not None else None
    if key is None or not isinstance(mac, str) or not mac.isascii():
        return False
    # The first hash of a snapshot is what it holds; a later one says itself what the first was.
    if snapshot.id != snapshot.commit and not is_signed(snapshot, find_key):
        return False
    bare = {field: value for field, value in record.fields.items() if field != MAC}
    try:
        signed_line = _verdict_input(NoteRecord(record.kind, record.at, bare), snapshot.id)
    except ValueError:  # somebody's, with what none of ours holds, e.g. no number where one belongs
        return False
    return constant_time_equal(key.mac(signed_line), mac)


def _verdict_input(record: NoteRecord, snapshot: SnapshotId) -> bytes:
    return b"verdict %s\n%s" % (snapshot.encode("ascii", "replace"), format_record(record))
