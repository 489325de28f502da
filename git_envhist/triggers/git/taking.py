"""The capture that a hook of git causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from git_envhist.api import EnvHistory
from git_envhist.capturing.attendance import NOT_APPROVED, UNATTENDED, may_run
from git_envhist.model import CaptureResult, Trigger
from git_envhist.verifying.commands import check_of_capture


class Tell(Protocol):
    """Hears what came of it, and of which snapshot, as soon as that stands."""

    def __call__(self, result: str, snapshot: str | None, message: str = "") -> None: ...


def capture_for_hook(trigger: Trigger, environ: Mapping[str, str], tell: Tell) -> None:
    """Capture with the subject of the last commit as intent; then run the check, where hooks are to."""
    history = EnvHistory.open(".", environ={**environ, UNATTENDED: "1"}, workers="fork")
    if not history.settings.enabled:
        tell("off", None)
        return

    def stands(captured: CaptureResult) -> None:
        taken = captured.snapshot
        result, snapshot = ("unchanged", None) if taken is None else ("captured", taken.id)
        tell(result, snapshot, "; ".join(_not_approved(history, trigger, captured)))

    history.capture(trigger=trigger, if_changed=not _has_moved(history), captured=stands)


def _not_approved(history: EnvHistory, trigger: Trigger, captured: CaptureResult) -> Iterator[str]:
    """The commands of the configuration that do not run because no person ran them here before."""
    yield from (warning for warning in captured.warnings if NOT_APPROVED in warning)
    command = check_of_capture(None, history.settings, trigger)
    if command is not None and not may_run(history.environ, history.repository.common_dir, command):
        yield f"the check does not run: {NOT_APPROVED}; run it: git envlog verify"


def _has_moved(history: EnvHistory) -> bool:
    """Whether another code commit is checked out than when the newest snapshot was taken: that is a change, too."""
    newest = history.log(limit=1)
    head = history.repository.resolve_ref("HEAD")
    return not newest or newest[0].head != head
