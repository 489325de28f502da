"""Which snapshots a list shows: by time, words, trigger and verdict. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from git_envhist.errors import UsageError
from git_envhist.history.times import read_moment
from git_envhist.model import Snapshot
from git_envhist.values import dataclass

NO_VERDICT = "none"

Test = Callable[[Snapshot], bool]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was asked for; several words of one kind are alternatives, several kinds must all hold."""

    since: str | None = None
    until: str | None = None
    grep: tuple[str, ...] = ()
    ignore_case: bool = False
    verdicts: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    summary: str | None = None
    """A text that the summary or a changed fact contains."""
    content: str | None = None
    """A text whose number of occurrences in files changed."""
    content_pattern: str | None = None
    """A regular expression that a changed line matches."""

    @property
    def restricts(self) -> bool:
        return self != Choice()

    @property
    def searches_content(self) -> bool:
        return self.content is not None or self.content_pattern is not None


def choose(snapshots: Iterable[Snapshot], choice: Choice, now: datetime) -> list[Snapshot]:
    """Those of the snapshots that were asked for, in their order."""
    tests = _tests(choice, now)
    return [snapshot for snapshot in snapshots if all(test(snapshot) for test in tests)]


def _refuse_senseless(choice: Choice) -> None:
    if choice.content is not None and choice.content_pattern is not None:
        raise UsageError("-S and -G exclude each other")
    if "" in (choice.content, choice.content_pattern):
        raise UsageError("no text to search for", hint="git envlog -S <text>, git envlog -G <regex>")


def _tests(choice: Choice, now: datetime) -> list[Test]:
    _refuse_senseless(choice)
    tests = _time_tests(choice, now)
    if choice.grep:
        tests.append(_grep_test(choice))
    if choice.verdicts:
        tests.append(lambda snapshot: _verdict_word(snapshot) in choice.verdicts)
    if choice.triggers:
        tests.append(lambda snapshot: snapshot.trigger.value in choice.triggers)
    return tests


def _time_tests(choice: Choice, now: datetime) -> list[Test]:
    tests: list[Test] = []
    if choice.since is not None:
        start = read_moment(choice.since, now).start
        tests.append(lambda snapshot: snapshot.at.astimezone(UTC) >= start)
    if choice.until is not None:
        end = read_moment(choice.until, now).end
        tests.append(lambda snapshot: snapshot.at.astimezone(UTC) <= end)
    return tests


def _grep_test(choice: Choice) -> Test:
    patterns = [_pattern(text, choice.ignore_case) for text in choice.grep]

    def test(snapshot: Snapshot) -> bool:
        said = _said(snapshot)
        return any(pattern.search(text) for pattern in patterns for text in said)

    return test


def _pattern(text: str, ignore_case: bool) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE | re.MULTILINE if ignore_case else re.MULTILINE)
    except re.error as failure:
        hint = "it is a regular expression: a backslash before a sign makes it a letter"
        raise UsageError(f"not a pattern: '{text}' ({failure})", hint=hint) from failure


def _said(snapshot: Snapshot) -> Sequence[str]:
    return (snapshot.intent, *snapshot.names, *(remark.text for remark in snapshot.remarks))


def _verdict_word(snapshot: Snapshot) -> str:
    verdict = snapshot.verdict
    # A claim is no verdict.
    return verdict.status.value if verdict is not None and verdict.claimed_by is None else NO_VERDICT
