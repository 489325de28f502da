"""The spellings of a moment that `--date=` knows, as git spells them (git-log(1), "--date")."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from git_envhist.errors import UsageError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MINUTE, HOUR, DAY = 60, 3600, 86400


def format_date(at: datetime, style: str, now: datetime) -> str:
    """A moment in one of git's styles; a style that git does not know is a usage error."""
    if style.startswith(("format:", "format-local:")):
        word, _, pattern = style.partition(":")
        return (at.astimezone() if word == "format-local" else at).strftime(pattern)
    name = style.removesuffix("-local")
    if name == "local":
        name, style = "default", "default-local"
    spell = STYLES.get(name)
    if spell is None:
        known = ", ".join(STYLES)
        raise UsageError(f"unknown date format '{style}'", hint=f"one of: {known}, local, format:<strftime>")
    local = style.endswith("-local")
    return spell(at.astimezone() if local else at, now, local)


def date_style(given: str | None, configured: str | None, *, terminal: bool) -> str | None:
    """The style that was asked for, else that of `log.date`; None: as each place tells its times by itself."""
    style = configured if given is None else given
    if style is not None and style.startswith("auto:"):
        # As git has it: this style for a person, the usual one for a program.
        return style.removeprefix("auto:") if terminal else None
    return style


def relative_date(at: datetime, now: datetime) -> str:
    """How long ago, in git's words and with git's rounding."""
    ago = int(now.timestamp()) - int(at.timestamp())
    if ago < 0:
        return "in the future"
    if ago < 90:
        return _ago(ago, "second")
    minutes = (ago + 30) // 60
    if minutes < 90:
        return _ago(minutes, "minute")
    hours = (minutes + 30) // 60
    if hours < 36:
        return _ago(hours, "hour")
    days = (hours + 12) // 24
    if days < 14:
        return _ago(days, "day")
    if days < 70:
        return _ago((days + 3) // 7, "week")
    if days < 365:
        return _ago((days + 15) // 30, "month")
    if days < 1825:
        return _years_and_months(days)
    return _ago((days + 183) // 365, "year")


def _years_and_months(days: int) -> str:
    total = (days * 12 * 2 + 365) // (365 * 2)
    years, months = divmod(total, 12)
    if not months:
        return _ago(years, "year")
    return f"{_count(years, 'year')}, {_ago(months, 'month')}"


def _ago(number: int, unit: str) -> str:
    return _count(number, unit) + " ago"


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


def _zone(at: datetime) -> str:
    return at.strftime("%z")[:5]


def _default(at: datetime, now: datetime, local: bool) -> str:
    text = f"{DAYS[at.weekday()]} {MONTHS[at.month - 1]} {at.day} {at:%H:%M:%S} {at.year}"
    return text if local else f"{text} {_zone(at)}"


def _iso(at: datetime, now: datetime, local: bool) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} {_zone(at)}"


def _iso_strict(at: datetime, now: datetime, local: bool) -> str:
    # Newer git writes Z for UTC; both are the same moment, and one spelling is easier to compare.
    zone = _zone(at)
    return f"{at:%Y-%m-%dT%H:%M:%S}{zone[:3]}:{zone[3:]}"


def _rfc(at: datetime, now: datetime, local: bool) -> str:
    return f"{DAYS[at.weekday()]}, {at.day} {MONTHS[at.month - 1]} {at:%Y %H:%M:%S} {_zone(at)}"


def _human(at: datetime, now: datetime, local: bool) -> str:
    seen = now.astimezone(at.tzinfo)
    if at.date() == seen.date():
        return relative_date(at, now)
    clock = f"{DAYS[at.weekday()]} {MONTHS[at.month - 1]} {at.day}"
    return f"{clock} {at:%H:%M}" if at.year == seen.year else f"{MONTHS[at.month - 1]} {at.day} {at.year}"


STYLES: dict[str, Callable[[datetime, datetime, bool], str]] = {
    "default": _default,
    "iso": _iso,
    "iso8601": _iso,
    "iso-strict": _iso_strict,
    "iso8601-strict": _iso_strict,
    "rfc": _rfc,
    "rfc2822": _rfc,
    "short": lambda at, now, local: f"{at:%Y-%m-%d}",
    "raw": lambda at, now, local: f"{int(at.timestamp())} {_zone(at)}",
    "unix": lambda at, now, local: str(int(at.timestamp())),
    "human": _human,
    "relative": lambda at, now, local: relative_date(at, now),
}
