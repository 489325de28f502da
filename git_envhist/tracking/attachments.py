"""What was attached to a moment, in memory: a conversation, the outputs of tools; when it was taken, or later.

What is attached later is sealed as everything attached is, and stands in the tree of the notes, below `attachments/`:
so it goes where the notes go. A record in the note of the snapshot names it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from git_envhist.errors import EnvhistError, Refused, UsageError
from git_envhist.git.cat_file import CatFile
from git_envhist.model import TOP, Attachment, EnvPath, GitChange, MissingPath, Snapshot, SnapshotId
from git_envhist.platform import NOFOLLOW
from git_envhist.secrets.seal import seal, unseal
from git_envhist.secrets.tokens import mask_tokens
from git_envhist.snapshots.fetched import is_fetched
from git_envhist.snapshots.layout import ATTACHMENTS, GIT_CHANGED, MISSING, UNSTABLE
from git_envhist.snapshots.names import RESERVED, stored_name, true_name
from git_envhist.snapshots.records import read_git_changes, read_missing

if TYPE_CHECKING:
    from git_envhist.git.process import Git
    from git_envhist.git.repository import Repository
    from git_envhist.secrets.keys import Key, KeyRing


# Conversations and outputs of tools as bytes, and back: JSON, with a place for bytes, and nothing is lost on the way.
#
# `{"$bytes": "<base64>"}` stands for bytes, `{"$dict": [[key, value], …]}` for a dictionary whose own key looks so.

BYTES, DICT = "$bytes", "$dict"
MAX_DEPTH = 100
WHAT_SERVES = "text, bytes, numbers, true and false, None, lists and dictionaries with text as keys serve"

Value = object
"""Text, bytes, a number, a truth value, None, a list or a dictionary of such."""


def encode(values: Sequence[Value]) -> bytes:
    """A list of values as JSON; `UsageError` names what cannot be kept as it is."""
    if isinstance(values, str | bytes | Mapping):
        raise UsageError("a list is expected: one message, or one output, after another", hint=WHAT_SERVES)
    told = [_told(value, 0) for value in values]
    return json.dumps(told, separators=(",", ":")).encode("ascii")


def decode(data: bytes) -> list[Value] | None:
    """The list again; None where the bytes are not such a list."""
    try:
        told = json.loads(data)
        return [_meant(value) for value in told] if isinstance(told, list) else None
    except (ValueError, RecursionError):
        return None


def _told(value: Value, depth: int) -> Value:
    if depth > MAX_DEPTH:
        raise UsageError("cannot be kept: lists in lists without end", hint=WHAT_SERVES)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return {BYTES: base64.b64encode(value).decode("ascii")}
    if isinstance(value, list | tuple):
        return [_told(one, depth + 1) for one in value]
    if isinstance(value, Mapping):
        return _told_mapping(value, depth)
    raise UsageError(f"cannot be kept as it is: a value of type '{type(value).__name__}'", hint=WHAT_SERVES)


def _told_mapping(value: Mapping[object, Value], depth: int) -> Value:
    wrong = next((key for key in value if not isinstance(key, str)), None)
    if wrong is not None or None in value:
        raise UsageError(f"cannot be kept as it is: the key '{wrong!r}' is no text", hint=WHAT_SERVES)
    told = {str(key): _told(one, depth + 1) for key, one in value.items()}
    if len(told) == 1 and not {BYTES, DICT}.isdisjoint(told):
        return {DICT: [[key, one] for key, one in told.items()]}
    return told


def _meant(value: Value) -> Value:
    if isinstance(value, list):
        return [_meant(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key == BYTES and isinstance(inner, str):
            return base64.b64decode(inner, validate=True)
        if key == DICT and isinstance(inner, list):
            return {name: _meant(one) for name, one in inner}
    return {key: _meant(one) for key, one in value.items()}


# Gives back what was attached to a moment: the conversation, the outputs; into a directory, over nothing.

Open = Callable[[EnvPath, bytes], bytes]
"""(stored name, sealed bytes) -> the bytes that were attached; `SealingError` where the key is not here."""


def read_attachments(reader: CatFile, snapshot: Snapshot, unseal: Open) -> Iterator[tuple[bytes, bytes]]:
    """(name, bytes) of each, in the order in which they were attached; those of the capture first."""
    for stored in snapshot.attachments:
        name = os.fsencode(stored)
        place = b"/".join((RESERVED, ATTACHMENTS, name))
        found = reader.read(os.fsencode(snapshot.tree) + b":" + place) if _is_name(name) else None
        if found is None or found.kind != "blob":
            raise EnvhistError(f"an attachment is missing from the snapshot: '{stored}'")
        yield true_name(name), unseal(EnvPath(name), found.data)
    for attached in snapshot.attached:
        name = os.fsencode(attached.name)
        found = reader.read(attached.blob) if _is_name(name) else None
        if found is None or found.kind != "blob":
            raise EnvhistError(f"what was attached later is missing: '{attached.name}'")
        yield true_name(name), unseal(attached_path(snapshot, name), found.data)


def attached_path(snapshot: Snapshot, stored: bytes) -> EnvPath:
    """What is sealed later is bound to the moment, too: no note can show it at another."""
    return EnvPath(snapshot.id.encode("ascii") + b"/" + stored)


def write_attachments(directory: str, attachments: Iterator[tuple[bytes, bytes]]) -> list[str]:
    """Write each under its own name; `Refused` where one of these is taken."""
    os.makedirs(directory, exist_ok=True)
    written = []
    for name, data in attachments:
        path = os.path.join(os.fsencode(directory), name)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise Refused(
                f"there is a file of that name already: '{os.fsdecode(path)}'", hint="take an empty directory"
            ) from None
        with open(descriptor, "wb") as file:
            file.write(data)
        written.append(os.fsdecode(path))
    return written


def _is_name(name: bytes) -> bool:
    return name not in (b"", b".", b"..") and b"/" not in name and b"\0" not in name and b"\n" not in name


PLACE = b"attachments"
MAX_SIZE = 64 << 20
"""Hosts refuse a blob of 100 MB, and nothing attached is cut into pieces."""


class HistoryContext(Protocol):
    """What is needed of a history."""

    @property
    def keys(self) -> KeyRing: ...
    @property
    def repository(self) -> Repository: ...
    @property
    def environ(self) -> Mapping[str, str]: ...
    def bring(self, snapshot: Snapshot, *paths: EnvPath) -> Snapshot: ...


class SealedAttachment(NamedTuple):
    """Something that is to be attached: what names it, where it is to stand, and its bytes."""

    attached: Attachment
    path: bytes
    content: bytes


def attachments_of(history: HistoryContext, snapshot: Snapshot) -> tuple[tuple[str, bytes], ...]:
    """(name, bytes) of each, byte for byte; those of the capture first."""
    history.bring(snapshot, TOP)
    if snapshot.attached and is_fetched(snapshot.timeline):
        from git_envhist.remote.fetch import fetch_blobs  # loaded late: most snapshots are ours

        fetch_blobs(history.repository, history.environ, snapshot, [one.blob for one in snapshot.attached])

    def opened(name: EnvPath, sealed: bytes) -> bytes:
        return unseal(history.keys.to_open, name, b"attachment", sealed)

    with CatFile(history.repository.git) as reader:
        found = list(read_attachments(reader, snapshot, opened))
    return tuple((os.fsdecode(name), data) for name, data in found)


def snapshot_lists(git: Git, snapshot: Snapshot) -> tuple[tuple[MissingPath, ...], tuple[GitChange, ...]]:
    """What of the environment is not in a moment, and how git saw the working tree then."""
    with CatFile(git) as reader:

        def read(name: bytes) -> bytes:
            found = reader.read(os.fsencode(snapshot.tree) + b":" + RESERVED + b"/" + name)
            return found.data if found is not None else b""

        lists = [read(name) for name in (MISSING, UNSTABLE, GIT_CHANGED)]
    return (*read_missing(lists[0]), *read_missing(lists[1])), read_git_changes(lists[2])


def seal_attachment(
    snapshot: Snapshot, name: str, data: bytes, key: Key, object_format: str
) -> SealedAttachment:
    """A thing as it is kept with a moment: it opens for this moment and under this name only."""
    if len(data) > MAX_SIZE:
        raise Refused(
            f"too large to be attached: '{name}' has {len(data):,} bytes",
            hint="a file of the environment is kept in pieces, whatever its size",
        )
    stored = stored_name(mask_tokens(os.fsencode(name)))
    content = seal(key, attached_path(snapshot, stored), b"attachment", data)
    attached = Attachment(os.fsdecode(stored), _blob_id(content, object_format))
    return SealedAttachment(attached, attachment_path(snapshot.id) + b"/" + stored, content)


def attachment_path(snapshot: SnapshotId) -> bytes:
    """Where in the tree of the notes stands what was attached to a moment."""
    place = snapshot.encode("ascii")
    return b"/".join((PLACE, place[:2], place))


def _blob_id(content: bytes, object_format: str) -> str:
    return hashlib.new(
        object_format, b"blob %d\0%b" % (len(content), content), usedforsecurity=False
    ).hexdigest()
