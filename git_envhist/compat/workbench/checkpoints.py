"""What a platform calls checkpoints: the moments of a timeline that have an id of its kind, and those it made alone."""

from __future__ import annotations

import re
from datetime import datetime

from git_envhist.doing.observing import known_ids
from git_envhist.history.doings import observed_of
from git_envhist.history.timeline import subject
from git_envhist.library.history import EnvHistory
from git_envhist.model import ObservedCheckpoint, Snapshot
from git_envhist.values import dataclass

NUMBERED = re.compile(r"v(\d{1,9})")
SHORT = 7
NO_INTENT = "no intent recorded"


@dataclass(frozen=True, slots=True)
class WorkbenchCheckpoint:
    """One line of the list."""

    id: str
    at: datetime
    comment: str
    verdict: str | None = None
    snapshot: Snapshot | None = None
    """None where the platform made it without us."""
    found_at: datetime | None = None
    story: str = ""

    @property
    def told(self) -> str:
        """What the list says of it."""
        if self.snapshot is not None:
            return self.comment
        said = f"observed, {NO_INTENT}"
        return f"{said} ({self.comment})" if self.comment else said


def checkpoints(history: EnvHistory, *, automatic: bool = False) -> list[WorkbenchCheckpoint]:
    """Return all of them, newest first; of an id that was given twice the newest.

    `automatic`: with the automatic snapshots, which no platform knows, by their own ids.
    """
    line = history.log()
    found: dict[str, WorkbenchCheckpoint] = {}
    for snapshot in line:
        external_id = snapshot.external_id
        if not external_id and automatic and snapshot.trigger.automatic:
            external_id = snapshot.id[:SHORT]
        if external_id:
            found.setdefault(external_id, _of_snapshot(snapshot, external_id))
    for observed in observed_of(line):
        found.setdefault(observed.external_id, _observed(observed))
    # Those of one second stay as they are on the timeline, the newest first.
    return sorted(found.values(), key=lambda one: one.at, reverse=True)


def find(history: EnvHistory, external_id: str) -> WorkbenchCheckpoint:
    """The one of an id, or whatever a revision means; `SnapshotNotFound` where it means nothing."""
    known = {one.id: one for one in checkpoints(history)}
    if external_id in known:
        return known[external_id]
    snapshot = history.resolve(external_id)
    return _of_snapshot(snapshot, snapshot.external_id or snapshot.id[:SHORT])


def next_id(history: EnvHistory) -> str:
    """`v1`, `v2`, …: the number after the highest that anybody gave; also to one that was let go."""
    line = [*history.log(), *(one.snapshot for one in history.dropping.trash())]
    numbers = [int(match[1]) for one in known_ids(line) if (match := NUMBERED.fullmatch(one))]
    return f"v{max(numbers, default=0) + 1}"


def _of_snapshot(snapshot: Snapshot, external_id: str) -> WorkbenchCheckpoint:
    verdict = snapshot.verdict
    return WorkbenchCheckpoint(
        external_id,
        snapshot.at,
        subject(snapshot.intent) if snapshot.intent else "",
        verdict.status.value if verdict else None,
        snapshot,
        None,
        snapshot.story,
    )


def _observed(observed: ObservedCheckpoint) -> WorkbenchCheckpoint:
    return WorkbenchCheckpoint(
        observed.external_id, observed.taken_at, observed.comment, None, None, observed.at
    )
