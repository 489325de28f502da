"""Read the three snapshots of a revert and merge them: the pairs from now to the environment without a step.

`RevertMerge` is the source of pairs for `Planner`. It reads which files a package consists of, so that versions of a
package are not mixed, and merges lines with git. Merged texts are in no snapshot yet; `blobs` has them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from git_envhist.capture.environment_trees import CapturedEnvironment
from git_envhist.config import MERGE_LIMIT
from git_envhist.context import HistoryContext
from git_envhist.diff.changes import as_sealed_then
from git_envhist.diff.path_classes import class_of
from git_envhist.diff.snapshot_walker import differing_directories, read_listing
from git_envhist.errors import Refused, SealingError, SnapshotNotFound, UsageError
from git_envhist.git.merge_file import MAX_BYTES
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
from git_envhist.restore.lock_files import MergedTree, lock_warnings
from git_envhist.restore.merge_contents import MergeTools, merge_contents, merge_databases
from git_envhist.restore.merge_rows import DatabaseFiles, is_database
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.package_units import PackageUnits
from git_envhist.restore.plan import Key
from git_envhist.restore.three_way import (
    ContentMerge,
    DatabaseMerge,
    Prefer,
    Sides,
    ThreeWayMerge,
    Unit,
    has_whole_content,
)
from git_envhist.restore.write_entry import file_blocks
from git_envhist.secrets.seal import SealingKey, seal
from git_envhist.snapshots.chunks import read_pointer
from git_envhist.snapshots.layout import stored_below
from git_envhist.snapshots.reader import SnapshotReader

SEALED_FILE = b"file"
"""The kind under which the contents of files are sealed."""


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

    def __init__(
        self,
        git: Git,
        object_format: str,
        step: RevertedStep,
        now_ns: int,
        key: SealingKey | None = None,
        merge_limit: int = MERGE_LIMIT,
    ) -> None:
        """`now_ns`: the time of merged files, so that programs see that they changed; `key` seals secret ones."""
        self._merge_limit = merge_limit
        self._git = git
        self._format = object_format
        self._key = key
        self._step = step
        self._now_ns = now_ns
        self._conflicts: dict[Conflict, list[EnvPath]] = {}
        self.blobs: dict[bytes, bytes] = {}
        """The merged contents, by id."""
        self.lock_warnings: tuple[str, ...] = ()
        """Lock files that disagree with the installed packages after the merge."""

    def pairs(
        self, contents: ObjectReader, before: bytes, after: bytes, taken: CapturedEnvironment | None = None
    ) -> list[DirectoryPair]:
        """Return the pairs from the environment now to the merged one."""
        base, other = bytes.fromhex(self._step.after.tree), bytes.fromhex(self._step.before.tree)
        step = as_sealed_then(list(differing_directories(contents, base, after)), contents)
        since = as_sealed_then(list(differing_directories(contents, base, before)), contents)
        packages = PackageUnits.of(contents, [*step, *since])
        merge = ThreeWayMerge(
            _by_key(step),
            _by_key(since),
            lambda path, sides, prefer: self._merge_content(contents, path, sides, prefer),
            self._step.prefer,
            packages.unit_of,
            lambda unit, prefer: self._merge_database(contents, (base, before, other), unit, prefer),
        )
        pairs = merge.pairs()
        self._conflicts = {conflict: merge.paths_of(conflict) for conflict in merge.conflicts}
        if not merge.conflicts:
            now = partial(list_directory, SnapshotReader(contents, before))
            self.lock_warnings = tuple(lock_warnings(MergedTree(contents, now, _by_key(pairs), self.blobs)))
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

    def _merge_content(
        self, contents: ObjectReader, path: EnvPath, sides: Sides, prefer: Prefer
    ) -> ContentMerge | None:
        base, other, _, now = sides
        if base is None or other is None or now is None:
            return None
        versions = self._read_versions(contents, path, (base, now, other))
        if versions is None:
            return None
        is_secret = any(one.stored is StoredAs.SEALED for one in (base, now, other))
        merged = merge_contents(path, *versions, self._tools(prefer), is_secret=is_secret)
        if merged is None or (is_secret and self._key is None):
            return None
        if merged.conflicts or merged.content == versions[1]:
            return ContentMerge(now, merged.conflicts)
        return ContentMerge(self._entry(path, now, merged.content, is_secret=is_secret))

    def _tools(self, prefer: Prefer) -> MergeTools:
        labels = ("now", self._step.after.id[:7], self._step.before.id[:7])
        return MergeTools(self._git, labels, prefer, self._merge_limit)

    def _entry(self, path: EnvPath, now: Entry, content: bytes, *, is_secret: bool = False) -> Entry:
        """Return the entry of a file with merged content, and keep the content."""
        if is_secret:
            assert self._key is not None
            content = seal(self._key, path, SEALED_FILE, content)
        oid = ObjectId(object_id(b"blob", content, self._format))
        self.blobs[oid] = content
        stored = StoredAs.SEALED if is_secret else StoredAs.PLAIN
        return replace(now, oid=oid, stored=stored, mtime_ns=self._now_ns, link_group=None)

    def _merge_database(
        self, contents: ObjectReader, trees: tuple[bytes, bytes, bytes], unit: Unit, prefer: Prefer
    ) -> DatabaseMerge | None:
        """Merge a database with its log; None if it is taken from one side as a whole."""
        versions, now = [], None
        for number, tree in enumerate(trees):
            listed = list_directory(
                SnapshotReader(contents, tree), unit.root, EnvPath(unit.path.rpartition(b"/")[0])
            )
            found = self._read_database(contents, unit, listed)
            if found is None:
                return None
            versions.append(found)
            now = listed[unit.path.rpartition(b"/")[2]] if number == 1 else now
        merged = merge_databases((versions[0], versions[1], versions[2]), self._tools(prefer))
        if merged is None or now is None:
            return None
        entry = now if merged.conflicts else self._entry(unit.shown, now, merged.content)
        return DatabaseMerge(now, entry, merged.conflicts)

    def _read_database(
        self, contents: ObjectReader, unit: Unit, listed: Mapping[bytes, Entry]
    ) -> DatabaseFiles | None:
        name = unit.path.rpartition(b"/")[2]
        found: list[bytes | None] = []
        for ending in (b"", b"-wal", b"-journal"):
            entry = listed.get(name + ending)
            if entry is None:
                found.append(None)
            elif not has_whole_content(entry) or entry.stored is StoredAs.SEALED:
                return None
            else:
                data = self._read_file(contents, unit.shown, entry, self._merge_limit)
                if data is None:
                    return None
                found.append(data)
        return None if found[0] is None or not is_database(found[0]) else DatabaseFiles(found[0], *found[1:])

    def _read_versions(
        self, contents: ObjectReader, path: EnvPath, entries: tuple[Entry, ...]
    ) -> tuple[bytes, bytes, bytes] | None:
        """Return the contents of base, now and other; None if one is too large, or cannot be opened."""
        limit = max(MAX_BYTES, self._merge_limit)
        found = [self._read_file(contents, path, entry, limit) for entry in entries]
        base, now, other = found
        return None if base is None or now is None or other is None else (base, now, other)

    def _read_file(self, contents: ObjectReader, path: EnvPath, entry: Entry, limit: int) -> bytes | None:
        assert entry.oid is not None
        blob = contents.blob(entry.oid)
        if entry.stored is StoredAs.PIECES and read_pointer(blob).size > limit:
            return None
        try:
            return b"".join(file_blocks(contents, path, entry, blob))
        except SealingError:
            return None


def list_directory(reader: SnapshotReader, root: bytes, directory: EnvPath) -> Mapping[bytes, Entry]:
    """Return all entries of a directory in a snapshot, by name; none if it does not exist."""
    stored = stored_below(root, directory)
    if not reader.has(stored):
        return {}
    return read_listing(reader, reader.place(stored), reader.text(stored), reader.tree(stored)).entries


def _by_key(pairs: Iterable[DirectoryPair]) -> dict[Key, DirectoryPair]:
    return {(pair.root, pair.path): pair for pair in pairs}
