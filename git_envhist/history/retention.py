"""A policy and a timeline -> what is kept, what is let go, and why (pure: the clock is an argument).

What somebody said something of is always kept, and so is what the words `@`, `good` and `bad` mean. Of the rest a
policy keeps the last so many, and of so many hours, days and weeks the newest each: hours, days and weeks that hold a
moment, counted back from the newest. What came by itself is in nobody's way: the last so many are counted once more
among those that somebody gave words, and where a span holds one of these, the newest of them stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

from git_envhist.history.doings import EFFECT, TASK
from git_envhist.history.timeline import own_verdict
from git_envhist.model import IntentSource, RestoreRole, Snapshot, VerdictStatus
from git_envhist.model.keeping import PruneDecision, RetentionPolicy

SAFETY_DAYS = 30


def decide(
    policy: RetentionPolicy, newest_first: Sequence[Snapshot], now: datetime
) -> tuple[PruneDecision, ...]:
    """What becomes of each snapshot of a timeline, in the same order."""
    reasons: list[list[str]] = [[*_always(snapshot, now)] for snapshot in newest_first]
    if newest_first:
        reasons[0].insert(0, "newest")
    for status, word in (
        (VerdictStatus.PASS, "newest that passed"),
        (VerdictStatus.FAIL, "newest that failed"),
    ):
        number = next((n for n, one in enumerate(newest_first) if _status(one) is status), None)
        if number is not None:
            reasons[number].append(word)
    _keep_last(newest_first, reasons, policy.last)
    for most, spell, unit in _spans(policy):
        _keep_spans(newest_first, reasons, most, spell, unit)
    return tuple(PruneDecision(one, tuple(told)) for one, told in zip(newest_first, reasons, strict=True))


def _spans(policy: RetentionPolicy) -> Iterator[tuple[int, Callable[[datetime], str], str]]:
    yield policy.hourly, lambda at: at.strftime("%Y-%m-%d %H"), "hour"
    yield policy.daily, lambda at: at.strftime("%Y-%m-%d"), "day"
    yield policy.weekly, lambda at: "{}-W{:02}".format(*at.isocalendar()[:2]), "week"


def _keep_last(newest_first: Sequence[Snapshot], reasons: Sequence[list[str]], most: int) -> None:
    most = max(0, most)
    for told in reasons[:most]:
        told.append(f"last {most}")
    with_words = [number for number, one in enumerate(newest_first) if _has_words(one)]
    for number in with_words[:most]:
        if number >= most:
            reasons[number].append(f"last {most} with words")


def _has_words(snapshot: Snapshot) -> bool:
    """Whether somebody took it, and said what for."""
    return (
        snapshot.intent_source is IntentSource.GIVEN
        and snapshot.restore is None
        and not snapshot.trigger.automatic
    )


def _keep_spans(
    newest_first: Sequence[Snapshot],
    reasons: Sequence[list[str]],
    most: int,
    spell: Callable[[datetime], str],
    unit: str,
) -> None:
    # By the moments, not by their order: somebody's clock may have gone back.
    newest: dict[str, int] = {}
    for number, snapshot in enumerate(newest_first):
        spelled = spell(snapshot.at)
        known = newest.setdefault(spelled, number)
        if _has_words(snapshot) and not _has_words(newest_first[known]):
            newest[spelled] = number
    for spelled in sorted(newest, reverse=True)[: max(0, most)]:
        reasons[newest[spelled]].append(f"{unit} {spelled}")


def _always(snapshot: Snapshot, now: datetime) -> Iterator[str]:
    if snapshot.names:
        yield f"named '{snapshot.names[0]}'"
    if snapshot.remarks:
        yield "noted"
    if snapshot.attached or snapshot.attachments:
        yield "something is attached"
    kinds = {record.kind for record in snapshot.records}
    if TASK in kinds:
        yield "a task stands on it"
    if EFFECT in kinds:
        yield "an effect stands on it"
    if snapshot.restore is RestoreRole.BEFORE and now - snapshot.at < timedelta(days=SAFETY_DAYS):
        yield f"saved before a restore, within {SAFETY_DAYS} days"


def _status(snapshot: Snapshot) -> VerdictStatus | None:
    verdict = own_verdict(snapshot)
    return verdict.status if verdict is not None else None
