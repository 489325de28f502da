"""What a list prints for a moment: what caused it, what a restore went back to; and how that is found again."""

from __future__ import annotations

import pytest

from git_envhist.history.intents import by_digits, by_intent, label_candidates, title
from git_envhist.history.timeline import Timeline
from git_envhist.model import IntentSource, RestorePart, Snapshot, Trigger
from git_envhist.values import replace
from tests.history.moments import NOW, snapshot


def caused(trigger: Trigger, source: IntentSource, words: str = "add q") -> Snapshot:
    made = snapshot(words if source is not IntentSource.NONE else "")
    return replace(made, trigger=trigger, intent_source=source, branch="refs/heads/feature/x")


@pytest.mark.parametrize(
    ("trigger", "told"),
    [
        (Trigger.COMMIT, "commit: add q"),
        (Trigger.MERGE, "merge: add q"),
        (Trigger.CHECKOUT, "checkout feature/x: add q"),
        (Trigger.REWRITE, "rewrite: add q"),
        (Trigger.WATCH, "watch: add q"),
        (Trigger.AGENT, "agent: add q"),
        (Trigger.MANUAL, "capture: add q"),
        (Trigger.API, "capture: add q"),
    ],
)
def test_a_moment_without_a_reason_says_what_caused_it(trigger: Trigger, told: str) -> None:
    assert title(caused(trigger, IntentSource.COMMIT)) == told


def test_the_words_of_a_person_or_an_agent_stand_as_they_are() -> None:
    for trigger in Trigger:
        assert title(caused(trigger, IntentSource.GIVEN)) == "add q"
    assert title(caused(Trigger.AGENT, IntentSource.AGENT)) == "add q"


def test_without_any_code_commit_the_cause_is_all_that_is_told() -> None:
    assert title(caused(Trigger.WATCH, IntentSource.NONE)) == "watch"
    assert title(caused(Trigger.CHECKOUT, IntentSource.NONE)) == "checkout feature/x"
    assert title(caused(Trigger.MANUAL, IntentSource.NONE)) == "(no intent)"
    assert title(replace(caused(Trigger.CHECKOUT, IntentSource.COMMIT), branch=None)) == "checkout: add q"


def restored() -> list[Snapshot]:
    """Newest first: redo, undo and restore, each with what it saved; the last saved something, the others nothing."""
    goal = replace(snapshot("all set up", "10:01"), content="A")
    broken = replace(snapshot("broken", "10:02"), content="B", parent=goal.commit)

    def before(minute: str, of: Snapshot, content: str, parent: Snapshot) -> Snapshot:
        saved = snapshot(f"before the restore of {of.id[:7]}", minute)
        return replace(saved, restore=RestorePart.BEFORE, content=content, parent=parent.commit)

    def arrived(minute: str, part: RestorePart, at: Snapshot, parent: Snapshot) -> Snapshot:
        word = "restored" if part is RestorePart.TO else part.value
        made = snapshot(f"{word} {at.id[:7]}", minute)
        return replace(made, restore=part, restored_from=at.id, content=at.content, parent=parent.commit)

    saved = before("10:03", goal, "C", broken)
    to = arrived("10:04", RestorePart.TO, goal, saved)
    saved_again = before("10:05", saved, "A", to)
    undone = arrived("10:06", RestorePart.UNDO, saved, saved_again)
    at_last = before("10:07", saved_again, "C", undone)
    redone = arrived("10:08", RestorePart.REDO, saved_again, at_last)
    return [redone, at_last, undone, saved_again, to, saved, broken, goal]


def test_a_restore_says_what_it_went_back_to() -> None:
    moments = restored()
    others = by_digits(moments)
    assert [title(one, others) for one in moments] == [
        # What was saved before the undo held nothing but what the restore had arrived at.
        'redo to "all set up"',
        'before the restore of "all set up"',
        'undo to what was before "all set up"',
        'before the restore of what was before "all set up"',
        'restored "all set up"',
        'before the restore of "all set up"',
        "broken",
        "all set up",
    ]


def test_where_the_other_is_not_known_its_id_stands_there() -> None:
    for one in restored():
        assert title(one, by_digits([one])) == one.intent
        assert title(one) == one.intent
    goal, other = restored()[-1], snapshot("another")
    clash = replace(other, id=type(other.id)(goal.id[:7] + "f" * 33))
    assert by_digits([goal, clash]) == {goal.id[:7]: None}


def test_what_is_printed_is_found_again() -> None:
    moments = [
        *restored(),
        caused(Trigger.COMMIT, IntentSource.COMMIT),
        caused(Trigger.MERGE, IntentSource.COMMIT),
    ]
    timeline = Timeline.of("laptop/app-1a2b3c", moments)

    def found(text: str) -> list[str]:
        return [moments[spot.index].intent for spot in by_intent(timeline, text)]

    assert found('restored "all set up"') == [moments[4].intent]
    assert found("all set up") == ["all set up"]
    # A restore's own words do not mean the moment that it went back to.
    assert found("set up") == ["all set up"]
    assert found("merge: add") == ["add q"]
    assert found("checkout") == []


def test_candidates_are_told_apart_by_what_caused_them() -> None:
    moments = [
        caused(Trigger.COMMIT, IntentSource.COMMIT),
        caused(Trigger.MERGE, IntentSource.COMMIT),
        *restored(),
    ]
    timeline = Timeline.of("laptop/app-1a2b3c", moments)
    told = label_candidates(by_intent(timeline, "add q"), NOW)
    assert [one.split(" ", 3)[-1] for one in told] == ["commit: add q", "merge: add q"]
    (restore,) = label_candidates(by_intent(timeline, 'restored "all set up"'), NOW)
    assert restore.endswith('restored "all set up"')
