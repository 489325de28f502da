"""What a restore has to know of what was here, from the moment that holds it, before anything changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from git_envhist.capturing.holding import Held
from git_envhist.capturing.since import Since
from git_envhist.model import Plan, Snapshot
from git_envhist.restoring.carrying import Place
from git_envhist.restoring.damage import told_of_what_goes
from git_envhist.restoring.outside import differing
from git_envhist.restoring.seen import Seen, read_again, since_then
from git_envhist.store.contents import Contents


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


def prove_saved(plan: Plan, open_contents: Callable[[], Contents]) -> None:
    """Read back all that is about to be replaced; `Damaged`, with its paths, where any of it is not to be had."""
    with told_of_what_goes(plan, open_contents), closing(open_contents()) as contents:
        read_again(contents, plan)
