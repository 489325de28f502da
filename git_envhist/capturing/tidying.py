"""Keeps the packs few after a capture or a restore, when nobody is in the way; a failure costs nothing but room."""

from __future__ import annotations

import os

from git_envhist.errors import EnvhistError
from git_envhist.store.locks import locked_now
from git_envhist.store.merging import merge_packs
from git_envhist.store.repository import Repository

COMMON_LOCK = "lock.shared"
"""Captures share it; who merges packs has it alone."""


def tidy(repository: Repository) -> None:
    """Merge small packs, unless a capture of another working tree, or a git that goes by packs, is under way."""
    lock = os.path.join(repository.common_state, COMMON_LOCK)
    try:
        with locked_now(lock) as alone:
            if alone:
                merge_packs(
                    repository.common_state,
                    repository.pack_dir,
                    repository.object_format,
                    at_work=repository.gits_at_work,
                )
    except (EnvhistError, OSError):
        return  # the next capture tries again; the snapshot that was just taken must not be spoken of as failed
