"""A whole history, taken out of a repository: refs first, so that nothing is left that names what has gone.

The copies of its keys in the user's configuration go too, unless something sealed with them has left this repository,
or came from another: then they may be all that opens it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from git_envhist.config import config_home
from git_envhist.disk import (
    COMMON_LOCK,
    UPKEEP_LOCK,
    cannot_write,
    locked,
    locked_now,
    state_directory,
    sync_directory,
)
from git_envhist.errors import Damaged, Refused, UnfinishedRestore
from git_envhist.git.refs import describe_gits, hint_after
from git_envhist.git.repository import RefUpdate, Repository
from git_envhist.lazy import dataclass
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
    bears_mark,
    drop_broken_index,
    drop_caches_naming,
    may_write,
    names_of,
    spares,
)
from git_envhist.objects.pack_index import PackIndex
from git_envhist.remote.upload import directory_of
from git_envhist.secrets.keys import REPOSITORY, KeyDirectory, KeyRing
from git_envhist.snapshots.fetched import FetchedStore
from git_envhist.snapshots.staging import Staging, open_published, share

# Takes our packs out of a repository, less what is the user's: that is handed back to git.
#
# A `git add` that finds its content in a pack of ours stores nothing. Whatever a branch, an index, a reflog or
# something half done leads to is written into a pack of git's own before ours go; they come back where anything is
# missing then.


class PackContents(NamedTuple):
    """What our packs hold."""

    ids: frozenset[bytes]
    theirs: Mapping[bytes, bytes]
    """What git needs of it, each with a path."""


def refuse_beside_writers(repository: Repository) -> None:
    """Raise `Refused` while another git may add a reference to an object that is about to be removed."""
    writers = may_write(repository.gits_at_work() or ())
    if writers:
        raise Refused(
            f"packs cannot be removed while another git may use them: {describe_gits(writers)}",
            hint=hint_after(writers),
        )


def held_for_git(repository: Repository) -> PackContents:
    """What our packs hold, and what of it is git's; `GitFailed` where that cannot be told, before anything goes."""
    own = open_published(repository.common_state, repository.pack_dir, repository.object_format)
    try:
        held = frozenset(oid for pack in own.packs for oid in pack.index.names())
    finally:
        own.close()
    return PackContents(held, _needed(repository, held))


def take_packs(repository: Repository, packs: Sequence[str], held: PackContents) -> None:
    """Have packs of ours go; to be called where no ref of ours is left, and nobody captures."""
    bases = names_of(path for path in packs if path.endswith(".pack"))
    if not bases:
        return
    with Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging:
        _give(repository, staging, _nowhere_else(repository, bases, held.theirs))
        gone = set(held.ids - held.theirs.keys())
        anew = remove_packs(repository, staging, bases, gone, lambda _tips: _needed(repository, held.ids))
    drop_broken_index(repository.pack_dir)
    if anew:
        repository.git.try_run(*anew)


def _needed(repository: Repository, held: Collection[bytes]) -> dict[bytes, bytes]:
    more = unreferenced_tips(git_dirs_of(repository.common_dir), ours=False) if held else ()
    return reachable_objects(repository.git, held.__contains__, roots=NOT_OURS, more=more) if held else {}


def _nowhere_else(
    repository: Repository, bases: Collection[str], objects: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """The objects that git has in no pack or file of its own."""
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


def _give(repository: Repository, staging: Staging, objects: Mapping[bytes, bytes]) -> None:
    """Write objects into a pack without a mark: one that git repacks and cleans as its own."""
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
    """All that a history is made of."""

    refs: dict[str, str]
    """Each ref and the hash it names."""
    packs: tuple[str, ...]
    """Every file of every pack of ours, the marks last."""
    states: tuple[str, ...]
    """Our directories in the git directories of all working trees, the common one last."""
    keys: tuple[str, ...]
    """Where the keys' copies outside of the repository stand, or would."""
    snapshots: int
    stored: int
    """Bytes of the packs."""
    has_left: bool
    """Whether something was sent elsewhere."""
    has_come: bool = False
    """Whether something came from there: its key is another repository's, too."""

    @property
    def keys_stay(self) -> bool:
        return self.has_left or self.has_come


def look_at_history(repository: Repository, environ: Mapping[str, str]) -> HistoryInventory:
    """What there is to forget."""
    refs = _refs(repository)
    packs = tuple(_packs(repository.pack_dir))
    return HistoryInventory(
        refs,
        packs,
        tuple(states_of(repository)),
        tuple(_copies_of_keys(repository, environ)),
        _count(repository, [ref for ref in refs if ref.startswith(SNAPSHOTS)]),
        sum(os.path.getsize(path) for path in packs),
        os.path.isdir(directory_of(repository.common_state)),
        os.path.isdir(FetchedStore.of(repository).path),
    )


def forget_history(repository: Repository, found: HistoryInventory) -> list[str]:
    """Take it all away; returns what the user has to know."""
    state_directory(repository.common_state)
    own = os.path.join(state_directory(repository.state), "lock")
    with (
        locked(own),
        locked_now(os.path.join(repository.common_state, UPKEEP_LOCK)) as idle,
        locked_now(os.path.join(repository.common_state, COMMON_LOCK)) as alone,
    ):
        if not (alone and idle):
            what = "a cleaning is under way" if alone else "a capture is under way in another working tree"
            raise Refused(what, hint="run the command again in a moment")
        _refuse_changed(repository, found)
        _refuse_left(found)
        refuse_beside_writers(repository)
        held = held_for_git(repository)
        _keep_keys(found)
        repository.move_refs([RefUpdate(ref, None, oid) for ref, oid in found.refs.items()])
        for prefix in (*OURS, "refs/notes/"):
            _remove_empty(os.path.join(repository.common_dir, prefix))
        _remove_packs(repository, found, held)
        return _remove_states(found)


def _refs(repository: Repository) -> dict[str, str]:
    return {ref: oid for prefix in OURS for ref, oid in repository.list_refs(prefix).items()}


def _refuse_changed(repository: Repository, found: HistoryInventory) -> None:
    """What came while somebody was asked stands on packs that would go, and was not in the question."""
    if (_refs(repository), tuple(_packs(repository.pack_dir))) != (found.refs, found.packs):
        raise Refused("the history has changed meanwhile", hint="run the command again: it asks anew")


def _refuse_left(found: HistoryInventory) -> None:
    for state in found.states:
        if os.path.lexists(os.path.join(state, "restore", "journal")):
            raise UnfinishedRestore


def _remove_empty(top: str) -> None:
    """git leaves the directories of refs that have gone."""
    for directory, _, _ in os.walk(top, topdown=False):
        with suppress(OSError):
            os.rmdir(directory)


def _remove_packs(repository: Repository, found: HistoryInventory, held: PackContents) -> None:
    ids = [bytes.fromhex(oid) for oid in found.refs.values()]
    # A cache that names what has gone would hide what has not.
    drop_caches_naming(repository.objects_dir, ids)
    take_packs(repository, found.packs, held)
    for spare in spares(repository.common_state, repository.pack_dir):
        shutil.rmtree(spare, ignore_errors=True)
    for path in found.packs:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _remove_states(found: HistoryInventory) -> list[str]:
    if found.keys_stay:
        # First of all: killed after it, whoever begins again finds no key whose copy might go.
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(found.states[-1], REPOSITORY))
        shutil.rmtree(os.path.join(found.states[-1], KEYS), ignore_errors=True)
    for state in found.states:
        shutil.rmtree(state, ignore_errors=True)
    if found.keys_stay:
        what = "was sent elsewhere is" if found.has_left else "came from elsewhere may be"
        return [f"what {what} opened by this key, which stays: '{path}'" for path in found.keys]
    for path in found.keys:
        with suppress(OSError):
            os.unlink(path)
    return []


def _keep_keys(found: HistoryInventory) -> None:
    """Before anything goes: another repository of this user may have taken the copy along when it was forgotten."""
    for copy in found.keys if found.keys_stay else ():
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
    ours = [base for base in bases if bears_mark(os.path.join(pack_dir, f"{base}.keep"))]
    for base in ours:
        # The index goes first, as git itself has it: without one nobody looks for the pack.
        for ending in (".idx", ".rev", ".bitmap", ".mtimes", ".pack", ".keep"):
            if f"{base}{ending}" in names:
                yield os.path.join(pack_dir, f"{base}{ending}")


def states_of(repository: Repository) -> Iterator[str]:
    """Our directories in the git directories of all working trees, the common one last."""
    linked = os.path.join(repository.common_dir, "worktrees")
    for name in sorted(os.listdir(linked)) if os.path.isdir(linked) else []:
        state = os.path.join(linked, name, "envhist")
        if os.path.isdir(state):
            yield state
    if os.path.isdir(repository.common_state):
        yield repository.common_state


def _copies_of_keys(repository: Repository, environ: Mapping[str, str]) -> Iterator[str]:
    copies = os.path.join(config_home(environ), "git-envhist", KEYS)
    ring = KeyRing(repository.common_state, config_home(environ))
    yield from (os.path.join(copies, name) for name in sorted({*ring.ours.ids(), *ring.created_here()}))


def _count(repository: Repository, refs: list[str]) -> int:
    if not refs:
        return 0
    done = repository.git.ask("rev-list", "--count", *refs)
    return int(done.out) if done.status == 0 else 0
