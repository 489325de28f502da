"""Times are read exactly or not at all, and printed times are read back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_envhist.history.times import (
    InvalidTime,
    TimeSpan,
    TimeUnit,
    exact_time,
    parse_time_span,
    printed_time,
    read_time_span,
)
from tests.history.snapshots import BERLIN, NOW, at

SPRING = datetime(2026, 3, 29, tzinfo=BERLIN)
AUTUMN = datetime(2026, 10, 25, tzinfo=BERLIN)
ZONES = [
    BERLIN,
    UTC,
    ZoneInfo("America/Sao_Paulo"),
    ZoneInfo("Asia/Kolkata"),
    ZoneInfo("Australia/Lord_Howe"),
]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def read(text: str, now: datetime = NOW) -> TimeSpan:
    return read_time_span(text, now)


@pytest.mark.parametrize(
    ("text", "start", "end", "unit"),
    [
        ("10:27", "2026-11-18 09:27", "2026-11-18 09:27:59.999999", TimeUnit.MINUTE),
        ("9:05", "2026-11-18 08:05", "2026-11-18 08:05:59.999999", TimeUnit.MINUTE),
        ("10:27:31", "2026-11-18 09:27:31", "2026-11-18 09:27:31.999999", TimeUnit.SECOND),
        ("2026-11-18", "2026-11-17 23:00", "2026-11-18 22:59:59.999999", TimeUnit.DAY),
        ("2026-11-16 10:27", "2026-11-16 09:27", "2026-11-16 09:27:59.999999", TimeUnit.MINUTE),
        ("2026-11-18T10:27", "2026-11-18 09:27", "2026-11-18 09:27:59.999999", TimeUnit.MINUTE),
        ("2026-11-18T10:27:31Z", "2026-11-18 10:27:31", "2026-11-18 10:27:31.999999", TimeUnit.SECOND),
        ("2026-11-18T10:27+05:30", "2026-11-18 04:57", "2026-11-18 04:57:59.999999", TimeUnit.MINUTE),
        ("2026-11-18 10:27:31 -0330", "2026-11-18 13:57:31", "2026-11-18 13:57:31.999999", TimeUnit.SECOND),
        ("today", "2026-11-17 23:00", "2026-11-18 22:59:59.999999", TimeUnit.DAY),
        ("yesterday", "2026-11-16 23:00", "2026-11-17 22:59:59.999999", TimeUnit.DAY),
        ("yesterday 10:27", "2026-11-17 09:27", "2026-11-17 09:27:59.999999", TimeUnit.MINUTE),
        ("monday", "2026-11-15 23:00", "2026-11-16 22:59:59.999999", TimeUnit.DAY),
        ("mon 10:27", "2026-11-16 09:27", "2026-11-16 09:27:59.999999", TimeUnit.MINUTE),
        ("Wednesday", "2026-11-17 23:00", "2026-11-18 22:59:59.999999", TimeUnit.DAY),
        ("last wednesday", "2026-11-10 23:00", "2026-11-11 22:59:59.999999", TimeUnit.DAY),
        ("last friday", "2026-11-12 23:00", "2026-11-13 22:59:59.999999", TimeUnit.DAY),
        ("@1795000000", "2026-11-18 11:06:40", "2026-11-18 11:06:40.999999", TimeUnit.SECOND),
        (
            "Wed Nov 18 10:27:31 2026 +0100",
            "2026-11-18 09:27:31",
            "2026-11-18 09:27:31.999999",
            TimeUnit.SECOND,
        ),
        ("Wed Nov 18 10:27:31 2026", "2026-11-18 09:27:31", "2026-11-18 09:27:31.999999", TimeUnit.SECOND),
        (
            "Wed, 18 Nov 2026 10:27:31 +0100",
            "2026-11-18 09:27:31",
            "2026-11-18 09:27:31.999999",
            TimeUnit.SECOND,
        ),
    ],
)
def test_a_time_covers_its_whole_unit(text: str, start: str, end: str, unit: TimeUnit) -> None:
    assert read(text) == TimeSpan(utc(start), utc(end), unit)


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("now", "2026-11-18 10:30:12"),
        ("2 hours ago", "2026-11-18 08:30:12"),
        ("2.hours.ago", "2026-11-18 08:30:12"),
        ("2.hours", "2026-11-18 08:30:12"),
        ("an hour ago", "2026-11-18 09:30:12"),
        ("1 hour 30 minutes ago", "2026-11-18 09:00:12"),
        ("1h30m", "2026-11-18 09:00:12"),
        ("10m", "2026-11-18 10:20:12"),
        ("90s", "2026-11-18 10:28:42"),
        ("2h", "2026-11-18 08:30:12"),
        ("3d", "2026-11-15 10:30:12"),
        ("1w", "2026-11-11 10:30:12"),
        ("2 weeks ago", "2026-11-04 10:30:12"),
        ("1 month ago", "2026-10-18 10:30:12"),
        ("1 year, 2 months ago", "2025-09-18 10:30:12"),
        ("  2   HOURS ago ", "2026-11-18 08:30:12"),
    ],
)
def test_a_relative_time_is_one_instant(text: str, then: str) -> None:
    assert read(text) == TimeSpan(at(then), at(then), TimeUnit.INSTANT)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "tea", "noonish", "10", "1027", "25:00", "10:60", "10:27:60", "24:00", "10:2", "10:27 or so",
        "2026-13-01", "2026-02-30", "2026-1-1", "18.11.2026", "11/18/2026", "2026-11-18T10", "0000-01-01",
        "2026-11-18 10:27 +9960", "10ms", "am", "a m", "2", "2 moons ago", "ago", "in 2 hours", "2 hours hence",
        "999999 years ago", "@", "@-5", "@99999999999999999", "@999999999999", "-2 hours ago", "２h", "last", "someday",
        "9999-12-31", "last monday ago", "0001-01-01 00:00",
    ],
)  # fmt: skip
def test_text_that_is_no_time_is_an_error(text: str) -> None:
    assert parse_time_span(text, NOW) is None
    with pytest.raises(InvalidTime) as failure:
        read_time_span(text, NOW)
    assert failure.value.exit_code == 129
    assert "10:27" in (failure.value.hint or "")


def test_future_time_of_day_means_yesterday() -> None:
    assert read("10:30").start == utc("2026-11-18 09:30")
    assert read("10:31").start == utc("2026-11-17 09:31")
    assert read("wednesday 10:31").start == utc("2026-11-11 09:31")


def test_day_missing_in_a_month_is_its_last_day() -> None:
    assert read("1 month ago", at("2026-03-31 12:00:00")).end == at("2026-02-28 12:00:00")
    assert read("1 year ago", at("2028-02-29 12:00:00")).end == at("2027-02-28 12:00:00")


def test_days_count_on_the_calendar_and_hours_in_seconds_when_clocks_change() -> None:
    noon = AUTUMN.replace(hour=12)
    assert read("1d", noon).end == utc("2026-10-24 10:00")
    assert read("24h", noon).end == utc("2026-10-24 11:00")
    noon = SPRING.replace(hour=12)
    assert read("1d", noon).end == utc("2026-03-28 11:00")
    assert read("24 hours ago", noon).end == utc("2026-03-28 10:00")


def test_day_has_23_or_25_hours_when_clocks_change() -> None:
    long, short = read("2026-10-25"), read("2026-03-29")
    assert long.end - long.start == timedelta(hours=25, microseconds=-1)
    assert short.end - short.start == timedelta(hours=23, microseconds=-1)


def test_day_without_midnight_begins_at_the_jump() -> None:
    now = datetime(2018, 11, 10, tzinfo=ZoneInfo("America/Sao_Paulo"))
    assert read("2018-11-04", now).start == utc("2018-11-04 03:00")
    assert read("2018-11-03", now).end == utc("2018-11-04 02:59:59.999999")


def test_time_that_occurs_twice_covers_both_but_not_the_gap() -> None:
    twice = read("2026-10-25 02:30")
    assert (twice.start, twice.end) == (utc("2026-10-25 00:30"), utc("2026-10-25 01:30:59.999999"))
    assert twice.covers(utc("2026-10-25 00:30:59"))
    assert not twice.covers(utc("2026-10-25 00:45"))
    assert twice.covers(utc("2026-10-25 01:30"))
    assert read("2026-10-25 02:30+02:00").end == utc("2026-10-25 00:30:59.999999")


def test_skipped_time_is_the_instant_of_the_jump() -> None:
    skipped = read("2026-03-29 02:30")
    assert skipped.reaches(utc("2026-03-29 00:59:59"))
    assert not skipped.reaches(utc("2026-03-29 01:00"))
    assert skipped.start == utc("2026-03-29 01:00")


def test_minute_after_a_repeated_hour_begins_once() -> None:
    assert read("2026-10-25 01:59").end == utc("2026-10-24 23:59:59.999999")
    assert read("2026-10-25 03:00").start == utc("2026-10-25 02:00")


def test_time_without_a_time_zone_is_refused() -> None:
    with pytest.raises(TypeError):
        parse_time_span("10:27", datetime(2026, 11, 18))


@pytest.mark.parametrize(
    ("then", "printed"),
    [
        ("10:27:31", "10:27"),
        ("00:00:00", "00:00"),
        ("10:30:50", "10:30"),
        ("10:31:00", "2026-11-18 10:31"),
        ("2026-11-17 10:27:31", "2026-11-17 10:27"),
    ],
)
def test_todays_times_are_printed_short_and_others_with_their_date(then: str, printed: str) -> None:
    assert printed_time(at(then), NOW) == printed


def test_exact_time_distinguishes_two_occurrences() -> None:
    first = utc("2026-10-25 00:30:10")
    second = utc("2026-10-25 01:30:10")
    assert exact_time(first, NOW) == "2026-10-25 02:30:10+02:00"
    assert exact_time(second, NOW) == "2026-10-25 02:30:10+01:00"
    assert exact_time(at("10:27:31"), NOW) == "2026-11-18 10:27:31"


instants = st.datetimes(datetime(1975, 1, 1), datetime(2037, 12, 31), timezones=st.just(UTC)) | st.integers(
    -4 * 3600, 4 * 3600
).map(lambda seconds: utc("2026-10-25 01:00") + timedelta(seconds=seconds))


@given(then=instants, later=st.integers(-200_000, 200_000), zone=st.sampled_from(ZONES))
def test_printed_time_is_read_back(then: datetime, later: int, zone: ZoneInfo) -> None:
    then = then.replace(microsecond=0)
    now = (then + timedelta(seconds=later)).astimezone(zone)
    for printed in (printed_time(then, now), exact_time(then, now)):
        moment = parse_time_span(printed, now)
        assert moment is not None
        assert moment.covers(then)
        assert moment.reaches(then)


@given(st.text() | st.from_regex(r"[0-9a-z@:. +-]{0,20}", fullmatch=True))
def test_any_text_is_a_time_or_none_and_never_breaks_the_reader(text: str) -> None:
    moment = parse_time_span(text, NOW)
    assert moment is None or moment.start <= moment.end + timedelta(microseconds=1)


def test_day_of_a_month_is_the_last_one_and_a_week_ago_counts_back() -> None:
    # NOW is 2026-11-18 10:30 in Berlin.
    for text in ("13 Nov", "Nov 13", "13th november", "13-nov-2026", "november 13, 2026"):
        assert read(text).start == at("2026-11-13 00:00:00").astimezone(UTC), text
        assert read(text).unit is TimeUnit.DAY
    assert read("19 Nov").start == at("2025-11-19 00:00:00").astimezone(UTC)
    assert read("13 Nov 10:27").start == at("2026-11-13 10:27:00").astimezone(UTC)
    assert read("29 feb").start == at("2024-02-29 00:00:00").astimezone(UTC)
    assert read("last week").end == at("2026-11-11 10:30:12").astimezone(UTC)
    assert read("last month").end == at("2026-10-18 10:30:12").astimezone(UTC)
    for text in ("31 nov", "13 november 99", "13 novem", "nov", "13 x", "last fortnight"):
        assert parse_time_span(text, NOW) is None, text
