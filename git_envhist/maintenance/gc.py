"""Takes away what nothing reaches any more, and packs what is left: beside captures, gits and readers that go on.

**The order**, and why nothing that is needed can go:

1. What is reached is asked of git, and the packs that are to go are chosen, while captures go on: no lock is held.
2. What is needed of them is written into new packs, durable, in a staging.
3. Now captures wait, for a moment. What came to be reached since the first question is asked once more (a capture may
   have found an object again that nothing needed a minute ago) and written too. The new packs are published.
4. The old ones are put out of sight, and come back if a git is at work that may rely on one of their objects or has
   listed them, or if anything is missing that the refs, the indexes or the reflogs lead to now. Else they go.

A kill before the third step leaves a staging, which the next sweep takes away. A kill within it leaves objects that
stand twice. A kill in the fourth brings the old packs back, until it is decided that they go.

What nothing reaches is not always garbage: a `git add` that found its content in a pack of ours stored nothing. Hence
the fourth step, and hence what nothing reaches is kept for a while, as git's own cleaning keeps it (`keep_since`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from git_envhist.disk import UPKEEP_LOCK, locked, locked_now, state_directory, system_errors
from git_envhist.errors import EnvhistError, GitFailed, UsageError
from git_envhist.git.refs import sweep_locks
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, TRASH_REFS, Repository
from git_envhist.lazy import replace
from git_envhist.maintenance.daily import lower_priority, postpone, save_problems
from git_envhist.maintenance.fsck import check, check_packs
from git_envhist.maintenance.merge_packs import list_packs
from git_envhist.maintenance.repack import (
    ANEW,
    AS_IT_IS,
    JOINED,
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
from git_envhist.maintenance.weigh_packs import (
    DELTIFIED,
    LONG_AGO,
    SET_APART,
    PackUsage,
    RepackDecision,
    choose,
    read_kinds,
    times_of,
    to_be_set_apart,
    weigh,
    write_kinds,
)
from git_envhist.model import Fault, GcResult
from git_envhist.objects.compress import crc32
from git_envhist.objects.own_packs import ASIDE, OwnPacks, names_of, own_names
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_writer import StagedPack
from git_envhist.objects.permissions import tighten
from git_envhist.platform import core_count
from git_envhist.rewrite.salvage import lost_snapshots, set_aside_commits
from git_envhist.snapshots.fetched import FetchedStore
from git_envhist.snapshots.publish import is_published
from git_envhist.snapshots.staging import Staging, open_published, sweep

TWO_WEEKS = 14 * 24 * 3600.0
DAY = 24 * 3600.0
NOTHING_STAYS = float("inf")
UNTOLD = 3600.0
"""Where the system does not tell of its processes, nothing younger than this goes."""

Written = tuple[StagedPack, str]
"""A new pack, and of what kind it is."""


def collect(
    repository: Repository,
    *,
    keep_since: float | None = None,
    thorough: bool = True,
    threads: int = 1,
    tell: Callable[[str], None] = lambda step: None,
    also: Sequence[str] = (),
) -> GcResult:
    """Remove from our packs what nothing reaches, and pack the rest well.

    Nobody who calls this may hold the common lock. `keep_since`: what nothing reaches stays where its pack was used
    after that (two weeks ago where it is not said); `NOTHING_STAYS` for none of it. `thorough`: whatever it costs;
    else only what is worth it, and nothing where another such run is under way. `tell` is given the steps. `also`:
    commits that no ref leads to, and that are kept with all that they hold.

    `RepositoryBusy` where others did not let go in time, `GitFailed` where what is needed cannot be told: nothing was
    removed then.
    """
    now = time.time()
    since = now - TWO_WEEKS if keep_since is None else keep_since
    if repository.gits_at_work() is None:
        since = min(since, now - UNTOLD)
    policy = RepackDecision(since, thorough)
    state_directory(repository.common_state)
    with _turn(repository, thorough) as mine:
        if not mine:
            return _nothing_done(repository)
        with system_errors(repository.pack_dir):
            done = _Collector(repository, policy, threads, tell, also).run()
        list_packs(repository, read_kinds(repository.common_state))
        tighten(repository.pack_dir, repository.shared)
        return done


@contextmanager
def _turn(repository: Repository, waits: bool) -> Iterator[bool]:
    path = os.path.join(repository.common_state, UPKEEP_LOCK)
    if waits:
        with locked(path, limited=True):
            yield True
    else:
        with locked_now(path) as mine:
            yield mine


def _nothing_done(repository: Repository) -> GcResult:
    own = _own(repository)
    try:
        count, size = _measure(own.paths)
    finally:
        own.close()
    return GcResult(count, count, size, size, 0, 0)


class _Collector:
    """One cleaning."""

    def __init__(
        self,
        repository: Repository,
        policy: RepackDecision,
        threads: int,
        tell: Callable[[str], None],
        also: Sequence[str],
    ) -> None:
        self._repository = repository
        self._policy = policy
        self._threads = threads
        self._tell = tell
        self._also = also
        self._kinds = read_kinds(repository.common_state)
        self._now = time.time()

    def run(self) -> GcResult:
        repository = self._repository
        self._tell("looking at what is still needed")
        own = _own(repository)
        try:
            count, size = _measure(own.paths)
            damaged = tuple(error.message for error in own.damaged)
            ours = {oid for pack in own.packs for oid in pack.index.names()}
            tips = tips_of(repository.git)
            needed = self._reached(ours)
            weighed = [
                weigh(pack, self._kinds.get(name, ""), needed, self._now)
                for name, pack in zip(own.names, own.packs, strict=True)
            ]
            chosen = choose(weighed, self._policy)
            # Some stand in more packs than one.
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
        # What a repair has set aside is not whole, and not garbage either.
        aside = [*set_aside_commits(repository.common_state), *self._also]
        return present_objects_of(repository.git, aside, ours.__contains__) | found

    def _replace(
        self, chosen: Sequence[PackUsage], needed: Mapping[bytes, bytes], tips: Tips, own: OwnPacks
    ) -> int:
        """Write anew what is needed of some packs, and have them go; how many objects went with them."""
        repository = self._repository
        old = names_of(pack.path for pack in chosen)
        ids = {pack: frozenset(_ids(repository, pack.path)) for pack in chosen}
        held = {oid for names in ids.values() for oid in names}
        # A copy elsewhere may be damaged: what is needed of a pack is written, wherever else it stands.
        live = {oid: path for oid, path in needed.items() if oid in held}
        with Staging.create(repository.common_state, repository.pack_dir, repository.shared) as staging:
            self._tell("writing packs")
            packed = {oid for pack, names in ids.items() if pack.kind for oid in names}
            new = [one for ways in self._ways(live, packed) for one in self._write(staging, *ways)]
            apart, set_apart = self._set_apart(staging, chosen, live)
            left = held - live.keys() - apart
            with exclusive_access(repository, removes=bool(left)):
                self._tell("putting them in place")
                late = {oid: path for oid, path in self._reached(held, tips).items() if oid in left}
                times = _times_in(repository.pack_dir, old)
                again = self._used_again(chosen, held - live.keys() - late.keys())
                new += self._write(staging, late, AS_IT_IS)
                new += self._write(staging, again, AS_IT_IS, f"{SET_APART} {int(time.time())}")
                self._publish(staging, [*new, *set_apart])
                gone = left - late.keys() - again.keys()
                known = times if gone else {}
                anew = remove_packs(
                    repository, staging, old, gone, lambda now: self._check(staging, held, now, known)
                )
            # On NFS a pack that is removed while it is open keeps a name, and the staging with it.
            own.close()
        self._remember({})
        if anew:
            # A cache of git's: to be without one costs time alone.
            repository.git.try_run(*anew)
        return len(gone)

    def _check(self, staging: Staging, held: set[bytes], tips: Tips, times: Mapping[str, int]) -> None:
        """Whether packs that are out of sight may go: nothing is missing, and nobody found anything in them since."""
        self._reached(held, tips)
        if _times_in(os.path.join(staging.path, ASIDE), times) != times:
            raise GitFailed("git has found something again in a pack that was to go")

    def _set_apart(
        self, staging: Staging, chosen: Sequence[PackUsage], live: Mapping[bytes, bytes]
    ) -> tuple[set[bytes], list[Written]]:
        """Write what nothing reaches and that has to stay for a while: its ids, and its packs."""
        apart: set[bytes] = set()
        written: list[Written] = []
        for group in to_be_set_apart(chosen, self._policy):
            dead = {oid for pack in group for oid in pack.dead} - live.keys() - apart
            apart |= dead
            # They are as old as what they were used in: to be copied is no use.
            written += self._write(staging, dict.fromkeys(dead, b""), AS_IT_IS, times_of(group))
        return apart, written

    def _used_again(self, chosen: Sequence[PackUsage], dead: set[bytes]) -> dict[bytes, bytes]:
        """What nothing reaches of packs that git touched since they were weighed: it was added again, nowhere else."""
        since = max(self._policy.keep_since, LONG_AGO)
        used = [pack for pack in chosen if os.stat(pack.path).st_mtime > max(since, pack.used)]
        return dict.fromkeys((oid for pack in used for oid in pack.dead if oid in dead), b"")

    def _publish(self, staging: Staging, new: Sequence[Written]) -> None:
        staging.publish([pack for pack, _ in new])
        # No commit speaks for these packs: found in a journal after a power cut, they would be taken back.
        staging.make_permanent()
        self._remember({pack.name: kind for pack, kind in new})

    def _ways(
        self, live: Mapping[bytes, bytes], packed: set[bytes]
    ) -> list[tuple[Mapping[bytes, bytes], tuple[str, ...]]]:
        """What is to be written, and how; `packed`: what was packed well before."""
        if self._policy.thorough:
            return [(live, JOINED if live.keys() <= packed else ANEW)]
        fresh = {oid: path for oid, path in live.items() if oid not in packed}
        return [(fresh, ANEW), ({oid: path for oid, path in live.items() if oid in packed}, JOINED)]

    def _write(
        self, staging: Staging, objects: Mapping[bytes, bytes], how: tuple[str, ...], kind: str = ""
    ) -> list[Written]:
        repository = self._repository
        where = (repository.objects_dir, staging.path, repository.object_format)
        packs = write_pack(repository.git, *where, objects, how, threads=self._threads)
        for pack in packs:
            os.utime(pack.pack_path, (LONG_AGO, LONG_AGO))
        return [(pack, kind or f"{DELTIFIED} {int(self._now)}") for pack in packs]

    def _remember(self, new: Mapping[str, str]) -> None:
        """Keep of each pack that is there what kind it is."""
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
    """When git last found something in each of some packs."""
    return {base: os.stat(os.path.join(directory, f"{base}.pack")).st_mtime_ns for base in bases}


def _measure(paths: Sequence[str]) -> tuple[int, int]:
    """How many packs, and how large."""
    return len(paths), sum(os.stat(path).st_size for path in paths)


# One cleaning, from what killed runs left to the repository of what was fetched; and the one that comes by itself.

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
    if fetched.exists:
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
    places = (TIMELINE_REFS, TRASH_REFS, NOTES_REFS)
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
    places = [
        os.path.join(repository.common_dir, place)
        for place in (TIMELINE_REFS, TRASH_REFS, NOTES_REFS, *caches)
    ]
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
