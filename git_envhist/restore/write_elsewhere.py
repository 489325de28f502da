"""Write a snapshot into another directory; nothing in the environment is changed.

A directory is filled inside a private directory and renamed into place when it is complete. A snapshot with all paths
is written while it is read; pathspecs and unsigned snapshots go through a plan.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, overload

from git_envhist.diff.snapshot_walker import FoundDirectory, SnapshotWalker, differing_directories
from git_envhist.disk import cannot_write
from git_envhist.errors import Refused
from git_envhist.git.process import Git
from git_envhist.lazy import once, replace
from git_envhist.model import (
    TOP,
    DirectoryPair,
    Entry,
    EntryKind,
    EnvPath,
    PlanAction,
    PlannedDirectory,
    PlanStep,
    RestorePlan,
    RestoreResult,
    SkippedPath,
    Snapshot,
)
from git_envhist.objects.object_readers import ObjectReader, Verify
from git_envhist.platform import DIRECTORY, SYSTEM, list_directory
from git_envhist.restore.disk_calls import DiskCalls
from git_envhist.restore.disk_entry import from_stat, is_same_file, stat_entry
from git_envhist.restore.guards import name_rules, refuse_names
from git_envhist.restore.inspect_unsigned import free_bytes_at, inspect, nearest_directory, untrusted_warnings
from git_envhist.restore.metadata_losses import describe_losses
from git_envhist.restore.options import DEFAULT_OPTIONS, RestoreOptions
from git_envhist.restore.plan_steps import PRIVATE, PlanRules, SkipReason, make_plan
from git_envhist.restore.planner import chosen_paths
from git_envhist.restore.scope import with_directories
from git_envhist.restore.set_metadata import MetadataSetter
from git_envhist.restore.slots import open_private, remove_tree
from git_envhist.restore.stage import cannot_stage
from git_envhist.restore.swap import CREATED
from git_envhist.restore.write_entry import Contents
from git_envhist.restore.write_new_directory import (
    DirectoryContents,
    NewDirectory,
    TreeSource,
    WrittenTree,
    refuse_if_missing,
    set_directory_metadata,
    write_directory,
)
from git_envhist.snapshots.reader import Objects

# A killed process leaves only the private directory. The next one removes it unless it is locked: the lock ends with
# its process.

NEW = b"new"
"""The directory of new files in the private directory; other names there belong to a restore in place."""


class FillResult(NamedTuple):
    """The result of filling a directory."""

    own: Entry
    """The entry of the directory itself."""
    tops: dict[EnvPath, Entry]
    """The entries at the top, by name."""
    below: dict[EnvPath, int]
    """The number of entries below each directory at the top."""
    written: int
    """The number of paths that were written and verified."""
    skipped: tuple[SkippedPath, ...]
    existing: tuple[SkippedPath, ...]
    losses: tuple[tuple[bytes, str], ...]


def fill_directory(
    directory: bytes,
    source: TreeSource,
    open_contents: Callable[[], Contents],
    *,
    calls: DiskCalls | None = None,
    how: str = "fork",
) -> FillResult:
    """Write a tree into an empty directory; if that fails, the directory is empty again."""
    calls = calls or DiskCalls()
    top = os.open(directory, DIRECTORY)
    try:
        with private_directory(top, calls) as private:
            written = write_directory(source, private, calls, open_contents, how)
            existing = _put_in_place(written, private, top, calls)
            refuse_if_missing(top, directory, written, existing)
        losses = (
            *written.losses,
            *set_directory_metadata(top, EnvPath(b""), written.own, MetadataSetter(calls)),
        )
    except OSError as error:
        raise cannot_stage(error) from error
    finally:
        os.close(top)
    return _result(written, existing, losses)


def is_occupied(directory: str) -> bool:
    """Return whether a directory contains anything but leftovers of a killed `--to`."""
    names = set(map(os.fsencode, os.listdir(directory)))
    if names - {PRIVATE}:
        return True
    if PRIVATE not in names:
        return False
    try:
        return _has_replaced_files(
            map(os.fsencode, os.listdir(os.path.join(directory, os.fsdecode(PRIVATE))))
        )
    except NotADirectoryError:
        return True


def unplaced_entries(directory: str) -> int | None:
    """Return the number of entries that a killed `--to` had not yet put in place; None if there was none."""
    try:
        return len(os.listdir(os.path.join(os.fsencode(directory), PRIVATE, NEW)))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _has_replaced_files(names: Iterable[bytes]) -> bool:
    """Return whether a private directory with these entries contains files that a restore in place has replaced."""
    return any(name != NEW for name in names)


@contextmanager
def private_directory(top: int, calls: DiskCalls) -> Iterator[int]:
    """Create and lock an empty private directory; remove it afterwards with everything in it."""
    process = os.getpid()
    private = _open_locked(calls, top)
    new = -1
    try:
        # Remove leftovers of a killed process.
        remove_tree(calls, private, NEW)
        new = open_private(calls, private, NEW)
        yield new
    finally:
        try:
            # A stopped worker is a fork of this process and must not clean up.
            if os.getpid() == process:
                # Before the lock is released: afterwards the directory may belong to another process.
                remove_tree(calls, private, NEW)
                with suppress(OSError):
                    calls.rmdir(top, PRIVATE)
        finally:
            if new >= 0:
                os.close(new)
            os.close(private)


def _open_locked(calls: DiskCalls, top: int) -> int:
    while True:
        private = open_private(calls, top, PRIVATE)
        try:
            if _is_locked(private):
                raise Refused(
                    "another restore is writing there", hint="wait for it, or name another directory"
                )
            if _has_replaced_files(list_directory(private)):
                raise Refused(
                    "it contains replaced files of an interrupted restore", hint="name another directory"
                )
            if _is_still_in(top, private):
                return private
        except BaseException:
            os.close(private)
            raise
        # The previous owner of the lock has removed the directory.
        os.close(private)


def _is_still_in(top: int, private: int) -> bool:
    found = stat_entry(top, PRIVATE)
    return found is not None and is_same_file(found, from_stat(os.fstat(private)))


def _is_locked(private: int) -> bool:
    if not SYSTEM.flock:
        return False
    try:
        fcntl.flock(private, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # the file system has no locks
    return False


def _put_in_place(written: WrittenTree, private: int, top: int, calls: DiskCalls) -> list[SkippedPath]:
    """Rename all new entries to their final names; return those that exist already."""
    existing: list[SkippedPath] = []
    moved: list[bytes] = []
    try:
        for name in sorted(list_directory(private)):
            try:
                _move(calls, private, name, top)
                moved.append(name)
            except FileExistsError:
                existing.append(SkippedPath(EnvPath(name), CREATED))
    except BaseException:
        for name in reversed(moved):
            with suppress(OSError):
                _move(calls, top, name, private)
        raise
    return existing


def _move(calls: DiskCalls, one: int, name: bytes, other: int) -> None:
    try:
        calls.move(one, name, other, name)
    except PermissionError:
        mode = os.stat(name, dir_fd=one, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode) or mode & stat.S_IWUSR:
            raise
        # Moving a directory changes its `..`, so its owner needs write permission on it.
        calls.chmod(one, name, stat.S_IMODE(mode) | stat.S_IRWXU)
        calls.move(one, name, other, name)
        calls.chmod(other, name, stat.S_IMODE(mode))


def _result(
    written: WrittenTree, existing: list[SkippedPath], losses: tuple[tuple[bytes, str], ...]
) -> FillResult:
    below = {
        path: written.counts[path]
        for path, entry in written.tops.items()
        if entry.kind is EntryKind.DIRECTORY
    }
    count = len(written.tops) + sum(below.values()) - sum(1 + below.get(item.path, 0) for item in existing)
    return FillResult(written.own, written.tops, below, count, written.skipped, tuple(existing), losses)


# Sources to fill a directory from: a whole trusted snapshot, read while it is written; or a plan.


class SnapshotSource:
    """All files of a snapshot's working tree."""

    def __init__(self, contents: Objects, tree: str) -> None:
        self._walker = SnapshotWalker(contents, bytes.fromhex(tree))

    def directories(self) -> Iterator[NewDirectory]:
        for found in self._walker.directories():
            is_made = not found.place.stored or (found.tree is not None and not found.is_nested)
            yield NewDirectory(found.place.path, found, found.entries, found.directories, is_made)

    def contents_of(self, key: FoundDirectory, contents: Any) -> DirectoryContents:
        listing = self._walker.listing(key, contents)
        entries = tuple(listing.entries.values())
        # Directories that are in no tree, or nested repositories, are created after all others.
        directories = sum(entry.kind is EntryKind.DIRECTORY for entry in entries)
        return DirectoryContents(listing.own, entries, directories == len(key.directories))

    def roots(self) -> list[bytes]:
        """Return the additional roots of the snapshot, which are not written."""
        return self._walker.roots()


class PlanSource:
    """Files of a plan for an empty directory."""

    def __init__(self, plan: RestorePlan, top: Entry) -> None:
        self._owns: dict[EnvPath, Entry] = {TOP: top}
        self._entries: dict[EnvPath, list[Entry]] = {TOP: []}
        for step in plan.steps:
            assert step.after is not None
            for entry in (step.after, *step.below):
                self._put(entry)

    def _put(self, entry: Entry) -> None:
        self._entries[EnvPath(entry.path.rpartition(b"/")[0])].append(entry)
        if entry.kind is EntryKind.DIRECTORY:
            self._owns[entry.path] = entry
            self._entries[entry.path] = []

    def directories(self) -> Iterator[NewDirectory]:
        for path, entries in self._entries.items():
            names = [one.path.rpartition(b"/")[2] for one in entries if one.kind is EntryKind.DIRECTORY]
            yield NewDirectory(path, path, len(entries), tuple(names))

    def contents_of(self, key: EnvPath, contents: Any) -> DirectoryContents:
        return DirectoryContents(self._owns[key], tuple(self._entries[key]), True)


class LazyEntries(Sequence[Entry]):
    """The contents of a directory of a snapshot, directories before their entries; read on first use."""

    def __init__(self, open_contents: Any, tree: str, path: EnvPath, number: int) -> None:
        self._open_contents = open_contents
        self._tree = tree
        self._path = path
        self._number = number

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Entry, ...]: ...
    def __getitem__(self, index: int | slice) -> Entry | tuple[Entry, ...]:
        return self._entries[index]

    @once
    def _entries(self) -> tuple[Entry, ...]:
        contents: ObjectReader
        with closing(self._open_contents()) as contents:
            return tuple(SnapshotWalker(contents, bytes.fromhex(self._tree)).below(self._path))


def plan_of(
    filled: FillResult, tree: str, open_contents: Any, unplaced: Iterable[SkippedPath]
) -> RestorePlan:
    """Return the plan that was carried out."""
    steps = []
    for path, entry in sorted(filled.tops.items()):
        number = filled.below.get(path, 0)
        below = LazyEntries(open_contents, tree, path, number) if number else ()
        steps.append(PlanStep(b"", path, PlanAction.WRITE, None, entry, below))
    directories = [
        PlannedDirectory(b"", step.path, None, step.after)
        for step in steps
        if step.after is not None and step.after.kind is EntryKind.DIRECTORY
    ]
    top = PlannedDirectory(b"", TOP, None, filled.own)
    return RestorePlan(tuple(steps), (*reversed(directories), top), (*filled.skipped, *unplaced))


OTHER_ROOT = "in an additional root"


class SourceRepository(NamedTuple):
    """The repository from which a snapshot is read."""

    git: Git
    state: str
    open_contents: Callable[[Mapping[bytes, bytes], Verify], ObjectReader]
    """Return a reader, given additional blobs by id."""
    how: str


def write_elsewhere(
    snapshot: Snapshot, directory: str, source: SourceRepository, options: RestoreOptions = DEFAULT_OPTIONS
) -> RestoreResult:
    """Write a snapshot into a new or empty directory; of an unsigned one only harmless files."""
    _refuse_occupied(directory)
    return write_into(snapshot, directory, source, options)


def write_into(
    snapshot: Snapshot, directory: str, source: SourceRepository, options: RestoreOptions = DEFAULT_OPTIONS
) -> RestoreResult:
    """Write into a directory without refusing existing entries."""
    started = time.monotonic()
    place = nearest_directory(directory)
    may_probe = not options.dry_run and os.path.realpath(directory) == os.path.realpath(place)
    if (
        snapshot.trusted
        and _is_whole(options)
        and not name_rules(os.fsencode(place), empty=may_probe).is_narrow
    ):
        written = _write_all(snapshot, directory, source)
    else:
        planned, made = _prepare(snapshot, directory, source, options)
        refuse_names(planned.plan, {b"": os.fsencode(place)}, empty=may_probe)
        if options.dry_run:
            return planned
        written = _write_planned(planned, directory, source, made)
    return replace(written, snapshot=snapshot, seconds=time.monotonic() - started)


def _is_whole(options: RestoreOptions) -> bool:
    return not options.dry_run and not options.pathspecs and options.classes is None


def _write_all(snapshot: Snapshot, directory: str, source: SourceRepository) -> RestoreResult:
    """Write all of a trusted snapshot while reading it."""
    open_contents = partial(source.open_contents, {}, Verify.PACKED)
    with closing(open_contents()) as contents:
        tree_source = SnapshotSource(contents, snapshot.tree)
        skipped_roots = _skipped_roots(tree_source.roots())
        filled = _fill(directory, tree_source, open_contents, source.how)
    return _with_result(
        RestoreResult(snapshot, plan_of(filled, snapshot.tree, open_contents, skipped_roots)), filled
    )


def _write_planned(
    planned: RestoreResult, directory: str, source: SourceRepository, made: Mapping[bytes, bytes]
) -> RestoreResult:
    top = next((own.after for own in planned.plan.directories if own.path == TOP), None)
    if top is None:
        # Not even the top was captured, so there is nothing to write.
        _make(directory)
        return planned
    tree_source = PlanSource(planned.plan, top)
    return _with_result(
        planned, _fill(directory, tree_source, partial(source.open_contents, made, Verify.ID), source.how)
    )


def _fill(
    directory: str, tree_source: TreeSource, open_contents: Callable[[], ObjectReader], how: str
) -> FillResult:
    is_new = not os.path.lexists(directory)
    _make(directory)
    process = os.getpid()
    try:
        return fill_directory(os.fsencode(directory), tree_source, open_contents, how=how)
    except BaseException:
        # A stopped worker is a fork of this process and must not clean up.
        if is_new and os.getpid() == process:
            with suppress(OSError):
                os.rmdir(directory)
        raise


def _make(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise cannot_write(error, directory) from error


def _with_result(planned: RestoreResult, filled: FillResult) -> RestoreResult:
    losses = describe_losses(filled.losses)
    return replace(planned, verified=filled.written, kept=filled.existing, losses=(*planned.losses, *losses))


def _prepare(
    snapshot: Snapshot, directory: str, source: SourceRepository, options: RestoreOptions
) -> tuple[RestoreResult, Mapping[bytes, bytes]]:
    """Return the plan, and blobs in it that are in no snapshot."""
    with closing(source.open_contents({}, Verify.ID)) as contents:
        if snapshot.trusted:
            pairs = list(differing_directories(contents, None, bytes.fromhex(snapshot.tree)))
            return RestoreResult(snapshot, _plan(pairs, _rules(pairs, snapshot, source, options))), {}
        free = free_bytes_at(directory)
        pairs, findings = inspect(source.git, contents, snapshot.tree, free_bytes=free, force=options.force)
    rules = findings.rules(_rules(pairs, snapshot, source, options))
    plan = _plan([findings.reduced(pair) for pair in pairs], rules)
    return untrusted_warnings(RestoreResult(snapshot, plan), findings, pairs), findings.blobs


def _rules(
    pairs: list[DirectoryPair], snapshot: Snapshot, source: SourceRepository, options: RestoreOptions
) -> PlanRules:
    """Return rules that allow everything, or the chosen paths and their parent directories."""
    chosen = chosen_paths(source.git, pairs, options, (snapshot.tree,))
    if chosen is None:
        return PlanRules()
    wanted = with_directories(chosen)
    return PlanRules(lambda path, _: None if not path or path in wanted else SkipReason.NOT_CHOSEN)


def _plan(pairs: list[DirectoryPair], rules: PlanRules) -> RestorePlan:
    plan = make_plan((pair for pair in pairs if not pair.root), rules)
    skipped_roots = _skipped_roots(sorted({pair.root for pair in pairs if pair.root}))
    return RestorePlan(plan.steps, plan.directories, (*plan.skipped, *skipped_roots))


def _skipped_roots(roots: Iterable[bytes]) -> tuple[SkippedPath, ...]:
    return tuple(SkippedPath(EnvPath(root + b"://"), OTHER_ROOT) for root in roots)


def _refuse_occupied(directory: str) -> None:
    try:
        occupied = os.path.lexists(directory) and is_occupied(directory)
        unplaced = unplaced_entries(directory) if occupied else None
    except OSError as error:
        raise cannot_write(error, directory) from error
    if unplaced is not None:
        # Entries in place may have been changed since, so only the user removes them.
        raise Refused(
            f"'{directory}' contains an incomplete restore that was killed: {unplaced} entries are missing",
            hint="remove it, or name another directory",
        )
    if occupied:
        raise Refused(f"'{directory}' is not empty", hint="name a new or empty directory")
