"""Areas of change: few places that cover all changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from git_envhist.diff.size_history import Area, SizedChange, areas_of
from git_envhist.model import EnvPath

names = st.sampled_from([b"a", b"b", b"c", b"node_modules", b"x.py"])
paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)
sizes = st.one_of(st.none(), st.integers(0, 10_000))


def touched(path: bytes, before: int | None, after: int | None) -> SizedChange:
    return SizedChange(EnvPath(path), before, after)


changes = st.lists(st.builds(touched, paths, sizes, sizes), max_size=40, unique_by=lambda one: one.path)


@given(changes, st.integers(1, 12))
def test_areas_cover_each_change_once_within_the_limit(found: list[SizedChange], most: int) -> None:
    areas = areas_of(found, most)
    assert len(areas) <= most
    assert sum(area.added + area.modified + area.removed for area in areas) == len(found)
    assert sum(area.bytes_before for area in areas) == sum(one.before or 0 for one in found)
    assert sum(area.bytes_after for area in areas) == sum(one.after or 0 for one in found)


@given(changes)
def test_each_file_is_an_area_when_there_is_room(found: list[SizedChange]) -> None:
    areas = areas_of(found, 1000)
    assert sorted(area.path for area in areas) == sorted(one.path for one in found)


def test_largest_directory_is_divided_first() -> None:
    small = [touched(b"src/%d.py" % number, None, 10) for number in range(9)]
    large = [touched(b"lib/%s/core.js" % name, None, 1000) for name in (b"react", b"vite")]
    found = areas_of([*small, *large, touched(b"old", 5, None)], 5)
    assert [(area.path, area.weight) for area in found] == [
        (b"lib/react/core.js", 1000),
        (b"lib/vite/core.js", 1000),
        (b"src/", 90),
        (b"old", 5),
    ]
    assert found[-1] == Area(EnvPath(b"old"), 0, 0, 1, 5, 0)


def test_smallest_areas_are_joined_at_the_top() -> None:
    found = areas_of([touched(b"%d" % number, 1, number) for number in range(30)], 4)
    assert [area.path for area in found] == [b"29", b"28", b"27", b""]
    assert found[-1].modified == 27
