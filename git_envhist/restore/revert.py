"""Read the three snapshots of a revert and merge them: the pairs from now to the environment without a step.

`RevertMerge` is the source of pairs for `Planner`. It reads which files a package consists of, so that versions of a
package are not mixed, and merges lines with git. Merged texts are in no snapshot yet; `blobs` has them.
"""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from git_envhist.capture.environment_trees import CapturedEnvironment
from git_envhist.context import HistoryContext
from git_envhist.diff.changes import as_sealed_then
from git_envhist.diff.path_classes import PACKAGES, class_of
from git_envhist.diff.snapshot_walker import differing_directories
from git_envhist.errors import Refused, SnapshotNotFound, UsageError
from git_envhist.git.merge_file import merge_text
from git_envhist.git.pathspecs import matching
from git_envhist.git.process import Git
from git_envhist.history.resolve import resolve_range
from git_envhist.history.revisions import WorkingTree
from git_envhist.lazy import replace
from git_envhist.model import (
    Conflict,
    DirectoryPair,
    Entry,
    EnvPath,
    ObjectId,
    Snapshot,
    SnapshotRef,
    StoredAs,
)
from git_envhist.objects.reader import ObjectReader
from git_envhist.objects.trees import object_id
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.plan import Key
from git_envhist.restore.three_way import (
    Prefer,
    Reason,
    Sides,
    TextMerge,
    ThreeWayMerge,
    Unit,
    database_units,
)

NODE_MODULES = b"node_modules"
DIST_INFO = b".dist-info"
RECORD = b"RECORD"
SEPARATORS = re.compile(rb"[-_.]+")


class RevertedStep(NamedTuple):
    """The step to take out of the environment, and the side that its conflicts take."""

    before: Snapshot
    after: Snapshot
    words: str
    """The step as it is recorded: `9ac31f2`, or `9ac31f2..be19d7d`."""
    prefer: Prefer = Prefer.NEITHER


def prefer_of(word: str) -> Prefer:
    """Return the side of conflicts by its name."""
    try:
        return Prefer(word)
    except ValueError:
        raise UsageError(f"unknown side of conflicts: '{word}'", hint="ours, theirs or markers") from None


def find_step(
    history: HistoryContext, revision: SnapshotRef, prefer: Prefer = Prefer.NEITHER
) -> RevertedStep:
    """Return the step of a range, or that of one snapshot: from the snapshot before it."""
    if isinstance(revision, str):
        span = resolve_range(revision, history.catalog, history.now)
        if isinstance(span.end, WorkingTree) or isinstance(span.start, WorkingTree):
            raise UsageError(
                f"the files now are no snapshot: '{revision}'", hint="capture them first: git envlog capture"
            )
        if span.start is not None:
            before, after = span.start.snapshot, span.end.snapshot
            return RevertedStep(before, after, f"{before.id[:7]}..{after.id[:7]}", prefer)
    after = history.snapshot_of(revision)
    try:
        before = history.resolve(f"{after.id}~1")
    except SnapshotNotFound as error:
        raise Refused(
            f"no snapshot is before '{after.id[:7]}', so nothing shows what it changed",
            hint="name another one: git envlog revert <a>..<b>",
        ) from error
    return RevertedStep(before, after, after.id[:7], prefer)


class RevertConflicts(Refused):
    """A revert found paths that the step and later work changed."""

    code = "conflicts"

    def __init__(self, words: str, conflicts: tuple[Conflict, ...]) -> None:
        number = len(conflicts)
        paths = "1 path" if number == 1 else f"{number:,} paths"
        super().__init__(
            f"cannot revert {words}: {paths} changed on both sides; nothing was changed",
            hint=f"list them: git envlog revert -n {words}; keep the present versions: --ours",
        )
        self.conflicts = conflicts


class RevertMerge:
    """The pairs of a revert, with its conflicts and the merged texts."""

    def __init__(self, git: Git, object_format: str, step: RevertedStep, now_ns: int) -> None:
        """`now_ns`: the time of merged files, so that programs see that they changed."""
        self._git = git
        self._format = object_format
        self._step = step
        self._now_ns = now_ns
        self._conflicts: dict[Conflict, list[EnvPath]] = {}
        self.blobs: dict[bytes, bytes] = {}
        """The merged texts, by id."""

    def pairs(
        self, contents: ObjectReader, before: bytes, after: bytes, taken: CapturedEnvironment | None = None
    ) -> list[DirectoryPair]:
        """Return the pairs from the environment now to the merged one."""
        base = bytes.fromhex(self._step.after.tree)
        step = as_sealed_then(list(differing_directories(contents, base, after)), contents)
        since = as_sealed_then(list(differing_directories(contents, base, before)), contents)
        packages = PackageUnits(contents, [*step, *since])
        merge = ThreeWayMerge(
            _by_key(step),
            _by_key(since),
            lambda path, sides, prefer: self._merge_text(contents, path, sides, prefer),
            self._step.prefer,
            packages.unit_of,
        )
        pairs = merge.pairs()
        self._conflicts = {conflict: merge.paths_of(conflict) for conflict in merge.conflicts}
        return pairs

    def conflicts(self, options: RestoreOptions) -> tuple[Conflict, ...]:
        """Return the conflicts about paths that the options choose."""
        paths = {path for found in self._conflicts.values() for path in found}
        chosen: Collection[bytes] = paths
        if options.pathspecs and paths:
            chosen = matching(self._git, paths, (), options.pathspecs)
        if options.classes is not None:
            chosen = {path for path in chosen if class_of(path) in options.classes}
        return tuple(one for one, found in self._conflicts.items() if not set(chosen).isdisjoint(found))

    def _merge_text(
        self, contents: ObjectReader, path: EnvPath, sides: Sides, prefer: Prefer
    ) -> TextMerge | None:
        base, other, _, now = sides
        if class_of(path) == PACKAGES or base is None or other is None or now is None:
            return None
        ours, common, theirs = (contents.plain(entry) for entry in (now, base, other))
        labels = ("now", self._step.after.id[:7], self._step.before.id[:7])
        side = "" if prefer in (Prefer.NEITHER, Prefer.MARKERS) else prefer.value
        merged = merge_text(self._git, (ours, common, theirs), labels, side)
        if merged is None:
            return None
        oid = object_id(b"blob", merged.text, self._format)
        if oid == now.oid:
            return TextMerge(now, bool(merged.conflicts))
        self.blobs[oid] = merged.text
        entry = replace(now, oid=ObjectId(oid), mtime_ns=self._now_ns, link_group=None)
        return TextMerge(entry, bool(merged.conflicts))


def _by_key(pairs: Iterable[DirectoryPair]) -> dict[Key, DirectoryPair]:
    return {(pair.root, pair.path): pair for pair in pairs}


class PackageUnits:
    """The unit of each path: a Python distribution, a package of Node, a database with its log."""

    def __init__(self, contents: ObjectReader, pairs: Iterable[DirectoryPair]) -> None:
        pairs = list(pairs)
        self._contents = contents
        self._units = dict(database_units(pairs))
        for pair in pairs:
            if pair.path.endswith(DIST_INFO):
                self._units.update(self._distribution(pair))

    def unit_of(self, root: bytes, path: EnvPath) -> Unit | None:
        """Return the unit of a path; None if it has none."""
        found = self._units.get((root, path)) or node_unit(root, path)
        directory = path.rpartition(b"/")[0]
        if found is None and directory.endswith(DIST_INFO):
            return distribution_unit(root, directory)
        return found

    def _distribution(self, pair: DirectoryPair) -> Iterator[tuple[Key, Unit]]:
        unit = distribution_unit(pair.root, pair.path)
        site = pair.path.rpartition(b"/")[0]
        for listing in (pair.before, pair.after):
            record = listing.entries.get(RECORD) if listing is not None else None
            for name in self._recorded(record):
                yield (pair.root, EnvPath(posixpath.normpath(posixpath.join(site, name)))), unit

    def _recorded(self, record: Entry | None) -> Iterator[bytes]:
        if record is None or record.oid is None or record.stored is not StoredAs.PLAIN:
            return
        text = self._contents.plain(record).decode("utf-8", "surrogateescape")
        for row in csv.reader(text.splitlines()):
            if row and "\0" not in row[0]:
                yield row[0].encode("utf-8", "surrogateescape")


def distribution_unit(root: bytes, directory: bytes) -> Unit:
    """Return the unit of a Python distribution, given its metadata directory."""
    site, _, name = directory.rpartition(b"/")
    package = SEPARATORS.sub(b"-", name.removesuffix(DIST_INFO).partition(b"-")[0]).lower()
    return Unit(root, EnvPath(site + b"/" + package if site else package), Reason.PACKAGE)


def node_unit(root: bytes, path: EnvPath) -> Unit | None:
    """Return the unit of a path in a package below `node_modules`; None for other paths."""
    names = path.split(b"/")
    if NODE_MODULES not in names[:-1]:
        return None
    first = len(names) - names[::-1].index(NODE_MODULES)
    if first == len(names):
        return None
    end = first + (2 if names[first].startswith(b"@") else 1)
    if end >= len(names) or names[first].startswith(b"."):
        return None
    return Unit(root, EnvPath(b"/".join(names[:end])), Reason.PACKAGE)
