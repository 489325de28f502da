"""One cleaning, from what killed runs left to the repository of what was fetched; and the one that comes by itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from git_envhist.capturing.publish import is_published
from git_envhist.errors import EnvhistError, UsageError
from git_envhist.model import Fault, GcResult
from git_envhist.store.checking import check_packs
from git_envhist.store.collecting import DAY, NOTHING_STAYS, collect
from git_envhist.store.deflate import crc32
from git_envhist.store.fetched import FetchedStore
from git_envhist.store.handover import RepositoryBusy
from git_envhist.store.locks import state_directory
from git_envhist.store.ownpacks import own_names
from git_envhist.store.reflocks import sweep_locks
from git_envhist.store.repository import HEADS, NOTES, TRASH, Repository
from git_envhist.store.staging import sweep
from git_envhist.system import core_count
from git_envhist.upkeep.checking import check
from git_envhist.upkeep.daily import lower_priority, postpone
from git_envhist.upkeep.finding import lost_snapshots
from git_envhist.upkeep.trouble import save_problems
from git_envhist.values import replace

SHARES = 14
MANY_REFS = 3
"""The newest moment and the notes of a timeline that lives are two."""
NOW, NEVER = ("now", "all"), ("never", "false")
HINT = "git envlog gc --prune=now"


def clean(repository: Repository, prune: str | None, tell: Callable[[str], None]) -> GcResult:
    """Run the cleaning that a command asked for."""
    keep_since = since_when(repository, prune)
    sweep_killed(repository)
    spared = _left_behind(repository)
    done = collect(repository, keep_since=keep_since, threads=core_count(), tell=tell, also=spared)
    pack_refs(repository)
    fetched = FetchedStore.of(repository)
    if fetched.is_there:
        tell("packing what was fetched")
        packed = fetched.git.try_run("gc", "--quiet")
        if packed.status != 0:
            return replace(done, damaged=(*done.damaged, f"what was fetched: {packed.complaint}"))
    return done


def daily(repository: Repository, thin: Callable[[], None]) -> None:
    """What comes by itself, behind everybody else; `thin`: lets go what is not to be kept."""
    lower_priority()
    do_daily(repository, thin)


def do_daily(repository: Repository, thin: Callable[[], None]) -> None:
    """The same in its turn."""
    try:
        sweep_killed(repository)
        # What cannot be thinned today can be packed all the same.
        with suppress(EnvhistError):
            thin()
        collect(repository, thorough=False, also=_left_behind(repository))
        pack_refs(repository)
    except RepositoryBusy:
        postpone(repository)
    check_some_packs(repository)


def _left_behind(repository: Repository) -> list[str]:
    """The commits that a repair is to put back."""
    return [link.commit for links in lost_snapshots(repository).values() for link in links]


def pack_refs(repository: Repository) -> None:
    """Have our refs stand in one file of git's where they are many: each of its own costs every `git fetch` time."""
    places = (HEADS, TRASH, NOTES)
    loose = sum(
        len(names) for place in places for _, _, names in os.walk(os.path.join(repository.common_dir, place))
    )
    if loose < MANY_REFS:
        return
    ours = [f"--include={place}*" for place in places]
    # Before 2.43 git packs all refs or none, as its own gc does.
    if repository.git.try_run("pack-refs", *ours).status > 0 and _may_pack_all(repository):
        repository.git.try_run("pack-refs", "--all")


def _may_pack_all(repository: Repository) -> bool:
    return dict(repository.read_config()).get("gc.packrefs", "true") in (
        None,
        "true",
        "yes",
        "on",
        "1",
        "notbare",
    )


def check_some_packs(repository: Repository, now: float | None = None) -> None:
    """Check whether all is there, and every byte of some packs: each comes around in two weeks."""
    day = int((time.time() if now is None else now) // DAY)
    share = [name for name in own_names(repository.pack_dir) if crc32(name.encode()) % SHARES == day % SHARES]
    looked = check(repository, quick=True, tell=_say_nothing)
    found = list(looked.faults)
    if looked.told:
        found.append(
            Fault("snapshot", looked.told[0].commit[:7], f"{len(looked.told)} moments are not whole")
        )
    found += [
        Fault("pack", f"{bad.name}.pack", bad.why)
        for bad in check_packs(repository, quick=False, only=share).bad
    ]
    told = {fault.subject: f"damage was found: {fault.kind} {fault.subject}: {fault.why}" for fault in found}
    if told:
        hint = "'git envlog fsck' says which moments it touches"
        save_problems(repository.common_state, [*told.values(), hint])


def _say_nothing(_: str) -> None:
    pass


def sweep_killed(repository: Repository) -> None:
    """Clear up after captures and cleanings that died."""
    # A clone that brought packs of ours along has none yet.
    state_directory(repository.common_state)
    git = repository.git
    sweep(repository.common_state, repository.pack_dir, lambda commit: is_published(git, commit))
    # Those beside git's list of packs and its commit-graph too: both are written by gits of ours, and a lock that one
    # of them left would keep the user's from writing theirs.
    caches = (os.path.join("objects", "pack"), os.path.join("objects", "info"))
    places = [os.path.join(repository.common_dir, place) for place in (HEADS, TRASH, NOTES, *caches)]
    sweep_locks(places, repository.gits_at_work)


def since_when(repository: Repository, words: str | None) -> float | None:
    """The moment that is meant, in git's words; None where none is said."""
    if words is None:
        return None
    if words in NOW:
        return NOTHING_STAYS
    if words in NEVER:
        return -NOTHING_STAYS
    # As git reads gc.pruneExpire: a slip of the pen is an error there, and not now.
    asked = ("-c", f"gc.pruneExpire={words}", "config", "--type=expiry-date", "--get", "gc.pruneExpire")
    moment = os.fsdecode(repository.git.ask(*asked).out).strip()
    if not moment.isdecimal():
        raise UsageError(f"not a time: '{words}'", hint=HINT)
    return float(moment)
