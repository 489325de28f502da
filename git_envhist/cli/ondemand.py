"""What a comparison shows of a fetched snapshot is fetched before it is shown: no more than that, and all at once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from git_envhist.model import TOP, Change, EntryKind, Snapshot
from git_envhist.store.fetched import is_fetched
from git_envhist.values import replace

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory

WITH_CONTENTS = ("patch", "stat", "raw")
"""Other forms show paths, and of files of variables what is in them."""


def fetch_sides(
    history: EnvHistory,
    before: Snapshot | str | None,
    after: Snapshot | str,
    changes: Iterable[Change],
    form: str,
) -> None:
    """Have the contents here that a form shows of some changes."""
    for moment, is_after in ((before, False), (after, True)):
        if isinstance(moment, Snapshot) and is_fetched(moment.timeline):
            from git_envhist.sharing.bringing import bring_contents  # loaded late: most snapshots are ours

            sides = [change.after if is_after else change.before for change in changes]
            from git_envhist.history.variables import is_variables  # loaded late: little is fetched

            blobs = [
                side.oid.hex()
                for side in sides
                if side is not None
                and side.oid is not None
                and side.kind is not EntryKind.DIRECTORY
                and (form in WITH_CONTENTS or is_variables(side.path))
            ]
            bring_contents(history.repository, os.environ, moment, blobs)


def fetch_snapshots(history: EnvHistory, *moments: Snapshot | str) -> None:
    """Have all of some snapshots here: what was moved is told by its contents."""
    for moment in moments:
        if isinstance(moment, Snapshot):
            history.bring(moment, TOP)


def with_lists(history: EnvHistory, snapshot: Snapshot) -> Snapshot:
    """The snapshot, once its lists and those of the one before are here."""
    if snapshot.parent is not None and is_fetched(snapshot.timeline):
        history.bring(replace(snapshot, tree=snapshot.parent))
    return history.bring(snapshot)


def the_one_before(snapshot: Snapshot) -> Snapshot | None:
    """The one before it, as far as a comparison needs it."""
    return replace(snapshot, tree=snapshot.parent) if snapshot.parent is not None else None
