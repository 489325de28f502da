"""Rewrite a timeline: the chain, its notes and the trash in one ref transaction, by compare-and-swap.

Slow work is done before the lock is taken. Under the lock no capture runs, so the sweep knows everything that
captures have published; a waiting capture finds the new tip and continues from it.

**After a kill.** The new commits are in a pack before any ref moves, and the sweep removes that pack if no ref moved.
git moves the refs of a transaction one after another: first the trash, then the notes, then the chain. The new notes
tree has the note of a snapshot on both its old and its new commit, so nothing is lost whichever of them the chain
has; the old entries are removed by the next rewrite. A snapshot both in the trash and on the chain counts as on the
chain.
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
from git_envhist.diff.compare_snapshots import compare
from git_envhist.diff.facts import facts_for_summary
from git_envhist.diff.summary import count_changes, describe_counts, summarize
from git_envhist.disk import state_directory
from git_envhist.errors import EnvhistError, GitFailed, GitKilled
from git_envhist.git.cat_file import CatFile
from git_envhist.git.current_actor import current_actor, signature
from git_envhist.git.process import Git
from git_envhist.git.repository import (
    NOTES_REFS,
    TIMELINE_REFS,
    TRASH_REFS,
    RefsMoved,
    RefUpdate,
    Repository,
    state_directories,
)
from git_envhist.lazy import dataclass, field, replace
from git_envhist.locks import COMMON_LOCK, locked
from git_envhist.model import Change, ChangeCount, EntryKind
from git_envhist.objects.deflate import crc32
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
    read_chain,
    rewrite_chain,
)
from git_envhist.snapshots.fetched_store import without_fetched_objects
from git_envhist.snapshots.message import FindKey
from git_envhist.snapshots.notes import NamedObjectReader, move_notes
from git_envhist.snapshots.publish import is_published
from git_envhist.snapshots.rewritten_ids import current_commit, read_rewritten, record_rewritten
from git_envhist.snapshots.sealed_facts import FindFactsKey
from git_envhist.snapshots.staging import Staging, sweep
from git_envhist.tracking.attachments import attachments_directory
from git_envhist.worktree.stat_cache import StatCache

if TYPE_CHECKING:
    pass


# Stat caches that refer to a rewritten commit.


def move_caches(repository: Repository, now: Mapping[str, str]) -> None:
    """Make stat caches refer to the new commits, which have the same trees. The caller locks captures out."""
    for cache in _caches(repository):
        head = cache.read_head()
        if head is not None and now.get(head.base, head.base) != head.base:
            with suppress(OSError):
                cache.write(replace(head, base=now[head.base]), head.shards)


def clear_caches(repository: Repository) -> None:
    """Delete all stat caches. The next capture reads every file."""
    for cache in _caches(repository):
        cache.clear()


def _caches(repository: Repository) -> Iterator[StatCache]:
    for state in state_directories(repository):
        directory = os.path.join(state, "cache")
        if os.path.isdir(directory):
            yield StatCache(directory, crc32)


# Rewrite the summary of a snapshot if the one before it is dropped or restored.

CHANGED, STORY = "Env-Changed", "Env-Story"


class SummaryWriter:
    """Summarize the difference of two trees; each pair is compared once."""

    def __init__(self, git: Git, find_key: FindFactsKey) -> None:
        self.git = git
        self._find_key = find_key
        self.warnings: list[str] = []
        self._known: dict[tuple[str | None, str], Trailers] = {}

    def __call__(self, before: str | None, after: str) -> Trailers:
        """Return the trailers of the summary; none if one of the trees cannot be read."""
        pair = (before, after)
        if pair not in self._known:
            try:
                self._known[pair] = self._summarize(before, after)
            except GitKilled:
                raise  # no ref has moved yet, and the operation can be repeated
            except EnvhistError as error:
                # Damaged objects do not prevent a rewrite.
                self.warnings.append(f"the changes cannot be summarized: {error.message}")
                self._known[pair] = {}
        return self._known[pair]

    def _summarize(self, before: str | None, after: str) -> Trailers:
        changes = compare(self.git, before, after, brief=True)
        changed = count_changes(changes)
        if before is None:
            files = sum(_is_file(change) for change in changes)
            return {
                CHANGED: _counts(changed),
                STORY: describe_counts(ChangeCount(added=files), first=True),
            }
        with CatFile(self.git) as reader:
            facts = facts_for_summary(reader, before, after, self._find_key)
        return {CHANGED: _counts(changed), STORY: summarize(facts, changed, kinds(), names=False)}


def _is_file(change: Change) -> bool:
    return change.after is not None and change.after.kind is not EntryKind.DIRECTORY


def _counts(changed: ChangeCount) -> str:
    return f"+{changed.added} ~{changed.modified} -{changed.removed}"


# Trash: dropped snapshots that can be restored for 30 days, at `refs/envhist/trash/<date>/<id>`.
#
# Snapshots dropped together are on one ref, with the id of the newest: a chain of its own, oldest first, which keeps
# nothing else reachable. Each commit names the ids between which it was; its notes stay in the notes of its timeline.

DAYS = 30
NAME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})/([0-9a-f]{40,64})")


class TrashEntry(NamedTuple):
    """Snapshots that were dropped together."""

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
        """The first day on which it may be expired."""
        return self.since + timedelta(days=DAYS)


def trash_ref(day: date, newest: str) -> str:
    """Return the ref for snapshots dropped on a day."""
    return f"{TRASH_REFS}{day.isoformat()}/{newest}"


def read_trash(repository: Repository, reader: NamedObjectReader) -> list[TrashEntry]:
    """Return all trash entries, the latest first; other refs are skipped."""
    found = []
    for ref, tip in repository.list_refs(TRASH_REFS).items():
        name = NAME.fullmatch(ref.removeprefix(TRASH_REFS))
        day = _day(name[1]) if name is not None else None
        if day is not None:
            found.append(TrashEntry(ref, tip, day, tuple(read_chain(reader, tip))))
    return sorted(found, key=lambda entry: (entry.since, entry.ref), reverse=True)


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


# Input and result of a rewrite.


@dataclass(frozen=True, slots=True)
class TimelineState:
    """A timeline and its trash."""

    timeline: str
    tip: str | None
    notes: str | None
    """Read before the decision, so that a concurrent change of the notes is detected."""
    links: tuple[ChainCommit, ...]
    trash: tuple[TrashEntry, ...]
    """Without snapshots that are also on the chain."""
    duplicates: tuple[TrashEntry, ...] = ()
    """Entries with such snapshots: a kill came between the refs."""


@dataclass(frozen=True, slots=True)
class TimelineTarget:
    """The wanted state of a timeline and its trash."""

    links: tuple[ChainCommit, ...]
    """The chain, oldest first: links of the old chain or of the trash."""
    trash: tuple[tuple[TrashEntry, tuple[ChainCommit, ...]], ...] = ()
    """The changed entries, and the snapshots left in each."""
    more: Mapping[str, bytes] = field(default_factory=dict)
    """Lines for notes, by commit."""
    changes: Mapping[str, CommitChange] = field(default_factory=dict)
    """Changes to snapshots on the chain or in the trash, by commit."""
    packs: tuple[StagedPack, ...] = ()
    """Packs in the staging, with the trees of these changes."""
    cuts_off: bool = False  # cut the oldest snapshot off its missing parent

    def is_unchanged(self, state: TimelineState) -> bool:
        """Return whether nothing changes."""
        is_cut_off = self.cuts_off and cut_off_in(self.links) is not None
        return self.links == state.links and not (self.trash or self.changes or is_cut_off)


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """The result of a rewrite."""

    now: dict[str, str]
    """The new commit on the chain for each old one."""
    removed: tuple[ChainCommit, ...] = ()
    """The dropped snapshots."""
    warnings: tuple[str, ...] = ()


class NewTimeline(NamedTuple):
    """The written objects, and the ref updates to apply."""

    now: dict[str, str]
    removed: tuple[ChainCommit, ...]
    refs: tuple[RefUpdate, ...]
    packs: list[StagedPack]
    other_trees: bool
    """True if stat caches became invalid."""


Decide = Callable[[TimelineState, Staging], TimelineTarget]
"""Decides what to change; may write packs of its own into the staging."""


class TrashBuilder:
    """Builds the new trash of a timeline."""

    def __init__(
        self, writer: PackWriter, find_key: FindKey, state: TimelineState, wanted: TimelineTarget
    ) -> None:
        self.now: dict[str, str] = {}
        self.moves: list[RefUpdate] = []
        self.removals: list[RefUpdate] = []
        self.expired: list[ChainCommit] = []
        self._writer = writer
        self._find_key = find_key
        self._state = state
        self._wanted = wanted

    def take(self, removed: Sequence[ChainCommit], day: date) -> None:
        """Add dropped snapshots; each records the ids between which it was."""
        links = self._state.links
        ids = [None, *(link.id for link in links), None]
        places = {link.commit: (ids[number], ids[number + 2]) for number, link in enumerate(links)}
        changes = {}
        for link in removed:
            after, before = places[link.commit]
            changes[link.commit] = CommitChange(link.tree, {AFTER: after or NONE, BEFORE: before or NONE})
        now = rewrite_chain(self._writer, removed, {}, self._find_key, _no_trailers, changes)
        self.now |= now
        self._put(trash_ref(day, removed[-1].id), now[removed[-1].commit], None)

    def rewrite(self) -> None:
        """Write each changed trash entry again, with the snapshots that remain in it."""
        taken = {link.commit for link in self._wanted.links}
        taken |= {link.commit for _, left in self._wanted.trash for link in left}
        for entry, left in self._wanted.trash:
            removed = [link for link in entry.links if link not in left]
            self.expired += [link for link in removed if link.commit not in taken]
            now: dict[str, str] = {}
            if left:
                now = rewrite_chain(
                    self._writer, left, predecessors(left), self._find_key, _no_trailers, self._wanted.changes
                )
                self._put(trash_ref(entry.since, left[-1].id), now[left[-1].commit], entry)
            if not left or trash_ref(entry.since, left[-1].id) != entry.ref:
                self.removals.append(RefUpdate(entry.ref, None, entry.tip))
            self.now |= now

    def _put(self, ref: str, tip: str, entry: TrashEntry | None) -> None:
        known = {one.ref: one.tip for one in self._state.trash}
        if known.get(ref) != tip:
            self.moves.append(RefUpdate(ref, tip, known.get(ref)))


def _no_trailers(_before: str | None, _after: str) -> Trailers:
    return {}


TRIES = 20
FREE_TRIES = 2
"""Attempts during which captures may continue."""
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds to wait for a gap between captures before they are locked out."""


class TimelineRewriter:
    """Rewrites timelines of one history."""

    def __init__(self, history: HistoryContext, *, wait_for_captures: bool = False) -> None:
        """`wait_for_captures`: if captures are frequent, wait for a gap before delaying one of them."""
        self._history = history
        self._repository = without_fetched_objects(history.repository)
        self._warnings: list[str] = []
        self._pauses = PAUSES if wait_for_captures else ()
        self._line = signature(current_actor(history.settings, history.environ), history.now)

    @property
    def today(self) -> date:
        """The date of a drop."""
        return self._history.now.astimezone(UTC).date()

    def state(self, timeline: str) -> TimelineState:
        """Return the current state of a timeline."""
        notes = self._repository.resolve_ref(NOTES_REFS + timeline)
        tip = self._repository.resolve_ref(TIMELINE_REFS + timeline)
        with CatFile(self._repository.git) as reader:
            links = tuple(read_chain(reader, tip))
            known: set[str] = {link.id for link in links}
            with_duplicates = [
                one for one in read_trash(self._repository, reader) if one.timeline == timeline
            ]
        trash = tuple(_without_duplicates(with_duplicates, known))
        duplicates = tuple(now for now, was in zip(trash, with_duplicates, strict=True) if now != was)
        return TimelineState(timeline, tip, notes, links, trash, duplicates)

    def trash_entries(self) -> list[TrashEntry]:
        """Return the trash of all timelines."""
        with CatFile(self._repository.git) as reader:
            return [entry for entry in read_trash(self._repository, reader) if entry.links]

    def rewrite(self, timeline: str, decide: Decide, *, keeps: bool = True) -> RewriteResult:
        """Apply a decision to the current state of a timeline; `keeps`: removed snapshots are moved to the trash.

        Does nothing if nothing changes. If a capture changes the timeline meanwhile, it is decided again; from the
        third attempt on captures are locked out.
        """
        free = FREE_TRIES + len(self._pauses)
        for number in range(free + TRIES):
            if FREE_TRIES <= number < free:
                time.sleep(self._pauses[number - FREE_TRIES])
            with ExitStack() as stack:
                if number >= free:
                    stack.enter_context(self._exclusive())
                state = self.state(timeline)
                staging = stack.enter_context(
                    Staging.create(
                        self._repository.common_state, self._repository.pack_dir, self._repository.shared
                    )
                )
                wanted = decide(state, staging)
                if wanted.is_unchanged(state):
                    return RewriteResult({link.commit: link.commit for link in state.links})
                known = {entry.ref for entry, _ in wanted.trash}
                duplicates = tuple((one, one.links) for one in state.duplicates if one.ref not in known)
                wanted = replace(wanted, trash=(*wanted.trash, *duplicates))
                new = self._write(state, wanted, staging, keeps)
                if number < free:
                    stack.enter_context(self._exclusive())
                if self._move(new, staging):
                    self._history.refresh()
                    return RewriteResult(new.now, new.removed, tuple(self._warnings))
        raise GitFailed(f"'{TIMELINE_REFS}{timeline}' keeps changing", hint="run the command again")

    def _write(
        self, state: TimelineState, wanted: TimelineTarget, staging: Staging, keeps: bool
    ) -> NewTimeline:
        repository = self._repository
        find_key = self._history.keys.get
        summaries = SummaryWriter(repository.git.with_objects(staging.path), find_key)
        kept_commits = {link.commit for link in wanted.links}
        removed = tuple(link for link in state.links if link.commit not in kept_commits)
        with PackWriter(staging.pack_dir, repository.object_format) as writer:
            before = predecessors(state.links) | {
                link.commit: link.after for link in wanted.links if link.in_trash
            }
            cut_off = None if wanted.cuts_off else cut_off_in(state.links)
            now = rewrite_chain(writer, wanted.links, before, find_key, summaries, wanted.changes, cut_off)
            trash = TrashBuilder(writer, find_key, state, wanted)
            if keeps and removed:
                trash.take(removed, self.today)
            trash.rewrite()
            moves = self._notes_moves(now, trash, removed, state.notes)
            with CatFile(repository.git) as reader:
                notes = move_notes(
                    reader,
                    writer,
                    state.notes,
                    moves,
                    more={now[old]: lines for old, lines in wanted.more.items()},
                    without=[attachments_directory(link.id) for link in trash.expired],
                    identity=self._line,
                    object_format=repository.object_format,
                )
            pack = writer.finish()
        self._warnings = summaries.warnings
        tip = now[wanted.links[-1].commit] if wanted.links else None
        head = [RefUpdate(TIMELINE_REFS + state.timeline, tip, state.tip)] if tip != state.tip else []
        notes_update = (
            [RefUpdate(NOTES_REFS + state.timeline, notes, state.notes)] if notes is not None else []
        )
        refs = (*trash.moves, *notes_update, *head, *trash.removals)
        packs = [*wanted.packs, *([pack] if pack else [])]
        return NewTimeline({**now, **trash.now}, removed, refs, packs, bool(wanted.packs))

    def _notes_moves(
        self, now: Mapping[str, str], trash: TrashBuilder, removed: Sequence[ChainCommit], tip: str | None
    ) -> dict[str, list[str]]:
        """Return the commits to store each note on: also the old one, until the chain has moved."""
        if tip is None:
            return {}
        new_commits = {**now, **trash.now}
        moves = {old: [old, new] for old, new in new_commits.items() if old != new}
        moves |= {link.commit: [link.commit] for link in removed if link.commit not in new_commits}
        moves |= {link.commit: [] for link in trash.expired}
        # Notes that an earlier rewrite left on the old commit, or that were written there later.
        earlier = read_rewritten(self._repository.common_state)
        known = {*new_commits, *new_commits.values()}
        expired = {link.commit for link in trash.expired}
        for old in earlier:
            target = current_commit(earlier, old)
            if old not in known and target in known:
                moves[old] = [new_commits.get(target, target)]
            elif target in expired:
                moves[old] = []
        return moves

    def _move(self, new: NewTimeline, staging: Staging) -> bool:
        """Publish the objects and move the refs. Return False if a ref changed meanwhile."""
        repository = self._repository
        sweep(
            repository.common_state, repository.pack_dir, lambda commit: is_published(repository.git, commit)
        )
        for move in new.refs:
            if move.new is not None:
                staging.journal_commit(move.new)
        staging.publish(new.packs)
        if new.other_trees:
            clear_caches(repository)
        try:
            repository.move_refs(new.refs)
        except RefsMoved:
            return False
        repository.sync_refs([move.ref for move in new.refs])
        # The rewrite is complete; what follows only saves time.
        with suppress(EnvhistError):
            record_rewritten(repository.common_state, new.now)
        move_caches(repository, new.now)
        return True

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        place = state_directory(self._repository.common_state)
        with locked(os.path.join(place, COMMON_LOCK), limited=True):
            yield


def _without_duplicates(trash_entries: Sequence[TrashEntry], known: set[str]) -> Iterator[TrashEntry]:
    """Remove duplicates, the latest entry first: a kill between the refs leaves a snapshot in two entries."""
    for entry in trash_entries:
        links = tuple(link for link in entry.links if link.id not in known)
        known |= {link.id for link in links}
        yield entry._replace(links=links)
