"""Titles of single snapshots, as a list prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from git_envhist.history.timeline import subject
from git_envhist.model import IntentSource, Snapshot

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.cli.formats import FormatContext


def format_context(history: EnvHistory) -> FormatContext:
    """Return the style of titles and times in messages about single snapshots."""
    from git_envhist.cli.formats import FormatContext  # loaded late: a list has made its own

    return FormatContext(history.now)


def title_of(snapshot: Snapshot) -> str:
    """The words that a list will have for what was just captured."""
    if snapshot.intent_source is IntentSource.GIVEN:
        return subject(snapshot.intent)
    from git_envhist.history.intents import title  # loaded late: most captures are given words

    return title(snapshot)
