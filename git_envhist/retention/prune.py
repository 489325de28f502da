"""Drop snapshots by a retention policy, on command and once a day; dropped snapshots stay in the trash for 30 days.

The daily run also enforces `envhist.maxSize`: it purges the oldest trash first, then drops the oldest snapshots that
only the policy keeps. `decide_retention` is the pure part: it returns the kept snapshots of a timeline with reasons.
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
from git_envhist.history.tasks_and_effects import EFFECT, TASK
from git_envhist.history.timeline import own_verdict
from git_envhist.model import IntentSource, RestoreRole, Snapshot, SnapshotId, VerdictStatus
from git_envhist.model.retention import PruneDecision, PrunedTimeline, PruneResult, RetentionPolicy
from git_envhist.retention.drop import SnapshotDropper
from git_envhist.rewrite.mark_for_drop import is_marked
from git_envhist.rewrite.timeline import DAYS
from git_envhist.snapshots.fetched_store import is_fetched
from git_envhist.snapshots.staging import open_published

# The policy. Named, noted, attached and similar snapshots are always kept, and so are those that `@`, `good` and
# `bad` mean. Of the rest a policy keeps the newest N, and the newest of each of N hours, days and weeks (only those
# with snapshots count, from the newest back). Automatic snapshots do not displace others: the newest N with an intent
# are kept as well, and a period with such snapshots keeps the newest of them.

SAFETY_DAYS = 30


def decide_retention(
    policy: RetentionPolicy, newest_first: Sequence[Snapshot], now: datetime
) -> tuple[PruneDecision, ...]:
    """Return the decision for each snapshot of a timeline, in the same order."""
    reasons: list[list[str]] = [[*_always(snapshot, now)] for snapshot in newest_first]
    if newest_first:
        reasons[0].insert(0, "the newest")
    for status, word in (
        (VerdictStatus.PASS, "the newest that passed its check"),
        (VerdictStatus.FAIL, "the newest that failed its check"),
    ):
        number = next((n for n, one in enumerate(newest_first) if _status(one) is status), None)
        if number is not None:
            reasons[number].append(word)
    _keep_last(newest_first, reasons, policy.last)
    for limit, period_of, unit in _spans(policy):
        _keep_spans(newest_first, reasons, limit, period_of, unit)
    return tuple(PruneDecision(one, tuple(reason)) for one, reason in zip(newest_first, reasons, strict=True))


def _spans(policy: RetentionPolicy) -> Iterator[tuple[int, Callable[[datetime], str], str]]:
    yield policy.hourly, lambda at: at.strftime("%Y-%m-%d %H"), "hour"
    yield policy.daily, lambda at: at.strftime("%Y-%m-%d"), "day"
    yield policy.weekly, lambda at: "{}-W{:02}".format(*at.isocalendar()[:2]), "week"


def _keep_last(newest_first: Sequence[Snapshot], reasons: Sequence[list[str]], limit: int) -> None:
    limit = max(0, limit)
    for reason in reasons[:limit]:
        reason.append(f"among the {limit:,} newest")
    with_intent = [number for number, one in enumerate(newest_first) if _has_intent(one)]
    for number in with_intent[:limit]:
        if number >= limit:
            reasons[number].append(f"among the {limit:,} newest with an intent")


def _has_intent(snapshot: Snapshot) -> bool:
    """Return whether a user took the snapshot and gave an intent."""
    return (
        snapshot.intent_source is IntentSource.GIVEN
        and snapshot.restore is None
        and not snapshot.trigger.automatic
    )


def _keep_spans(
    newest_first: Sequence[Snapshot],
    reasons: Sequence[list[str]],
    limit: int,
    period_of: Callable[[datetime], str],
    unit: str,
) -> None:
    # By time, not by order: a clock may have been set back.
    newest: dict[str, int] = {}
    for number, snapshot in enumerate(newest_first):
        period = period_of(snapshot.at)
        known = newest.setdefault(period, number)
        if _has_intent(snapshot) and not _has_intent(newest_first[known]):
            newest[period] = number
    for period in sorted(newest, reverse=True)[: max(0, limit)]:
        reasons[newest[period]].append(f"kept for the {unit} {period}")


def _always(snapshot: Snapshot, now: datetime) -> Iterator[str]:
    if snapshot.names:
        yield f"named '{snapshot.names[0]}'"
    if snapshot.remarks:
        yield "has a note"
    if snapshot.attached or snapshot.attachments:
        yield "has attachments"
    kinds = {record.kind for record in snapshot.records}
    if TASK in kinds:
        yield "has a task"
    if EFFECT in kinds:
        yield "has an effect"
    if snapshot.restore is RestoreRole.BEFORE and now - snapshot.at < timedelta(days=SAFETY_DAYS):
        yield f"saved before a restore in the last {SAFETY_DAYS} days"


def _status(snapshot: Snapshot) -> VerdictStatus | None:
    verdict = own_verdict(snapshot)
    return verdict.status if verdict is not None else None


DAYS_AT_WORK = 7
"""The daily run expires trash entries only if snapshots were taken on this many days since.

A clock that jumps ahead would end the thirty days at once; this way it must be ahead for that many days.
"""


def policy_from_options(*numbers: int | None) -> RetentionPolicy | None:
    """Return the policy given by options, or None if none is given."""
    if any(number is not None and number < 0 for number in numbers):
        raise UsageError("a number of snapshots cannot be negative", hint="git envlog prune -h")
    # If one number is given, all others are zero.
    is_given = any(number is not None for number in numbers)
    return RetentionPolicy(*(number or 0 for number in numbers)) if is_given else None


def policy_of(settings: Settings) -> RetentionPolicy:
    """Return the configured policy."""
    return RetentionPolicy(
        settings.keep_last, settings.keep_hourly, settings.keep_daily, settings.keep_weekly
    )


class Pruner:
    """Applies a retention policy to the timelines of a history."""

    def __init__(self, history: HistoryContext, *, wait_for_captures: bool = False) -> None:
        """`wait_for_captures`: if captures are frequent, wait for a gap before delaying one of them."""
        self._history = history
        self._dropping = SnapshotDropper(history, wait_for_captures=wait_for_captures)

    def prune(
        self,
        policy: RetentionPolicy,
        timelines: Sequence[str],
        *,
        dry_run: bool = False,
        expire_before: date | None = None,
    ) -> PruneResult:
        """Drop what a policy does not keep, and expire the trash.

        `expire_before`: purge trash entries older than this day (default: thirty days ago).
        """
        done = self._prune(policy, timelines, dry_run, expire_before)
        if not dry_run:
            self._dropping.combine_weeks()
        return done

    def _prune(
        self, policy: RetentionPolicy, timelines: Sequence[str], dry_run: bool, expire_before: date | None
    ) -> PruneResult:
        today = self._dropping.today
        until = today + timedelta(days=DAYS)
        before = today - timedelta(days=DAYS) if expire_before is None else expire_before
        if dry_run:
            reason = tuple(PrunedTimeline(name, self._decide(policy, name)) for name in timelines)
            return PruneResult(reason, until, self._dropping.count_expired(before), True)
        expired = self._dropping.expire(before)
        found: list[PrunedTimeline] = []
        warnings: list[str] = []
        for name in timelines:
            pruned, more_warnings = self._prune_timeline(policy, name)
            found.append(pruned)
            warnings += more_warnings
        return PruneResult(tuple(found), until, expired, warnings=tuple(warnings))

    def prune_daily(self) -> None:
        """Prune all timelines of this repository by the configured policy and size limit; called once a day.

        In the store of a checkpoint class, only marked snapshots are dropped and the trash expires.
        """
        settings = self._history.settings
        names = own_timelines(self._history)
        if self._history.repository.library:
            self._drop_marked(names)
            self._dropping.expire(self._expiry_day(names))
            self._dropping.combine_weeks()
            return
        self._prune(policy_of(settings), names, False, self._expiry_day(names))
        excess = self._excess(settings.max_size)
        if excess > 0:
            self._free_space(names, excess)
        # Last: combined with today's entry, this week's entries would no longer count as older.
        self._dropping.combine_weeks()

    def _drop_marked(self, names: Sequence[str]) -> None:
        for name in names:
            self._dropping.drop_from(name, partial(self._marked, name))

    def _marked(self, timeline: str) -> list[SnapshotId]:
        return [one.id for one in self._history.log(timeline=timeline) if is_marked(one)]

    def _expiry_day(self, names: Sequence[str]) -> date:
        """Return the day before which trash entries are expired, not trusting the clock alone."""
        today = self._dropping.today
        snapshots = (one for name in names for one in self._history.log(timeline=name))
        days = {one.at.astimezone(UTC).date() for one in snapshots} | self._dropping.days_in_trash()
        seen = sorted(day for day in days if day <= today)
        confirmed = seen[-DAYS_AT_WORK] if len(seen) >= DAYS_AT_WORK else date.min
        return min(today - timedelta(days=DAYS), confirmed)

    def _prune_timeline(
        self, policy: RetentionPolicy, timeline: str
    ) -> tuple[PrunedTimeline, tuple[str, ...]]:
        decisions: tuple[PruneDecision, ...] = ()

        def choose() -> list[SnapshotId]:
            # Decide on the current state: a snapshot may have been named meanwhile.
            nonlocal decisions
            decisions = self._decide(policy, timeline)
            return [one.snapshot.id for one in decisions if not one.keep]

        done = self._dropping.drop_from(timeline, choose)
        return PrunedTimeline(timeline, decisions), done.warnings

    def _decide(self, policy: RetentionPolicy, timeline: str) -> tuple[PruneDecision, ...]:
        from git_envhist.history.timeline import Timeline  # loaded late: with the timeline itself

        line = Timeline.of(timeline, self._history.log(timeline=timeline))
        return decide_retention(policy, line.snapshots, self._history.now)

    def _excess(self, limit: int) -> int:
        repository = self._history.repository
        own = open_published(repository.common_state, repository.pack_dir, repository.object_format)
        try:
            return sum(os.stat(path).st_size for path in own.paths) - limit
        finally:
            own.close()

    def _free_space(self, names: Sequence[str], excess: int) -> None:
        """Free enough space for the excess: purge the trash of earlier days first, else drop the oldest snapshots."""
        today = self._dropping.today
        if self._dropping.expire(today):
            # Its size is known only after gc; the rest is left for the next day.
            return
        decisions = [
            (name, one) for name in names for one in self._decide(policy_of(self._history.settings), name)
        ]
        may_go = sorted(
            ((name, one) for name, one in decisions if not one.always), key=lambda item: item[1].snapshot.at
        )
        kept_trees = [one.snapshot.tree for _, one in decisions if one.always]
        trees = [one.snapshot.tree for _, one in may_go]
        count = _count_to_drop(self._history.repository.git, trees, kept_trees, excess)
        chosen = {one.snapshot.id for _, one in may_go[:count]}
        for name in names:
            self._dropping.drop_from(name, partial(self._still_droppable, name, chosen))

    def _still_droppable(self, timeline: str, chosen: set[SnapshotId]) -> set[SnapshotId]:
        """Return `chosen` without snapshots that are always kept by now, for example because they were named."""
        policy = policy_of(self._history.settings)
        return chosen - {one.snapshot.id for one in self._decide(policy, timeline) if one.always}


def _count_to_drop(git: Git, oldest_first: Sequence[str], kept_trees: Sequence[str], excess: int) -> int:
    """Return how many of the oldest must be dropped to free enough, or all if that is not enough."""
    low, high = 0, len(oldest_first)
    while low < high:
        middle = (low + high) // 2
        if (
            _exclusive_size(git, oldest_first[: middle + 1], [*oldest_first[middle + 1 :], *kept_trees])
            >= excess
        ):
            high = middle
        else:
            low = middle + 1
    return min(low + 1, len(oldest_first))


def _exclusive_size(git: Git, trees: Sequence[str], others: Sequence[str]) -> int:
    """Return the bytes on disk that only these trees reach."""
    asked = "".join([*(f"{tree}\n" for tree in trees), *(f"^{tree}\n" for tree in others)])
    size = git.run("rev-list", "--objects", "--disk-usage", "--stdin", stdin=asked.encode("ascii"))
    return int(size)


def own_timelines(history: HistoryContext) -> list[str]:
    """Return the timelines of this repository, without fetched ones."""
    return [name for name in history.timelines() if not is_fetched(name)]
