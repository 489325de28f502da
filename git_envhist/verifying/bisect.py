"""Finds the first moment where a check fails, each tried in a throw-away environment of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from git_envhist.errors import EnvhistError, UsageError
from git_envhist.history.timeline import own_verdict
from git_envhist.model import BisectResult, CheckResult, Snapshot, VerdictStatus
from git_envhist.values import replace
from git_envhist.verifying.outcome import NOT_JUDGED
from git_envhist.verifying.search import candidates, next_to_try, tries_left
from git_envhist.verifying.watching import CheckListener

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
