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
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, date

from git_envhist.capturing.identity import current_actor, signature
from git_envhist.capturing.publish import is_published
from git_envhist.doing.said import attachment_path
from git_envhist.errors import EnvhistError, GitFailed
from git_envhist.keeping.caches import forget_caches, move_caches
from git_envhist.keeping.means import HistoryContext
from git_envhist.keeping.stands import Decide, NewTimeline, RewriteResult, TimelineState, TimelineTarget
from git_envhist.keeping.telling import SummaryWriter
from git_envhist.keeping.trashing import TrashBuilder
from git_envhist.store.fetched import without_fetched
from git_envhist.store.locks import COMMON_LOCK, locked, state_directory
from git_envhist.store.notes import move_notes
from git_envhist.store.objects import CatFile
from git_envhist.store.packs import PackWriter
from git_envhist.store.relinking import cut_off_in, predecessors, read_links, relink
from git_envhist.store.repository import HEADS, NOTES, RefsMoved, RefUpdate
from git_envhist.store.retelling import ChainCommit
from git_envhist.store.rewritten import current_commit, read_rewritten, remember_rewritten
from git_envhist.store.staging import Staging, sweep
from git_envhist.store.trash import TrashEntry, read_trash
from git_envhist.values import replace

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
        self._repository = without_fetched(history.repository)
        self._warnings: list[str] = []
        self._pauses = PAUSES if gentle else ()
        self._line = signature(current_actor(history.settings, history.environ), history.now)

    @property
    def today(self) -> date:
        """The day on which something is let go."""
        return self._history.now.astimezone(UTC).date()

    def stand(self, timeline: str) -> TimelineState:
        """The timeline as it is now."""
        notes = self._repository.resolve_ref(NOTES + timeline)
        tip = self._repository.resolve_ref(HEADS + timeline)
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
                    self._history.forget_world()
                    return RewriteResult(new.now, new.gone, tuple(self._warnings))
        raise GitFailed(f"'{HEADS}{timeline}' would not stand still", hint="run the command again")

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
        head = [RefUpdate(HEADS + stand.timeline, tip, stand.tip)] if tip != stand.tip else []
        said = [RefUpdate(NOTES + stand.timeline, notes, stand.notes)] if notes is not None else []
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
