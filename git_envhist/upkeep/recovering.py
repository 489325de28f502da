"""Brings lost objects back: from what was fetched, from remotes that have them, from the working tree as it is now.

The working tree is captured once more, into a staging that is thrown away: what is there now and was lost (a file that
did not change, what is said of a directory, the pieces of a database) is among what the capture would store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress

from git_envhist.capture.statcache import StatCache
from git_envhist.capturing.capture import CapturePipeline
from git_envhist.errors import Damaged, EnvhistError, GitFailed
from git_envhist.sharing.bringing import transport_for
from git_envhist.store.deflate import crc32
from git_envhist.store.fetched import FetchedStore
from git_envhist.store.idx import PackIndex
from git_envhist.store.objects import CatFile
from git_envhist.store.packfile import PackFile
from git_envhist.store.packs import PackWriter
from git_envhist.store.remotememory import RemoteState, read_memory
from git_envhist.store.remotes import Transport, find_remote, key_of
from git_envhist.store.repository import Repository
from git_envhist.store.staging import Staging
from git_envhist.store.trees import object_id
from git_envhist.values import dataclass

MOST_SINGLE = 200
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
            if read_memory(repository.common_state, key_of(remote)) == RemoteState():
                continue  # nothing of ours was ever sent there
            fetched = FetchedStore.of(repository)
            fetched.ensure()
            fetched.know(remote.name, remote.url)
            transport = transport_for(repository, fetched, remote, capturing.environ)
            _ask(transport, sorted(oid.hex() for oid in lost))
            yield f"the remote '{remote.name}'", _fetched(repository, lost)


def _ask(transport: Transport, names: list[str]) -> None:
    if transport.fetch_objects(names).status != 0:
        for name in names[:MOST_SINGLE]:
            transport.fetch_objects([name])


def _fetched(repository: Repository, lost: frozenset[bytes]) -> Objects:
    fetched = FetchedStore.of(repository)
    return dict(_read(repository, fetched, lost)) if fetched.is_there else {}


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
    with capturing.present() as held:
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
        staging.settle()
