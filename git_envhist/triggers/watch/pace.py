"""When a capture is due (pure): once it is quiet, not too often, and not too much."""

from __future__ import annotations

from collections import deque

SETTLE = 2.0
"""Seconds without a change after which an environment has settled."""
LONGEST = 60.0
"""One that never settles is captured all the same, after so many seconds."""
APART = 2.5
"""Two captures are so many times that apart, at least."""
SHARE = 5
"""A capture is followed by a rest so many times as long as it took."""
ROOM = 1 << 30
SPAN = 3600.0
"""In so many seconds no more than ROOM bytes are added."""


class Pace:
    """Told of changes and captures, it says how long there is to wait; times are seconds of any one clock."""

    def __init__(self, settle: float = SETTLE, room: int = ROOM) -> None:
        self._settle = settle
        self._room = room
        self._first: float | None = None
        self._last = 0.0
        self._rest_until = 0.0
        self._added: deque[tuple[float, int]] = deque()

    def changed(self, now: float) -> None:
        """Something has changed."""
        self._first = now if self._first is None else self._first
        self._last = now

    def captured(self, now: float, took: float, added: int) -> None:
        """A capture has ended, or failed."""
        self._first = None
        self._rest_until = now + max(APART * self._settle, SHARE * took)
        self._added.append((now, added))

    def wait(self, now: float) -> float | None:
        """Seconds until a capture is due; 0 is at once, None where nothing has changed."""
        if self._first is None:
            return None
        settled = min(self._last + self._settle, self._first + LONGEST)
        return max(0.0, settled - now, self._rest_until - now, self._full_until(now) - now)

    def is_full(self, now: float) -> bool:
        """Whether too much was added of late."""
        return self._full_until(now) > now

    def _full_until(self, now: float) -> float:
        while self._added and self._added[0][0] <= now - SPAN:
            self._added.popleft()
        over, until = sum(added for _, added in self._added) - self._room, now
        for at, added in self._added:
            if over < 0:
                break
            over -= added
            until = at + SPAN
        return until
