"""The words of moments: how a list prints them, and how they are found again by them (pure).

An intent is what was said, or stands in for it: the subject of the code's last commit says nothing of why a hook took
a moment, so a list puts the cause in front, as git's own log of HEAD does. A restore's intent names the other moment
by its id, so that `:/clean` means that moment itself; a list, which knows both, says the other's words in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from git_envhist.history.timeline import NO_INTENT, PRINTED_ID, Spot, Timeline, subject
from git_envhist.history.times import exact_time
from git_envhist.model import IntentSource, RestorePart, Snapshot, Trigger
from git_envhist.values import pattern

Others = Mapping[str, Snapshot | None]
"""Moments by the digits of their ids that a list prints; None where several share these."""

CAUSES = {Trigger.MANUAL: "capture", Trigger.API: "capture"}
"""What is said of a cause in the place of its name."""
WENT = {
    RestorePart.BEFORE: "before the restore of",
    RestorePart.TO: "restored",
    RestorePart.UNDO: "undo to",
    RestorePart.REDO: "redo to",
}
IN_PART = ", in part"
"""What the words of a restore end with that did not bring all of a moment."""
DIGITS = pattern(rf"[0-9a-f]{{{PRINTED_ID}}}")
DEEPEST = 8
"""A restore of a restore of a restore: nobody reads further."""


def title(snapshot: Snapshot, others: Others | None = None) -> str:
    """The line that a list prints for a moment, where it knows these others."""
    if snapshot.restore is not None and others:
        return _went(snapshot, others, DEEPEST)
    if snapshot.intent_source is IntentSource.COMMIT:
        return f"{_cause(snapshot)}: {subject(snapshot.intent)}"
    if snapshot.intent_source is IntentSource.NONE and snapshot.trigger not in CAUSES:
        return _cause(snapshot)
    return subject(snapshot.intent)


def by_digits(snapshots: Iterable[Snapshot]) -> dict[str, Snapshot | None]:
    """The moments as `title` asks for them."""
    found: dict[str, Snapshot | None] = {}
    for snapshot in snapshots:
        digits = snapshot.id[:PRINTED_ID]
        same = found.get(digits, snapshot)
        found[digits] = snapshot if same is not None and same.id == snapshot.id else None
    return found


def meant_by(snapshot: Snapshot) -> str | None:
    """The id, or its first digits, of the moment that a restore's own words name."""
    if snapshot.restored_from is not None or snapshot.restore is not RestorePart.BEFORE:
        return snapshot.restored_from
    last = snapshot.intent.rpartition(" ")[2]
    return last if DIGITS.fullmatch(last) else None


def by_intent(timeline: Timeline, text: str) -> tuple[Spot, ...]:
    """Those whose whole intent, or its printed line, is the text; else the newest that contains it."""
    wanted = _words(text)
    if not wanted:
        return ()
    titles = _titles(timeline.snapshots)
    whole = tuple(
        spot
        for spot in timeline.spots()
        if wanted in _whole_intents(spot.snapshot) or titles.get(spot.index) == wanted
    )
    return (
        whole
        or _first(spot for spot in timeline.spots() if wanted in _whole_intents(spot.snapshot)[0])
        or _first(spot for spot in timeline.spots() if wanted in titles.get(spot.index, ""))
    )


def label_candidates(spots: tuple[Spot, ...], now: datetime) -> tuple[str, ...]:
    """Each snapshot as one can type it, told apart from the rest: id, time to the second, intent."""
    length = _telling_length([spot.snapshot.id for spot in spots])
    return tuple(
        f"{spot.snapshot.id[:length]} {exact_time(spot.snapshot.at, now)} {_printed(spot)[:60]}"
        for spot in spots
    )


def _telling_length(ids: list[str]) -> int:
    length = PRINTED_ID
    while len({one[:length] for one in ids}) < len(set(ids)):
        length += 1
    return length


def _printed(spot: Spot) -> str:
    restored = spot.snapshot.restore is not None
    return title(spot.snapshot, by_digits(spot.timeline.snapshots) if restored else None)


def _titles(snapshots: Sequence[Snapshot]) -> dict[int, str]:
    """What lists print, by place, where that is not the intent."""
    restored = any(snapshot.restore is not None for snapshot in snapshots)
    others = by_digits(snapshots) if restored else {}
    return {
        place: _words(title(snapshot, others))
        for place, snapshot in enumerate(snapshots)
        if snapshot.restore is not None or snapshot.intent_source in (IntentSource.COMMIT, IntentSource.NONE)
    }


def _went(snapshot: Snapshot, others: Others, deepest: int) -> str:
    """`restored "clean clone"`; by the id, as the intent says it, where the other is not known."""
    other = _other(snapshot, others)
    if other is None or snapshot.restore is None:
        return subject(snapshot.intent)
    part = IN_PART if is_in_part(snapshot) else ""
    return f"{WENT[snapshot.restore]} {_called(other, others, deepest - 1)}{part}"


def is_in_part(snapshot: Snapshot) -> bool:
    """Whether a restore brought a part of the other snapshot alone."""
    return snapshot.restore is not RestorePart.BEFORE and subject(snapshot.intent).endswith(IN_PART)


def _called(snapshot: Snapshot, others: Others, deepest: int) -> str:
    """A moment by the words that somebody would know again: what a restore arrived at is what it went back to."""
    if snapshot.restore is None:
        return f'"{title(snapshot)}"'
    if is_in_part(snapshot):
        return f'"{subject(snapshot.intent)}"'
    same = (
        _equal_before(snapshot, others)
        if snapshot.restore is RestorePart.BEFORE
        else _other(snapshot, others)
    )
    if same is not None and deepest > 0:
        return _called(same, others, deepest - 1)
    if snapshot.restore is RestorePart.BEFORE and deepest > 0 and (other := _other(snapshot, others)):
        return f"what was before {_called(other, others, deepest - 1)}"
    return f'"{subject(snapshot.intent)}"'


def _other(snapshot: Snapshot, others: Others) -> Snapshot | None:
    meant = meant_by(snapshot)
    found = others.get(meant[:PRINTED_ID]) if meant else None
    return found if found is not None and meant and found.id.startswith(meant) else None


def _equal_before(snapshot: Snapshot, others: Others) -> Snapshot | None:
    """The moment before one that was saved and held nothing new."""
    found = others.get((snapshot.parent or "")[:PRINTED_ID])
    equal = found is not None and found.commit == snapshot.parent and found.content == snapshot.content
    return found if equal and snapshot.content else None


def _cause(snapshot: Snapshot) -> str:
    told = CAUSES.get(snapshot.trigger, snapshot.trigger.value)
    if snapshot.trigger is Trigger.CHECKOUT and snapshot.branch:
        return f"{told} {snapshot.branch.removeprefix('refs/heads/')}"
    return told


def _whole_intents(snapshot: Snapshot) -> tuple[str, str]:
    return _words(snapshot.intent) or NO_INTENT, _words(subject(snapshot.intent))


def _words(text: str) -> str:
    # Line breaks and runs of blanks are how a text was laid out, not what was said: plain git joins the lines too.
    return " ".join(text.split())


def _first(spots: Iterator[Spot]) -> tuple[Spot, ...]:
    spot = next(spots, None)
    return () if spot is None else (spot,)
