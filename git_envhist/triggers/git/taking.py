"""The capture that a hook of git causes."""

from __future__ import annotations

from collections.abc import Mapping

from git_envhist.api import EnvHistory
from git_envhist.model import Trigger


def take(trigger: Trigger, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """(what came of it, the snapshot): the subject of the last commit is the intent."""
    history = EnvHistory.open(".", environ=environ, workers="fork")
    if not history.settings.enabled:
        return "off", None
    captured = history.capture(trigger=trigger, if_changed=not _has_moved(history))
    if captured.snapshot is None:
        return "unchanged", None
    return "captured", captured.snapshot.id


def _has_moved(history: EnvHistory) -> bool:
    """Whether another code commit is checked out than when the newest snapshot was taken: that is a change, too."""
    newest = history.log(limit=1)
    head = history.repository.resolve_ref("HEAD")
    return not newest or newest[0].head != head
