"""Read times as people write them, strictly, and print times so that they can be read back (pure).

A text means its whole unit: `10:27` is a minute, `2026-11-18` a day, `2 hours ago` an instant. When clocks are set back
some local times occur twice, and a text means both occurrences; when they are set forward some are skipped, and a text
means the instant of the jump. A text that no form matches is no time: nothing is guessed. All spans are in UTC, because
Python compares two datetimes of one zone by local time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from enum import Enum

from git_envhist.errors import UsageError
from git_envhist.lazy import dataclass

SPELLINGS = "10:27, '2026-11-18 10:27', 'yesterday 10:27', monday, '13 Nov', '2 hours ago', 'last week', now"

TICK = timedelta(microseconds=1)
DAY = timedelta(days=1)


class TimeUnit(Enum):
    """The unit that a text means."""

    INSTANT = "instant"
    SECOND = "second"
    MINUTE = "minute"
    DAY = "day"


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time, both ends included; `--since` uses its start, `--until` and `@{…}` its end."""

    start: datetime
    end: datetime
    unit: TimeUnit
    between: tuple[datetime, datetime] | None = None
    """The gap between the two occurrences of a local time that occurs twice."""

    def covers(self, at: datetime) -> bool:
        """Return whether a time is in this span and outside of its gap."""
        instant = at.astimezone(UTC)
        if self.between is not None and self.between[0] < instant < self.between[1]:
            return False
        return self.start <= instant <= self.end

    def reaches(self, at: datetime) -> bool:
        """Return whether an instant is in this span or before it."""
        return at.astimezone(UTC) <= self.end


class InvalidTime(UsageError):
    """A text is not a time."""

    def __init__(self, text: str) -> None:
        super().__init__(f"not a time: '{text}'", hint=f"a time is one of: {SPELLINGS}")


def read_time_span(text: str, now: datetime) -> TimeSpan:
    """Return the span that a text means; raise `InvalidTime` if it is no time."""
    span = parse_time_span(text, now)
    if span is None:
        raise InvalidTime(text)
    return span


def parse_time_span(text: str, now: datetime) -> TimeSpan | None:
    """Return the span that a text means at `now` and in its zone; None if it is no time."""
    words = " ".join(text.split()).lower()
    for pattern, read in FORMS:
        if match := re.fullmatch(pattern, words):
            try:
                return read(match, now)
            except (ValueError, OverflowError):
                return None  # a thirteenth month, a year before the calendar begins
    return None


def printed_time(at: datetime, now: datetime) -> str:
    """Return a time as a list prints it: `10:27` today, with the date otherwise."""
    local = at.astimezone(now.tzinfo)
    minute = local.replace(second=0, microsecond=0)
    is_future = minute.astimezone(UTC) > now.astimezone(UTC)
    if local.date() == now.date() and not is_future:
        return f"{local:%H:%M}"
    return f"{local.date().isoformat()} {local:%H:%M}"


def exact_time(at: datetime, now: datetime) -> str:
    """Return a time to the second, with its offset if this local time occurs twice."""
    local = at.astimezone(now.tzinfo)
    first, last = _instants(local.replace(tzinfo=None, fold=0), _zone_of(now))
    spelled = local if first != last else local.replace(tzinfo=None)
    return spelled.isoformat(" ", "seconds")


# From local times to instants.


def _instants(wall: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """Return the first and the last instant with this local time; for a skipped one, the instant of the jump twice."""
    early = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    late = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if early <= late:
        return early, late
    jump = _jump_between(late, early, zone)
    return jump, jump


def _jump_between(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """Return the first second with the later offset."""
    offset = before.astimezone(zone).utcoffset()
    low, high = 0, int((after - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if (before + timedelta(seconds=middle)).astimezone(zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return before + timedelta(seconds=high)


def _span_at(wall: datetime, unit: TimeUnit, zone: tzinfo) -> TimeSpan:
    """Return the minute or second that begins at a local time."""
    first, last = _instants(wall, zone)
    if first.astimezone(zone).replace(tzinfo=None) != wall:
        return TimeSpan(first, first - TICK, unit)
    length = timedelta(minutes=1) if unit is TimeUnit.MINUTE else timedelta(seconds=1)
    between = None if first == last else (first + length - TICK, last)
    return TimeSpan(first, last + length - TICK, unit, between)


def _whole_day(day: date, zone: tzinfo) -> TimeSpan:
    begins, _ = _instants(datetime.combine(day, time()), zone)
    ends, _ = _instants(datetime.combine(day + DAY, time()), zone)
    return TimeSpan(begins, ends - TICK, TimeUnit.DAY)


def _instant(at: datetime) -> TimeSpan:
    instant = at.astimezone(UTC)
    return TimeSpan(instant, instant, TimeUnit.INSTANT)


def _zone_of(now: datetime) -> tzinfo:
    if now.tzinfo is None:
        raise TypeError("the current time needs a time zone")
    return now.tzinfo


# The forms, each with the function that reads it.


CLOCK = r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?"
OFFSET = r"(?: ?(?P<offset>z|[+-][0-9]{2}:?[0-9]{2}))?"
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FULL_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
SHORT_DAYS = "|".join(day[:3] for day in DAYS)
MONTH_NAME = rf"(?P<month>{'|'.join(MONTHS)})"
MONTH_DAY = r"(?P<day>[0-9]{1,2})"
MONTH_SPELLINGS = frozenset((*MONTHS, *FULL_MONTHS, "sept"))
LEAP_YEARS = 9
"""More than the years between two 29 February."""
MONTH_WORD = r"(?P<name>[a-z]{3,9})"
ORDINAL_DAY = rf"{MONTH_DAY}(?:st|nd|rd|th)?"

# Hours and less are counted in seconds, days and more on the calendar: `1 day ago` is this time yesterday, even if a
# day of 25 hours is between.
SECONDS = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600}
CALENDAR_DAYS = {"d": 1, "day": 1, "w": 7, "week": 7}
CALENDAR_MONTHS = {"month": 1, "year": 12}
LONG_UNITS = "(?:second|sec|minute|min|hour|day|week|month|year)"
COUNTED = rf"(?:[0-9]{{1,6}}[ .]?(?:{LONG_UNITS}s?|[smhdw])|an?[ .]{LONG_UNITS})"


def _clock_of(match: re.Match[str], day: date) -> tuple[datetime, TimeUnit]:
    second = match["second"]
    wall = datetime.combine(day, time(int(match["hour"]), int(match["minute"]), int(second or 0)))
    return wall, TimeUnit.MINUTE if second is None else TimeUnit.SECOND


def _read_clock(match: re.Match[str], now: datetime) -> TimeSpan:
    today = _span_at(*_clock_of(match, now.date()), _zone_of(now))
    if today.start <= now.astimezone(UTC):
        return today
    return _span_at(*_clock_of(match, now.date() - DAY), _zone_of(now))


def _read_date(match: re.Match[str], now: datetime) -> TimeSpan:
    day = date(int(match["year"]), int(match["month"]), int(match["day"]))
    return _day_or_clock(match, day, _zone_of(now))


def _read_month_day(match: re.Match[str], now: datetime) -> TimeSpan:
    """Read `13 Nov`: without a year, the latest one that is not in the future."""
    if match["name"] not in MONTH_SPELLINGS:
        raise ValueError(match["name"])
    month = MONTHS.index(match["name"][:3]) + 1
    zone = _zone_of(now)
    if match["year"]:
        return _day_or_clock(match, date(int(match["year"]), month, int(match["day"])), zone)
    for year in range(now.year, now.year - LEAP_YEARS, -1):
        try:
            span = _day_or_clock(match, date(year, month, int(match["day"])), zone)
        except ValueError:
            continue  # 29 Feb
        if span.start <= now.astimezone(UTC):
            return span
    raise ValueError(match["name"])


def _read_last(match: re.Match[str], now: datetime) -> TimeSpan:
    unit = match["unit"]
    return _instant(_days_back(now, CALENDAR_MONTHS.get(unit, 0), CALENDAR_DAYS.get(unit, 0)))


def _read_stamp(match: re.Match[str], now: datetime) -> TimeSpan:
    day = date(int(match["year"]), MONTHS.index(match["month"]) + 1, int(match["day"]))
    return _span_at(*_clock_of(match, day), _offset_of(match) or _zone_of(now))


def _day_or_clock(match: re.Match[str], day: date, zone: tzinfo) -> TimeSpan:
    if match["hour"] is None:
        return _whole_day(day, zone)
    return _span_at(*_clock_of(match, day), _offset_of(match) or zone)


def _offset_of(match: re.Match[str]) -> tzinfo | None:
    text = match.groupdict().get("offset")
    if not text:
        return None
    if text == "z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if minutes > 59:
        raise ValueError(text)
    ahead = timedelta(hours=hours, minutes=minutes)
    return timezone(-ahead if text[0] == "-" else ahead)


def _read_named_day(match: re.Match[str], now: datetime) -> TimeSpan:
    day = now.date() - (DAY if match["named"] == "yesterday" else timedelta())
    return _day_or_clock(match, day, _zone_of(now))


def _read_weekday(match: re.Match[str], now: datetime) -> TimeSpan:
    wanted = [day[:3] for day in DAYS].index(match["weekday"][:3])
    back = (now.weekday() - wanted) % 7
    if match["last"] and back == 0:
        back = 7
    span = _day_or_clock(match, now.date() - back * DAY, _zone_of(now))
    if span.start > now.astimezone(UTC):
        return _day_or_clock(match, now.date() - (back + 7) * DAY, _zone_of(now))
    return span


def _read_ago(match: re.Match[str], now: datetime) -> TimeSpan:
    months = days = seconds = 0
    for amount, unit in re.findall(r"([0-9]+|an?\b)[ .]?([a-z]+)", match["span"]):
        count = int(amount) if amount.isdigit() else 1
        name = unit if unit in SECONDS else unit.removesuffix("s")
        months += count * CALENDAR_MONTHS.get(name, 0)
        days += count * CALENDAR_DAYS.get(name, 0)
        seconds += count * SECONDS.get(name, 0)
    return _instant(_days_back(now, months, days) - timedelta(seconds=seconds))


def _days_back(now: datetime, months: int, days: int) -> datetime:
    if not months and not days:
        return now.astimezone(UTC)
    wall = _months_back(now.replace(tzinfo=None, fold=0), months) - timedelta(days=days)
    return _instants(wall, _zone_of(now))[1]


def _months_back(wall: datetime, months: int) -> datetime:
    """Return the same day of an earlier month, or the last day of that month."""
    year, month = divmod(wall.year * 12 + wall.month - 1 - months, 12)
    first = wall.replace(year=year, month=month + 1, day=1)
    length = ((first + 31 * DAY).replace(day=1) - first).days
    return first.replace(day=min(wall.day, length))


def _read_unix(match: re.Match[str], now: datetime) -> TimeSpan:
    start = datetime.fromtimestamp(int(match["seconds"]), UTC)
    return TimeSpan(start, start + timedelta(seconds=1) - TICK, TimeUnit.SECOND)


def _read_now(match: re.Match[str], now: datetime) -> TimeSpan:
    return _instant(now)


# Patterns as text: they are compiled when a time is read, not when a list is printed.
FORMS: tuple[tuple[str, Callable[[re.Match[str], datetime], TimeSpan]], ...] = (
    (CLOCK, _read_clock),
    (rf"(?P<year>[0-9]{{4}})-(?P<month>[0-9]{{2}})-(?P<day>[0-9]{{2}})(?:[ t]{CLOCK}{OFFSET})?", _read_date),
    (rf"(?P<named>today|yesterday)(?:[ .]{CLOCK})?", _read_named_day),
    (rf"(?P<last>last[ .])?(?P<weekday>{'|'.join(DAYS)}|{SHORT_DAYS})(?:[ .]{CLOCK})?", _read_weekday),
    (rf"(?P<span>{COUNTED}(?:(?:, ?|[ .])?{COUNTED})*)(?:[ .]ago)?", _read_ago),
    (r"last[ .](?P<unit>week|month|year)", _read_last),
    (
        rf"{ORDINAL_DAY}[ .-]{MONTH_WORD}(?:,?[ .-](?P<year>[0-9]{{4}}))?(?:,?[ ]{CLOCK})?{OFFSET}",
        _read_month_day,
    ),
    (
        rf"{MONTH_WORD}[ .-]{ORDINAL_DAY}(?:,?[ .-](?P<year>[0-9]{{4}}))?(?:,?[ ]{CLOCK})?{OFFSET}",
        _read_month_day,
    ),
    (r"@(?P<seconds>[0-9]{1,12})", _read_unix),
    (r"now", _read_now),
    # As `git log` prints times: `Wed Nov 18 10:27:31 2026 +0100`, `Wed, 18 Nov 2026 10:27:31 +0100`.
    (rf"(?:{SHORT_DAYS}) {MONTH_NAME} {MONTH_DAY} {CLOCK} (?P<year>[0-9]{{4}}){OFFSET}", _read_stamp),
    (rf"(?:{SHORT_DAYS}), {MONTH_DAY} {MONTH_NAME} (?P<year>[0-9]{{4}}) {CLOCK}{OFFSET}", _read_stamp),
)
