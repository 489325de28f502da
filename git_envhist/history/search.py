"""Select snapshots of a list: by time, words, verdicts, triggers, changed paths, summary and changed text.

`search` applies all keywords of `EnvHistory.log`, the cheap ones first: messages and notes, then changed paths, then
summaries, then the text in files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from git_envhist.diff import changes
from git_envhist.errors import GitFailed, UsageError
from git_envhist.git.process import Git
from git_envhist.history.catalog import as_sequence
from git_envhist.history.timeline import Choice, choose, filter_by_summary
from git_envhist.model import Snapshot, Trigger, VerdictStatus

if TYPE_CHECKING:
    from git_envhist.snapshots.sealed_facts import FindFactsKey

VERDICTS = (*(one.value for one in VerdictStatus), "none")
TRIGGERS = tuple(one.value for one in Trigger)
CheckTrees = Callable[[Sequence[Snapshot]], None]
"""Raise `TreeTooLarge` before the trees of these snapshots are compared."""


class LogKeywords(TypedDict, total=False):
    """The keywords of `EnvHistory.log`: all must hold; of several words for one keyword, one."""

    since: str
    """A time as `git envlog` reads it: `2 hours ago`, `10:27`."""
    until: str
    grep: Sequence[str]
    """Patterns; one is found in the intent, a name or a note."""
    ignore_case: bool
    verdicts: Sequence[str]
    """`pass`, `fail`, `error`, `none`."""
    triggers: Sequence[str]
    sessions: Sequence[str]
    """Ids of an agent's sessions, or the beginnings of such ids."""
    agent_ids: Sequence[str]
    """Ids of subagents, or the beginnings of such ids."""
    paths: Sequence[str | bytes]
    """git's pathspecs from the top: snapshots that changed such a path."""
    summary: str
    """A text in the summary or in a changed fact: a package, a variable, a count."""
    content: str
    """A text that was added to a file or removed from one, as for `git log -S`."""
    content_pattern: str
    """A regular expression that a changed line of a file matches, as for `git log -G`."""
    span: str
    """A range, as for `git envlog a..b`."""
    all_timelines: bool
    """The snapshots of all timelines, by time."""
    reverse: bool
    """Oldest first."""


def search(
    git: Git,
    found: Iterable[Snapshot],
    keywords: LogKeywords,
    now: datetime,
    find_key: FindFactsKey,
    check: CheckTrees,
) -> list[Snapshot]:
    """Return the snapshots that the keywords select, in their order; `span` and `reverse` are the caller's."""
    choice = Choice(
        since=keywords.get("since"),
        until=keywords.get("until"),
        grep=as_sequence(keywords.get("grep", ())),
        ignore_case=keywords.get("ignore_case", False),
        verdicts=_known_words(keywords.get("verdicts", ()), VERDICTS),
        triggers=_known_words(keywords.get("triggers", ()), TRIGGERS),
        summary=keywords.get("summary"),
        content=keywords.get("content"),
        content_pattern=keywords.get("content_pattern"),
        sessions=as_sequence(keywords.get("sessions", ())),
        agent_ids=as_sequence(keywords.get("agent_ids", ())),
    )
    chosen = choose(found, choice, now)
    paths = tuple(map(os.fsencode, as_sequence(keywords.get("paths", ()))))
    if paths:
        check(chosen)
        chosen = filter_by_paths(git, chosen, paths)
    if choice.summary is not None:
        chosen = filter_by_summary(git, chosen, choice.summary, find_key)
    if choice.searches_content:
        check(chosen)
        chosen = filter_by_content(git, chosen, choice, paths)
    return chosen


def filter_by_paths(git: Git, found: Sequence[Snapshot], pathspecs: Sequence[bytes]) -> list[Snapshot]:
    """Return the snapshots that changed a path which the pathspecs match."""
    steps = [(snapshot.commit, snapshot.parent) for snapshot in found]
    changed = changes.commits_changing_paths(git, steps, pathspecs)
    return [snapshot for snapshot in found if snapshot.commit in changed]


def filter_by_content(
    git: Git, found: Sequence[Snapshot], choice: Choice, pathspecs: Sequence[bytes]
) -> list[Snapshot]:
    """Return the snapshots that changed the text of the choice in files; raise `UsageError` for a bad pattern."""
    steps = [(snapshot.commit, snapshot.parent) for snapshot in found]
    search = changes.ContentSearch(choice.content, choice.content_pattern, choice.ignore_case)
    try:
        chosen = changes.commits_changing_content(git, steps, search, pathspecs)
    except GitFailed as failed:
        if choice.content_pattern is not None and "regex" in failed.message:
            raise UsageError(
                f"not a pattern: '{choice.content_pattern}'", hint="-S <text> searches for a plain text"
            ) from failed
        raise
    return [snapshot for snapshot in found if snapshot.commit in chosen]


def _known_words(words: Sequence[str], known: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [one for one in as_sequence(words) if one not in known]
    if unknown:
        raise UsageError(f"no such word: '{unknown[0]}'", hint=f"the words are: {', '.join(known)}")
    return as_sequence(words)
