"""Read the three snapshots of a revert or a merge: the pairs from now to the merged environment.

`RevertMerge` is the source of pairs for `Planner`. It reads which files a package consists of, so that versions of a
package are not mixed, and merges lines with git. Merged texts are in no snapshot yet; `blobs` has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from git_envhist.capture.environment_trees import CapturedEnvironment
from git_envhist.diff.path_classes import class_of
from git_envhist.diff.resealed_files import as_sealed_then
from git_envhist.diff.snapshot_walker import differing_directories, read_listing
from git_envhist.errors import Refused, SealingError
from git_envhist.git.merge_file import MAX_BYTES
from git_envhist.git.pathspecs import match_paths
from git_envhist.git.process import Git
from git_envhist.history.timeline import PRINTED_ID
from git_envhist.lazy import replace
from git_envhist.model import (
    SQLITE_SIDECARS,
    DirectoryPair,
    Entry,
    EnvPath,
    MergeConflict,
    ObjectId,
    RestoreRole,
    SkippedPath,
    StoredAs,
    shown_path,
)
from git_envhist.objects.object_readers import ObjectReader
from git_envhist.objects.trees import object_id
from git_envhist.printable_text import escape
from git_envhist.restore.inspect_unsigned import ExistingNames
from git_envhist.restore.join_comparisons import (
    Pairs,
    as_unchanged,
    by_key,
    compose_pairs,
    without_changes,
)
from git_envhist.restore.lock_files import MergedTree, lock_file_warnings
from git_envhist.restore.merge_contents import (
    MergeTools,
    has_markers,
    has_units,
    merge_contents,
    merge_databases,
)
from git_envhist.restore.merge_rows import DatabaseVersion, is_database
from git_envhist.restore.merge_sources import MergeSources, Span
from git_envhist.restore.options import RestoreOptions
from git_envhist.restore.package_units import PackageUnits
from git_envhist.restore.three_way import (
    LINKS_OF_OTHER,
    ConflictReason,
    ContentMerge,
    DatabaseMerge,
    Prefer,
    Sides,
    ThreeWayMerge,
    Unit,
    has_whole_content,
    with_attributes,
)
from git_envhist.restore.write_entry import file_blocks
from git_envhist.secrets.seal import SealingKey, seal
from git_envhist.snapshots.chunks import read_pointer
from git_envhist.snapshots.layout import stored_below
from git_envhist.snapshots.reader import SnapshotReader

SEALED_FILE = b"file"
"""The kind under which the contents of files are sealed."""


MERGED_REASONS: Mapping[str, str] = {
    ConflictReason.REMOVED_NOW: "changed there, removed here",
    ConflictReason.REMOVED_THERE: "changed here, removed there",
    ConflictReason.CREATED: "created on both sides",
}
"""The reasons for which a merge has other words than a revert: it joins two sides, and takes no step back."""


class MergeConflicts(Refused):
    """A revert or a merge found paths that both sides changed."""

    code = "conflicts"

    def __init__(self, sources: MergeSources, conflicts: tuple[MergeConflict, ...]) -> None:
        number = len(conflicts)
        paths = "1 conflict" if number == 1 else f"{number:,} conflicts"
        verb = sources.role.value
        preview = sources.command.replace(f" {verb} ", f" {verb} -n ", 1)
        super().__init__(
            f"cannot {verb} {sources.words}: {paths}; nothing was changed",
            hint=f"list them: {preview}; keep the present versions: --ours, or skip them: --skip-conflicts",
        )
        self.conflicts = conflicts


class RevertConflicts(MergeConflicts):
    """A revert found paths that the step and later work changed."""


def conflict_error(sources: MergeSources, conflicts: tuple[MergeConflict, ...]) -> MergeConflicts:
    """Return the error for the conflicts of a revert or a merge."""
    is_merge = sources.role is RestoreRole.MERGE
    return MergeConflicts(sources, conflicts) if is_merge else RevertConflicts(sources, conflicts)


class SpanTrees(NamedTuple):
    """The trees of a span, and the environment with what the spans before it changed."""

    contents: ObjectReader
    base: bytes
    other: bytes
    now: MergedTree

    def listings(self, unit: Unit) -> Iterator[Mapping[bytes, Entry]]:
        """Yield the directory of a unit in base, now and other."""
        place = unit.root, EnvPath(unit.path.rpartition(b"/")[0])
        yield list_directory(SnapshotReader(self.contents, self.base), *place)
        yield self.now.entries(*place)
        yield list_directory(SnapshotReader(self.contents, self.other), *place)


class RevertMerge:
    """The pairs of a revert or a merge, with its conflicts and the merged contents."""

    def __init__(
        self,
        git: Git,
        object_format: str,
        sources: MergeSources,
        now_ns: int,
        key: SealingKey | None,
        merge_limit: int,
        existing: ExistingNames,
        dropped: Collection[bytes] = (),
    ) -> None:
        """`now_ns`: the time of merged files, so that programs see that they changed; `key` seals secret ones.

        `existing`: lists a directory of the environment; `dropped`: the paths that an unsigned side must not write.
        """
        self._merge_limit = merge_limit
        self._git = git
        self._format = object_format
        self._key = key
        self._sources = sources
        self._now_ns = now_ns
        self._existing = existing
        self._dropped = dropped
        self._conflicts: dict[MergeConflict, list[EnvPath]] = {}
        self._skipped: dict[MergeConflict, list[EnvPath]] = {}
        self._marked: dict[MergeConflict, list[EnvPath]] = {}
        self.blobs: dict[bytes, bytes] = {}
        """The merged contents, by id."""
        self.lock_warnings: tuple[str, ...] = ()
        """Lock files that disagree with the installed packages after the merge."""
        self.together: list[Collection[bytes]] = []
        """Paths that are only right together, so that one is never chosen without the others."""

    def pairs(
        self, contents: ObjectReader, before: bytes, after: bytes, taken: CapturedEnvironment | None = None
    ) -> list[DirectoryPair]:
        """Return the pairs from the environment now to the merged one."""
        result: Pairs = {}
        now = partial(list_directory, SnapshotReader(contents, before))
        for number, span in enumerate(self._sources.spans, start=1):
            base, other = (bytes.fromhex(one.tree) for one in span)
            step = as_sealed_then(list(differing_directories(contents, base, other)), contents)
            since = as_sealed_then(list(differing_directories(contents, base, before)), contents)
            # The environment that this span changes is the result of those before it.
            joined = compose_pairs(self._without_rewriting(contents, by_key(since), "ours"), result)
            changed = self._without_rewriting(contents, by_key(step), "theirs")
            trees = SpanTrees(contents, base, other, MergedTree(contents, now, result, self.blobs))
            merged = self._merge_span(contents, span, (changed, joined), trees, number)
            result = compose_pairs(result, by_key(merged))
        if not self._conflicts:
            self.lock_warnings = tuple(lock_file_warnings(MergedTree(contents, now, result, self.blobs)))
        return list(result.values())

    def _without_rewriting(self, contents: ObjectReader, pairs: Pairs, side: str) -> Pairs:
        rewritten = getattr(self._sources.relocated, side)
        if rewritten is None:
            return pairs
        trees = (bytes.fromhex(one.tree) for one in rewritten)
        ignored = by_key(differing_directories(contents, *trees))
        return (without_changes if side == "theirs" else as_unchanged)(pairs, ignored)

    def _merge_span(
        self, contents: ObjectReader, span: Span, changed: tuple[Pairs, Pairs], trees: SpanTrees, number: int
    ) -> list[DirectoryPair]:
        step, since = changed
        packages = PackageUnits.of(contents, [*step.values(), *since.values()])
        for root, directory in step.keys() & since.keys():
            packages.add_database(root, directory, trees.now.entries(root, directory))
        decisions = self._sources.decisions

        def three_way(
            side_of: Callable[[EnvPath], Prefer] | None,
        ) -> tuple[ThreeWayMerge, list[DirectoryPair]]:
            merge = ThreeWayMerge(
                step,
                since,
                lambda path, sides, prefer: self._merge_content(contents, span, path, sides, prefer),
                decisions.prefer if decisions.is_uniform else Prefer.NEITHER,
                packages.unit_of,
                lambda unit, prefer: self._merge_database(contents, span, trees, unit, prefer),
                side_of,
                lambda root, path, taken: self._name_beside(span, root, path, taken),
                LINKS_OF_OTHER * number,
            )
            return merge, merge.pairs()

        merge, pairs = three_way(None)
        if merge.conflicts and not decisions.is_uniform:
            # Which paths are conflicts is known only now.
            found = {conflict: merge.paths_of(conflict) for conflict in merge.conflicts}
            sides = decisions.sides(self._git, found)
            merge, pairs = three_way(lambda path: sides.get(path, Prefer.NEITHER))
        self.together += merge.together()
        for noted, conflicts in ((self._conflicts, merge.conflicts), (self._skipped, merge.skipped)):
            noted.update((self._worded(conflict), merge.paths_of(conflict)) for conflict in conflicts)
        return pairs

    def _worded(self, conflict: MergeConflict) -> MergeConflict:
        is_merge = self._sources.role is RestoreRole.MERGE
        return (
            MergeConflict(conflict.path, MERGED_REASONS.get(conflict.why, conflict.why))
            if is_merge
            else conflict
        )

    def _name_beside(self, span: Span, root: bytes, path: EnvPath, names: Collection[bytes]) -> bytes | None:
        if shown_path(root, path) in self._dropped:
            return None
        directory, _, name = path.rpartition(b"/")
        label = self._sources.label or span.other.id[:PRINTED_ID]
        wanted = free = name + b"." + os.fsencode(label)
        taken = {*self._existing(root, directory), *names}
        number = 1
        while free in taken:
            number += 1
            free = b"%b-%d" % (wanted, number)
        return free

    def skipped(self, options: RestoreOptions) -> tuple[SkippedPath, ...]:
        """Return the conflicts that are left as they are, about paths that the options choose."""
        return tuple(SkippedPath(one.path, one.why) for one in self._chosen(self._skipped, options))

    def marker_warnings(self, options: RestoreOptions) -> tuple[str, ...]:
        """Return a warning for each file with markers, of those that the options choose."""
        left = {one.path for one in (*self._conflicts, *self._skipped)}
        marked = [one.path for one in self._chosen(self._marked, options) if one.path not in left]
        return tuple(f"markers in '{escape(path)}': choose the lines to keep" for path in marked)

    def conflicts(self, options: RestoreOptions) -> tuple[MergeConflict, ...]:
        """Return the conflicts about paths that the options choose."""
        return self._chosen(self._conflicts, options)

    def _chosen(
        self, conflicts: Mapping[MergeConflict, list[EnvPath]], options: RestoreOptions
    ) -> tuple[MergeConflict, ...]:
        paths = {path for found in conflicts.values() for path in found}
        chosen: Collection[bytes] = paths
        if options.pathspecs and paths:
            chosen = match_paths(self._git, paths, (), options.pathspecs)
        if options.classes is not None:
            chosen = {path for path in chosen if class_of(path) in options.classes}
        return tuple(one for one, found in conflicts.items() if not set(chosen).isdisjoint(found))

    def _merge_content(
        self, contents: ObjectReader, span: Span, path: EnvPath, sides: Sides, prefer: Prefer
    ) -> ContentMerge | None:
        base, other, _, now = sides
        if other is None or now is None:
            return None
        versions = self._read_versions(contents, path, (base, now, other))
        if versions is None:
            # The whole file of the other side would remove unrelated changes of this side.
            is_kept = prefer is Prefer.THEIRS and self._has_units(contents, path, now)
            return ContentMerge(now, (ConflictReason.CONTENT,)) if is_kept else None
        is_secret = any(one is not None and one.stored is StoredAs.SEALED for one in (base, now, other))
        merged = merge_contents(path, *versions, self._tools(span, prefer), is_secret=is_secret)
        if merged is None or (is_secret and self._key is None):
            return None
        if merged.conflicts or merged.content == versions[1]:
            return ContentMerge(now, merged.conflicts)
        if prefer is Prefer.MARKERS and has_markers(merged.content):
            self._marked[MergeConflict(path, ConflictReason.CONTENT)] = [path]
        return ContentMerge(self._entry(path, now, merged.content, is_secret=is_secret))

    def _has_units(self, contents: ObjectReader, path: EnvPath, now: Entry) -> bool:
        """Return whether a file is merged by units that are smaller than lines."""
        if has_units(path):
            return True
        if now.oid is None or now.stored is StoredAs.SEALED:
            return False
        blocks = iter(file_blocks(contents, path, now, contents.blob(now.oid)))
        return is_database(next(blocks, b""))

    def _tools(self, span: Span, prefer: Prefer) -> MergeTools:
        labels = ("now", span.base.id[:PRINTED_ID], self._sources.label or span.other.id[:PRINTED_ID])
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
        self, contents: ObjectReader, span: Span, trees: SpanTrees, unit: Unit, prefer: Prefer
    ) -> DatabaseMerge | None:
        """Merge a database with its log; None if it is taken from one side as a whole."""
        versions: list[DatabaseVersion] = []
        entries: list[Entry] = []
        name = unit.path.rpartition(b"/")[2]
        listings = list(trees.listings(unit))
        for listed in listings:
            found = self._read_database(contents, unit, listed)
            if found is None:
                return None
            versions.append(found)
            entries.append(listed[name])
        merged = merge_databases((versions[0], versions[1], versions[2]), self._tools(span, prefer))
        if merged is None:
            return None
        base, now, other = entries
        entry = now if merged.conflicts else self._entry(unit.shown, now, merged.content)
        whole = with_attributes((base, other, base, now), entry, merged.conflicts, prefer)
        logs = {name + end: listings[1][name + end] for end in SQLITE_SIDECARS if name + end in listings[1]}
        return DatabaseMerge(now, whole.entry or now, whole.reasons, logs)

    def _read_database(
        self, contents: ObjectReader, unit: Unit, listed: Mapping[bytes, Entry]
    ) -> DatabaseVersion | None:
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
        return (
            None if found[0] is None or not is_database(found[0]) else DatabaseVersion(found[0], *found[1:])
        )

    def _read_versions(
        self, contents: ObjectReader, path: EnvPath, entries: tuple[Entry | None, ...]
    ) -> tuple[bytes, bytes, bytes] | None:
        """Return the contents of base, now and other; None if one is too large, or cannot be opened.

        A file that base does not have is empty there.
        """
        limit = max(MAX_BYTES, self._merge_limit)
        found = [b"" if entry is None else self._read_file(contents, path, entry, limit) for entry in entries]
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
