"""Titles of snapshots: the cause, the target of a restore; and finding a snapshot by its title."""

from __future__ import annotations

import pytest

from git_envhist.history.timeline import Timeline
from git_envhist.history.titles import (
    by_intent,
    is_in_part,
    label_candidates,
    operation_words,
    substitute_intent,
    title,
)
from git_envhist.lazy import replace
from git_envhist.model import IntentSource, RestoreRole, Snapshot, Trigger
from tests.history.snapshots import NOW, snapshot


def caused(trigger: Trigger, source: IntentSource, words: str = "add q") -> Snapshot:
    made = snapshot(words if source is not IntentSource.NONE else "")
    return replace(made, trigger=trigger, intent_source=source, branch="refs/heads/feature/x")


@pytest.mark.parametrize(
    ("trigger", "told"),
    [
        (Trigger.COMMIT, "commit: add q"),
        (Trigger.MERGE, "merge: add q"),
        (Trigger.CHECKOUT, "checkout feature/x"),
        (Trigger.REWRITE, "rewrite: add q"),
        (Trigger.WATCH, "watch: add q"),
        (Trigger.AGENT, "agent: add q"),
        (Trigger.MANUAL, "capture: add q"),
        (Trigger.API, "capture: add q"),
    ],
)
def test_snapshot_without_an_intent_names_its_cause(trigger: Trigger, told: str) -> None:
    assert title(caused(trigger, IntentSource.COMMIT)) == told


def test_intent_of_a_person_or_an_agent_is_the_title() -> None:
    for trigger in Trigger:
        assert title(caused(trigger, IntentSource.GIVEN)) == "add q"
    assert title(caused(Trigger.AGENT, IntentSource.AGENT)) == "add q"


def test_title_is_the_cause_when_there_is_no_code_commit() -> None:
    assert title(caused(Trigger.WATCH, IntentSource.NONE)) == "watch"
    assert title(caused(Trigger.CHECKOUT, IntentSource.NONE)) == "checkout feature/x"
    assert title(caused(Trigger.MANUAL, IntentSource.NONE)) == "(no intent)"
    assert title(replace(caused(Trigger.CHECKOUT, IntentSource.COMMIT), branch=None)) == "checkout: add q"


def operation(intent: str, part: RestoreRole) -> Snapshot:
    return replace(snapshot(intent), restore=part, restored_from=snapshot("goal").id)


@pytest.mark.parametrize(
    ("intent", "part", "printed", "partly"),
    [
        ("restore of 0123abc", RestoreRole.TO, "restore of 0123abc", False),
        ("restore of 0123abc (2 paths)", RestoreRole.TO, "restore of 0123abc (2 paths)", True),
        ("restore of 0123abc (1,204 paths)", RestoreRole.TO, "restore of 0123abc (1,204 paths)", True),
        ("undo of 0123abc", RestoreRole.UNDO, "undo of 0123abc", False),
        ("before the restore of 0123abc", RestoreRole.BEFORE, "before the restore of 0123abc", False),
        # As earlier versions wrote the intents.
        ("restored 0123abc", RestoreRole.TO, "restore of 0123abc", False),
        ("restored 0123abc, in part", RestoreRole.TO, "restore of 0123abc (in part)", True),
        ("undo 0123abc", RestoreRole.UNDO, "undo to 0123abc", False),
        ("redo 0123abc", RestoreRole.REDO, "redo to 0123abc", False),
    ],
)
def test_operation_has_a_short_title(intent: str, part: RestoreRole, printed: str, partly: bool) -> None:
    assert title(operation(intent, part)) == printed
    assert is_in_part(operation(intent, part)) is partly


def test_intent_of_an_operation_names_the_snapshot() -> None:
    assert operation_words(RestoreRole.TO, "0123abcdef", "2 paths") == "restore of 0123abc (2 paths)"
    assert operation_words(RestoreRole.UNDO, "0123abcdef") == "undo of 0123abc"
    assert operation_words(RestoreRole.TO, None) == "restore"


def test_substitute_intent_names_the_commit_before_its_subject() -> None:
    assert substitute_intent("31c520f9", b"add q") == b"snapshot after 31c520f\n\nadd q"


def test_printed_title_finds_its_snapshot() -> None:
    moments = [
        operation("restored 0123abc", RestoreRole.TO),
        snapshot("all set up"),
        caused(Trigger.COMMIT, IntentSource.COMMIT),
        caused(Trigger.MERGE, IntentSource.COMMIT),
    ]
    timeline = Timeline.of("laptop/app-1a2b3c", moments)

    def found(text: str) -> list[str]:
        return [moments[spot.index].intent for spot in by_intent(timeline, text)]

    assert found("restore of 0123abc") == ["restored 0123abc"]
    assert found("set up") == ["all set up"]
    assert found("merge: add") == ["add q"]
    assert found("checkout") == []


def test_candidates_are_labelled_with_their_cause() -> None:
    moments = [
        caused(Trigger.COMMIT, IntentSource.COMMIT),
        caused(Trigger.MERGE, IntentSource.COMMIT),
        operation("restored 0123abc", RestoreRole.TO),
    ]
    timeline = Timeline.of("laptop/app-1a2b3c", moments)
    told = label_candidates(by_intent(timeline, "add q"), NOW)
    assert [one.split(" ", 3)[-1] for one in told] == ["commit: add q", "merge: add q"]
    (restore,) = label_candidates(by_intent(timeline, "restore of 0123abc"), NOW)
    assert restore.endswith("restore of 0123abc")
