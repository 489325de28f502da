"""Plan the refs that a push moves (pure)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from git_envhist.lazy import dataclass
from git_envhist.model.sharing import PushOutcome, RefPush, TimelinePush

# Plan the refs that a push moves (pure): forward, or with a lease if we rewrote our own chain; other refs are not
# moved. Refs of the remote with invalid names are skipped and counted.

HEADS_PREFIX, NOTES, UPLOAD = "refs/envhist/heads/", "refs/notes/envhist/", "refs/envhist/upload/"
_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
TIMELINE = re.compile(rf"{_WORD}/{_WORD}")
MAX_REFS = 100_000


def read_listing(out: bytes) -> list[tuple[str, str]]:
    """Parse the output of `git ls-remote`; other lines are skipped."""
    found = []
    for line in out.split(b"\n"):
        oid, tab, ref = line.partition(b"\t")
        if tab and re.fullmatch(rb"[0-9a-f]{40}|[0-9a-f]{64}", oid):
            found.append((os.fsdecode(ref), oid.decode("ascii")))
    return found


@dataclass(frozen=True, slots=True)
class RemoteRefs:
    """The valid refs of the remote."""

    heads: Mapping[str, str]
    """Hashes by timeline."""
    notes: Mapping[str, str]
    uploads: Mapping[str, str]
    """Hashes of the upload refs of all clients, by ref."""
    code: tuple[str, ...] = ()
    refused: int = 0
    """The number of refs with invalid names."""

    @property
    def all(self) -> tuple[str, ...]:
        """Return the hashes that the remote has."""
        return (*self.heads.values(), *self.notes.values(), *self.uploads.values(), *self.code)


def is_timeline(name: str) -> bool:
    """Return whether a name is a valid timeline name."""
    bad = ".." in name or name.endswith((".lock", ".")) or ".lock/" in name or "./" in name
    return TIMELINE.fullmatch(name) is not None and not bad


def read_remote_refs(listed: Iterable[tuple[str, str]]) -> RemoteRefs:
    """Sort the refs of the remote by kind; invalid ones are counted."""
    heads: dict[str, str] = {}
    notes: dict[str, str] = {}
    uploads: dict[str, str] = {}
    code: list[str] = []
    refused = 0
    for number, (ref, oid) in enumerate(listed):
        if number >= MAX_REFS:
            refused += 1
        elif ref.startswith(HEADS_PREFIX) and is_timeline(ref[len(HEADS_PREFIX) :]):
            heads[ref[len(HEADS_PREFIX) :]] = oid
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
    """A timeline of this repository."""

    timeline: str
    head: str
    notes: str | None


def plan_push(
    local: Iterable[LocalTimeline],
    remote: RemoteRefs,
    ours: Mapping[str, str],
    grows: Mapping[tuple[str, str], bool],
) -> tuple[TimelinePush, ...]:
    """Return the moves of a push.

    `ours` maps refs to the hash that we pushed last; `grows` maps (old, new) to whether old is an ancestor of new.
    """
    return tuple(_plan_one(one, remote, ours, grows) for one in local)


def ancestry_questions(local: Iterable[LocalTimeline], remote: RemoteRefs) -> set[tuple[str, str]]:
    """Return the pairs (old, new) whose ancestry `plan_push` needs."""
    pairs = set()
    for one in local:
        pairs_of_one = (
            (remote.heads.get(one.timeline), one.head),
            (remote.notes.get(one.timeline), one.notes),
        )
        pairs |= {
            (old, new) for old, new in pairs_of_one if old is not None and new is not None and old != new
        }
    return pairs


def plan_deletion(timelines: Iterable[str], remote: RemoteRefs) -> tuple[TimelinePush, ...]:
    """Return the moves that delete timelines on the remote."""
    found = []
    for timeline in timelines:
        places = ((HEADS_PREFIX, remote.heads.get(timeline)), (NOTES, remote.notes.get(timeline)))
        moves = tuple(RefPush(place + timeline, old, None) for place, old in places if old is not None)
        found.append(TimelinePush(timeline, PushOutcome.DELETED if moves else PushOutcome.SAME, moves))
    return tuple(found)


def update_order(moves: Iterable[RefPush]) -> list[list[RefPush]]:
    """Return the order of moves without an atomic push: notes before the timelines that they describe, deletions
    after.
    """
    known = list(moves)
    groups = [
        [move for move in known if move.new is not None and move.ref.startswith(NOTES)],
        [move for move in known if not move.ref.startswith(NOTES)],
        [move for move in known if move.new is None and move.ref.startswith(NOTES)],
    ]
    return [group for group in groups if group]


def _plan_one(
    one: LocalTimeline, remote: RemoteRefs, ours: Mapping[str, str], grows: Mapping[tuple[str, str], bool]
) -> TimelinePush:
    moves, outcomes = [], []
    for ref, old, new in (
        (HEADS_PREFIX + one.timeline, remote.heads.get(one.timeline), one.head),
        (NOTES + one.timeline, remote.notes.get(one.timeline), one.notes),
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
