"""The zone of this machine with its whole past: what `10:27` last month was, before the clock was set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo


class LocalZone(tzinfo):
    """The zone that TZ or the system sets; the offset of each moment is that moment's own, not today's."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else _as_local(dt).utcoffset()

    def dst(self, dt: datetime | None) -> timedelta | None:
        return None

    def tzname(self, dt: datetime | None) -> str | None:
        return None if dt is None else _as_local(dt).tzname()

    def fromutc(self, dt: datetime) -> datetime:
        local = _told(dt.replace(tzinfo=UTC))
        wall = local.replace(tzinfo=self, fold=0)
        # In the hour that the clock shows twice the first reading has another offset than the second.
        return wall if self.utcoffset(wall) == local.utcoffset() else wall.replace(fold=1)


def _as_local(wall: datetime) -> datetime:
    return _told(wall.replace(tzinfo=None))


def _told(moment: datetime) -> datetime:
    try:
        return moment.astimezone()
    except ValueError:
        # TZ may set a zone that is a day or more away, as no place is.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
