"""The local zone agrees with the zone data that it was made from, also on the days when clocks change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.git.current_actor import LocalZone
from git_envhist.history.times import read_time_span
from tests.history.snapshots import BERLIN

MIDDLES = [datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)]


@pytest.fixture(autouse=True)
def _machine_in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@given(st.sampled_from(MIDDLES), st.integers(-20_000, 20_000) | st.integers(-(10**8), 10**8))
def test_local_zone_uses_the_offset_of_each_time(middle: datetime, seconds: int) -> None:
    instant = middle + timedelta(seconds=seconds)
    local, expected = instant.astimezone(LocalZone()), instant.astimezone(BERLIN)
    assert (local.replace(tzinfo=None), local.fold) == (expected.replace(tzinfo=None), expected.fold)
    assert (local.utcoffset(), local.tzname()) == (expected.utcoffset(), expected.tzname())
    assert local.astimezone(UTC) == instant


@pytest.mark.parametrize(
    "text", ["2026-10-25 02:30", "2026-03-29 02:30", "2026-03-29", "60d", "2026-07-01 10:27"]
)
def test_wall_clock_time_uses_the_offset_of_its_season(text: str) -> None:
    now = datetime(2026, 11, 18, 9, 30, tzinfo=UTC)
    assert read_time_span(text, now.astimezone(LocalZone())) == read_time_span(text, now.astimezone(BERLIN))
