"""Drop snapshots into the trash, restore them from there, and expire the trash."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, timedelta

from git_envhist.context import HistoryContext
from git_envhist.errors import EnvhistError, Refused, SnapshotNotFound
from git_envhist.history.resolve import resolve
from git_envhist.history.tasks_and_effects import EFFECT, OBSERVED, TASK
from git_envhist.history.timeline import Catalog, Timeline
from git_envhist.model import Snapshot, SnapshotId
from git_envhist.model.retention import DropResult, TrashedSnapshot
from git_envhist.rewrite.commits import AFTER, BEFORE, ChainCommit, CommitChange
from git_envhist.rewrite.timeline import (
    DAYS,
    RewriteResult,
    TimelineRewriter,
    TimelineState,
    TimelineTarget,
    TrashEntry,
)
from git_envhist.snapshots.fetched_store import is_fetched
from git_envhist.snapshots.log import read_chain
from git_envhist.snapshots.note_records import format_record, name_record, names_of
from git_envhist.snapshots.staging import Staging

TIMELINE_KINDS = (TASK, EFFECT, OBSERVED)
"""Kinds of records about a timeline as a whole, on whichever snapshot they are."""


class NotInTrash(SnapshotNotFound):
    """Nothing in the trash matches."""

    code = "not-in-trash"


class SnapshotDropper:
    """The trash of a history, and dropping into it."""

    def __init__(self, history: HistoryContext, *, wait_for_captures: bool = False) -> None:
        self._history = history
        self._rewriting = TimelineRewriter(history, wait_for_captures=wait_for_captures)

    @property
    def today(self) -> date:
        """The date of a drop."""
        return self._rewriting.today

    def drop(self, snapshots: Sequence[Snapshot], *, dry_run: bool = False) -> DropResult:
        """Drop snapshots; afterwards their ids are found only in the trash."""
        _refuse_others(snapshots)
        wanted = {snapshot.id for snapshot in snapshots}
        until = self.today + timedelta(days=DAYS)
        dropped = tuple(snapshots)
        if dry_run:
            return DropResult(dropped, until, True)
        warnings: list[str] = []
        for timeline in dict.fromkeys(snapshot.timeline for snapshot in snapshots):
            warnings += self.drop_from(timeline, lambda: wanted).warnings
        return DropResult(dropped, until, warnings=tuple(warnings))

    def drop_from(self, timeline: str, choose: Callable[[], Iterable[SnapshotId]]) -> RewriteResult:
        """Drop the chosen snapshots of a timeline.

        Records about the whole timeline in their notes are moved to other snapshots. `choose` is called for the
        current state of the timeline, again if a capture changes it meanwhile.
        """

        def decide(state: TimelineState, _staging: Staging) -> TimelineTarget:
            dropped_ids = set(choose())
            left = tuple(link for link in state.links if link.id not in dropped_ids)
            return TimelineTarget(left, more=self._records_to_keep(state, dropped_ids))

        return self._rewriting.rewrite(timeline, decide)

    def trash(self) -> list[TrashedSnapshot]:
        """Return the snapshots that can be restored, those dropped last first."""
        found: list[TrashedSnapshot] = []
        timelines = dict.fromkeys(entry.timeline for entry in self._entries())
        entries = [entry for name in timelines for entry in self._rewriting.state(name).trash]
        for entry in sorted(entries, key=lambda one: (one.since, one.ref), reverse=True):
            snapshots = {one.commit: one for one in read_chain(self._history.repository.git, entry.tip)}
            found += [
                TrashedSnapshot(snapshots[link.commit], entry.since, entry.until)
                for link in reversed(entry.links)
                if link.commit in snapshots
            ]
        return found

    def find(self, text: str) -> TrashedSnapshot:
        """Return the snapshot in the trash that a text names: an id, a name, an intent, a time."""
        found = {one.snapshot.id: one for one in self.trash()}
        line = Timeline.of("", [one.snapshot for one in found.values()])
        try:
            return found[resolve(text, Catalog(line, {}, _NoCommits()), self._history.now).id]
        except SnapshotNotFound as nothing:
            raise NotInTrash(
                text, hint=self._why_not(text), message=f"no dropped snapshot matches '{text}'"
            ) from nothing

    def _why_not(self, text: str) -> str:
        try:
            known = self._history.resolve(text)
        except EnvhistError:
            return "list dropped snapshots: git envlog undrop"
        return f"{known.id[:7]} was not dropped: git envlog show {known.id[:7]}"

    def timeline_with_trash(self, timeline: str) -> tuple[list[Snapshot], frozenset[SnapshotId]]:
        """Return a timeline as if nothing had been dropped recently, and the ids of the dropped snapshots.

        The snapshots are oldest first.
        """
        state = self._rewriting.state(timeline)
        dropped_ids = frozenset(link.id for entry in state.trash for link in entry.links)
        if not dropped_ids:
            return [], dropped_ids
        known = {one.id: one for one in self._history.log(timeline=timeline)}
        known |= {one.snapshot.id: one.snapshot for one in self.trash()}
        return [
            known[link.id] for link in _restored(state, dropped_ids).links if link.id in known
        ], dropped_ids

    def undrop(self, wanted: Sequence[TrashedSnapshot]) -> DropResult:
        """Restore dropped snapshots to their former positions."""
        ids = {one.snapshot.id for one in wanted}
        warnings: list[str] = []
        for timeline in dict.fromkeys(one.snapshot.timeline for one in wanted):
            warnings += self._rewriting.rewrite(timeline, lambda state, _: _restored(state, ids)).warnings
        until = min((one.until for one in wanted), default=self._rewriting.today)
        return DropResult(tuple(one.snapshot for one in wanted), until, warnings=tuple(warnings))

    def expire(self, before: date) -> int:
        """Purge trash entries older than a day. Return the number of snapshots."""
        count = self.count_expired(before)
        for timeline in {entry.timeline for entry in self._entries() if entry.since < before}:

            def decide(state: TimelineState, _staging: Staging) -> TimelineTarget:
                old = [entry for entry in state.trash if entry.since < before]
                return TimelineTarget(state.links, tuple((entry, ()) for entry in old))

            self._rewriting.rewrite(timeline, decide)
        return count

    def combine_weeks(self) -> None:
        """Combine the trash refs of each week into the newest.

        Each ref costs time in every `git fetch` of the user: with thirty days of refs it takes a tenth longer.
        """
        for timeline in {entry.timeline for entry in self._entries()}:
            self._rewriting.rewrite(timeline, lambda state, _: _combined(state))

    def days_in_trash(self) -> set[date]:
        """Return the days on which the snapshots in the trash were taken."""
        links = (link for entry in self._entries() for link in entry.links)
        return {link.data.at.astimezone(UTC).date() for link in links}

    def empty_trash(self) -> int:
        """Purge the whole trash."""
        return self.expire(self.today + timedelta(days=1))

    def count_expired(self, before: date) -> int:
        """Return how many snapshots were dropped before a day."""
        return sum(len(entry.links) for entry in self._entries() if entry.since < before)

    def _entries(self) -> list[TrashEntry]:
        return self._rewriting.trash_entries()

    def _records_to_keep(self, state: TimelineState, dropped_ids: Iterable[SnapshotId]) -> dict[str, bytes]:
        """Return the lines to add to the notes of remaining commits."""
        dropped = set(dropped_ids)
        snapshots = self._history.log(timeline=state.timeline)
        found = _timeline_records(state, dropped, snapshots)
        for commit, lines in _name_removals(state.timeline, dropped, snapshots).items():
            found[commit] = found.get(commit, b"") + lines
        return found


def _name_removals(
    timeline: str, dropped: Collection[SnapshotId], snapshots: Sequence[Snapshot]
) -> dict[str, bytes]:
    """Return records that remove moved names from remaining snapshots.

    A name means one snapshot. If the snapshot that it was moved to is dropped, the name must not return to an older
    one: it is dropped with its snapshot, and restored with it.
    """
    holders = Timeline.of(timeline, snapshots).snapshots
    names = {name for one in holders if one.id in dropped for name in one.names}
    found: dict[str, bytes] = {}
    for one in snapshots if names else ():
        for name in names.intersection(names_of(one.records)) if one.id not in dropped else ():
            # Dated like the name itself: the record on the dropped snapshot is later, in case that is restored.
            given = max(record.at for record in one.records if record.fields.get("name") == name)
            found[one.commit] = found.get(one.commit, b"") + format_record(
                name_record(name, given, removed=True)
            )
    return found


def _timeline_records(
    state: TimelineState, dropped: Collection[SnapshotId], snapshots: Sequence[Snapshot]
) -> dict[str, bytes]:
    """Return records about the timeline (tasks, effects) from notes of dropped snapshots, for remaining neighbors."""
    records = {one.id: one.records for one in snapshots if one.id in dropped}
    stays = [link for link in state.links if link.id not in dropped]
    found: dict[str, bytes] = {}
    last = stays[0].commit if stays else None
    for link in state.links:
        if link.id not in dropped:
            last = link.commit
        elif last is not None:
            lines = [format_record(one) for one in records.get(link.id, ()) if one.kind in TIMELINE_KINDS]
            if lines:
                found[last] = found.get(last, b"") + b"".join(lines)
    return found


def _combined(state: TimelineState) -> TimelineTarget:
    weeks: dict[tuple[int, int], list[TrashEntry]] = {}
    for entry in sorted(state.trash, key=lambda one: (one.since, one.ref)):
        if entry.links:
            weeks.setdefault(entry.since.isocalendar()[:2], []).append(entry)
    trash: list[tuple[TrashEntry, tuple[ChainCommit, ...]]] = []
    for *others, newest in weeks.values():
        if others:
            trash += [(entry, ()) for entry in others]
            trash.append((newest, tuple(link for one in (*others, newest) for link in one.links)))
    return TimelineTarget(state.links, tuple(trash))


class _NoCommits:
    """The trash needs no lookup of commits."""

    def commit_of(self, text: str) -> str | None:
        return None


def _refuse_others(snapshots: Iterable[Snapshot]) -> None:
    for snapshot in snapshots:
        if is_fetched(snapshot.timeline):
            raise Refused(
                f"cannot drop a fetched snapshot: '{snapshot.id[:7]}' on '{snapshot.timeline}'",
                hint="drop it on its own machine, push there and fetch again",
            )


def _restored(state: TimelineState, ids: Iterable[SnapshotId]) -> TimelineTarget:
    wanted = set(ids)
    chain = list(state.links)
    changes: dict[str, CommitChange] = {}
    trash = []
    former_successors = {link.id: link.before for entry in state.trash for link in entry.links}
    for entry in state.trash:
        back = [link for link in entry.links if link.id in wanted]
        for link in back:
            chain.insert(_position(chain, link, former_successors), link)
            changes[link.commit] = CommitChange(link.tree, {AFTER: None, BEFORE: None})
        if back:
            trash.append((entry, tuple(link for link in entry.links if link.id not in wanted)))
    return TimelineTarget(tuple(chain), tuple(trash), changes=changes)


def _position(
    chain: Sequence[ChainCommit], link: ChainCommit, former_successors: Mapping[SnapshotId, str | None]
) -> int:
    """Return the position of a restored snapshot: before its former successor, else after its former predecessor."""
    places: dict[str, int] = {one.id: number for number, one in enumerate(chain)}
    following, seen = link.before, {str(link.id)}
    # The successor may be in the trash too, which has its own successor.
    while following is not None and following not in places and following not in seen:
        seen.add(following)
        following = former_successors.get(SnapshotId(following))
    if following is not None and following in places:
        return places[following]
    if link.after is None:
        return 0
    start = places.get(link.after, -1) + 1
    for number in range(start, len(chain)):
        if chain[number].data.at > link.data.at:
            return number
    return len(chain)
