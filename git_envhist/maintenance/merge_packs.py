"""Many small packs into few: each capture leaves a pack or two, and git looks an object up in every pack there is.

Packs are merged geometrically, like the digits of a counter: each is at least twice as large as all smaller ones
together, so that their number grows with the logarithm of the history and every byte is copied only so often. Entries
are copied as they are, nothing is inflated; each must still have the checksum that its index gives it, and a pack
where one has not is left as it is, to be found by a check.

The order, for a kill at any point: the merged pack is published and durable; only then do the packs it replaces go,
into the staging, from which they come back if they are wanted. What a kill leaves behind is objects that stand twice.

A git that reads an object finds it again when its pack has gone. One that goes by a list of packs made before
(`fsck`, `repack`, `multi-pack-index`, a local clone) may fail, or write down a pack that has gone: while one of these
is at work, and while gits are being started one after the other, nothing is merged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from git_envhist.disk import (
    COMMON_LOCK,
    UPKEEP_LOCK,
    locked_now,
    remove_if_present,
    sync_directory,
)
from git_envhist.errors import Damaged, EnvhistError
from git_envhist.git.refs import RunningGit, callers
from git_envhist.git.repository import Repository
from git_envhist.objects.own_packs import (
    GONE,
    drop_caches,
    forget_second_names,
    names_of,
    own_names,
    packs_named,
    put_aside,
    put_back,
)
from git_envhist.objects.pack_reader import entries
from git_envhist.objects.pack_writer import PackWriter
from git_envhist.objects.permissions import tighten
from git_envhist.platform import open_file_only
from git_envhist.snapshots.staging import Staging, open_published, unpublished

FACTOR = 2
MAX_PACKS = 5
"""Each costs a git of the user's a hundredth of its time, or two, where it has little to do."""
MAX_SIZE = 32 << 20
"""Larger packs are not copied while somebody waits."""
AT_ONCE = 2
"""So many times the largest is copied after one capture at most; the rest is for the captures that follow."""
AT_A_TIME = 24
"""So many packs go between two looks: a git that comes meanwhile, and listed them, misses them for milliseconds."""
# fmt: off
BY_PACKS = frozenset((
    "bundle", "clone", "commit-graph", "count-objects", "fsck", "gc", "index-pack", "maintenance", "multi-pack-index",
    "pack-objects", "pack-redundant", "prune", "prune-packed", "repack", "upload-pack", "verify-pack",
))
# fmt: on
LOCKS = ("gc.pid", "objects/maintenance.lock", "objects/pack/multi-pack-index.lock")
"""By these a system that does not tell of its processes shows that packs are being cleaned."""
FORGOTTEN = 12 * 3600.0
"""Seconds after which git itself takes a `gc.pid` for one that was left."""
PAUSE = 0.02
RECENT = 2.0
"""Seconds: a git as young as this is one of a row, where an old one only waits for questions."""


def no_running_git() -> list[RunningGit]:
    """For a repository in which no git is at work."""
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
    """Merge what should be merged; how many packs went. To be called while no capture runs."""
    from git_envhist.maintenance.weigh_packs import read_kinds  # loaded late: most captures merge nothing

    common_dir = os.path.dirname(os.path.dirname(pack_dir))
    own = open_published(common_state, pack_dir, object_format)
    try:
        # What gc wrote holds differences, which cannot be copied alone: gc itself keeps those packs few.
        kinds = read_kinds(common_state)
        chosen = _chosen(
            [path for name, path in zip(own.names, own.paths, strict=True) if name not in kinds],
            largest,
            most,
        )
        if not chosen or not no_git_reads_packs(common_dir, at_work):
            return 0
        with Staging.create(common_state, pack_dir, shared) as staging:
            replaced = _write_merged(staging, object_format, chosen)
            # Who came meanwhile keeps both: the next merge takes in what stands twice.
            if not replaced or not no_git_reads_packs(common_dir, at_work):
                return 0
            return _take_away(staging, common_state, replaced, lambda: goes_by_packs(common_dir, at_work()))
    finally:
        own.close()


def no_git_reads_packs(common_dir: str, at_work: Callable[[], Sequence[RunningGit] | None]) -> bool:
    """Whether no git goes by packs here, and none is likely to begin to before we are done.

    One that begins while we look may list a pack and miss it when it comes to it. Where gits follow each other, one was
    there a moment ago, or will be there in a moment.
    """
    for turn in range(2):
        if turn:
            time.sleep(PAUSE)
        gits = at_work()
        if goes_by_packs(common_dir, gits) or _somebody_is_busy(gits or ()):
            return False
    return True


def _somebody_is_busy(gits: Sequence[RunningGit]) -> bool:
    now = time.time()
    recent = [git for git in gits if now - git.started < RECENT]
    # A git that waits for us (`git envlog`, a commit whose hook we are) begins nothing while it does.
    return bool(recent) and not {git.pid for git in recent} <= callers()


def goes_by_packs(common_dir: str, gits: Sequence[RunningGit] | None) -> bool:
    """Whether a git is at work, or for all we know may be, that must not lose a pack that it has listed."""
    now = time.time()
    if gits is None:
        locks = [os.path.join(common_dir, name) for name in LOCKS]
        return any(_is_younger(lock, now) for lock in locks)
    if any(git.command in BY_PACKS and now - git.started < FORGOTTEN for git in gits):
        return True
    return _collects_elsewhere(os.path.join(common_dir, "gc.pid"), now)


def _collects_elsewhere(path: str, now: float) -> bool:
    """Whether a `git gc` of another machine, or of another container, stands in `gc.pid`."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=open_file_only) as file:
            _, _, host = file.read(4096).strip().partition(" ")
    except OSError:
        return False
    return host != os.uname().nodename and _is_younger(path, now)


def _is_younger(path: str, now: float) -> bool:
    try:
        return now - os.lstat(path).st_mtime < FORGOTTEN
    except OSError:
        return False


def choose(sizes: Sequence[int], most: int = MAX_PACKS) -> int:
    """How many of the smallest packs, sizes in ascending order, are to become one."""
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
    count = choose([size for size, _ in small], most)
    while count > 2 and sum(size for size, _ in small[:count]) > AT_ONCE * largest:
        count -= 1
    return [path for _, path in small[:count]] if count > 1 else []


def _write_merged(staging: Staging, object_format: str, paths: list[str]) -> list[str]:
    """Publish one pack with everything that some hold; the packs that it really replaces."""
    hash_length = 20 if object_format == "sha1" else 32
    replaced = []
    with PackWriter(staging.pack_dir, object_format) as writer:
        for path in paths:
            before = writer.mark()
            try:
                for oid, entry, checksum in entries(path, hash_length):
                    writer.put(oid, entry, checksum)
            except (Damaged, OSError):
                writer.rollback(before)
            else:
                replaced.append(path)
        merged = writer.finish() if len(replaced) > 1 else None
    if merged is None:
        return []
    staging.publish([merged])
    # No commit speaks for the merged pack: found in a journal after a power cut, it would be taken back.
    staging.make_permanent()
    return replaced


def _take_away(
    staging: Staging, common_state: str, paths: Sequence[str], is_wanted: Callable[[], bool]
) -> int:
    """Let packs go, some at a time; how many went. They come back where a git is at work that may have listed them.

    One that listed them before they went would write down, when they are gone, that they are there; below such an index
    nothing of theirs is found, although the merged pack has it all. Whoever is not at work any more when they are out
    of sight has written already, and what it wrote is dropped.
    """
    pack_dir, bases = os.path.dirname(paths[0]), names_of(paths)
    aside = os.path.join(staging.path, GONE)
    went = 0
    for start in range(0, len(bases), AT_A_TIME):
        some = bases[start : start + AT_A_TIME]
        if start and is_wanted():
            break
        forget_second_names(common_state, pack_dir, some)
        put_aside(pack_dir, aside, some)
        if is_wanted():
            put_back(aside, pack_dir, some)
            break
        drop_caches(pack_dir, some)
        went += len(some)
    sync_directory(pack_dir)
    return went


# git's own list of several packs (its multi-pack-index): one file to look in, where each of them would be another.
#
# Whoever asks git for an object that stands in no pack, as all of a young repository's do, has it open the index of
# every pack there is. With this list it opens one file in the place of all that stand there.
#
# Packs that a cleaning wrote stand in ours: they change once a day, by cleanings alone. Those of captures are merged
# every few captures, and to write the list takes some 25 milliseconds; so they come into it only where they cannot be
# merged and are many. Whoever takes a pack away drops the list before that (`gitcaches`). A list that names a pack of
# somebody else's is theirs, and is left as it is.

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
    from git_envhist.maintenance.weigh_packs import read_kinds  # loaded late: most captures merge nothing

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


# Keeps the packs few after a capture or a restore, when nobody is in the way, and has the rest done once a day.
#
# A failure costs nothing but room.

AFTER_RESTORE = 2 * MAX_PACKS
"""A restore leaves two packs of a few kilobytes: whoever goes back and forth need not wait for their merging each time.
The next capture does it."""


def merge_packs_after(repository: Repository, most: int = MAX_PACKS) -> None:
    """Merge small packs where there are more than so many, unless a capture of another working tree, or a git that goes
    by packs, is under way; where gits leave no gap for it, have them know all packs by one list."""
    from git_envhist.maintenance.daily import begin_if_due  # loaded late: most captures merge nothing

    state = repository.common_state
    try:
        with (
            locked_now(os.path.join(state, UPKEEP_LOCK)) as idle,
            locked_now(os.path.join(state, COMMON_LOCK)) as alone,
        ):
            if idle and alone:
                before = listed(repository)
                merge_packs(
                    repository.common_state,
                    repository.pack_dir,
                    repository.object_format,
                    most=most,
                    at_work=repository.gits_at_work,
                    shared=repository.shared,
                )
                keep_listed(repository, before, most)
        begin_if_due(repository)
    except (EnvhistError, OSError):
        return  # the next capture tries again; the snapshot that was just taken must not be spoken of as failed
