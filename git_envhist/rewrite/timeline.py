"""Rewrites a timeline: the chain, its notes and the trash in one ref transaction, by compare-and-swap.

What takes time is done before the lock is taken. Under it nobody captures, so that what a capture has published is
known to the sweep; whoever waits finds the new tip and goes on from it.

**The story of a kill.** The new commits stand in a pack before any ref moves, and the sweep takes it back where none
did. git moves the refs of a transaction one after the other: first the trash, then the notes, then the chain. The new
notes say what is said of a snapshot on its old commit and on its new one, so that whichever of the two the chain has
come to, nothing is lost; the old places go with the next rewrite. A snapshot that stands in the trash and on the chain
is one of the chain.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, date, timedelta
from typing import TYPE_CHECKING, NamedTuple

from git_envhist.context import HistoryContext
from git_envhist.diff.compare import compare
from git_envhist.diff.facts import brief_facts
from git_envhist.diff.summary import count, describe_counts, summarize
from git_envhist.disk import COMMON_LOCK, locked, state_directory
from git_envhist.errors import EnvhistError, GitFailed, GitKilled
from git_envhist.git.cat_file import CatFile
from git_envhist.git.config import current_actor, signature
from git_envhist.git.process import Git
from git_envhist.git.repository import (
    NOTES_REFS,
    TIMELINE_REFS,
    TRASH_REFS,
    RefsMoved,
    RefUpdate,
    Repository,
    states_of,
)
from git_envhist.lazy import dataclass, field, replace
from git_envhist.model import Change, ChangeCount, EntryKind
from git_envhist.objects.compress import crc32
from git_envhist.objects.pack_writer import PackWriter, StagedPack
from git_envhist.probes import kinds
from git_envhist.rewrite.commits import (
    AFTER,
    BEFORE,
    NONE,
    ChainCommit,
    CommitChange,
    Trailers,
    cut_off_in,
    predecessors,
    read_links,
    relink,
)
from git_envhist.snapshots.fetched import without_fetched_objects
from git_envhist.snapshots.message import FindKey
from git_envhist.snapshots.notes import NamedObjectReader, move_notes
from git_envhist.snapshots.publish import is_published
from git_envhist.snapshots.sealed_facts import FindFactsKey
from git_envhist.snapshots.staging import Staging, sweep
from git_envhist.snapshots.timelines import current_commit, read_rewritten, remember_rewritten
from git_envhist.tracking.attachments import attachment_path
from git_envhist.worktree.stat_cache import StatCache

if TYPE_CHECKING:
    pass


# What is remembered of working trees, where the commit that it relies on has become another one.


def move_caches(repository: Repository, now: Mapping[str, str]) -> None:
    """Have them rely on the new commits, whose trees are the same; whoever calls keeps captures out."""
    for cache in _caches(repository):
        head = cache.read_head()
        if head is not None and now.get(head.base, head.base) != head.base:
            with suppress(OSError):
                cache.write(replace(head, base=now[head.base]), head.shards)


def forget_caches(repository: Repository) -> None:
    """Have none: the next capture reads everything once."""
    for cache in _caches(repository):
        cache.clear()


def _caches(repository: Repository) -> Iterator[StatCache]:
    for state in states_of(repository):
        directory = os.path.join(state, "cache")
        if os.path.isdir(directory):
            yield StatCache(directory, crc32)


# What a snapshot says of the one before it, told anew where that is another one.

CHANGED, STORY = "Env-Changed", "Env-Story"


class SummaryWriter:
    """Tells what differs between two trees; each pair is compared once."""

    def __init__(self, git: Git, find_key: FindFactsKey) -> None:
        self.git = git
        self._find_key = find_key
        self.warnings: list[str] = []
        self._told: dict[tuple[str | None, str], Trailers] = {}

    def __call__(self, before: str | None, after: str) -> Trailers:
        """The trailers that say it; none, where one of the two cannot be read."""
        pair = (before, after)
        if pair not in self._told:
            try:
                self._told[pair] = self._tell(before, after)
            except GitKilled:
                raise  # it has not moved yet, and could be told
            except EnvhistError as error:
                # What is damaged is no worse for being linked anew.
                self.warnings.append(f"cannot determine what changed: {error.message}")
                self._told[pair] = {}
        return self._told[pair]

    def _tell(self, before: str | None, after: str) -> Trailers:
        changes = compare(self.git, before, after, brief=True)
        changed = count(changes)
        if before is None:
            files = sum(_is_file(change) for change in changes)
            return {
                CHANGED: _counts(changed),
                STORY: describe_counts(ChangeCount(added=files), first=True),
            }
        with CatFile(self.git) as reader:
            facts = brief_facts(reader, before, after, self._find_key)
        return {CHANGED: _counts(changed), STORY: summarize(facts, changed, kinds(), names=False)}


def _is_file(change: Change) -> bool:
    return change.after is not None and change.after.kind is not EntryKind.DIRECTORY


def _counts(changed: ChangeCount) -> str:
    return f"+{changed.added} ~{changed.modified} -{changed.removed}"


# What was let go and can still come back: `refs/envhist/trash/<date>/<id>`, for 30 days.
#
# What went together hangs on one ref, which bears the id of the newest of it: a chain of its own, oldest first, so that
# nothing else is held. Each commit says between which ids it stood; its notes stay with it in its timeline's notes.

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
    return f"{TRASH_REFS}{day.isoformat()}/{newest}"


def read_trash(repository: Repository, reader: NamedObjectReader) -> list[TrashEntry]:
    """All of it, what went last first; what somebody else put there is passed over."""
    found = []
    for ref, tip in repository.list_refs(TRASH_REFS).items():
        name = NAME.fullmatch(ref.removeprefix(TRASH_REFS))
        day = _day(name[1]) if name is not None else None
        if day is not None:
            found.append(TrashEntry(ref, tip, day, tuple(read_links(reader, tip))))
    return sorted(found, key=lambda bundle: (bundle.since, bundle.ref), reverse=True)


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


# A timeline as it stands, what it is to be, and what was made of it.


@dataclass(frozen=True, slots=True)
class TimelineState:
    """A timeline and its trash as they stand."""

    timeline: str
    tip: str | None
    notes: str | None
    """Seen before anything is decided: whoever says something of a snapshot meanwhile is heard."""
    links: tuple[ChainCommit, ...]
    trash: tuple[TrashEntry, ...]
    """Without what is on the chain, too."""
    doubled: tuple[TrashEntry, ...] = ()
    """Those of which something is: a kill came between the refs."""


@dataclass(frozen=True, slots=True)
class TimelineTarget:
    """What they are to be."""

    links: tuple[ChainCommit, ...]
    """The chain, oldest first: links of the chain, and of the trash."""
    trash: tuple[tuple[TrashEntry, tuple[ChainCommit, ...]], ...] = ()
    """The bundles that change, and what is to be left in each."""
    more: Mapping[str, bytes] = field(default_factory=dict)
    """By commit, lines for its note."""
    changes: Mapping[str, CommitChange] = field(default_factory=dict)
    """By commit, of the chain or the trash, what is to be another in it."""
    packs: tuple[StagedPack, ...] = ()
    """In the staging, with the trees of these."""
    begins: bool = False  # with the oldest, though that names one before it which is gone

    def is_as(self, stand: TimelineState) -> bool:
        """Whether nothing is to change."""
        is_cut_off = self.begins and cut_off_in(self.links) is not None
        return self.links == stand.links and not (self.trash or self.changes or is_cut_off)


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What a rewrite came to."""

    now: dict[str, str]
    """By the commit that a snapshot was the one that it is, on the chain."""
    gone: tuple[ChainCommit, ...] = ()
    """What was let go."""
    warnings: tuple[str, ...] = ()


class NewTimeline(NamedTuple):
    """What was written, and the refs that are to lead there."""

    now: dict[str, str]
    gone: tuple[ChainCommit, ...]
    refs: tuple[RefUpdate, ...]
    packs: list[StagedPack]
    other_trees: bool
    """What is remembered of working trees holds no longer."""


Decide = Callable[[TimelineState, Staging], TimelineTarget]
"""What is decided may be written into the staging, in packs of its own."""


# The trash of a timeline, as it is to be after a rewrite.


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


TRIES = 20
FREE_TRIES = 2
"""So many times captures may go on meanwhile."""
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds that somebody gentle waits for a moment in which nobody captures, before captures are held up after all."""


class TimelineRewriter:
    """Rewrites timelines of one history."""

    def __init__(self, history: HistoryContext, *, gentle: bool = False) -> None:
        """`gentle`: where captures come all the time, wait for a while before one of them has to."""
        self._history = history
        self._repository = without_fetched_objects(history.repository)
        self._warnings: list[str] = []
        self._pauses = PAUSES if gentle else ()
        self._line = signature(current_actor(history.settings, history.environ), history.now)

    @property
    def today(self) -> date:
        """The day on which something is let go."""
        return self._history.now.astimezone(UTC).date()

    def stand(self, timeline: str) -> TimelineState:
        """The timeline as it is now."""
        notes = self._repository.resolve_ref(NOTES_REFS + timeline)
        tip = self._repository.resolve_ref(TIMELINE_REFS + timeline)
        with CatFile(self._repository.git) as reader:
            links = tuple(read_links(reader, tip))
            known: set[str] = {link.id for link in links}
            all_of_it = [one for one in read_trash(self._repository, reader) if one.timeline == timeline]
        trash = tuple(_each_once(all_of_it, known))
        doubled = tuple(now for now, was in zip(trash, all_of_it, strict=True) if now != was)
        return TimelineState(timeline, tip, notes, links, trash, doubled)

    def bundles(self) -> list[TrashEntry]:
        """The trash of all timelines."""
        with CatFile(self._repository.git) as reader:
            return [bundle for bundle in read_trash(self._repository, reader) if bundle.links]

    def rewrite(self, timeline: str, decide: Decide, *, keeps: bool = True) -> RewriteResult:
        """Have a timeline be what is decided of it as it stands; `keeps`: what goes is put into the trash.

        Nothing is done where nothing changes. Where somebody captures meanwhile it is decided anew; the third time
        nobody may.
        """
        free = FREE_TRIES + len(self._pauses)
        for number in range(free + TRIES):
            if FREE_TRIES <= number < free:
                time.sleep(self._pauses[number - FREE_TRIES])
            with ExitStack() as held:
                if number >= free:
                    held.enter_context(self._alone())
                stand = self.stand(timeline)
                staging = held.enter_context(
                    Staging.create(
                        self._repository.common_state, self._repository.pack_dir, self._repository.shared
                    )
                )
                wanted = decide(stand, staging)
                if wanted.is_as(stand):
                    return RewriteResult({link.commit: link.commit for link in stand.links})
                known = {bundle.ref for bundle, _ in wanted.trash}
                doubled = tuple((one, one.links) for one in stand.doubled if one.ref not in known)
                wanted = replace(wanted, trash=(*wanted.trash, *doubled))
                new = self._write(stand, wanted, staging, keeps)
                if number < free:
                    held.enter_context(self._alone())
                if self._move(new, staging):
                    self._history.refresh()
                    return RewriteResult(new.now, new.gone, tuple(self._warnings))
        raise GitFailed(f"'{TIMELINE_REFS}{timeline}' would not stand still", hint="run the command again")

    def _write(
        self, stand: TimelineState, wanted: TimelineTarget, staging: Staging, keeps: bool
    ) -> NewTimeline:
        repository = self._repository
        find_key = self._history.keys.get
        telling = SummaryWriter(repository.git.with_objects(staging.path), find_key)
        kept = {link.commit for link in wanted.links}
        gone = tuple(link for link in stand.links if link.commit not in kept)
        with PackWriter(staging.pack_dir, repository.object_format) as writer:
            before = predecessors(stand.links) | {
                link.commit: link.after for link in wanted.links if link.in_trash
            }
            cut_off = None if wanted.begins else cut_off_in(stand.links)
            now = relink(writer, wanted.links, before, find_key, telling, wanted.changes, cut_off)
            trash = TrashBuilder(writer, find_key, stand, wanted)
            if keeps and gone:
                trash.take(gone, self.today)
            trash.rewrite()
            moves = self._notes_moves(now, trash, gone, stand.notes)
            with CatFile(repository.git) as reader:
                notes = move_notes(
                    reader,
                    writer,
                    stand.notes,
                    moves,
                    more={now[old]: lines for old, lines in wanted.more.items()},
                    without=[attachment_path(link.id) for link in trash.forgotten],
                    identity=self._line,
                    object_format=repository.object_format,
                )
            pack = writer.finish()
        self._warnings = telling.warnings
        tip = now[wanted.links[-1].commit] if wanted.links else None
        head = [RefUpdate(TIMELINE_REFS + stand.timeline, tip, stand.tip)] if tip != stand.tip else []
        said = [RefUpdate(NOTES_REFS + stand.timeline, notes, stand.notes)] if notes is not None else []
        refs = (*trash.moves, *said, *head, *trash.removals)
        packs = [*wanted.packs, *([pack] if pack else [])]
        return NewTimeline({**now, **trash.now}, gone, refs, packs, bool(wanted.packs))

    def _notes_moves(
        self, now: Mapping[str, str], trash: TrashBuilder, gone: Sequence[ChainCommit], tip: str | None
    ) -> dict[str, list[str]]:
        """Where the note of each commit is to stand: also where it stood, until the chain has moved."""
        if tip is None:
            return {}
        here = {**now, **trash.now}
        moves = {old: [old, new] for old, new in here.items() if old != new}
        moves |= {link.commit: [link.commit] for link in gone if link.commit not in here}
        moves |= {link.commit: [] for link in trash.forgotten}
        # What an earlier rewrite left in its old place, or somebody noted there who did not know of it.
        earlier = read_rewritten(self._repository.common_state)
        known = {*here, *here.values()}
        forgotten = {link.commit for link in trash.forgotten}
        for old in earlier:
            target = current_commit(earlier, old)
            if old not in known and target in known:
                moves[old] = [here.get(target, target)]
            elif target in forgotten:
                moves[old] = []
        return moves

    def _move(self, new: NewTimeline, staging: Staging) -> bool:
        """Publish what was written and move the refs; whether they were where they had been."""
        repository = self._repository
        sweep(
            repository.common_state, repository.pack_dir, lambda commit: is_published(repository.git, commit)
        )
        for move in new.refs:
            if move.new is not None:
                staging.journal_commit(move.new)
        staging.publish(new.packs)
        if new.other_trees:
            forget_caches(repository)
        try:
            repository.move_refs(new.refs)
        except RefsMoved:
            return False
        repository.sync_refs([move.ref for move in new.refs])
        # From here on all is done; what follows saves time, and is found again by others where it fails.
        with suppress(EnvhistError):
            remember_rewritten(repository.common_state, new.now)
        move_caches(repository, new.now)
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        place = state_directory(self._repository.common_state)
        with locked(os.path.join(place, COMMON_LOCK), limited=True):
            yield


def _each_once(bundles: Sequence[TrashEntry], known: set[str]) -> Iterator[TrashEntry]:
    """What went last first: where a kill came between the refs, a snapshot is in the bundle that it was joined to."""
    for bundle in bundles:
        links = tuple(link for link in bundle.links if link.id not in known)
        known |= {link.id for link in links}
        yield bundle._replace(links=links)
