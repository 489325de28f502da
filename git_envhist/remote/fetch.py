"""Fetch the timelines of a remote into a repository of their own, and their contents on demand.

The names of the remote's refs are read first, and only refs with valid names are fetched, one by one. They
arrive under refs that no command reads, are checked (sizes, tree sizes, signed heads), and move in one transaction to
refs that name the remote. If git refuses the data or it is too large, halves are fetched until the bad timelines are
found; all others are fetched. An interrupted fetch leaves all timelines unchanged, and the next one continues.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from git_envhist.disk import remove_if_present
from git_envhist.errors import Damaged, GitFailed, Refused
from git_envhist.git.cat_file import CatFile
from git_envhist.git.limits import LISTED, DecompressionBomb, find_large
from git_envhist.git.process import Git
from git_envhist.git.repository import Repository
from git_envhist.lazy import replace
from git_envhist.model import TOP, EnvPath, Snapshot
from git_envhist.model.sharing import FetchOutcome, FetchResult, Remote
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.trees import DIRECTORY, decode_tree
from git_envhist.remote.errors import RemoteFailed, RemoteTimeout, bomb_error, fetch_error
from git_envhist.remote.push_plan import HEADS_PREFIX, RemoteRefs, read_remote_refs
from git_envhist.remote.remotes import OUR_REFS, find_fetched_remote, find_remote, own_config, read_limits
from git_envhist.remote.transport import Transport
from git_envhist.remote.verify_fetched import CheckedHeads, FindKey, HeadChecker, no_key
from git_envhist.secrets.ssh_signatures import SshSettings
from git_envhist.snapshots.chunks import chunks_path, read_pointer
from git_envhist.snapshots.fetched_store import (
    ARRIVING,
    FETCHED_NOTES,
    INDEX,
    REMOTES,
    FetchedStore,
    split_name,
    without_fetched_objects,
)
from git_envhist.snapshots.layout import MANIFEST, shard_path, stored_places
from git_envhist.snapshots.notes import list_cross_machine_notes
from git_envhist.snapshots.oversized_trees import TreeSizer, trees_of_notes, trees_of_snapshots
from git_envhist.snapshots.stored_names import RESERVED, stored_name

# Check fetched packs before anything reads them. Every command that lists a history reads commits, trees and notes
# whole, and a few bytes of a pack can expand to gigabytes of them. git checks checksums and formats, not sizes, so the
# sizes of all new objects are listed, which reads only their headers. Trees that contain each other many times are as
# dangerous, so the trees of snapshots and notes are measured. If a limit is exceeded, all fetched data is removed.

ENDINGS = (INDEX, ".rev", ".promisor", ".pack")
"""Order of removal: git uses a pack while its index exists."""


class ArrivedPacks:
    """The packs that arrived since this object was created, and those that an interrupted fetch left unchecked."""

    def __init__(self, fetched: FetchedStore, known: Iterable[str] | None = None) -> None:
        """`known` are the checked packs; by default all existing ones."""
        self._fetched = fetched
        self._known = fetched.packs() if known is None else frozenset(known)
        self._sized = self._known

    def check_sizes(self, remote: Remote, notes: Iterable[str] = ()) -> None:
        """Check the sizes of new objects; on `DecompressionBomb` everything that arrived was removed."""
        new = self._fetched.packs() - self._sized
        found = find_large(self._fetched.git, notes, self._sizes(new)) if new else None
        if found is not None:
            raise self._refused(remote, found)
        self._sized |= new

    def check_trees(self, remote: Remote, trees: Iterable[str]) -> None:
        """Check the number of paths in some trees; on `DecompressionBomb` everything that arrived was removed."""
        try:
            with CatFile(self._fetched.git) as reader:
                endless = TreeSizer(reader, self._fetched.hash_length).find_endless(trees)
        except Damaged as damaged:
            raise self._refused(remote, f"incomplete objects: {damaged.message}") from damaged
        if endless is not None:
            raise self._refused(remote, "trees with more paths than any environment has")

    def mark_checked(self) -> None:
        """Record that all packs were checked, so that packs of an interrupted fetch can be recognised."""
        self._fetched.add_checked_packs(self._sized - self._known)

    def remove_arrived(self) -> None:
        """Remove everything that arrived and was not accepted."""
        self._fetched.delete_arriving()
        place = self._fetched.pack_dir
        for name in self._fetched.packs() - self._known:
            for ending in ENDINGS:
                remove_if_present(os.path.join(place, name + ending))

    def _refused(self, remote: Remote, content: str) -> DecompressionBomb:
        self.remove_arrived()
        return bomb_error(remote, f"contains {content}")

    def _sizes(self, packs: Iterable[str]) -> bytes:
        names = bytearray()
        for pack in packs:
            index = PackIndex(os.path.join(self._fetched.pack_dir, pack + INDEX), self._fetched.hash_length)
            try:
                names += b"".join(b"%b\n" % name.hex().encode("ascii") for name in index.names())
            finally:
                index.close()
        return self._fetched.git.run("cat-file", "--buffer", LISTED, stdin=bytes(names))


# Contents on demand: missing objects of a fetched snapshot are fetched from the same remote, all at once. Commits,
# trees, notes and lists came with the fetch. The manifest and the files are fetched when a command compares or
# restores them.

POINTER = b"envhist-pieces 1\n"
NO_LISTS = (b"pieces", b"dotgit", b"roots", b"attachments", b"staged")
FIRST_BATCH, MIN_BATCH, MAX_BATCH = 2_000, 500, 50_000
SHORT_BATCH, LONG_BATCH = 2.0, 10.0
"""Duration of a batch in seconds."""


def fetch_missing(
    repository: Repository,
    environ: Mapping[str, str],
    snapshot: Snapshot,
    paths: Sequence[EnvPath] = (),
    waiting: Callable[[], None] | None = None,
) -> None:
    """Fetch missing objects of a fetched snapshot: its lists and some paths; everything if `paths` has the top."""
    fetched = FetchedStore.of(repository)
    if TOP in paths:
        fetch_objects(repository, environ, snapshot, fetched.missing([snapshot.tree]), waiting)
        return
    (lists,) = lists_of(fetched, [snapshot.tree])
    blobs = [place for path in paths for place in _path_objects(fetched, snapshot.tree, path)]
    fetch_objects(
        repository, environ, snapshot, fetched.missing(lists.trees, [*lists.blobs, *blobs]), waiting
    )
    pieces = [tree for path in paths for tree in _chunk_trees(fetched, snapshot.tree, path)]
    fetch_objects(repository, environ, snapshot, fetched.missing(pieces), waiting)


def fetch_blobs(
    repository: Repository, environ: Mapping[str, str], snapshot: Snapshot, blobs: Sequence[str]
) -> None:
    """Fetch some blobs of a fetched snapshot."""
    fetch_objects(repository, environ, snapshot, FetchedStore.of(repository).missing(blobs=blobs))


def fetch_objects(
    repository: Repository,
    environ: Mapping[str, str],
    snapshot: Snapshot,
    missing: Sequence[str],
    waiting: Callable[[], None] | None = None,
) -> None:
    """Fetch objects from the remote of a snapshot."""
    if not missing:
        return
    fetched = FetchedStore.of(repository)
    remote = find_fetched_remote(repository, fetched.git, split_name(snapshot.timeline)[0])
    with fetched.lock_for_receiving(waiting):
        fetched.set_remote(remote.name, remote.url)
        try:
            arrivals = ArrivedPacks(fetched)
            fetch_batches(transport_for(repository, fetched, remote, environ), missing)
            arrivals.check_sizes(remote)
            arrivals.mark_checked()
        except RemoteFailed as failed:
            raise RemoteFailed(
                failed.message,
                hint=f"contents of '{snapshot.timeline}' are not stored here yet, and only this remote has them"
                + (f"\n{failed.hint}" if failed.from_remote else ""),
            ) from failed


def transport_for(
    repository: Repository,
    fetched: FetchedStore,
    remote: Remote,
    environ: Mapping[str, str],
    step: Callable[[str], None] | None = None,
) -> Transport:
    """Return the transport for fetching from a remote."""
    limits = read_limits(repository.read_config())
    config = own_config(repository)
    memory, timeout = limits.fetch_memory, limits.fetch_timeout
    return Transport(fetched.git, remote, environ, config, memory=memory, timeout=timeout, step=step)


def fetch_batches(transport: Transport, missing: Sequence[str]) -> None:
    """Fetch objects in batches of a few seconds each: an interrupted connection loses one batch."""
    start, many = 0, FIRST_BATCH
    while start < len(missing):
        began = time.monotonic()
        done = transport.fetch_objects(list(missing[start : start + many]))
        if done.status != 0:
            raise fetch_error(transport.remote, done)
        start += many
        many = next_batch_size(many, time.monotonic() - began)


def next_batch_size(many: int, seconds: float) -> int:
    """Return the size of the next batch after one of `many` objects that took `seconds`."""
    if seconds > LONG_BATCH:
        return max(MIN_BATCH, many // 2)
    return min(MAX_BATCH, many * 4) if seconds < SHORT_BATCH else many


class SnapshotLists(NamedTuple):
    """The trees and blobs with the lists of a snapshot."""

    trees: list[str]
    blobs: list[str]


def lists_of(
    fetched: FetchedStore, trees: Sequence[str], *, manifest: bool = True
) -> Iterator[SnapshotLists]:
    """Yield the lists of each tree: skipped paths, facts, and the manifest."""
    with CatFile(fetched.git) as reader:
        answers = reader.read_many([f"{tree}:{os.fsdecode(RESERVED)}" for tree in trees])
        for tree, found in zip(trees, answers, strict=True):
            lists = SnapshotLists([], [])
            if found is not None and found.kind == "tree":
                for name, mode, oid in decode_tree(found.data, len(tree) // 2):
                    if name not in NO_LISTS and (manifest or name != MANIFEST):
                        (lists.trees if mode == DIRECTORY else lists.blobs).append(oid.hex())
            yield lists


def _path_objects(fetched: FetchedStore, tree: str, path: EnvPath) -> Iterator[str]:
    """Yield the blob of a path and its manifest shard, if the tree contains them."""
    wanted = []
    for directory, name in stored_places(path):
        outer, inner = shard_path(directory)
        wanted.append(b"/".join((RESERVED, MANIFEST, outer.encode(), inner.encode())))
        above = directory + b"/" if directory else b""
        wanted += [above + stored_name(name, top=not directory, link=link) for link in (False, True)]
    for place in dict.fromkeys(wanted):
        done = fetched.git.ask(
            "rev-parse", "--verify", "--quiet", "--end-of-options", tree.encode() + b":" + place
        )
        if done.status == 0:
            yield done.out.decode("ascii").strip()


def _chunk_trees(fetched: FetchedStore, tree: str, path: EnvPath) -> Iterator[str]:
    """Yield the tree of chunks that a path points to."""
    with CatFile(fetched.git) as reader:
        for oid in list(_path_objects(fetched, tree, path)):
            found = reader.read(oid)
            if found is not None and found.data.startswith(POINTER):
                try:
                    outer, inner = chunks_path(read_pointer(found.data).tree)
                except Damaged:
                    continue
                yield outer + inner


LAZY = ("--filter=blob:none",)
WHOLE = ("--no-filter",)
NO_NEGOTIATION = ("-c", "fetch.negotiationAlgorithm=noop")
MAX_REFSPECS = 1000
BY_CONTENT = (Damaged, GitFailed, RemoteFailed)
"""Errors that one bad timeline among many may cause."""


def fetch(
    repository: Repository,
    environ: Mapping[str, str],
    directory: str,
    word: str | None,
    *,
    full: bool = False,
    find_key: FindKey = no_key,
    accept_rollback: bool = False,
    waiting: Callable[[], None] | None = None,
    step: Callable[[str], None] | None = None,
) -> FetchResult:
    """Fetch the timelines of a remote with their notes; `full` fetches all contents, too.

    `find_key` returns the sealing keys that may have signed a head. `accept_rollback` accepts timelines that do not
    match their signed head.
    """
    remote = find_remote(repository, word, directory)
    fetched = FetchedStore.of(repository)
    fetched.ensure()
    with fetched.lock_for_receiving(waiting):
        if fetched.was_imported(remote.name):
            raise Refused(
                f"'{remote.name}' is the name of an imported file",
                hint=f"rename the remote: git remote rename {remote.name} <name>",
            )
        fetched.set_remote(remote.name, remote.url)
        transport = transport_for(repository, fetched, remote, environ, step)
        ssh = SshSettings.of(repository.read_config())
        checker = HeadChecker(fetched.git, repository.object_format, find_key, ssh, environ)
        heads = CheckedHeads(fetched, remote.name, checker, accept=accept_rollback)
        return _Fetch(fetched, transport, without_fetched_objects(repository).git, full, heads).run()


class _RefMapping(NamedTuple):
    """The refs of one kind: on the remote, on arrival, and where commands read them."""

    source: str
    arrives: str
    goal: str


class _Fetch:
    def __init__(
        self, fetched: FetchedStore, transport: Transport, own: Git, full: bool, signed: CheckedHeads
    ) -> None:
        self._fetched = fetched
        self._signed = signed
        self._own = own
        self._transport = transport
        self._remote = transport.remote
        self._full = full
        name = self._remote.name
        self._heads_refs = _RefMapping(HEADS_PREFIX, f"{ARRIVING}heads/{name}/", f"{REMOTES}{name}/")
        self._notes_refs = _RefMapping(FETCHED_NOTES, f"{ARRIVING}notes/{name}/", f"{FETCHED_NOTES}{name}/")

    def run(self) -> FetchResult:
        remote_refs = self._remote_refs = read_remote_refs(self._transport.list_refs(*OUR_REFS[:2]))
        self._fetched.delete_broken_refs()
        heads, notes = self._stored(self._heads_refs.goal), self._stored(self._notes_refs.goal)
        # Packs of an interrupted fetch were not checked, so everything counts as new.
        known = self._fetched.begin_fetch(self._remote.name)
        all_new = known is not None
        news = [
            name
            for name in sorted({*remote_refs.heads, *remote_refs.notes})
            if self._is_changed(name, remote_refs)
        ]
        pushed = tuple(name for name in news if self._was_pushed_from_here(name, remote_refs))
        wanted = [name for name in news if name not in pushed]
        full, bad = self._fetch_or_split(remote_refs, wanted, known, all_new=all_new)
        bad += [(f"{self._remote.name}/{name}", why) for name, why in self._signed.refused.items()]
        after, known_notes = self._stored(self._heads_refs.goal), self._stored(self._notes_refs.goal)
        fresh_notes = {
            name for name in {*known_notes, *notes} if all_new or known_notes.get(name) != notes.get(name)
        }
        if fresh_notes:
            list_cross_machine_notes(
                self._fetched, self._own, {f"{self._remote.name}/{name}" for name in fresh_notes}
            )
        self._fetched.end_fetch(self._remote.name)
        outcomes = tuple(
            (f"{self._remote.name}/{name}", self._outcome(heads.get(name), after.get(name)))
            for name in sorted({*heads, *after})
            if f"{self._remote.name}/{name}" not in dict(bad)
        )
        return FetchResult(
            self._remote, outcomes, remote_refs.refused, full, tuple(bad), self._signed.states, pushed
        )

    def _is_changed(self, name: str, remote_refs: RemoteRefs) -> bool:
        stored = self._stored(self._heads_refs.goal).get(name), self._stored(self._notes_refs.goal).get(name)
        return stored != (remote_refs.heads.get(name), remote_refs.notes.get(name))

    def _was_pushed_from_here(self, name: str, remote_refs: RemoteRefs) -> bool:
        """Return whether the remote has only commits of our own timeline, and none that we fetched."""
        if HEADS_PREFIX + name not in self._own_refs or name in self._stored(self._heads_refs.goal):
            return False
        heads = self._is_ours(remote_refs.heads.get(name), HEADS_PREFIX + name)
        return heads and self._is_ours(remote_refs.notes.get(name), FETCHED_NOTES + name)

    @cached_property
    def _own_refs(self) -> frozenset[str]:
        return frozenset(
            self._own.run("for-each-ref", "--format=%(refname)", HEADS_PREFIX).decode().splitlines()
        )

    def _is_ours(self, commit: str | None, ref: str) -> bool:
        if commit is None:
            return True
        return self._own.ask("merge-base", "--is-ancestor", commit, ref).status == 0

    def _fetch_or_split(
        self, remote_refs: RemoteRefs, wanted: Sequence[str], known: frozenset[str] | None, *, all_new: bool
    ) -> tuple[bool, list[tuple[str, str]]]:
        """Fetch all timelines together, or by halves if that fails; return whether all contents are stored, and the
        bad ones.
        """
        arrivals = ArrivedPacks(self._fetched, known)
        try:
            return self._fetch_timelines(remote_refs, wanted, arrivals, all_new=all_new), []
        except RemoteTimeout:
            raise
        except BY_CONTENT as failed:
            if not wanted or not self._is_reachable():
                raise
            if len(wanted) == 1:
                failed.message = f"{failed.message}, in '{wanted[0]}'"
                raise
            first = failed
            arrivals.remove_arrived()
        bad: list[tuple[str, str]] = []
        full = True
        halves = [wanted[len(wanted) // 2 :], wanted[: len(wanted) // 2]]
        while halves:
            some = halves.pop()
            # Earlier packs were checked, or removed.
            arrivals = ArrivedPacks(self._fetched)
            try:
                full &= self._fetch_timelines(remote_refs, some, arrivals, all_new=all_new)
            except RemoteTimeout:
                raise
            except BY_CONTENT as failed:
                arrivals.remove_arrived()
                if len(some) > 1:
                    halves += [some[len(some) // 2 :], some[: len(some) // 2]]
                else:
                    bad.append((f"{self._remote.name}/{some[0]}", failed.message))
        if len(bad) == len(wanted):
            raise first
        return full, bad

    def _is_reachable(self) -> bool:
        """Return whether the remote responds; if not, no timeline is at fault."""
        try:
            self._transport.list_refs(*OUR_REFS[:2])
        except RemoteFailed:
            return False
        return True

    def _fetch_timelines(
        self, remote_refs: RemoteRefs, wanted: Sequence[str], arrivals: ArrivedPacks, *, all_new: bool
    ) -> bool:
        """Fetch some timelines; return whether all contents are stored."""
        heads, notes = self._stored(self._heads_refs.goal), self._stored(self._notes_refs.goal)
        chosen = frozenset(wanted)
        some = replace(
            remote_refs,
            heads={name: oid for name, oid in remote_refs.heads.items() if name in chosen},
            notes={name: oid for name, oid in remote_refs.notes.items() if name in chosen},
        )
        # Notes are fetched whole, and before the snapshots that they describe.
        self._fetch_refs(some.notes, notes, self._notes_refs, WHOLE)
        self._fetch_refs(some.heads, heads, self._heads_refs, LAZY)
        trees = self._check_arrived(arrivals, remote_refs, all_new)
        after = self._stored(self._heads_refs.goal)
        fresh = [oid for name, oid in after.items() if all_new or heads.get(name) != oid]
        full = self._fetch_contents(arrivals, some, fresh, trees)
        arrivals.check_sizes(self._remote, self._stored(self._notes_refs.goal).values())
        arrivals.mark_checked()
        return full

    def _stored(self, place: str) -> dict[str, str]:
        return {ref.removeprefix(place): oid for ref, oid in self._fetched.refs(place).items()}

    def _fetch_refs(
        self,
        remote_refs: Mapping[str, str],
        stored: Mapping[str, str],
        mapping: _RefMapping,
        options: Sequence[str],
    ) -> None:
        """Fetch refs whose hash differs from the fetched one to their place of arrival."""
        arrived = self._stored(mapping.arrives)
        # Delete refs of an interrupted fetch that have another hash on the remote by now.
        self._fetched.update_refs(
            [f"delete {mapping.arrives}{name}" for name in arrived if remote_refs.get(name) != arrived[name]]
        )
        wanted = [
            name
            for name, oid in sorted(remote_refs.items())
            if oid not in (stored.get(name), arrived.get(name))
        ]
        for start in range(0, len(wanted), MAX_REFSPECS):
            some = wanted[start : start + MAX_REFSPECS]
            # A timeline shares history only with its own earlier state. Negotiating with all refs is useless, and
            # with some hundreds of timelines git gives up before it reaches the relevant refs.
            tips = [f"--negotiation-tip={stored[name]}" for name in some if name in stored]
            refspecs = [f"+{mapping.source}{name}:{mapping.arrives}{name}" for name in some]
            done = self._transport.fetch(refspecs, *options, *tips, before=() if tips else NO_NEGOTIATION)
            if done.status != 0:
                raise fetch_error(self._remote, done)

    def _check_arrived(self, arrivals: ArrivedPacks, remote_refs: RemoteRefs, all_new: bool) -> list[str]:
        """Check fetched refs and move them to the refs that commands read; return new trees, or all with `again`."""
        arrived, heads = self._stored(self._heads_refs.arrives), self._stored(self._heads_refs.goal)
        arrived_notes = self._stored(self._notes_refs.arrives)
        arrivals.check_sizes(self._remote, arrived_notes.values())
        git = self._fetched.git
        if all_new:
            trees = trees_of_snapshots(git, {**heads, **arrived}.values())
        else:
            trees = trees_of_snapshots(git, arrived.values(), heads.values())
        arrivals.check_trees(self._remote, [*trees_of_notes(git, arrived_notes.values()), *trees])
        stored = self._stored(self._notes_refs.goal)
        kept = {name: oid for name, oid in stored.items() if name in self._remote_refs.notes}
        lost = {*stored} - {*kept}
        changed = {*arrived, *arrived_notes, *lost} & {*self._remote_refs.heads}
        self._signed.check(changed, {**heads, **arrived}, {**kept, **arrived_notes})
        moves = [*self._moves(self._heads_refs, arrived, self._remote_refs.heads)]
        moves += self._moves(self._notes_refs, arrived_notes, self._remote_refs.notes)
        self._fetched.update_refs(moves)
        self._signed.save()
        return trees

    def _moves(
        self, mapping: _RefMapping, arrived: Mapping[str, str], remote_refs: Mapping[str, str]
    ) -> list[str]:
        """Yield the ref updates of a fetch: new tips and deletions, except for refused timelines."""
        refused = self._signed.refused
        gone = [
            name for name in self._stored(mapping.goal) if name not in remote_refs and name not in refused
        ]
        taken = {name: oid for name, oid in arrived.items() if name in remote_refs and name not in refused}
        return [
            *(f"update {mapping.goal}{name} {oid}" for name, oid in taken.items()),
            *(f"delete {mapping.goal}{name}" for name in gone),
            *(f"delete {mapping.arrives}{name}" for name in arrived),
        ]

    def _fetch_contents(
        self, arrivals: ArrivedPacks, remote_refs: RemoteRefs, fresh: Sequence[str], trees: Sequence[str]
    ) -> bool:
        """Fetch the lists of new snapshots, or all contents with `--full`; return whether nothing is missing."""
        try:
            fetch_batches(self._transport, self._missing_objects(trees))
        except RemoteTimeout:
            raise
        except RemoteFailed:
            # The remote filters contents but does not provide objects on demand (an old protocol, or a setting).
            self._fetch_refs(remote_refs.heads, {}, self._heads_refs, ("--refetch", *WHOLE))
            self._check_arrived(arrivals, remote_refs, all_new=False)
        return self._full or not self._fetched.missing(fresh[:1])

    def _missing_objects(self, new: Sequence[str]) -> list[str]:
        if self._full:
            return self._fetched.missing(self._stored(self._heads_refs.goal).values())
        lists = list(lists_of(self._fetched, new, manifest=False))
        trees, blobs = {t for one in lists for t in one.trees}, {b for one in lists for b in one.blobs}
        return self._fetched.missing(trees, blobs)

    def _outcome(self, before: str | None, after: str | None) -> FetchOutcome:
        if before is None or after is None:
            return FetchOutcome.GONE if after is None else FetchOutcome.NEW
        if before == after:
            return FetchOutcome.SAME
        grown = self._fetched.git.ask("merge-base", "--is-ancestor", before, after).status == 0
        return FetchOutcome.UPDATED if grown else FetchOutcome.REWRITTEN
