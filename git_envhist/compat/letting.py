"""Checkpoints that are let go: what a library deletes, or has no room for.

A moment that is let go is dropped, and in the trash for 30 days. To drop one rewrites the chain behind it; where many
go one by one, they are marked first and dropped together.
"""

from __future__ import annotations

from collections.abc import Sequence

from git_envhist.api import EnvHistory
from git_envhist.model import Record, Snapshot

LET_GO = "let-go"
TOGETHER = 16


def let_go(history: EnvHistory, snapshots: Sequence[Snapshot]) -> None:
    """Let moments go now."""
    if snapshots:
        history.drop(*snapshots)


def let_go_soon(history: EnvHistory, snapshots: Sequence[Snapshot]) -> None:
    """Let moments go from all lists; they are dropped when there are enough of them."""
    for snapshot in snapshots:
        history.tell(snapshot, Record(LET_GO, history.now, {}))
    marked = [one for one in history.log() if not stays(one)] if snapshots else []
    if len(marked) >= TOGETHER:
        history.drop(*marked)


def stays(snapshot: Snapshot) -> bool:
    """Whether a moment was not let go."""
    return not any(record.kind == LET_GO for record in snapshot.records)
