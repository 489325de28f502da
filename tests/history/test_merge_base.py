"""The snapshot that two timelines have in common is the newest that both continue."""

from __future__ import annotations

from datetime import timedelta

import pytest

from git_envhist.errors import Refused
from git_envhist.history.merge_base import ancestors, common_snapshot
from git_envhist.history.timeline import Position, Timeline
from git_envhist.lazy import replace
from git_envhist.model import RestoreRole, Snapshot, SnapshotId
from tests.history.snapshots import snapshot


def one(name: str, at: int, **fields: object) -> Snapshot:
    """Return a snapshot of a minute."""
    made = snapshot(name)
    return replace(made, id=SnapshotId(name), at=made.at + timedelta(minutes=at), **fields)


def timeline(name: str, *oldest_first: Snapshot) -> Timeline:
    return Timeline(name, tuple(reversed(oldest_first)))


def common(ours: Timeline, theirs: Timeline) -> str | None:
    def find(snapshot_id: str) -> Position | None:
        for line in (ours, theirs):
            for position in line.positions():
                if position.snapshot.id == snapshot_id:
                    return position
        return None

    found = common_snapshot(Position(ours, 0), Position(theirs, 0), find)
    return None if found is None else found.id


def test_fork_point_is_common_in_both_directions() -> None:
    main = timeline("main", one("a", 0), one("b", 1), one("c", 2))
    fork = timeline("fork", one("f", 3, forked_from="b"), one("g", 4))
    assert common(main, fork) == common(fork, main) == "b"


def test_timelines_without_a_connection_have_nothing_in_common() -> None:
    assert common(timeline("main", one("a", 0)), timeline("other", one("x", 1))) is None
    assert common(timeline("main", one("a", 0)), timeline("fork", one("f", 1, forked_from="gone"))) is None


def test_merged_snapshot_is_common_until_the_merge_is_undone() -> None:
    fork = timeline("fork", one("f", 1, forked_from="a"), one("g", 2), one("h", 5))
    merged = [one("a", 0), one("b", 3), one("m", 4, merged="g", restore=RestoreRole.MERGE)]
    main = timeline("main", *merged)
    assert common(main, fork) == common(fork, main) == "g"
    undone = one("u", 6, restored_from="b", restore=RestoreRole.UNDO)
    assert common(timeline("main", *merged, undone), fork) == "a"
    redone = one("r", 7, restored_from="m", restore=RestoreRole.REDO)
    assert common(timeline("main", *merged, undone, redone), fork) == "g"


def test_adopted_fork_is_common_if_all_of_it_was_restored() -> None:
    fork = timeline("fork", one("f", 1, forked_from="a"), one("g", 2))
    whole = one("w", 3, restored_from="g", restore=RestoreRole.TO, intent="restore of g")
    part = one("p", 3, restored_from="g", restore=RestoreRole.TO, intent="restore of g (2 paths)")
    assert common(timeline("main", one("a", 0), whole), fork) == "g"
    assert common(timeline("main", one("a", 0), part), fork) == "a"


def test_snapshot_that_continues_others_counts_among_those_of_one_second() -> None:
    fork = timeline("fork", one("f", 0, forked_from="a"), one("g", 0))
    main = timeline("main", one("a", 0), one("m", 0, merged="g", restore=RestoreRole.MERGE))
    assert common(main, fork) == common(fork, main) == "g"


def test_ancestors_end_where_timelines_refer_to_each_other() -> None:
    main = timeline("main", one("a", 0), one("m", 3, merged="g", restore=RestoreRole.MERGE))
    fork = timeline("fork", one("g", 1, forked_from="m"))
    places = {"g": Position(fork, 0), "m": Position(main, 0)}
    assert [found.id for found in ancestors(Position(main, 0), places.get)] == ["m", "a", "g"]


def test_snapshot_that_another_common_one_continues_is_not_the_newest() -> None:
    fork = timeline("fork", one("f", 9, forked_from="a"), one("g", 10), one("h", 11, merged="m"))
    main = timeline("main", one("a", 0), one("m", 2, merged="g"), one("n", 3))
    # The clock of the fork is ahead.
    assert common(main, fork) == common(fork, main) == "m"


def test_timelines_that_merged_each_other_have_no_newest_common_snapshot() -> None:
    fork = timeline("fork", one("f", 1, forked_from="a"), one("g", 2), one("h", 4, merged="b"))
    main = timeline("main", one("a", 0), one("b", 3), one("m", 5, merged="g"), one("n", 6))
    for sides in ((main, fork), (fork, main)):
        with pytest.raises(Refused) as raised:
            common(*sides)
        assert "--base b" in str(raised.value.hint)


def test_unsigned_snapshot_cannot_claim_a_merge() -> None:
    for claim in (
        {"merged": "b"},
        {"restored_from": "b", "restore": RestoreRole.TO, "intent": "restore of b"},
    ):
        for trusted, found in ((True, "b"), (False, "a")):
            fork = timeline("fork", one("f", 1, forked_from="a"), one("g", 5, trusted=trusted, **claim))
            main = timeline("main", one("a", 0), one("b", 3))
            assert common(main, fork) == found
