"""Lets snapshots go, and brings them back as long as they are in the trash."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, timedelta

from git_envhist.context import HistoryContext
from git_envhist.errors import EnvhistError, Refused, SnapshotNotFound
from git_envhist.history.resolve import resolve
from git_envhist.history.timeline import Catalog, Timeline
from git_envhist.history.work import EFFECT, OBSERVED, TASK
from git_envhist.model import Snapshot, SnapshotId
from git_envhist.model.storage import DropResult, TrashedSnapshot
from git_envhist.rewrite.commits import AFTER, BEFORE, ChainCommit, CommitChange
from git_envhist.rewrite.timeline import (
    DAYS,
    RewriteResult,
    TimelineRewriter,
    TimelineState,
    TimelineTarget,
    TrashEntry,
)
from git_envhist.snapshots.fetched import is_fetched
from git_envhist.snapshots.log import read_chain
from git_envhist.snapshots.records import format_record, name_record, names_of
from git_envhist.snapshots.staging import Staging

TELLS_OF_TIMELINE = (TASK, EFFECT, OBSERVED)
"""Kinds of records that speak of a timeline, wherever on it they stand."""


class NotInTrash(SnapshotNotFound):
    """Nothing in the trash is meant."""

    code = "not-in-trash"


class SnapshotDropper:
    """The trash of a history, and the way into it."""

    def __init__(self, history: HistoryContext, *, gentle: bool = False) -> None:
        self._history = history
        self._rewriting = TimelineRewriter(history, gentle=gentle)

    @property
    def today(self) -> date:
        """The day on which something is let go."""
        return self._rewriting.today

    def drop(self, snapshots: Sequence[Snapshot], *, dry_run: bool = False) -> DropResult:
        """Let moments go; their ids are found in the trash, and nowhere else."""
        _refuse_others(snapshots)
        wanted = {snapshot.id for snapshot in snapshots}
        until = self.today + timedelta(days=DAYS)
        told = tuple(snapshots)
        if dry_run:
            return DropResult(told, until, True)
        warnings: list[str] = []
        for timeline in dict.fromkeys(snapshot.timeline for snapshot in snapshots):
            warnings += self.let_go(timeline, lambda: wanted).warnings
        return DropResult(told, until, warnings=tuple(warnings))

    def let_go(self, timeline: str, choose: Callable[[], Iterable[SnapshotId]]) -> RewriteResult:
        """Let those of a timeline go that are chosen as it stands; what their notes say of the timeline stays on it."""

        def decide(stand: TimelineState, _staging: Staging) -> TimelineTarget:
            gone = set(choose())
            left = tuple(link for link in stand.links if link.id not in gone)
            return TimelineTarget(left, more=self._said_of_what_stays(stand, gone))

        return self._rewriting.rewrite(timeline, decide)

    def trash(self) -> list[TrashedSnapshot]:
        """What can be brought back, what went last first."""
        found: list[TrashedSnapshot] = []
        timelines = dict.fromkeys(bundle.timeline for bundle in self._bundles())
        bundles = [bundle for name in timelines for bundle in self._rewriting.stand(name).trash]
        for bundle in sorted(bundles, key=lambda one: (one.since, one.ref), reverse=True):
            snapshots = {one.commit: one for one in read_chain(self._history.repository.git, bundle.tip)}
            found += [
                TrashedSnapshot(snapshots[link.commit], bundle.since, bundle.until)
                for link in reversed(bundle.links)
                if link.commit in snapshots
            ]
        return found

    def find(self, text: str) -> TrashedSnapshot:
        """The one in the trash that some words mean: an id, a name, an intent, a time."""
        found = {one.snapshot.id: one for one in self.trash()}
        line = Timeline.of("", [one.snapshot for one in found.values()])
        try:
            return found[resolve(text, Catalog(line, {}, _NoCommits()), self._history.now).id]
        except SnapshotNotFound as nothing:
            raise NotInTrash(text, hint=self._why_not(text)) from nothing

    def _why_not(self, text: str) -> str:
        try:
            known = self._history.resolve(text)
        except EnvhistError:
            return "'git envlog undrop' lists what was dropped"
        return f"{known.id[:7]} was not dropped: git envlog show {known.id[:7]}"

    def line_with_trash(self, timeline: str) -> tuple[list[Snapshot], frozenset[SnapshotId]]:
        """A timeline as it would be had nothing been let go of late, oldest first; and the ids of what was."""
        stand = self._rewriting.stand(timeline)
        gone = frozenset(link.id for bundle in stand.trash for link in bundle.links)
        if not gone:
            return [], gone
        known = {one.id: one for one in self._history.log(timeline=timeline)}
        known |= {one.snapshot.id: one.snapshot for one in self.trash()}
        return [known[link.id] for link in _put_back(stand, gone).links if link.id in known], gone

    def undrop(self, wanted: Sequence[TrashedSnapshot]) -> DropResult:
        """Bring moments back to where they stood."""
        ids = {one.snapshot.id for one in wanted}
        warnings: list[str] = []
        for timeline in dict.fromkeys(one.snapshot.timeline for one in wanted):
            warnings += self._rewriting.rewrite(timeline, lambda stand, _: _put_back(stand, ids)).warnings
        until = min((one.until for one in wanted), default=self._rewriting.today)
        return DropResult(tuple(one.snapshot for one in wanted), until, warnings=tuple(warnings))

    def expire(self, before: date) -> int:
        """Have what was let go before a day be gone for good; how many snapshots that are."""
        count = self.count_expired(before)
        for timeline in {bundle.timeline for bundle in self._bundles() if bundle.since < before}:

            def decide(stand: TimelineState, _staging: Staging) -> TimelineTarget:
                old = [bundle for bundle in stand.trash if bundle.since < before]
                return TimelineTarget(stand.links, tuple((bundle, ()) for bundle in old))

            self._rewriting.rewrite(timeline, decide)
        return count

    def join_weeks(self) -> None:
        """Have what was let go in one week hang on one ref, the newest.

        Each ref costs every `git fetch` of the user's time; thirty days of them cost a tenth.
        """
        for timeline in {bundle.timeline for bundle in self._bundles()}:
            self._rewriting.rewrite(timeline, lambda stand, _: _joined(stand))

    def days_in_trash(self) -> set[date]:
        """The days on which what lies in the trash was taken."""
        links = (link for bundle in self._bundles() for link in bundle.links)
        return {link.data.at.astimezone(UTC).date() for link in links}

    def empty_trash(self) -> int:
        """Have all that was let go be gone for good."""
        return self.expire(self.today + timedelta(days=1))

    def count_expired(self, before: date) -> int:
        """How many snapshots were let go before a day."""
        return sum(len(bundle.links) for bundle in self._bundles() if bundle.since < before)

    def _bundles(self) -> list[TrashEntry]:
        return self._rewriting.bundles()

    def _said_of_what_stays(self, stand: TimelineState, gone: Iterable[SnapshotId]) -> dict[str, bytes]:
        """By a commit that stays, the lines that its note is given."""
        going = set(gone)
        snapshots = self._history.log(timeline=stand.timeline)
        found = _said_of_the_timeline(stand, going, snapshots)
        for commit, lines in _names_that_went_on(stand.timeline, going, snapshots).items():
            found[commit] = found.get(commit, b"") + lines
        return found


def _names_that_went_on(
    timeline: str, going: Collection[SnapshotId], snapshots: Sequence[Snapshot]
) -> dict[str, bytes]:
    """By a commit that stays, the word that it has lost the names which those that go were given after it.

    A name means one moment. It is not to mean the one before again because that goes: it goes with it, and comes back.
    """
    holders = Timeline.of(timeline, snapshots).snapshots
    names = {name for one in holders if one.id in going for name in one.names}
    found: dict[str, bytes] = {}
    for one in snapshots if names else ():
        for name in names.intersection(names_of(one.records)) if one.id not in going else ():
            # As of the moment that it was given: the word on the one that may come back is later.
            given = max(record.at for record in one.records if record.fields.get("name") == name)
            found[one.commit] = found.get(one.commit, b"") + format_record(
                name_record(name, given, removed=True)
            )
    return found


def _said_of_the_timeline(
    stand: TimelineState, going: Collection[SnapshotId], snapshots: Sequence[Snapshot]
) -> dict[str, bytes]:
    """By a commit that stays, what the notes of those beside it that go say of the timeline: tasks, effects."""
    records = {one.id: one.records for one in snapshots if one.id in going}
    stays = [link for link in stand.links if link.id not in going]
    found: dict[str, bytes] = {}
    last = stays[0].commit if stays else None
    for link in stand.links:
        if link.id not in going:
            last = link.commit
        elif last is not None:
            lines = [format_record(one) for one in records.get(link.id, ()) if one.kind in TELLS_OF_TIMELINE]
            if lines:
                found[last] = found.get(last, b"") + b"".join(lines)
    return found


def _joined(stand: TimelineState) -> TimelineTarget:
    weeks: dict[tuple[int, int], list[TrashEntry]] = {}
    for bundle in sorted(stand.trash, key=lambda one: (one.since, one.ref)):
        if bundle.links:
            weeks.setdefault(bundle.since.isocalendar()[:2], []).append(bundle)
    trash: list[tuple[TrashEntry, tuple[ChainCommit, ...]]] = []
    for *others, newest in weeks.values():
        if others:
            trash += [(bundle, ()) for bundle in others]
            trash.append((newest, tuple(link for one in (*others, newest) for link in one.links)))
    return TimelineTarget(stand.links, tuple(trash))


class _NoCommits:
    """In the trash no code commit is looked for."""

    def commit_of(self, text: str) -> str | None:
        return None


def _refuse_others(snapshots: Iterable[Snapshot]) -> None:
    for snapshot in snapshots:
        if is_fetched(snapshot.timeline):
            raise Refused(
                f"it was fetched, and is another's to drop: '{snapshot.id[:7]}' on '{snapshot.timeline}'",
                hint="drop it where it was taken, push there and fetch again",
            )


def _put_back(stand: TimelineState, ids: Iterable[SnapshotId]) -> TimelineTarget:
    wanted = set(ids)
    chain = list(stand.links)
    changes: dict[str, CommitChange] = {}
    trash = []
    stood_before = {link.id: link.before for bundle in stand.trash for link in bundle.links}
    for bundle in stand.trash:
        back = [link for link in bundle.links if link.id in wanted]
        for link in back:
            chain.insert(_place(chain, link, stood_before), link)
            changes[link.commit] = CommitChange(link.tree, {AFTER: None, BEFORE: None})
        if back:
            trash.append((bundle, tuple(link for link in bundle.links if link.id not in wanted)))
    return TimelineTarget(tuple(chain), tuple(trash), changes=changes)


def _place(
    chain: Sequence[ChainCommit], link: ChainCommit, stood_before: Mapping[SnapshotId, str | None]
) -> int:
    """Where it stood: before the one that it stood before, else behind the one that it stood behind."""
    places: dict[str, int] = {one.id: number for number, one in enumerate(chain)}
    following, seen = link.before, {str(link.id)}
    # That one may be in the trash, too, and say which it stood before.
    while following is not None and following not in places and following not in seen:
        seen.add(following)
        following = stood_before.get(SnapshotId(following))
    if following is not None and following in places:
        return places[following]
    if link.after is None:
        return 0
    start = places.get(link.after, -1) + 1
    for number in range(start, len(chain)):
        if chain[number].data.at > link.data.at:
            return number
    return len(chain)
