"""Checks: verify the working tree or an older snapshot, and bisect."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from git_envhist.capture.pipeline import CapturePipeline
from git_envhist.checks.check_command import UNDER_CHECK, RunOptions, run_check
from git_envhist.checks.sandbox import Sandbox, SnapshotWriter, original_path, sandbox
from git_envhist.checks.verdicts import (
    NOT_JUDGED,
    CommandExit,
    VerdictWriter,
    check_of_capture,
    check_to_run,
    recorded_check,
)
from git_envhist.consent import NOT_APPROVED, may_run
from git_envhist.context import HistoryContext
from git_envhist.disk import state_directory
from git_envhist.errors import EnvhistError, Refused, UsageError, in_words
from git_envhist.git.repository import Repository
from git_envhist.history.timeline import own_verdict
from git_envhist.lazy import replace
from git_envhist.locks import locked, try_lock
from git_envhist.model import BisectResult, CaptureResult, CheckResult, Snapshot, Trigger, VerdictStatus
from git_envhist.model.checks import UNWATCHED, CheckListener
from git_envhist.secrets.masking import mask_text

if TYPE_CHECKING:
    from git_envhist.capture.pipeline import CaptureKeywords, CaptureOptions
    from git_envhist.model import RestoreResult
    from git_envhist.restore.undo_and_redo import Restorer


# Bisect: choose the snapshot to try next (pure).


def next_to_try(good: int, bad: int, skipped: Collection[int]) -> int | None:
    """Return the place nearest to the middle between the newest good and the oldest bad one; None if none is left."""
    untried = [place for place in range(good + 1, bad) if place not in skipped]
    return min(untried, key=lambda place: abs(2 * place - good - bad), default=None)


def tries_left(good: int, bad: int) -> int:
    """Return how many tries are needed at most, if every one is conclusive."""
    return max(0, bad - good - 1).bit_length()


def candidates(good: int, bad: int, skipped: Collection[int]) -> tuple[int, ...]:
    """Return the places that may be the first bad one: several if tries were inconclusive."""
    return tuple(place for place in range(good + 1, bad + 1) if place == bad or place in skipped)


# Bisect: find the first snapshot at which a check fails.

Check = Callable[[Snapshot], CheckResult]
WHERE_BAD = "name a failing snapshot: git envlog bisect --bad <rev>; 'git envlog --verdict=fail' lists them"
WHERE_GOOD = "name a passing snapshot: git envlog bisect --good <rev>; 'git envlog --verdict=pass' lists them"


class NothingToBisect(EnvhistError):
    """There is no first bad snapshot between the two ends."""

    exit_code = 1
    code = "nothing-to-find"


class CheckInconclusive(EnvhistError):
    """A check was inconclusive where a result is required."""

    exit_code = NOT_JUDGED
    code = "cannot-tell"


class BisectRange(NamedTuple):
    """The ends of a search, and whether their results are given by the user."""

    good: Snapshot
    bad: Snapshot
    trust_good: bool
    trust_bad: bool


def bisect(
    snapshots: Sequence[Snapshot], ends: BisectRange, command: str, check: Check, listener: CheckListener
) -> BisectResult:
    """Return the first bad snapshot; `snapshots`: those from the good end to the bad end, oldest first."""
    search = _Bisection(command, check, listener)
    search.expect(ends.bad, VerdictStatus.FAIL, ends.trust_bad)
    search.expect(ends.good, VerdictStatus.PASS, ends.trust_good)
    good, bad, skipped = 0, len(snapshots) - 1, set[int]()
    while (place := next_to_try(good, bad, skipped)) is not None:
        status = search.status(snapshots[place], bad - good, tries_left(good, bad))
        if status is VerdictStatus.PASS:
            good = place
        elif status is VerdictStatus.FAIL:
            bad = place
        else:
            skipped.add(place)
    found = tuple(snapshots[place] for place in candidates(good, bad, skipped))
    return BisectResult(command, snapshots[good], snapshots[bad], found, tuple(search.tried))


def snapshots_between(newest_first: Sequence[Snapshot], good: Snapshot, bad: Snapshot) -> list[Snapshot]:
    """Return the snapshots from one to another, oldest first."""
    ids = [snapshot.id for snapshot in newest_first]
    if good.id not in ids or bad.id not in ids:
        raise UsageError(
            "the two ends are not on one timeline", hint="git envlog bisect --good <rev> --bad <rev>"
        )
    old, new = ids.index(good.id), ids.index(bad.id)
    if old == new:
        raise UsageError(f"the good and the bad snapshot are the same: '{good.id[:7]}'", hint=WHERE_BAD)
    if old < new:
        raise UsageError(f"'{good.id[:7]}' is not older than '{bad.id[:7]}'", hint="the good one comes first")
    return list(newest_first[new : old + 1])[::-1]


class _Bisection:
    """Known results of snapshots, stored or new; equal environments are tried once."""

    def __init__(self, command: str, check: Check, listener: CheckListener) -> None:
        self._command = command
        self._check = check
        self._listener = listener
        self._known: dict[str, VerdictStatus] = {}
        self.tried: list[CheckResult] = []

    def expect(self, end: Snapshot, wanted: VerdictStatus, trusted: bool) -> None:
        """Verify the expected result of an end."""
        if trusted:
            self._known[end.content] = wanted
            return
        status = self.status(end, 1, 1)
        if status is VerdictStatus.ERROR:
            raise CheckInconclusive(
                f"the check is inconclusive at '{end.id[:7]}': {self._command}",
                hint=f"git envlog show {end.id[:7]}",
            )
        if status is not wanted:
            outcome = "passes" if status is VerdictStatus.PASS else "fails already"
            hint = WHERE_BAD if status is VerdictStatus.PASS else WHERE_GOOD
            raise NothingToBisect(f"the check {outcome} at '{end.id[:7]}': {self._command}", hint=hint)

    def status(self, snapshot: Snapshot, left: int, tries: int) -> VerdictStatus:
        if not snapshot.trusted:
            return VerdictStatus.ERROR
        known = self._known.get(snapshot.content) or self._stored_status(snapshot)
        if known is None:
            known = self._try(snapshot, left, tries)
        self._known[snapshot.content] = known
        return known

    def _stored_status(self, snapshot: Snapshot) -> VerdictStatus | None:
        same = tuple(one for one in snapshot.verdicts if one.command == self._command)
        verdict = own_verdict(replace(snapshot, verdicts=same))
        return None if verdict is None or verdict.status is VerdictStatus.ERROR else verdict.status

    def _try(self, snapshot: Snapshot, left: int, tries: int) -> VerdictStatus:
        if self._listener.trying is not None:
            self._listener.trying(snapshot, left, tries)
        checked = self._check(snapshot)
        self.tried.append(checked)
        if self._listener.tried is not None:
            self._listener.tried(checked)
        return checked.verdict.status


# One check at a time per working tree: concurrent checks would disturb each other.

LOCK = "check.lock"


class InsideCheck(Refused):
    """A check tried to run a check of its own environment, which would wait for itself."""

    code = "inside-check"

    def __init__(self) -> None:
        super().__init__(
            "already inside a check of the same environment", hint="a check must not run another check"
        )


def is_inside(repository: Repository, environ: Mapping[str, str]) -> bool:
    """Return whether this process runs inside a check of this working tree."""
    return repository.root in environ.get(UNDER_CHECK, "").split(os.pathsep)


@contextmanager
def check_lock(
    repository: Repository, environ: Mapping[str, str], waiting: Callable[[], None] | None
) -> Iterator[None]:
    """Lock the checks of this working tree."""
    if is_inside(repository, environ):
        raise InsideCheck
    with locked(_lock(repository), waiting=waiting):
        yield


def is_check_running(repository: Repository) -> bool:
    """Return whether a check of this working tree is running."""
    with try_lock(_lock(repository)) as free:
        return not free


def _lock(repository: Repository) -> str:
    return os.path.join(state_directory(repository.state), LOCK)


# Check the working tree.


def check_live(
    capturing: CapturePipeline,
    writer: VerdictWriter,
    snapshot: Snapshot,
    command: str,
    listener: CheckListener,
) -> CheckResult:
    """Run a check on the working tree, which equals the snapshot, and record the verdict."""
    repository = capturing.repository
    with check_lock(repository, capturing.environ, listener.waiting):
        limit = capturing.settings.verify_timeout
        if listener.running is not None:
            listener.running(command)
        result = run_check(command, RunOptions(repository.root, capturing.environ, limit, listener.through))
        after, warnings = content_now(capturing)
        verdict = writer.verdict(command, result, snapshot.content, after)
        warnings += writer.record(snapshot, verdict, command)
    return CheckResult(snapshot, verdict, repository.root, tuple(warnings))


def content_now(capturing: CapturePipeline) -> tuple[str | None, list[str]]:
    """Return the `Env-Content` of the environment now; None, with a warning, if it cannot be computed."""
    try:
        with capturing.current_tree() as captured:
            return captured.content, []
    except (EnvhistError, OSError) as error:
        return None, [f"unknown whether the check changed the environment: {in_words(error)}"]


# Check an older snapshot in a sandbox.

INCOMPLETE = "\n(the snapshot could not be restored completely, so this failure proves nothing)\n"


def check_snapshot(
    capturing: CapturePipeline,
    writer: VerdictWriter,
    restorer: SnapshotWriter,
    snapshot: Snapshot,
    command: str,
    listener: CheckListener,
) -> CheckResult:
    """Run a check on an older snapshot and record the verdict."""
    if not snapshot.trusted:
        raise Refused(
            f"'{snapshot.id[:7]}' is unsigned: a check would run programs of an unknown author",
            hint="inspect it first: git envlog fork --allow-unsigned <directory> <rev>",
        )
    with check_lock(capturing.repository, capturing.environ, listener.waiting):
        original = original_path(capturing, snapshot)
        with sandbox(capturing, restorer, snapshot, original) as box:
            result = _run(capturing, box, command, listener)
            is_complete, ran = box.is_complete, box.problem is None
        verdict = writer.verdict(command, result, snapshot.content, None)
        if verdict.status is VerdictStatus.FAIL and not is_complete:
            tail = verdict.output_tail + INCOMPLETE
            verdict = replace(verdict, status=VerdictStatus.ERROR, output_tail=tail)
        warnings = writer.record(snapshot, verdict, command)
    return CheckResult(snapshot, verdict, box.visible_at if ran else None, tuple(warnings))


def _run(capturing: CapturePipeline, box: Sandbox, command: str, listener: CheckListener) -> CommandExit:
    if box.problem is not None:
        return CommandExit(tail=os.fsencode(f"{box.problem}\n"))
    if listener.running is not None:
        listener.running(command)
    limit = capturing.settings.verify_timeout
    return run_check(
        command, RunOptions(box.visible_at, capturing.environ, limit, listener.through, box.words)
    )


class NotApproved(Refused):
    """A hook or an agent asked for a check that no user has run here before."""

    code = "not-approved"


class Checks:
    """Runs checks of the working tree and of older snapshots."""

    def __init__(
        self, history: HistoryContext, capturing: CapturePipeline, restorer: Callable[[], Restorer]
    ) -> None:
        self._history = history
        self._restorer = restorer
        self._capturing = capturing
        self.writer = VerdictWriter(
            capturing.repository, capturing.settings, capturing.keys, capturing.environ
        )

    @property
    def _environ(self) -> Mapping[str, str]:
        return self._capturing.environ

    def after_capture(
        self, captured: CaptureResult, request: CaptureOptions, asked: CaptureKeywords
    ) -> CaptureResult:
        """Run the check of a capture, if one is requested or configured; an error becomes a warning."""
        command_given, listener = asked.get("verify"), asked.get("watching", UNWATCHED)
        trigger = request.trigger
        command = check_of_capture(command_given, self._capturing.settings, trigger)
        is_known = captured.snapshot is None and command_given is None
        if command is None or request.dry_run or is_known:
            return captured
        snapshot = captured.snapshot or self._history.resolve("@")
        problem = self._check_problem(trigger)
        if problem is not None:
            return replace(captured, warnings=(*captured.warnings, problem))
        if command_given is None and not self._is_approved(command):
            problem = f"the check did not run: {NOT_APPROVED}; run it: git envlog verify"
            return replace(captured, warnings=(*captured.warnings, problem))
        try:
            checked = check_live(self._capturing, self.writer, snapshot, command, listener)
        except (EnvhistError, OSError) as error:
            warning = f"the check did not run; the snapshot was captured: {in_words(error)}"
            return replace(captured, warnings=(*captured.warnings, warning))
        finally:
            self._history.refresh()
        return replace(captured, verdict=checked.verdict, warnings=(*captured.warnings, *checked.warnings))

    def now(self, command: str | None = None, listener: CheckListener = UNWATCHED) -> CheckResult:
        """Check the working tree; capture it first unless the newest snapshot equals it."""
        command = self._command(
            command, None if command or self._capturing.settings.verify else self._checked()
        )
        captured = self._capture()
        snapshot = captured.snapshot or self._history.resolve("@")
        checked = self._live(snapshot, command, listener)
        return replace(checked, warnings=(*captured.warnings, *checked.warnings))

    def run(
        self,
        revision: str | Snapshot = "now",
        command: str | None = None,
        listener: CheckListener = UNWATCHED,
    ) -> CheckResult:
        """Check the working tree, or an older snapshot in a sandbox."""
        if revision == "now":
            return self.now(command, listener)
        snapshot = self._resolved(revision)
        return self._older(snapshot, self._command(command, snapshot), listener)

    def bisect(
        self,
        good: str | Snapshot | None,
        bad: str | Snapshot | None,
        command: str | None = None,
        listener: CheckListener = UNWATCHED,
    ) -> BisectResult:
        """Return the first snapshot between two at which the check fails; default: from `good` to `@`."""

        first, last = self._resolved(good or "good"), self._resolved(bad or "@")
        typed = command or self.recorded(first)
        snapshots = [self._history.judge(one) for one in self._history.log(timeline=last.timeline)]
        ends = BisectRange(first, last, good is not None, bad is not None)
        return bisect(
            snapshots_between(snapshots, first, last),
            ends,
            mask_text(typed),
            lambda one: self._older(one, typed, listener),
            listener,
        )

    def recorded(self, snapshot: Snapshot) -> str:
        """Return the command of a snapshot's verdict, or else the configured one."""
        return self._approved(recorded_check(snapshot, self.writer.ledger.typed) or self._command(None, None))

    def after_restore(
        self, restored: RestoreResult, command: str, listener: CheckListener = UNWATCHED
    ) -> CheckResult:
        """Check the result of a restore."""
        return self._live(restored.snapshot or restored.target, command, listener)

    def _resolved(self, revision: str | Snapshot) -> Snapshot:
        found = self._history.resolve(revision) if isinstance(revision, str) else revision
        return self._history.judge(found)

    def _live(self, snapshot: Snapshot, command: str, listener: CheckListener) -> CheckResult:
        try:
            return check_live(self._capturing, self.writer, snapshot, command, listener)
        finally:
            self._history.refresh()

    def _older(self, snapshot: Snapshot, command: str, listener: CheckListener) -> CheckResult:

        restorer, writer = self._restorer(), self.writer
        try:
            return check_snapshot(self._capturing, writer, restorer, snapshot, command, listener)
        finally:
            self._history.refresh()

    def _capture(self) -> CaptureResult:
        from git_envhist.capture.pipeline import CaptureOptions  # loaded late: with the capture itself

        captured = self._capturing.capture(CaptureOptions(if_changed=True, trigger=Trigger.MANUAL))
        self._history.refresh()
        return captured

    def _command(self, command_given: str | None, snapshot: Snapshot | None) -> str:
        found = check_to_run(command_given, self._capturing.settings, snapshot, self.writer.ledger.typed)
        return found if command_given is not None else self._approved(found)

    def _checked(self) -> Snapshot | None:
        """Return the newest snapshot with a check that was typed or configured here."""
        judged = (self._history.judge(one) for one in self._history.log())
        return next((one for one in judged if recorded_check(one, self.writer.ledger.typed)), None)

    def _approved(self, command: str) -> str:
        """Return the command; raise `NotApproved` if an agent or hook asks and no user has run it here."""
        if not self._is_approved(command):
            raise NotApproved(
                f"the check '{mask_text(command)}' does not run: {NOT_APPROVED}",
                hint="run it once yourself: git envlog verify",
            )
        return command

    def _is_approved(self, command: str) -> bool:
        return may_run(self._environ, self._capturing.repository.common_dir, command)

    def _check_problem(self, trigger: Trigger) -> str | None:
        if is_inside(self._capturing.repository, self._environ):
            return "the check did not run: already inside a check of this environment"
        if trigger.automatic and is_check_running(self._capturing.repository):
            return "the check did not run: another check of this environment is running"
        return None
