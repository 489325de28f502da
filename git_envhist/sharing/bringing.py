"""Contents on demand: of a fetched snapshot what is not here yet is asked of where it came from, all in one go.

Commits, trees, notes and lists came with the fetch. The manifest and the files themselves come when somebody wants to
compare them or have them back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.model import TOP, EnvPath, Snapshot
from git_envhist.model.sharing import Remote
from git_envhist.sharing.limits import read_limits
from git_envhist.store.arrivals import ArrivedPacks
from git_envhist.store.fetched import FetchedStore, split_name
from git_envhist.store.layout import MANIFEST, RESERVED, stored_places
from git_envhist.store.manifest import shard_path
from git_envhist.store.names import stored_name
from git_envhist.store.objects import CatFile
from git_envhist.store.pointers import pieces_path, read_pointer
from git_envhist.store.remotefailures import RemoteFailed, why_nothing_came
from git_envhist.store.remotes import Transport, find_fetched_remote, own_config
from git_envhist.store.repository import Repository
from git_envhist.store.trees import DIRECTORY, decode_tree

POINTER = b"envhist-pieces 1\n"
NOT_LISTS = (b"pieces", b"dotgit", b"roots", b"attachments", b"staged")
FIRST_TURN, LEAST, MOST = 2_000, 500, 50_000
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
    with fetched.receiving(waiting):
        fetched.know(remote.name, remote.url)
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
    memory, patience = limits.fetch_memory, limits.fetch_patience
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
    return min(MOST, many * 4) if seconds < SHORT else many


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
                    outer, inner = pieces_path(read_pointer(found.data).tree)
                except Damaged:
                    continue
                yield outer + inner
