"""What a push moves at the other side, and how (pure): forward, by lease where we rewrote our own, else not at all.

Names come from the other side: a ref that is not spelled as ours are is passed over, and counted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from git_envhist.model.sharing import PushOutcome, RefPush, TimelinePush
from git_envhist.values import dataclass

HEADS, NOTES, UPLOAD = "refs/envhist/heads/", "refs/notes/envhist/", "refs/envhist/upload/"
_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
TIMELINE = re.compile(rf"{_WORD}/{_WORD}")
MOST_REFS = 100_000


def read_listing(out: bytes) -> list[tuple[str, str]]:
    """The lines of `git ls-remote`; what is no such line is passed over."""
    found = []
    for line in out.split(b"\n"):
        oid, tab, ref = line.partition(b"\t")
        if tab and re.fullmatch(rb"[0-9a-f]{40}|[0-9a-f]{64}", oid):
            found.append((os.fsdecode(ref), oid.decode("ascii")))
    return found


@dataclass(frozen=True, slots=True)
class RemoteRefs:
    """What the other side told of its refs, as far as it is believed."""

    heads: Mapping[str, str]
    """timeline -> hash"""
    notes: Mapping[str, str]
    uploads: Mapping[str, str]
    """ref -> hash: what pushes of whoever left."""
    code: tuple[str, ...] = ()
    refused: int = 0
    """So many refs were not spelled as any of ours."""

    @property
    def all(self) -> tuple[str, ...]:
        """The hashes that the other side has."""
        return (*self.heads.values(), *self.notes.values(), *self.uploads.values(), *self.code)


def is_timeline(name: str) -> bool:
    """Whether a word is spelled as the names of timelines are."""
    bad = ".." in name or name.endswith((".lock", ".")) or ".lock/" in name or "./" in name
    return TIMELINE.fullmatch(name) is not None and not bad


def read_there(listed: Iterable[tuple[str, str]]) -> RemoteRefs:
    """The refs of the other side, sorted; whatever is odd is passed over."""
    heads: dict[str, str] = {}
    notes: dict[str, str] = {}
    uploads: dict[str, str] = {}
    code: list[str] = []
    refused = 0
    for number, (ref, oid) in enumerate(listed):
        if number >= MOST_REFS:
            refused += 1
        elif ref.startswith(HEADS) and is_timeline(ref[len(HEADS) :]):
            heads[ref[len(HEADS) :]] = oid
        elif ref.startswith(NOTES) and is_timeline(ref[len(NOTES) :]):
            notes[ref[len(NOTES) :]] = oid
        elif ref.startswith(UPLOAD) and is_timeline(ref[len(UPLOAD) :]):
            uploads[ref] = oid
        elif ref.startswith("refs/heads/"):
            code.append(oid)
        else:
            refused += 1
    return RemoteRefs(heads, notes, uploads, tuple(code), refused)


@dataclass(frozen=True, slots=True)
class LocalTimeline:
    """One timeline of ours."""

    timeline: str
    head: str
    notes: str | None


def plan_push(
    here: Iterable[LocalTimeline],
    there: RemoteRefs,
    ours: Mapping[str, str],
    grows: Mapping[tuple[str, str], bool],
) -> tuple[TimelinePush, ...]:
    """What is to be pushed. `ours`: what we put there last, by ref; `grows`: whether one hash leads on to another."""
    return tuple(_plan_one(one, there, ours, grows) for one in here)


def questions(here: Iterable[LocalTimeline], there: RemoteRefs) -> set[tuple[str, str]]:
    """The (old, new) for which `plan_push` has to know whether the one leads to the other."""
    pairs = set()
    for one in here:
        told = ((there.heads.get(one.timeline), one.head), (there.notes.get(one.timeline), one.notes))
        pairs |= {(old, new) for old, new in told if old is not None and new is not None and old != new}
    return pairs


def plan_deletion(timelines: Iterable[str], there: RemoteRefs) -> tuple[TimelinePush, ...]:
    """Timelines that shall be there no longer."""
    found = []
    for timeline in timelines:
        places = ((HEADS, there.heads.get(timeline)), (NOTES, there.notes.get(timeline)))
        moves = tuple(RefPush(place + timeline, old, None) for place, old in places if old is not None)
        found.append(TimelinePush(timeline, PushOutcome.DELETED if moves else PushOutcome.SAME, moves))
    return tuple(found)


def update_order(moves: Iterable[RefPush]) -> list[list[RefPush]]:
    """The order for a server that moves refs one by one: notes before what they are about, and removed after it."""
    known = list(moves)
    turns = [
        [move for move in known if move.new is not None and move.ref.startswith(NOTES)],
        [move for move in known if not move.ref.startswith(NOTES)],
        [move for move in known if move.new is None and move.ref.startswith(NOTES)],
    ]
    return [turn for turn in turns if turn]


def _plan_one(
    one: LocalTimeline, there: RemoteRefs, ours: Mapping[str, str], grows: Mapping[tuple[str, str], bool]
) -> TimelinePush:
    moves, outcomes = [], []
    for ref, old, new in (
        (HEADS + one.timeline, there.heads.get(one.timeline), one.head),
        (NOTES + one.timeline, there.notes.get(one.timeline), one.notes),
    ):
        if new is None or old == new:
            outcomes.append(PushOutcome.SAME)
            continue
        outcomes.append(_outcome(old, new, ours.get(ref), grows))
        moves.append(RefPush(ref, old, new))
    if PushOutcome.DIVERGED in outcomes:
        return TimelinePush(one.timeline, PushOutcome.DIVERGED, ())
    if outcomes[0] is PushOutcome.SAME and moves:
        return TimelinePush(one.timeline, PushOutcome.UPDATED, tuple(moves))
    return TimelinePush(one.timeline, outcomes[0], tuple(moves))


def _outcome(
    old: str | None, new: str, ours: str | None, grows: Mapping[tuple[str, str], bool]
) -> PushOutcome:
    if old is None:
        return PushOutcome.NEW
    if grows.get((old, new), False):
        return PushOutcome.UPDATED
    return PushOutcome.REWRITTEN if old == ours else PushOutcome.DIVERGED
