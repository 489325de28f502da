"""Make the steps of a restore from the directory pairs that differ (pure).

A directory on both sides is kept and its entries are changed. A directory only in the target is one step with all of
its contents; a directory only in the environment is emptied before it is removed. Paths that the target did not
capture, or whose bytes are not saved in the safety snapshot, are skipped, and so is the removal of every directory
above them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from git_envhist.errors import Damaged
from git_envhist.lazy import dataclass, replace
from git_envhist.model import (
    TOP,
    DirectoryListing,
    DirectoryPair,
    Entry,
    EntryKind,
    EnvPath,
    PlanAction,
    PlannedDirectory,
    PlanStep,
    RestorePlan,
    SkippedPath,
    StoredAs,
    shown_path,
)
from git_envhist.model.entries import database_of_sidecar

# Hard links. Each snapshot numbers its link groups itself, so the plan compares which names share a file. If that
# differs, or the file does, all of its names are written again: the existing file may have further names outside.

Key = tuple[bytes, EnvPath]
"""A root and a path in it."""


class LeafPair(NamedTuple):
    """The non-directory entries of a path on the two sides."""

    before: Entry | None
    after: Entry | None


def same_content(before: Entry, after: Entry) -> bool:
    """Return whether the bytes (or the pipe, the device) are the same."""
    return (
        before.kind is after.kind
        and before.oid == after.oid
        and before.stored is after.stored
        and before.device == after.device
    )


def same_metadata(before: Entry, after: Entry) -> bool:
    """Return whether mode, time, owner and attributes are the same."""
    return (
        before.mtime_ns == after.mtime_ns
        and before.mode == after.mode
        and before.uid == after.uid
        and before.gid == after.gid
        and before.xattrs == after.xattrs
    )


def same(before: Entry, after: Entry) -> bool:
    return same_content(before, after) and same_metadata(before, after)


def link_class(entry: Entry) -> Hashable:
    """Return what all names of one file share; a capture may have read a file while it was being written."""
    return (entry.link_group, entry.kind, entry.mode, entry.mtime_ns, entry.uid, entry.gid, entry.xattrs)


def check_links(leaves: Mapping[Key, LeafPair]) -> None:
    """Raise `Damaged` if a link group of the target contains entries of two kinds."""
    check_kinds(leaf.after for leaf in leaves.values() if leaf.after is not None)


def check_kinds(entries: Iterable[Entry]) -> None:
    """Raise `Damaged` if a link group contains entries of two kinds."""
    kinds: dict[int, EntryKind] = {}
    for after in entries:
        if after.link_group is None:
            continue
        if kinds.setdefault(after.link_group, after.kind) is not after.kind:
            raise Damaged("a snapshot has hard links of things of two kinds", hint="restore another snapshot")


def links_to_renew(leaves: Mapping[Key, LeafPair]) -> set[Key]:
    """Return the names that must be written again although each of them may be unchanged.

    `leaves`: all paths with hard links on either side.
    """
    befores: dict[int, list[Key]] = {}
    classes: dict[Hashable, list[Key]] = {}
    for key, leaf in leaves.items():
        if leaf.before is not None and leaf.before.link_group is not None:
            befores.setdefault(leaf.before.link_group, []).append(key)
        if leaf.after is not None and leaf.after.link_group is not None:
            classes.setdefault(link_class(leaf.after), []).append(key)
    shared = {key for members in classes.values() if len(members) > 1 for key in members}
    renewed: set[Key] = set()
    for members in classes.values():
        if len(members) > 1 and not _is_unchanged_group(members, leaves, befores, shared):
            renewed.update(members)
    for members in befores.values():
        remaining = [key for key in members if leaves[key].after is not None]
        if len(remaining) > 1:
            renewed.update(key for key in remaining if key not in shared)
    return renewed


def _is_unchanged_group(
    members: list[Key], leaves: Mapping[Key, LeafPair], befores: Mapping[int, list[Key]], shared: set[Key]
) -> bool:
    """Return whether the names are already one unchanged file, and no other target name shares it."""
    groups = set()
    for key in members:
        before, after = leaves[key]
        if before is None or after is None or before.link_group is None or not same(before, after):
            return False
        groups.add(before.link_group)
    if len(groups) != 1:
        return False
    others = set(befores[groups.pop()]).difference(members)
    # A name of no group in the target is written again anyway; a name of another group still shares the file.
    return not others.intersection(shared)


# Databases and their sidecar files are units: between two renames, a new database must never be next to the old
# write-ahead log, which SQLite would apply to it. So the log is removed first, and the new log is written last.


def split_units(removals: Iterable[PlanStep], arrivals: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
    """Return all steps in order, with unit numbers; a replaced sidecar becomes a removal and a write."""
    removals, arrivals = list(removals), list(arrivals)
    units = dict(_units([*removals, *arrivals]))
    early, late = [], []
    for step in arrivals:
        step = _numbered(step, units)
        if (
            step.unit is not None
            and step.action is PlanAction.REPLACE
            and database_of_sidecar(step.path) is not None
        ):
            early.append(replace(step, action=PlanAction.REMOVE, after=None))
            late.append(replace(step, action=PlanAction.WRITE, before=None))
        else:
            late.append(step)
    # A removal may be needed before its directory can be removed, so removals keep their order after the early ones.
    return (*early, *(_numbered(step, units) for step in removals), *late)


def _numbered(step: PlanStep, units: dict[tuple[bytes, EnvPath], int]) -> PlanStep:
    unit = units.get((step.root, step.path))
    return step if unit is None else replace(step, unit=unit)


def _units(steps: list[PlanStep]) -> Iterator[tuple[tuple[bytes, EnvPath], int]]:
    displaced = {(step.root, step.path) for step in steps if step.action is not PlanAction.ADJUST}
    numbers: dict[tuple[bytes, EnvPath], int] = {}
    for root, path in displaced:
        database = database_of_sidecar(path)
        owner = EnvPath(database or b"")
        if database is not None and (root, owner) in displaced:
            number = numbers.setdefault((root, owner), len(numbers))
            yield (root, path), number
            yield (root, owner), number


PRIVATE = b".envhist-restore"
"""The directory at the top of a root in which a restore works; never captured."""
WITH_BYTES = (EntryKind.FILE, EntryKind.LINK)


class SkipReason(StrEnum):
    """Reason for which a restore skips a path, as printed."""

    OWN_FILES = "used by git-envhist"
    OTHER_TREE = "another working tree"
    NEW = "not in the snapshot"
    NOT_CAPTURED = "not in the snapshot"
    LEFT_OUT_THEN = "excluded from the snapshot"
    LEFT_OUT_NOW = "excluded from the environment now"
    NOT_SAVED = "its contents are not saved"
    NOT_CHOSEN = ""
    """The caller did not ask for it, so there is no reason to report."""
    HOLDS_SKIPPED = "contains skipped paths"
    HOLDS_MOUNT = "contains a mount point"
    HOLDS_LEFT_OUT = "contains excluded paths"
    MOUNTED = "mounted from another file system"
    NO_ROOT = "its additional root is not configured"
    TRACKED = "tracked by HEAD"
    IMMUTABLE = "immutable, or on a read-only file system"
    OTHER_ROOT = "in an additional root; only --roots changes it"


def _nothing(*_: object) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class PlanRules:
    """Rules that a caller adds: which paths to skip."""

    keep: Callable[[EnvPath, bool], str | None] = _nothing
    """Return why a path and all below it is skipped, None if it may be changed.

    Called with the displayed path, and whether it is a directory.
    """
    keep_new: bool = False
    """Keep paths that the target does not have."""
    holds: Callable[[EnvPath], str | None] = _nothing
    """Return why a directory cannot be removed (contents in neither snapshot), given its displayed path."""


def make_plan(pairs: Iterable[DirectoryPair], rules: PlanRules | None = None) -> RestorePlan:
    """Return the plan from the side `before` to the side `after`."""
    planner = _Planner(pairs, rules or PlanRules())
    planner.plan_entries()
    planner.plan_removed_directories()
    return planner.plan()


def skip_reason(after: Entry) -> str | None:
    """Return why an entry of the target is never written; None if it is."""
    if after.kind is EntryKind.BOUNDARY:
        return SkipReason.OTHER_TREE
    return SkipReason.NOT_CAPTURED if _lacks_bytes(after) else None


class _Planner:
    def __init__(self, pairs: Iterable[DirectoryPair], rules: PlanRules) -> None:
        listed = sorted(pairs, key=lambda pair: (pair.root, pair.path.split(b"/")))
        self._pairs: dict[Key, DirectoryPair] = {(pair.root, pair.path): pair for pair in listed}
        self._rules = rules
        linked = dict(_linked(listed))
        check_links(linked)
        self._renewed = links_to_renew(linked)
        self._skipped_keys: set[Key] = set()
        self._must_keep: set[Key] = set()
        self._removed: dict[Key, Entry | None] = {}
        self._touched: set[Key] = set()
        self._removals: list[PlanStep] = []
        self._arrivals: list[PlanStep] = []
        self._skipped_paths: list[SkippedPath] = []

    def plan_entries(self) -> None:
        """Decide about everything but directories, from the top down."""
        for key, pair in self._pairs.items():
            if key in self._skipped_keys or (key[1] and (key[0], _parent(key[1])) in self._skipped_keys):
                self._skipped_keys.add(key)
            elif not self._is_skipped(key, pair) and (pair.before is not None or not pair.path):
                self._plan_entries_of(key, pair)

    def plan_removed_directories(self) -> None:
        """Decide about directories that the target does not have as such, deepest first."""
        for key in sorted(self._removed, key=_depth, reverse=True):
            root, path = key
            own, after = self._before(key).own, self._removed[key]
            if (
                key not in self._skipped_keys
                and key not in self._must_keep
                and self._is_held_by_contents(key)
            ):
                continue
            if key not in self._skipped_keys and key not in self._must_keep:
                action = PlanAction.REMOVE if after is None else PlanAction.REPLACE
                self._add(PlanStep(root, path, action, own, after))
                continue
            self._must_keep.add((root, _parent(path)))
            if after is not None:
                self._skipped_paths.append(SkippedPath(shown_path(root, path), SkipReason.HOLDS_SKIPPED))

    def _is_held_by_contents(self, key: Key) -> bool:
        """Return whether a directory is kept because of its contents."""
        reason = self._rules.holds(shown_path(*key))
        if reason is not None:
            self._skip(*key, reason)
            self._must_keep.add(key)
        return reason is not None

    def plan(self) -> RestorePlan:
        removals = sorted(self._removals, key=lambda step: (step.root, -step.path.count(b"/"), step.path))
        arrivals = sorted(self._arrivals, key=lambda step: (step.root, step.path.split(b"/")))
        return RestorePlan(
            split_units(removals, arrivals),
            tuple(self._directories()),
            tuple(sorted(self._skipped_paths, key=lambda left: left.path)),
        )

    def _is_skipped(self, key: Key, pair: DirectoryPair) -> bool:
        root, path = key
        reason = self._rules.keep(shown_path(root, path), True)
        if reason is None and not path and pair.after is None:
            reason = SkipReason.NOT_CAPTURED
        if reason is None and self._rules.keep_new and self._removed.get(key, path) is None:
            reason = SkipReason.NEW
        # Paths only in the target are decided about where they would be written.
        if reason is None or (pair.before is None and path):
            return False
        self._skip(root, path, reason)
        self._skipped_keys.add(key)
        return True

    def _plan_entries_of(self, key: Key, pair: DirectoryPair) -> None:
        before, after = _entries(pair.before), _entries(pair.after)
        for name in sorted(before.keys() | after.keys()):
            path = EnvPath(pair.path + b"/" + name if pair.path else name)
            if path == PRIVATE:
                self._skip(key[0], path, SkipReason.OWN_FILES)
                self._skipped_keys.add((key[0], path))
            else:
                self._plan_entry((key[0], path), before.get(name), after.get(name))

    def _plan_entry(self, key: Key, before: Entry | None, after: Entry | None) -> None:
        if before is not None and before.kind is EntryKind.DIRECTORY:
            if after is None or after.kind is not EntryKind.DIRECTORY:
                self._remove_directory(key, after)
            return
        if before is not None and after is not None and same(before, after) and key not in self._renewed:
            return
        reason = self._skip_reason(key, before, after)
        if reason is not None:
            self._skip(*key, reason)
        elif after is not None and after.kind is EntryKind.DIRECTORY:
            self._write_directory(key, before)
        else:
            self._add(PlanStep(*key, self._action(key, before, after), before, after))

    def _remove_directory(self, key: Key, after: Entry | None) -> None:
        reason = None if after is None else self._skip_reason(key, None, after)
        # If the target's file is not chosen, the chosen contents of the directory are still removed.
        if reason is not None and reason != SkipReason.NOT_CHOSEN:
            self._skip(*key, reason)
            self._skipped_keys.add(key)
        self._removed[key] = None if reason is not None else after

    def _write_directory(self, key: Key, before: Entry | None) -> None:
        root, path = key
        pair = self._pairs[key]
        assert pair.after is not None
        action = PlanAction.WRITE if before is None else PlanAction.REPLACE
        self._add(PlanStep(root, path, action, before, pair.after.own, tuple(self._below(key))))

    def _below(self, key: Key) -> Iterator[Entry]:
        todo = [key]
        while todo:
            root, directory = todo.pop()
            for entry in _entries(self._pairs[root, directory].after).values():
                reason = self._skip_reason((root, entry.path), None, entry)
                if reason is not None:
                    self._skip(root, entry.path, reason)
                elif entry.kind is EntryKind.DIRECTORY:
                    own = self._pairs[root, entry.path].after
                    assert own is not None
                    todo.append((root, entry.path))
                    yield own.own
                else:
                    yield entry

    def _action(self, key: Key, before: Entry | None, after: Entry | None) -> PlanAction:
        if after is None:
            return PlanAction.REMOVE
        if before is None:
            return PlanAction.WRITE
        # A file with several names may have names outside the environment, which must not change.
        if before.link_group is None and key not in self._renewed and same_content(before, after):
            return PlanAction.ADJUST
        return PlanAction.REPLACE

    def _skip_reason(self, key: Key, before: Entry | None, after: Entry | None) -> str | None:
        # Called for every path: a generator would take longer than all the rest.
        kinds = (before and before.kind, after and after.kind)
        if EntryKind.BOUNDARY in kinds:
            return SkipReason.OTHER_TREE
        is_directory = EntryKind.DIRECTORY in kinds
        reason = self._rules.keep(shown_path(*key), is_directory)
        if reason is not None:
            return reason
        if after is not None and (reason := skip_reason(after)) is not None:
            return reason
        if before is not None and _lacks_bytes(before):
            return SkipReason.NOT_SAVED
        return SkipReason.NEW if after is None and self._rules.keep_new else None

    def _skip(self, root: bytes, path: EnvPath, reason: str) -> None:
        self._skipped_paths.append(SkippedPath(shown_path(root, path), reason))
        if path:
            self._must_keep.add((root, _parent(path)))

    def _add(self, step: PlanStep) -> None:
        (self._removals if step.action is PlanAction.REMOVE else self._arrivals).append(step)
        if step.action is not PlanAction.ADJUST:
            self._touched.add((step.root, _parent(step.path)))

    def _directories(self) -> Iterator[PlannedDirectory]:
        found = [*self._existing_directories(), *self._new_directories(), *self._removed_directories()]
        # Deepest first: changing an entry also changes the mtime of the directory above.
        return iter(sorted(found, key=lambda own: (_depth((own.root, own.path)), own.path), reverse=True))

    def _existing_directories(self) -> Iterator[PlannedDirectory]:
        for key, pair in self._pairs.items():
            if pair.after is None or (pair.before is None and pair.path) or key in self._skipped_keys:
                continue
            before, after = pair.before.own if pair.before else None, pair.after.own
            if key in self._touched or before is None or not same(before, after):
                yield PlannedDirectory(*key, before, after)

    def _new_directories(self) -> Iterator[PlannedDirectory]:
        for step in self._arrivals:
            if step.after is not None and step.after.kind is EntryKind.DIRECTORY:
                yield PlannedDirectory(step.root, step.path, None, step.after)

    def _removed_directories(self) -> Iterator[PlannedDirectory]:
        for key in self._removed:
            if key not in self._skipped_keys:
                own = self._before(key).own
                yield PlannedDirectory(*key, own, own if key in self._must_keep else None)

    def _before(self, key: Key) -> DirectoryListing:
        before = self._pairs[key].before
        assert before is not None
        return before


def _entries(listing: DirectoryListing | None) -> dict[bytes, Entry]:
    return listing.entries if listing is not None else {}


def _linked(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[Key, LeafPair]]:
    for pair in pairs:
        before, after = _entries(pair.before), _entries(pair.after)
        # Collect names first: few entries have hard links.
        names = {
            name for side in (before, after) for name, entry in side.items() if entry.link_group is not None
        }
        for name in names:
            path = EnvPath(pair.path + b"/" + name if pair.path else name)
            yield (pair.root, path), LeafPair(_leaf(before.get(name)), _leaf(after.get(name)))


def _leaf(entry: Entry | None) -> Entry | None:
    return None if entry is None or entry.kind is EntryKind.DIRECTORY else entry


def _lacks_bytes(entry: Entry) -> bool:
    return entry.kind in WITH_BYTES and (entry.oid is None or entry.stored is StoredAs.FINGERPRINT)


def _parent(path: EnvPath) -> EnvPath:
    return EnvPath(path.rpartition(b"/")[0])


def _depth(key: Key) -> int:
    return key[1].count(b"/") + 1 if key[1] != TOP else 0
