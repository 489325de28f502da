"""Which moment to try next, so that the first bad one is found in the fewest tries (pure)."""

from __future__ import annotations

from collections.abc import Collection


def next_to_try(good: int, bad: int, skipped: Collection[int]) -> int | None:
    """The place in the middle between the newest good and the oldest bad one that may still be tried."""
    open_places = [place for place in range(good + 1, bad) if place not in skipped]
    return min(open_places, key=lambda place: abs(2 * place - good - bad), default=None)


def tries_left(good: int, bad: int) -> int:
    """How many tries that takes at most, if every one of them can tell."""
    return max(0, bad - good - 1).bit_length()


def candidates(good: int, bad: int, skipped: Collection[int]) -> tuple[int, ...]:
    """The places of which one is the first bad: more than one where some could not tell."""
    return tuple(place for place in range(good + 1, bad + 1) if place == bad or place in skipped)
