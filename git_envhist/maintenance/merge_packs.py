"""Merge many small packs into few: each capture leaves a pack or two, and git searches every pack for an object.

Packs are merged geometrically, like the digits of a counter: each is at least twice as large as all smaller ones
together, so their number grows with the logarithm of the history and each byte is copied a bounded number of times.
Entries are copied without inflating; each must still match the checksum in its index. A pack with a mismatch is left
unchanged, for fsck to find.

The merged pack is published and durable before the packs that it replaces are moved into the staging; from there they
are moved back if a git needs them. A kill leaves objects that exist twice.

A git that reads an object searches again if its pack has disappeared. One that works from a list of packs (`fsck`,
`repack`, `multi-pack-index`, a local clone) may fail or record a removed pack: nothing is merged while one of these
runs, or while gits are started in quick succession.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from git_envhist.disk import remove_if_present, sync_directory
from git_envhist.errors import Damaged, EnvhistError
from git_envhist.git.repository import Repository
from git_envhist.git.running_git import RunningGit, ancestor_processes
from git_envhist.locks import COMMON_LOCK, UPKEEP_LOCK, try_lock
from git_envhist.objects.own_packs import (
    GONE,
    drop_caches,
    names_of,
    own_names,
    packs_named,
    put_aside,
    put_back,
    remove_spare_links,
)
from git_envhist.objects.pack_file import read_entries
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.objects.permissions import close_packs
from git_envhist.platform import open_file_only
from git_envhist.snapshots.staging import Staging, open_published, unpublished

FACTOR = 2
MAX_PACKS = 5
"""Each pack costs the user's git one or two hundredths of its time in short commands."""
MAX_SIZE = 32 << 20
"""Larger packs are not copied while a user waits."""
MAX_COPY_FACTOR = 2
"""Copy at most this many times the largest size after one capture; the rest is for later captures."""
BATCH = 24
"""Packs removed between two checks: a git started meanwhile that listed them misses them for milliseconds."""
# fmt: off
PACK_COMMANDS = frozenset((
    "bundle", "clone", "commit-graph", "count-objects", "fsck", "gc", "index-pack", "maintenance", "multi-pack-index",
    "pack-objects", "pack-redundant", "prune", "prune-packed", "repack", "upload-pack", "verify-pack",
))
# fmt: on
LOCKS = ("gc.pid", "objects/maintenance.lock", "objects/pack/multi-pack-index.lock")
"""On a system that does not list processes, these files show that packs are being cleaned."""
STALE = 12 * 3600.0
"""Seconds after which git itself considers a `gc.pid` stale."""
PAUSE = 0.02
RECENT = 2.0
"""Seconds: a younger git belongs to a series of commands; an older one is waiting for requests."""


def no_running_git() -> list[RunningGit]:
    """Return no gits, for repositories in which none runs."""
    return []


def merge_packs(
    common_state: str,
    pack_dir: str,
    object_format: str,
    *,
    largest: int = MAX_SIZE,
    most: int = MAX_PACKS,
    at_work: Callable[[], Sequence[RunningGit] | None] = no_running_git,
    shared: int = 0,
) -> int:
    """Merge small packs and return the number of packs removed. Call it while no capture runs."""
    from git_envhist.maintenance.pack_usage import read_kinds  # loaded late: most captures merge nothing

    common_dir = os.path.dirname(os.path.dirname(pack_dir))
    own = open_published(common_state, pack_dir, object_format)
    try:
        # Packs written by gc contain deltas, which cannot be copied alone; gc keeps their number small.
        kinds = read_kinds(common_state)
        chosen = _chosen(
            [path for name, path in zip(own.names, own.paths, strict=True) if name not in kinds],
            largest,
            most,
        )
        if not chosen or not no_git_works_from_packs(common_dir, at_work):
            return 0
        with Staging.create(common_state, pack_dir, shared) as staging:
            replaced = _write_merged(staging, object_format, chosen)
            # If a git started meanwhile, both copies stay; the next merge handles them.
            if not replaced or not no_git_works_from_packs(common_dir, at_work):
                return 0
            return _remove(staging, common_state, replaced, lambda: works_from_packs(common_dir, at_work()))
    finally:
        own.close()


def no_git_works_from_packs(common_dir: str, at_work: Callable[[], Sequence[RunningGit] | None]) -> bool:
    """Return False if a git works from a list of packs, or is likely to start soon.

    A git that starts during the check may list a pack and miss it later. If gits run in quick succession, one ran a
    moment ago or will run in a moment.
    """
    for turn in range(2):
        if turn:
            time.sleep(PAUSE)
        gits = at_work()
        if works_from_packs(common_dir, gits) or _has_recent_git(gits or ()):
            return False
    return True


def _has_recent_git(gits: Sequence[RunningGit]) -> bool:
    now = time.time()
    recent = [git for git in gits if now - git.started < RECENT]
    # A git that waits for us (`git envlog`, a commit that runs our hook) starts nothing meanwhile.
    return bool(recent) and not {git.pid for git in recent} <= ancestor_processes()


def works_from_packs(common_dir: str, gits: Sequence[RunningGit] | None) -> bool:
    """Return whether a git is running, or may be, that must not lose a pack that it has listed."""
    now = time.time()
    if gits is None:
        locks = [os.path.join(common_dir, name) for name in LOCKS]
        return any(_is_younger(lock, now) for lock in locks)
    if any(git.command in PACK_COMMANDS and now - git.started < STALE for git in gits):
        return True
    return _gc_runs_elsewhere(os.path.join(common_dir, "gc.pid"), now)


def _gc_runs_elsewhere(path: str, now: float) -> bool:
    """Return whether `gc.pid` names a `git gc` of another machine or container."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=open_file_only) as file:
            _, _, host = file.read(4096).strip().partition(" ")
    except OSError:
        return False
    return host != os.uname().nodename and _is_younger(path, now)


def _is_younger(path: str, now: float) -> bool:
    try:
        return now - os.lstat(path).st_mtime < STALE
    except OSError:
        return False


def count_packs_to_merge(sizes: Sequence[int], most: int = MAX_PACKS) -> int:
    """Return how many of the smallest packs to merge, given the sizes in ascending order."""
    if len(sizes) <= most:
        return 0
    total, split = 0, 0
    for number, size in enumerate(sizes):
        if size < FACTOR * total:
            split = number + 1
        total += size
    return split


def _chosen(paths: Sequence[str], largest: int, most: int) -> list[str]:
    sizes = {path: os.stat(path).st_size for path in paths}
    small = sorted((size, path) for path, size in sizes.items() if size <= largest)
    count = count_packs_to_merge([size for size, _ in small], most)
    while count > 2 and sum(size for size, _ in small[:count]) > MAX_COPY_FACTOR * largest:
        count -= 1
    return [path for _, path in small[:count]] if count > 1 else []


def _write_merged(staging: Staging, object_format: str, paths: list[str]) -> list[str]:
    """Publish one pack with the objects of some packs. Return the packs that it replaces."""
    hash_length = 20 if object_format == "sha1" else 32
    replaced = []
    with PackWriter(staging.pack_dir, object_format) as writer:
        for path in paths:
            before = writer.mark()
            try:
                for oid, entry, checksum in read_entries(path, hash_length):
                    writer.put(oid, entry, checksum)
            except (Damaged, OSError):
                writer.rollback(before)
            else:
                replaced.append(path)
        merged = writer.finish() if len(replaced) > 1 else None
    if merged is None:
        return []
    staging.publish([merged])
    # No commit refers to the merged pack: after a power cut, a sweep that finds it in a journal would remove it.
    staging.make_permanent()
    return replaced


def _remove(staging: Staging, common_state: str, paths: Sequence[str], is_needed: Callable[[], bool]) -> int:
    """Remove packs in batches and return how many were removed; a batch is moved back if a git may have listed it.

    A git that listed the packs before could write an index that names them, which hides the merged pack's copies. A
    git that ended before the packs were moved aside has already written its index, and that is dropped.
    """
    pack_dir, bases = os.path.dirname(paths[0]), names_of(paths)
    aside = os.path.join(staging.path, GONE)
    removed = 0
    for start in range(0, len(bases), BATCH):
        batch = bases[start : start + BATCH]
        if start and is_needed():
            break
        remove_spare_links(common_state, pack_dir, batch)
        put_aside(pack_dir, aside, batch)
        if is_needed():
            put_back(aside, pack_dir, batch)
            break
        drop_caches(pack_dir, batch)
        removed += len(batch)
    sync_directory(pack_dir)
    return removed


# git's own list of several packs (its multi-pack-index): one file to search instead of one per pack.
#
# A git that looks for an object outside all packs, as most objects of a young repository are, opens the index of
# every pack; with the list it opens one file instead.
#
# Our list contains the packs written by gc, because they change once a day. Packs of captures are merged every few
# captures, and writing the list takes 25 ms, so they are listed only if they cannot be merged and are many. The list
# is dropped before a pack is removed (`drop_caches`). A list that names other packs is the user's and stays
# unchanged.

MIN_LISTED = 2
SINGLE, LAYERED = "multi-pack-index", "multi-pack-index.d"


def list_packs(repository: Repository, names: Iterable[str]) -> None:
    """Write git's list for these packs, unless git has one of its own."""
    wanted = {f"{name}.idx".encode("ascii") for name in names}
    path = os.path.join(repository.pack_dir, SINGLE)
    if os.path.lexists(os.path.join(repository.pack_dir, LAYERED)):
        return
    if os.path.lexists(path):
        named = set(packs_named(path))
        ours = {f"{name}.idx".encode("ascii") for name in own_names(repository.pack_dir)}
        if not named or named == wanted or not named <= ours:
            return
    if len(wanted) >= MIN_LISTED:
        asked = b"".join(name + b"\n" for name in sorted(wanted))
        # git before 2.34 accepts no names. Without the list git is only slower.
        repository.git.try_run("multi-pack-index", "write", "--stdin-packs", stdin=asked)
        close_packs(repository.pack_dir, repository.shared)


def listed_packs(repository: Repository) -> frozenset[str]:
    """Return the packs in git's list."""
    named = packs_named(os.path.join(repository.pack_dir, SINGLE))
    return frozenset(os.fsdecode(name).removesuffix(".idx") for name in named)


def update_pack_list(repository: Repository, before: Collection[str], most: int) -> None:
    """Update git's list of packs after captures' packs were merged, or could not be.

    It lists all packs if more than `most` are in no list, and otherwise those of gc, if the list of `before` was
    dropped. Call it while neither captures nor gc run: a listed pack must not be about to be removed.
    """
    from git_envhist.maintenance.pack_usage import read_kinds  # loaded late: most captures merge nothing

    own = set(own_names(repository.pack_dir)) - unpublished(repository.common_state, repository.pack_dir)
    now = listed_packs(repository)
    cleaned = own & read_kinds(repository.common_state).keys()
    wanted = own if len(own - cleaned - now) > most else cleaned if before and not now else ()
    # A git that writes such a list too would find it locked.
    if wanted and not works_from_packs(repository.common_dir, repository.gits_at_work()):
        list_packs(repository, wanted)


def list_is_damaged(repository: Repository) -> bool:
    """Return whether git's list of packs disagrees with the packs."""
    if not os.path.lexists(os.path.join(repository.pack_dir, SINGLE)):
        return False
    return repository.git.ask("multi-pack-index", "verify").status != 0


def drop_damaged_list(repository: Repository) -> bool:
    """Delete git's list if it is damaged. Return whether it was."""
    return list_is_damaged(repository) and remove_if_present(os.path.join(repository.pack_dir, SINGLE))


# After a capture or restore: keep the number of packs small and start the daily gc. A failure only costs space.

AFTER_RESTORE = 2 * MAX_PACKS
"""A restore leaves two packs of a few kilobytes: repeated undo and redo need not wait for merging each time. The next
capture merges them.
"""


def merge_packs_after(repository: Repository, most: int = MAX_PACKS) -> None:
    """Merge small packs if there are more than `most`.

    Nothing is merged while another capture, or a git that works from packs, is running; if gits leave no gap for a
    merge, all packs are listed instead.
    """
    from git_envhist.maintenance.start_daily_gc import (
        start_if_due,  # loaded late: most captures merge nothing
    )

    state = repository.common_state
    try:
        with (
            try_lock(os.path.join(state, UPKEEP_LOCK)) as upkeep_locked,
            try_lock(os.path.join(state, COMMON_LOCK)) as common_locked,
        ):
            if upkeep_locked and common_locked:
                before = listed_packs(repository)
                merge_packs(
                    repository.common_state,
                    repository.pack_dir,
                    repository.object_format,
                    most=most,
                    at_work=repository.gits_at_work,
                    shared=repository.shared,
                )
                update_pack_list(repository, before, most)
        start_if_due(repository)
    except (EnvhistError, OSError):
        return  # the next capture tries again; the snapshot just taken did not fail
