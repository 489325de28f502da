"""Remove the whole history from a repository: refs first, then packs, then our state directories and keys.

Our packs may contain objects that git needs: `git add` stores nothing if the content is already in a pack. Every
object that a branch, an index, a reflog or an unfinished git operation reaches is therefore written into a pack of
git's own before our packs are removed; if an object is missing afterwards, our packs are put back.

The copies of the keys in the user's configuration are removed too, unless data sealed with them was sent to a remote
or came from one: then no other copy of the key may exist.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from git_envhist.config import config_home
from git_envhist.disk import cannot_write, state_directory, sync_directory
from git_envhist.errors import Damaged, Refused, UnfinishedRestore
from git_envhist.git.repository import RefUpdate, Repository, state_directories
from git_envhist.git.running_git import describe_gits, hint_after
from git_envhist.lazy import dataclass
from git_envhist.locks import COMMON_LOCK, UPKEEP_LOCK, locked, try_lock
from git_envhist.maintenance.repack import (
    COPY,
    NOT_OURS,
    git_dirs_of,
    reachable_objects,
    remove_packs,
    unreferenced_tips,
    write_pack,
)
from git_envhist.objects.own_packs import (
    drop_broken_index,
    drop_caches_naming,
    has_keep_mark,
    names_of,
    possible_writers,
    spare_directories,
)
from git_envhist.objects.pack_index import PackIndex
from git_envhist.remote.upload import remotes_directory
from git_envhist.secrets.keys import REPOSITORY, KeyDirectory, KeyRing
from git_envhist.snapshots.fetched_store import FetchedStore
from git_envhist.snapshots.staging import Staging, open_published, share


class PackContents(NamedTuple):
    """The objects in our packs."""

    ids: frozenset[bytes]
    theirs: Mapping[bytes, bytes]
    """The objects among them that git needs, each with a path."""


def refuse_during_writes(repository: Repository) -> None:
    """Raise `Refused` while another git process may add a reference to an object in our packs."""
    writers = possible_writers(repository.gits_at_work() or ())
    if writers:
        raise Refused(
            f"packs cannot be removed while another git may use them: {describe_gits(writers)}",
            hint=hint_after(writers),
        )


def pack_contents(repository: Repository) -> PackContents:
    """Return the objects in our packs, and those that git needs; raises `GitFailed` if git cannot list them."""
    own = open_published(repository.common_state, repository.pack_dir, repository.object_format)
    try:
        contents = frozenset(oid for pack in own.packs for oid in pack.index.names())
    finally:
        own.close()
    return PackContents(contents, _needed(repository, contents))


def remove_our_packs(repository: Repository, packs: Sequence[str], contents: PackContents) -> None:
    """Remove our packs. Our refs must be deleted before, and no capture may run."""
    bases = names_of(path for path in packs if path.endswith(".pack"))
    if not bases:
        return
    with Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging:
        _write_git_pack(repository, staging, _only_in_ours(repository, bases, contents.theirs))
        gone = set(contents.ids - contents.theirs.keys())
        rebuild = remove_packs(
            repository, staging, bases, gone, lambda _tips: _needed(repository, contents.ids)
        )
    drop_broken_index(repository.pack_dir)
    if rebuild:
        repository.git.try_run(*rebuild)


def _needed(repository: Repository, contents: Collection[bytes]) -> dict[bytes, bytes]:
    more = unreferenced_tips(git_dirs_of(repository.common_dir), ours=False) if contents else ()
    return (
        reachable_objects(repository.git, contents.__contains__, roots=NOT_OURS, more=more)
        if contents
        else {}
    )


def _only_in_ours(
    repository: Repository, bases: Collection[str], objects: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Return the objects that are in no pack or file of git's own."""
    names = {name[:-4] for name in os.listdir(repository.pack_dir) if name.endswith(".idx")}
    left = {oid: path for oid, path in objects.items() if not _is_loose(repository, oid)}
    for name in names.difference(bases):
        with suppress(OSError, Damaged):
            index = PackIndex(os.path.join(repository.pack_dir, f"{name}.idx"), repository.hash_length)
            left = {oid: path for oid, path in left.items() if index.find(oid) is None}
            index.close()
    return left


def _is_loose(repository: Repository, oid: bytes) -> bool:
    name = oid.hex()
    return os.path.exists(os.path.join(repository.objects_dir, name[:2], name[2:]))


def _write_git_pack(repository: Repository, staging: Staging, objects: Mapping[bytes, bytes]) -> None:
    """Write objects into a pack without our mark, which git repacks and cleans as its own."""
    where = (repository.objects_dir, staging.path, repository.object_format)
    target = os.stat(repository.pack_dir)
    for pack in write_pack(repository.git, *where, objects, COPY):
        for path in (pack.pack_path, pack.index_path):
            share(path, target)
            os.rename(path, os.path.join(repository.pack_dir, os.path.basename(path)))
    if objects:
        sync_directory(repository.pack_dir)


OURS = ("refs/envhist/", "refs/notes/envhist/")
SNAPSHOTS = "refs/envhist/heads/"
KEYS = "keys"


@dataclass(frozen=True, slots=True)
class HistoryInventory:
    """Everything that a history consists of."""

    refs: dict[str, str]
    """The refs, each with its hash."""
    packs: tuple[str, ...]
    """The files of all our packs, the marks last."""
    states: tuple[str, ...]
    """Our state directories in the git directories of all working trees, the common one last."""
    keys: tuple[str, ...]
    """The paths of the copies of the keys outside of the repository; the files may not exist."""
    snapshots: int
    stored: int
    """The size of the packs in bytes."""
    was_sent: bool
    """Whether something was pushed or exported."""
    was_received: bool = False
    """Whether something was fetched or imported: its key belongs to another repository, too."""

    @property
    def keeps_keys(self) -> bool:
        return self.was_sent or self.was_received


def read_inventory(repository: Repository, environ: Mapping[str, str]) -> HistoryInventory:
    """Return an inventory of the history to remove."""
    refs = _refs(repository)
    packs = tuple(_packs(repository.pack_dir))
    return HistoryInventory(
        refs,
        packs,
        tuple(existing_state_directories(repository)),
        tuple(_key_copies(repository, environ)),
        _count(repository, [ref for ref in refs if ref.startswith(SNAPSHOTS)]),
        sum(os.path.getsize(path) for path in packs),
        os.path.isdir(remotes_directory(repository.common_state)),
        os.path.isdir(FetchedStore.of(repository).path),
    )


def remove_history(repository: Repository, found: HistoryInventory) -> list[str]:
    """Remove the history; return messages for the user."""
    state_directory(repository.common_state)
    own = os.path.join(state_directory(repository.state), "lock")
    with (
        locked(own),
        try_lock(os.path.join(repository.common_state, UPKEEP_LOCK)) as idle,
        try_lock(os.path.join(repository.common_state, COMMON_LOCK)) as alone,
    ):
        if not (alone and idle):
            reason = "a cleanup is running" if alone else "a capture is running in another working tree"
            raise Refused(reason, hint="run the command again later")
        _refuse_changed(repository, found)
        _refuse_unfinished_restore(found)
        refuse_during_writes(repository)
        contents = pack_contents(repository)
        _save_key_copies(found)
        repository.move_refs([RefUpdate(ref, None, oid) for ref, oid in found.refs.items()])
        for prefix in (*OURS, "refs/notes/"):
            _remove_empty(os.path.join(repository.common_dir, prefix))
        _remove_packs(repository, found, contents)
        return _remove_states(found)


def _refs(repository: Repository) -> dict[str, str]:
    return {ref: oid for prefix in OURS for ref, oid in repository.list_refs(prefix).items()}


def _refuse_changed(repository: Repository, found: HistoryInventory) -> None:
    """Raise `Refused` if refs or packs changed after the inventory that the user confirmed."""
    if (_refs(repository), tuple(_packs(repository.pack_dir))) != (found.refs, found.packs):
        raise Refused("the history was changed meanwhile", hint="run the command again")


def _refuse_unfinished_restore(found: HistoryInventory) -> None:
    for state in found.states:
        if os.path.lexists(os.path.join(state, "restore", "journal")):
            raise UnfinishedRestore


def _remove_empty(top: str) -> None:
    """Remove the empty directories of deleted refs, which git keeps."""
    for directory, _, _ in os.walk(top, topdown=False):
        with suppress(OSError):
            os.rmdir(directory)


def _remove_packs(repository: Repository, found: HistoryInventory, contents: PackContents) -> None:
    ids = [bytes.fromhex(oid) for oid in found.refs.values()]
    # A commit graph or similar cache that names removed objects would hide other objects.
    drop_caches_naming(repository.objects_dir, ids)
    remove_our_packs(repository, found.packs, contents)
    for spare in spare_directories(repository.common_state, repository.pack_dir):
        shutil.rmtree(spare, ignore_errors=True)
    for path in found.packs:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _remove_states(found: HistoryInventory) -> list[str]:
    if found.keeps_keys:
        # Delete the keys first: if the process is killed after this, a second run finds no key whose copy it could
        # delete.
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(found.states[-1], REPOSITORY))
        shutil.rmtree(os.path.join(found.states[-1], KEYS), ignore_errors=True)
    for state in found.states:
        shutil.rmtree(state, ignore_errors=True)
    if found.keeps_keys:
        data = "pushed or exported data is" if found.was_sent else "fetched or imported data may be"
        return [f"{data} sealed with this key, which is not deleted: '{path}'" for path in found.keys]
    for path in found.keys:
        with suppress(OSError):
            os.unlink(path)
    return []


def _save_key_copies(found: HistoryInventory) -> None:
    """Write missing copies of the keys first: another repository of this user may have deleted the shared copy."""
    for copy in found.keys if found.keeps_keys else ():
        if os.path.lexists(copy):
            continue
        directory, name = os.path.split(copy)
        try:
            content = KeyDirectory(os.path.join(found.states[-1], KEYS)).read(name)
            if content is not None:
                KeyDirectory(directory).write(name, content)
        except OSError as error:
            raise cannot_write(error, copy) from error


def _packs(pack_dir: str) -> Iterator[str]:
    names = sorted(os.listdir(pack_dir)) if os.path.isdir(pack_dir) else []
    bases = [name[: -len(".keep")] for name in names if name.endswith(".keep")]
    ours = [base for base in bases if has_keep_mark(os.path.join(pack_dir, f"{base}.keep"))]
    for base in ours:
        # Delete the index first, as git does: git ignores a pack without one.
        for ending in (".idx", ".rev", ".bitmap", ".mtimes", ".pack", ".keep"):
            if f"{base}{ending}" in names:
                yield os.path.join(pack_dir, f"{base}{ending}")


def existing_state_directories(repository: Repository) -> Iterator[str]:
    """Yield the existing state directories of all working trees and forks, the common one last."""
    main, *others = state_directories(repository)
    yield from (state for state in (*others, main) if os.path.isdir(state))


def _key_copies(repository: Repository, environ: Mapping[str, str]) -> Iterator[str]:
    copies = os.path.join(config_home(environ), "git-envhist", KEYS)
    ring = KeyRing(repository.common_state, config_home(environ))
    yield from (os.path.join(copies, name) for name in sorted({*ring.ours.ids(), *ring.created_here()}))


def _count(repository: Repository, refs: list[str]) -> int:
    if not refs:
        return 0
    done = repository.git.ask("rev-list", "--count", *refs)
    return int(done.out) if done.status == 0 else 0
