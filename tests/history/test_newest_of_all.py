"""The newest snapshots of many timelines are found without reading all timelines, with the same result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from git_envhist.history.catalog import newest_snapshots
from git_envhist.model import Snapshot
from tests.history.snapshots import NOW, hex_id, snapshot

LINES = st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=6), max_size=6)


def read_all(lines: dict[str, list[Snapshot]], limit: int) -> list[Snapshot]:
    found: dict[str, Snapshot] = {}
    for line in lines.values():
        for one in line:
            found.setdefault(one.id, one)
    return sorted(found.values(), key=lambda one: one.at, reverse=True)[:limit]


@given(LINES, st.integers(0, 8))
def test_newest_of_all_timelines_equal_the_first_of_the_full_list(
    told: list[list[tuple[int, int]]], limit: int
) -> None:
    # A snapshot may be on several timelines, e.g. fetched after a push; its time is the same on each.
    times: dict[int, int] = {}
    lines: dict[str, list[Snapshot]] = {}
    for number, moments in enumerate(told):
        each = {key: times.setdefault(key, minutes) for minutes, key in moments}
        line = [
            snapshot(
                f"{key}", NOW + timedelta(minutes=at), id=hex_id(str(key)), timeline=f"host/line-{number}"
            )
            for key, at in each.items()
        ]
        lines[f"host/line-{number}"] = sorted(line, key=lambda one: one.at, reverse=True)
    tips = {name: line[0].at.timestamp() for name, line in lines.items() if line}
    read: list[str] = []

    def take(name: str, most: int) -> Sequence[Snapshot]:
        read.append(name)
        return lines[name][:most]

    assert newest_snapshots(tips, take, limit) == read_all(lines, limit)
    assert len(read) == len(set(read))


def test_only_timelines_with_recent_tips_are_read() -> None:
    lines = {
        f"host/line-{number}": [
            snapshot(str(number), NOW - timedelta(minutes=number), id=hex_id(str(number)))
        ]
        for number in range(500)
    }
    read: list[str] = []

    def take(name: str, most: int) -> Sequence[Snapshot]:
        read.append(name)
        return lines[name][:most]

    tips = {name: line[0].at.timestamp() for name, line in lines.items()}
    assert len(newest_snapshots(tips, take, 20)) == 20
    assert len(read) == 20
