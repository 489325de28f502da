"""From two snapshots and what was asked for to a plan."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial

from git_envhist import trace
from git_envhist.capture.captured_tree import CapturedTree
from git_envhist.capture.collect import RecordChanges
from git_envhist.capture.environment import CapturedEnvironment
from git_envhist.capture.manifest_shards import stored_directory
from git_envhist.capture.scope import CaptureScope
from git_envhist.capture.worker import KnownWrites, WrittenFile
from git_envhist.diff.classes import class_of
from git_envhist.diff.compare import as_sealed_then
from git_envhist.diff.walk import compare_directories, differing_directories, same_environment
from git_envhist.errors import EnvhistError
from git_envhist.git.cat_file import CatFile
from git_envhist.git.diff import matching, patterns_of
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
from git_envhist.objects.reader import ObjectReader
from git_envhist.paths import ROOT_PREFIX, join, path_below_root, root_name_of
from git_envhist.restore.execute import ExecuteResult
from git_envhist.restore.git_state import SkippedSubmodule, SubmodulePointers, skip_submodules
from git_envhist.restore.guards import keeping_unread
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.plan import PlanRules, make_plan
from git_envhist.restore.scope import (
    HOLDS_LEFT_OUT,
    IMMUTABLE,
    CapturedExtent,
    Scope,
    extent_of,
    holding_left_out,
    holding_mounts,
)
from git_envhist.restore.untrusted import Findings
from git_envhist.snapshots.chunks import stream_chunks
from git_envhist.snapshots.manifest import BUDGET
from git_envhist.snapshots.names import RESERVED, true_path
from git_envhist.snapshots.records import ROOT_MARK
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

# What the capture of what is here saw and saved: a file that still looks so need not be read again, and where nothing
# happens nobody looks twice.

Row = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime."""


class CapturedRows:
    """Rows by root and path."""

    def __init__(self, records: DirectoryRecords) -> None:
        self._records = records
        self._directory: bytes | None = None
        self._of_directory: dict[bytes, Row] = {}
        """The rows of one directory: a restore asks in the order of the paths, and may ask for very many."""

    def __call__(self, root: bytes, path: EnvPath) -> Row | None:
        """What was seen at a path; None where that was too young to be relied on, or is not known any more."""
        above, _, name = path.rpartition(b"/")
        directory = _recorded(root, above)
        if directory != self._directory:
            self._directory, self._of_directory = directory, self._rows(directory)
        row = self._of_directory.get(name)
        # A change time of zero stands for one that proves nothing.
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


def changed_since(held: CapturedTree, commit: str, plan: RestorePlan) -> KnownWrites:
    """What was captured before a plan is carried out, every directory that differs afterwards, for better or worse,
    and the names in it that were touched.

    Where the capture had to look into a directory that is not touched, it looks again whether that is as it was; where
    it found what it could not have, at all that is in it.
    """
    changed: dict[bytes, set[bytes]] = {_recorded(own.root, own.path): set() for own in plan.directories}
    whole: set[bytes] = set()
    for step in plan.steps:
        above, _, name = step.path.rpartition(b"/")
        changed.setdefault(_recorded(step.root, above), set()).add(name)
        for entry in (step.before, step.after):
            if entry is not None and entry.kind is EntryKind.DIRECTORY:
                whole.add(_recorded(step.root, step.path))
    for path in held.taken.gathered.directories:
        changed.setdefault(path, set())
        if not _is_complete(held.taken.records, path):
            whole.add(path)
    found: dict[bytes, frozenset[bytes] | None] = {path: frozenset(names) for path, names in changed.items()}
    return KnownWrites(commit, found | dict.fromkeys(whole), records=held.taken.records)


def written_records(since: KnownWrites, plan: RestorePlan, carried: ExecuteResult) -> KnownWrites:
    """The same, with all that happened in these directories, where all of it is known, and ordinary."""
    if carried.kept or carried.losses or None in since.directories.values():
        return since
    told: dict[bytes, dict[bytes, WrittenFile | None]] = {path: {} for path in since.directories}
    for step in plan.steps:
        above, _, name = step.path.rpartition(b"/")
        entry, row = step.after, carried.rows.get((step.root, step.path))
        if entry is not None and (row is None or entry.oid is None or not _is_plain(entry)):
            return since
        found = told.setdefault(_recorded(step.root, above), {})
        found[name] = (
            None if entry is None or row is None or entry.oid is None else WrittenFile(row, entry.oid)
        )
    return replace(since, written=told)


def _is_plain(entry: Entry) -> bool:
    """Whether a tree holds it, and its line in a manifest says nothing but mode and time, unless its owner differs."""
    return (
        entry.stored is StoredAs.PLAIN
        and entry.kind in (EntryKind.FILE, EntryKind.LINK)
        and not entry.xattrs
        and entry.link_group is None
        and not entry.notes
    )


def _is_complete(records: DirectoryRecords, path: bytes) -> bool:
    """Whether nothing in a directory was missing, or would not stand still: what was, is told again by a look alone."""
    try:
        record = records.peek(path)
    except CacheDamaged:
        return False
    return record is not None and not record.flags & INCOMPLETE


def read_again(contents: ObjectReader, plan: RestorePlan) -> None:
    """Read every byte back that is about to be replaced; `Damaged` where one is not to be had."""
    for step in plan.steps:
        entry = step.before
        if entry is not None and entry.oid is not None:
            blob = contents.blob(entry.oid)
            if entry.stored is StoredAs.PIECES:
                for _ in stream_chunks(contents, blob):
                    pass
            elif entry.stored is StoredAs.SEALED:
                contents.open_sealed(step.shown, blob)


def _recorded(root: bytes, path: bytes) -> bytes:
    """A directory as records call it."""
    if not root:
        return path
    return join(ROOT_PREFIX + root, path) if path else ROOT_PREFIX + root


# What differs between what is here and a moment, given what differs between the newest snapshot and that moment.
#
# The second is found out while the workers look. What they then found to be another one is told by records, old and
# new: nothing is read for it. Where anything is out of the ordinary there is no answer, and trees are compared as ever.

KINDS = {stat.S_IFREG: EntryKind.FILE, stat.S_IFLNK: EntryKind.LINK}
Key = tuple[bytes, EnvPath]
Read = Callable[[list[bytes]], Iterable[DirectoryPair]]


class NeedsFullCompare(Exception):
    """Something that only the trees can tell."""


def pairs_from_scan(
    pairs: Sequence[DirectoryPair], merged: RecordChanges, read: Read
) -> list[DirectoryPair] | None:
    """The pairs of what is here; None where records do not tell them. `read` gives those of directories by their stored
    paths: nothing is restored from a directory that could not be read."""
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
            found[key] = _brought_up(found[key], merged.before[path], merged.changed[path])
    except NeedsFullCompare:
        return None
    return list(found.values())


def _key(path: bytes) -> Key:
    return root_name_of(path), EnvPath(path_below_root(path))


def _brought_up(pair: DirectoryPair, old: DirectoryRecord, new: DirectoryRecord) -> DirectoryPair:
    """The pair of one directory, its side before as the new record has it."""
    _refuse_unusual(old, new)
    if pair.before is None or pair.after is None:
        raise NeedsFullCompare
    before, after = dict(pair.before.entries), dict(pair.after.entries)
    was, now = _Entries(pair.path, old), _Entries(pair.path, new)
    for index in _changed(old, new):
        name = new.names[index]
        if name not in before:
            # Nothing was told of it: it was the same on both sides.
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
    """The entries of which a snapshot says something else than it did."""
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
    """The plain files and links of a record."""

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
    """A pathspec that nothing matches, neither now nor then."""

    exit_code = 4
    code = "no-such-path"

    def __init__(self, pathspecs: Sequence[bytes]) -> None:
        shown = " ".join(os.fsdecode(spec).rpartition(")")[2] or "." for spec in pathspecs)
        super().__init__(
            f"nothing matches '{shown}', neither now nor then",
            hint="'git envdiff <rev>' tells what differs",
        )


ROOTS_UNASKED = "an additional root: only --roots changes it"


class PredictedPlan:
    """What a plan starts from where nothing was changed since the newest snapshot: found out before that is known."""

    def __init__(self) -> None:
        self._tip = self._after = b""
        self._pairs: list[DirectoryPair] | None = None

    def make(self, contents: ObjectReader, tip: str | None, after: str) -> None:
        """Compare the newest snapshot with a tree."""
        self._tip, self._after = bytes.fromhex(tip or ""), bytes.fromhex(after)
        # What cannot be read is told when it is known to be needed.
        with closing(contents), suppress(EnvhistError):
            self._pairs = list(differing_directories(contents, self._tip, self._after)) if tip else None

    def pairs(
        self, contents: ObjectReader, before: bytes, after: bytes, taken: CapturedEnvironment | None = None
    ) -> list[DirectoryPair]:
        """The pairs of two trees; read now, where the guess was wrong. `taken`: how what is here was found."""
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


class Planner:
    """Plans a way from one tree to another."""

    def __init__(
        self, git: Git, contents: ObjectReader, taken: CapturedEnvironment, guess: PredictedPlan
    ) -> None:
        self._git = git
        self._contents = contents
        self._survey = survey = taken.scope
        self._now = CapturedExtent.of(survey.ignore, survey.exclude, taken.out_of_reach)
        self._guess = guess
        self._taken = taken
        self.spared: dict[EnvPath, SkippedSubmodule] = {}
        """The `.git` files of submodules that the plan does not bring."""
        self.unreached: tuple[SkippedPath, ...] = ()
        """What cannot come to where it was, for what stands there and is no part of the environment."""

    @trace.step("the plan is made")
    def plan(
        self, before: str, after: str, wish: RestoreOptions, findings: Findings | None = None
    ) -> RestorePlan:
        """What leads from the tree of what is here now to that of a moment; `findings`: no key of ours signed it."""
        with closing(self._contents) as contents:
            pairs = self._guess.pairs(contents, bytes.fromhex(before), bytes.fromhex(after), self._taken)
            pairs = as_sealed_then(pairs, contents)
            self.spared = SubmodulePointers(self._git.git_dir, self._survey.bases, contents).left_alone(pairs)
        with CatFile(self._git, largest=BUDGET.size) as reader:
            then = extent_of(reader, after)
        pairs = keeping_unread(pairs, then.unread)
        chosen = chosen_paths(self._git, pairs, wish, (before, after))
        scope = Scope(
            then,
            self._now,
            roots=self._survey.bases,
            chosen=chosen,
            code=tracked(self._git) if wish.keep_code else (),
        )
        rules = PlanRules(scope.keep_standing, wish.keep_new, self._what_holds(pairs))
        rules = skip_submodules(rules, self.spared)
        if findings is None:
            plan = make_plan(pairs, rules)
        else:
            mine = pairs if wish.roots else [pair for pair in pairs if not pair.root]
            plan = make_plan(map(findings.sanitised, mine), findings.rules(rules))
            others = sorted({pair.root for pair in pairs}.difference(pair.root for pair in mine))
            left = tuple(SkippedPath(EnvPath(root + ROOT_MARK), ROOTS_UNASKED) for root in others)
            plan = replace(plan, left_alone=(*plan.left_alone, *left))
        self.unreached = tuple(_unreached(plan, pairs))
        return plan if chosen is None or plan.steps else _without_ways(plan, frozenset(chosen))

    def _what_holds(self, pairs: Sequence[DirectoryPair]) -> Callable[[EnvPath], str | None]:
        """Why a directory cannot go, for something in it that no moment holds."""
        mounts = holding_mounts(self._taken.out_of_reach)
        if self._now.ignored is None:
            return mounts
        captured = {
            shown_path(pair.root, pair.path): pair.before.entries for pair in pairs if pair.before is not None
        }
        left_out = holding_left_out(self._now, self._survey.bases, captured)
        return lambda path: mounts(path) or left_out(path)


def _unreached(plan: RestorePlan, pairs: Iterable[DirectoryPair]) -> Iterator[SkippedPath]:
    """What the moment holds at the place of a directory that stays for what is in it: that is not as it was."""
    held = {left.path: left for left in plan.left_alone if left.why == HOLDS_LEFT_OUT}
    for pair in pairs if held else ():
        for entry in pair.after.entries.values() if pair.after is not None else ():
            left = held.get(shown_path(pair.root, entry.path))
            if left is not None and entry.kind is not EntryKind.DIRECTORY:
                yield left


def _without_ways(plan: RestorePlan, chosen: frozenset[bytes]) -> RestorePlan:
    """Where none of what was chosen changes, nothing is done to the directories that it lies in."""
    own = (one for one in plan.directories if shown_path(one.root, one.path) in chosen)
    return replace(plan, directories=tuple(own))


def chosen_paths(
    git: Git, pairs: Sequence[DirectoryPair], wish: RestoreOptions, trees: Sequence[str]
) -> Collection[bytes] | None:
    """The paths that were asked for, of those that differ; None: all. `NoSuchPath` where no tree has any such."""
    if not wish.pathspecs and wish.classes is None:
        return None
    paths = dict(_paths(pairs))
    tops = {shown_path(pair.root, TOP) for pair in pairs if pair.path == TOP}
    chosen: Collection[bytes] = {*paths, *tops}
    if wish.pathspecs:
        directories = [path for path, is_directory in paths.items() if is_directory]
        # No pattern matches a top, which git has no path for: only its name means it, and what means everything.
        named = tops.intersection(patterns_of(wish.pathspecs))
        if TOP in patterns_of(wish.pathspecs):
            named = tops
        chosen = {*matching(git, paths, directories, wish.pathspecs), *named}
        if not chosen:
            _refuse_unmatched(git, trees, wish.pathspecs)
    return [path for path in chosen if wish.classes is None or class_of(path) in wish.classes]


def _refuse_unmatched(git: Git, trees: Sequence[str], pathspecs: Sequence[bytes]) -> None:
    """Where nothing differs there is nothing to do; a path that neither moment has is a slip of the pen."""
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
    if matching(git, known, directories, pathspecs):
        return
    from git_envhist.restore.untrusted import manifested_paths  # loaded late: only a rare path needs it

    paths = dict(one for tree in trees for one in manifested_paths(git, tree))
    if not matching(git, paths, [path for path, is_directory in paths.items() if is_directory], pathspecs):
        raise NoSuchPath(pathspecs)


def closed_paths(plan: RestorePlan) -> tuple[SkippedPath, ...]:
    """What would be changed and cannot be: that is not as it was."""
    return tuple(item for item in plan.left_alone if item.why == IMMUTABLE)


def roots_changed(plan: RestorePlan, bases: Mapping[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    """Return the additional roots in which a plan changes something, each with its directory."""
    roots = {step.root for step in plan.steps} | {own.root for own in plan.directories}
    return tuple((os.fsdecode(root), os.fsdecode(bases[root])) for root in sorted(roots) if root)


def tracked(git: Git) -> frozenset[bytes]:
    """The paths that HEAD tracks."""
    listed = git.ask("ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD")
    return frozenset(listed.out.split(b"\0")[:-1]) if listed.status == 0 else frozenset()


def _paths(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[bytes, bool]]:
    """Every path that may differ, and whether it is a directory; a directory may differ though its entries do not."""
    for pair in pairs:
        if pair.path != TOP:
            yield shown_path(pair.root, pair.path), True
        for listing in (pair.before, pair.after):
            if listing is not None:
                for entry in listing.entries.values():
                    yield shown_path(pair.root, entry.path), entry.kind is EntryKind.DIRECTORY


def forbidden_places(survey: CaptureScope) -> frozenset[tuple[int, int]]:
    """(device, inode) of each directory inside the environment that is none of it: git's own, other working trees."""
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
