"""The capture that a hook of git causes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from git_envhist.api import EnvHistory
from git_envhist.model import Captured, Trigger


class Tell(Protocol):
    """Hears what came of it, and of which snapshot, as soon as that stands."""

    def __call__(self, result: str, snapshot: str | None) -> None: ...


def take(trigger: Trigger, environ: Mapping[str, str], tell: Tell) -> None:
    """Capture with the subject of the last commit as intent; then run the check, where hooks are to."""
    history = EnvHistory.open(".", environ=environ, workers="fork")
    if not history.settings.enabled:
        tell("off", None)
        return

    def stands(captured: Captured) -> None:
        taken = captured.snapshot
        tell("unchanged" if taken is None else "captured", None if taken is None else taken.id)

    history.capture(trigger=trigger, if_changed=not _has_moved(history), captured=stands)


def _has_moved(history: EnvHistory) -> bool:
    """Whether another code commit is checked out than when the newest snapshot was taken: that is a change, too."""
    newest = history.log(limit=1)
    head = history.repository.resolve_ref("HEAD")
    return not newest or newest[0].head != head
