"""Make a snapshot visible: write commit and note into a pack, move the packs into the repository, then move the refs.

The order is the durability promise: packs are durable before a ref names their objects, and the ref's directory is
synced before the capture reports success. The note moves in the same transaction if it can be written; otherwise the
snapshot is published without it. `annotate` and `add_note_records` add records to existing snapshots.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from git_envhist.disk import state_directory
from git_envhist.errors import Damaged, EnvhistError, GitFailed, in_words
from git_envhist.git.cat_file import CatFile, GitObject
from git_envhist.git.process import Git
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, TRASH_REFS, RefsMoved, RefUpdate, Repository
from git_envhist.lazy import dataclass
from git_envhist.locks import COMMON_LOCK, locked
from git_envhist.model import NoteRecord, Snapshot
from git_envhist.objects.commits import encode_commit
from git_envhist.objects.own_packs import OwnPacks, drop_broken_index, restore_lost_indexes
from git_envhist.objects.pack_file import JOINED, read_entries
from git_envhist.objects.pack_writer import PackWriter, StagedPack
from git_envhist.secrets.keys import Key
from git_envhist.snapshots.message import MessageFields, mac_input, with_mac, write_message
from git_envhist.snapshots.notes import NO_FILES, add_records
from git_envhist.snapshots.restarted_timelines import record_restarted
from git_envhist.snapshots.rewritten_ids import current_commit, read_rewritten
from git_envhist.snapshots.staging import Staging

TRIES = 20

Describe = Callable[[str | None], MessageFields]
"""Returns the message fields of a snapshot that follows a given commit."""


@dataclass(frozen=True, slots=True)
class CommitDraft:
    """Everything that a snapshot's commit is made of, except its parent."""

    tree: str
    signature: bytes
    describe: Describe
    records: Callable[[str], tuple[NoteRecord, ...]]
    """Returns the first records of its note, given the commit."""
    key: Key | None
    at: datetime


@dataclass(frozen=True, slots=True)
class PublishedSnapshot:
    commit: str
    parent: str | None
    draft: MessageFields
    stored_bytes: int
    data: bytes
    """The commit object."""
    warnings: tuple[str, ...] = ()


def publish(
    repository: Repository,
    staging: Staging,
    timeline: str,
    packs: list[StagedPack],
    commit_draft: CommitDraft,
    own: OwnPacks,
) -> PublishedSnapshot:
    """Append the snapshot to its timeline; if the tip moved meanwhile, to the new tip.

    Objects in our `own` packs are read in this process: each git child saved is a millisecond or two.
    """
    ref = TIMELINE_REFS + timeline
    waiting = list(packs)
    for _ in range(TRIES):
        tip = repository.resolve_ref(ref)
        is_present = tip is not None and (bytes.fromhex(tip) in own or _tip_exists(repository, tip))
        parent = tip if is_present else None
        lost = [] if parent == tip else [_abandon_tip(repository, timeline, tip)]
        draft = commit_draft.describe(parent)
        data = _commit_data(parent, draft, commit_draft)
        commit, notes, small, warnings = _write_commit(
            repository, staging, timeline, data, commit_draft, own, waiting
        )
        staging.journal_commit(commit)
        staging.publish([*waiting, *small])
        move_warnings = _move_refs(repository, ref, timeline, commit, tip, notes)
        if move_warnings is None:
            continue
        stored = sum(pack.size for pack in (*waiting, *small))
        return PublishedSnapshot(commit, parent, draft, stored, data, (*lost, *warnings, *move_warnings))
    raise GitFailed(f"'{ref}' keeps changing", hint="run the command again")


def _tip_exists(repository: Repository, tip: str) -> bool:
    # A multi-pack-index that names a deleted pack hides the objects of other packs.
    return object_exists(repository.git, tip) or (
        drop_broken_index(repository.pack_dir) and object_exists(repository.git, tip)
    )


def _abandon_tip(repository: Repository, timeline: str, tip: str | None) -> str:
    record_restarted(repository.common_state, timeline)
    return (
        f"the history before this cannot be read: '{tip}' is missing; a new chain starts "
        "('git envlog fsck --repair' recovers the old snapshots that exist)"
    )


def _commit_data(parent: str | None, draft: MessageFields, commit_draft: CommitDraft) -> bytes:
    message = write_message(draft)
    if commit_draft.key is not None:
        message = with_mac(
            message, commit_draft.key.mac(mac_input(commit_draft.tree, commit_draft.signature, message))
        )
    return encode_commit(commit_draft.tree, parent, commit_draft.signature, commit_draft.signature, message)


def _write_commit(
    repository: Repository,
    staging: Staging,
    timeline: str,
    data: bytes,
    commit_draft: CommitDraft,
    own: OwnPacks,
    waiting: list[StagedPack],
) -> tuple[str, tuple[str | None, str] | None, list[StagedPack], list[str]]:
    """Write the commit and its note into one pack, and merge the small packs of `waiting` into it."""
    writer = PackWriter(staging.pack_dir, repository.object_format)
    _merge_small(writer, waiting, repository.hash_length)
    commit = writer.add(b"commit", data).hex()
    warnings: list[str] = []
    notes = None
    undo = writer.mark()
    try:
        notes = write_notes(
            repository, writer, timeline, {commit: commit_draft.records(commit)}, commit_draft.signature, own
        )
    except (EnvhistError, OSError) as error:
        writer.rollback(undo)
        warnings.append(f"the note could not be written, the snapshot is whole: {in_words(error)}")
    pack = writer.finish()
    return commit, notes, [pack] if pack else [], warnings


def _merge_small(writer: PackWriter, waiting: list[StagedPack], hash_length: int) -> None:
    for pack in [pack for pack in waiting if pack.size <= JOINED]:
        before = writer.mark()
        try:
            for oid, entry, checksum in read_entries(pack.pack_path, hash_length):
                writer.put(oid, entry, checksum)
        except (Damaged, OSError):
            writer.rollback(before)
        else:
            waiting.remove(pack)


def write_notes(
    repository: Repository,
    writer: PackWriter,
    timeline: str,
    additions: dict[str, tuple[NoteRecord, ...]],
    signature: bytes,
    own: OwnPacks | None = None,
    files: Mapping[bytes, bytes] = NO_FILES,
    without: Sequence[bytes] = (),
) -> tuple[str | None, str]:
    """Return the old tip of the notes and the new one."""
    old = repository.resolve_ref(NOTES_REFS + timeline)
    with CatFile(repository.git) as reader:
        new = add_records(
            reader if own is None else _OwnFirst(own, reader),
            writer,
            old,
            additions,
            identity=signature,
            object_format=repository.object_format,
            files=files,
            without=without,
        )
    return old, new


class _OwnFirst:
    """Reads objects from our packs, and from git those that are missing or damaged there."""

    def __init__(self, own: OwnPacks, others: CatFile) -> None:
        self._own = own
        self._others = others

    def read(self, name: str) -> GitObject | None:
        try:
            kind, data = self._own.read(bytes.fromhex(name))
        except (KeyError, Damaged):
            return self._others.read(name)
        return GitObject(kind.decode("ascii"), data)


def _move_refs(
    repository: Repository,
    ref: str,
    timeline: str,
    commit: str,
    parent: str | None,
    notes: tuple[str | None, str] | None,
) -> list[str] | None:
    """Move the refs. Return the warnings, or None if another process moved the snapshot's ref first."""
    snapshot = RefUpdate(ref, commit, parent)
    warnings: list[str] = []
    if notes is not None:
        note = RefUpdate(NOTES_REFS + timeline, notes[1], notes[0])
        try:
            repository.move_refs([snapshot, note])
        except EnvhistError as error:
            warnings = [f"the note could not be written, the snapshot is whole: {in_words(error)}"]
        else:
            repository.sync_refs([ref, note.ref])
            return []
    try:
        _move_snapshot_ref(repository, snapshot)
    except RefsMoved:
        return None
    repository.sync_refs([ref])
    return warnings


def _move_snapshot_ref(repository: Repository, snapshot: RefUpdate) -> None:
    # git moves the refs of a transaction one after another: a git that was killed may have moved ours already.
    if repository.resolve_ref(snapshot.ref) != snapshot.new:
        try:
            repository.move_refs([snapshot])
        except EnvhistError:
            # A concurrent `git gc` may have deleted one of our indexes as garbage, so that git did not find the
            # objects.
            if restore_lost_indexes(repository.common_state, repository.pack_dir):
                repository.move_refs([snapshot])
            elif repository.resolve_ref(snapshot.ref) != snapshot.new:
                raise


def annotate(
    repository: Repository,
    staging: Staging,
    timeline: str,
    additions: dict[str, tuple[NoteRecord, ...]],
    signature: bytes,
    files: Mapping[bytes, bytes] = NO_FILES,
    without: Sequence[bytes] = (),
) -> None:
    """Add records and files to the notes of a timeline; `without`: directories of files to remove first."""
    ref = NOTES_REFS + timeline
    for _ in range(TRIES):
        writer = PackWriter(staging.pack_dir, repository.object_format)
        old, new = write_notes(
            repository, writer, timeline, additions, signature, files=files, without=without
        )
        pack = writer.finish()
        staging.journal_commit(new)
        staging.publish([pack] if pack else [])
        try:
            repository.move_refs([RefUpdate(ref, new, old)])
        except RefsMoved:
            continue
        repository.sync_refs([ref])
        return
    raise GitFailed(f"'{ref}' keeps changing", hint="run the command again")


def object_exists(git: Git, oid: str) -> bool:
    """Return whether an object exists. Raise `GitFailed` if git cannot determine it."""
    asked = git.try_run("cat-file", "-e", oid)
    if asked.status not in (0, 1):
        raise GitFailed(asked.complaint)
    return asked.status == 0


def is_published(git: Git, commit: str) -> bool:
    """Return whether one of our refs reaches a commit.

    Raise `GitFailed` if git cannot determine it: then nothing may be deleted.
    """
    if not object_exists(git, commit):
        # A commit that a ref names and git cannot read is damaged: that is no reason to delete the rest.
        return (
            commit
            in git.run("for-each-ref", "--format=%(objectname)", TIMELINE_REFS, NOTES_REFS, TRASH_REFS)
            .decode()
            .split()
        )
    refs = git.run("for-each-ref", "--count=1", f"--contains={commit}", TIMELINE_REFS, NOTES_REFS, TRASH_REFS)
    return bool(refs.strip())


def add_note_records(
    repository: Repository,
    own_timeline: Callable[[], str],
    snapshot: Snapshot,
    records: tuple[NoteRecord, ...],
    signature: bytes,
    files: Mapping[bytes, bytes] = NO_FILES,
) -> None:
    """Add records to the note of a snapshot, and files to the tree of the notes.

    `own_timeline` returns the name of this working tree's timeline; it is called while the locks are held.
    """
    own = os.path.join(state_directory(repository.state), "lock")
    common = os.path.join(state_directory(repository.common_state), COMMON_LOCK)
    with (
        locked(own),
        locked(common, shared=True),
        Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging,
    ):
        timeline = own_timeline()
        if snapshot.timeline == timeline:
            # The lock excludes a concurrent rewrite; an earlier one recorded the commit's new hash.
            place = current_commit(read_rewritten(repository.common_state), snapshot.commit)
        else:
            # Notes on another timeline's snapshot are stored on its id, which never changes.
            place = snapshot.id
        annotate(repository, staging, timeline, {place: records}, signature, files)
