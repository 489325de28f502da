"""Mends a history: what is sound stays, what is lost is brought back where it can be, what cannot is set aside.

The user's own git has to go on afterwards: no ref of ours leads to what is missing, no pack of ours is damaged. Nothing
is deleted: damaged packs stand in a directory of their own, and what was set aside is written down.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from git_envhist.capture.pipeline import CapturePipeline
from git_envhist.disk import COMMON_LOCK, UPKEEP_LOCK, locked, state_directory
from git_envhist.errors import Damaged, EnvhistError, GitFailed
from git_envhist.git.cat_file import CatFile
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, TRASH_REFS, RefUpdate, Repository, states_of
from git_envhist.lazy import dataclass
from git_envhist.maintenance.fsck import FsckFindings, check, mend
from git_envhist.maintenance.merge_packs import drop_damaged_list
from git_envhist.model import FsckReport
from git_envhist.objects.compress import crc32
from git_envhist.objects.own_packs import drop_broken_index, drop_graphs_of, restore_lost_indexes
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_reader import PackFile
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.objects.trees import object_id
from git_envhist.remote.fetch import transport_for
from git_envhist.remote.remotes import Transport, find_remote, remote_key
from git_envhist.remote.upload import RemoteState, read_remote_state
from git_envhist.rewrite.commits import ChainCommit
from git_envhist.rewrite.salvage import (
    gathered_notes,
    lost_snapshots,
    newest_whole,
    older_than,
    set_aside,
    write_down,
)
from git_envhist.rewrite.timeline import TimelineRewriter, TimelineState, TimelineTarget
from git_envhist.snapshots.fetched import FetchedStore
from git_envhist.snapshots.staging import Staging
from git_envhist.snapshots.timelines import forget_left_behind
from git_envhist.worktree.stat_cache import StatCache
from git_envhist.worktree.timeline_name import ensure_timeline

if TYPE_CHECKING:
    from git_envhist.context import HistoryContext


# Brings lost objects back: from what was fetched, from remotes that have them, from the working tree as it is now.
#
# The working tree is captured once more, into a staging that is thrown away: what is there now and was lost (a file
# that did not change, what is said of a directory, the pieces of a database) is among what the capture would store.

MAX_SINGLE = 200
"""Where a remote gives not all that is asked for, so many objects are asked for one by one."""

Objects = dict[bytes, tuple[bytes, bytes]]
"""id -> (kind, bytes)."""


@dataclass(frozen=True, slots=True)
class RecoveredObjects:
    """What came back, and from where."""

    ids: frozenset[bytes]
    told: tuple[str, ...]


def recover(capturing: CapturePipeline, directory: str, lost: frozenset[bytes]) -> RecoveredObjects:
    """Bring back what can be had of some objects, into a pack of ours."""
    repository = capturing.repository
    found: Objects = {}
    told: list[str] = []
    for source, objects in _sources(capturing, directory, lost):
        fresh = {oid: thing for oid, thing in objects.items() if oid not in found}
        if fresh:
            found |= fresh
            many = f"{len(fresh):,} objects came" if len(fresh) > 1 else "1 object came"
            told.append(f"{many} back from {source}")
        if len(found) == len(lost):
            break
    if found:
        _keep(repository, found)
    return RecoveredObjects(frozenset(found), tuple(told))


def _sources(
    capturing: CapturePipeline, directory: str, lost: frozenset[bytes]
) -> Iterator[tuple[str, Objects]]:
    repository = capturing.repository
    yield "what was fetched", _fetched(repository, lost)
    # A capture is cheaper than a network, and asks nobody.
    with suppress(EnvhistError):
        yield "the working tree", _present(capturing, lost)
    for name in os.fsdecode(repository.git.ask("remote").out).split():
        with suppress(EnvhistError):
            remote = find_remote(repository, name, directory)
            if read_remote_state(repository.common_state, remote_key(remote)) == RemoteState():
                continue  # nothing of ours was ever sent there
            fetched = FetchedStore.of(repository)
            fetched.ensure()
            fetched.set_remote(remote.name, remote.url)
            transport = transport_for(repository, fetched, remote, capturing.environ)
            _ask(transport, sorted(oid.hex() for oid in lost))
            yield f"the remote '{remote.name}'", _fetched(repository, lost)


def _ask(transport: Transport, names: list[str]) -> None:
    if transport.fetch_objects(names).status != 0:
        for name in names[:MAX_SINGLE]:
            transport.fetch_objects([name])


def _fetched(repository: Repository, lost: frozenset[bytes]) -> Objects:
    fetched = FetchedStore.of(repository)
    return dict(_read(repository, fetched, lost)) if fetched.exists else {}


def _read(
    repository: Repository, fetched: FetchedStore, lost: frozenset[bytes]
) -> Iterator[tuple[bytes, tuple[bytes, bytes]]]:
    for oid in sorted(lost):
        with CatFile(fetched.git) as reader, suppress(Damaged, GitFailed):
            answer = reader.read(oid.hex())
            if answer is not None:
                kind = answer.kind.encode("ascii")
                if object_id(kind, answer.data, repository.object_format) == oid:
                    yield oid, (kind, answer.data)


def _present(capturing: CapturePipeline, lost: frozenset[bytes]) -> Objects:
    repository = capturing.repository
    # What it remembers may name what was lost.
    StatCache(os.path.join(repository.state, "cache"), crc32).forget()
    found: Objects = {}
    with capturing.current_tree() as held:
        for staged in held.finish().packs:
            index = PackIndex(staged.index_path, repository.hash_length)
            with closing(PackFile(staged.pack_path, index, repository.object_format)) as pack:
                for oid in lost:
                    thing = pack.read(oid)
                    if thing is not None:
                        found[oid] = thing
    return found


def _keep(repository: Repository, found: Objects) -> None:
    with (
        Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging,
        PackWriter(staging.pack_dir, repository.object_format) as writer,
    ):
        for kind, data in found.values():
            writer.add(kind, data)
        pack = writer.finish()
        staging.publish([pack] if pack else [])
        staging.make_permanent()


ROUNDS = 6
"""What comes back may show that more is missing: a tree, what is below it."""


class Repair:
    """One repair."""

    def __init__(
        self, history: HistoryContext, capturing: CapturePipeline, tell: Callable[[str], None]
    ) -> None:
        self._history = history
        self._capturing = capturing
        self._repository = self._capturing.repository
        self._tell = tell
        self._done: list[str] = []

    def run(self) -> FsckReport:
        """Mend what can be mended; what a thorough check says afterwards."""
        state = state_directory(self._repository.common_state)
        with locked(os.path.join(state, UPKEEP_LOCK)):
            with locked(os.path.join(state, COMMON_LOCK)):
                found = self._mend_packs()
                self._put_back(found)
            if self._rejoin():
                found = check(self._repository, quick=True, tell=self._tell)
            found = self._bring_back(found)
            if found.lost or found.refs.bad:
                with locked(os.path.join(state, COMMON_LOCK)):
                    self._set_refs_aside(found)
                    self._drop_graph(found)
                self._rejoin()
                self._leave_out()
            self._forget_caches(found)
        self._write_name(found)
        if not lost_snapshots(self._repository):
            forget_left_behind(self._repository.common_state)
        after = check(self._repository, quick=False, tell=self._tell)
        return after.health(quick=False, repaired=self._done)

    def _mend_packs(self) -> FsckFindings:
        repository = self._repository
        for name in restore_lost_indexes(repository.common_state, repository.pack_dir):
            self._done.append(f"the index of {name} is back")
        if drop_broken_index(repository.pack_dir):
            self._done.append("git's multi-pack-index named packs that are gone, and was dropped")
        if drop_damaged_list(repository):
            self._done.append("git's multi-pack-index did not say what the packs say, and was dropped")
        found = check(repository, quick=False, tell=self._tell)
        for bad in found.looked.bad:
            self._tell("writing what is sound into new packs")
            place = os.path.relpath(mend(repository, bad), repository.root)
            self._done.append(f"what is sound of {bad.name} stands in a new pack, the damaged one in {place}")
        return check(repository, quick=False, tell=self._tell) if found.looked.bad else found

    def _bring_back(self, found: FsckFindings) -> FsckFindings:
        for _ in range(ROUNDS):
            lost = found.lost | {
                bytes.fromhex(bad.said) for bad in found.refs.bad if len(bad.said) in (40, 64)
            }
            if not lost:
                break
            self._tell("looking for what is lost")
            back = recover(self._capturing, self._history.directory, lost)
            if not back.ids:
                break
            self._done += back.told
            found = check(self._repository, quick=True, tell=self._tell)
        return found

    def _set_refs_aside(self, found: FsckFindings) -> None:
        repository = self._repository
        for bad in found.refs.bad:
            place = os.path.relpath(set_aside(repository, bad), repository.root)
            self._done.append(f"'{bad.ref}' is set aside: {bad.why} ({place})")
            self._put_another(bad.ref)

    def _put_back(self, found: FsckFindings) -> None:
        """Have a timeline that somebody deleted by hand be there again."""
        for fault in found.more:
            if fault.kind == "gone" and self._repository.resolve_ref(fault.subject) is None:
                self._put_another(fault.subject)
                notes = NOTES_REFS + fault.subject.removeprefix(TIMELINE_REFS)
                if self._repository.resolve_ref(notes) is None:
                    self._put_another(notes)

    def _rejoin(self) -> bool:
        """Have timelines that began anew go on from what stood before; whether any did."""
        found = lost_snapshots(self._repository)
        for timeline, older in found.items():
            self._put_before(timeline, older)
        return bool(found)

    def _put_before(self, timeline: str, older: Sequence[ChainCommit]) -> None:
        def decide(stand: TimelineState, _staging: Staging) -> TimelineTarget:
            known = {link.id for link in stand.links}
            return TimelineTarget(
                (*(link for link in older if link.id not in known), *stand.links), begins=True
            )

        done = TimelineRewriter(self._history).rewrite(timeline, decide, keeps=False)
        self._history.refresh()
        many = f"{len(older):,} moments are" if len(older) > 1 else "1 moment is"
        self._done.append(f"{many} on '{timeline}' again, which had begun anew")
        self._done += done.warnings

    def _put_another(self, ref: str) -> None:
        """Have a timeline, or its notes, be what the packs still hold of it."""
        newest = newest_whole(self._repository, ref)
        if newest is not None:
            self._repository.move_refs([RefUpdate(ref, newest, None)])
            self._repository.sync_refs([ref])
            self._done.append(f"'{ref}' is the newest that the packs hold of it: {newest[:7]}")

    def _drop_graph(self, found: FsckFindings) -> None:
        repository = self._repository
        lost = {bytes.fromhex(one.commit) for _, one in found.hurt if not one.lost}
        if drop_graphs_of(repository.objects_dir, lost, repository.hash_length):
            self._done.append("git's commit-graph spoke of what is lost, and was dropped")

    def _leave_out(self) -> None:
        """Have the chains go on without what is not whole."""
        for _ in range(ROUNDS):
            found = check(self._repository, quick=True, tell=self._tell)
            # Notes first: a chain that is rewritten takes its notes along.
            refs = sorted({ref for ref, _ in found.hurt}, key=lambda ref: not ref.startswith(NOTES_REFS))
            if not refs:
                return
            for ref in refs:
                hurt = {one.commit for where, one in found.hurt if where == ref}
                self._leave_out_of(ref, hurt)

    def _leave_out_of(self, ref: str, hurt: set[str]) -> None:
        for commit in sorted(hurt):
            write_down(
                self._repository, f"{'notes' if ref.startswith(NOTES_REFS) else 'snapshot'} {ref} {commit}"
            )
        if ref.startswith(TIMELINE_REFS):
            self._rewrite(ref.removeprefix(TIMELINE_REFS), hurt)
            return
        tip = self._repository.resolve_ref(ref)
        if ref.startswith(TRASH_REFS) or tip is None:
            self._repository.move_refs([RefUpdate(ref, None, tip)])
            self._done.append(f"'{ref}' is set aside: what was dropped there is not whole")
        else:
            self._renew_notes(ref, tip)

    def _rewrite(self, timeline: str, hurt: set[str]) -> None:
        repository = self._repository

        def decide(stand: TimelineState, _staging: Staging) -> TimelineTarget:
            links = tuple(link for link in stand.links if link.commit not in hurt)
            older: Sequence[ChainCommit] = ()
            if stand.links and stand.links[0].parent is not None:
                older = older_than(repository, timeline, stand.links)
            return TimelineTarget((*older, *links), begins=True)

        done = TimelineRewriter(self._history).rewrite(timeline, decide, keeps=False)
        self._history.refresh()
        many = f"{len(hurt):,} moments are" if len(hurt) > 1 else "1 moment is"
        self._done.append(f"{many} not whole and set aside; '{timeline}' goes on without")
        self._done += done.warnings

    def _renew_notes(self, ref: str, tip: str) -> None:
        """Have notes hold what can be read of them, with no history of their own."""
        new = gathered_notes(self._repository, ref)
        self._repository.move_refs([RefUpdate(ref, new, tip)])
        self._repository.sync_refs([ref])
        self._done.append(f"'{ref}' holds what can be read of it and of what it was before")

    def _write_name(self, found: FsckFindings) -> None:
        """Write the name of this working tree's timeline again if its file is damaged."""
        if any(fault.kind == "timeline" for fault in found.more):
            state = state_directory(self._repository.state)
            with locked(os.path.join(state, "lock")):
                ensure_timeline(self._repository, self._capturing.settings, self._done.append)

    def _forget_caches(self, found: FsckFindings) -> None:
        if any(fault.kind == "cache" for fault in found.more):
            for state in states_of(self._repository):
                StatCache(os.path.join(state, "cache"), crc32).forget()
            self._done.append("what was remembered is forgotten; the next capture reads every file")
