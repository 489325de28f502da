"""Make the plan of a restore from the captured environment, the target snapshot and the options.

Three parts: `CapturedRows` and `KnownWrites` carry stat data from the capture before the restore to the one after it,
so that unchanged files are not read again; `PredictedPairs` compares the newest snapshot with the target while the
capture still runs, and corrects the result from the scan records; `Planner` applies pathspecs, scope and rules and
calls `plan.make_plan`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Protocol

from git_envhist import trace
from git_envhist.capture.capture_worker import KnownWrites, WrittenFile
from git_envhist.capture.captured_tree import CapturedTree
from git_envhist.capture.environment_trees import CapturedEnvironment
from git_envhist.capture.manifest_shards import stored_directory
from git_envhist.capture.parallel_scan import RecordChanges
from git_envhist.capture.scope import CaptureScope
from git_envhist.diff.path_classes import class_of
from git_envhist.diff.resealed_files import as_sealed_then
from git_envhist.diff.snapshot_walker import compare_directories, differing_directories, same_environment
from git_envhist.errors import EnvhistError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.pathspecs import match_paths, patterns_of
from git_envhist.git.process import Git
from git_envhist.lazy import replace
from git_envhist.model import (
    TOP,
    DirectoryListing,
    DirectoryPair,
    Entry,
    EntryKind,
    EnvPath,
    ObjectId,
    RestorePlan,
    SkippedPath,
    StoredAs,
    shown_path,
)
from git_envhist.objects.object_readers import ObjectReader
from git_envhist.paths import ROOT_PREFIX, join, path_below_root, root_name_of
from git_envhist.restore.execute import ExecuteResult
from git_envhist.restore.git_state import SkippedSubmodule, SubmodulePointers, skip_submodules
from git_envhist.restore.inspect_unsigned import Findings
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.plan_steps import PlanRules, SkipReason, make_plan
from git_envhist.restore.scope import CapturedExtent, Scope, extent_of, keep_above_mounts, keep_with_excluded
from git_envhist.restore.write_entry import read_content
from git_envhist.snapshots.list_texts import ROOT_MARK
from git_envhist.snapshots.manifest import BUDGET
from git_envhist.snapshots.stored_names import RESERVED, true_path
from git_envhist.worktree.scan import ROW, id_width
from git_envhist.worktree.stat_cache import (
    CTIME,
    INCOMPLETE,
    INODE,
    MODE,
    MTIME,
    SIZE,
    WIDTH,
    CacheDamaged,
    DirectoryRecord,
    DirectoryRecords,
    differing,
)

# Stat data of the capture before the restore, reused by the capture after it.

Row = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime."""


class CapturedRows:
    """Stat data of captured files, by root and path."""

    def __init__(self, records: DirectoryRecords) -> None:
        self._records = records
        self._directory: bytes | None = None
        self._of_directory: dict[bytes, Row] = {}
        """The rows of the last directory asked for; callers ask in path order."""

    def __call__(self, root: bytes, path: EnvPath) -> Row | None:
        """Return the captured stat data of a file; None if unknown or too recent to be relied on."""
        above, _, name = path.rpartition(b"/")
        directory = _recorded(root, above)
        if directory != self._directory:
            self._directory, self._of_directory = directory, self._rows(directory)
        row = self._of_directory.get(name)
        # A change time of zero marks stat data that must not be relied on.
        return row if row is not None and row[4] != 0 else None

    def _rows(self, directory: bytes) -> dict[bytes, Row]:
        try:
            record = self._records.peek(directory)
        except CacheDamaged:
            return {}
        if record is None:
            return {}
        cells, device = record.cells, record.device
        return {
            name: (device, cells[at + INODE], cells[at + SIZE], cells[at + MTIME], cells[at + CTIME])
            for name, at in zip(record.names, range(0, len(cells), WIDTH), strict=True)
        }


def changed_since(captured: CapturedTree, commit: str, plan: RestorePlan) -> KnownWrites:
    """Return what the capture after the restore must scan again: directories the plan changes, with the changed names.

    A directory that the capture read without changing it is scanned again, too; if its record is incomplete, all of its
    entries are read.
    """
    changed: dict[bytes, set[bytes]] = {_recorded(own.root, own.path): set() for own in plan.directories}
    whole: set[bytes] = set()
    for step in plan.steps:
        above, _, name = step.path.rpartition(b"/")
        changed.setdefault(_recorded(step.root, above), set()).add(name)
        for entry in (step.before, step.after):
            if entry is not None and entry.kind is EntryKind.DIRECTORY:
                whole.add(_recorded(step.root, step.path))
    for path in captured.environment.scan_result.directories:
        changed.setdefault(path, set())
        if not _is_complete(captured.environment.records, path):
            whole.add(path)
    found: dict[bytes, frozenset[bytes] | None] = {path: frozenset(names) for path, names in changed.items()}
    return KnownWrites(commit, found | dict.fromkeys(whole), records=captured.environment.records)


def written_records(since: KnownWrites, plan: RestorePlan, carried: ExecuteResult) -> KnownWrites:
    """Return the same with stat data and object ids of all written files, if every one of them is known and plain."""
    if carried.kept or carried.losses or None in since.directories.values():
        return since
    written: dict[bytes, dict[bytes, WrittenFile | None]] = {path: {} for path in since.directories}
    for step in plan.steps:
        above, _, name = step.path.rpartition(b"/")
        entry, row = step.after, carried.rows.get((step.root, step.path))
        if entry is not None and (row is None or entry.oid is None or not _is_plain(entry)):
            return since
        found = written.setdefault(_recorded(step.root, above), {})
        found[name] = (
            None if entry is None or row is None or entry.oid is None else WrittenFile(row, entry.oid)
        )
    return replace(since, written=written)


def _is_plain(entry: Entry) -> bool:
    """Return whether the manifest has only mode and time (and perhaps an owner) of a tree entry."""
    return (
        entry.stored is StoredAs.PLAIN
        and entry.kind in (EntryKind.FILE, EntryKind.LINK)
        and not entry.xattrs
        and entry.link_group is None
        and not entry.notes
    )


def _is_complete(records: DirectoryRecords, path: bytes) -> bool:
    """Return whether the record of a directory has no missing or unstable entry."""
    try:
        record = records.peek(path)
    except CacheDamaged:
        return False
    return record is not None and not record.flags & INCOMPLETE


def read_again(contents: ObjectReader, plan: RestorePlan) -> None:
    """Read back every byte that the restore will replace; raise `Damaged` if one cannot be read."""
    for step in plan.steps:
        entry = step.before
        if entry is not None:
            read_content(contents, step.shown, entry)


def _recorded(root: bytes, path: bytes) -> bytes:
    """Return the path of a directory as the scan records spell it."""
    if not root:
        return path
    return join(ROOT_PREFIX + root, path) if path else ROOT_PREFIX + root


# The predicted comparison (newest snapshot to target) is corrected from the scan records: for each directory that the
# scan found changed, the old and the new record give the entries now. Unusual records need a full tree comparison.

KINDS = {stat.S_IFREG: EntryKind.FILE, stat.S_IFLNK: EntryKind.LINK}
Key = tuple[bytes, EnvPath]
Read = Callable[[list[bytes]], Iterable[DirectoryPair]]


class NeedsFullCompare(Exception):
    """Raised if the scan records are not enough and the trees must be compared."""


def pairs_from_scan(
    pairs: Sequence[DirectoryPair], merged: RecordChanges, read: Read
) -> list[DirectoryPair] | None:
    """Return each directory that differs between now and the target; None if the trees must be compared instead.

    `pairs` are the directories that differ between the newest snapshot and the target, `merged` what changed since.
    `read` returns both sides of directories, given their stored paths.
    """
    if merged.gone or merged.before.keys() != merged.changed.keys():
        return None
    found: dict[Key, DirectoryPair] = {(pair.root, pair.path): pair for pair in pairs}
    try:
        changed = {_key(path): path for path in merged.changed}
        unread = [stored_directory(path) for key, path in changed.items() if key not in found]
        found.update(((pair.root, pair.path), pair) for pair in read(unread))
        for key, path in changed.items():
            if key not in found:
                raise NeedsFullCompare
            found[key] = _updated(found[key], merged.before[path], merged.changed[path])
    except NeedsFullCompare:
        return None
    return list(found.values())


def _key(path: bytes) -> Key:
    return root_name_of(path), EnvPath(path_below_root(path))


def _updated(pair: DirectoryPair, old: DirectoryRecord, new: DirectoryRecord) -> DirectoryPair:
    """Return the pair of one directory with its side `before` as in the new record."""
    _refuse_unusual(old, new)
    if pair.before is None or pair.after is None:
        raise NeedsFullCompare
    before, after = dict(pair.before.entries), dict(pair.after.entries)
    was, now = _Entries(pair.path, old), _Entries(pair.path, new)
    for index in _changed(old, new):
        name = new.names[index]
        if name not in before:
            # The pair did not list it, because it was the same on both sides.
            after[name] = was.at(index)
        before[name] = now.at(index)
    own = DirectoryListing(_own(pair.path, new), before)
    return DirectoryPair(pair.root, pair.path, own, DirectoryListing(pair.after.own, after))


def _refuse_unusual(old: DirectoryRecord, new: DirectoryRecord) -> None:
    if (old.flags | new.flags) & INCOMPLETE or old.extras != new.extras:
        raise NeedsFullCompare
    if old.times or new.times:
        raise NeedsFullCompare
    for name in ("uid", "gid", "names", "subdirectories", "boundaries"):
        if getattr(old, name) != getattr(new, name):
            raise NeedsFullCompare
    if new.extras.get(-1) != b" u=%d g=%d" % (new.uid, new.gid):
        raise NeedsFullCompare


def _changed(old: DirectoryRecord, new: DirectoryRecord) -> Iterable[int]:
    """Return the indexes of entries whose metadata or object id differs."""
    width = id_width(new)
    found = set(differing(old.ids, new.ids, width)) if width else set()
    cells, before = new.cells, old.cells
    for index in differing(old.columns, new.columns, ROW):
        at = index * WIDTH
        if (before[at + MTIME], before[at + MODE]) != (cells[at + MTIME], cells[at + MODE]):
            found.add(index)
    return sorted(found)


def _own(path: EnvPath, record: DirectoryRecord) -> Entry:
    mode = record.mode & 0o7777
    return Entry(path, EntryKind.DIRECTORY, mode, record.mtime_ns, uid=record.uid, gid=record.gid)


class _Entries:
    """Entries made from the plain files and links of a record."""

    def __init__(self, path: EnvPath, record: DirectoryRecord) -> None:
        self._prefix = path + b"/" if path else b""
        self._record = record
        self._cells = record.cells
        self._width = id_width(record)

    def at(self, index: int) -> Entry:
        record, at = self._record, index * WIDTH
        mode = self._cells[at + MODE]
        kind = KINDS.get(stat.S_IFMT(mode))
        oid = record.id_at(index, self._width)
        if kind is None or index in record.extras or not any(oid):
            raise NeedsFullCompare
        path = EnvPath(self._prefix + record.names[index])
        owner = (record.uid, record.gid)
        mtime = self._cells[at + MTIME]
        return Entry(path, kind, mode & 0o7777, mtime, ObjectId(oid), StoredAs.PLAIN, *owner)


class NoSuchPath(EnvhistError):
    """A pathspec matches nothing in the environment or in the target."""

    exit_code = 4
    code = "no-such-path"

    def __init__(self, pathspecs: Sequence[bytes]) -> None:
        shown = " ".join(os.fsdecode(spec).rpartition(")")[2] or "." for spec in pathspecs)
        super().__init__(
            f"no path matches '{shown}', neither now nor in the snapshot",
            hint="'git envdiff <rev>' lists what differs",
        )


class PredictedPairs:
    """The comparison of the newest snapshot with the target, made while the capture still runs."""

    def __init__(self) -> None:
        self._tip = self._after = b""
        self._pairs: list[DirectoryPair] | None = None

    def make(self, contents: ObjectReader, tip: str | None, after: str) -> None:
        """Compare the newest snapshot with a tree."""
        self._tip, self._after = bytes.fromhex(tip or ""), bytes.fromhex(after)
        # An error is raised later, if the result turns out to be needed.
        with closing(contents), suppress(EnvhistError):
            self._pairs = list(differing_directories(contents, self._tip, self._after)) if tip else None

    def pairs(
        self, contents: ObjectReader, before: bytes, after: bytes, taken: CapturedEnvironment | None = None
    ) -> list[DirectoryPair]:
        """Return the pairs of two trees; compare them now if the prediction was wrong.

        `taken`: the result of the capture, whose records may correct the prediction.
        """
        if self._pairs is not None and self._after == after:
            if taken is not None and taken.base is not None and bytes.fromhex(taken.base) == self._tip:
                known = pairs_from_scan(
                    self._pairs, taken.merged, partial(compare_directories, contents, self._tip, after)
                )
                if known is not None:
                    return known
            if same_environment(contents, self._tip, before):
                return self._pairs
        return list(differing_directories(contents, before, after))


class PairSource(Protocol):
    """The directories that a restore changes."""

    def pairs(
        self, contents: ObjectReader, before: bytes, after: bytes, taken: CapturedEnvironment | None = None
    ) -> list[DirectoryPair]:
        """Return the pairs from the tree of the environment now, given the tree of the target."""


class Planner:
    """Plan the restore from one tree to another."""

    def __init__(
        self,
        git: Git,
        contents: ObjectReader,
        taken: CapturedEnvironment,
        prediction: PairSource,
        together: Sequence[Collection[bytes]] = (),
    ) -> None:
        """`together`: paths of which one is never chosen without the others; complete once the pairs are read."""
        self._git = git
        self._contents = contents
        self._survey = survey = taken.scope
        self._now = CapturedExtent.of(survey.ignore, survey.exclude, taken.out_of_reach)
        self._guess = prediction
        self._taken = taken
        self._together = together
        self.spared: dict[EnvPath, SkippedSubmodule] = {}
        """The `.git` files of submodules that the plan skips."""
        self.unreached: tuple[SkippedPath, ...] = ()
        """Target paths that are skipped because a directory with uncaptured contents is in their place."""

    @trace.trace_step("plan the restore")
    def plan(
        self, before: str, after: str, options: RestoreOptions, findings: Findings | None = None
    ) -> RestorePlan:
        """Return the plan from the tree of the environment now to that of the target.

        `findings`: the result of inspecting an unsigned target; None for a trusted one.
        """
        with closing(self._contents) as contents:
            pairs = self._guess.pairs(contents, bytes.fromhex(before), bytes.fromhex(after), self._taken)
            pairs = as_sealed_then(pairs, contents)
            self.spared = SubmodulePointers(self._git.git_dir, self._survey.bases, contents).skipped_files(
                pairs
            )
        with CatFile(self._git, max_size=BUDGET.size) as reader:
            then = extent_of(reader, after)
        pairs = keep_unread_attributes(pairs, then.unread)
        chosen = chosen_paths(self._git, pairs, options, (before, after), self._together)
        scope = Scope(
            then,
            self._now,
            roots=self._survey.bases,
            chosen=chosen,
            code=tracked_paths(self._git) if options.keep_tracked else (),
        )
        rules = PlanRules(scope.keep_existing, options.keep_new, self._directory_guard(pairs))
        rules = skip_submodules(rules, self.spared)
        if findings is None:
            plan = make_plan(pairs, rules)
        else:
            selected = pairs if options.roots else [pair for pair in pairs if not pair.root]
            plan = make_plan(map(findings.reduced, selected), findings.rules(rules))
            others = sorted({pair.root for pair in pairs}.difference(pair.root for pair in selected))
            left = tuple(SkippedPath(EnvPath(root + ROOT_MARK), SkipReason.OTHER_ROOT) for root in others)
            plan = replace(plan, skipped=(*plan.skipped, *left))
        self.unreached = tuple(_unreached(plan, pairs))
        return plan if chosen is None or plan.steps else _without_parents(plan, frozenset(chosen))

    def _directory_guard(self, pairs: Sequence[DirectoryPair]) -> Callable[[EnvPath], str | None]:
        """Return the rule that keeps a directory with contents in no snapshot: mounts and ignored files."""
        mounts = keep_above_mounts(self._taken.out_of_reach)
        if self._now.ignored is None:
            return mounts
        captured = {
            shown_path(pair.root, pair.path): pair.before.entries for pair in pairs if pair.before is not None
        }
        left_out = keep_with_excluded(self._now, self._survey.bases, captured)
        return lambda path: mounts(path) or left_out(path)


def _unreached(plan: RestorePlan, pairs: Iterable[DirectoryPair]) -> Iterator[SkippedPath]:
    """Return the target paths skipped because an undeletable directory is in their place."""
    excluded = {left.path: left for left in plan.skipped if left.why == SkipReason.HOLDS_LEFT_OUT}
    for pair in pairs if excluded else ():
        for entry in pair.after.entries.values() if pair.after is not None else ():
            left = excluded.get(shown_path(pair.root, entry.path))
            if left is not None and entry.kind is not EntryKind.DIRECTORY:
                yield left


def _without_parents(plan: RestorePlan, chosen: frozenset[bytes]) -> RestorePlan:
    """Drop the metadata changes of parent directories that were not chosen themselves."""
    own = (one for one in plan.directories if shown_path(one.root, one.path) in chosen)
    return replace(plan, directories=tuple(own))


def chosen_paths(
    git: Git,
    pairs: Sequence[DirectoryPair],
    options: RestoreOptions,
    trees: Sequence[str],
    together: Sequence[Collection[bytes]] = (),
) -> Collection[bytes] | None:
    """Return the chosen paths among those that differ, None for all; raise `NoSuchPath` if no tree has a match.

    `together`: paths of which one is never chosen without the others.
    """
    if not options.pathspecs and options.classes is None:
        return None
    paths = {**{path: False for group in together for path in group}, **dict(_paths(pairs))}
    tops = {shown_path(pair.root, TOP) for pair in pairs if pair.path == TOP}
    chosen: Collection[bytes] = {*paths, *tops}
    if options.pathspecs:
        directories = [path for path, is_directory in paths.items() if is_directory]
        # git has no path for the top of a root, so only its exact name or "everything" matches it.
        named = tops.intersection(patterns_of(options.pathspecs))
        if TOP in patterns_of(options.pathspecs):
            named = tops
        chosen = {*match_paths(git, paths, directories, options.pathspecs), *named}
        if not chosen:
            _refuse_unmatched(git, trees, options.pathspecs)
    found = {path for path in chosen if options.classes is None or class_of(path) in options.classes}
    return _with_groups(found, together)


def _with_groups(chosen: set[bytes], groups: Iterable[Collection[bytes]]) -> Collection[bytes]:
    """Return the chosen paths with all paths of each group that has one of them."""
    waiting, is_found = list(groups), True
    while is_found:
        found = [group for group in waiting if not chosen.isdisjoint(group)]
        waiting = [group for group in waiting if chosen.isdisjoint(group)]
        is_found = bool(found)
        chosen = chosen.union(*found)
    return chosen


def _refuse_unmatched(git: Git, trees: Sequence[str], pathspecs: Sequence[bytes]) -> None:
    """Raise `NoSuchPath` unless the pathspecs match a path of one of the trees."""
    known: set[bytes] = set()
    directories: set[bytes] = set()
    for tree in trees:
        listed = git.run("ls-tree", "-r", "-t", "-z", "--full-tree", tree).split(b"\0")[:-1]
        for line in listed:
            head, _, stored = line.partition(b"\t")
            if stored.partition(b"/")[0] != RESERVED:
                path = true_path(stored)
                known.add(path)
                if head.startswith(b"040000"):
                    directories.add(path)
    if match_paths(git, known, directories, pathspecs):
        return
    from git_envhist.restore.inspect_unsigned import (
        manifested_paths,  # loaded late: only a rare path needs it
    )

    paths = dict(one for tree in trees for one in manifested_paths(git, tree))
    if not match_paths(git, paths, [path for path, is_directory in paths.items() if is_directory], pathspecs):
        raise NoSuchPath(pathspecs)


def immutable_paths(plan: RestorePlan) -> tuple[SkippedPath, ...]:
    """Return the paths that the plan skips because they are immutable."""
    return tuple(item for item in plan.skipped if item.why == SkipReason.IMMUTABLE)


def roots_changed(plan: RestorePlan, bases: Mapping[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    """Return the additional roots in which a plan changes something, each with its directory."""
    roots = {step.root for step in plan.steps} | {own.root for own in plan.directories}
    return tuple((os.fsdecode(root), os.fsdecode(bases[root])) for root in sorted(roots) if root)


def tracked_paths(git: Git) -> frozenset[bytes]:
    """Return the paths that HEAD tracks."""
    listed = git.ask("ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD")
    return frozenset(listed.out.split(b"\0")[:-1]) if listed.status == 0 else frozenset()


def _paths(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[bytes, bool]]:
    """Yield every path that may differ, and whether it is a directory; also directories with equal entries."""
    for pair in pairs:
        if pair.path != TOP:
            yield shown_path(pair.root, pair.path), True
        for listing in (pair.before, pair.after):
            if listing is not None:
                for entry in listing.entries.values():
                    yield shown_path(pair.root, entry.path), entry.kind is EntryKind.DIRECTORY


def forbidden_places(survey: CaptureScope) -> frozenset[tuple[int, int]]:
    """Return (device, inode) of excluded directories inside the environment: git's own, other working trees."""
    from git_envhist.paths import path_below_root, root_name_of  # loaded late: with a restore only

    found = set()
    for path in survey.pruned:
        base = survey.bases.get(root_name_of(path))
        if base is None:
            continue
        try:
            seen = os.lstat(os.path.join(base, path_below_root(path)))
        except OSError:
            continue
        found.add((seen.st_dev, seen.st_ino))
    return frozenset(found)


# Extended attributes that the target snapshot could not read (reason `attributes`) are unknown: a restore sets those it
# knows and removes none.


def keep_unread_attributes(
    pairs: Sequence[DirectoryPair], unread: Collection[EnvPath]
) -> list[DirectoryPair]:
    """Return the pairs with the present attributes added to entries whose attributes were unreadable."""
    return [_with_attributes(pair, unread) for pair in pairs] if unread else list(pairs)


def _with_attributes(pair: DirectoryPair, unread: Collection[EnvPath]) -> DirectoryPair:
    if pair.before is None or pair.after is None:
        return pair
    own = _joined(pair.root, pair.before.own, pair.after.own, unread)
    known = pair.before.entries
    entries = {
        name: _joined(pair.root, known[name], entry, unread) if name in known else entry
        for name, entry in pair.after.entries.items()
    }
    return pair._replace(after=DirectoryListing(own, entries))


def _joined(root: bytes, before: Entry, after: Entry, unread: Collection[EnvPath]) -> Entry:
    if before.kind is not after.kind or shown_path(root, after.path) not in unread:
        return after
    return replace(after, xattrs=tuple(sorted({**dict(before.xattrs), **dict(after.xattrs)}.items())))
