"""Takes our packs out of a repository, less what is the user's: that is handed back to git.

A `git add` that finds its content in a pack of ours stores nothing. Whatever a branch, an index, a reflog or something
half done leads to is written into a pack of git's own before ours go; they come back where anything is missing then.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from git_envhist.errors import Damaged, Refused
from git_envhist.store.atwork import hint_after, in_words
from git_envhist.store.durable import sync_directory
from git_envhist.store.gitcaches import drop_broken_index
from git_envhist.store.handover import remove_packs
from git_envhist.store.idx import PackIndex
from git_envhist.store.places import share
from git_envhist.store.reaching import NOT_OURS, git_dirs_of, reachable_objects, unreferenced_tips
from git_envhist.store.repacking import AS_IT_IS, write_pack
from git_envhist.store.repository import Repository
from git_envhist.store.retiring import may_write, names_of
from git_envhist.store.staging import Staging, open_published


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
            f"packs cannot be removed while another git may use them: {in_words(writers)}",
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
    for pack in write_pack(repository.git, *where, objects, AS_IT_IS):
        for path in (pack.pack_path, pack.index_path):
            share(path, target)
            os.rename(path, os.path.join(repository.pack_dir, os.path.basename(path)))
    if objects:
        sync_directory(repository.pack_dir)
