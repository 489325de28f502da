"""Dates are formatted like git's, with git as the judge."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from git_envhist.cli.formats import format_date, relative_date
from git_envhist.errors import UsageError

AT = datetime(2026, 3, 5, 7, 8, 9, tzinfo=timezone(timedelta(hours=5, minutes=30)))
NOW = datetime(2026, 11, 18, 10, 30, tzinfo=UTC)
STYLES = ("default", "iso", "iso-strict", "rfc", "short", "raw", "unix")


def git_says(directory: Path, style: str, at: datetime, now: datetime) -> str:
    date = f"{int(at.timestamp())} {at:%z}"
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1", "TZ": "UTC",
        "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.com", "GIT_COMMITTER_DATE": date,
        "GIT_TEST_DATE_NOW": str(int(now.timestamp())),
    }  # fmt: skip

    def run(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=directory, env=environment, check=True, capture_output=True, text=True
        ).stdout

    run("init", "-q", ".")
    run("commit", "-q", "--allow-empty", "-m", "x")
    return run("log", "-1", "--format=%ad", f"--date={style}").removesuffix("\n")


@pytest.mark.parametrize("style", STYLES)
def test_dates_are_formatted_as_git_does(tmp_path: Path, style: str) -> None:
    assert format_date(AT, style, NOW) == git_says(tmp_path, style, AT, NOW)


def test_utc_is_formatted_as_a_zone() -> None:
    assert format_date(AT.astimezone(UTC), "iso-strict", NOW) == "2026-03-05T01:38:09+00:00"


@pytest.mark.parametrize("days", [0.0005, 0.02, 0.3, 1.4, 6, 20, 100, 400, 730, 1000, 3000])
def test_relative_dates_are_rounded_as_git_does(tmp_path: Path, days: float) -> None:
    at = NOW - timedelta(days=days)
    assert relative_date(at, NOW) == git_says(tmp_path, "relative", at, NOW)


def test_custom_date_format_is_applied() -> None:
    assert format_date(AT, "format:%d.%m.%y", NOW) == "05.03.26"


def test_an_unknown_style_is_a_usage_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as raised:
        format_date(AT, "swatch", NOW)
    assert "'swatch'" in raised.value.message
    assert "iso-strict" in (raised.value.hint or "")
