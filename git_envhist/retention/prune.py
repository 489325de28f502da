"""Thins timelines by a policy, when somebody asks and by itself once a day; what goes lies in the trash for 30 days.

By itself it also keeps within `envhist.maxSize`: what has lain in the trash longest goes for good first, and then the
oldest moments that nothing but the policy keeps are let go.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial

from git_envhist.config import Settings
from git_envhist.context import HistoryContext
from git_envhist.errors import UsageError
from git_envhist.git.process import Git
from git_envhist.history.timeline import own_verdict
from git_envhist.history.work import EFFECT, TASK
from git_envhist.model import IntentSource, RestoreRole, Snapshot, SnapshotId, VerdictStatus
from git_envhist.model.storage import PruneDecision, PrunedTimeline, PruneResult, RetentionPolicy
from git_envhist.retention.drop import SnapshotDropper
from git_envhist.rewrite.marking import is_marked
from git_envhist.rewrite.timeline import DAYS
from git_envhist.snapshots.fetched import is_fetched
from git_envhist.snapshots.staging import open_published

# A policy and a timeline -> what is kept, what is let go, and why (pure: the clock is an argument).
#
# What somebody said something of is always kept, and so is what the words `@`, `good` and `bad` mean. Of the rest a
# policy keeps the last so many, and of so many hours, days and weeks the newest each: hours, days and weeks that hold a
# moment, counted back from the newest. What came by itself is in nobody's way: the last so many are counted once more
# among those that somebody gave words, and where a span holds one of these, the newest of them stands for it.

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


DAYS_AT_WORK = 7
"""By itself the trash is emptied only of what was let go before so many days on which something was captured.

A clock that jumps ahead would let thirty days be over in a moment; it takes that many days to be believed.
"""


def policy_from_options(*numbers: int | None) -> RetentionPolicy | None:
    """The policy that some numbers are, in its order; None where none is said."""
    if any(number is not None and number < 0 for number in numbers):
        raise UsageError("a number of moments is not below zero", hint="git envlog prune -h")
    # Whoever says what is to be kept says all of it.
    said = any(number is not None for number in numbers)
    return RetentionPolicy(*(number or 0 for number in numbers)) if said else None


def policy_of(settings: Settings) -> RetentionPolicy:
    """What is configured."""
    return RetentionPolicy(
        settings.keep_last, settings.keep_hourly, settings.keep_daily, settings.keep_weekly
    )


class Pruner:
    """Thins the timelines of a history."""

    def __init__(self, history: HistoryContext, *, gentle: bool = False) -> None:
        """`gentle`: where captures come all the time, wait for a while before one of them has to."""
        self._history = history
        self._dropping = SnapshotDropper(history, gentle=gentle)

    def prune(
        self,
        policy: RetentionPolicy,
        timelines: Sequence[str],
        *,
        dry_run: bool = False,
        expire_before: date | None = None,
    ) -> PruneResult:
        """Let go what a policy does not keep, and what has lain in the trash for its time.

        `expire_before`: what was let go before that day leaves the trash, where it is not thirty days ago.
        """
        done = self._prune(policy, timelines, dry_run, expire_before)
        if not dry_run:
            self._dropping.join_weeks()
        return done

    def _prune(
        self, policy: RetentionPolicy, timelines: Sequence[str], dry_run: bool, expire_before: date | None
    ) -> PruneResult:
        today = self._dropping.today
        until = today + timedelta(days=DAYS)
        before = today - timedelta(days=DAYS) if expire_before is None else expire_before
        if dry_run:
            told = tuple(PrunedTimeline(name, self._decide(policy, name)) for name in timelines)
            return PruneResult(told, until, self._dropping.count_expired(before), True)
        expired = self._dropping.expire(before)
        found: list[PrunedTimeline] = []
        warnings: list[str] = []
        for name in timelines:
            thinned, told_by = self._thin(policy, name)
            found.append(thinned)
            warnings += told_by
        return PruneResult(tuple(found), until, expired, warnings=tuple(warnings))

    def by_itself(self) -> None:
        """Thin all timelines of this repository by the configured policy, within the size; called once a day.

        In the store of a checkpoint class nothing is thinned: what that marked is dropped, and the trash expires.
        """
        settings = self._history.settings
        names = own_timelines(self._history)
        if self._history.repository.library:
            self._drop_marked(names)
            self._dropping.expire(self._time_is_over_before(names))
            self._dropping.join_weeks()
            return
        self._prune(policy_of(settings), names, False, self._time_is_over_before(names))
        excess = self._excess(settings.max_size)
        if excess > 0:
            self._make_room(names, excess)
        # Not before: with what went today what went this week would not be of an earlier day any more.
        self._dropping.join_weeks()

    def _drop_marked(self, names: Sequence[str]) -> None:
        for name in names:
            self._dropping.let_go(name, partial(self._marked, name))

    def _marked(self, timeline: str) -> list[SnapshotId]:
        return [one.id for one in self._history.log(timeline=timeline) if is_marked(one)]

    def _time_is_over_before(self, names: Sequence[str]) -> date:
        """What was let go before this day has lain its thirty days, and not by the word of the clock alone."""
        today = self._dropping.today
        snapshots = (one for name in names for one in self._history.log(timeline=name))
        days = {one.at.astimezone(UTC).date() for one in snapshots} | self._dropping.days_in_trash()
        seen = sorted(day for day in days if day <= today)
        witnessed = seen[-DAYS_AT_WORK] if len(seen) >= DAYS_AT_WORK else date.min
        return min(today - timedelta(days=DAYS), witnessed)

    def _thin(self, policy: RetentionPolicy, timeline: str) -> tuple[PrunedTimeline, tuple[str, ...]]:
        decisions: tuple[PruneDecision, ...] = ()

        def choose() -> list[SnapshotId]:
            # As the timeline stands now: somebody may have named a moment since.
            nonlocal decisions
            decisions = self._decide(policy, timeline)
            return [one.snapshot.id for one in decisions if not one.keep]

        done = self._dropping.let_go(timeline, choose)
        return PrunedTimeline(timeline, decisions), done.warnings

    def _decide(self, policy: RetentionPolicy, timeline: str) -> tuple[PruneDecision, ...]:
        from git_envhist.history.timeline import Timeline  # loaded late: with the timeline itself

        line = Timeline.of(timeline, self._history.log(timeline=timeline))
        return decide(policy, line.snapshots, self._history.now)

    def _excess(self, most: int) -> int:
        repository = self._history.repository
        own = open_published(repository.common_state, repository.pack_dir, repository.object_format)
        try:
            return sum(os.stat(path).st_size for path in own.paths) - most
        finally:
            own.close()

    def _make_room(self, names: Sequence[str], excess: int) -> None:
        """Let as much go as holds what is too much: the trash of earlier days first, then the oldest moments."""
        today = self._dropping.today
        if self._dropping.expire(today):
            # What they held is known when it has been cleaned away; the rest is for the day that follows.
            return
        decisions = [
            (name, one) for name in names for one in self._decide(policy_of(self._history.settings), name)
        ]
        may_go = sorted(
            ((name, one) for name, one in decisions if not one.always), key=lambda item: item[1].snapshot.at
        )
        stays = [one.snapshot.tree for _, one in decisions if one.always]
        trees = [one.snapshot.tree for _, one in may_go]
        count = _enough(self._history.repository.git, trees, stays, excess)
        going = {one.snapshot.id for _, one in may_go[:count]}
        for name in names:
            self._dropping.let_go(name, partial(self._still_going, name, going))

    def _still_going(self, timeline: str, going: set[SnapshotId]) -> set[SnapshotId]:
        """Without what is to stay by now: somebody may have named it since."""
        policy = policy_of(self._history.settings)
        return going - {one.snapshot.id for one in self._decide(policy, timeline) if one.always}


def _enough(git: Git, oldest_first: Sequence[str], stays: Sequence[str], excess: int) -> int:
    """How many of the oldest have to go so that enough is held by them alone; all, where that is too little."""
    low, high = 0, len(oldest_first)
    while low < high:
        middle = (low + high) // 2
        if _held_alone(git, oldest_first[: middle + 1], [*oldest_first[middle + 1 :], *stays]) >= excess:
            high = middle
        else:
            low = middle + 1
    return min(low + 1, len(oldest_first))


def _held_alone(git: Git, trees: Sequence[str], others: Sequence[str]) -> int:
    """So many bytes on disk nothing holds but these trees."""
    asked = "".join([*(f"{tree}\n" for tree in trees), *(f"^{tree}\n" for tree in others)])
    told = git.run("rev-list", "--objects", "--disk-usage", "--stdin", stdin=asked.encode("ascii"))
    return int(told)


def own_timelines(history: HistoryContext) -> list[str]:
    """The timelines that stand in this repository."""
    return [name for name in history.timelines() if not is_fetched(name)]
