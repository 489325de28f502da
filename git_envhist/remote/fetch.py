"""A fetch: what others share comes in beside ours, never over it, and its contents only when they are wanted.

The names of the other side's refs are read first, and only those that are spelled as ours are asked for, one by one.
They arrive where nobody reads them, are looked at, and move together to places that say where they came from. If git
refuses what came, or it is too much, halves are fetched until the bad timelines are known; all others come. A fetch
that was broken off leaves all timelines as they were; the next goes on.
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
from git_envhist.model.storage import FetchOutcome, FetchResult, Remote
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.trees import DIRECTORY, decode_tree
from git_envhist.remote.errors import RemoteFailed, RemoteTimeout, too_much, why_nothing_came
from git_envhist.remote.remotes import (
    OUR_REFS,
    REMOTEREFS_HEADS,
    RemoteRefs,
    Transport,
    find_fetched_remote,
    find_remote,
    own_config,
    read_limits,
    read_there,
)
from git_envhist.remote.verify_fetched import CheckedHeads, Checker, FindKey, no_key
from git_envhist.secrets.ssh_signatures import SshSettings
from git_envhist.snapshots.chunks import chunks_path, read_pointer
from git_envhist.snapshots.fetched import (
    ARRIVING,
    FETCHED_NOTES,
    INDEX,
    REMOTES,
    FetchedStore,
    split_name,
    without_fetched_objects,
)
from git_envhist.snapshots.layout import MANIFEST, shard_path, stored_places
from git_envhist.snapshots.names import RESERVED, stored_name
from git_envhist.snapshots.notes import list_crossed
from git_envhist.snapshots.tree_size import TreeSizer, trees_of_notes, trees_of_snapshots

# What a fetch has brought, looked at before anybody reads it: nothing that is read whole is larger than any of ours.
#
# Commits, trees and notes are read whole by whoever lists a history, and some bytes of a pack stand for gigabytes of
# them. git holds a pack to its checksums and its objects to their form, not to a size; so the sizes of what is new are
# asked, which takes no more than their heads. Trees that hold each other over and over are the same thing told in
# another way: those that moments and notes lead to are weighed. What is too much goes again, with all that came along.

ENDINGS = (INDEX, ".rev", ".promisor", ".pack")
"""In this order a pack goes: git sees it as long as there is an index."""


class ArrivedPacks:
    """The packs that came since this was made, and those that a fetch left which was broken off before it looked."""

    def __init__(self, fetched: FetchedStore, known: Iterable[str] | None = None) -> None:
        """`known`: the packs that were looked at; all that are there, where nothing is said."""
        self._fetched = fetched
        self._known = fetched.packs() if known is None else frozenset(known)
        self._sized = self._known

    def look(self, remote: Remote, notes: Iterable[str] = ()) -> None:
        """`DecompressionBomb` where something is too large: then it is gone, with all that came."""
        new = self._fetched.packs() - self._sized
        found = find_large(self._fetched.git, notes, self._sizes(new)) if new else None
        if found is not None:
            raise self._refused(remote, found)
        self._sized |= new

    def weigh(self, remote: Remote, trees: Iterable[str]) -> None:
        """`DecompressionBomb` where one of some trees stands for any number of paths: likewise."""
        try:
            with CatFile(self._fetched.git) as reader:
                endless = TreeSizer(reader, self._fetched.hash_length).find_endless(trees)
        except Damaged as damaged:
            raise self._refused(remote, f"what is not whole: {damaged.message}") from damaged
        if endless is not None:
            raise self._refused(remote, "trees that stand for more paths than an environment has")

    def vouch(self) -> None:
        """Say that all was looked at: what a fetch left that was broken off is known from it."""
        self._fetched.add_checked_packs(self._sized - self._known)

    def forget(self) -> None:
        """Remove all that came and was not taken."""
        self._fetched.delete_arriving()
        place = self._fetched.pack_dir
        for name in self._fetched.packs() - self._known:
            for ending in ENDINGS:
                remove_if_present(os.path.join(place, name + ending))

    def _refused(self, remote: Remote, what: str) -> DecompressionBomb:
        self.forget()
        return too_much(remote, f"holds {what}")

    def _sizes(self, packs: Iterable[str]) -> bytes:
        asked = bytearray()
        for pack in packs:
            index = PackIndex(os.path.join(self._fetched.pack_dir, pack + INDEX), self._fetched.hash_length)
            try:
                asked += b"".join(b"%b\n" % name.hex().encode("ascii") for name in index.names())
            finally:
                index.close()
        return self._fetched.git.run("cat-file", "--buffer", LISTED, stdin=bytes(asked))


# Contents on demand: of a fetched snapshot what is not here yet is asked of where it came from, all in one go.
#
# Commits, trees, notes and lists came with the fetch. The manifest and the files themselves come when somebody wants to
# compare them or have them back.

POINTER = b"envhist-pieces 1\n"
NOT_LISTS = (b"pieces", b"dotgit", b"roots", b"attachments", b"staged")
FIRST_TURN, LEAST, MAX_COUNT = 2_000, 500, 50_000
SHORT, LONG = 2.0, 10.0
"""Of a turn, in seconds."""


def fetch_missing(
    repository: Repository,
    environ: Mapping[str, str],
    snapshot: Snapshot,
    paths: Sequence[EnvPath] = (),
    waiting: Callable[[], None] | None = None,
) -> None:
    """Have what is wanted of a fetched snapshot here: its lists, some paths of it, or (the top) all of it."""
    fetched = FetchedStore.of(repository)
    if TOP in paths:
        bring_objects(repository, environ, snapshot, fetched.missing([snapshot.tree]), waiting)
        return
    (lists,) = lists_of(fetched, [snapshot.tree])
    blobs = [place for path in paths for place in _places(fetched, snapshot.tree, path)]
    bring_objects(
        repository, environ, snapshot, fetched.missing(lists.trees, [*lists.blobs, *blobs]), waiting
    )
    pieces = [tree for path in paths for tree in _pieces(fetched, snapshot.tree, path)]
    bring_objects(repository, environ, snapshot, fetched.missing(pieces), waiting)


def bring_contents(
    repository: Repository, environ: Mapping[str, str], snapshot: Snapshot, blobs: Sequence[str]
) -> None:
    """Have some blobs of a fetched snapshot here."""
    bring_objects(repository, environ, snapshot, FetchedStore.of(repository).missing(blobs=blobs))


def bring_objects(
    repository: Repository,
    environ: Mapping[str, str],
    snapshot: Snapshot,
    missing: Sequence[str],
    waiting: Callable[[], None] | None = None,
) -> None:
    """Ask for objects where a snapshot came from."""
    if not missing:
        return
    fetched = FetchedStore.of(repository)
    remote = find_fetched_remote(repository, fetched.git, split_name(snapshot.timeline)[0])
    with fetched.lock_for_receiving(waiting):
        fetched.set_remote(remote.name, remote.url)
        try:
            arrivals = ArrivedPacks(fetched)
            ask_for(transport_for(repository, fetched, remote, environ), missing)
            arrivals.look(remote)
            arrivals.vouch()
        except RemoteFailed as failed:
            raise RemoteFailed(
                failed.message,
                hint=f"contents of '{snapshot.timeline}' are not here yet and come from there alone"
                + (f"\n{failed.hint}" if failed.said else ""),
            ) from failed


def transport_for(
    repository: Repository,
    fetched: FetchedStore,
    remote: Remote,
    environ: Mapping[str, str],
    step: Callable[[str], None] | None = None,
) -> Transport:
    """The way to a remote that something is fetched from."""
    limits = read_limits(repository.read_config())
    config = own_config(repository)
    memory, patience = limits.fetch_memory, limits.fetch_timeout
    return Transport(fetched.git, remote, environ, config, memory=memory, patience=patience, step=step)


def ask_for(transport: Transport, missing: Sequence[str]) -> None:
    """Fetch objects in turns that take some seconds each: what a broken line loses is one of them."""
    start, many = 0, FIRST_TURN
    while start < len(missing):
        began = time.monotonic()
        done = transport.fetch_objects(list(missing[start : start + many]))
        if done.status != 0:
            raise why_nothing_came(transport.remote, done)
        start += many
        many = next_turn(many, time.monotonic() - began)


def next_turn(many: int, seconds: float) -> int:
    """How many objects to ask for after a turn of so many that took so long."""
    if seconds > LONG:
        return max(LEAST, many // 2)
    return min(MAX_COUNT, many * 4) if seconds < SHORT else many


class Lists(NamedTuple):
    """What a snapshot says beside the files."""

    trees: list[str]
    blobs: list[str]


def lists_of(fetched: FetchedStore, trees: Sequence[str], *, manifest: bool = True) -> Iterator[Lists]:
    """Of each tree: what is missing, facts, and the manifest."""
    with CatFile(fetched.git) as reader:
        answers = reader.read_many([f"{tree}:{os.fsdecode(RESERVED)}" for tree in trees])
        for tree, found in zip(trees, answers, strict=True):
            lists = Lists([], [])
            if found is not None and found.kind == "tree":
                for name, mode, oid in decode_tree(found.data, len(tree) // 2):
                    if name not in NOT_LISTS and (manifest or name != MANIFEST):
                        (lists.trees if mode == DIRECTORY else lists.blobs).append(oid.hex())
            yield lists


def _places(fetched: FetchedStore, tree: str, path: EnvPath) -> Iterator[str]:
    """The blob of a path, and the shard that tells of it, as far as a tree names them."""
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


def _pieces(fetched: FetchedStore, tree: str, path: EnvPath) -> Iterator[str]:
    """The tree of pieces that a path points to."""
    with CatFile(fetched.git) as reader:
        for oid in list(_places(fetched, tree, path)):
            found = reader.read(oid)
            if found is not None and found.data.startswith(POINTER):
                try:
                    outer, inner = chunks_path(read_pointer(found.data).tree)
                except Damaged:
                    continue
                yield outer + inner


LAZY = ("--filter=blob:none",)
WHOLE = ("--no-filter",)
TELL_NOTHING = ("-c", "fetch.negotiationAlgorithm=noop")
AT_ONCE = 1000
BY_CONTENT = (Damaged, GitFailed, RemoteFailed)
"""Failures that one bad timeline among many may cause."""


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
    """Bring the timelines of a remote, with their notes, up to date here; `full`: with all that they hold.

    `find_key`: the sealing keys that may have signed a head; `accept_rollback`: take what is not as it was signed.
    """
    remote = find_remote(repository, word, directory)
    fetched = FetchedStore.of(repository)
    fetched.ensure()
    with fetched.lock_for_receiving(waiting):
        if fetched.was_imported(remote.name):
            raise Refused(
                f"'{remote.name}' names what was imported from a file",
                hint=f"call the remote something else: git remote rename {remote.name} <name>",
            )
        fetched.set_remote(remote.name, remote.url)
        transport = transport_for(repository, fetched, remote, environ, step)
        ssh = SshSettings.of(repository.read_config())
        checker = Checker(fetched.git, repository.object_format, find_key, ssh, environ)
        heads = CheckedHeads(fetched, remote.name, checker, accept=accept_rollback)
        return _Fetch(fetched, transport, without_fetched_objects(repository).git, full, heads).run()


class _RefMapping(NamedTuple):
    """The way of refs of one kind: where they stand there, where they arrive, and where they stand here."""

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
        self._heads = _RefMapping(REMOTEREFS_HEADS, f"{ARRIVING}heads/{name}/", f"{REMOTES}{name}/")
        self._notes = _RefMapping(FETCHED_NOTES, f"{ARRIVING}notes/{name}/", f"{FETCHED_NOTES}{name}/")

    def run(self) -> FetchResult:
        there = self._there = read_there(self._transport.list_refs(*OUR_REFS[:2]))
        self._fetched.delete_broken_refs()
        heads, notes = self._here(self._heads.goal), self._here(self._notes.goal)
        # What came with a fetch that was broken off was not looked at: then all is new.
        known = self._fetched.begin_fetch(self._remote.name)
        again = known is not None
        news = [name for name in sorted({*there.heads, *there.notes}) if self._is_news(name, there)]
        pushed = tuple(name for name in news if self._was_pushed_from_here(name, there))
        wanted = [name for name in news if name not in pushed]
        full, bad = self._bring_apart(there, wanted, known, again=again)
        bad += [(f"{self._remote.name}/{name}", why) for name, why in self._signed.refused.items()]
        after, said = self._here(self._heads.goal), self._here(self._notes.goal)
        fresh_words = {name for name in {*said, *notes} if again or said.get(name) != notes.get(name)}
        if fresh_words:
            list_crossed(self._fetched, self._own, {f"{self._remote.name}/{name}" for name in fresh_words})
        self._fetched.end_fetch(self._remote.name)
        told = tuple(
            (f"{self._remote.name}/{name}", self._arrival(heads.get(name), after.get(name)))
            for name in sorted({*heads, *after})
            if f"{self._remote.name}/{name}" not in dict(bad)
        )
        return FetchResult(self._remote, told, there.refused, full, tuple(bad), self._signed.told, pushed)

    def _is_news(self, name: str, there: RemoteRefs) -> bool:
        here = self._here(self._heads.goal).get(name), self._here(self._notes.goal).get(name)
        return here != (there.heads.get(name), there.notes.get(name))

    def _was_pushed_from_here(self, name: str, there: RemoteRefs) -> bool:
        """Return whether the remote has only commits that our own timeline has, and none of them came from there."""
        if REMOTEREFS_HEADS + name not in self._own_refs or name in self._here(self._heads.goal):
            return False
        heads = self._is_ours(there.heads.get(name), REMOTEREFS_HEADS + name)
        return heads and self._is_ours(there.notes.get(name), FETCHED_NOTES + name)

    @cached_property
    def _own_refs(self) -> frozenset[str]:
        return frozenset(
            self._own.run("for-each-ref", "--format=%(refname)", REMOTEREFS_HEADS).decode().splitlines()
        )

    def _is_ours(self, commit: str | None, ref: str) -> bool:
        if commit is None:
            return True
        return self._own.ask("merge-base", "--is-ancestor", commit, ref).status == 0

    def _bring_apart(
        self, there: RemoteRefs, wanted: Sequence[str], known: frozenset[str] | None, *, again: bool
    ) -> tuple[bool, list[tuple[str, str]]]:
        """Bring all timelines together; if that fails, by halves. Whether all contents are here, and the bad ones."""
        arrivals = ArrivedPacks(self._fetched, known)
        try:
            return self._bring(there, wanted, arrivals, again=again), []
        except RemoteTimeout:
            raise
        except BY_CONTENT as failed:
            if not wanted or not self._answers():
                raise
            if len(wanted) == 1:
                failed.message = f"{failed.message}, in '{wanted[0]}'"
                raise
            first = failed
            arrivals.forget()
        bad: list[tuple[str, str]] = []
        full = True
        halves = [wanted[len(wanted) // 2 :], wanted[: len(wanted) // 2]]
        while halves:
            some = halves.pop()
            # What came before was looked at, or is gone.
            arrivals = ArrivedPacks(self._fetched)
            try:
                full &= self._bring(there, some, arrivals, again=again)
            except RemoteTimeout:
                raise
            except BY_CONTENT as failed:
                arrivals.forget()
                if len(some) > 1:
                    halves += [some[len(some) // 2 :], some[: len(some) // 2]]
                else:
                    bad.append((f"{self._remote.name}/{some[0]}", failed.message))
        if len(bad) == len(wanted):
            raise first
        return full, bad

    def _answers(self) -> bool:
        """Whether the server can be reached at all: else no timeline is at fault."""
        try:
            self._transport.list_refs(*OUR_REFS[:2])
        except RemoteFailed:
            return False
        return True

    def _bring(
        self, there: RemoteRefs, wanted: Sequence[str], arrivals: ArrivedPacks, *, again: bool
    ) -> bool:
        """Bring some timelines; whether all contents are here."""
        heads, notes = self._here(self._heads.goal), self._here(self._notes.goal)
        chosen = frozenset(wanted)
        some = replace(
            there,
            heads={name: oid for name, oid in there.heads.items() if name in chosen},
            notes={name: oid for name, oid in there.notes.items() if name in chosen},
        )
        # Notes come whole, and before what they are about.
        self._take(some.notes, notes, self._notes, WHOLE)
        self._take(some.heads, heads, self._heads, LAZY)
        trees = self._accept(arrivals, there, again)
        after = self._here(self._heads.goal)
        fresh = [oid for name, oid in after.items() if again or heads.get(name) != oid]
        full = self._contents(arrivals, some, fresh, trees)
        arrivals.look(self._remote, self._here(self._notes.goal).values())
        arrivals.vouch()
        return full

    def _here(self, place: str) -> dict[str, str]:
        return {ref.removeprefix(place): oid for ref, oid in self._fetched.refs(place).items()}

    def _take(
        self, there: Mapping[str, str], here: Mapping[str, str], way: _RefMapping, options: Sequence[str]
    ) -> None:
        """Have refs arrive that do not stand here as they stand there."""
        came = self._here(way.arrives)
        # What a fetch left that was broken off, and that stands there otherwise by now, is not what has come.
        self._fetched.update_refs(
            [f"delete {way.arrives}{name}" for name in came if there.get(name) != came[name]]
        )
        wanted = [name for name, oid in sorted(there.items()) if oid not in (here.get(name), came.get(name))]
        for start in range(0, len(wanted), AT_ONCE):
            some = wanted[start : start + AT_ONCE]
            # A timeline has its history in common with what it was, and with no other. To tell of all that is here is
            # worth nothing, and from some hundreds of timelines on git gives up before it comes to those that matter.
            tips = [f"--negotiation-tip={here[name]}" for name in some if name in here]
            refspecs = [f"+{way.source}{name}:{way.arrives}{name}" for name in some]
            done = self._transport.fetch(refspecs, *options, *tips, before=() if tips else TELL_NOTHING)
            if done.status != 0:
                raise why_nothing_came(self._remote, done)

    def _accept(self, arrivals: ArrivedPacks, there: RemoteRefs, again: bool) -> list[str]:
        """Look at what arrived, and let it stand where it is read; the trees that are new, `again`: all of them."""
        came, heads = self._here(self._heads.arrives), self._here(self._heads.goal)
        words = self._here(self._notes.arrives)
        arrivals.look(self._remote, words.values())
        git = self._fetched.git
        if again:
            trees = trees_of_snapshots(git, {**heads, **came}.values())
        else:
            trees = trees_of_snapshots(git, came.values(), heads.values())
        arrivals.weigh(self._remote, [*trees_of_notes(git, words.values()), *trees])
        said = {name: oid for name, oid in self._here(self._notes.goal).items() if name in self._there.notes}
        lost = {*self._here(self._notes.goal)} - {*said}
        changed = {*came, *words, *lost} & {*self._there.heads}
        self._signed.check(changed, {**heads, **came}, {**said, **words})
        moves = [*self._moves(self._heads, came, self._there.heads)]
        moves += self._moves(self._notes, words, self._there.notes)
        self._fetched.update_refs(moves)
        self._signed.remember()
        return trees

    def _moves(self, way: _RefMapping, came: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
        """What came stands, and what is there no more goes; what is not as it was signed moves nothing."""
        refused = self._signed.refused
        gone = [name for name in self._here(way.goal) if name not in there and name not in refused]
        taken = {name: oid for name, oid in came.items() if name in there and name not in refused}
        return [
            *(f"update {way.goal}{name} {oid}" for name, oid in taken.items()),
            *(f"delete {way.goal}{name}" for name in gone),
            *(f"delete {way.arrives}{name}" for name in came),
        ]

    def _contents(
        self, arrivals: ArrivedPacks, there: RemoteRefs, fresh: Sequence[str], trees: Sequence[str]
    ) -> bool:
        """Fetch the lists of what is new, or with `--full` all there is; whether nothing is missing then."""
        try:
            ask_for(self._transport, self._wanted(trees))
        except RemoteTimeout:
            raise
        except RemoteFailed:
            # It leaves contents out, and does not give them on demand either (an old protocol, another setting).
            self._take(there.heads, {}, self._heads, ("--refetch", *WHOLE))
            self._accept(arrivals, there, again=False)
        return self._full or not self._fetched.missing(fresh[:1])

    def _wanted(self, new: Sequence[str]) -> list[str]:
        if self._full:
            return self._fetched.missing(self._here(self._heads.goal).values())
        lists = list(lists_of(self._fetched, new, manifest=False))
        trees, blobs = {t for one in lists for t in one.trees}, {b for one in lists for b in one.blobs}
        return self._fetched.missing(trees, blobs)

    def _arrival(self, before: str | None, after: str | None) -> FetchOutcome:
        if before is None or after is None:
            return FetchOutcome.GONE if after is None else FetchOutcome.NEW
        if before == after:
            return FetchOutcome.SAME
        grown = self._fetched.git.ask("merge-base", "--is-ancestor", before, after).status == 0
        return FetchOutcome.UPDATED if grown else FetchOutcome.REWRITTEN
