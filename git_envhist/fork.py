"""Fork: write a snapshot into a new directory with a timeline of its own.

A fork is a linked worktree, or, without git, another directory in the same history. Everything is written from the
snapshot and verified as in any restore; unchanged files share blocks with the original where the file system can. The
first snapshot of the fork is captured before paths in files are rewritten, so that forks of one snapshot start with
equal contents.
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

from git_envhist.capture.environment_trees import open_stat_cache
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
from git_envhist.git.repository import NOTES_REFS, TIMELINE_REFS, RefUpdate, Repository
from git_envhist.git.running_git import GITDIR
from git_envhist.git.submodules import git_directory_of, has_submodules, is_own_submodule, submodule_of
from git_envhist.history.timeline import RELOCATED
from git_envhist.lazy import replace
from git_envhist.model import CaptureProgress, EnvPath, ForkPlan, ForkResult, RestoreResult, Snapshot, Trigger
from git_envhist.objects.object_readers import ObjectReader, Verify
from git_envhist.platform import DIRECTORY, open_file_only
from git_envhist.ports_in_use import ports_in_use
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.inspect_unsigned import refuse_obeyed_place
from git_envhist.restore.planner import tracked_paths
from git_envhist.restore.relocate import (
    PathReference,
    Relocation,
    Rewriter,
    files_in,
    find_outside_references,
    is_shell_safe,
    origins_of,
    read_file,
    relocate,
    write_in_place,
)
from git_envhist.restore.slots import remove_tree
from git_envhist.restore.worktree_reader import CloningReader
from git_envhist.restore.write_elsewhere import SourceRepository, write_into
from git_envhist.snapshots.layout import GIT_CHANGED
from git_envhist.snapshots.list_texts import read_git_changes
from git_envhist.snapshots.stored_names import RESERVED
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

# The directory of a fork: a linked worktree, or a directory that shares the history's repository. If forking fails,
# exactly what was created here is removed.

BRANCHES = "refs/heads/"
HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class ForkDirectory(Protocol):
    """A directory created for a fork."""

    @property
    def repository(self) -> Repository: ...
    @property
    def branch(self) -> str | None: ...
    @property
    def orphan(self) -> bool: ...
    def remove(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Worktree:
    """A linked worktree."""

    repository: Repository
    git: Git
    """Runs git in the original repository."""
    branch: str | None
    """The branch created for it."""
    orphan: bool

    def remove(self) -> None:
        """Remove the worktree, and the branch created with it."""
        root = self.repository.root
        remove_fork_directory(root)
        self.git.try_run("worktree", "remove", "--force", "--force", root)
        if self.branch is not None and not self.orphan:
            self.git.try_run("update-ref", "-d", BRANCHES + self.branch)


@dataclass(frozen=True, slots=True)
class PlainForkDirectory:
    """A directory without git, with its history in the repository of the original."""

    repository: Repository
    record: str
    branch: None = None
    orphan: bool = False

    def remove(self) -> None:
        """Remove the directory and its record."""
        remove_fork_directory(self.repository.root)
        with suppress(OSError):
            os.unlink(self.record)
        shutil.rmtree(self.repository.git_dir, ignore_errors=True)


def make_worktree(source: Repository, snapshot: Snapshot, root: str, branch: str | None) -> Worktree:
    """Create a linked worktree at the code commit of a snapshot, without files; its index is that commit's."""
    git = source.git
    if branch is not None:
        _check_branch(git, branch)
    commit = _commit(git, snapshot.head)
    orphan = commit is None
    # git 2.42 can create an orphan worktree. With older ones, HEAD is set right after.
    at = commit or snapshot.commit
    made = ["-b", branch] if branch is not None and not orphan else ["--detach"]
    rewritten = git.try_run("worktree", "add", "--quiet", "--no-checkout", *made, root, at)
    if rewritten.status != 0:
        raise _worktree_failed(rewritten, root)
    repository = Repository.open(root, clean_environment())
    branch = branch or (_unused_branch(git, root) if orphan else None)
    fork_directory = Worktree(repository, git, branch, orphan)
    try:
        if orphan:
            repository.git.run("symbolic-ref", "HEAD", f"{BRANCHES}{branch}")
        else:
            repository.git.run("read-tree", at)
        mark_fork(repository)
    except BaseException:
        fork_directory.remove()
        raise
    return fork_directory


def make_plain_fork(source: Repository, registry: DirectoryRegistry, root: str) -> PlainForkDirectory:
    """Create a directory with a timeline in the repository of a plain directory's history."""
    os.makedirs(root, exist_ok=True)
    name = f"{slug(os.path.basename(root))}-{os.urandom(3).hex()}"
    record = RegisteredDirectory(name, root, source.common_dir, identify(root), fork=True)
    fork_directory = PlainForkDirectory(open_plain(record, root), os.path.join(registry.directory, name))
    try:
        state_directory(fork_directory.repository.state)
        mark_fork(fork_directory.repository)
        registry.write(record)
    except BaseException:
        fork_directory.remove()
        raise
    return fork_directory


def remove_fork_directory(root: str) -> None:
    """Remove a directory and all in it, also directories without permissions."""
    parent, name = os.path.split(root)
    with suppress(OSError):
        descriptor = os.open(parent, DIRECTORY)
        try:
            remove_tree(DiskCalls(), descriptor, os.fsencode(name))
        finally:
            os.close(descriptor)


def _commit(git: Git, head: str | None) -> str | None:
    """Return the code commit of a snapshot if it still exists."""
    if head is None or HASH.fullmatch(head) is None:
        return None
    return head if git.try_run("cat-file", "-e", head + "^{tree}").status == 0 else None


def _check_branch(git: Git, branch: str) -> None:
    if git.try_run("check-ref-format", "--branch", branch).status != 0 or branch.startswith("@{"):
        raise UsageError(f"not a name for a branch: '{branch}'")
    if _is_branch(git, branch):
        raise Refused(f"branch already exists: '{branch}'", hint="name another branch")


def _unused_branch(git: Git, root: str) -> str:
    name = slug(os.path.basename(root))
    names = [name, *(f"{name}-{number}" for number in range(2, 1000))]
    return next(one for one in names if not _is_branch(git, one))


def _is_branch(git: Git, branch: str) -> bool:
    return git.try_run("rev-parse", "--verify", "--quiet", BRANCHES + branch).status == 0


def _worktree_failed(rewritten: GitResult, root: str) -> EnvhistError:
    return EnvhistError(
        f"git cannot create a worktree at '{root}': {rewritten.complaint.splitlines()[-1]}",
        hint="'git worktree list' shows existing ones, 'git worktree prune' removes stale ones",
    )


# The stat cache of a fork is made from the original's records and the stat data of the written files, which were
# verified
# when they were written. Files with other size, mode or mtime, with lost metadata, with several names, or too recent to
# be relied on are left for the capture to read.

NOTHING = (0,) * WIDTH
DOT_GIT = b".git"


def seed_stat_cache(
    source: CapturePipeline, own: CapturePipeline, snapshot: Snapshot, lost: frozenset[EnvPath]
) -> None:
    """Write the stat cache of a new fork if the original's was made for the same snapshot.

    `lost`: paths with metadata that could not be set.
    """
    original_cache, fork_cache = open_stat_cache(source.repository), open_stat_cache(own.repository)
    head = original_cache.read_head()
    if head is None or head.base != snapshot.id:
        return
    original_extent, own_extent = source.read_scope(None), own.read_scope(None)
    if head.naming != original_extent.naming or not _same_extent(original_extent, own_extent):
        return
    started = time.time_ns()
    # The capture reads what cannot be read here.
    with suppress(EnvhistError, OSError, ValueError):
        written = _WrittenFork(own_extent.bases[b""], started, lost)
        shards, _ = share_out(
            head.shards,
            lambda: written,
            lambda written, shard: _seeded_shard(original_cache, shard, written),
            lambda _: None,
            how="fork" if own.how == "fork" else "here",
        )
        fork_cache.write(
            CacheHeader(
                own_extent.naming, head.keeping, head.base, (), head.pieces, head.elsewhere, head.files
            ),
            shards,
        )


def _same_extent(original_extent: CaptureScope, own_extent: CaptureScope) -> bool:
    """Return whether both have the same rules and only the working tree as root."""
    if (
        set(original_extent.bases) != {b""}
        or set(own_extent.bases) != {b""}
        or set(original_extent.pruned) - {DOT_GIT}
        or own_extent.pruned
    ):
        return False
    return all(
        getattr(original_extent, name) == getattr(own_extent, name)
        for name in ("ignore", "exclude", "fingerprint")
    )


class _WrittenFork(NamedTuple):
    """The fork that records are compared with."""

    root: bytes
    started: int
    lost: frozenset[EnvPath]


def _seeded_shard(cache: StatCache, shard: CacheShard, written: _WrittenFork) -> tuple[bytes, bytes]:
    data = cache.read_shard(shard)
    if data is None:
        raise ValueError("a shard of the stat cache is missing")
    return shard.first, b"".join(
        _seeded_record(decode(encoded), written).encode() for _, encoded in cut(data)
    )


def _seeded_record(record: DirectoryRecord, written: _WrittenFork) -> DirectoryRecord:
    """Return a record of the original with the stat data of the fork."""
    place = os.path.join(written.root, record.path) if record.path else written.root
    columns = pack_columns(_rows(record, place + b"/", written))
    try:
        own = os.lstat(place)
    except FileNotFoundError:
        return replace(record, ctime_ns=0, columns=columns)
    # Adding a name changes the mtime of the directory.
    same = own.st_mtime_ns == record.mtime_ns and EnvPath(record.path) not in written.lost
    same = same and (own.st_mode, own.st_uid, own.st_gid) == (record.mode, record.uid, record.gid)
    installed = same and is_settled(own.st_ctime_ns, own.st_mtime_ns, written.started)
    return replace(
        record,
        ctime_ns=own.st_ctime_ns if installed else 0,
        mtime_ns=own.st_mtime_ns,
        inode=own.st_ino,
        device=own.st_dev,
        columns=columns,
    )


def _rows(record: DirectoryRecord, parent: bytes, written: _WrittenFork) -> Iterator[tuple[int, ...]]:
    cells = record.cells
    inside = record.path + b"/" if record.path else b""
    for number, name in enumerate(record.names):
        try:
            status = os.lstat(parent + name)
        except FileNotFoundError:
            yield NOTHING
            continue
        row, at = COLUMNS(status), number * WIDTH
        as_written = all(row[cell] == cells[at + cell] for cell in (MTIME, SIZE, MODE))
        as_written = as_written and EnvPath(inside + name) not in written.lost
        # Link groups are numbered by inode, which differs in the fork.
        has_one_name = status.st_nlink == 1 or not stat.S_ISREG(status.st_mode)
        if not (as_written and has_one_name and is_settled(row[CTIME], row[MTIME], written.started)):
            row = (0, *row[1:])
        yield row


# Submodules of a fork. A `.git` file names the submodule's git directory by a path: from the fork it would lead
# nowhere,
# or to the original's, where git commands would act. So each git directory is copied to where git keeps those of a
# linked
# worktree, and the file is rewritten. Objects are hard-linked, as `git clone` does on the same disk.

SKIPPED_NAMES = frozenset(("index", "modules", "worktrees", "envhist"))
"""Created afresh; found by `.git` files of their own; of other working trees; of other histories."""
TEMPORARY_PREFIXES = ("tmp_", "fsmonitor--daemon")
ALTERNATES = "objects/info/alternates"


class SubmoduleInstaller(NamedTuple):
    """Creates git directories for the submodules of one working tree."""

    repository: Repository
    origins: tuple[str, ...]
    """The working trees from which a path in a `.git` file may be relative."""
    relocation: frozenset[bytes]
    """Submodules that were at another commit than the snapshot's code commit names."""

    def install(self, places: Iterable[PathReference]) -> tuple[tuple[EnvPath, ...], tuple[str, ...]]:
        """Return the rewritten `.git` files, and warnings about failures."""
        rewritten, warnings = [], []
        for path, module, name in list(self._found(places)):
            try:
                self._install(path, module, name)
            except (OSError, EnvhistError) as error:
                parent = os.fsdecode(os.path.dirname(path))
                warnings.append(
                    f"the git directory of the submodule '{parent}' could not be copied: {in_words(error)}"
                )
            else:
                rewritten.append(path)
        return tuple(rewritten), tuple(warnings)

    def _found(self, places: Iterable[PathReference]) -> Iterator[tuple[EnvPath, str, str]]:
        """Yield each `.git` file with its git directory and the submodule's name."""
        for path, is_link in places:
            if is_link or not path.endswith(b"/.git"):
                continue
            found = self._module(path, read_file(self.repository.root, path))
            if found is not None:
                yield path, *found

    def _module(self, path: EnvPath, pointer: bytes) -> tuple[str, str] | None:
        for root in self.origins:
            parent = os.path.join(os.path.realpath(os.fsencode(root)), os.path.dirname(path))
            place = git_directory_of(parent, pointer)
            module_name = None if place is None else submodule_of(place, self.repository.common_dir)
            if place is None or module_name is None or is_own_submodule(place, self.repository.git_dir):
                continue
            name = os.fsdecode(module_name)
            # A git directory of a removed worktree may still exist in the main one.
            for module in (os.fsdecode(place), os.path.join(self.repository.common_dir, "modules", name)):
                if _is_git_directory(module):
                    return module, name
        return None

    def _install(self, path: EnvPath, module: str, name: str) -> None:
        root, git = os.path.realpath(self.repository.root), self.repository.git
        target = os.path.join(os.path.realpath(self.repository.git_dir), "modules", name)
        work_tree = os.path.join(root, os.fsdecode(os.path.dirname(path)))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        # Fails if it exists: it belongs to another `.git` file of the same submodule.
        os.mkdir(target)
        try:
            copy_git_directory(module, target)
            _set_work_tree(git, target, os.path.relpath(work_tree, target))
            self._check_out(path, Git(target, work_tree))
            relative = os.path.relpath(target, work_tree)
            write_in_place(root, path, GITDIR + os.fsencode(relative) + b"\n")
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise

    def _check_out(self, path: EnvPath, inner: Git) -> None:
        """Set HEAD to the commit at the time of the snapshot, if known, and the index to that commit."""
        now = inner.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        commit = self._recorded(os.path.dirname(path))
        if commit is None or inner.ask("cat-file", "-e", commit + "^{tree}").status != 0:
            commit = now.out.decode("ascii").strip()
        elif now.out.decode("ascii").strip() != commit:
            inner.run("update-ref", "--no-deref", "HEAD", commit)
        if commit:
            inner.run("read-tree", commit)

    def _recorded(self, path: bytes) -> str | None:
        """Return the commit of a submodule in the snapshot's code commit, if the submodule was at it."""
        if path in self.relocation:
            return None
        # HEAD of the new fork is that commit.
        listed = self.repository.git.ask("ls-tree", "-z", "--full-tree", "HEAD", "--", path).out
        mode, _, rest = listed.partition(b" ")
        return rest.split(b" ")[1].partition(b"\t")[0].decode("ascii") if mode == b"160000" else None


def changed_submodules(git: Git, snapshot: Snapshot) -> frozenset[bytes]:
    """Return the paths that git reported as changed when the snapshot was captured."""
    with CatFile(git) as reader:
        found = reader.read(f"{snapshot.tree}:{(RESERVED + b'/' + GIT_CHANGED).decode()}")
    changes = read_git_changes(found.data) if found is not None else ()
    return frozenset(change.path for change in changes)


def copy_git_directory(module: str, target: str) -> None:
    """Copy a submodule's git directory into an empty one, without data of other working trees."""

    def ignored(directory: str, names: list[str]) -> set[str]:
        temporary = {name for name in names if name.startswith(TEMPORARY_PREFIXES) or name.endswith(".lock")}
        return temporary | (SKIPPED_NAMES & set(names) if directory == module else set())

    objects = os.path.join(module, "objects") + "/"

    def copy(source: str, target: str) -> None:
        if not source.startswith(objects) or not _link(source, target):
            shutil.copy2(source, target, follow_symlinks=False)

    shutil.copytree(module, target, symlinks=True, ignore=ignored, copy_function=copy, dirs_exist_ok=True)
    _write_alternates(module, target)


def _link(source: str, target: str) -> bool:
    # The only file below `objects` that git changes.
    if source.endswith(ALTERNATES):
        return False
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        return False
    return True


def _write_alternates(module: str, target: str) -> None:
    """Make the paths of alternate object stores absolute."""
    try:
        with open(os.path.join(module, ALTERNATES), "rb", opener=open_file_only) as fields:
            lines = fields.read().splitlines()
    except FileNotFoundError:
        return
    objects = os.path.join(os.fsencode(os.path.realpath(module)), b"objects")
    absolute = [line if line.startswith(b"#") else os.path.join(objects, line) for line in lines]
    with open(os.path.join(target, ALTERNATES), "wb") as writing:
        writing.write(b"".join(line + b"\n" for line in absolute))


def _set_work_tree(git: Git, target: str, work_tree: str) -> None:
    own = os.path.join(target, "config.worktree")
    has_config = git.try_run("config", "--file", own, "--get", "core.worktree").status == 0
    # git prefers config.worktree if it sets core.worktree.
    git.run(
        "config", "--file", own if has_config else os.path.join(target, "config"), "core.worktree", work_tree
    )


def _is_git_directory(place: str) -> bool:
    is_complete = all(os.path.isdir(os.path.join(place, name)) for name in ("objects", "refs"))
    return is_complete and os.path.lexists(os.path.join(place, "HEAD"))


UNLIMITED = 1 << 62
PLAN_ID = 16
Unseal = Callable[[EnvPath, bytes], bytes]


@dataclass(frozen=True, slots=True)
class ForkOptions:
    """The options of a fork."""

    branch: str | None = None
    relocate: bool = False
    allow_unsigned: bool = False
    trigger: Trigger = Trigger.API
    progress: Callable[[CaptureProgress], None] | None = None


def fork(
    source: CapturePipeline, unseal: Unseal, snapshot: Snapshot, directory: str, options: ForkOptions
) -> tuple[ForkResult, OpenedRepository]:
    """Create a fork; if it fails, nothing is left."""
    started = time.monotonic()
    root = plan_fork(source, snapshot, directory, options).root
    original, process = os.path.isdir(root), os.getpid()
    created = _missing_above(root)
    fork_directory: ForkDirectory | None = None
    try:
        fork_directory = _make_directory(source, snapshot, root, options)
        forked = _Fork(source, unseal, snapshot, fork_directory, options).run(started)
    except BaseException:
        # A stopped worker is a fork of this process and must not clean up.
        if os.getpid() != process:
            raise
        if fork_directory is not None:
            _delete_timeline(fork_directory.repository)
            fork_directory.remove()
        _remove_directories(root, original, created)
        raise
    return forked, OpenedRepository(fork_directory.repository)


def plan_fork(source: CapturePipeline, snapshot: Snapshot, directory: str, options: ForkOptions) -> ForkPlan:
    """Return the plan of a fork, or raise what forking would raise; nothing is written."""
    root = _fork_path(source, directory)
    _refuse(source.repository, snapshot, root, options)
    fields = (snapshot.id, snapshot.commit, root, options.branch, options.relocate)
    digest = hashlib.sha256(repr(fields).encode("utf-8", "surrogateescape")).hexdigest()
    return ForkPlan(snapshot, root, options.branch, options.relocate, digest[:PLAN_ID])


@dataclass(slots=True)
class _Fork:
    """A fork while it is written."""

    source: CapturePipeline
    unseal: Unseal
    snapshot: Snapshot
    fork_directory: ForkDirectory
    options: ForkOptions

    def run(self, started: float) -> ForkResult:
        own = self._capturing()
        written, captured_snapshot = self._write(own)
        repository = self.fork_directory.repository
        forked = ForkResult(
            self.snapshot,
            repository.root,
            captured_snapshot.timeline,
            captured_snapshot,
            captured_snapshot.head,
            self.fork_directory.branch,
            self.fork_directory.orphan,
            written.verified,
            0.0,
            skipped=written.plan.skipped,
            kept=written.kept,
            losses=written.losses,
            warnings=(*written.warnings, *ports_in_use(repository.root)),
        )
        forked = self._relocate(own, forked)
        return replace(forked, seconds=time.monotonic() - started)

    def _write(self, own: CapturePipeline) -> tuple[RestoreResult, Snapshot]:
        original, repository = self.source.repository, self.fork_directory.repository
        # Another process may have put a link into the path after the first check.
        refuse_place(repository.root, original, self.source.environ)
        source = SourceRepository(
            original.git, repository.state, self._contents, "fork" if own.how == "fork" else "here"
        )
        with own.locked(CaptureOptions()):
            written = write_into(self.snapshot, repository.root, source)
            if self.snapshot.trusted and not written.kept:
                lost = frozenset(loss.path for loss in written.losses)
                seed_stat_cache(self.source, own, self.snapshot, lost)
            words = os.fsencode(f"forked from {self.snapshot.id[:7]}")
            request = CaptureOptions(
                words,
                trigger=self.options.trigger,
                forked_from=self.snapshot.id,
                progress=self.options.progress,
            )
            with own.capture_tree(request) as captured:
                captured.reuse_facts_of(self.snapshot)
                captured_snapshot = captured.publish(request).snapshot
        assert captured_snapshot is not None
        return written, captured_snapshot

    def _relocate(self, own: CapturePipeline, forked: ForkResult) -> ForkResult:
        """Rewrite references to the original if requested, report the others, and capture the changes."""
        repository = self.fork_directory.repository
        origins = origins_of(self.source, self.snapshot.timeline, repository)
        installed, warnings = self._install(origins)
        relocation = Relocation.between(origins, repository.root)
        found = tuple(find_outside_references(files_in(repository.root), repository, relocation))
        rewritten: tuple[EnvPath, ...] = ()
        if self.options.relocate and found:
            code = frozenset() if repository.plain else tracked_paths(repository.git)
            rewritten, found = relocate(Rewriter(repository.root, relocation, code), found)
        rewritten = (*installed, *rewritten)
        warnings += _record(own, self.options, len(rewritten)) if rewritten else ()
        return replace(forked, relocated=rewritten, pointing=found, warnings=(*forked.warnings, *warnings))

    def _install(self, origins: tuple[str, ...]) -> tuple[tuple[EnvPath, ...], tuple[str, ...]]:
        repository = self.fork_directory.repository
        if repository.plain or not has_submodules(repository.common_dir):
            return (), ()
        relocation = changed_submodules(self.source.repository.git, self.snapshot)
        return SubmoduleInstaller(repository, origins, relocation).install(files_in(repository.root))

    def _capturing(self) -> CapturePipeline:
        repository, original = self.fork_directory.repository, self.source
        # The first snapshot of a fork must be complete.
        settings = replace(read_settings(repository.read_config()), budget=UNLIMITED)
        return replace(original, repository=repository, settings=settings)

    def _contents(self, made: Mapping[bytes, bytes], verify: Verify) -> ObjectReader:
        own = self.source.repository
        contents = CloningReader(
            own.git, own.pack_dir, own.object_format, self.unseal, verify=verify, made=made
        )
        contents.use_directory(own.root)
        return contents


def _record(own: CapturePipeline, options: ForkOptions, number: int) -> tuple[str, ...]:
    words = f"relocated {number} path{'' if number == 1 else 's'}"
    try:
        request = CaptureOptions(
            words.encode("ascii"),
            trigger=options.trigger,
            progress=options.progress,
            meta=((RELOCATED, str(number)),),
        )
        own.capture(request)
    except EnvhistError as error:
        return (f"paths were rewritten, but that could not be recorded: {in_words(error)}",)
    return ()


def _make_directory(
    source: CapturePipeline, snapshot: Snapshot, root: str, options: ForkOptions
) -> ForkDirectory:
    try:
        if source.repository.plain:
            return make_plain_fork(source.repository, homes_of(source.environ), root)
        return make_worktree(source.repository, snapshot, root, options.branch)
    except OSError as error:
        raise cannot_write(error, root) from error


def _fork_path(source: CapturePipeline, directory: str) -> str:
    """Return the absolute path of the fork, without links."""
    root = os.path.realpath(directory)
    try:
        occupied = os.path.lexists(root) and bool(os.listdir(root))
    except OSError as error:
        raise cannot_write(error, root) from error
    if occupied:
        raise Refused(f"'{directory}' is not empty", hint="name a new or empty directory")
    repository = source.repository
    refuse_place(root, repository, source.environ)
    inside = [os.fsdecode(base) for base in source.read_scope(None).bases.values()]
    for top in (*inside, repository.root, repository.git_dir, repository.common_dir):
        if f"{root}/".startswith(os.path.realpath(top).rstrip("/") + "/"):
            raise Refused(
                f"'{directory}' is inside '{top}': the fork would be captured with it",
                hint=f"fork next to it: git envlog fork '{repository.root}-2'",
            )
    return root


def _refuse(repository: Repository, snapshot: Snapshot, root: str, options: ForkOptions) -> None:
    if repository.plain and options.branch is not None:
        raise UsageError(
            "-b needs git: this history has no branches", hint="git envlog fork <directory> [<rev>]"
        )
    if options.relocate and not is_shell_safe(root):
        raise Refused(
            f"scripts cannot contain a path like '{root}' without quotes",
            hint="with --relocate, name a directory of letters, digits and . _ - / only",
        )
    if not snapshot.trusted and not options.allow_unsigned:
        raise Refused(
            f"'{snapshot.id[:7]}' is unsigned: none of your keys signed it",
            hint="use --allow-unsigned if you trust its author",
        )
    if not snapshot.trusted:
        refuse_obeyed_place(root, repository.git, repository.root)


def _missing_above(root: str) -> list[str]:
    """Return the missing directories above, deepest first."""
    missing = []
    while not os.path.lexists(root := os.path.dirname(root)):
        missing.append(root)
    return missing


def _remove_directories(root: str, original: bool, created: list[str]) -> None:
    with suppress(OSError):
        if original:
            os.makedirs(root, exist_ok=True)
        for directory in created:
            os.rmdir(directory)


def _delete_timeline(repository: Repository) -> None:
    """Delete the timeline of a failed fork; it has at most one snapshot."""
    with suppress(EnvhistError):
        name = current_timeline(repository, read_settings(()))
        for ref in (TIMELINE_REFS + name, NOTES_REFS + name) if name else ():
            tip = repository.resolve_ref(ref)
            if tip is not None:
                repository.move_refs([RefUpdate(ref, None, tip)])
