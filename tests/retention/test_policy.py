"""The snapshots that a policy keeps, and the reasons."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from git_envhist.lazy import replace
from git_envhist.model import (
    IntentSource,
    NoteRecord,
    RestoreRole,
    Snapshot,
    TextNote,
    Trigger,
    Verdict,
    VerdictStatus,
)
from git_envhist.model.retention import RetentionPolicy
from git_envhist.retention.prune import decide_retention
from tests.history.snapshots import NOW, snapshot

NOTHING = RetentionPolicy(0, 0, 0, 0)


def line(*days_ago: float) -> list[Snapshot]:
    """Return snapshots taken some days before now, newest first."""
    return [snapshot(f"{days} days ago", NOW - timedelta(days=days)) for days in days_ago]


def reasons(policy: RetentionPolicy, snapshots: list[Snapshot]) -> list[tuple[str, ...]]:
    return [one.reasons for one in decide_retention(policy, snapshots, NOW)]


def test_newest_snapshot_is_kept_by_every_policy() -> None:
    assert reasons(NOTHING, line(100, 101)) == [("the newest",), ()]
    assert reasons(NOTHING, []) == []


def test_last_n_snapshots_are_kept() -> None:
    assert reasons(RetentionPolicy(2, 0, 0, 0), line(1, 2, 3)) == [
        ("the newest", "among the 2 newest"),
        ("among the 2 newest",),
        (),
    ]


def test_newest_of_each_hour_day_and_week_is_kept_and_empty_periods_do_not_count() -> None:
    # NOW is Wednesday the 18th of November 2026, 10:30.
    found = line(0, 0.01, 0.02, 1, 20, 21, 40)
    assert reasons(RetentionPolicy(0, 2, 0, 0), found)[:4] == [
        ("the newest", "kept for the hour 2026-11-18 10"),
        (),
        (),
        ("kept for the hour 2026-11-17 10",),
    ]
    assert [bool(one) for one in reasons(RetentionPolicy(0, 2, 0, 0), line(0, 0.001, 0.05))] == [
        True,
        False,
        True,
    ]
    assert reasons(RetentionPolicy(0, 0, 3, 0), found) == [
        ("the newest", "kept for the day 2026-11-18"),
        (),
        (),
        ("kept for the day 2026-11-17",),
        ("kept for the day 2026-10-29",),
        (),
        (),
    ]
    assert reasons(RetentionPolicy(0, 0, 0, 3), found)[-4:] == [
        (),
        ("kept for the week 2026-W44",),
        (),
        ("kept for the week 2026-W41",),
    ]


def test_annotated_snapshots_are_kept() -> None:
    named, noted, passed, failed, older, task, effect = line(1, 2, 3, 4, 5, 6, 7)
    verdict = Verdict(VerdictStatus.PASS, "true", NOW)
    found = [
        *line(0),
        replace(named, names=("release",)),
        replace(noted, remarks=(TextNote("so", NOW),)),
        replace(passed, verdicts=(verdict,)),
        replace(failed, verdicts=(replace(verdict, status=VerdictStatus.FAIL),)),
        replace(older, verdicts=(verdict,)),
        replace(task, records=(NoteRecord("task", NOW, {}),)),
        replace(effect, records=(NoteRecord("effect", NOW, {}),)),
    ]
    assert reasons(NOTHING, found) == [
        ("the newest",),
        ("named 'release'",),
        ("has a note",),
        ("the newest that passed its check",),
        ("the newest that failed its check",),
        (),
        ("has a task",),
        ("has an effect",),
    ]
    assert all(one.always for one in decide_retention(NOTHING, found, NOW) if one.keep)


def test_carried_or_claimed_verdict_keeps_nothing() -> None:
    carried = Verdict(VerdictStatus.PASS, "true", NOW, carried_from="0" * 40)
    claimed = Verdict(VerdictStatus.PASS, "true", NOW, claimed_by="somebody")
    found = [
        *line(0),
        *(replace(one, verdicts=(v,)) for one, v in zip(line(1, 2), (carried, claimed), strict=True)),
    ]
    assert reasons(NOTHING, found)[1:] == [(), ()]


def test_snapshot_before_a_restore_is_kept_for_thirty_days() -> None:
    young, old = (replace(one, restore=RestoreRole.BEFORE) for one in line(29, 31))
    assert reasons(NOTHING, [*line(0), young, old]) == [
        ("the newest",),
        ("saved before a restore in the last 30 days",),
        (),
    ]


def test_clock_set_back_drops_nothing_else() -> None:
    found = line(0, 5, 1, 6)
    assert [bool(one) for one in reasons(RetentionPolicy(0, 0, 3, 0), found)] == [True, True, True, False]


def test_snapshots_kept_only_by_policy_may_be_dropped_for_space() -> None:
    newest, second = decide_retention(RetentionPolicy(2, 2, 2, 2), line(0, 1), NOW)
    assert (newest.always, second.always, second.keep) == (True, False, True)


@given(
    st.lists(st.tuples(st.floats(0, 400), st.booleans()), max_size=40),
    st.tuples(*[st.integers(0, 12)] * 4),
    st.tuples(*[st.integers(0, 12)] * 4),
)
def test_larger_policy_keeps_everything_that_a_smaller_one_keeps(
    days: list[tuple[float, bool]], one: tuple[int, int, int, int], more: tuple[int, int, int, int]
) -> None:
    found = [made for ago, hook in sorted(days) for made in (by_itself(line(ago)) if hook else line(ago))]
    small, large = RetentionPolicy(*one), RetentionPolicy(*(a + b for a, b in zip(one, more, strict=True)))
    kept = [[decision.keep for decision in decide_retention(policy, found, NOW)] for policy in (small, large)]
    assert all(b or not a for a, b in zip(*kept, strict=True))
    # Pruned again, the same snapshots are kept.
    left = [decision.snapshot for decision in decide_retention(small, found, NOW) if decision.keep]
    assert all(decision.keep for decision in decide_retention(small, left, NOW))


def by_itself(snapshots: list[Snapshot]) -> list[Snapshot]:
    """Return the same snapshots as if a hook had taken them."""
    return [
        replace(one, intent_source=IntentSource.COMMIT, trigger=Trigger.COMMIT, intent="a subject")
        for one in snapshots
    ]


def test_automatic_snapshots_displace_none_with_an_intent() -> None:
    mine, older, oldest = line(1, 2, 3)
    found = [*by_itself(line(0, 0.5)), mine, *by_itself(line(1.5)), older, oldest]
    assert reasons(RetentionPolicy(2, 0, 0, 0), found) == [
        ("the newest", "among the 2 newest"),
        ("among the 2 newest",),
        ("among the 2 newest with an intent",),
        (),
        ("among the 2 newest with an intent",),
        (),
    ]


def test_newest_of_a_day_with_an_intent_is_kept_before_automatic_ones() -> None:
    (evening,), (noon, morning) = by_itself(line(1)), line(1.1, 1.2)
    assert reasons(RetentionPolicy(0, 0, 2, 0), [*line(0), evening, noon, morning])[1:] == [
        (),
        ("kept for the day 2026-11-17",),
        (),
    ]
    # Snapshots before and after a restore have no intent of a user.
    safety = replace(noon, restore=RestoreRole.TO)
    assert reasons(RetentionPolicy(0, 0, 2, 0), [*line(0), evening, safety])[1:] == [
        ("kept for the day 2026-11-17",),
        (),
    ]
