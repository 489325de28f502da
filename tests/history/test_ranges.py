"""Ranges are split if both ends are revisions, and never inside a name or an intent."""

from __future__ import annotations

import pytest

from git_envhist.errors import AmbiguousRevision, EnvhistError, SnapshotNotFound, UsageError
from git_envhist.history.resolve import WORKING_TREE, End, ResolvedRange, resolve_range, snapshots_in_range
from git_envhist.history.timeline import Catalog, Position, Timeline
from tests.history.snapshots import NOW, snapshot, world

THREE = world(snapshot("c", "10:20"), snapshot("b", "10:10", names=("x",)), snapshot("a", "10:00"))


def ends(text: str, where: Catalog = THREE) -> tuple[str | None, str | None]:
    span = resolve_range(text, where, NOW)
    return _told(span.start), _told(span.end)


def _told(end: End | None) -> str | None:
    return end.snapshot.intent if isinstance(end, Position) else None if end is None else "now"


def listed(text: str, where: Catalog = THREE) -> str:
    return " ".join(
        moment.intent for moment in snapshots_in_range(resolve_range(text, where, NOW), where.own)
    )


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("x", None, "b"),
        ("now", None, "now"),
        ("@~2..@", "a", "c"),
        ("@~2..", "a", "c"),
        ("..x", "c", "b"),
        ("x..now", "b", "now"),
        ("now..x", "now", "b"),
        ("@{10:05}..10:10", "a", "b"),
        (":/a..:/b", "a", "b"),
    ],
)
def test_range_has_two_ends_and_a_single_revision_one(text: str, start: str | None, end: str) -> None:
    assert ends(text) == (start, end)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("@", "c b a"),
        ("x", "b a"),
        ("@~2..@", "c b"),
        ("@~2..x", "b"),
        ("x..", "c"),
        ("..x", ""),
        ("@..@", ""),
        ("x..now", "c"),
        ("now", "c b a"),
    ],
)
def test_range_lists_snapshots_of_its_end_without_those_of_its_start(text: str, shown: str) -> None:
    assert listed(text) == shown


def test_start_on_another_timeline_excludes_common_snapshots_only() -> None:
    fetched = Timeline("origin/laptop/app-1a2b3c", THREE.own.snapshots[1:])
    foreign = Timeline.of("box/x", [snapshot("z", timeline="box/x")])
    where = Catalog(THREE.own, {fetched.name: fetched, "box/x": foreign}, THREE.git)
    assert listed("origin/laptop/app-1a2b3c..@", where) == "c"
    assert listed("box/x..@", where) == "c b a"
    assert listed("x..box/x", where) == "z"


def test_range_of_an_empty_timeline_is_an_empty_list() -> None:
    assert snapshots_in_range(ResolvedRange(None, WORKING_TREE), world().own) == ()


@pytest.mark.parametrize("text", [":/fix a..b thing", "odd..name", ":/wait... what", ":/fix a..b thing~0"])
def test_dots_in_an_intent_or_a_name_are_no_range(text: str) -> None:
    where = world(
        snapshot("fix a..b thing", "10:20", names=("odd..name", "a")),
        snapshot("wait... what", "10:10"),
        snapshot("fix a", "10:05", names=("odd",)),
        snapshot("other", names=("b thing", "name")),
    )
    start, end = ends(text, where)
    assert start is None
    assert end in ("fix a..b thing", "wait... what")


def test_range_of_intents_is_split_where_both_exist() -> None:
    where = world(snapshot("go on", "10:20"), snapshot("wait..see", "10:10"))
    assert ends(":/wait..see..:/go", where) == ("wait..see", "go on")


def test_text_with_several_ranges_lists_them() -> None:
    where = world(
        snapshot("1", "10:20", names=("a..b",)),
        snapshot("2", "10:10", names=("b..c", "a")),
        snapshot("3", names=("c",)),
    )
    with pytest.raises(AmbiguousRevision) as failure:
        resolve_range("a..b..c", where, NOW)
    assert failure.value.candidates == ("'a' .. 'b..c'", "'a..b' .. 'c'")


@pytest.mark.parametrize(
    ("text", "failure", "hint"),
    [
        ("@...x", UsageError, "no 'a...b'; the two ends: @..x"),
        ("@...", UsageError, "no 'a...b'; a range is"),
        ("..", UsageError, "'a..b'"),
        ("nothing..x", SnapshotNotFound, "lists every snapshot"),
        ("@~9..x", SnapshotNotFound, "'@~2'"),
        ("../file", SnapshotNotFound, "git envrestore @ -- ../file"),
        ("@..^x", UsageError, "'^' asks git for parents"),
    ],
)
def test_invalid_range_is_an_error_with_a_reason(text: str, failure: type[EnvhistError], hint: str) -> None:
    where = Catalog(THREE.own, {}, THREE.git, ("../file",).__contains__)
    with pytest.raises(failure) as raised:
        resolve_range(text, where, NOW)
    assert hint in (raised.value.hint or "")
