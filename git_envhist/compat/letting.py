"""Checkpoints that are let go: what a library deletes, or has no room for."""

from __future__ import annotations

from collections.abc import Sequence

from git_envhist.api import EnvHistory
from git_envhist.model import Record, Snapshot

LET_GO = "let-go"


def let_go(history: EnvHistory, snapshots: Sequence[Snapshot]) -> None:
    """Let moments go."""
    for snapshot in snapshots:
        history.tell(snapshot, Record(LET_GO, history.now, {}))


def stays(snapshot: Snapshot) -> bool:
    """Whether a moment was not let go."""
    return not any(record.kind == LET_GO for record in snapshot.records)
