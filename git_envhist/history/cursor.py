"""Undo and redo: the states that one can step through, and where one stands (pure).

The chain of snapshots only ever grows; the states are read from it. A capture is a state, and so is what a restore
replaced where no capture had it yet, and what a restore arrived at. Undo and redo move a cursor along them. Whatever is
new while the cursor stands back takes the place of what lay ahead: that is no longer reached by redo, and stays on the
timeline like everything else.
"""

from __future__ import annotations

from collections.abc import Iterable

from git_envhist.model import RestorePart, Snapshot
from git_envhist.values import dataclass

MOVES = (RestorePart.UNDO, RestorePart.REDO)


@dataclass(frozen=True, slots=True)
class Walk:
    """The states, oldest first, and which of them is here."""

    stops: tuple[Snapshot, ...] = ()
    cursor: int = -1
    cut_off: tuple[Snapshot, ...] = ()
    """States that redo would have reached, had nothing new come after the last undo."""
    arrived: str = ""
    """What the content here was called when the last step had led here, where another key seals secrets now."""

    @property
    def here(self) -> Snapshot | None:
        return self.stops[self.cursor] if self.stops else None

    def back(self, steps: int, content: str) -> Snapshot | None:
        """The state so many steps before one with this content; None where there are not so many."""
        return self._go(-1, steps, content)

    def forward(self, steps: int, content: str) -> Snapshot | None:
        """The state so many steps after one with this content; None where there are not so many."""
        return None if self.is_new(content) else self._go(1, steps, content)

    def is_new(self, content: str) -> bool:
        """Whether what is here now is a state that nothing on the timeline has yet."""
        return self.here is None or content not in (self.here.content, self.arrived)

    def _go(self, direction: int, steps: int, content: str) -> Snapshot | None:
        at = self.cursor
        if direction < 0 and self.is_new(content):
            # A state of its own, after the one that the cursor is at.
            steps -= 1
            content = self.here.content if self.here else content
        while steps > 0 and 0 <= at + direction < len(self.stops):
            at += direction
            if self.stops[at].content != content:
                steps -= 1
                content = self.stops[at].content
        return self.stops[at] if steps == 0 and self.stops else None


def read_walk(oldest_first: Iterable[Snapshot]) -> Walk:
    """The states of a timeline, and the one that its last moment stands at."""
    walk = Walk()
    for snapshot in oldest_first:
        walk = _moved(walk, snapshot) if snapshot.restore in MOVES else _appended(walk, snapshot)
    return walk


def _moved(walk: Walk, arrived: Snapshot) -> Walk:
    for place, stop in enumerate(walk.stops):
        if stop.id == arrived.restored_from:
            return Walk(walk.stops, place, (), "" if arrived.key == stop.key else arrived.content)
    # Retention let the state go that this one is equal to.
    return _appended(walk, arrived)


def _appended(walk: Walk, snapshot: Snapshot) -> Walk:
    if not walk.is_new(snapshot.content):
        return walk
    ahead = walk.stops[walk.cursor + 1 :]
    return Walk((*walk.stops[: walk.cursor + 1], snapshot), walk.cursor + 1, ahead or walk.cut_off)
