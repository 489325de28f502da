"""Erases paths from every snapshot, from the trash, and from whatever else of ours holds them.

There is no way back: nothing is kept of what goes. First every timeline is rewritten, then what might remember it is
forgotten, and at last the packs are written without it. Killed anywhere, the same words finish it.

What is not ours is told and not touched: git's own objects where the file was committed or staged, and what was pushed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence

from git_envhist.capturing.leftovers import restore_directory
from git_envhist.capturing.publish import is_published
from git_envhist.errors import Damaged, GitFailed, Refused, SnapshotNotFound, UnfinishedRestore
from git_envhist.keeping.caches import forget_caches, states_of
from git_envhist.keeping.digests import DigestEraser, keyed_digest
from git_envhist.keeping.factsless import FACTS_OF_VARIABLES, facts_less, without_variable_names
from git_envhist.keeping.leftovers import (
    fetched_contains,
    forget_fetched,
    forget_reflogs,
    forget_workplaces,
    imported_here,
    pushed_timelines,
    remaining_objects,
)
from git_envhist.keeping.means import HistoryContext
from git_envhist.keeping.rewriting import TimelineRewriter
from git_envhist.keeping.stands import TimelineState, TimelineTarget
from git_envhist.model import EnvPath
from git_envhist.model.keeping import PurgeResult, RemainingObject
from git_envhist.store.collecting import NOTHING_STAYS, collect
from git_envhist.store.erasing import Eraser
from git_envhist.store.fetched import without_fetched
from git_envhist.store.handover import RepositoryBusy
from git_envhist.store.layout import ATTACHMENTS, RESERVED
from git_envhist.store.objects import CatFile
from git_envhist.store.packs import PackWriter
from git_envhist.store.relinking import CommitChange
from git_envhist.store.remotememory import directory_of
from git_envhist.store.repository import HEADS, Repository
from git_envhist.store.retelling import ChainCommit
from git_envhist.store.staging import Staging, sweep
from git_envhist.upkeep.finding import lost_snapshots
from git_envhist.values import dataclass, field, replace
from git_envhist.verifying.areas import hidden_base, open_base
from git_envhist.verifying.areas import sweep as sweep_areas

ATTACHED = os.fsdecode(RESERVED + b"/" + ATTACHMENTS)
SET_ASIDE = ("damaged", "set-aside")
CONTENT, MISSING, COMPLETE, STORY = "Env-Content", "Env-Missing", "Env-Complete", "Env-Story"


class PathNotFound(SnapshotNotFound):
    """No snapshot holds such a path."""

    code = "no-such-path"

    def __init__(self, path: str) -> None:
        super().__init__(path, hint="what no snapshot holds is gone; 'git envlog -- <path>' tells of a path")
        self.message = f"no snapshot holds '{path}'"
        self.args = (self.message,)


@dataclass(slots=True)
class _PurgeTotals:
    """What was found in all timelines, by commits."""

    snapshots: dict[str, None] = field(default_factory=dict)
    in_trash: dict[str, None] = field(default_factory=dict)
    attached: dict[str, None] = field(default_factory=dict)
    mentioned: dict[str, None] = field(default_factory=dict)
    found: dict[EnvPath, None] = field(default_factory=dict)
    erased: dict[bytes, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)


class Purger:
    """Erases paths from a history."""

    def __init__(self, history: HistoryContext) -> None:
        self._history = history
        self._repository: Repository = without_fetched(history.repository)
        self._rewriting = TimelineRewriter(history)
        self._variable_names = False

    def purge(
        self,
        paths: Sequence[EnvPath],
        *,
        variable_names: bool = False,
        dry_run: bool = False,
        force: bool = False,
    ) -> PurgeResult:
        """Erase them; `PathNotFound` where nothing holds any, after what nothing holds any more was cleaned away.

        `variable_names`: also the names of variables that earlier versions stored without sealing them. `force`:
        ignore a git of another user if the system hides in which repository it works.
        """
        repository = self._repository
        self._variable_names = variable_names
        self._refuse_left()
        self._refuse_left_behind()
        # Asked while what was sent can still be read here.
        stored = (FACTS_OF_VARIABLES,) if variable_names else ()
        sent = pushed_timelines(repository, self._history.directory, paths, stored)
        fetched = fetched_contains(repository, paths)
        imported = imported_here(repository) if fetched else ()
        tally = _PurgeTotals()
        for timeline in self._timelines():
            self._erase_from(timeline, paths, tally, dry_run=dry_run)
        if not dry_run:
            forget_fetched(repository, holds=fetched)
            self._forget(force=force)
        nowhere = [os.fsdecode(path) for path in paths if path not in tally.found and not fetched]
        if nowhere and len(nowhere) == len(paths) and not variable_names:
            raise PathNotFound(nowhere[0])
        tally.warnings.update(dict.fromkeys(f"no snapshot holds '{path}'" for path in nowhere))
        tally.warnings.update(dict.fromkeys(self._not_looked_into()))
        top = os.fsencode(repository.root)
        return PurgeResult(
            tuple(paths),
            len(tally.snapshots),
            len(tally.in_trash),
            sent if tally.snapshots or tally.in_trash or fetched else (),
            fetched,
            () if dry_run else self._left(tally),
            tuple(path for path in paths if os.path.lexists(os.path.join(top, path))),
            len(tally.attached),
            len(tally.mentioned),
            dry_run,
            tuple(tally.warnings),
            variable_names,
            imported,
        )

    def _left(self, tally: _PurgeTotals) -> tuple[RemainingObject, ...]:
        try:
            return tuple(remaining_objects(self._repository, list(tally.erased)))
        except GitFailed as failed:
            told = f"it is erased; what of yours still has the same content cannot be told: {failed.message}"
            tally.warnings[told] = None
            return ()

    def _not_looked_into(self) -> Iterator[str]:
        """What a repair set aside is nobody's to change, and may hold anything."""
        for name in SET_ASIDE:
            place = os.path.join(self._repository.common_state, name)
            if os.path.isdir(place) and os.listdir(place):
                yield f"what 'git envlog fsck --repair' set aside was not looked into: '{place}'"

    def _refuse_left(self) -> None:
        """What a restore left half done holds bytes of its own."""
        for state in states_of(self._repository):
            if os.path.lexists(os.path.join(restore_directory(state), "journal")):
                raise UnfinishedRestore

    def _refuse_left_behind(self) -> None:
        """What a timeline had before it began anew is on no chain that could be rewritten."""
        for timeline in lost_snapshots(self._repository):
            raise Refused(
                f"moments from before '{timeline}' began anew may hold it, too",
                hint="put them back first: git envlog fsck --repair",
            )

    def _timelines(self) -> list[str]:
        heads = [ref.removeprefix(HEADS) for ref in self._repository.list_refs(HEADS)]
        return sorted({*heads, *(bundle.timeline for bundle in self._rewriting.bundles())} - {""})

    def _erase_from(
        self, timeline: str, paths: Sequence[EnvPath], tally: _PurgeTotals, *, dry_run: bool
    ) -> None:
        """Erase them from one timeline and its trash."""
        repository = self._repository

        def decide(stand: TimelineState, staging: Staging) -> TimelineTarget:
            with (
                CatFile(repository.git) as reader,
                PackWriter(staging.pack_dir, repository.object_format) as writer,
            ):
                eraser = Eraser(reading(reader), writer, repository.hash_length, paths, self._facts_less)
                changes = self._changes(stand, eraser, reader, tally)
                tally.found.update(eraser.found)
                tally.erased.update(eraser.erased)
                if dry_run or not changes:
                    return TimelineTarget(stand.links)
                pack = writer.finish()
            trash = tuple((bundle, bundle.links) for bundle in stand.trash)
            return TimelineTarget(
                stand.links, trash, changes=changes, packs=(pack,) if pack is not None else ()
            )

        done = self._rewriting.rewrite(timeline, decide, keeps=False)
        tally.warnings.update(dict.fromkeys(done.warnings))

    def _facts_less(self, probe: str, text: bytes, paths: Collection[bytes]) -> bytes:
        if self._variable_names:
            text = without_variable_names(probe, text)
        return facts_less(probe, text, paths, self._history.keys.get) if paths else text

    def _changes(
        self, stand: TimelineState, eraser: Eraser, reader: CatFile, tally: _PurgeTotals
    ) -> dict[str, CommitChange]:
        """By commit, what each snapshot is without them."""
        changes: dict[str, CommitChange] = {}
        in_trash = [link for bundle in stand.trash for link in bundle.links]
        for link in (*stand.links, *in_trash):
            tree = eraser.erase(link.tree) if link.snapshot else link.tree
            if tree != link.tree:
                changes[link.commit] = CommitChange(tree, self._trailers(link, eraser, tree))
                (tally.in_trash if link.in_trash else tally.snapshots)[link.commit] = None
            intent = link.data.message.rpartition(b"\n\n")[0]
            if any(bytes(path) in intent for path in eraser.paths):
                tally.mentioned[link.commit] = None
            if link.snapshot and reader.read(f"{link.tree}:{ATTACHED}") is not None:
                tally.attached[link.commit] = None
        ids = {link.id for link in (*stand.links, *in_trash) if link.commit in changes}
        for link in in_trash:
            # What it said of the one before it is told anew when it is brought back.
            if link.commit in changes or link.after in ids:
                told = changes.get(link.commit, CommitChange(link.tree))
                changes[link.commit] = CommitChange(told.tree, {**told.trailers, STORY: ""})
        return changes

    def _trailers(self, link: ChainCommit, eraser: Eraser, tree: str) -> dict[str, str | None]:
        # Keyed, for it says something of what is gone; equal environments stay equal.
        told: dict[str, str | None] = {}
        if eraser.paths:
            told[CONTENT] = keyed_digest(self._history.keys.current(), link.content)
        if link.partial:
            missing = eraser.missing_in(tree)
            told[MISSING] = str(missing) if missing else None
            told[COMPLETE] = "partial" if missing else "yes"
        return told

    def _forget(self, *, force: bool) -> None:
        """Have nothing of ours hold what no snapshot holds any more."""
        repository = self._repository
        stands = [self._rewriting.stand(timeline) for timeline in self._timelines()]
        trash = (link for stand in stands for bundle in stand.trash for link in bundle.links)
        chains = (link for stand in stands for link in stand.links)
        DigestEraser(self._history, repository, (*chains, *trash)).forget()
        forget_caches(repository)
        remotes = directory_of(repository.common_state)
        for name in os.listdir(remotes) if os.path.isdir(remotes) else ():
            if name.endswith(".upload"):
                shutil.rmtree(os.path.join(remotes, name), ignore_errors=True)
        forget_workplaces(repository)
        for base in (hidden_base(repository.common_state), open_base(self._history.environ)):
            sweep_areas(base)
        forget_reflogs(repository)
        # What an earlier run put aside when it was killed comes back, and goes with the rest.
        git = repository.git
        sweep(repository.common_state, repository.pack_dir, lambda commit: is_published(git, commit))
        try:
            collect(replace(repository, ignores_hidden=force), keep_since=NOTHING_STAYS)
        except RepositoryBusy as busy:
            told = f"no snapshot holds it any more, but {busy.message}"
            raise RepositoryBusy(told, hint=busy.hint) from busy


def reading(reader: CatFile) -> Callable[[bytes], bytes]:
    """Return a function that reads an object; `Damaged` where it is missing."""

    def read(oid: bytes) -> bytes:
        answer = reader.read(oid.hex())
        if answer is None:
            raise Damaged(f"an object of a snapshot is missing: '{oid.hex()}'", hint="git envlog fsck")
        return answer.data

    return read
