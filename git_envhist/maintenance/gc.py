"""Remove unreachable objects from our packs and repack the others, while captures, gits and readers keep running.

**The order**, and why nothing that is needed can be lost:

1. git computes what is reachable and the packs to replace are chosen, while captures continue: no lock is held.
2. The needed objects of these packs are written into new packs, durably, in a staging.
3. Captures wait briefly. Objects that became reachable since step 1 are found (a capture may reuse an object that
   nothing needed a minute ago) and written too. The new packs are published.
4. The old packs are moved aside. They are moved back if a git is running that may rely on one of their objects or has
   listed them, or if anything is missing that refs, indexes or reflogs reach now. Otherwise they are removed.

A kill before step 3 leaves a staging, which the next sweep removes. A kill in step 3 leaves objects that exist twice. A
kill in step 4 restores the old packs, unless their removal was already decided.

Unreachable is not always garbage: a `git add` that found its content in one of our packs stored nothing. Hence step 4,
and hence unreachable objects are kept for a while, as by git's own gc (`keep_since`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from git_envhist.disk import state_directory, system_errors
from git_envhist.errors import EnvhistError, GitFailed, UsageError
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, TRASH_REFS, Repository
from git_envhist.git.stale_locks import sweep_locks
from git_envhist.lazy import replace
from git_envhist.locks import UPKEEP_LOCK, locked, try_lock
from git_envhist.maintenance.found_problems import save_problems
from git_envhist.maintenance.fsck import check_history, check_packs
from git_envhist.maintenance.merge_packs import list_packs
from git_envhist.maintenance.pack_usage import (
    DELTIFIED,
    LONG_AGO,
    SET_APART,
    PackUsage,
    RepackPolicy,
    choose_packs_to_rewrite,
    measure_usage,
    packs_to_set_apart,
    read_kinds,
    times_of,
    write_kinds,
)
from git_envhist.maintenance.repack import (
    COPY,
    REDELTIFY,
    REUSE,
    RepositoryBusy,
    Tips,
    exclusive_access,
    git_dirs_of,
    present_objects_of,
    reachable_objects,
    remove_packs,
    tips_of,
    unreferenced_tips,
    write_pack,
)
from git_envhist.maintenance.start_daily_gc import lower_priority, postpone
from git_envhist.model import Fault, GcResult
from git_envhist.objects.deflate import crc32
from git_envhist.objects.own_packs import ASIDE, OwnPacks, names_of, own_names
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_writer import StagedPack
from git_envhist.objects.permissions import close_packs
from git_envhist.platform import core_count
from git_envhist.rewrite.salvage import lost_snapshots, set_aside_commits
from git_envhist.snapshots.fetched_store import FetchedStore
from git_envhist.snapshots.publish import is_published
from git_envhist.snapshots.staging import Staging, open_published, sweep

TWO_WEEKS = 14 * 24 * 3600.0
DAY = 24 * 3600.0
KEEP_NOTHING = float("inf")
MIN_AGE = 3600.0
"""On systems that do not list processes, nothing younger than this is removed."""

Written = tuple[StagedPack, str]
"""A new pack and its kind."""


def collect_garbage(
    repository: Repository,
    *,
    keep_since: float | None = None,
    thorough: bool = True,
    threads: int = 1,
    progress: Callable[[str], None] = lambda step: None,
    also: Sequence[str] = (),
) -> GcResult:
    """Remove unreachable objects from our packs, and repack the rest.

    The caller must not hold the common lock. `keep_since`: keep unreachable objects in packs that were used after
    that time (default: two weeks ago); `KEEP_NOTHING` keeps none. `thorough`: repack at any cost; otherwise only
    where it is worth it, and not while another gc runs. `progress` receives the steps. `also`: commits without a ref to
    keep with everything they reach.

    Raise `RepositoryBusy` if other processes did not finish in time, `GitFailed` if reachability cannot be
    determined; nothing is removed then.
    """
    now = time.time()
    since = now - TWO_WEEKS if keep_since is None else keep_since
    if repository.gits_at_work() is None:
        since = min(since, now - MIN_AGE)
    policy = RepackPolicy(since, thorough)
    state_directory(repository.common_state)
    with _upkeep_lock(repository, thorough) as is_locked:
        if not is_locked:
            return _nothing_done(repository)
        with system_errors(repository.pack_dir):
            done = _Collector(repository, policy, threads, progress, also).run()
        list_packs(repository, read_kinds(repository.common_state))
        close_packs(repository.pack_dir, repository.shared)
        return done


@contextmanager
def _upkeep_lock(repository: Repository, waits: bool) -> Iterator[bool]:
    path = os.path.join(repository.common_state, UPKEEP_LOCK)
    if waits:
        with locked(path, limited=True):
            yield True
    else:
        with try_lock(path) as is_locked:
            yield is_locked


def _nothing_done(repository: Repository) -> GcResult:
    own = _own(repository)
    try:
        count, size = _measure(own.paths)
    finally:
        own.close()
    return GcResult(count, count, size, size, 0, 0)


class _Collector:
    """A run of gc."""

    def __init__(
        self,
        repository: Repository,
        policy: RepackPolicy,
        threads: int,
        progress: Callable[[str], None],
        also: Sequence[str],
    ) -> None:
        self._repository = repository
        self._policy = policy
        self._threads = threads
        self._progress = progress
        self._also = also
        self._kinds = read_kinds(repository.common_state)
        self._now = time.time()

    def run(self) -> GcResult:
        repository = self._repository
        self._progress("finding the objects that are still needed")
        own = _own(repository)
        try:
            count, size = _measure(own.paths)
            damaged = tuple(error.message for error in own.damaged)
            ours = {oid for pack in own.packs for oid in pack.index.names()}
            tips = tips_of(repository.git)
            needed = self._reached(ours)
            weighed = [
                measure_usage(pack, self._kinds.get(name, ""), needed, self._now)
                for name, pack in zip(own.names, own.packs, strict=True)
            ]
            chosen = choose_packs_to_rewrite(weighed, self._policy)
            # Some are in more than one pack.
            kept = len({oid for pack in weighed for oid in pack.dead})
            if not chosen:
                return GcResult(count, count, size, size, 0, kept, damaged)
            removed = self._replace(chosen, needed, tips, own)
        finally:
            own.close()
        left = _own(repository)
        try:
            count_left, size_left = _measure(left.paths)
        finally:
            left.close()
        return GcResult(count, count_left, size, size_left, removed, kept - removed, damaged)

    def _reached(self, ours: set[bytes], since: Tips | None = None) -> dict[bytes, bytes]:
        repository = self._repository
        more = unreferenced_tips(git_dirs_of(repository.common_dir))
        found = reachable_objects(repository.git, ours.__contains__, more=more, since=since)
        # Packs and refs that a repair set aside may be incomplete, but they are not garbage.
        set_aside = [*set_aside_commits(repository.common_state), *self._also]
        return present_objects_of(repository.git, set_aside, ours.__contains__) | found

    def _replace(
        self, chosen: Sequence[PackUsage], needed: Mapping[bytes, bytes], tips: Tips, own: OwnPacks
    ) -> int:
        """Write the needed objects of some packs again and remove the packs. Return the number of objects removed."""
        repository = self._repository
        old = names_of(pack.path for pack in chosen)
        ids = {pack: frozenset(_ids(repository, pack.path)) for pack in chosen}
        all_ids = {oid for names in ids.values() for oid in names}
        # Another copy may be damaged, so every needed object of a pack is written, even if it exists elsewhere.
        live = {oid: path for oid, path in needed.items() if oid in all_ids}
        with Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging:
            self._progress("writing packs")
            packed = {oid for pack, names in ids.items() if pack.kind for oid in names}
            new = [one for plan in self._write_plans(live, packed) for one in self._write(staging, *plan)]
            apart, set_apart = self._set_apart(staging, chosen, live)
            left = all_ids - live.keys() - apart
            with exclusive_access(repository, removes=bool(left)):
                self._progress("putting them in place")
                late = {oid: path for oid, path in self._reached(all_ids, tips).items() if oid in left}
                times = _times_in(repository.pack_dir, old)
                again = self._used_again(chosen, all_ids - live.keys() - late.keys())
                new += self._write(staging, late, COPY)
                new += self._write(staging, again, COPY, f"{SET_APART} {int(time.time())}")
                self._publish(staging, [*new, *set_apart])
                removed = left - late.keys() - again.keys()
                known = times if removed else {}
                graph_command = remove_packs(
                    repository, staging, old, removed, lambda now: self._check(staging, all_ids, now, known)
                )
            # On NFS an open pack keeps a name after its removal, and so does the staging.
            own.close()
        self._store_kinds({})
        if graph_command:
            # A cache of git's: without it git is only slower.
            repository.git.try_run(*graph_command)
        return len(removed)

    def _check(self, staging: Staging, all_ids: set[bytes], tips: Tips, times: Mapping[str, int]) -> None:
        """Raise an error if packs that were moved aside are needed: an object is missing, or git used one since."""
        self._reached(all_ids, tips)
        if _times_in(os.path.join(staging.path, ASIDE), times) != times:
            raise GitFailed("git used a pack that was about to be removed")

    def _set_apart(
        self, staging: Staging, chosen: Sequence[PackUsage], live: Mapping[bytes, bytes]
    ) -> tuple[set[bytes], list[Written]]:
        """Write the unreachable objects that have to stay for a while into packs of their own.

        Return their ids and the packs.
        """
        apart: set[bytes] = set()
        written: list[Written] = []
        for group in packs_to_set_apart(chosen, self._policy):
            dead = {oid for pack in group for oid in pack.dead} - live.keys() - apart
            apart |= dead
            # These packs keep the age of their objects' last use: copying is not a use.
            written += self._write(staging, dict.fromkeys(dead, b""), COPY, times_of(group))
        return apart, written

    def _used_again(self, chosen: Sequence[PackUsage], dead: set[bytes]) -> dict[bytes, bytes]:
        """Return the unreachable objects of packs that git touched since they were weighed.

        These objects were added again, and exist nowhere else.
        """
        since = max(self._policy.keep_since, LONG_AGO)
        used = [pack for pack in chosen if os.stat(pack.path).st_mtime > max(since, pack.used)]
        return dict.fromkeys((oid for pack in used for oid in pack.dead if oid in dead), b"")

    def _publish(self, staging: Staging, new: Sequence[Written]) -> None:
        staging.publish([pack for pack, _ in new])
        # No commit refers to these packs: after a power cut, a sweep that finds them in a journal would remove them.
        staging.make_permanent()
        self._store_kinds({pack.name: kind for pack, kind in new})

    def _write_plans(
        self, live: Mapping[bytes, bytes], packed: set[bytes]
    ) -> list[tuple[Mapping[bytes, bytes], tuple[str, ...]]]:
        """Return which objects to write with which options; `packed`: the objects that were packed well before."""
        if self._policy.thorough:
            return [(live, REUSE if live.keys() <= packed else REDELTIFY)]
        fresh = {oid: path for oid, path in live.items() if oid not in packed}
        return [(fresh, REDELTIFY), ({oid: path for oid, path in live.items() if oid in packed}, REUSE)]

    def _write(
        self, staging: Staging, objects: Mapping[bytes, bytes], how: tuple[str, ...], kind: str = ""
    ) -> list[Written]:
        repository = self._repository
        where = (repository.objects_dir, staging.path, repository.object_format)
        packs = write_pack(repository.git, *where, objects, how, threads=self._threads)
        for pack in packs:
            os.utime(pack.pack_path, (LONG_AGO, LONG_AGO))
        return [(pack, kind or f"{DELTIFIED} {int(self._now)}") for pack in packs]

    def _store_kinds(self, new: Mapping[str, str]) -> None:
        """Store the kind of each existing pack."""
        repository = self._repository
        self._kinds.update(new)
        present = {
            name: kind
            for name, kind in self._kinds.items()
            if os.path.exists(os.path.join(repository.pack_dir, f"{name}.pack"))
        }
        write_kinds(repository.common_state, present)


def _own(repository: Repository) -> OwnPacks:
    return open_published(repository.common_state, repository.pack_dir, repository.object_format)


def _ids(repository: Repository, path: str) -> list[bytes]:
    index = PackIndex(path.removesuffix(".pack") + ".idx", repository.hash_length)
    try:
        return index.names()
    finally:
        index.close()


def _times_in(directory: str, bases: Iterable[str]) -> dict[str, int]:
    """Return when git last used each of some packs."""
    return {base: os.stat(os.path.join(directory, f"{base}.pack")).st_mtime_ns for base in bases}


def _measure(paths: Sequence[str]) -> tuple[int, int]:
    """Return the number of packs and their size."""
    return len(paths), sum(os.stat(path).st_size for path in paths)


# The runs: by command (`run_gc`) and daily (`do_daily_gc`), with sweeping, ref packing and the fetched repository.

SHARES = 14
MANY_REFS = 3
"""Loose refs are packed from this number on. A timeline in use always has two: its tip and its notes."""
NOW, NEVER = ("now", "all"), ("never", "false")
HINT = "git envlog gc --prune=now"


def run_gc(repository: Repository, prune: str | None, progress: Callable[[str], None]) -> GcResult:
    """Run gc for a command."""
    keep_since = since_when(repository, prune)
    sweep_killed(repository)
    spared = _lost_commits(repository)
    done = collect_garbage(
        repository, keep_since=keep_since, threads=core_count(), progress=progress, also=spared
    )
    pack_refs(repository)
    fetched = FetchedStore.of(repository)
    if fetched.exists:
        progress("packing the fetched timelines")
        packed = fetched.git.try_run("gc", "--quiet")
        if packed.status != 0:
            return replace(done, damaged=(*done.damaged, f"the fetched timelines: {packed.complaint}"))
    return done


def run_daily_gc(repository: Repository, thin: Callable[[], None]) -> None:
    """Run the daily gc with low priority; `thin` drops snapshots by the retention policy."""
    lower_priority()
    do_daily_gc(repository, thin)


def do_daily_gc(repository: Repository, thin: Callable[[], None]) -> None:
    """Run the daily gc."""
    try:
        sweep_killed(repository)
        # If dropping snapshots fails, packing can still be done.
        with suppress(EnvhistError):
            thin()
        collect_garbage(repository, thorough=False, also=_lost_commits(repository))
        pack_refs(repository)
    except RepositoryBusy:
        postpone(repository)
    check_some_packs(repository)


def _lost_commits(repository: Repository) -> list[str]:
    """Return the commits that a repair has to recover."""
    return [link.commit for links in lost_snapshots(repository).values() for link in links]


def pack_refs(repository: Repository) -> None:
    """Pack our refs into one file of git's if there are many: each loose ref costs time in every `git fetch`."""
    places = (TIMELINE_REFS, TRASH_REFS, NOTES_REFS)
    loose = sum(
        len(names) for place in places for _, _, names in os.walk(os.path.join(repository.common_dir, place))
    )
    if loose < MANY_REFS:
        return
    ours = [f"--include={place}*" for place in places]
    # Before 2.43 git can only pack all refs or none, as its own gc does.
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
    """Check connectivity, and every byte of a part of the packs; each pack is checked once in two weeks."""
    day = int((time.time() if now is None else now) // DAY)
    share = [name for name in own_names(repository.pack_dir) if crc32(name.encode()) % SHARES == day % SHARES]
    report = check_history(repository, quick=True, progress=_ignore)
    found = list(report.faults)
    if report.broken:
        found.append(
            Fault("snapshot", report.broken[0].commit[:7], f"{len(report.broken)} snapshots are incomplete")
        )
    found += [
        Fault("pack", f"{bad.name}.pack", bad.why)
        for bad in check_packs(repository, quick=False, only=share).bad
    ]
    sentences = {
        fault.subject: f"damage was found: {fault.kind} {fault.subject}: {fault.why}" for fault in found
    }
    if sentences:
        hint = "list the damaged snapshots: git envlog fsck"
        save_problems(repository.common_state, [*sentences.values(), hint])


def _ignore(_: str) -> None:
    pass


def sweep_killed(repository: Repository) -> None:
    """Clean up after captures and gc runs that died."""
    # A clone may contain our packs without their state directory.
    state_directory(repository.common_state)
    git = repository.git
    sweep(repository.common_state, repository.pack_dir, lambda commit: is_published(git, commit))
    # Also locks of git's pack list and commit-graph: our gits write both, and a stale lock would block the user's
    # gits.
    caches = (os.path.join("objects", "pack"), os.path.join("objects", "info"))
    places = [
        os.path.join(repository.common_dir, place)
        for place in (TIMELINE_REFS, TRASH_REFS, NOTES_REFS, *caches)
    ]
    sweep_locks(places, repository.gits_at_work)


def since_when(repository: Repository, words: str | None) -> float | None:
    """Return the time given in git's words, or None if none is given."""
    if words is None:
        return None
    if words in NOW:
        return KEEP_NOTHING
    if words in NEVER:
        return -KEEP_NOTHING
    # Parsed as git parses gc.pruneExpire: a typo is an error and does not mean `now`.
    asked = ("-c", f"gc.pruneExpire={words}", "config", "--type=expiry-date", "--get", "gc.pruneExpire")
    found = os.fsdecode(repository.git.ask(*asked).out).strip()
    if not found.isdecimal():
        raise UsageError(f"not a time: '{words}'", hint=HINT)
    return float(found)
