"""Keeps the packs few after a capture or a restore, when nobody is in the way, and has the rest done once a day.

A failure costs nothing but room.
"""

from __future__ import annotations

import os

from git_envhist.errors import EnvhistError
from git_envhist.store.locks import COMMON_LOCK, UPKEEP_LOCK, locked_now
from git_envhist.store.merging import MOST_PACKS, merge_packs
from git_envhist.store.packlist import keep_listed, listed
from git_envhist.store.repository import Repository
from git_envhist.upkeep.daily import begin_if_due

__all__ = ["COMMON_LOCK", "merge_packs_after"]

AFTER_RESTORE = 2 * MOST_PACKS
"""A restore leaves two packs of a few kilobytes: whoever goes back and forth need not wait for their merging each time.
The next capture does it."""


def merge_packs_after(repository: Repository, most: int = MOST_PACKS) -> None:
    """Merge small packs where there are more than so many, unless a capture of another working tree, or a git that goes
    by packs, is under way; where gits leave no gap for it, have them know all packs by one list."""
    state = repository.common_state
    try:
        with (
            locked_now(os.path.join(state, UPKEEP_LOCK)) as idle,
            locked_now(os.path.join(state, COMMON_LOCK)) as alone,
        ):
            if idle and alone:
                before = listed(repository)
                merge_packs(
                    repository.common_state,
                    repository.pack_dir,
                    repository.object_format,
                    most=most,
                    at_work=repository.gits_at_work,
                    shared=repository.shared,
                )
                keep_listed(repository, before, most)
        begin_if_due(repository)
    except (EnvhistError, OSError):
        return  # the next capture tries again; the snapshot that was just taken must not be spoken of as failed
