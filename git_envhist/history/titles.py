"""Titles of snapshots: the line that a list prints, finding a snapshot by it, and likely targets of a restore (pure).

A snapshot without an intent gets a substitute: a subject that names the code commit, then the subject of that commit.
This does not show why a hook took the snapshot, so the title names the cause first, as git's reflog does. The title of
a restore is short: `restore of 6c12886 (2 paths)`, `undo of be19d7d`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from git_envhist.diff.facts import WITH_SERVICES
from git_envhist.history.timeline import NO_INTENT, PRINTED_ID, Position, Timeline, own_verdict, subject
from git_envhist.history.times import exact_time
from git_envhist.lazy import pattern
from git_envhist.model import IntentSource, RestoreRole, Snapshot, Trigger, VerdictStatus

CAUSES = {Trigger.MANUAL: "capture", Trigger.API: "capture"}
"""Titles of causes that differ from the trigger's name."""
REVERT, MERGE = "revert of", "merge of"
OPERATIONS = {
    RestoreRole.TO: "restore of",
    RestoreRole.UNDO: "undo of",
    RestoreRole.REDO: "redo of",
    RestoreRole.REVERT: REVERT,
    RestoreRole.MERGE: MERGE,
}
MERGES = (RestoreRole.REVERT, RestoreRole.MERGE)
"""Operations whose result is a merge and no stored snapshot."""
AFTER = "snapshot after"
"""The first line of the commit of a snapshot without an intent names the code commit; its subject follows."""
PART = pattern(rf" \((?:[0-9,]+ paths?|in part)(?:, {WITH_SERVICES})?\)\Z|, in part\Z")
EARLIER = pattern(rf"(?P<word>restored|undo|redo) (?P<id>[0-9a-f]{{{PRINTED_ID}}})(?P<part>, in part)?")
"""Intents that earlier versions wrote; they named an undo after the state that it led to."""
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


def operation_words(part: RestoreRole, meant: str | None, paths: str = "", *, services: bool = False) -> str:
    """Return the intent of an operation: `restore of 6c12886 (2 paths, with services)`.

    `meant`: an id; for a revert or a merge, what was taken out or joined as it is printed.
    """
    if part not in MERGES and meant:
        meant = meant[:PRINTED_ID]
    words = f"{OPERATIONS[part]} {meant}" if meant else OPERATIONS[part].partition(" ")[0]
    remarks = [remark for remark in (paths, WITH_SERVICES if services else "") if remark]
    return f"{words} ({', '.join(remarks)})" if remarks else words


def substitute_intent(commit: str, code_subject: bytes) -> bytes:
    """Return the text before the trailers of a snapshot without an intent; `store.message.own_words` reads it."""
    return b"%b %b\n\n%b" % (AFTER.encode(), commit[:PRINTED_ID].encode(), code_subject)


def restored_snapshot_id(snapshot: Snapshot) -> str | None:
    """Return the id, or its first digits, of the snapshot that a restore restored."""
    if snapshot.restored_from is not None or snapshot.restore is not RestoreRole.BEFORE:
        return snapshot.restored_from
    if f" {REVERT} " in snapshot.intent or f" {MERGE} " in snapshot.intent:
        # A revert and a merge restore no snapshot.
        return None
    last = snapshot.intent.rpartition(" ")[2]
    return last if DIGITS.fullmatch(last) else None


def by_intent(timeline: Timeline, text: str) -> tuple[Position, ...]:
    """Return the snapshots with this intent or title; else the newest that contains the text."""
    wanted = _words(text)
    if not wanted:
        return ()
    titles = _titles(timeline.snapshots)
    whole = tuple(
        position
        for position in timeline.positions()
        if wanted in _whole_intents(position.snapshot) or titles.get(position.index) == wanted
    )
    return (
        whole
        or _first(
            position for position in timeline.positions() if wanted in _whole_intents(position.snapshot)[0]
        )
        or _first(position for position in timeline.positions() if wanted in titles.get(position.index, ""))
    )


def label_candidates(positions: tuple[Position, ...], now: datetime) -> tuple[str, ...]:
    """Return a line for each candidate: an unambiguous id, the time to the second, the title."""
    length = _unique_length([position.snapshot.id for position in positions])
    return tuple(
        f"{position.snapshot.id[:length]} {exact_time(position.snapshot.at, now)} {title(position.snapshot)[:60]}"
        for position in positions
    )


def _unique_length(ids: list[str]) -> int:
    length = PRINTED_ID
    while len({one[:length] for one in ids}) < len(set(ids)):
        length += 1
    return length


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
    """Return whether a restore restored only a part of the other snapshot."""
    return snapshot.restore is not RestoreRole.BEFORE and PART.search(subject(snapshot.intent)) is not None


def _cause(snapshot: Snapshot) -> str:
    cause = CAUSES.get(snapshot.trigger, snapshot.trigger.value)
    if snapshot.trigger is Trigger.CHECKOUT and snapshot.branch:
        return f"{cause} {snapshot.branch.removeprefix('refs/heads/')}"
    return cause


def _whole_intents(snapshot: Snapshot) -> tuple[str, str]:
    return _words(snapshot.intent) or NO_INTENT, _words(subject(snapshot.intent))


def _words(text: str) -> str:
    # Line breaks and runs of blanks are layout: plain git joins the lines too.
    return " ".join(text.split())


def _first(positions: Iterator[Position]) -> tuple[Position, ...]:
    position = next(positions, None)
    return () if position is None else (position,)


# Likely targets: the snapshots that `git envrestore` without a revision lists.

MAX_COUNT = 5


def likely_targets(newest_first: Iterable[Snapshot], content: str) -> tuple[Snapshot, ...]:
    """Return at most five snapshots that differ from the working tree, by the printed times, newest first.

    The newest state is always the first. The others are the newest that passed its check, the newest with a name,
    the newest that a person took and that did not fail its check, and the newest of the rest. Of snapshots with
    equal content the most descriptive one is listed; the newest is replaced by it only if it records a restore.
    """
    candidates = [snapshot for snapshot in newest_first if snapshot.content != content]
    places = {snapshot.id: place for place, snapshot in enumerate(candidates)}
    descriptive: dict[str, Snapshot] = {}
    for snapshot in sorted(_restores_last(candidates), key=_descriptiveness, reverse=True):
        descriptive.setdefault(_content_of(snapshot), snapshot)
    first = candidates[0] if candidates else None
    if first is not None and first.restore is None and first.trigger is not Trigger.RESTORE:
        descriptive[_content_of(first)] = first
    chosen: dict[str, Snapshot] = {}
    for snapshot in _by_likelihood(candidates):
        chosen.setdefault(_content_of(snapshot), descriptive[_content_of(snapshot)])
        if len(chosen) == MAX_COUNT:
            break
    states = list(chosen.values())
    return tuple(states[:1] + sorted(states[1:], key=lambda snapshot: places[snapshot.id]))


def _restores_last(newest_first: list[Snapshot]) -> list[Snapshot]:
    """Put restores last, the oldest first: a later restore of the same state describes it less well."""
    others = [snapshot for snapshot in newest_first if snapshot.restore is None]
    return others + [snapshot for snapshot in newest_first[::-1] if snapshot.restore is not None]


def _content_of(snapshot: Snapshot) -> str:
    return snapshot.content or snapshot.id


def _descriptiveness(snapshot: Snapshot) -> tuple[bool, bool, bool, bool]:
    """Return a sort key for what a person recognizes: no failed check, a name, a passed check, an own intent."""
    return not _failed(snapshot), bool(snapshot.names), _passed(snapshot), not snapshot.trigger.automatic


def _by_likelihood(candidates: list[Snapshot]) -> Iterator[Snapshot]:
    yield from candidates[:1]
    yield from [snapshot for snapshot in candidates if _passed(snapshot)][:1]
    yield from [snapshot for snapshot in candidates if snapshot.names][:1]
    manual = [snapshot for snapshot in candidates if not snapshot.trigger.automatic]
    yield from [snapshot for snapshot in manual if not _failed(snapshot)]
    yield from manual
    yield from candidates


def _failed(snapshot: Snapshot) -> bool:
    verdict = own_verdict(snapshot)
    return verdict is not None and verdict.status is VerdictStatus.FAIL


def _passed(snapshot: Snapshot) -> bool:
    verdict = own_verdict(snapshot)
    return verdict is not None and verdict.status is VerdictStatus.PASS
