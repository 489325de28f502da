"""Find what a repository reaches, remove packs safely, and write packs with git.

Reachability starts where git's own gc starts: every ref, the HEAD and the index of each working tree, the reflogs,
plus the pseudo refs of unfinished operations. Only objects in our packs are returned, in git's
order and with the path at which git found each: git uses both to find deltas. A ref that cannot be read is an error:
otherwise its objects would look like garbage.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from git_envhist.disk import sync, sync_directory, system_errors
from git_envhist.errors import EnvhistError, GitFailed
from git_envhist.git.process import Git, GitStream, memory_file, quote_alternate
from git_envhist.git.repository import Repository
from git_envhist.git.running_git import RunningGit, ancestor_processes, describe_gits, hint_after
from git_envhist.lazy import dataclass
from git_envhist.locks import COMMON_LOCK, locked
from git_envhist.maintenance.merge_packs import no_git_works_from_packs, works_from_packs
from git_envhist.objects.own_packs import (
    ASIDE,
    GONE,
    HARMLESS,
    drop_caches,
    drop_graphs_of,
    possible_writers,
    put_aside,
    put_back,
    remove_spare_links,
)
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_writer import StagedPack
from git_envhist.platform import DIRECTORY, SYSTEM, open_file_only
from git_envhist.snapshots.staging import Staging

ROOTS = ("--all", "--reflog", "--indexed-objects")
OURS = ("refs/envhist/", "refs/notes/envhist/")
NOT_OURS = (*(f"--exclude={place}*" for place in OURS), *ROOTS)
"""The same, without what our history reaches."""
PROMISED = "--missing=allow-promisor"
"""Objects that a partial clone left out are not missing."""
PSEUDO = (
    "ORIG_HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "AUTO_MERGE",
    "FETCH_HEAD",
    "MERGE_AUTOSTASH",
    "rebase-merge/autostash",
    "rebase-merge/orig-head",
    "rebase-apply/autostash",
    "rebase-apply/orig-head",
)
"""git's own gc ignores most of these. Their presence means that an operation is unfinished."""
LENGTHS = (40, 64)
HINT = "nothing was removed; find the damage: git envlog fsck"


@dataclass(frozen=True, slots=True)
class Tips:
    """The commits that all refs and HEAD named at one time."""

    ids: frozenset[str]


def tips_of(git: Git) -> Tips:
    """Return the current tips. Raise `GitFailed` if a ref cannot be read."""
    done = git.run("for-each-ref", "--format=%(objectname)")
    head = git.ask("rev-parse", "--verify", "--quiet", "HEAD").out
    return Tips(frozenset(os.fsdecode(done + head).split()))


def reachable_objects(
    git: Git,
    is_wanted: Callable[[bytes], bool],
    *,
    roots: Iterable[str] = ROOTS,
    more: Iterable[str] = (),
    since: Tips | None = None,
) -> dict[bytes, bytes]:
    """Return the wanted objects that anything reaches, each with a path.

    Raise `GitFailed` if that cannot be determined. `roots`: where to start, as options of `git rev-list`; `more`:
    further ids, if they exist. `since`: return at least what became reachable after these tips.
    """
    old = since.ids if since is not None else ()
    lines = [*_present(git, more), *(f"^{tip}" for tip in _present(git, old))]
    words = ("rev-list", "--objects", *roots, PROMISED, "--stdin")
    found: dict[bytes, bytes] = {}
    _add_wanted(found, _lines(_refusing_broken_refs(git), words, lines), is_wanted)
    return found


def _add_wanted(
    found: dict[bytes, bytes], lines: Iterable[bytes], is_wanted: Callable[[bytes], bool]
) -> None:
    """Add the objects in the output of `git rev-list --objects`, each with its first path."""
    for line in lines:
        name, _, path = line.partition(b" ")
        oid = _object_id(name)
        if is_wanted(oid):
            found.setdefault(oid, path)


def _object_id(name: bytes) -> bytes:
    try:
        return bytes.fromhex(name.decode("ascii"))
    except ValueError:
        # The pipe broke in the middle of a line.
        raise GitFailed("git rev-list printed an incomplete line", hint="run the command again") from None


def present_objects_of(
    git: Git, commits: Iterable[str], is_wanted: Callable[[bytes], bool]
) -> dict[bytes, bytes]:
    """Return the objects of incomplete snapshots that exist, each with a path."""
    words = ("rev-list", "--objects", "--no-walk", "--ignore-missing", "--missing=allow-any", "--stdin")
    found: dict[bytes, bytes] = {}
    lines = _present(git, commits)
    with suppress(GitFailed):
        _add_wanted(found, _lines(git, words, lines) if lines else (), is_wanted)
    return found


def git_dirs_of(common_dir: str) -> tuple[str, ...]:
    """Return the git directories of all working trees."""
    place = os.path.join(common_dir, "worktrees")
    linked = os.listdir(place) if os.path.isdir(place) else ()
    return (common_dir, *(os.path.join(place, name) for name in linked))


def unreferenced_tips(git_dirs: Iterable[str], *, ours: bool = True) -> list[str]:
    """Return the ids that are in use in these git directories without being listed as refs.

    `ours`: include what our history reaches.
    """
    found: list[str] = []
    for directory in git_dirs:
        found += _unfinished_tips(directory)
        # Refs of a single working tree (bisect, rebase) are listed only by a git in that working tree.
        listed = Git(directory, None).ask("for-each-ref", "--format=%(objectname) %(refname)")
        rows = (line.partition(" ") for line in os.fsdecode(listed.out).splitlines())
        found += [oid for oid, _, ref in rows if ours or not ref.startswith(OURS)]
    return found


def _unfinished_tips(directory: str) -> Iterator[str]:
    """Yield the ids in the files of unfinished operations."""
    for name in PSEUDO:
        try:
            with open(os.path.join(directory, name), "rb", opener=open_file_only) as file:
                lines = file.read(1 << 16).splitlines()
        except OSError:
            continue
        words = (os.fsdecode(line.split()[0]) for line in lines if line.split())
        yield from (word for word in words if len(word) in LENGTHS)


def _present(git: Git, ids: Iterable[str]) -> list[str]:
    """Return the ids that exist: the name of a missing object would make git fail."""
    asked = sorted(set(ids))
    if not asked:
        return []
    listed = git.run(
        "cat-file", "--batch-check=%(objectname)", stdin="".join(f"{oid}\n" for oid in asked).encode()
    )
    return [line for line in os.fsdecode(listed).splitlines() if len(line) in LENGTHS]


def _refusing_broken_refs(git: Git) -> Git:
    # Before 2.34 git ignored broken refs by default.
    careful = git.with_alternates(*git.alternates)
    careful.environment[b"GIT_REF_PARANOIA"] = b"1"
    return careful


def _lines(git: Git, words: tuple[str, ...], asked: Iterable[str]) -> Iterator[bytes]:
    source = memory_file("".join(f"{line}\n" for line in asked).encode("ascii"))
    child = GitStream(git, *words, source=source)
    rest = b""
    try:
        while chunk := child.read(1 << 20):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
    finally:
        done = child.close()
    if done.status != 0:
        raise GitFailed(f"the reachable objects cannot be determined: {done.complaint}", hint=HINT)


# Remove packs under an exclusive lock; put them back if another process may use them.

TRIES, PAUSE = 20, 0.25
TRIES_WHILE_CAPTURES_WAIT = 4
NOTHING_REMOVED = "nothing was removed; run the command again"


class RepositoryBusy(EnvhistError):
    """Packs cannot be removed while other processes may use them; nothing was removed."""

    code = "busy"


@contextmanager
def exclusive_access(repository: Repository, *, removes: bool) -> Iterator[None]:
    """Wait until no capture runs and no git works from packs, and lock captures out.

    `removes`: objects are removed, not only the packs that contain them; then no git may be adding objects either.
    """
    for turn in range(TRIES):
        if turn:
            time.sleep(PAUSE)
        with locked(os.path.join(repository.common_state, COMMON_LOCK), limited=True):
            writers = possible_writers(repository.gits_at_work() or ()) if removes else ()
            if not writers and no_git_works_from_packs(
                repository.common_dir, lambda: _without_readers(repository.gits_at_work())
            ):
                yield
                return
    raise _busy(repository.gits_at_work() or ())


def _without_readers(gits: list[RunningGit] | None) -> list[RunningGit] | None:
    # Waiting captures run git processes that only read. If these counted too, the wait might never end.
    return None if gits is None else [git for git in gits if git.command not in HARMLESS]


def remove_packs(
    repository: Repository,
    staging: Staging,
    bases: Sequence[str],
    gone: set[bytes],
    check: Callable[[Tips], object],
) -> tuple[str, ...]:
    """Remove packs, the needed objects of which exist elsewhere; put them back if another process needs them.

    Return the command with which git rewrites its commit-graph if the old one named removed commits, else nothing.
    """
    tips = tips_of(repository.git)
    # A git that started meanwhile has listed these packs and would miss them until they are put back.
    _wait_for_others(repository, removes=False)
    remove_spare_links(repository.common_state, repository.pack_dir, bases)
    aside = os.path.join(staging.path, ASIDE)
    staging.keep_after_error()
    with system_errors(repository.pack_dir):
        return _remove_aside(repository, aside, bases, gone, lambda: check(tips))


def _remove_aside(
    repository: Repository, aside: str, bases: Sequence[str], gone: set[bytes], check: Callable[[], object]
) -> tuple[str, ...]:
    try:
        put_aside(repository.pack_dir, aside, bases)
        _wait_for_others(repository, removes=bool(gone))
        # The gits that ran when the packs were moved have ended, so their results show what they relied on.
        check()
    except BaseException as error:
        put_back(aside, repository.pack_dir, bases)
        sync_directory(repository.pack_dir)
        if isinstance(error, GitFailed):
            raise RepositoryBusy(
                "objects that were about to be removed are needed again", hint=NOTHING_REMOVED
            ) from error
        raise
    graph_command = drop_graphs_of(repository.objects_dir, gone, repository.hash_length)
    os.rename(aside, os.path.join(os.path.dirname(aside), GONE))
    drop_caches(repository.pack_dir, bases)
    sync_directory(repository.pack_dir)
    return graph_command


def _wait_for_others(repository: Repository, *, removes: bool) -> None:
    gits: Sequence[RunningGit] | None = ()
    for turn in range(TRIES_WHILE_CAPTURES_WAIT):
        if turn:
            time.sleep(PAUSE)
        gits = repository.gits_at_work()
        if works_from_packs(repository.common_dir, gits):
            break
        if not removes or not possible_writers(gits or ()):
            return
    raise _busy(gits or ())


def _busy(gits: Sequence[RunningGit]) -> RepositoryBusy:
    ours = ancestor_processes()
    others = [git for git in gits if git.pid not in ours and git.command not in HARMLESS]
    return RepositoryBusy(
        f"packs cannot be removed while another git may use them: {describe_gits(others)}",
        hint=hint_after(others),
    )


# Write packs with git: copies of our objects, stored as deltas of each other where that is smaller.
#
# git gets each object with the path at which it was found, so that versions of one file are compared. It checks
# copies against the checksums in their index, and reads an object elsewhere if one copy is damaged.

DEPTH = 8
"""Limit of delta chains: each link must be read for one object. git's own limit is 50."""
WINDOW = 10
SETTINGS = (
    "pack.packSizeLimit=0",
    "pack.indexVersion=2",
    "pack.writeReverseIndex=false",
    # For a large environment git would otherwise use much more memory, and map its packs whole.
    "pack.windowMemory=64m",
    "pack.deltaCacheSize=64m",
    "core.deltaBaseCacheLimit=32m",
    "core.packedGitWindowSize=16m",
    "core.packedGitLimit=128m",
    "pack.compression=6",
    "core.bigFileThreshold=32m",
)
HEADER = 12
COPY = ("--window=0",)
REDELTIFY = ("--no-reuse-delta", "--no-reuse-object", f"--window={WINDOW}")
REUSE = (f"--window={WINDOW}",)


def write_pack(
    git: Git,
    objects_dir: str,
    staging: str,
    object_format: str,
    objects: Mapping[bytes, bytes],
    how: tuple[str, ...],
    *,
    threads: int = 1,
) -> list[StagedPack]:
    """Write durable packs with these objects (and the path of each) in a staging; none if there are no objects."""
    if not objects:
        return []
    asked, words = _asked(objects), _words(how, threads)
    # Without this, a killed git would leave temporary files in the repository instead of the staging.
    directory = os.path.join(staging, "pack")
    with _seen_by_git(staging) as seen:
        places = {
            b"GIT_OBJECT_DIRECTORY": os.fsencode(seen),
            b"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.fsencode(quote_alternate(objects_dir)),
        }
        bare, where = _without_tree(git)
        names = bare.run(*where, *words, os.path.join(seen, "pack", "pack"), stdin=asked, environment=places)
    packs = [_finish(directory, name, object_format) for name in os.fsdecode(names).split()]
    if sum(pack.objects for pack in packs) != len(objects):
        raise GitFailed(
            "git packed fewer objects than requested", hint="nothing was removed; run the command again"
        )
    return packs


@contextmanager
def _seen_by_git(staging: str) -> Iterator[str]:
    """Yield a path by which git finds a staging even after it moved.

    git creates missing directories on the way to a new pack: given the name, it would recreate the staging, and the
    repository around it, at the old place.
    """
    if not SYSTEM.proc:
        yield staging
        return
    descriptor = os.open(staging, DIRECTORY)
    try:
        os.set_inheritable(descriptor, True)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _without_tree(git: Git) -> tuple[Git, tuple[str, ...]]:
    """Return a git that reads nothing in the working tree, and the first options of its command line.

    git reads the attributes of each path that it packs. In the working tree those are the user's, for other files,
    and a pipe named `.gitattributes` would block git for ever.
    """
    bare = Git(git.git_dir, None, alternates=git.alternates, base=git.base)
    return bare, ("--bare", "-C", git.git_dir)


def packed_size(git: Git, objects: Mapping[bytes, bytes], hash_length: int) -> int:
    """Return the size of these objects in a pack written by gc; the pack is discarded."""
    source = memory_file(_asked(objects))
    bare, where = _without_tree(git)
    child = GitStream(bare, *where, *_words(REDELTIFY, 1), "--stdout", source=source)
    size = 0
    try:
        while chunk := child.read(1 << 20):
            size += len(chunk)
    finally:
        done = child.close()
    if done.status != 0:
        raise GitFailed(
            f"the remaining size cannot be determined: {done.complaint}",
            hint="find the damage: git envlog fsck",
        )
    return size - HEADER - hash_length


def _asked(objects: Mapping[bytes, bytes]) -> bytes:
    return b"".join(b"%b %b\n" % (oid.hex().encode("ascii"), path) for oid, path in objects.items())


def _words(how: tuple[str, ...], threads: int) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    fixed = ["pack-objects", "-q", "--delta-base-offset", f"--depth={DEPTH}", f"--threads={threads}"]
    return [*settings, *fixed, *how]


def _finish(directory: str, name: str, object_format: str) -> StagedPack:
    """Make a pack written by git publishable: durable, and with a name that is never reused."""
    unique = hashlib.new(object_format, name.encode() + os.urandom(16), usedforsecurity=False).hexdigest()
    base, named = os.path.join(directory, f"pack-{name}"), os.path.join(directory, f"pack-{unique}")
    for suffix in (".pack", ".idx"):
        descriptor = os.open(base + suffix, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(base + suffix, named + suffix)
    index = PackIndex(named + ".idx", 20 if object_format == "sha1" else 32)
    try:
        count = index.count
    finally:
        index.close()
    return StagedPack(
        f"pack-{unique}", named + ".pack", named + ".idx", count, os.stat(named + ".pack").st_size
    )
