"""What a repository still reaches: from every place that git itself holds on to, and from what was set aside.

git looks at what a cleaning of its own looks at: every ref, the HEAD and the index of each working tree, and what the
reflogs name. Of what comes of it we keep those objects that stand in our packs, in git's order and with the path under
which git came to each: by both it finds later which of them resemble each other.

A ref that cannot be read is an error, never passed over: what only it reaches would look like garbage.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from git_envhist.disk import COMMON_LOCK, locked, sync, sync_directory, system_errors
from git_envhist.errors import EnvhistError, GitFailed
from git_envhist.git.process import Git, GitStream, memory_file, quote_alternate
from git_envhist.git.refs import RunningGit, callers, hint_after, in_words
from git_envhist.git.repository import Repository
from git_envhist.lazy import dataclass
from git_envhist.maintenance.merge_packs import goes_by_packs, no_git_reads_packs
from git_envhist.objects.own_packs import (
    ASIDE,
    GONE,
    HARMLESS,
    drop_caches,
    drop_graphs_of,
    forget_second_names,
    may_write,
    put_aside,
    put_back,
)
from git_envhist.objects.pack_index import PackIndex
from git_envhist.objects.pack_writer import StagedPack
from git_envhist.platform import DIRECTORY, SYSTEM, open_file_only
from git_envhist.snapshots.staging import Staging

ROOTS = ("--all", "--reflog", "--indexed-objects")
OURS = ("refs/envhist/", "refs/notes/envhist/")
NOT_OURS = (*(f"--exclude={place}*" for place in OURS), *ROOTS)
"""The same, without what a history of ours leads to."""
PROMISED = "--missing=allow-promisor"
"""What a partial clone left out is not missing."""
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
"""git's own cleaning takes no heed of most of these. Whoever finds one there has something half done."""
LENGTHS = (40, 64)
HINT = "'git fsck' and 'git envlog fsck' say what is damaged; nothing was removed"


@dataclass(frozen=True, slots=True)
class Tips:
    """What every ref and HEAD named at one moment."""

    ids: frozenset[str]


def tips_of(git: Git) -> Tips:
    """Where the refs stand; an error where one of them cannot be read."""
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
    """The wanted objects that anything reaches, each with a path; `GitFailed` where that cannot be known.

    `roots`: where to begin, in the words of `git rev-list`; `more`: further ids, as far as they are there. `since`:
    what came after these, at least.
    """
    old = since.ids if since is not None else ()
    lines = [*_present(git, more), *(f"^{tip}" for tip in _present(git, old))]
    found: dict[bytes, bytes] = {}
    for line in _lines(_paranoid(git), ("rev-list", "--objects", *roots, PROMISED, "--stdin"), lines):
        name, _, path = line.partition(b" ")
        oid = _object_id(name)
        if is_wanted(oid):
            found.setdefault(oid, path)
    return found


def _object_id(name: bytes) -> bytes:
    try:
        return bytes.fromhex(name.decode("ascii"))
    except ValueError:
        # Its pipe failed in the middle of a line.
        raise GitFailed("git rev-list printed an incomplete line", hint="run the command again") from None


def present_objects_of(
    git: Git, commits: Iterable[str], is_wanted: Callable[[bytes], bool]
) -> dict[bytes, bytes]:
    """What is still there of some snapshots that are not whole, each with a path."""
    words = ("rev-list", "--objects", "--no-walk", "--ignore-missing", "--missing=allow-any", "--stdin")
    found: dict[bytes, bytes] = {}
    lines = _present(git, commits)
    with suppress(GitFailed):
        for line in _lines(git, words, lines) if lines else ():
            name, _, path = line.partition(b" ")
            oid = _object_id(name)
            if is_wanted(oid):
                found.setdefault(oid, path)
    return found


def git_dirs_of(common_dir: str) -> tuple[str, ...]:
    """The git directories of all working trees."""
    place = os.path.join(common_dir, "worktrees")
    linked = os.listdir(place) if os.path.isdir(place) else ()
    return (common_dir, *(os.path.join(place, name) for name in linked))


def unreferenced_tips(git_dirs: Iterable[str], *, ours: bool = True) -> list[str]:
    """The ids that no ref of git's lists, and that whoever works in these git directories goes by.

    `ours`: with what a history of ours leads to.
    """
    found: list[str] = []
    for directory in git_dirs:
        found += _half_done(directory)
        # Refs of one working tree alone (a bisect, a rebase) are listed to a git that stands in it.
        told = Git(directory, None).ask("for-each-ref", "--format=%(objectname) %(refname)")
        rows = (line.partition(" ") for line in os.fsdecode(told.out).splitlines())
        found += [oid for oid, _, ref in rows if ours or not ref.startswith(OURS)]
    return found


def _half_done(directory: str) -> Iterator[str]:
    """What stands in the files by which something half done is remembered."""
    for name in PSEUDO:
        try:
            with open(os.path.join(directory, name), "rb", opener=open_file_only) as file:
                lines = file.read(1 << 16).splitlines()
        except OSError:
            continue
        words = (os.fsdecode(line.split()[0]) for line in lines if line.split())
        yield from (word for word in words if len(word) in LENGTHS)


def _present(git: Git, ids: Iterable[str]) -> list[str]:
    """Those that are there: a name of what went long ago would end everything."""
    asked = sorted(set(ids))
    if not asked:
        return []
    told = git.run(
        "cat-file", "--batch-check=%(objectname)", stdin="".join(f"{oid}\n" for oid in asked).encode()
    )
    return [line for line in os.fsdecode(told).splitlines() if len(line) in LENGTHS]


def _paranoid(git: Git) -> Git:
    # Before 2.34 git passed over refs that are broken, unless it was told.
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
        raise GitFailed(f"what is still needed cannot be told: {done.complaint}", hint=HINT)


# The moment in which packs go: alone, for as long as it takes, and taken back where somebody may rely on them.

TRIES, PAUSE = 20, 0.25
TRIES_WHILE_CAPTURES_WAIT = 4
AGAIN = "nothing was removed; run the command again"


class RepositoryBusy(EnvhistError):
    """Packs cannot go while others may rely on them; nothing was removed."""

    code = "busy"


@contextmanager
def exclusive_access(repository: Repository, *, removes: bool) -> Iterator[None]:
    """No capture runs, and no git goes by packs: as soon as that is so.

    `removes`: objects go, and not only the packs that they stand in; no git may be adding anything either.
    """
    for turn in range(TRIES):
        if turn:
            time.sleep(PAUSE)
        with locked(os.path.join(repository.common_state, COMMON_LOCK), limited=True):
            writers = may_write(repository.gits_at_work() or ()) if removes else ()
            if not writers and no_git_reads_packs(
                repository.common_dir, lambda: _but_for_readers(repository.gits_at_work())
            ):
                yield
                return
    raise _busy(repository.gits_at_work() or ())


def _but_for_readers(gits: list[RunningGit] | None) -> list[RunningGit] | None:
    # Captures that wait for us have begun gits that only read: beside many of them there would never be quiet.
    return None if gits is None else [git for git in gits if git.command not in HARMLESS]


def remove_packs(
    repository: Repository,
    staging: Staging,
    bases: Sequence[str],
    gone: set[bytes],
    check: Callable[[Tips], object],
) -> tuple[str, ...]:
    """Have packs go, whose needed objects stand elsewhere now; they come back where somebody wants them.

    The words by which git makes its commit-graph anew, where the old one spoke of what goes.
    """
    tips = tips_of(repository.git)
    # One that began while the last of it was written has listed them, and would miss them until they come back.
    _wait_for_others(repository, removes=False)
    forget_second_names(repository.common_state, repository.pack_dir, bases)
    aside = os.path.join(staging.path, ASIDE)
    staging.keep_after_error()
    with system_errors(repository.pack_dir):
        return _let_go(repository, aside, bases, gone, lambda: check(tips))


def _let_go(
    repository: Repository, aside: str, bases: Sequence[str], gone: set[bytes], check: Callable[[], object]
) -> tuple[str, ...]:
    try:
        put_aside(repository.pack_dir, aside, bases)
        _wait_for_others(repository, removes=bool(gone))
        # Whoever was at work when they went has ended: what they left shows what they relied on.
        check()
    except BaseException as error:
        put_back(aside, repository.pack_dir, bases)
        sync_directory(repository.pack_dir)
        if isinstance(error, GitFailed):
            raise RepositoryBusy("what was to go is needed again", hint=AGAIN) from error
        raise
    anew = drop_graphs_of(repository.objects_dir, gone, repository.hash_length)
    os.rename(aside, os.path.join(os.path.dirname(aside), GONE))
    drop_caches(repository.pack_dir, bases)
    sync_directory(repository.pack_dir)
    return anew


def _wait_for_others(repository: Repository, *, removes: bool) -> None:
    gits: Sequence[RunningGit] | None = ()
    for turn in range(TRIES_WHILE_CAPTURES_WAIT):
        if turn:
            time.sleep(PAUSE)
        gits = repository.gits_at_work()
        if goes_by_packs(repository.common_dir, gits):
            break
        if not removes or not may_write(gits or ()):
            return
    raise _busy(gits or ())


def _busy(gits: Sequence[RunningGit]) -> RepositoryBusy:
    ours = callers()
    others = [git for git in gits if git.pid not in ours and git.command not in HARMLESS]
    return RepositoryBusy(
        f"packs cannot be removed while another git may use them: {in_words(others)}", hint=hint_after(others)
    )


# Packs written by git itself: objects of ours copied, and stored as differences of each other where that is smaller.
#
# git is told each object and the path at which it was found, so that versions of one file are held against each other.
# It checks what it copies against the checksums of the index it came from, and reads an object elsewhere where one copy
# is damaged.

DEPTH = 8
"""Differences of differences of… each is read for the one object that is wanted. git's own limit is 50."""
WINDOW = 10
SETTINGS = (
    "pack.packSizeLimit=0",
    "pack.indexVersion=2",
    "pack.writeReverseIndex=false",
    # Of a large environment git would hold much more at a time, and map its packs whole.
    "pack.windowMemory=64m",
    "pack.deltaCacheSize=64m",
    "core.deltaBaseCacheLimit=32m",
    "core.packedGitWindowSize=16m",
    "core.packedGitLimit=128m",
    "pack.compression=6",
    "core.bigFileThreshold=32m",
)
HEADER = 12
AS_IT_IS = ("--window=0",)
ANEW = ("--no-reuse-delta", "--no-reuse-object", f"--window={WINDOW}")
JOINED = (f"--window={WINDOW}",)


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
    """Durable packs in a staging that hold these objects (with the path of each); none where there are none."""
    if not objects:
        return []
    asked, words = _asked(objects), _words(how, threads)
    # Beside the staging git would leave what it was writing in the repository, where it is killed.
    directory = os.path.join(staging, "pack")
    with _seen_by_git(staging) as seen:
        places = {
            b"GIT_OBJECT_DIRECTORY": os.fsencode(seen),
            b"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.fsencode(quote_alternate(objects_dir)),
        }
        bare, where = _without_tree(git)
        told = bare.run(*where, *words, os.path.join(seen, "pack", "pack"), stdin=asked, environment=places)
    packs = [_finish(directory, name, object_format) for name in os.fsdecode(told).split()]
    if sum(pack.objects for pack in packs) != len(objects):
        raise GitFailed(
            "git did not pack what it was told to", hint="nothing was removed; run the command again"
        )
    return packs


@contextmanager
def _seen_by_git(staging: str) -> Iterator[str]:
    """Give a path by which a git finds a staging wherever it is moved to.

    git makes missing directories on the way to a new pack: by its name it would make the staging, and the repository
    around it, again at its old place.
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
    """Return a git that reads nothing in the working tree, and the words that its command line begins with.

    git asks the attributes of each path that it packs. In the working tree they are the user's, about other files, and
    a pipe with the name `.gitattributes` keeps git waiting for ever.
    """
    bare = Git(git.git_dir, None, alternates=git.alternates, base=git.base)
    return bare, ("--bare", "-C", git.git_dir)


def packed_size(git: Git, objects: Mapping[bytes, bytes], hash_length: int) -> int:
    """How many bytes these objects would take in a pack that a cleaning makes anew; nothing is kept."""
    source = memory_file(_asked(objects))
    bare, where = _without_tree(git)
    child = GitStream(bare, *where, *_words(ANEW, 1), "--stdout", source=source)
    size = 0
    try:
        while chunk := child.read(1 << 20):
            size += len(chunk)
    finally:
        done = child.close()
    if done.status != 0:
        raise GitFailed(
            f"what would be left cannot be told: {done.complaint}",
            hint="'git envlog fsck' says what is damaged",
        )
    return size - HEADER - hash_length


def _asked(objects: Mapping[bytes, bytes]) -> bytes:
    return b"".join(b"%b %b\n" % (oid.hex().encode("ascii"), path) for oid, path in objects.items())


def _words(how: tuple[str, ...], threads: int) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    fixed = ["pack-objects", "-q", "--delta-base-offset", f"--depth={DEPTH}", f"--threads={threads}"]
    return [*settings, *fixed, *how]


def _finish(directory: str, name: str, object_format: str) -> StagedPack:
    """Make a pack of git's one that can be published: durable, and under a name that is never used twice."""
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
