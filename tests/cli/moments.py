"""Snapshots made by hand, for tests of their output."""

from __future__ import annotations

from datetime import UTC, datetime

from git_envhist.model import (
    Actor,
    ChangeCount,
    IntentSource,
    Snapshot,
    SnapshotId,
    Trigger,
    Verdict,
    VerdictStatus,
)

NOW = datetime(2026, 11, 18, 10, 30, tzinfo=UTC)
ACTOR = Actor("Test User", "test@example.com")


def at(hour: int, minute: int, day: int = 18) -> datetime:
    return datetime(2026, 11, day, hour, minute, 3, tzinfo=UTC)


def moment(digits: str, intent: str = "", **fields: object) -> Snapshot:
    """Return a snapshot whose id starts with these digits."""
    known: dict[str, object] = {
        "id": SnapshotId(digits.ljust(40, "0")),
        "commit": digits.ljust(40, "0"),
        "tree": "7" * 40,
        "timeline": "laptop/app-4f2a91",
        "at": at(10, 18),
        "intent": intent,
        "intent_source": IntentSource.GIVEN if intent else IntentSource.NONE,
        "trigger": Trigger.MANUAL,
        "actor": ACTOR,
        "parent": "1" * 40,
    }
    return Snapshot(**{**known, **fields})  # type: ignore[arg-type]


def verdict(status: VerdictStatus, **fields: object) -> Verdict:
    known: dict[str, object] = {"status": status, "command": "npm test", "at": at(10, 19), "exit_code": 0}
    return Verdict(**{**known, **fields})  # type: ignore[arg-type]


def timeline() -> list[Snapshot]:
    """Return the four snapshots of the contract's example, newest first."""
    passed = (verdict(VerdictStatus.PASS),)
    failed = (verdict(VerdictStatus.FAIL, exit_code=1, duration_ms=812, output_tail="not ok 3\n"),)
    return [
        moment("9ac31f2", "working version, app healthy", at=at(10, 27), verdicts=passed,
               changed=ChangeCount(modified=3), story="~3 files · .env.local: API_URL"),
        moment("b71e02c", "after package install", at=at(10, 18), verdicts=failed,
               changed=ChangeCount(1204, 2, 0), story="pip: +flask 3.0.1, … +6 · +1,204 ~2 files"),
        moment("0f12dd8", "before auth refactor", at=at(10, 11), changed=ChangeCount(modified=2)),
        moment("41be770", "clean clone", at=at(10, 2), verdicts=passed, changed=ChangeCount(3811), parent=None),
    ]  # fmt: skip
