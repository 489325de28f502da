"""Snapshots, timelines and a git that knows some words, as values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from git_envhist.history.timeline import Catalog, Timeline
from git_envhist.model import (
    Actor,
    IntentSource,
    NoteRecord,
    Snapshot,
    SnapshotId,
    Trigger,
    Verdict,
    VerdictStatus,
)

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 18, 10, 30, 12, tzinfo=BERLIN)
ACTOR = Actor("Test User", "test@example.com")


def at(text: str) -> datetime:
    """Return a time in Berlin: `10:27` on the day of NOW, or `2026-11-17 10:27:31`."""
    day_and_time = text if len(text) > 8 else f"2026-11-18 {text}"
    return datetime.fromisoformat(day_and_time).replace(tzinfo=BERLIN)


def hex_id(seed: str) -> SnapshotId:
    return SnapshotId(hashlib.sha1(seed.encode("utf-8", "surrogatepass")).hexdigest())


def snapshot(
    intent: str = "",
    when: datetime | str = "10:00",
    *,
    id: str | None = None,
    commit: str | None = None,
    head: str | None = None,
    names: tuple[str, ...] = (),
    verdicts: tuple[Verdict, ...] = (),
    records: tuple[NoteRecord, ...] = (),
    timeline: str = "laptop/app-1a2b3c",
) -> Snapshot:
    moment = at(when) if isinstance(when, str) else when
    own = SnapshotId(id) if id else hex_id(f"{timeline}{intent}{moment}")
    return Snapshot(
        id=own,
        commit=commit or own,
        tree="0" * 40,
        timeline=timeline,
        at=moment,
        intent=intent,
        intent_source=IntentSource.GIVEN if intent.strip() else IntentSource.NONE,
        trigger=Trigger.MANUAL,
        actor=ACTOR,
        head=head,
        names=names,
        verdicts=verdicts,
        records=records,
    )


def verdict(status: str, *, carried_from: str | None = None, claimed_by: str | None = None) -> Verdict:
    return Verdict(VerdictStatus(status), "npm test", NOW, carried_from=carried_from, claimed_by=claimed_by)


def named(name: str, minutes: int, *, removed: bool = False) -> NoteRecord:
    """Return the record of a name given or removed some minutes before NOW."""
    fields: dict[str, object] = {"name": name, "removed": True} if removed else {"name": name}
    return NoteRecord("name", NOW - timedelta(minutes=minutes), fields)


@dataclass(frozen=True)
class KnownCommits:
    """A git that resolves these texts, and no others."""

    commits: Mapping[str, str] = field(default_factory=dict)

    def commit_of(self, text: str) -> str | None:
        return self.commits.get(text)


def world(
    *snapshots: Snapshot,
    others: Mapping[str, Timeline] | None = None,
    commits: Mapping[str, str] | None = None,
    paths: tuple[str, ...] = (),
) -> Catalog:
    """Return a catalog with these snapshots on its own timeline, newest first."""
    own = Timeline.of("laptop/app-1a2b3c", snapshots)
    return Catalog(own, others or {}, KnownCommits(commits or {}), paths.__contains__)
