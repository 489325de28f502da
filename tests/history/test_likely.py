"""The snapshots that `git envrestore` lists without a revision."""

from __future__ import annotations

from dataclasses import replace

from git_envhist.history.titles import likely_targets
from git_envhist.model import Snapshot, Trigger, Verdict, VerdictStatus
from tests.history.snapshots import at, snapshot

PASSED = Verdict(VerdictStatus.PASS, "make test", at("10:00"), exit_code=0)


def moment(intent: str, content: str, **other: object) -> Snapshot:
    return replace(snapshot(intent), content=content, **other)  # type: ignore[arg-type]


def intents(moments: tuple[Snapshot, ...]) -> list[str]:
    return [one.intent for one in moments]


def test_likely_targets_are_the_newest_and_those_that_passed_or_have_a_name() -> None:
    line = [
        moment("here", "h"),
        moment("by hook", "a", trigger=Trigger.COMMIT),
        moment("by hand", "b"),
        moment("named", "c", names=("release",)),
        moment("passed", "d", verdicts=(PASSED,)),
        moment("passed before", "e", verdicts=(PASSED,)),
    ]
    assert intents(likely_targets(line, "h")) == ["by hook", "by hand", "named", "passed", "passed before"]
    many = [moment("newest", "n"), *(moment(str(number), str(number)) for number in range(9)), *line]
    assert intents(likely_targets(many, "h")) == ["newest", "0", "1", "named", "passed"]


def test_likely_targets_are_at_most_five_with_different_content() -> None:
    line = [moment(f"m{number}", str(number // 2)) for number in range(20)]
    assert intents(likely_targets(line, "none of these")) == ["m0", "m2", "m4", "m6", "m8"]
    assert likely_targets([], "x") == ()


def test_snapshot_with_a_name_represents_equal_ones() -> None:
    line = [
        moment("undo", "a", trigger=Trigger.RESTORE, verdicts=(PASSED,)),
        moment("before", "b", trigger=Trigger.RESTORE),
        moment("by hand", "b"),
        moment("clean", "a", names=("clean",)),
        moment("clean again", "a"),
    ]
    assert intents(likely_targets(line, "h")) == ["clean", "by hand"]


def test_failed_snapshot_with_a_name_does_not_represent_one_that_passed() -> None:
    failed = replace(PASSED, status=VerdictStatus.FAIL, exit_code=1)
    line = [
        moment("undo", "a", trigger=Trigger.RESTORE, verdicts=(PASSED,)),
        moment("named", "a", names=("named",), verdicts=(failed,)),
        moment("named before", "a", names=("clean",)),
    ]
    assert intents(likely_targets(line, "h")) == ["named before"]
    assert intents(likely_targets(line[:2], "h")) == ["undo"]


def test_newest_is_listed_itself_unless_it_records_a_restore() -> None:
    line = [moment("again", "a"), moment("other", "b"), moment("named", "a", names=("clean",))]
    assert intents(likely_targets(line, "")) == ["again", "other"]
    restored = [moment("restored", "a", trigger=Trigger.RESTORE), *line[1:]]
    assert intents(likely_targets(restored, "")) == ["named", "other"]


def test_failed_snapshots_come_after_all_others_that_a_person_took() -> None:
    failed = replace(PASSED, status=VerdictStatus.FAIL, exit_code=1)
    line = [
        moment("newest", "a"),
        moment("upgrade", "b", verdicts=(failed,)),
        *(moment(word, word) for word in ("c", "d", "e")),
        moment("stable", "f", names=("stable",)),
    ]
    assert intents(likely_targets(line, "h")) == ["newest", "c", "d", "e", "stable"]
    assert "upgrade" in intents(likely_targets(line[:3], "h"))


def test_likely_targets_are_in_the_order_of_their_printed_times() -> None:
    line = [
        moment("newest", "n"),
        moment("restored", "a", trigger=Trigger.RESTORE),
        moment("by hand", "b"),
        moment("named", "a", names=("stable",)),
    ]
    assert intents(likely_targets(line, "h")) == ["newest", "by hand", "named"]
