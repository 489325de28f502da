"""Find the snapshots that changed a text in files, for `git envlog -S` and `-G`."""

from __future__ import annotations

from collections.abc import Sequence

from git_envhist.context import HistoryContext, refuse_endless_trees
from git_envhist.diff import compare
from git_envhist.errors import GitFailed, UsageError
from git_envhist.history.timeline import Choice
from git_envhist.model import Snapshot


def commits_changing_content(
    history: HistoryContext, found: Sequence[Snapshot], choice: Choice, pathspecs: Sequence[bytes]
) -> list[Snapshot]:
    """Return the snapshots whose files differ from those before as the choice says."""
    refuse_endless_trees(history, found)
    steps = [(snapshot.commit, snapshot.parent) for snapshot in found]
    search = compare.ContentSearch(choice.content, choice.content_pattern, choice.ignore_case)
    try:
        chosen = compare.commits_changing_content(history.repository.git, steps, search, pathspecs)
    except GitFailed as failed:
        if choice.content_pattern is not None and "regex" in failed.message:
            raise UsageError(
                f"not a pattern: '{choice.content_pattern}'", hint="-S <text> searches for a plain text"
            ) from failed
        raise
    return [snapshot for snapshot in found if snapshot.commit in chosen]
