"""The zone of this machine with its whole past: what `10:27` last month was, before the clock was set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class LocalZone(tzinfo):
    """The zone that TZ or the system sets; the offset of each moment is that moment's own, not today's."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else _offset_at(dt)

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None if dt is None else _as_local(dt).tzname()

    def fromutc(self, dt: datetime) -> datetime:
        local = _told(dt.replace(tzinfo=UTC))
        wall = local.replace(tzinfo=self, fold=0)
        # In the hour that the clock shows twice the first reading has another offset than the second.
        return wall if self.utcoffset(wall) == local.utcoffset() else wall.replace(fold=1)


def _offset_at(dt: datetime) -> timedelta:
    """How far the clock is ahead of UTC when it shows this; where it skips that, by the fold, before or after the jump.

    What `astimezone` says of a time that is skipped differs between versions of Python.
    """
    wall = dt.replace(tzinfo=None, microsecond=0)
    try:
        offset = wall.replace(tzinfo=UTC) - (EPOCH + timedelta(seconds=int(wall.timestamp())))
    except (ValueError, OverflowError, OSError):
        return timedelta(0)
    return offset if abs(offset) < DAY else timedelta(0)


def _as_local(wall: datetime) -> datetime:
    return _told(wall.replace(tzinfo=None))


def _told(moment: datetime) -> datetime:
    try:
        return moment.astimezone()
    except ValueError:
        # TZ may set a zone that is a day or more away, as no place is.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
