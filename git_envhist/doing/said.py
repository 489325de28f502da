"""What was attached to a moment, in memory: a conversation, the outputs of tools; when it was taken, or later.

What is attached later is sealed as everything attached is, and stands in the tree of the notes, below `attachments/`:
so it goes where the notes go. A record in the note of the snapshot names it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from git_envhist.capture.seal import seal, unseal
from git_envhist.capture.tokens import mask_tokens
from git_envhist.errors import Refused
from git_envhist.model import TOP, Attachment, EnvPath, GitChange, MissingPath, Snapshot, SnapshotId
from git_envhist.restoring.attachments import attached_path, read_attachments
from git_envhist.store.fetched import is_fetched
from git_envhist.store.layout import GIT_CHANGED, MISSING, RESERVED, UNSTABLE
from git_envhist.store.listings import read_git_changes, read_missing
from git_envhist.store.names import stored_name
from git_envhist.store.objects import CatFile

if TYPE_CHECKING:
    from git_envhist.store.git import Git
    from git_envhist.store.keys import Key, KeyRing
    from git_envhist.store.repository import Repository

PLACE = b"attachments"
LARGEST = 64 << 20
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
        from git_envhist.sharing.bringing import bring_contents  # loaded late: most snapshots are ours

        bring_contents(history.repository, history.environ, snapshot, [one.blob for one in snapshot.attached])

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
    if len(data) > LARGEST:
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
