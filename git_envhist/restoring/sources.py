"""What a directory is filled with: a whole snapshot of ours, read where it is written; or what a plan says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, overload

from git_envhist.model import (
    TOP,
    Entry,
    EntryKind,
    EnvPath,
    PlanAction,
    PlannedDirectory,
    PlanStep,
    RestorePlan,
    SkippedPath,
)
from git_envhist.restore.anew import FillResult
from git_envhist.restore.fresh import DirectoryContents, NewDirectory
from git_envhist.store.contents import ObjectReader
from git_envhist.store.halves import Objects
from git_envhist.store.whole import FoundDirectory, SnapshotWalker
from git_envhist.values import once


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
    return RestorePlan(tuple(steps), (*reversed(coming), top), 0, (*filled.left_alone, *left))
