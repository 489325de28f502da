"""What was let go and can still come back: `refs/envhist/trash/<date>/<id>`, for 30 days.

What went together hangs on one ref, which bears the id of the newest of it: a chain of its own, oldest first, so that
nothing else is held. Each commit says between which ids it stood; its notes stay with it in its timeline's notes.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import NamedTuple

from git_envhist.store.relinking import ObjectReader, read_links
from git_envhist.store.repository import TRASH, Repository
from git_envhist.store.retelling import ChainCommit

DAYS = 30
NAME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})/([0-9a-f]{40,64})")


class TrashEntry(NamedTuple):
    """What was let go together."""

    ref: str
    tip: str
    since: date
    links: tuple[ChainCommit, ...]
    """Oldest first."""

    @property
    def timeline(self) -> str:
        return self.links[-1].timeline if self.links else ""

    @property
    def until(self) -> date:
        """The first day on which it may be gone."""
        return self.since + timedelta(days=DAYS)


def trash_ref(day: date, newest: str) -> str:
    """Where what was let go on a day stands."""
    return f"{TRASH}{day.isoformat()}/{newest}"


def read_trash(repository: Repository, reader: ObjectReader) -> list[TrashEntry]:
    """All of it, what went last first; what somebody else put there is passed over."""
    found = []
    for ref, tip in repository.list_refs(TRASH).items():
        name = NAME.fullmatch(ref.removeprefix(TRASH))
        day = _day(name[1]) if name is not None else None
        if day is not None:
            found.append(TrashEntry(ref, tip, day, tuple(read_links(reader, tip))))
    return sorted(found, key=lambda bundle: (bundle.since, bundle.ref), reverse=True)


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
