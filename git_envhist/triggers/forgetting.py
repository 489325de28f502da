"""A whole history, taken out of a repository: refs first, so that nothing is left that names what has gone.

The copies of its keys in the user's configuration go too, unless something sealed with them has left this repository,
or came from another: then they may be all that opens it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress

from git_envhist.capturing.tidying import COMMON_LOCK
from git_envhist.errors import Refused, UnfinishedRestore
from git_envhist.settings import config_home
from git_envhist.store.durable import cannot_write
from git_envhist.store.fetched import FetchedStore
from git_envhist.store.gitcaches import drop_caches_naming
from git_envhist.store.keyfiles import KeyDirectory
from git_envhist.store.keyorigins import REPOSITORY
from git_envhist.store.keys import KeyRing
from git_envhist.store.locks import UPKEEP_LOCK, locked, locked_now, state_directory
from git_envhist.store.ownpacks import bears_mark
from git_envhist.store.remotememory import directory_of
from git_envhist.store.repository import RefUpdate, Repository
from git_envhist.store.spares import spares
from git_envhist.triggers.handingback import PackContents, held_for_git, refuse_beside_writers, take_packs
from git_envhist.values import dataclass

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
    yield from (os.path.join(copies, name) for name in sorted({*ring.ours.ids(), *ring.made_here()}))


def _count(repository: Repository, refs: list[str]) -> int:
    if not refs:
        return 0
    done = repository.git.ask("rev-list", "--count", *refs)
    return int(done.out) if done.status == 0 else 0
