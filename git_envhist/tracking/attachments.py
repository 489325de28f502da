"""Attachments of snapshots: conversations, outputs of tools, files.

A capture stores its attachments in its own tree. An attachment added later is a blob in the tree of the notes, below
`attachments/`, so that it is pushed and fetched with the notes; a record in the snapshot's note names it. All of them
are sealed. Conversations and outputs of tools are lists of plain values, stored as JSON: `{"$bytes": "<base64>"}` is
bytes, and `{"$dict": [[key, value], ...]}` a dictionary whose only key is one of these two words.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from git_envhist.context import HistoryContext
from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.git.cat_file import CatFile
from git_envhist.history.tasks_and_effects import CONVERSATION, NUMBERED
from git_envhist.lazy import replace
from git_envhist.model import (
    TOP,
    Attachment,
    EnvPath,
    GitChange,
    MissingPath,
    Snapshot,
    SnapshotExtras,
    SnapshotId,
)
from git_envhist.platform import NOFOLLOW
from git_envhist.secrets.seal import seal, unseal
from git_envhist.secrets.tokens import mask_tokens
from git_envhist.snapshots.fetched_store import is_fetched
from git_envhist.snapshots.layout import ATTACHMENTS, GIT_CHANGED, MISSING, UNSTABLE
from git_envhist.snapshots.list_texts import read_git_changes, read_missing
from git_envhist.snapshots.note_records import attached_record
from git_envhist.snapshots.sealed_chunks import read_sealed_chunks
from git_envhist.snapshots.stored_names import RESERVED, stored_name, true_name

if TYPE_CHECKING:
    from git_envhist.git.process import Git
    from git_envhist.secrets.keys import Key


# Plain values as JSON, and back.

TOOL_OUTPUTS = "tool-outputs.json"
BYTES, DICT = "$bytes", "$dict"
MAX_DEPTH = 100
PLAIN_VALUES = (
    "plain values are text, bytes, numbers, booleans, None, and lists and dictionaries of them with text keys"
)

Value = object
"""Text, bytes, a number, a boolean, None, or a list or a dictionary of plain values."""


def encode_values(values: Sequence[Value]) -> bytes:
    """Return a list of plain values as JSON; raise `UsageError` for another value."""
    if isinstance(values, str | bytes | Mapping):
        raise UsageError("expected a list of messages or outputs", hint=PLAIN_VALUES)
    encoded = [_encode_value(value, 0) for value in values]
    return json.dumps(encoded, separators=(",", ":")).encode("ascii")


def decode_values(data: bytes) -> list[Value] | None:
    """Return the list that `encode_values` wrote; None for other bytes."""
    try:
        values = json.loads(data)
        return [_decode_value(value) for value in values] if isinstance(values, list) else None
    except (ValueError, RecursionError):
        return None


def _encode_value(value: Value, depth: int) -> Value:
    if depth > MAX_DEPTH:
        raise UsageError(f"cannot store lists nested deeper than {MAX_DEPTH}", hint=PLAIN_VALUES)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return {BYTES: base64.b64encode(value).decode("ascii")}
    if isinstance(value, list | tuple):
        return [_encode_value(one, depth + 1) for one in value]
    if isinstance(value, Mapping):
        return _encode_mapping(value, depth)
    raise UsageError(f"cannot store a value of type '{type(value).__name__}'", hint=PLAIN_VALUES)


def _encode_mapping(value: Mapping[object, Value], depth: int) -> Value:
    wrong = next((key for key in value if not isinstance(key, str)), None)
    if wrong is not None or None in value:
        raise UsageError(
            f"cannot store a dictionary with the key '{wrong!r}': it is no text", hint=PLAIN_VALUES
        )
    encoded = {str(key): _encode_value(one, depth + 1) for key, one in value.items()}
    if len(encoded) == 1 and not {BYTES, DICT}.isdisjoint(encoded):
        return {DICT: [[key, one] for key, one in encoded.items()]}
    return encoded


def _decode_value(value: Value) -> Value:
    if isinstance(value, list):
        return [_decode_value(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key == BYTES and isinstance(inner, str):
            return base64.b64decode(inner, validate=True)
        if key == DICT and isinstance(inner, list):
            return {name: _decode_value(one) for name, one in inner}
    return {key: _decode_value(one) for key, one in value.items()}


# Read attachments.

Unseal = Callable[[EnvPath, bytes], bytes]
"""Return the plain bytes for a stored name and sealed bytes; raise `SealingError` if the key is missing."""


def read_attachments(reader: CatFile, snapshot: Snapshot, unseal: Unseal) -> Iterator[tuple[bytes, bytes]]:
    """Yield (name, bytes) of each attachment: those of the capture first, then by time."""
    for stored in snapshot.attachments:
        name = os.fsencode(stored)
        place = b"/".join((RESERVED, ATTACHMENTS, name))
        found = reader.read(os.fsencode(snapshot.tree) + b":" + place) if _is_name(name) else None
        if found is not None and found.kind == "tree":
            open_chunk, width = partial(unseal, EnvPath(name)), len(snapshot.tree) // 2
            chunks = read_sealed_chunks(reader, found.data, width, open_chunk, f"attachment '{stored}'")
            yield true_name(name), b"".join(chunks)
            continue
        if found is None or found.kind != "blob":
            raise EnvhistError(f"an attachment is missing from the snapshot: '{stored}'")
        yield true_name(name), unseal(EnvPath(name), found.data)
    for attached in snapshot.attached:
        name = os.fsencode(attached.name)
        found = reader.read(attached.blob) if _is_name(name) else None
        if found is None or found.kind != "blob":
            raise EnvhistError(f"an attachment of the note is missing: '{attached.name}'")
        yield true_name(name), unseal(sealed_for_path(snapshot, name), found.data)


def sealed_for_path(snapshot: Snapshot, stored: bytes) -> EnvPath:
    """Return the path an attachment is sealed for: it opens at this snapshot only, whatever note names it."""
    return EnvPath(snapshot.id.encode("ascii") + b"/" + stored)


def write_attachments(directory: str, attachments: Iterator[tuple[bytes, bytes]]) -> list[str]:
    """Write each attachment into a directory and return the paths; raise `Refused` if a file exists."""
    os.makedirs(directory, exist_ok=True)
    written = []
    for name, data in attachments:
        path = os.path.join(os.fsencode(directory), name)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise Refused(f"file exists: '{os.fsdecode(path)}'", hint="name an empty directory") from None
        with open(descriptor, "wb") as file:
            file.write(data)
        written.append(os.fsdecode(path))
    return written


def _is_name(name: bytes) -> bool:
    return name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name and b"\n" not in name


PLACE = b"attachments"
MAX_SIZE = 64 << 20
"""Hosts refuse a blob of 100 MB, and attachments are not cut into chunks."""


class SealedAttachment(NamedTuple):
    """An attachment ready to be stored: its record, its path in the tree of the notes, its sealed bytes."""

    attached: Attachment
    path: bytes
    content: bytes


def attachments_of(history: HistoryContext, snapshot: Snapshot) -> tuple[tuple[str, bytes], ...]:
    """Return (name, bytes) of everything attached to a snapshot, those of the capture first."""
    history.with_contents(snapshot, TOP)
    if snapshot.attached and is_fetched(snapshot.timeline):
        history.fetch_blobs(snapshot, [one.blob for one in snapshot.attached])

    def opened(name: EnvPath, sealed: bytes) -> bytes:
        return unseal(history.keys.to_open, name, b"attachment", sealed)

    with CatFile(history.repository.git) as reader:
        found = list(read_attachments(reader, snapshot, opened))
    return tuple((os.fsdecode(name), data) for name, data in found)


def conversation_of(history: HistoryContext, snapshot: Snapshot) -> list[Value] | None:
    """Return the conversation attached to a snapshot last, or None."""
    return decode_list(attachments_of(history, snapshot), CONVERSATION)


def decode_list(attachments: Iterable[tuple[str, bytes]], name: str) -> list[Value] | None:
    """Return the values of the last attachment with this name, or None if there is none."""
    data = {NUMBERED.sub("", stored): data for stored, data in attachments}.get(name)
    return None if data is None else decode_values(data)


def encode_lists(
    conversation: Sequence[Value] | None, tool_outputs: Sequence[Value] | None
) -> list[tuple[str, bytes]]:
    """Return (name, bytes) of a conversation and of outputs of tools; none for None."""
    lists = {CONVERSATION: conversation, TOOL_OUTPUTS: tool_outputs}
    return [(name, encode_values(values)) for name, values in lists.items() if values is not None]


def attach(history: HistoryContext, snapshot: Snapshot, things: Iterable[tuple[str, bytes]]) -> Snapshot:
    """Store (name, bytes) with an existing snapshot, sealed, and return it with them; equal names are replaced."""
    key, object_format = history.keys.current(), history.repository.object_format
    sealed = [seal_attachment(snapshot, name, data, key, object_format) for name, data in things]
    if not sealed:
        return snapshot
    records = [attached_record(one.attached, history.now) for one in sealed]
    history.add_records(snapshot, *records, files={one.path: one.content for one in sealed})
    by_name = {one.name: one for one in (*snapshot.attached, *(one.attached for one in sealed))}
    return replace(snapshot, attached=tuple(by_name.values()))


def snapshot_with_attachments(history: HistoryContext, snapshot: Snapshot) -> SnapshotExtras:
    """Return a snapshot with everything attached to it, its missing paths and git's changes."""
    attachments = attachments_of(history, snapshot)
    return SnapshotExtras(
        snapshot,
        decode_list(attachments, CONVERSATION),
        decode_list(attachments, TOOL_OUTPUTS),
        attachments,
        *snapshot_lists(history.repository.git, snapshot),
    )


def snapshot_lists(git: Git, snapshot: Snapshot) -> tuple[tuple[MissingPath, ...], tuple[GitChange, ...]]:
    """Return the paths missing from a snapshot, and what differed from HEAD for git when it was taken."""
    with CatFile(git) as reader:

        def read(name: bytes) -> bytes:
            found = reader.read(os.fsencode(snapshot.tree) + b":" + RESERVED + b"/" + name)
            return found.data if found is not None else b""

        lists = [read(name) for name in (MISSING, UNSTABLE, GIT_CHANGED)]
    return (*read_missing(lists[0]), *read_missing(lists[1])), read_git_changes(lists[2])


def seal_attachment(
    snapshot: Snapshot, name: str, data: bytes, key: Key, object_format: str
) -> SealedAttachment:
    """Seal something for one snapshot and one name; raise `Refused` if it is too large."""
    if len(data) > MAX_SIZE:
        raise Refused(
            f"too large to be attached: '{name}' has {len(data):,} bytes",
            hint="capture it as a file of the environment: that has no limit",
        )
    stored = stored_name(mask_tokens(os.fsencode(name)))
    content = seal(key, sealed_for_path(snapshot, stored), b"attachment", data)
    attached = Attachment(os.fsdecode(stored), _blob_id(content, object_format))
    return SealedAttachment(attached, attachments_directory(snapshot.id) + b"/" + stored, content)


def attachments_directory(snapshot: SnapshotId) -> bytes:
    """Return the directory of a snapshot's attachments in the tree of the notes."""
    place = snapshot.encode("ascii")
    return b"/".join((PLACE, place[:2], place))


def _blob_id(content: bytes, object_format: str) -> str:
    return hashlib.new(
        object_format, b"blob %d\0%b" % (len(content), content), usedforsecurity=False
    ).hexdigest()
