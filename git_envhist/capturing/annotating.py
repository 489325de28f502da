"""Adds records to notes by themselves, without a capture."""

from __future__ import annotations

import os
from collections.abc import Mapping

from git_envhist.capturing.publish import annotate
from git_envhist.capturing.timelines import ensure_timeline
from git_envhist.model import Record
from git_envhist.settings import Settings
from git_envhist.store.locks import locked, state_directory
from git_envhist.store.notes import NO_FILES
from git_envhist.store.repository import Repository
from git_envhist.store.staging import Staging


def annotate_now(
    repository: Repository,
    settings: Settings,
    additions: dict[str, tuple[Record, ...]],
    signature: bytes,
    files: Mapping[bytes, bytes] = NO_FILES,
) -> None:
    """Add records to the notes of snapshots, named by their commits, and beside them what they speak of."""
    own = os.path.join(state_directory(repository.state), "lock")
    with locked(own), Staging.create(repository.common_state, repository.pack_dir) as staging:
        annotate(repository, staging, ensure_timeline(repository, settings), additions, signature, files)
