"""What a restore has to know of what was here, from the moment that holds it, before anything changes."""

from __future__ import annotations

from typing import NamedTuple

from git_envhist.capturing.holding import Held
from git_envhist.capturing.since import Since
from git_envhist.model import Plan, Snapshot
from git_envhist.restoring.carrying import Place
from git_envhist.restoring.outside import differing
from git_envhist.restoring.seen import Seen, since_then


class Saved(NamedTuple):
    """The moment to come back to, and what was seen when it was taken."""

    safety: Snapshot
    place: Place
    known: Seen
    since: Since
    differed: frozenset[bytes] | None
    """The tracked files that differed from HEAD already."""

    @classmethod
    def of(cls, held: Held, safety: Snapshot, place: Place, plan: Plan) -> Saved:
        """While what was captured is still held."""
        return cls(
            safety, place, Seen(held.taken.records), since_then(held, safety.id, plan), differing(held)
        )
