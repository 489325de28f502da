"""What a restore left half way, told by commands that only look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from git_envhist.capturing.leftovers import has_unfinished_restore
from git_envhist.cli.failure import warn

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory


def warn_if_half_way(history: EnvHistory) -> None:
    """Say so: what is here is neither of two moments, and whoever changes it first would not know."""
    if has_unfinished_restore(history.repository.state):
        warn(
            "a restore was broken off here: git envrestore --continue finishes it, git envrestore --abort takes it back"
        )
