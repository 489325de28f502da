"""What a restore has to know of what was here, from the moment that holds it, before anything changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from git_envhist.capturing.holding import CapturedTree
from git_envhist.capturing.since import KnownWrites
from git_envhist.model import RestorePlan, Snapshot
from git_envhist.restoring.carrying import RestoreTarget
from git_envhist.restoring.damage import report_damage_in_safety
from git_envhist.restoring.outside import differing
from git_envhist.restoring.seen import CapturedRows, changed_since, read_again
from git_envhist.store.contents import ObjectReader


class SafetyCapture(NamedTuple):
    """The moment to come back to, and what was seen when it was taken."""

    safety: Snapshot
    place: RestoreTarget
    known: CapturedRows
    since: KnownWrites
    differed: frozenset[bytes] | None
    """The tracked files that differed from HEAD already."""

    @classmethod
    def of(
        cls, held: CapturedTree, safety: Snapshot, place: RestoreTarget, plan: RestorePlan
    ) -> SafetyCapture:
        """While what was captured is still held."""
        return cls(
            safety,
            place,
            CapturedRows(held.taken.records),
            changed_since(held, safety.id, plan),
            differing(held),
        )


def verify_safety_capture(plan: RestorePlan, open_contents: Callable[[], ObjectReader]) -> None:
    """Read back all that is about to be replaced; `Damaged`, with its paths, where any of it is not to be had."""
    with report_damage_in_safety(plan, open_contents), closing(open_contents()) as contents:
        read_again(contents, plan)
