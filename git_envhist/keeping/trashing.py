"""The trash of a timeline, as it is to be after a rewrite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from git_envhist.keeping.stands import TimelineState, TimelineTarget
from git_envhist.store.packs import PackWriter
from git_envhist.store.relinking import CommitChange, Trailers, predecessors, relink
from git_envhist.store.repository import RefUpdate
from git_envhist.store.retelling import AFTER, BEFORE, NONE, ChainCommit
from git_envhist.store.signatures import FindKey
from git_envhist.store.trash import TrashEntry, trash_ref


class TrashBuilder:
    """The trash of a timeline, as it is to be."""

    def __init__(
        self, writer: PackWriter, find_key: FindKey, stand: TimelineState, wanted: TimelineTarget
    ) -> None:
        self.now: dict[str, str] = {}
        self.moves: list[RefUpdate] = []
        self.removals: list[RefUpdate] = []
        self.forgotten: list[ChainCommit] = []
        self._writer = writer
        self._find_key = find_key
        self._stand = stand
        self._wanted = wanted

    def take(self, gone: Sequence[ChainCommit], day: date) -> None:
        """Take in what was let go, each with the word between which others it stood."""
        links = self._stand.links
        ids = [None, *(link.id for link in links), None]
        places = {link.commit: (ids[number], ids[number + 2]) for number, link in enumerate(links)}
        changes = {}
        for link in gone:
            after, before = places[link.commit]
            changes[link.commit] = CommitChange(link.tree, {AFTER: after or NONE, BEFORE: before or NONE})
        now = relink(self._writer, gone, {}, self._find_key, _as_it_was, changes)
        self.now |= now
        self._put(trash_ref(day, gone[-1].id), now[gone[-1].commit], None)

    def rewrite(self) -> None:
        """Have each bundle that changes hold what is left of it."""
        taken = {link.commit for link in self._wanted.links}
        taken |= {link.commit for _, left in self._wanted.trash for link in left}
        for bundle, left in self._wanted.trash:
            gone = [link for link in bundle.links if link not in left]
            self.forgotten += [link for link in gone if link.commit not in taken]
            now: dict[str, str] = {}
            if left:
                now = relink(
                    self._writer, left, predecessors(left), self._find_key, _as_it_was, self._wanted.changes
                )
                self._put(trash_ref(bundle.since, left[-1].id), now[left[-1].commit], bundle)
            if not left or trash_ref(bundle.since, left[-1].id) != bundle.ref:
                self.removals.append(RefUpdate(bundle.ref, None, bundle.tip))
            self.now |= now

    def _put(self, ref: str, tip: str, bundle: TrashEntry | None) -> None:
        known = {one.ref: one.tip for one in self._stand.trash}
        if known.get(ref) != tip:
            self.moves.append(RefUpdate(ref, tip, known.get(ref)))


def _as_it_was(_before: str | None, _after: str) -> Trailers:
    return {}
