"""Which call of an agent's tool made a change: only with evidence, else it is uncertain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.history.attribution import (
    LATE,
    Attribution,
    Certainty,
    ChangeTime,
    Reason,
    attribute_change,
)
from git_envhist.lazy import replace
from git_envhist.model import CallWindow, RestoreRole, Snapshot, TextNote, ToolCall, Trigger
from tests.history.snapshots import snapshot

BEFORE = replace(snapshot("before", "10:00"), trusted=True)
SHELL = ToolCall("Bash", "claude-code", session="s", id="1", command="make", began=100.0, ended=110.0)
EDIT = ToolCall(
    "Edit",
    "claude-code",
    session="s",
    id="2",
    paths=("f",),
    changes_only_paths=True,
    began=100.0,
    ended=101.0,
)
INSIDE = ChangeTime(105.0, 104.0)


def step(*calls: ToolCall, after: str | None = None, **more: object) -> Snapshot:
    window = CallWindow(after or BEFORE.id, 90.0, 120.0)
    return replace(snapshot("after", "10:05"), window=window, calls=calls, trusted=True, **more)


def of(taken: Snapshot, path: str | None = "f", time: ChangeTime = INSIDE, *later: Snapshot) -> Attribution:
    return attribute_change(taken, BEFORE, path, time, later)


def test_only_call_is_named_if_the_file_was_written_while_it_ran() -> None:
    found = of(step(SHELL))
    assert (found.certainty, found.reason, found.call) == (Certainty.CALL, Reason.TIME, SHELL)
    assert (found.start, found.end) == (90.0, 120.0)


@pytest.mark.parametrize(
    ("written", "placed"),
    [
        (99.9, 99.0),
        (110.0, 104.0),
        (115.0, 104.0),
        (105.0, 110.0),
        (105.0, 119.0),
        (None, None),
        (105.0, None),
    ],
)
def test_edit_outside_of_the_call_is_uncertain(written: float | None, placed: float | None) -> None:
    found = of(step(SHELL), "f", ChangeTime(written, placed))
    assert (found.certainty, found.call, found.candidates) == (Certainty.UNCERTAIN, None, (SHELL,))


def test_bytes_that_the_call_was_to_write_name_it_beside_other_calls() -> None:
    wrote = replace(EDIT, wrote=("f",))
    found = of(step(SHELL, wrote), "f", ChangeTime(100.5, 119.0))
    assert (found.reason, found.call) == (Reason.BYTES, wrote)
    assert of(step(SHELL, wrote), "g").call == SHELL
    twice = of(step(wrote, replace(wrote, id="3")))
    assert (twice.certainty, twice.reason) == (Certainty.UNCERTAIN, Reason.SEVERAL)


@pytest.mark.parametrize(("ended", "written"), [(101.0, 105.0), (101.0, None), (None, 100.5)])
def test_bytes_of_a_call_that_may_have_failed_do_not_name_it(
    ended: float | None, written: float | None
) -> None:
    wrote = replace(EDIT, wrote=("f",), ended=ended)
    for calls in ((wrote,), (SHELL, wrote)):
        assert of(step(*calls), "f", ChangeTime(written, 90.0)).certainty is Certainty.UNCERTAIN


def test_removed_path_names_only_the_one_call_that_waited_for_the_capture() -> None:
    removed = ChangeTime(105.0, 105.0, is_indirect=True)
    assert of(step(SHELL), "f", removed).reason is Reason.NOT_WAITED
    before = replace(BEFORE, calls=(replace(SHELL, began=None, ended=None),))
    assert attribute_change(step(SHELL), before, "f", removed).call == SHELL
    taken = step(replace(EDIT, paths=("g",)), SHELL)
    assert attribute_change(taken, before, "f", removed).reason is Reason.NOT_WAITED


def test_directory_is_not_decided_by_its_time() -> None:
    directory = ChangeTime(100.5, 90.0, is_directory=True)
    edit = replace(EDIT, paths=("d/f",))
    assert of(step(edit), "d", directory).candidates == (edit,)
    assert of(step(edit), "d", directory).reason is Reason.DIRECTORY
    assert of(step(edit, SHELL), "d", directory).reason is Reason.SEVERAL
    assert of(step(edit), "dd", directory).reason is Reason.NOT_NAMED


def test_tool_that_edits_files_is_no_candidate_for_other_paths() -> None:
    assert of(step(EDIT), "g").reason is Reason.NOT_NAMED
    assert of(step(EDIT), None).reason is Reason.NOT_NAMED
    assert of(step(EDIT), "f", ChangeTime(100.5, 90.0)).call == EDIT


def test_several_calls_that_may_have_written_are_uncertain() -> None:
    # The first may have written too, before the second wrote last.
    other = replace(SHELL, id="9", subagent="sub", began=104.0, ended=115.0)
    for time in (INSIDE, ChangeTime(112.0, 112.0), ChangeTime(None, None)):
        found = of(step(SHELL, other), "f", time)
        assert (found.reason, found.call, found.candidates) == (Reason.SEVERAL, None, (SHELL, other))


def test_call_that_began_after_the_time_of_the_file_may_have_set_it_back() -> None:
    # `cp -p x f` gives f the time of x, and leaves the time of the directory.
    other = replace(SHELL, id="9", command="cp -p x f", began=112.0, ended=115.0)
    for time in (INSIDE, ChangeTime(105.0, 106.0), ChangeTime(105.0, 106.0, is_whole=True)):
        found = of(step(SHELL, other), "f", time)
        assert (found.reason, found.candidates) == (Reason.SEVERAL, (SHELL, other))
    assert of(step(SHELL, other), "f", ChangeTime(105.0, 104.0, is_indirect=True)).reason is Reason.SEVERAL
    assert of(step(other), "f").reason is Reason.OTHER_TIME


def test_package_is_of_the_call_that_wrote_it_whole() -> None:
    other = replace(SHELL, id="9", began=104.0, ended=115.0)
    last = ChangeTime(112.0, 113.0, is_whole=True)
    assert of(step(SHELL, other), "p", last).call == other
    assert of(step(SHELL, other), "p", replace(last, written=110.02)).reason is Reason.SEVERAL
    assert of(step(replace(SHELL, may_continue=True), other), "p", last).reason is Reason.SEVERAL
    edit = replace(EDIT, paths=("p/METADATA",), ended=114.0)
    assert of(step(edit, other), "p", last).reason is Reason.SEVERAL


def test_call_without_a_reported_end_is_uncertain_until_a_later_snapshot_knows_it() -> None:
    running = replace(SHELL, ended=None)
    assert of(step(running)).reason is Reason.NO_END
    later = replace(step(SHELL), id="f" * 40)
    assert of(step(running), "f", INSIDE, later).call == SHELL


def test_call_that_ended_before_the_last_capture_is_no_candidate() -> None:
    old = replace(SHELL, id="0", began=50.0, ended=60.0)
    assert of(step(old)).reason is Reason.NO_CALL
    assert of(step(old, SHELL)).call == SHELL
    # A process that the command may have left behind still is one.
    assert of(step(replace(old, may_continue=True), SHELL)).reason is Reason.SEVERAL


def test_call_that_was_about_to_run_is_no_candidate_unless_the_capture_was_late() -> None:
    following = replace(SHELL, began=None, ended=None)
    assert of(step(following)).reason is Reason.NO_CALL
    remarks = (TextNote(LATE, datetime.now(UTC)),)
    found = of(step(SHELL, following, remarks=remarks))
    assert (found.reason, found.call, found.candidates) == (Reason.LATE, None, (SHELL, following))


def test_dropped_snapshots_between_make_it_uncertain() -> None:
    found = of(step(SHELL, after="e" * 40))
    assert (found.certainty, found.reason, found.candidates) == (
        Certainty.UNCERTAIN,
        Reason.THINNED,
        (SHELL,),
    )


def test_step_without_hooks_names_nobody() -> None:
    taken = replace(snapshot("after", "10:05"), parent=BEFORE.commit, trusted=True)
    assert of(taken).reason is Reason.NO_RECORD
    assert attribute_change(taken, None, "f", INSIDE).certainty is Certainty.FIRST


def test_command_between_two_snapshots_is_named_unless_the_timeline_was_rewritten() -> None:
    run = replace(
        snapshot("after", "10:05"),
        parent=BEFORE.commit,
        trusted=True,
        trigger=Trigger.RUN,
        meta=(("command", "make"),),
    )
    found = of(run)
    assert (found.reason, found.call and found.call.command) == (Reason.RAN, "make")
    rewritten = replace(run, commit="d" * 40)
    assert of(rewritten).certainty is Certainty.UNCERTAIN
    # Another command that began before the end of this one and ended after it may have made the change.
    other = replace(
        run,
        id="f" * 40,
        at=run.at + timedelta(seconds=4),
        meta=(("command", "b"), ("duration-ms", "6000")),
    )
    assert of(run, "f", INSIDE, other).reason is Reason.SEVERAL
    following = replace(other, meta=(("command", "b"), ("duration-ms", "1000")))
    assert of(run, "f", INSIDE, following).reason is Reason.RAN


def test_restore_is_named_as_a_restore() -> None:
    restored = replace(snapshot("after", "10:05"), parent=BEFORE.commit, restore=RestoreRole.TO, trusted=True)
    assert of(restored).certainty is Certainty.RESTORE
    assert of(replace(restored, commit="d" * 40)).certainty is Certainty.UNCERTAIN
    other = attribute_change(restored, BEFORE, "f", INSIDE, is_restored=False)
    assert (other.certainty, other.reason) == (Certainty.UNCERTAIN, Reason.NOT_RESTORED)


def test_unsigned_snapshot_names_nobody() -> None:
    found = of(replace(step(SHELL), trusted=False))
    assert (found.certainty, found.reason, found.candidates) == (
        Certainty.UNCERTAIN,
        Reason.UNSIGNED,
        (SHELL,),
    )


SECONDS = st.floats(95, 125)
CALLS = st.builds(
    lambda number, began, length, only, path: replace(
        SHELL, id=str(number), began=began, ended=began + length, changes_only_paths=only, paths=(path,)
    ),
    st.integers(0, 5), SECONDS, st.floats(0.1, 10), st.booleans(), st.sampled_from("fg"),
)  # fmt: skip


@given(st.lists(CALLS, max_size=4, unique_by=lambda call: call.id), SECONDS, st.data())
def test_named_call_ran_when_the_change_was_made(
    calls: list[ToolCall], at: float, data: st.DataObject
) -> None:
    """Whoever writes at a time, the named call ran at that time and can have written the path."""
    found = of(step(*calls), "f", ChangeTime(at, at))
    if found.certainty is Certainty.CALL:
        assert found.call is not None
        able = [one for one in calls if "f" in one.paths or not one.changes_only_paths]
        assert [one for one in able if one.began is not None and one.began <= at] == [found.call]
        assert found.call.began is not None
        assert found.call.ended is not None
        assert found.call.began <= at < found.call.ended
