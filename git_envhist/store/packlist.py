"""git's own list of several packs (its multi-pack-index): one file to look in, where each of them would be another.

Whoever asks git for an object that stands in no pack, as all of a young repository's do, has it open the index of every
pack there is. With this list it opens one file in the place of all that stand there.

Packs that a cleaning wrote stand in ours: they change once a day, by cleanings alone. Those of captures are merged
every few captures, and to write the list takes some 25 milliseconds; so they come into it only where they cannot be
merged and are many. Whoever takes a pack away drops the list before that (`gitcaches`). A list that names a pack of
somebody else's is theirs, and is left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from git_envhist.store.durable import remove_if_present
from git_envhist.store.gitcaches import packs_named
from git_envhist.store.merging import goes_by_packs
from git_envhist.store.openness import tighten
from git_envhist.store.ownpacks import own_names
from git_envhist.store.repository import Repository
from git_envhist.store.staging import unpublished
from git_envhist.store.weighing import read_kinds

FEWEST = 2
SINGLE, LAYERED = "multi-pack-index", "multi-pack-index.d"


def list_packs(repository: Repository, names: Iterable[str]) -> None:
    """Have git know these packs of ours by one list; nothing is done where it keeps one of its own."""
    wanted = {f"{name}.idx".encode("ascii") for name in names}
    path = os.path.join(repository.pack_dir, SINGLE)
    if os.path.lexists(os.path.join(repository.pack_dir, LAYERED)):
        return
    if os.path.lexists(path):
        named = set(packs_named(path))
        ours = {f"{name}.idx".encode("ascii") for name in own_names(repository.pack_dir)}
        if not named or named == wanted or not named <= ours:
            return
    if len(wanted) >= FEWEST:
        asked = b"".join(name + b"\n" for name in sorted(wanted))
        # A git before 2.34 takes no names. To be without the list costs time alone, and not ours.
        repository.git.try_run("multi-pack-index", "write", "--stdin-packs", stdin=asked)
        tighten(repository.pack_dir, repository.shared)


def listed(repository: Repository) -> frozenset[str]:
    """The packs that git knows by its list, whosever it is."""
    named = packs_named(os.path.join(repository.pack_dir, SINGLE))
    return frozenset(os.fsdecode(name).removesuffix(".idx") for name in named)


def keep_listed(repository: Repository, before: Collection[str], most: int) -> None:
    """After captures' packs were merged, or could not be: list all where more than so many are in no list, and else
    those of cleanings again, if the list of `before` named what went.

    To be called while nobody captures or cleans: what is listed must not be on its way out.
    """
    own = set(own_names(repository.pack_dir)) - unpublished(repository.common_state, repository.pack_dir)
    now = listed(repository)
    cleaned = own & read_kinds(repository.common_state).keys()
    wanted = own if len(own - cleaned - now) > most else cleaned if before and not now else ()
    # One who writes such a list, too, would find it locked.
    if wanted and not goes_by_packs(repository.common_dir, repository.gits_at_work()):
        list_packs(repository, wanted)


def list_is_damaged(repository: Repository) -> bool:
    """Whether git's list of packs, whosever it is, does not say what the packs say."""
    if not os.path.lexists(os.path.join(repository.pack_dir, SINGLE)):
        return False
    return repository.git.ask("multi-pack-index", "verify").status != 0


def drop_damaged_list(repository: Repository) -> bool:
    """Have git do without its list where that is damaged; whether it was."""
    return list_is_damaged(repository) and remove_if_present(os.path.join(repository.pack_dir, SINGLE))
