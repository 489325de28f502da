"""The verbs of checks, as `EnvHistory` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from git_envhist.capture.masking import mask_text
from git_envhist.capturing.attendance import NOT_APPROVED, may_run
from git_envhist.errors import EnvhistError, Refused, in_words
from git_envhist.model import BisectResult, CaptureResult, CheckResult, Snapshot, Trigger
from git_envhist.values import replace
from git_envhist.verifying.commands import check_of_capture, check_to_run, recorded_check
from git_envhist.verifying.live import check_live
from git_envhist.verifying.recording import VerdictWriter
from git_envhist.verifying.turns import is_inside, somebody_checks
from git_envhist.verifying.watching import UNWATCHED, CheckListener

if TYPE_CHECKING:
    from git_envhist.capturing.capture import CapturePipeline
    from git_envhist.capturing.request import CaptureKeywords, CaptureOptions
    from git_envhist.model import RestoreResult
    from git_envhist.restoring.verbs import Restorer


class HistoryContext(Protocol):
    """What the verbs need of a history."""

    @property
    def going(self) -> Restorer: ...
    def resolve(self, text: str) -> Snapshot: ...
    def judge(self, snapshot: Snapshot) -> Snapshot: ...
    def log(self, limit: int | None = None, timeline: str | None = None) -> list[Snapshot]: ...
    def forget_world(self) -> None: ...


class NotApproved(Refused):
    """A hook or an agent asked for a check that no person ran here before."""

    code = "not-approved"


class Checks:
    """Runs checks, now and on older moments."""

    def __init__(self, history: HistoryContext, capturing: CapturePipeline) -> None:
        self._history = history
        self._capturing = capturing
        self.scribe = VerdictWriter(
            capturing.repository, capturing.settings, capturing.keys, capturing.environ
        )

    @property
    def _environ(self) -> Mapping[str, str]:
        return self._capturing.environ

    def after_capture(
        self, captured: CaptureResult, request: CaptureOptions, asked: CaptureKeywords
    ) -> CaptureResult:
        """Check what was captured just now, where that is wanted; whatever goes wrong, the snapshot stands."""
        given, watching = asked.get("verify"), asked.get("watching", UNWATCHED)
        trigger = request.trigger
        command = check_of_capture(given, self._capturing.settings, trigger)
        is_known = captured.snapshot is None and given is None
        if command is None or request.dry_run or is_known:
            return captured
        snapshot = captured.snapshot or self._history.resolve("@")
        why_not = self._why_not(trigger)
        if why_not is not None:
            return replace(captured, warnings=(*captured.warnings, why_not))
        if given is None and not self._is_approved(command):
            why_not = f"the check did not run: {NOT_APPROVED}; run it: git envlog verify"
            return replace(captured, warnings=(*captured.warnings, why_not))
        try:
            checked = check_live(self._capturing, self.scribe, snapshot, command, watching)
        except (EnvhistError, OSError) as error:
            warning = f"the check did not run, the snapshot is whole: {in_words(error)}"
            return replace(captured, warnings=(*captured.warnings, warning))
        finally:
            self._history.forget_world()
        return replace(captured, verdict=checked.verdict, warnings=(*captured.warnings, *checked.warnings))

    def now(self, command: str | None = None, watching: CheckListener = UNWATCHED) -> CheckResult:
        """Check what is here now; it is captured first, where the newest snapshot is another."""
        command = self._command(command, None)
        captured = self._capture()
        snapshot = captured.snapshot or self._history.resolve("@")
        checked = self._live(snapshot, command, watching)
        return replace(checked, warnings=(*captured.warnings, *checked.warnings))

    def run(
        self,
        revision: str | Snapshot = "now",
        command: str | None = None,
        watching: CheckListener = UNWATCHED,
    ) -> CheckResult:
        """Check what is here now, or an older moment in a throw-away environment of it."""
        if revision == "now":
            return self.now(command, watching)
        snapshot = self._moment(revision)
        return self._older(snapshot, self._command(command, snapshot), watching)

    def bisect(
        self,
        good: str | Snapshot | None,
        bad: str | Snapshot | None,
        command: str | None = None,
        watching: CheckListener = UNWATCHED,
    ) -> BisectResult:
        """The first moment between two where the check fails; from `good` to `@`, where they are not said."""
        from git_envhist.verifying.bisect import (  # loaded late: nothing else needs it
            BisectRange,
            bisect,
            snapshots_between,
        )

        first, last = self._moment(good or "good"), self._moment(bad or "@")
        typed = command or self.recorded(first)
        line = [self._history.judge(one) for one in self._history.log(timeline=last.timeline)]
        ends = BisectRange(first, last, good is not None, bad is not None)
        return bisect(
            snapshots_between(line, first, last),
            ends,
            mask_text(typed),
            lambda one: self._older(one, typed, watching),
            watching,
        )

    def recorded(self, snapshot: Snapshot) -> str:
        """The check that a moment was judged by, else the configured one."""
        return self._approved(recorded_check(snapshot, self.scribe.ledger.typed) or self._command(None, None))

    def after_restore(
        self, restored: RestoreResult, command: str, watching: CheckListener = UNWATCHED
    ) -> CheckResult:
        """Check what a restore brought."""
        return self._live(restored.moment or restored.target, command, watching)

    def _moment(self, revision: str | Snapshot) -> Snapshot:
        found = self._history.resolve(revision) if isinstance(revision, str) else revision
        return self._history.judge(found)

    def _live(self, snapshot: Snapshot, command: str, watching: CheckListener) -> CheckResult:
        try:
            return check_live(self._capturing, self.scribe, snapshot, command, watching)
        finally:
            self._history.forget_world()

    def _older(self, snapshot: Snapshot, command: str, watching: CheckListener) -> CheckResult:
        from git_envhist.verifying.older import (
            check_older,  # loaded late: a check of what is here needs no other
        )

        going, scribe = self._history.going, self.scribe
        try:
            return check_older(self._capturing, scribe, going, snapshot, command, watching)
        finally:
            self._history.forget_world()

    def _capture(self) -> CaptureResult:
        from git_envhist.capturing.request import CaptureOptions  # loaded late: with the capture itself

        captured = self._capturing.capture(CaptureOptions(if_changed=True, trigger=Trigger.MANUAL))
        self._history.forget_world()
        return captured

    def _command(self, given: str | None, snapshot: Snapshot | None) -> str:
        found = check_to_run(given, self._capturing.settings, snapshot, self.scribe.ledger.typed)
        return found if given is not None else self._approved(found)

    def _approved(self, command: str) -> str:
        """The command, unless no person is present and none ran it here before."""
        if not self._is_approved(command):
            raise NotApproved(
                f"the check '{mask_text(command)}' does not run: {NOT_APPROVED}",
                hint="run it once by hand: git envlog verify",
            )
        return command

    def _is_approved(self, command: str) -> bool:
        return may_run(self._environ, self._capturing.repository.common_dir, command)

    def _why_not(self, trigger: Trigger) -> str | None:
        if is_inside(self._capturing.repository, self._environ):
            return "a check of this environment is what runs this: nothing is checked inside it"
        if trigger.automatic and somebody_checks(self._capturing.repository):
            return "another check of this environment is under way: this moment was not checked"
        return None
