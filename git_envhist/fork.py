"""A fork: the whole environment of a moment in a directory of its own, on a timeline that begins there.

Everything is written from the snapshot and read back, as by any restore; where the file system can, what is unchanged
here shares its blocks with the original until either is written to. The first moment is taken before anything is
rewritten, so that forks of one moment begin with one content.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from git_envhist.capture.environment import cache_of
from git_envhist.capture.pipeline import CaptureOptions, CapturePipeline
from git_envhist.capture.scope import CaptureScope
from git_envhist.config import read_settings
from git_envhist.consent import refuse_place
from git_envhist.discovery import (
    DirectoryRegistry,
    OpenedRepository,
    RegisteredDirectory,
    homes_of,
    identify,
    open_plain,
)
from git_envhist.disk import cannot_write, state_directory
from git_envhist.errors import EnvhistError, Refused, UsageError, in_words
from git_envhist.git.cat_file import CatFile
from git_envhist.git.process import Git, GitResult, clean_environment
from git_envhist.git.refs import GITDIR, git_directory_of, has_submodules, is_own, module_of
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, RefUpdate, Repository
from git_envhist.lazy import replace
from git_envhist.model import CaptureProgress, EnvPath, ForkPlan, ForkResult, RestoreResult, Snapshot, Trigger
from git_envhist.objects.reader import ObjectReader
from git_envhist.platform import DIRECTORY, open_file_only
from git_envhist.restore.clone_files import CloningReader
from git_envhist.restore.fs import DiskCalls
from git_envhist.restore.planning import tracked
from git_envhist.restore.relocate import (
    PathReference,
    Relocation,
    Rewriter,
    files_in,
    is_shell_safe,
    origins_of,
    paths_naming,
    read_file,
    relocate,
    write_anew,
)
from git_envhist.restore.slots import remove_tree
from git_envhist.restore.untrusted import refuse_obeyed_place
from git_envhist.restore.write_tree import Source, write_into
from git_envhist.snapshots.layout import GIT_CHANGED
from git_envhist.snapshots.names import RESERVED
from git_envhist.snapshots.records import read_git_changes
from git_envhist.workers import share_out
from git_envhist.worktree.scan import is_settled
from git_envhist.worktree.stat_cache import (
    COLUMNS,
    CTIME,
    MODE,
    MTIME,
    SIZE,
    WIDTH,
    CacheHeader,
    CacheShard,
    DirectoryRecord,
    StatCache,
    cut,
    decode,
    pack_columns,
)
from git_envhist.worktree.timeline_name import current_timeline, mark_fork, slug

# Where a fork stands: a linked worktree of git's, or a directory that shares the repository of a plain one's history.
#
# What was made here is taken away again where the fork does not come to its end, and nothing else is.

BRANCHES = "refs/heads/"
HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class ForkDirectory(Protocol):
    """A place that was made for a fork."""

    @property
    def repository(self) -> Repository: ...
    @property
    def branch(self) -> str | None: ...
    @property
    def orphan(self) -> bool: ...
    def take_away(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Worktree:
    """A linked worktree."""

    repository: Repository
    git: Git
    """That of the environment the fork was made of."""
    branch: str | None
    """One that was made for it."""
    orphan: bool

    def take_away(self) -> None:
        """Remove it, and the branch that was made with it."""
        root = self.repository.root
        clear(root)
        self.git.try_run("worktree", "remove", "--force", "--force", root)
        if self.branch is not None and not self.orphan:
            self.git.try_run("update-ref", "-d", BRANCHES + self.branch)


@dataclass(frozen=True, slots=True)
class PlainForkDirectory:
    """A directory of its own that has no git, with its history in the repository of the other's."""

    repository: Repository
    record: str
    branch: None = None
    orphan: bool = False

    def take_away(self) -> None:
        """Remove it, and the record of it."""
        clear(self.repository.root)
        with suppress(OSError):
            os.unlink(self.record)
        shutil.rmtree(self.repository.git_dir, ignore_errors=True)


def make_worktree(source: Repository, snapshot: Snapshot, root: str, branch: str | None) -> Worktree:
    """A linked worktree at the code commit of a moment, without a file in it; its index is that commit's."""
    git = source.git
    if branch is not None:
        _check_branch(git, branch)
    commit = _commit(git, snapshot.head)
    orphan = commit is None
    # git 2.42 can make an orphan itself. Whatever commit an older one begins at, HEAD is set at once.
    at = commit or snapshot.commit
    made = ["-b", branch] if branch is not None and not orphan else ["--detach"]
    done = git.try_run("worktree", "add", "--quiet", "--no-checkout", *made, root, at)
    if done.status != 0:
        raise _cannot_make(done, root)
    repository = Repository.open(root, clean_environment())
    branch = branch or (_free_branch(git, root) if orphan else None)
    ground = Worktree(repository, git, branch, orphan)
    try:
        if orphan:
            repository.git.run("symbolic-ref", "HEAD", f"{BRANCHES}{branch}")
        else:
            repository.git.run("read-tree", at)
        mark_fork(repository)
    except BaseException:
        ground.take_away()
        raise
    return ground


def make_beside(source: Repository, homes: DirectoryRegistry, root: str) -> PlainForkDirectory:
    """A directory that has a timeline of its own in the repository of a plain directory's history."""
    os.makedirs(root, exist_ok=True)
    name = f"{slug(os.path.basename(root))}-{os.urandom(3).hex()}"
    home = RegisteredDirectory(name, root, source.common_dir, identify(root), fork=True)
    ground = PlainForkDirectory(open_plain(home, root), os.path.join(homes.directory, name))
    try:
        state_directory(ground.repository.state)
        mark_fork(ground.repository)
        homes.write(home)
    except BaseException:
        ground.take_away()
        raise
    return ground


def clear(root: str) -> None:
    """Remove a directory and all in it, also what is closed to its owner."""
    above, name = os.path.split(root)
    with suppress(OSError):
        descriptor = os.open(above, DIRECTORY)
        try:
            remove_tree(DiskCalls(), descriptor, os.fsencode(name))
        finally:
            os.close(descriptor)


def _commit(git: Git, head: str | None) -> str | None:
    """The code commit of a moment, where it is still there."""
    if head is None or HASH.fullmatch(head) is None:
        return None
    return head if git.try_run("cat-file", "-e", head + "^{tree}").status == 0 else None


def _check_branch(git: Git, branch: str) -> None:
    if git.try_run("check-ref-format", "--branch", branch).status != 0 or branch.startswith("@{"):
        raise UsageError(f"not a name for a branch: '{branch}'")
    if _is_branch(git, branch):
        raise Refused(f"there is a branch of that name already: '{branch}'", hint="name another one")


def _free_branch(git: Git, root: str) -> str:
    name = slug(os.path.basename(root))
    names = [name, *(f"{name}-{number}" for number in range(2, 1000))]
    return next(one for one in names if not _is_branch(git, one))


def _is_branch(git: Git, branch: str) -> bool:
    return git.try_run("rev-parse", "--verify", "--quiet", BRANCHES + branch).status == 0


def _cannot_make(done: GitResult, root: str) -> EnvhistError:
    return EnvhistError(
        f"git makes no worktree at '{root}': {done.complaint.splitlines()[-1]}",
        hint="'git worktree list' shows those there are, 'git worktree prune' forgets those that are gone",
    )


# What the first capture of a fork need not read: the original's records, with the stat of what was written in them.
#
# A fork was read back, byte by byte, when it was written. Where the original remembers what the very moment holds, its
# records say under which ids, and the fork's own stat is put beside them. What has not the size, mode and time that it
# was written with, what could not be had there as it was, what has more names than one, and what is too young to be
# relied on is left for the capture to read.

NOTHING = (0,) * WIDTH
DOT_GIT = b".git"


def seed(source: CapturePipeline, own: CapturePipeline, snapshot: Snapshot, lost: frozenset[EnvPath]) -> None:
    """Give a fork that was just written what the original remembers of the moment; nothing where it does not.

    `lost`: the paths of which something could not be had there: an owner, an attribute.
    """
    theirs, mine = cache_of(source.repository), cache_of(own.repository)
    head = theirs.read_head()
    if head is None or head.base != snapshot.id:
        return
    there, here = source.read_scope(None), own.read_scope(None)
    if head.naming != there.naming or not _same_extent(there, here):
        return
    started = time.time_ns()
    # Whatever cannot be read is read by the capture.
    with suppress(EnvhistError, OSError, ValueError):
        look = _SeedSource(here.bases[b""], started, lost)
        shards, _ = share_out(
            head.shards,
            lambda: look,
            lambda look, shard: _looked_at(theirs, shard, look),
            lambda _: None,
            how="fork" if own.how == "fork" else "here",
        )
        mine.write(
            CacheHeader(here.naming, head.keeping, head.base, (), head.pieces, head.elsewhere, head.files),
            shards,
        )


def _same_extent(there: CaptureScope, here: CaptureScope) -> bool:
    """Whether the same paths are part of both, and all of them stand in the working tree."""
    if set(there.bases) != {b""} or set(here.bases) != {b""} or set(there.pruned) - {DOT_GIT} or here.pruned:
        return False
    return all(getattr(there, name) == getattr(here, name) for name in ("ignore", "exclude", "fingerprint"))


class _SeedSource(NamedTuple):
    """What a record is held against."""

    root: bytes
    started: int
    lost: frozenset[EnvPath]


def _looked_at(cache: StatCache, shard: CacheShard, look: _SeedSource) -> tuple[bytes, bytes]:
    data = cache.read_shard(shard)
    if data is None:
        raise ValueError("a shard of the records is gone")
    return shard.first, b"".join(_seen(decode(encoded), look).encode() for _, encoded in cut(data))


def _seen(record: DirectoryRecord, look: _SeedSource) -> DirectoryRecord:
    """A record of the original's with what stands in the fork."""
    place = os.path.join(look.root, record.path) if record.path else look.root
    columns = pack_columns(_rows(record, place + b"/", look))
    try:
        own = os.lstat(place)
    except FileNotFoundError:
        return replace(record, ctime_ns=0, columns=columns)
    # What came into it since has moved its time; nothing else would tell of a name that no record knows.
    same = own.st_mtime_ns == record.mtime_ns and EnvPath(record.path) not in look.lost
    same = same and (own.st_mode, own.st_uid, own.st_gid) == (record.mode, record.uid, record.gid)
    settled = same and is_settled(own.st_ctime_ns, own.st_mtime_ns, look.started)
    return replace(
        record,
        ctime_ns=own.st_ctime_ns if settled else 0,
        mtime_ns=own.st_mtime_ns,
        inode=own.st_ino,
        device=own.st_dev,
        columns=columns,
    )


def _rows(record: DirectoryRecord, above: bytes, look: _SeedSource) -> Iterator[tuple[int, ...]]:
    cells = record.cells
    inside = record.path + b"/" if record.path else b""
    for number, name in enumerate(record.names):
        try:
            seen = os.lstat(above + name)
        except FileNotFoundError:
            yield NOTHING
            continue
        row, at = COLUMNS(seen), number * WIDTH
        as_written = all(row[cell] == cells[at + cell] for cell in (MTIME, SIZE, MODE))
        as_written = as_written and EnvPath(inside + name) not in look.lost
        # The number that its names share tells of the inode: the fork's is another.
        alone = seen.st_nlink == 1 or not stat.S_ISREG(seen.st_mode)
        if not (as_written and alone and is_settled(row[CTIME], row[MTIME], look.started)):
            row = (0, *row[1:])
        yield row


# The submodules of a fork get git directories of their own.
#
# The `.git` file of a submodule says by a path where its git directory is. From another place that path leads nowhere,
# and git fails in the whole working tree, or to the original's, and what git does here it does there. So each is copied
# to where git keeps those of a linked worktree, and the file is pointed there. git's objects, which nobody ever writes
# to, are shared as `git clone` shares those of a repository on the same disk.

NOT_COPIED = frozenset(("index", "modules", "worktrees", "envhist"))
"""Made anew; told by `.git` files of their own; of other working trees; of other histories."""
PASSING = ("tmp_", "fsmonitor--daemon")
ALTERNATES = "objects/info/alternates"


class SubmoduleInstaller(NamedTuple):
    """Gives submodules of one working tree git directories of their own."""

    repository: Repository
    origins: tuple[str, ...]
    """The working trees that a path in a `.git` file may have been meant from."""
    moved: frozenset[bytes]
    """Submodules that stood at the moment at another commit than its code commit says."""

    def settle(self, places: Iterable[PathReference]) -> tuple[tuple[EnvPath, ...], tuple[str, ...]]:
        """(the `.git` files that were pointed there, what could not be done)"""
        done, warnings = [], []
        for path, module, name in list(self._found(places)):
            try:
                self._settle(path, module, name)
            except (OSError, EnvhistError) as error:
                above = os.fsdecode(os.path.dirname(path))
                warnings.append(
                    f"the git directory of the submodule '{above}' could not be copied: {in_words(error)}"
                )
            else:
                done.append(path)
        return tuple(done), tuple(warnings)

    def _found(self, places: Iterable[PathReference]) -> Iterator[tuple[EnvPath, str, str]]:
        """(the `.git` file, the git directory that is its submodule's, the submodule's name) of each."""
        for path, is_link in places:
            if is_link or not path.endswith(b"/.git"):
                continue
            found = self._module(path, read_file(self.repository.root, path))
            if found is not None:
                yield path, *found

    def _module(self, path: EnvPath, pointer: bytes) -> tuple[str, str] | None:
        for root in self.origins:
            above = os.path.join(os.path.realpath(os.fsencode(root)), os.path.dirname(path))
            place = git_directory_of(above, pointer)
            named = None if place is None else module_of(place, self.repository.common_dir)
            if place is None or named is None or is_own(place, self.repository.git_dir):
                continue
            name = os.fsdecode(named)
            # What a worktree had that is gone is still had by the first one.
            for module in (os.fsdecode(place), os.path.join(self.repository.common_dir, "modules", name)):
                if _is_git_directory(module):
                    return module, name
        return None

    def _settle(self, path: EnvPath, module: str, name: str) -> None:
        root, git = os.path.realpath(self.repository.root), self.repository.git
        to = os.path.join(os.path.realpath(self.repository.git_dir), "modules", name)
        work_tree = os.path.join(root, os.fsdecode(os.path.dirname(path)))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        # Somebody else's, or that of a second file which names the same: it stays.
        os.mkdir(to)
        try:
            copy_git_directory(module, to)
            _name_work_tree(git, to, os.path.relpath(work_tree, to))
            self._check_out(path, Git(to, work_tree))
            leads_to = os.path.relpath(to, work_tree)
            write_anew(root, path, GITDIR + os.fsencode(leads_to) + b"\n")
        except BaseException:
            shutil.rmtree(to, ignore_errors=True)
            raise

    def _check_out(self, path: EnvPath, inner: Git) -> None:
        """Have its HEAD say what it said at the moment, as far as that is known; its index is that commit's."""
        now = inner.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        commit = self._recorded(os.path.dirname(path))
        if commit is None or inner.ask("cat-file", "-e", commit + "^{tree}").status != 0:
            commit = now.out.decode("ascii").strip()
        elif now.out.decode("ascii").strip() != commit:
            inner.run("update-ref", "--no-deref", "HEAD", commit)
        if commit:
            inner.run("read-tree", commit)

    def _recorded(self, path: bytes) -> str | None:
        """The commit of a submodule that the code commit of the moment names, where it stood there then."""
        if path in self.moved:
            return None
        # The fork has just been made, at that commit.
        listed = self.repository.git.ask("ls-tree", "-z", "--full-tree", "HEAD", "--", path).out
        mode, _, rest = listed.partition(b" ")
        return rest.split(b" ")[1].partition(b"\t")[0].decode("ascii") if mode == b"160000" else None


def changed_submodules(git: Git, snapshot: Snapshot) -> frozenset[bytes]:
    """What git saw as changed at a moment; of submodules that is where they stood."""
    with CatFile(git) as reader:
        found = reader.read(f"{snapshot.tree}:{(RESERVED + b'/' + GIT_CHANGED).decode()}")
    changes = read_git_changes(found.data) if found is not None else ()
    return frozenset(change.path for change in changes)


def copy_git_directory(module: str, to: str) -> None:
    """Copy a submodule's git directory into an empty one; what of it is another working tree's stays behind."""

    def ignored(directory: str, names: list[str]) -> set[str]:
        passing = {name for name in names if name.startswith(PASSING) or name.endswith(".lock")}
        return passing | (NOT_COPIED & set(names) if directory == module else set())

    objects = os.path.join(module, "objects") + "/"

    def copy(source: str, target: str) -> None:
        if not source.startswith(objects) or not _link(source, target):
            shutil.copy2(source, target, follow_symlinks=False)

    shutil.copytree(module, to, symlinks=True, ignore=ignored, copy_function=copy, dirs_exist_ok=True)
    _name_alternates(module, to)


def _link(source: str, target: str) -> bool:
    # The one file below `objects` that git writes to.
    if source.endswith(ALTERNATES):
        return False
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        return False
    return True


def _name_alternates(module: str, to: str) -> None:
    """Other stores of objects are named by paths that are meant from the one that names them."""
    try:
        with open(os.path.join(module, ALTERNATES), "rb", opener=open_file_only) as told:
            lines = told.read().splitlines()
    except FileNotFoundError:
        return
    objects = os.path.join(os.fsencode(os.path.realpath(module)), b"objects")
    absolute = [line if line.startswith(b"#") else os.path.join(objects, line) for line in lines]
    with open(os.path.join(to, ALTERNATES), "wb") as writing:
        writing.write(b"".join(line + b"\n" for line in absolute))


def _name_work_tree(git: Git, to: str, work_tree: str) -> None:
    own = os.path.join(to, "config.worktree")
    is_there = git.try_run("config", "--file", own, "--get", "core.worktree").status == 0
    # The one for the worktree, where there is one, is what git goes by.
    git.run("config", "--file", own if is_there else os.path.join(to, "config"), "core.worktree", work_tree)


def _is_git_directory(place: str) -> bool:
    whole = all(os.path.isdir(os.path.join(place, name)) for name in ("objects", "refs"))
    return whole and os.path.lexists(os.path.join(place, "HEAD"))


UNLIMITED = 1 << 62
PLAN_ID = 16
Unseal = Callable[[EnvPath, bytes], bytes]


@dataclass(frozen=True, slots=True)
class ForkOptions:
    """One fork, as it was asked for."""

    branch: str | None = None
    relocate: bool = False
    foreign: bool = False
    trigger: Trigger = Trigger.API
    progress: Callable[[CaptureProgress], None] | None = None


def fork(
    source: CapturePipeline, unseal: Unseal, snapshot: Snapshot, directory: str, wish: ForkOptions
) -> tuple[ForkResult, OpenedRepository]:
    """Make one; what fails leaves nothing behind."""
    started = time.monotonic()
    root = plan_fork(source, snapshot, directory, wish).root
    there, process = os.path.isdir(root), os.getpid()
    made_above = _missing_above(root)
    ground: ForkDirectory | None = None
    try:
        ground = _make_ground(source, snapshot, root, wish)
        forked = _Fork(source, unseal, snapshot, ground, wish).run(started)
    except BaseException:
        # A worker that is stopped is a copy of this process: it has nothing to clear up.
        if os.getpid() != process:
            raise
        if ground is not None:
            _forget_timeline(ground.repository)
            ground.take_away()
        _leave_as_it_was(root, there, made_above)
        raise
    return forked, OpenedRepository(ground.repository)


def plan_fork(source: CapturePipeline, snapshot: Snapshot, directory: str, wish: ForkOptions) -> ForkPlan:
    """What a fork would do; refused as the fork itself would be. Nothing is written."""
    root = _choose_place(source, directory)
    _refuse(source.repository, snapshot, root, wish)
    told = (snapshot.id, snapshot.commit, root, wish.branch, wish.relocate)
    digest = hashlib.sha256(repr(told).encode("utf-8", "surrogateescape")).hexdigest()
    return ForkPlan(snapshot, root, wish.branch, wish.relocate, digest[:PLAN_ID])


@dataclass(slots=True)
class _Fork:
    """One fork on its way."""

    source: CapturePipeline
    unseal: Unseal
    snapshot: Snapshot
    ground: ForkDirectory
    wish: ForkOptions

    def run(self, started: float) -> ForkResult:
        own = self._capturing()
        brought, moment = self._write(own)
        repository = self.ground.repository
        forked = ForkResult(
            self.snapshot,
            repository.root,
            moment.timeline,
            moment,
            moment.head,
            self.ground.branch,
            self.ground.orphan,
            brought.verified,
            0.0,
            left_alone=brought.plan.left_alone,
            kept=brought.kept,
            losses=brought.losses,
            warnings=brought.warnings,
        )
        forked = self._look_back(own, forked)
        return replace(forked, seconds=time.monotonic() - started)

    def _write(self, own: CapturePipeline) -> tuple[RestoreResult, Snapshot]:
        mine, repository = self.source.repository, self.ground.repository
        # Another process may have put a link into the path after it was judged.
        refuse_place(repository.root, mine, self.source.environ)
        source = Source(mine.git, repository.state, self._contents, "fork" if own.how == "fork" else "here")
        with own.locked(CaptureOptions()):
            brought = write_into(self.snapshot, repository.root, source)
            if self.snapshot.trusted and not brought.kept:
                lost = frozenset(loss.path for loss in brought.losses)
                seed(self.source, own, self.snapshot, lost)
            words = os.fsencode(f"forked from {self.snapshot.id[:7]}")
            request = CaptureOptions(
                words,
                trigger=self.wish.trigger,
                forked_from=self.snapshot.id,
                progress=self.wish.progress,
            )
            with own.capture_tree(request) as held:
                held.reuse_facts_of(self.snapshot)
                moment = held.publish(request).snapshot
        assert moment is not None
        return brought, moment

    def _look_back(self, own: CapturePipeline, forked: ForkResult) -> ForkResult:
        """What names the place it was made of; what was rewritten, by need or by wish, is a moment of its own."""
        repository = self.ground.repository
        origins = origins_of(self.source, self.snapshot.timeline, repository)
        settled, warnings = self._settle(origins)
        moved = Relocation.between(origins, repository.root)
        found = tuple(paths_naming(files_in(repository.root), repository, moved))
        done: tuple[EnvPath, ...] = ()
        if self.wish.relocate and found:
            code = frozenset() if repository.plain else tracked(repository.git)
            done, found = relocate(Rewriter(repository.root, moved, code), found)
        done = (*settled, *done)
        warnings += _record(own, self.wish, len(done)) if done else ()
        return replace(forked, relocated=done, pointing=found, warnings=(*forked.warnings, *warnings))

    def _settle(self, origins: tuple[str, ...]) -> tuple[tuple[EnvPath, ...], tuple[str, ...]]:
        repository = self.ground.repository
        if repository.plain or not has_submodules(repository.common_dir):
            return (), ()
        moved = changed_submodules(self.source.repository.git, self.snapshot)
        return SubmoduleInstaller(repository, origins, moved).settle(files_in(repository.root))

    def _capturing(self) -> CapturePipeline:
        repository, mine = self.ground.repository, self.source
        # What a fork begins with is saved whole, whatever a capture may add.
        settings = replace(read_settings(repository.read_config()), budget=UNLIMITED)
        return replace(mine, repository=repository, settings=settings)

    def _contents(self, made: Mapping[bytes, bytes]) -> ObjectReader:
        own = self.source.repository
        contents = CloningReader(own.git, own.pack_dir, own.object_format, self.unseal, made=made)
        contents.look_below(own.root)
        return contents


def _record(own: CapturePipeline, wish: ForkOptions, number: int) -> tuple[str, ...]:
    words = f"relocated {number} path{'' if number == 1 else 's'}"
    try:
        own.capture(CaptureOptions(words.encode("ascii"), trigger=wish.trigger, progress=wish.progress))
    except EnvhistError as error:
        return (f"paths were rewritten, but that could not be recorded: {in_words(error)}",)
    return ()


def _make_ground(source: CapturePipeline, snapshot: Snapshot, root: str, wish: ForkOptions) -> ForkDirectory:
    try:
        if source.repository.plain:
            return make_beside(source.repository, homes_of(source.environ), root)
        return make_worktree(source.repository, snapshot, root, wish.branch)
    except OSError as error:
        raise cannot_write(error, root) from error


def _choose_place(source: CapturePipeline, directory: str) -> str:
    """Where the fork is to stand, absolute and without links."""
    root = os.path.realpath(directory)
    try:
        taken = os.path.lexists(root) and bool(os.listdir(root))
    except OSError as error:
        raise cannot_write(error, root) from error
    if taken:
        raise Refused(
            f"there is something in '{directory}' already", hint="name a new directory, or an empty one"
        )
    repository = source.repository
    refuse_place(root, repository, source.environ)
    inside = [os.fsdecode(base) for base in source.read_scope(None).bases.values()]
    for top in (*inside, repository.root, repository.git_dir, repository.common_dir):
        if f"{root}/".startswith(os.path.realpath(top).rstrip("/") + "/"):
            raise Refused(
                f"'{directory}' is inside '{top}': the fork would be captured with it",
                hint=f"beside it: git envlog fork '{repository.root}-2'",
            )
    return root


def _refuse(repository: Repository, snapshot: Snapshot, root: str, wish: ForkOptions) -> None:
    if repository.plain and wish.branch is not None:
        raise UsageError("there are no branches without git: -b", hint="git envlog fork <directory> [<rev>]")
    if wish.relocate and not is_shell_safe(root):
        raise Refused(
            f"scripts cannot name a place like '{root}' everywhere",
            hint="with --relocate, name a directory of letters, digits and . _ - / only",
        )
    if not snapshot.trusted and not wish.foreign:
        raise Refused(
            f"no key that is here signed '{snapshot.id[:7]}': what it holds is somebody else's word",
            hint="--allow-unsigned, if you trust who made it",
        )
    if not snapshot.trusted:
        refuse_obeyed_place(root, repository.git, repository.root)


def _missing_above(root: str) -> list[str]:
    """The directories above that are not there yet, the deepest first."""
    missing = []
    while not os.path.lexists(root := os.path.dirname(root)):
        missing.append(root)
    return missing


def _leave_as_it_was(root: str, there: bool, made_above: list[str]) -> None:
    with suppress(OSError):
        if there:
            os.makedirs(root, exist_ok=True)
        for directory in made_above:
            os.rmdir(directory)


def _forget_timeline(repository: Repository) -> None:
    """Let go of the timeline of a fork that never was; it holds one moment at most, and nobody has seen it."""
    with suppress(EnvhistError):
        name = current_timeline(repository, read_settings(()))
        for ref in (TIMELINE_REFS + name, NOTES_REFS + name) if name else ():
            tip = repository.resolve_ref(ref)
            if tip is not None:
                repository.move_refs([RefUpdate(ref, None, tip)])
