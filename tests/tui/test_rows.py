"""Rows of the list of the terminal browser."""

from __future__ import annotations

import pytest

from git_envhist.tui.programs import FIELDS, _short_time, read_rows


def test_verdict_of_an_equal_snapshot_is_shown_in_the_summary_only() -> None:
    fields = ("1" * 40, "1111111", "10:20", "verify passing", "restore of 0123abc", "", "~1 file", "restore")
    [own, carried] = read_rows(
        "".join("\0".join((*fields, last, "")) + "\0" for last in ("", "✓ as at 10:02"))
    )
    assert len(FIELDS) == len(fields) + 1
    assert (own.verdict, own.story) == ("verify passing", "~1 file")
    assert (carried.verdict, carried.story) == ("", "✓ as at 10:02 · ~1 file")


@pytest.mark.parametrize(
    ("printed", "shown"),
    [("2026-11-12 09:15", "12 Nov 09:15"), ("09:15", "09:15"), ("2025-01-02 23:59", "2025-01-02 23:59")],
)
def test_days_of_this_year_have_the_name_of_the_month(printed: str, shown: str) -> None:
    assert _short_time(printed, "2026") == shown
