"""Mark snapshots to be dropped, and drop the marked ones together.

The checkpoint classes of `compat/` drop one snapshot after another, and each drop rewrites the chain behind it. So they
mark snapshots first; the marked ones are dropped when there are enough of them, and by the daily upkeep.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from git_envhist.model import NoteRecord, Snapshot

MARK = "let-go"
MIN_MARKED = 16


class History(Protocol):
    """A history with snapshots that can be marked and dropped."""

    @property
    def now(self) -> datetime: ...
    def log(self) -> list[Snapshot]: ...
    def add_records(self, snapshot: Snapshot, *records: NoteRecord) -> None: ...
    def drop(self, *revisions: Snapshot) -> object: ...


def drop_now(history: History, snapshots: Sequence[Snapshot]) -> None:
    """Drop snapshots at once."""
    if snapshots:
        history.drop(*snapshots)


def drop_soon(history: History, snapshots: Sequence[Snapshot]) -> None:
    """Mark snapshots; drop all marked ones if there are enough of them."""
    for snapshot in snapshots:
        history.add_records(snapshot, NoteRecord(MARK, history.now, {}))
    marked = [one for one in history.log() if is_marked(one)] if snapshots else []
    if len(marked) >= MIN_MARKED:
        history.drop(*marked)


def is_marked(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is marked to be dropped."""
    return any(record.kind == MARK for record in snapshot.records)
