"""The verbs of checks, as `EnvHistory` has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from git_envhist.capture.pipeline import CapturePipeline
from git_envhist.checks.runner import UNDER_CHECK, RunOptions, run
from git_envhist.checks.sandbox import Going, Sandbox, original_place, sandbox
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
from git_envhist.disk import locked, locked_now, state_directory
from git_envhist.errors import EnvhistError, Refused, UsageError, in_words
from git_envhist.git.repository import Repository
from git_envhist.history.timeline import own_verdict
from git_envhist.lazy import replace
from git_envhist.model import BisectResult, CaptureResult, CheckResult, Snapshot, Trigger, VerdictStatus
from git_envhist.model.work import UNWATCHED, CheckListener
from git_envhist.secrets.masking import mask_text

if TYPE_CHECKING:
    from git_envhist.capture.pipeline import CaptureKeywords, CaptureOptions
    from git_envhist.model import RestoreResult
    from git_envhist.restore.restorer import Restorer


# Which moment to try next, so that the first bad one is found in the fewest tries (pure).


def next_to_try(good: int, bad: int, skipped: Collection[int]) -> int | None:
    """The place in the middle between the newest good and the oldest bad one that may still be tried."""
    open_places = [place for place in range(good + 1, bad) if place not in skipped]
    return min(open_places, key=lambda place: abs(2 * place - good - bad), default=None)


def tries_left(good: int, bad: int) -> int:
    """How many tries that takes at most, if every one of them can tell."""
    return max(0, bad - good - 1).bit_length()


def candidates(good: int, bad: int, skipped: Collection[int]) -> tuple[int, ...]:
    """The places of which one is the first bad: more than one where some could not tell."""
    return tuple(place for place in range(good + 1, bad + 1) if place == bad or place in skipped)


# Finds the first moment where a check fails, each tried in a throw-away environment of it.

Check = Callable[[Snapshot], CheckResult]
WHERE_BAD = (
    "where does it fail? git envlog bisect --bad <rev>; 'git envlog --verdict=fail' lists such moments"
)
WHERE_GOOD = (
    "where did it pass? git envlog bisect --good <rev>; 'git envlog --verdict=pass' lists such moments"
)


class NothingToBisect(EnvhistError):
    """There is no first bad moment between these two."""

    exit_code = 1
    code = "nothing-to-find"


class CheckInconclusive(EnvhistError):
    """A check that had to tell could not."""

    exit_code = NOT_JUDGED
    code = "cannot-tell"


class BisectRange(NamedTuple):
    """Between what is searched, and whether each end is known to be what it is taken for."""

    good: Snapshot
    bad: Snapshot
    trust_good: bool
    trust_bad: bool


def bisect(
    line: Sequence[Snapshot], ends: BisectRange, command: str, check: Check, watching: CheckListener
) -> BisectResult:
    """The first bad one; `line` holds the moments from the good end to the bad one, oldest first."""
    search = _Bisection(command, check, watching)
    search.expect(ends.bad, VerdictStatus.FAIL, ends.trust_bad)
    search.expect(ends.good, VerdictStatus.PASS, ends.trust_good)
    good, bad, skipped = 0, len(line) - 1, set[int]()
    while (place := next_to_try(good, bad, skipped)) is not None:
        status = search.status(line[place], bad - good, tries_left(good, bad))
        if status is VerdictStatus.PASS:
            good = place
        elif status is VerdictStatus.FAIL:
            bad = place
        else:
            skipped.add(place)
    found = tuple(line[place] for place in candidates(good, bad, skipped))
    return BisectResult(command, line[good], line[bad], found, tuple(search.tried))


def snapshots_between(newest_first: Sequence[Snapshot], good: Snapshot, bad: Snapshot) -> list[Snapshot]:
    """The moments from one to another, oldest first."""
    ids = [snapshot.id for snapshot in newest_first]
    if good.id not in ids or bad.id not in ids:
        raise UsageError(
            "the two ends are not on one timeline", hint="git envlog bisect --good <rev> --bad <rev>"
        )
    old, new = ids.index(good.id), ids.index(bad.id)
    if old == new:
        raise UsageError(f"the good moment is the bad one, too: '{good.id[:7]}'", hint=WHERE_BAD)
    if old < new:
        raise UsageError(f"'{good.id[:7]}' is not older than '{bad.id[:7]}'", hint="the good one comes first")
    return list(newest_first[new : old + 1])[::-1]


class _Bisection:
    """What is known of moments: said of them before, or tried now; equal environments are tried once."""

    def __init__(self, command: str, check: Check, watching: CheckListener) -> None:
        self._command = command
        self._check = check
        self._watching = watching
        self._known: dict[str, VerdictStatus] = {}
        self.tried: list[CheckResult] = []

    def expect(self, end: Snapshot, wanted: VerdictStatus, trusted: bool) -> None:
        """Make sure that an end is what it is taken for."""
        if trusted:
            self._known[end.content] = wanted
            return
        status = self.status(end, 1, 1)
        if status is VerdictStatus.ERROR:
            raise CheckInconclusive(
                f"the check cannot tell at '{end.id[:7]}': {self._command}",
                hint=f"git envlog show {end.id[:7]}",
            )
        if status is not wanted:
            what = "passes" if status is VerdictStatus.PASS else "fails already"
            hint = WHERE_BAD if status is VerdictStatus.PASS else WHERE_GOOD
            raise NothingToBisect(f"the check {what} at '{end.id[:7]}': {self._command}", hint=hint)

    def status(self, snapshot: Snapshot, left: int, tries: int) -> VerdictStatus:
        if not snapshot.trusted:
            return VerdictStatus.ERROR
        known = self._known.get(snapshot.content) or self._said(snapshot)
        if known is None:
            known = self._try(snapshot, left, tries)
        self._known[snapshot.content] = known
        return known

    def _said(self, snapshot: Snapshot) -> VerdictStatus | None:
        same = tuple(one for one in snapshot.verdicts if one.command == self._command)
        verdict = own_verdict(replace(snapshot, verdicts=same))
        return None if verdict is None or verdict.status is VerdictStatus.ERROR else verdict.status

    def _try(self, snapshot: Snapshot, left: int, tries: int) -> VerdictStatus:
        if self._watching.trying is not None:
            self._watching.trying(snapshot, left, tries)
        checked = self._check(snapshot)
        self.tried.append(checked)
        if self._watching.tried is not None:
            self._watching.tried(checked)
        return checked.verdict.status


# One check at a time in a working tree: two would get in each other's way, and spoil each other's verdict.

LOCK = "check.lock"


class InsideCheck(Refused):
    """A check that runs a check of its own environment would wait for itself."""

    code = "inside-check"

    def __init__(self) -> None:
        super().__init__(
            "this runs inside a check of the same environment", hint="the check itself must not check"
        )


def is_inside(repository: Repository, environ: Mapping[str, str]) -> bool:
    """Whether this is run by a check of this working tree."""
    return repository.root in environ.get(UNDER_CHECK, "").split(os.pathsep)


@contextmanager
def check_lock(
    repository: Repository, environ: Mapping[str, str], waiting: Callable[[], None] | None
) -> Iterator[None]:
    """Nobody else checks this working tree."""
    if is_inside(repository, environ):
        raise InsideCheck
    with locked(_lock(repository), waiting=waiting):
        yield


def somebody_checks(repository: Repository) -> bool:
    """Whether a check of this working tree is under way."""
    with locked_now(_lock(repository)) as free:
        return not free


def _lock(repository: Repository) -> str:
    return os.path.join(state_directory(repository.state), LOCK)


# Checks the environment that is here, as it is.


def check_live(
    capturing: CapturePipeline,
    scribe: VerdictWriter,
    snapshot: Snapshot,
    command: str,
    watching: CheckListener,
) -> CheckResult:
    """Run a check on what is here, which is what the snapshot holds, and say what it came to."""
    repository = capturing.repository
    with check_lock(repository, capturing.environ, watching.waiting):
        limit = capturing.settings.verify_timeout
        if watching.running is not None:
            watching.running(command)
        ended = run(command, RunOptions(repository.root, capturing.environ, limit, watching.through))
        after, warnings = content_now(capturing)
        verdict = scribe.verdict(command, ended, snapshot.content, after)
        warnings += scribe.record(snapshot, verdict, command)
    return CheckResult(snapshot, verdict, repository.root, tuple(warnings))


def content_now(capturing: CapturePipeline) -> tuple[str | None, list[str]]:
    """What `Env-Content` is of what is here now; None, and why, where that cannot be told."""
    try:
        with capturing.current_tree() as held:
            return held.content, []
    except (EnvhistError, OSError) as error:
        return None, [f"whether the check changed the environment cannot be told: {in_words(error)}"]


# Checks an older moment, in a throw-away environment of it.

NOT_WHOLE = "\n(not all of the moment could be brought back: that it fails says nothing)\n"


def check_older(
    capturing: CapturePipeline,
    scribe: VerdictWriter,
    going: Going,
    snapshot: Snapshot,
    command: str,
    watching: CheckListener,
) -> CheckResult:
    """Run a check on a moment, and say what it came to."""
    if not snapshot.trusted:
        raise Refused(
            f"no key that is here signed '{snapshot.id[:7]}': to check it is to run somebody else's programs",
            hint="look at it first: git envlog fork --allow-unsigned <directory> <rev>",
        )
    with check_lock(capturing.repository, capturing.environ, watching.waiting):
        original = original_place(capturing, snapshot)
        with sandbox(capturing, going, snapshot, original) as made:
            ended = _run(capturing, made, command, watching)
            whole, ran = made.is_whole, made.why_not is None
        verdict = scribe.verdict(command, ended, snapshot.content, None)
        if verdict.status is VerdictStatus.FAIL and not whole:
            tail = verdict.output_tail + NOT_WHOLE
            verdict = replace(verdict, status=VerdictStatus.ERROR, output_tail=tail)
        warnings = scribe.record(snapshot, verdict, command)
    return CheckResult(snapshot, verdict, made.seen_at if ran else None, tuple(warnings))


def _run(capturing: CapturePipeline, made: Sandbox, command: str, watching: CheckListener) -> CommandExit:
    if made.why_not is not None:
        return CommandExit(tail=os.fsencode(f"{made.why_not}\n"))
    if watching.running is not None:
        watching.running(command)
    limit = capturing.settings.verify_timeout
    return run(command, RunOptions(made.seen_at, capturing.environ, limit, watching.through, made.words))


class NotApproved(Refused):
    """A hook or an agent asked for a check that no person ran here before."""

    code = "not-approved"


class Checks:
    """Runs checks, now and on older moments."""

    def __init__(
        self, history: HistoryContext, capturing: CapturePipeline, restorer: Callable[[], Restorer]
    ) -> None:
        self._history = history
        self._restorer = restorer
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
            self._history.refresh()
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
            self._history.refresh()

    def _older(self, snapshot: Snapshot, command: str, watching: CheckListener) -> CheckResult:

        going, scribe = self._restorer(), self.scribe
        try:
            return check_older(self._capturing, scribe, going, snapshot, command, watching)
        finally:
            self._history.refresh()

    def _capture(self) -> CaptureResult:
        from git_envhist.capture.pipeline import CaptureOptions  # loaded late: with the capture itself

        captured = self._capturing.capture(CaptureOptions(if_changed=True, trigger=Trigger.MANUAL))
        self._history.refresh()
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
