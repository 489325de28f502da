"""Which command checks an environment (pure): one that was typed, configured, or recorded here by this user."""

from __future__ import annotations

from collections.abc import Callable

from git_envhist.errors import UsageError
from git_envhist.history.timeline import own_verdict
from git_envhist.model import Snapshot, Trigger
from git_envhist.settings import Settings

Typed = Callable[[str], str | None]
"""The words in which a note tells a command -> the command as it was typed here."""
HINT = "git envlog verify -- <command>; for good: git config envhist.verify '<command>'"


class NoCheck(UsageError):
    """Nobody said what is to be run."""

    code = "no-check"


def check_of_capture(given: str | None, settings: Settings, trigger: Trigger) -> str | None:
    """Return the check that a capture runs; None for none. An empty `given` is none, whatever is configured."""
    if given is not None:
        return given or None
    return settings.verify if trigger.value in settings.verify_on else None


def check_to_run(given: str | None, settings: Settings, snapshot: Snapshot | None, typed: Typed) -> str:
    """The check of a moment that somebody wants to be checked."""
    found = given or settings.verify or (recorded_check(snapshot, typed) if snapshot else None)
    if found is None:
        raise NoCheck("which check is to be run?", hint=HINT)
    return found


def recorded_check(snapshot: Snapshot, typed: Typed) -> str | None:
    """The check that a moment was judged by, as it was typed; None where that was not here."""
    verdict = own_verdict(snapshot) or snapshot.verdict
    # Words in a note are somebody's, signed or not: only what was typed or configured here is ever run again.
    if verdict is None or verdict.claimed_by is not None:
        return None
    return typed(verdict.command)
