"""What a policy keeps of a timeline, and why."""

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
from git_envhist.model.storage import RetentionPolicy
from git_envhist.retention.prune import decide
from tests.history.snapshots import NOW, snapshot

NOTHING = RetentionPolicy(0, 0, 0, 0)


def line(*days_ago: float) -> list[Snapshot]:
    """Snapshots so many days before now, newest first."""
    return [snapshot(f"{days} days ago", NOW - timedelta(days=days)) for days in days_ago]


def reasons(policy: RetentionPolicy, snapshots: list[Snapshot]) -> list[tuple[str, ...]]:
    return [one.reasons for one in decide(policy, snapshots, NOW)]


def test_the_newest_stays_whatever_the_policy_says() -> None:
    assert reasons(NOTHING, line(100, 101)) == [("newest",), ()]
    assert reasons(NOTHING, []) == []


def test_the_last_so_many_stay() -> None:
    assert reasons(RetentionPolicy(2, 0, 0, 0), line(1, 2, 3)) == [("newest", "last 2"), ("last 2",), ()]


def test_of_an_hour_a_day_and_a_week_the_newest_stays_and_spans_without_a_moment_do_not_count() -> None:
    # NOW is Wednesday the 18th of November 2026, 10:30.
    found = line(0, 0.01, 0.02, 1, 20, 21, 40)
    assert reasons(RetentionPolicy(0, 2, 0, 0), found)[:4] == [
        ("newest", "hour 2026-11-18 10"),
        (),
        (),
        ("hour 2026-11-17 10",),
    ]
    assert [bool(one) for one in reasons(RetentionPolicy(0, 2, 0, 0), line(0, 0.001, 0.05))] == [
        True,
        False,
        True,
    ]
    assert reasons(RetentionPolicy(0, 0, 3, 0), found) == [
        ("newest", "day 2026-11-18"),
        (),
        (),
        ("day 2026-11-17",),
        ("day 2026-10-29",),
        (),
        (),
    ]
    assert reasons(RetentionPolicy(0, 0, 0, 3), found)[-4:] == [
        (),
        ("week 2026-W44",),
        (),
        ("week 2026-W41",),
    ]


def test_what_somebody_said_something_of_stays() -> None:
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
        ("newest",),
        ("named 'release'",),
        ("noted",),
        ("newest that passed",),
        ("newest that failed",),
        (),
        ("a task stands on it",),
        ("an effect stands on it",),
    ]
    assert all(one.always for one in decide(NOTHING, found, NOW) if one.keep)


def test_a_verdict_that_is_not_ones_own_keeps_nothing() -> None:
    carried = Verdict(VerdictStatus.PASS, "true", NOW, carried_from="0" * 40)
    claimed = Verdict(VerdictStatus.PASS, "true", NOW, claimed_by="somebody")
    found = [
        *line(0),
        *(replace(one, verdicts=(v,)) for one, v in zip(line(1, 2), (carried, claimed), strict=True)),
    ]
    assert reasons(NOTHING, found)[1:] == [(), ()]


def test_what_was_saved_before_a_restore_stays_for_thirty_days() -> None:
    young, old = (replace(one, restore=RestoreRole.BEFORE) for one in line(29, 31))
    assert reasons(NOTHING, [*line(0), young, old]) == [
        ("newest",),
        ("saved before a restore, within 30 days",),
        (),
    ]


def test_a_clock_that_went_back_takes_nothing_along() -> None:
    found = line(0, 5, 1, 6)
    assert [bool(one) for one in reasons(RetentionPolicy(0, 0, 3, 0), found)] == [True, True, True, False]


def test_what_only_a_policy_keeps_may_go_for_room() -> None:
    newest, second = decide(RetentionPolicy(2, 2, 2, 2), line(0, 1), NOW)
    assert (newest.always, second.always, second.keep) == (True, False, True)


@given(
    st.lists(st.tuples(st.floats(0, 400), st.booleans()), max_size=40),
    st.tuples(*[st.integers(0, 12)] * 4),
    st.tuples(*[st.integers(0, 12)] * 4),
)
def test_who_keeps_more_of_anything_loses_nothing(
    days: list[tuple[float, bool]], one: tuple[int, int, int, int], more: tuple[int, int, int, int]
) -> None:
    found = [made for ago, hook in sorted(days) for made in (by_itself(line(ago)) if hook else line(ago))]
    small, large = RetentionPolicy(*one), RetentionPolicy(*(a + b for a, b in zip(one, more, strict=True)))
    kept = [[decision.keep for decision in decide(policy, found, NOW)] for policy in (small, large)]
    assert all(b or not a for a, b in zip(*kept, strict=True))
    # Thinned again, the same is kept: nothing wears away by itself.
    left = [decision.snapshot for decision in decide(small, found, NOW) if decision.keep]
    assert all(decision.keep for decision in decide(small, left, NOW))


def by_itself(snapshots: list[Snapshot]) -> list[Snapshot]:
    """The same as a hook would have taken them."""
    return [
        replace(one, intent_source=IntentSource.COMMIT, trigger=Trigger.COMMIT, intent="a subject")
        for one in snapshots
    ]


def test_what_comes_by_itself_lets_nothing_go_that_somebody_gave_words() -> None:
    mine, older, oldest = line(1, 2, 3)
    found = [*by_itself(line(0, 0.5)), mine, *by_itself(line(1.5)), older, oldest]
    assert reasons(RetentionPolicy(2, 0, 0, 0), found) == [
        ("newest", "last 2"),
        ("last 2",),
        ("last 2 with words",),
        (),
        ("last 2 with words",),
        (),
    ]


def test_of_a_day_the_newest_with_words_stays_before_what_came_by_itself() -> None:
    (evening,), (noon, morning) = by_itself(line(1)), line(1.1, 1.2)
    assert reasons(RetentionPolicy(0, 0, 2, 0), [*line(0), evening, noon, morning])[1:] == [
        (),
        ("day 2026-11-17",),
        (),
    ]
    # What a restore saved and where it arrived are no words of anybody.
    safety = replace(noon, restore=RestoreRole.TO)
    assert reasons(RetentionPolicy(0, 0, 2, 0), [*line(0), evening, safety])[1:] == [("day 2026-11-17",), ()]
