"""Lines of a list: which snapshots share one."""

from __future__ import annotations

from datetime import datetime

from git_envhist.cli.formats import FormatContext
from git_envhist.history.graph import fold_snapshots
from git_envhist.lazy import replace
from git_envhist.model import ChangeCount, IntentSource, Snapshot, Trigger
from tests.history.snapshots import BERLIN, NOW, at, snapshot

FILES, NOTHING = ChangeCount(1, 2, 0), ChangeCount()


def by_hook(when: str, changed: ChangeCount = FILES, **more: object) -> Snapshot:
    made = snapshot(f"snapshot after {when}", when)
    made = replace(made, trigger=Trigger.COMMIT, intent_source=IntentSource.COMMIT, changed=changed)
    return replace(made, **more)  # type: ignore[arg-type]


def by_hand(when: str, changed: ChangeCount = FILES, words: str = "work") -> Snapshot:
    return replace(snapshot(words, when), changed=changed)


def chained(*newest_first: Snapshot) -> list[Snapshot]:
    older = [*newest_first[1:], snapshot("before all")]
    return [replace(one, parent=before.commit) for one, before in zip(newest_first, older, strict=True)]


def sizes(*newest_first: Snapshot) -> list[int]:
    return [1 + len(line.earlier) for line in fold_snapshots(chained(*newest_first), BERLIN)]


def test_automatic_snapshots_of_one_day_are_one_line_if_they_changed_only_files() -> None:
    [line] = fold_snapshots(chained(by_hook("10:03"), by_hook("10:02"), by_hook("10:01")), BERLIN)
    assert (line.is_run, line.is_turn, line.changed) == (True, False, ChangeCount(3, 6, 0))
    assert sizes(by_hook("10:03"), by_hand("10:02"), by_hook("10:01")) == [1, 1, 1]
    assert sizes(by_hook("00:10"), by_hook("2026-11-17 23:50")) == [1, 1]
    assert sizes(by_hook("10:03"), by_hook("10:02", story="pip +flask 3.0.1"), by_hook("10:01")) == [1, 1, 1]
    assert sizes(by_hook("10:03"), by_hook("10:02", names=("kept",)), by_hook("10:01")) == [1, 1, 1]


def test_unchanged_snapshot_has_a_line_only_with_an_intent_or_as_the_newest() -> None:
    assert sizes(by_hand("10:03"), by_hook("10:02", NOTHING), by_hand("10:01")) == [2, 1]
    assert sizes(by_hook("10:03", NOTHING), by_hand("10:01")) == [1, 1]
    assert sizes(by_hand("10:03"), by_hand("10:02", NOTHING)) == [1, 1]
    ran = replace(by_hand("10:02", NOTHING), trigger=Trigger.RUN)
    assert sizes(by_hand("10:03"), ran, by_hand("10:01")) == [2, 1]


def test_heading_names_the_day_and_times_are_of_that_day() -> None:
    look = FormatContext(NOW, by_day=True)
    days = [look.day(snapshot("x", when)) for when in ("10:00", "2026-11-17 23:59", "2026-11-13 08:00")]
    assert days == ["2026-11-18 Wednesday, today", "2026-11-17 Tuesday, yesterday", "2026-11-13 Friday"]
    assert look.today == days[0]
    assert look.time(snapshot("x", "2026-11-13 08:00")) == "08:00"
    assert datetime.fromisoformat(f"{days[2].split()[0]} 08:00").replace(tzinfo=BERLIN) == at(
        "2026-11-13 08:00"
    )
