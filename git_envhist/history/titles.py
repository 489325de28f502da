"""Titles of snapshots: how a list prints them, and how they are found again by them (pure).

An intent is given, or has a substitute: after the subject that names the code commit stands that commit's own subject.
That says nothing of why a hook took a snapshot, so a title names the cause first, as git's reflog does. The title of
an operation is short: `restore of 6c12886 (2 paths)`, `undo of be19d7d`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from git_envhist.history.timeline import NO_INTENT, PRINTED_ID, Position, Timeline, own_verdict, subject
from git_envhist.history.times import exact_time
from git_envhist.lazy import pattern
from git_envhist.model import IntentSource, RestoreRole, Snapshot, Trigger, VerdictStatus

CAUSES = {Trigger.MANUAL: "capture", Trigger.API: "capture"}
"""What is said of a cause in the place of its name."""
OPERATIONS = {
    RestoreRole.TO: "restore of",
    RestoreRole.UNDO: "undo of",
    RestoreRole.REDO: "redo of",
}
AFTER = "snapshot after"
"""The first line of the commit of a snapshot without an intent names the code commit; its subject follows."""
PART = pattern(r" \((?:[0-9,]+ paths?|in part)\)\Z|, in part\Z")
EARLIER = pattern(rf"(?P<word>restored|undo|redo) (?P<id>[0-9a-f]{{{PRINTED_ID}}})(?P<part>, in part)?")
"""Intents of operations as earlier versions wrote them; an undo was named after the state that it led to."""
DIGITS = pattern(rf"[0-9a-f]{{{PRINTED_ID}}}")


def title(snapshot: Snapshot) -> str:
    """Return the line that a list prints for a snapshot."""
    if snapshot.restore is not None:
        return _of_operation(subject(snapshot.intent))
    is_named = snapshot.intent_source is IntentSource.COMMIT
    if is_named and snapshot.trigger is Trigger.CHECKOUT and snapshot.branch:
        # The newest commit of a branch is older than its checkout, and says nothing about it.
        return _cause(snapshot)
    if is_named:
        return f"{_cause(snapshot)}: {subject(snapshot.intent)}"
    if snapshot.intent_source is IntentSource.NONE and snapshot.trigger not in CAUSES:
        return _cause(snapshot)
    return subject(snapshot.intent)


def operation_words(part: RestoreRole, meant: str | None, paths: str = "") -> str:
    """Return the intent of an operation: `restore of 6c12886 (2 paths)`."""
    words = f"{OPERATIONS[part]} {meant[:PRINTED_ID]}" if meant else OPERATIONS[part].partition(" ")[0]
    return f"{words} ({paths})" if paths else words


def substitute_intent(commit: str, code_subject: bytes) -> bytes:
    """Return the text before the trailers of a snapshot without an intent; `store.message.own_words` reads it."""
    return b"%b %b\n\n%b" % (AFTER.encode(), commit[:PRINTED_ID].encode(), code_subject)


def restored_snapshot_id(snapshot: Snapshot) -> str | None:
    """The id, or its first digits, of the moment that a restore's own words name."""
    if snapshot.restored_from is not None or snapshot.restore is not RestoreRole.BEFORE:
        return snapshot.restored_from
    last = snapshot.intent.rpartition(" ")[2]
    return last if DIGITS.fullmatch(last) else None


def by_intent(timeline: Timeline, text: str) -> tuple[Position, ...]:
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


def label_candidates(spots: tuple[Position, ...], now: datetime) -> tuple[str, ...]:
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


def _printed(spot: Position) -> str:
    return title(spot.snapshot)


def _titles(snapshots: Sequence[Snapshot]) -> dict[int, str]:
    """Return the titles that differ from the intents, by place."""
    return {
        place: _words(title(snapshot))
        for place, snapshot in enumerate(snapshots)
        if snapshot.restore is not None or snapshot.intent_source in (IntentSource.COMMIT, IntentSource.NONE)
    }


def _of_operation(intent: str) -> str:
    earlier = EARLIER.fullmatch(intent)
    if earlier is None:
        return intent
    word = {"restored": "restore of", "undo": "undo to", "redo": "redo to"}[earlier["word"]]
    return f"{word} {earlier['id']}" + (" (in part)" if earlier["part"] else "")


def is_in_part(snapshot: Snapshot) -> bool:
    """Return whether a restore brought only a part of the other snapshot."""
    return snapshot.restore is not RestoreRole.BEFORE and PART.search(subject(snapshot.intent)) is not None


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


def _first(spots: Iterator[Position]) -> tuple[Position, ...]:
    spot = next(spots, None)
    return () if spot is None else (spot,)


# Choose the snapshots that `git envrestore` without a revision lists (pure).

MAX_COUNT = 5


def likely_targets(newest_first: Iterable[Snapshot], content: str) -> tuple[Snapshot, ...]:
    """Return at most five snapshots that differ from what is here now, the newest first.

    The newest is always among them. The others are the newest that passed its check, the newest with a name, the
    newest that a person took and that did not fail its check, and the newest of the rest. Of snapshots with equal
    content the one that says most is shown; the newest is replaced so only if it records a restore.
    """
    moments = [snapshot for snapshot in newest_first if snapshot.content != content]
    newest: dict[str, int] = {}
    for place, snapshot in enumerate(moments):
        newest.setdefault(_held_by(snapshot), place)
    telling: dict[str, Snapshot] = {}
    for snapshot in sorted(_words_first(moments), key=_says, reverse=True):
        telling.setdefault(_held_by(snapshot), snapshot)
    if moments and moments[0].restore is None and moments[0].trigger is not Trigger.RESTORE:
        telling[_held_by(moments[0])] = moments[0]
    chosen: dict[str, Snapshot] = {}
    for snapshot in _by_promise(moments):
        chosen.setdefault(_held_by(snapshot), telling[_held_by(snapshot)])
        if len(chosen) == MAX_COUNT:
            break
    return tuple(snapshot for _, snapshot in sorted(chosen.items(), key=lambda one: newest[one[0]]))


def _words_first(newest_first: list[Snapshot]) -> list[Snapshot]:
    """Restores last, the oldest of them first: later ones say of the same state that something came back to it."""
    others = [snapshot for snapshot in newest_first if snapshot.restore is None]
    return others + [snapshot for snapshot in newest_first[::-1] if snapshot.restore is not None]


def _held_by(snapshot: Snapshot) -> str:
    return snapshot.content or snapshot.id


def _says(snapshot: Snapshot) -> tuple[bool, bool, bool, bool]:
    """How much a person would know again: nothing that speaks against it, a name, an outcome, words of their own."""
    return not _failed(snapshot), bool(snapshot.names), _passed(snapshot), not snapshot.trigger.automatic


def _by_promise(moments: list[Snapshot]) -> Iterator[Snapshot]:
    yield from moments[:1]
    yield from [snapshot for snapshot in moments if _passed(snapshot)][:1]
    yield from [snapshot for snapshot in moments if snapshot.names][:1]
    by_hand = [snapshot for snapshot in moments if not snapshot.trigger.automatic]
    yield from [snapshot for snapshot in by_hand if not _failed(snapshot)]
    yield from by_hand
    yield from moments


def _failed(snapshot: Snapshot) -> bool:
    verdict = own_verdict(snapshot)
    return verdict is not None and verdict.status is VerdictStatus.FAIL


def _passed(snapshot: Snapshot) -> bool:
    verdict = own_verdict(snapshot)
    return verdict is not None and verdict.status is VerdictStatus.PASS
