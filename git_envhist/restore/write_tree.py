"""Writes a moment into a directory of its own, and touches nothing here."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, overload

from git_envhist.diff.walk import FoundDirectory, SnapshotWalker, differing_directories
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
from git_envhist.objects.reader import ObjectReader
from git_envhist.platform import DIRECTORY, SYSTEM, list_directory
from git_envhist.restore.attributes import AttributeSetter
from git_envhist.restore.disk_entry import from_stat, is_same_thing, look
from git_envhist.restore.fs import DiskCalls
from git_envhist.restore.guards import manner_of, refuse_names
from git_envhist.restore.losses import told_losses
from git_envhist.restore.options import NO_WISH, RestoreOptions
from git_envhist.restore.plan import NOT_CHOSEN, PRIVATE, PlanRules, make_plan
from git_envhist.restore.planning import chosen_paths
from git_envhist.restore.scope import with_directories
from git_envhist.restore.slots import open_private, remove_tree
from git_envhist.restore.stage import cannot_stage
from git_envhist.restore.swap import CAME
from git_envhist.restore.untrusted import inspect, nearest_directory, room_at, untrusted_warnings
from git_envhist.restore.write_entry import Contents
from git_envhist.restore.write_files import (
    DirectoryContents,
    NewDirectory,
    TreeSource,
    WrittenTree,
    dress_directory,
    refuse_if_missing,
    write_all,
)
from git_envhist.restore.write_files import TreeSource as Moment
from git_envhist.snapshots.reader import Objects

# Fills an empty directory with a moment: it is put in place when it is whole.
#
# Until then it stands in a private directory in there. What a kill leaves is that directory and nothing else; whoever
# comes next throws it away, unless somebody is still at work in it: that is told by a lock on it, which dies with the
# process.

NEW = b"new"
"""Below the private directory: what else stands there is of a restore in place."""


class FillResult(NamedTuple):
    """What a directory was filled with."""

    own: Entry
    """What it is itself."""
    tops: dict[EnvPath, Entry]
    """What stands at the top, by its name."""
    below: dict[EnvPath, int]
    """How many entries each directory at the top holds."""
    written: int
    """How many paths were written and read back."""
    left_alone: tuple[SkippedPath, ...]
    kept: tuple[SkippedPath, ...]
    losses: tuple[tuple[bytes, str], ...]


def fill_directory(
    directory: bytes,
    source: TreeSource,
    open_contents: Callable[[], Contents],
    *,
    hands: DiskCalls | None = None,
    how: str = "fork",
) -> FillResult:
    """Write a moment into an empty directory; where that fails, it is as empty as it was."""
    hands = hands or DiskCalls()
    top = os.open(directory, DIRECTORY)
    try:
        with private_directory(top, hands) as private:
            fresh = write_all(source, private, hands, open_contents, how)
            kept = _put_in_place(fresh, private, top, hands)
            refuse_if_missing(top, directory, fresh, kept)
        losses = (*fresh.losses, *dress_directory(top, EnvPath(b""), fresh.own, AttributeSetter(hands)))
    except OSError as error:
        raise cannot_stage(error) from error
    finally:
        os.close(top)
    return _filled(fresh, kept, losses)


def is_taken(directory: str) -> bool:
    """Whether something stands in a directory but what a `--to` left there that was killed."""
    names = set(map(os.fsencode, os.listdir(directory)))
    if names - {PRIVATE}:
        return True
    if PRIVATE not in names:
        return False
    try:
        return _holds_anothers(map(os.fsencode, os.listdir(os.path.join(directory, os.fsdecode(PRIVATE)))))
    except NotADirectoryError:
        return True


def unplaced_entries(directory: str) -> int | None:
    """How many entries a `--to` that was killed had not put in place there; None where none was."""
    try:
        return len(os.listdir(os.path.join(os.fsencode(directory), PRIVATE, NEW)))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _holds_anothers(names: Iterable[bytes]) -> bool:
    """Return whether a private directory with these entries holds files that a restore in place has put aside."""
    return any(name != NEW for name in names)


@contextmanager
def private_directory(top: int, hands: DiskCalls) -> Iterator[int]:
    """A directory of ours below an open one, empty and nobody else's; it is gone afterwards, with all still in it."""
    process = os.getpid()
    private = _open_alone(hands, top)
    new = -1
    try:
        # What one left that was killed goes first.
        remove_tree(hands, private, NEW)
        new = open_private(hands, private, NEW)
        yield new
    finally:
        try:
            # A worker that is stopped is a copy of this process: it has nothing to clear up.
            if os.getpid() == process:
                # Before its lock is let go: what stands there afterwards is somebody else's.
                remove_tree(hands, private, NEW)
                with suppress(OSError):
                    hands.rmdir(top, PRIVATE)
        finally:
            if new >= 0:
                os.close(new)
            os.close(private)


def _open_alone(hands: DiskCalls, top: int) -> int:
    while True:
        private = open_private(hands, top, PRIVATE)
        try:
            if _is_locked(private):
                raise Refused(
                    "another restore is at work there", hint="name another directory, or wait for it"
                )
            if _holds_anothers(list_directory(private)):
                raise Refused("what a restore has put away stands there", hint="name another directory")
            if _stands_in(top, private):
                return private
        except BaseException:
            os.close(private)
            raise
        # Whoever had the lock until now has taken the directory away.
        os.close(private)


def _stands_in(top: int, private: int) -> bool:
    there = look(top, PRIVATE)
    return there is not None and is_same_thing(there, from_stat(os.fstat(private)))


def _is_locked(private: int) -> bool:
    if not SYSTEM.flock:
        return False
    try:
        fcntl.flock(private, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no locks are kept here
    return False


def _put_in_place(fresh: WrittenTree, private: int, top: int, hands: DiskCalls) -> list[SkippedPath]:
    """Give everything its name; what somebody has put there meanwhile stays."""
    kept: list[SkippedPath] = []
    done: list[bytes] = []
    try:
        for name in sorted(list_directory(private)):
            try:
                _move(hands, private, name, top)
                done.append(name)
            except FileExistsError:
                kept.append(SkippedPath(EnvPath(name), CAME))
    except BaseException:
        for name in reversed(done):
            with suppress(OSError):
                _move(hands, top, name, private)
        raise
    return kept


def _move(hands: DiskCalls, one: int, name: bytes, other: int) -> None:
    try:
        hands.move(one, name, other, name)
    except PermissionError:
        mode = os.stat(name, dir_fd=one, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode) or mode & stat.S_IWUSR:
            raise
        # Where a directory stands is written in it: one that its owner may not write to cannot be moved.
        hands.chmod(one, name, stat.S_IMODE(mode) | stat.S_IRWXU)
        hands.move(one, name, other, name)
        hands.chmod(other, name, stat.S_IMODE(mode))


def _filled(fresh: WrittenTree, kept: list[SkippedPath], losses: tuple[tuple[bytes, str], ...]) -> FillResult:
    below = {
        path: fresh.counts[path] for path, entry in fresh.tops.items() if entry.kind is EntryKind.DIRECTORY
    }
    written = len(fresh.tops) + sum(below.values()) - sum(1 + below.get(item.path, 0) for item in kept)
    return FillResult(fresh.own, fresh.tops, below, written, fresh.left_alone, tuple(kept), losses)


# What a directory is filled with: a whole snapshot of ours, read where it is written; or what a plan says.


class SnapshotSource:
    """All of a snapshot's working tree."""

    def __init__(self, contents: Objects, tree: str) -> None:
        self._whole = SnapshotWalker(contents, bytes.fromhex(tree))

    def coming(self) -> Iterator[NewDirectory]:
        for found in self._whole.directories():
            is_made = not found.place.stored or (found.tree is not None and not found.is_nested)
            yield NewDirectory(found.place.path, found, found.entries, found.directories, is_made)

    def holding(self, key: FoundDirectory, contents: Any) -> DirectoryContents:
        listing = self._whole.listing(key, contents)
        entries = tuple(listing.entries.values())
        # What no tree holds, or what hangs elsewhere, is made when all the others are.
        directories = sum(entry.kind is EntryKind.DIRECTORY for entry in entries)
        return DirectoryContents(listing.own, entries, directories == len(key.directories))

    def roots(self) -> list[bytes]:
        """Further roots that it holds, which stand elsewhere."""
        return self._whole.roots()


class PlanSource:
    """What a plan brings where nothing is."""

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

    def coming(self) -> Iterator[NewDirectory]:
        for path, entries in self._entries.items():
            names = [one.path.rpartition(b"/")[2] for one in entries if one.kind is EntryKind.DIRECTORY]
            yield NewDirectory(path, path, len(entries), tuple(names))

    def holding(self, key: EnvPath, contents: Any) -> DirectoryContents:
        return DirectoryContents(self._owns[key], tuple(self._entries[key]), True)


class LazyEntries(Sequence[Entry]):
    """What a directory of a snapshot holds, each directory before its entries: read when somebody asks for it."""

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


def plan_of(filled: FillResult, tree: str, open_contents: Any, left: Iterable[SkippedPath]) -> RestorePlan:
    """The plan that was carried out, told afterwards."""
    steps = []
    for path, entry in sorted(filled.tops.items()):
        number = filled.below.get(path, 0)
        below = LazyEntries(open_contents, tree, path, number) if number else ()
        steps.append(PlanStep(b"", path, PlanAction.WRITE, None, entry, below))
    coming = [
        PlannedDirectory(b"", step.path, None, step.after)
        for step in steps
        if step.after is not None and step.after.kind is EntryKind.DIRECTORY
    ]
    top = PlannedDirectory(b"", TOP, None, filled.own)
    return RestorePlan(tuple(steps), (*reversed(coming), top), (*filled.left_alone, *left))


OTHER_ROOT = "it belongs to a root beside the working tree"


class Source(NamedTuple):
    """Where the bytes of a snapshot are read."""

    git: Git
    state: str
    open_contents: Callable[[Mapping[bytes, bytes]], ObjectReader]
    """Given blobs, by their ids, that stand in no snapshot."""
    how: str


def write_elsewhere(
    snapshot: Snapshot, directory: str, source: Source, wish: RestoreOptions = NO_WISH
) -> RestoreResult:
    """Write what a snapshot holds into a new or an empty directory; of somebody else's what is harmless."""
    _refuse_taken(directory)
    return write_into(snapshot, directory, source, wish)


def write_into(
    snapshot: Snapshot, directory: str, source: Source, wish: RestoreOptions = NO_WISH
) -> RestoreResult:
    """The same, where it is known that what stands there is in nobody's way."""
    started = time.monotonic()
    place = nearest_directory(directory)
    is_ours_to_fill = not wish.dry_run and os.path.realpath(directory) == os.path.realpath(place)
    if (
        snapshot.trusted
        and _is_all(wish)
        and not manner_of(os.fsencode(place), empty=is_ours_to_fill).is_narrow
    ):
        written = _write_all(snapshot, directory, source)
    else:
        planned, made = _prepare(snapshot, directory, source, wish)
        refuse_names(planned.plan, {b"": os.fsencode(place)}, empty=is_ours_to_fill)
        if wish.dry_run:
            return planned
        written = _write_planned(planned, directory, source, made)
    return replace(written, moment=snapshot, seconds=time.monotonic() - started)


def _is_all(wish: RestoreOptions) -> bool:
    return not wish.dry_run and not wish.pathspecs and wish.classes is None


def _write_all(snapshot: Snapshot, directory: str, source: Source) -> RestoreResult:
    """All of a snapshot of ours: what there is to do is found out while it is done."""

    def open_contents() -> ObjectReader:
        contents = source.open_contents({})
        contents.by_checksum = True
        return contents

    with closing(open_contents()) as contents:
        whole = SnapshotSource(contents, snapshot.tree)
        beside = _beside(whole.roots())
        filled = _fill(directory, whole, open_contents, source.how)
    return _told(RestoreResult(snapshot, plan_of(filled, snapshot.tree, open_contents, beside)), filled)


def _write_planned(
    planned: RestoreResult, directory: str, source: Source, made: Mapping[bytes, bytes]
) -> RestoreResult:
    top = next((own.after for own in planned.plan.directories if own.path == TOP), None)
    if top is None:
        # There is no such moment: nothing, not even the top, was captured.
        _make(directory)
        return planned
    what = PlanSource(planned.plan, top)
    return _told(planned, _fill(directory, what, partial(source.open_contents, made), source.how))


def _fill(directory: str, what: Moment, open_contents: Callable[[], ObjectReader], how: str) -> FillResult:
    is_new = not os.path.lexists(directory)
    _make(directory)
    process = os.getpid()
    try:
        return fill_directory(os.fsencode(directory), what, open_contents, how=how)
    except BaseException:
        # A worker that is stopped is a copy of this process: it has nothing to clear up.
        if is_new and os.getpid() == process:
            with suppress(OSError):
                os.rmdir(directory)
        raise


def _make(directory: str) -> None:
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise cannot_write(error, directory) from error


def _told(planned: RestoreResult, filled: FillResult) -> RestoreResult:
    losses = told_losses(filled.losses)
    return replace(planned, verified=filled.written, kept=filled.kept, losses=(*planned.losses, *losses))


def _prepare(
    snapshot: Snapshot, directory: str, source: Source, wish: RestoreOptions
) -> tuple[RestoreResult, Mapping[bytes, bytes]]:
    """The plan, and the blobs in it that stand in no snapshot."""
    with closing(source.open_contents({})) as contents:
        if snapshot.trusted:
            pairs = list(differing_directories(contents, None, bytes.fromhex(snapshot.tree)))
            return RestoreResult(snapshot, _plan(pairs, _rules(pairs, snapshot, source, wish))), {}
        room = room_at(directory)
        pairs, findings = inspect(source.git, contents, snapshot.tree, room=room, force=wish.force)
    rules = findings.rules(_rules(pairs, snapshot, source, wish))
    plan = _plan([findings.sanitised(pair) for pair in pairs], rules)
    return untrusted_warnings(RestoreResult(snapshot, plan), findings, pairs), findings.blobs


def _rules(pairs: list[DirectoryPair], snapshot: Snapshot, source: Source, wish: RestoreOptions) -> PlanRules:
    """All of it, or what was chosen and the directories that it lies in."""
    chosen = chosen_paths(source.git, pairs, wish, (snapshot.tree,))
    if chosen is None:
        return PlanRules()
    wanted = with_directories(chosen)
    return PlanRules(lambda path, _: None if not path or path in wanted else NOT_CHOSEN)


def _plan(pairs: list[DirectoryPair], rules: PlanRules) -> RestorePlan:
    plan = make_plan((pair for pair in pairs if not pair.root), rules)
    beside = _beside(sorted({pair.root for pair in pairs if pair.root}))
    return RestorePlan(plan.steps, plan.directories, (*plan.left_alone, *beside))


def _beside(roots: Iterable[bytes]) -> tuple[SkippedPath, ...]:
    return tuple(SkippedPath(EnvPath(root + b"://"), OTHER_ROOT) for root in roots)


def _refuse_taken(directory: str) -> None:
    try:
        taken = os.path.lexists(directory) and is_taken(directory)
        left = unplaced_entries(directory) if taken else None
    except OSError as error:
        raise cannot_write(error, directory) from error
    if left is not None:
        # What came has its name since: it may have been changed, so nobody but its owner takes it away.
        raise Refused(
            f"'{directory}' holds a part of what a restore wrote that was killed: {left} at its top had still to come",
            hint="take it away, or name another directory",
        )
    if taken:
        raise Refused(
            f"there is something in '{directory}' already", hint="name a new directory, or an empty one"
        )
