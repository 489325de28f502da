"""Choose the snapshots that `git envrestore` without a revision lists (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from git_envhist.history.timeline import own_verdict
from git_envhist.model import Snapshot, Trigger, VerdictStatus

MOST = 5


def likely_targets(newest_first: Iterable[Snapshot], content: str) -> tuple[Snapshot, ...]:
    """Return at most five snapshots that differ from what is here now, the newest first.

    The newest is always among them. The others are the newest that passed its check, the newest with a name, the
    newest with an intent of a person, and the newest of the rest. Of snapshots with equal content the one that says
    most is shown; the newest is replaced so only if it records a restore.
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
        if len(chosen) == MOST:
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
    yield from [snapshot for snapshot in moments if not snapshot.trigger.automatic]
    yield from moments


def _failed(snapshot: Snapshot) -> bool:
    verdict = own_verdict(snapshot)
    return verdict is not None and verdict.status is VerdictStatus.FAIL


def _passed(snapshot: Snapshot) -> bool:
    verdict = own_verdict(snapshot)
    return verdict is not None and verdict.status is VerdictStatus.PASS
