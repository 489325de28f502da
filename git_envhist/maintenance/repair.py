"""Repair a history: keep what is intact, recover lost objects if possible, and set the rest aside.

Afterwards the user's git works again: no ref of ours leads to a missing object, no pack of ours is damaged. Nothing
is deleted: damaged packs are moved to a directory of their own, and everything set aside is logged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from git_envhist.capture.pipeline import CapturePipeline
from git_envhist.disk import state_directory, sync_directory
from git_envhist.errors import Damaged, EnvhistError, GitFailed
from git_envhist.git.cat_file import CatFile
from git_envhist.git.repository import (
    NOTES_REFS,
    TIMELINE_REFS,
    TRASH_REFS,
    RefUpdate,
    Repository,
    state_directories,
)
from git_envhist.lazy import dataclass
from git_envhist.locks import COMMON_LOCK, UPKEEP_LOCK, locked
from git_envhist.maintenance.fsck import DamagedPack, FsckFindings, check_history, new_index
from git_envhist.maintenance.merge_packs import drop_damaged_list
from git_envhist.model import FsckReport
from git_envhist.objects.deflate import crc32
from git_envhist.objects.own_packs import (
    drop_broken_index,
    drop_caches,
    drop_graphs_of,
    remove_spare_links,
    restore_lost_indexes,
)
from git_envhist.objects.pack_file import PackFile
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.objects.trees import object_id
from git_envhist.remote.fetch import transport_for
from git_envhist.remote.remotes import find_remote, remote_key
from git_envhist.remote.transport import Transport
from git_envhist.remote.upload import RemoteState, read_remote_state
from git_envhist.rewrite.commits import ChainCommit
from git_envhist.rewrite.salvage import (
    log_removed,
    lost_snapshots,
    merge_readable_notes,
    newest_readable,
    older_than,
    set_aside,
)
from git_envhist.rewrite.timeline import TimelineRewriter, TimelineState, TimelineTarget
from git_envhist.snapshots.fetched_store import FetchedStore
from git_envhist.snapshots.restarted_timelines import clear_restarted
from git_envhist.snapshots.staging import Staging
from git_envhist.worktree.stat_cache import StatCache
from git_envhist.worktree.timeline_name import ensure_timeline

if TYPE_CHECKING:
    from git_envhist.context import HistoryContext


# Recover lost objects: from fetched timelines, from remotes, from the working tree.
#
# For the last, the working tree is captured into a staging that is discarded: unchanged files, metadata of
# directories, and chunks of a database are among the objects that the capture would store.

MAX_SINGLE = 200
"""If a remote does not return all objects at once, at most this many are requested one by one."""

Objects = dict[bytes, tuple[bytes, bytes]]
"""id -> (kind, bytes)."""


@dataclass(frozen=True, slots=True)
class RecoveredObjects:
    """The recovered objects and their sources."""

    ids: frozenset[bytes]
    sources: tuple[str, ...]


def recover_objects_of(
    capturing: CapturePipeline, directory: str, lost: frozenset[bytes]
) -> RecoveredObjects:
    """Recover as many lost objects as possible into a new pack."""
    repository = capturing.repository
    found: Objects = {}
    sources: list[str] = []
    for source, objects in _sources(capturing, directory, lost):
        fresh = {oid: thing for oid, thing in objects.items() if oid not in found}
        if fresh:
            found |= fresh
            many = f"{len(fresh):,} objects came" if len(fresh) > 1 else "1 object came"
            sources.append(f"{many} back from {source}")
        if len(found) == len(lost):
            break
    if found:
        _store(repository, found)
    return RecoveredObjects(frozenset(found), tuple(sources))


def _sources(
    capturing: CapturePipeline, directory: str, lost: frozenset[bytes]
) -> Iterator[tuple[str, Objects]]:
    repository = capturing.repository
    yield "the fetched timelines", _from_fetched(repository, lost)
    # Before the remotes: reading the working tree costs less than a transfer.
    with suppress(EnvhistError):
        yield "the working tree", _from_working_tree(capturing, lost)
    for name in os.fsdecode(repository.git.ask("remote").out).split():
        with suppress(EnvhistError):
            remote = find_remote(repository, name, directory)
            if read_remote_state(repository.common_state, remote_key(remote)) == RemoteState():
                continue  # nothing was ever pushed there
            fetched = FetchedStore.of(repository)
            fetched.ensure()
            fetched.set_remote(remote.name, remote.url)
            transport = transport_for(repository, fetched, remote, capturing.environ)
            _ask(transport, sorted(oid.hex() for oid in lost))
            yield f"the remote '{remote.name}'", _from_fetched(repository, lost)


def _ask(transport: Transport, names: list[str]) -> None:
    if transport.fetch_objects(names).status != 0:
        for name in names[:MAX_SINGLE]:
            transport.fetch_objects([name])


def _from_fetched(repository: Repository, lost: frozenset[bytes]) -> Objects:
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


def _from_working_tree(capturing: CapturePipeline, lost: frozenset[bytes]) -> Objects:
    repository = capturing.repository
    # The stat cache may refer to lost objects.
    StatCache(os.path.join(repository.state, "cache"), crc32).forget()
    found: Objects = {}
    with capturing.current_tree() as capture:
        for staged in capture.finish().packs:
            index = PackIndex(staged.index_path, repository.hash_length)
            with closing(PackFile(staged.pack_path, index, repository.object_format)) as pack:
                for oid in lost:
                    thing = pack.read(oid)
                    if thing is not None:
                        found[oid] = thing
    return found


def _store(repository: Repository, found: Objects) -> None:
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
"""A recovered object may show that more is missing: a tree leads to its entries."""


class Repair:
    """A run of a repair."""

    def __init__(
        self, history: HistoryContext, capturing: CapturePipeline, progress: Callable[[str], None]
    ) -> None:
        self._history = history
        self._capturing = capturing
        self._repository = self._capturing.repository
        self._progress = progress
        self._done: list[str] = []

    def run(self) -> FsckReport:
        """Repair what can be repaired. Return the report of a thorough check afterwards."""
        state = state_directory(self._repository.common_state)
        with locked(os.path.join(state, UPKEEP_LOCK)):
            with locked(os.path.join(state, COMMON_LOCK)):
                found = self._repair_packs()
                self._restore_refs(found)
            if self._rejoin_older():
                found = check_history(self._repository, quick=True, progress=self._progress)
            found = self._recover(found)
            if found.lost or found.refs.bad:
                with locked(os.path.join(state, COMMON_LOCK)):
                    self._set_refs_aside(found)
                    self._drop_graph(found)
                self._rejoin_older()
                self._drop_incomplete()
            self._forget_caches(found)
        self._write_name(found)
        if not lost_snapshots(self._repository):
            clear_restarted(self._repository.common_state)
        after = check_history(self._repository, quick=False, progress=self._progress)
        return after.health(quick=False, repaired=self._done)

    def _repair_packs(self) -> FsckFindings:
        repository = self._repository
        for name in restore_lost_indexes(repository.common_state, repository.pack_dir):
            self._done.append(f"the index of {name} was restored")
        if drop_broken_index(repository.pack_dir):
            self._done.append("git's multi-pack-index named missing packs, and was deleted")
        if drop_damaged_list(repository):
            self._done.append("git's multi-pack-index disagreed with the packs, and was deleted")
        found = check_history(repository, quick=False, progress=self._progress)
        for bad in found.pack_check.bad:
            self._progress("writing intact objects into new packs")
            place = os.path.relpath(repair_pack(repository, bad), repository.root)
            self._done.append(
                f"the intact objects of {bad.name} are in a new pack, the damaged pack is in {place}"
            )
        return (
            check_history(repository, quick=False, progress=self._progress) if found.pack_check.bad else found
        )

    def _recover(self, found: FsckFindings) -> FsckFindings:
        for _ in range(ROUNDS):
            lost = found.lost | {
                bytes.fromhex(bad.content) for bad in found.refs.bad if len(bad.content) in (40, 64)
            }
            if not lost:
                break
            self._progress("looking for lost objects")
            back = recover_objects_of(self._capturing, self._history.directory, lost)
            if not back.ids:
                break
            self._done += back.sources
            found = check_history(self._repository, quick=True, progress=self._progress)
        return found

    def _set_refs_aside(self, found: FsckFindings) -> None:
        repository = self._repository
        for bad in found.refs.bad:
            place = os.path.relpath(set_aside(repository, bad), repository.root)
            self._done.append(f"'{bad.ref}' was set aside: {bad.why} ({place})")
            self._restore_ref(bad.ref)

    def _restore_refs(self, found: FsckFindings) -> None:
        """Restore the ref of a timeline that was deleted by hand."""
        for fault in found.other_faults:
            if fault.kind == "gone" and self._repository.resolve_ref(fault.subject) is None:
                self._restore_ref(fault.subject)
                notes = NOTES_REFS + fault.subject.removeprefix(TIMELINE_REFS)
                if self._repository.resolve_ref(notes) is None:
                    self._restore_ref(notes)

    def _rejoin_older(self) -> bool:
        """Continue restarted timelines from their older snapshots. Return whether there were any."""
        found = lost_snapshots(self._repository)
        for timeline, older in found.items():
            self._prepend(timeline, older)
        return bool(found)

    def _prepend(self, timeline: str, older: Sequence[ChainCommit]) -> None:
        def decide(state: TimelineState, _staging: Staging) -> TimelineTarget:
            known = {link.id for link in state.links}
            return TimelineTarget(
                (*(link for link in older if link.id not in known), *state.links), cuts_off=True
            )

        done = TimelineRewriter(self._history).rewrite(timeline, decide, keeps=False)
        self._history.refresh()
        many = f"{len(older):,} snapshots are" if len(older) > 1 else "1 snapshot is"
        self._done.append(f"{many} on '{timeline}' again, which had been restarted")
        self._done += done.warnings

    def _restore_ref(self, ref: str) -> None:
        """Set the ref of a timeline, or of its notes, to the newest commit that the packs contain."""
        newest = newest_readable(self._repository, ref)
        if newest is not None:
            self._repository.move_refs([RefUpdate(ref, newest, None)])
            self._repository.sync_refs([ref])
            self._done.append(f"'{ref}' was set to the newest commit in the packs: {newest[:7]}")

    def _drop_graph(self, found: FsckFindings) -> None:
        repository = self._repository
        lost = {bytes.fromhex(one.commit) for _, one in found.damaged if not one.lost}
        if drop_graphs_of(repository.objects_dir, lost, repository.hash_length):
            self._done.append("git's commit-graph named lost commits, and was deleted")

    def _drop_incomplete(self) -> None:
        """Rewrite the chains without incomplete snapshots."""
        for _ in range(ROUNDS):
            found = check_history(self._repository, quick=True, progress=self._progress)
            # Notes first: a chain that is rewritten takes its notes along.
            refs = sorted({ref for ref, _ in found.damaged}, key=lambda ref: not ref.startswith(NOTES_REFS))
            if not refs:
                return
            for ref in refs:
                damaged = {one.commit for where, one in found.damaged if where == ref}
                self._drop_from(ref, damaged)

    def _drop_from(self, ref: str, damaged: set[str]) -> None:
        for commit in sorted(damaged):
            log_removed(
                self._repository, f"{'notes' if ref.startswith(NOTES_REFS) else 'snapshot'} {ref} {commit}"
            )
        if ref.startswith(TIMELINE_REFS):
            self._rewrite(ref.removeprefix(TIMELINE_REFS), damaged)
            return
        tip = self._repository.resolve_ref(ref)
        if ref.startswith(TRASH_REFS) or tip is None:
            self._repository.move_refs([RefUpdate(ref, None, tip)])
            self._done.append(f"'{ref}' was set aside: a dropped snapshot in it is incomplete")
        else:
            self._renew_notes(ref, tip)

    def _rewrite(self, timeline: str, damaged: set[str]) -> None:
        repository = self._repository

        def decide(state: TimelineState, _staging: Staging) -> TimelineTarget:
            links = tuple(link for link in state.links if link.commit not in damaged)
            older: Sequence[ChainCommit] = ()
            if state.links and state.links[0].parent is not None:
                older = older_than(repository, timeline, state.links)
            return TimelineTarget((*older, *links), cuts_off=True)

        done = TimelineRewriter(self._history).rewrite(timeline, decide, keeps=False)
        self._history.refresh()
        many = f"{len(damaged):,} snapshots are" if len(damaged) > 1 else "1 snapshot is"
        self._done.append(f"{many} incomplete and set aside; '{timeline}' continues without")
        self._done += done.warnings

    def _renew_notes(self, ref: str, tip: str) -> None:
        """Replace notes by what can be read of them, without their history."""
        new = merge_readable_notes(self._repository, ref)
        self._repository.move_refs([RefUpdate(ref, new, tip)])
        self._repository.sync_refs([ref])
        self._done.append(f"'{ref}' contains everything readable of it and of its older versions")

    def _write_name(self, found: FsckFindings) -> None:
        """Write the name of this working tree's timeline again if its file is damaged."""
        if any(fault.kind == "timeline" for fault in found.other_faults):
            state = state_directory(self._repository.state)
            with locked(os.path.join(state, "lock")):
                ensure_timeline(self._repository, self._capturing.settings, self._done.append)

    def _forget_caches(self, found: FsckFindings) -> None:
        if any(fault.kind == "cache" for fault in found.other_faults):
            for state in state_directories(self._repository):
                StatCache(os.path.join(state, "cache"), crc32).forget()
            self._done.append("the stat caches were deleted; the next capture reads every file")


# Packs: checked by git, and object by object if git reports damage.

DAMAGED = "damaged"


def repair_pack(repository: Repository, bad: DamagedPack) -> str:
    """Write the intact objects of a damaged pack to a new pack and set the damaged one aside.

    Return its new directory. The caller holds the common lock exclusively.
    """
    with Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging:
        base = os.path.join(repository.pack_dir, bad.name)
        with PackWriter(staging.pack_dir, repository.object_format) as writer:
            for kind, data in _intact(repository, base, staging):
                writer.add(kind, data)
            pack = writer.finish()
        staging.publish([pack] if pack else [])
        staging.make_permanent()
    place = state_directory(os.path.join(repository.common_state, DAMAGED))
    remove_spare_links(repository.common_state, repository.pack_dir, [bad.name])
    drop_caches(repository.pack_dir, [bad.name])
    # git stops seeing the pack with its index. No file is deleted.
    for suffix in (".idx", ".rev", ".bitmap", ".pack", ".keep"):
        try:
            _move(base + suffix, os.path.join(place, bad.name + suffix))
        except FileNotFoundError:
            continue
    drop_caches(repository.pack_dir, [bad.name])
    sync_directory(place)
    sync_directory(repository.pack_dir)
    return place


def _move(source: str, target: str) -> None:
    try:
        os.rename(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        import shutil  # loaded late: only if the packs are on another file system

        shutil.copy2(source, target)
        os.unlink(source)


def _intact(repository: Repository, base: str, staging: Staging) -> Iterator[tuple[bytes, bytes]]:
    """Yield every object that can be read from a damaged pack."""
    made = new_index(repository, base, staging.path)
    try:
        index = PackIndex(made or base + ".idx", repository.hash_length)
    except (OSError, Damaged):
        return
    pack = PackFile(base + ".pack", index, repository.object_format)
    try:
        for oid in index.names():
            try:
                found = pack.read(oid)
            except (Damaged, OSError):
                continue
            if found is not None:
                yield found
    finally:
        pack.close()
