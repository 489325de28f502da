"""Adds records to a note by themselves, without a capture."""

from __future__ import annotations

import os
from collections.abc import Mapping

from git_envhist.capturing.publish import annotate
from git_envhist.capturing.timelines import ensure_timeline
from git_envhist.model import NoteRecord, Snapshot
from git_envhist.settings import Settings
from git_envhist.store.locks import COMMON_LOCK, locked, state_directory
from git_envhist.store.notes import NO_FILES
from git_envhist.store.repository import Repository
from git_envhist.store.rewritten import current_commit, read_rewritten
from git_envhist.store.staging import Staging


def add_note_records(
    repository: Repository,
    settings: Settings,
    snapshot: Snapshot,
    records: tuple[NoteRecord, ...],
    signature: bytes,
    files: Mapping[bytes, bytes] = NO_FILES,
) -> None:
    """Add records to the note of a snapshot, and beside the notes what they speak of."""
    own = os.path.join(state_directory(repository.state), "lock")
    common = os.path.join(state_directory(repository.common_state), COMMON_LOCK)
    with (
        locked(own),
        locked(common, shared=True),
        Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging,
    ):
        timeline = ensure_timeline(repository, settings)
        if snapshot.timeline == timeline:
            # Nobody rewrites the timeline now; who did since the snapshot was read has said what became of it.
            place = current_commit(read_rewritten(repository.common_state), snapshot.commit)
        else:
            # Nobody moves what others say of a moment: it stands on its id, which stays for ever.
            place = snapshot.id
        annotate(repository, staging, timeline, {place: records}, signature, files)
