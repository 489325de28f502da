"""Merge three snapshots into the directory pairs of a restore (pure).

`base` and `other` are the two sides of a step, `now` is the environment. The result takes from `other` each path that
the step changed and that is now as in `base`, and keeps all others. A path that differs in both is merged by
attributes and lines, or is a conflict. Files that only make sense together (a package, a database with its log) are
units: if the step and later work changed a unit, the unit is a conflict as a whole, and versions are never mixed.

Times and hard links never conflict: a file gets the time of the side that its content came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from git_envhist.diff.path_classes import CACHE_DIRECTORIES
from git_envhist.lazy import dataclass, field, replace
from git_envhist.model import (
    Conflict,
    DirectoryListing,
    DirectoryPair,
    Entry,
    EntryKind,
    EnvPath,
    StoredAs,
    shown_path,
)
from git_envhist.model.entries import database_of_sidecar
from git_envhist.restore.plan import Key, same_content

LINKS_OF_OTHER = 1 << 48
"""Added to the link groups of the other snapshot, because each snapshot numbers its groups itself."""


class Prefer(StrEnum):
    """The side that a conflict takes."""

    NEITHER = ""
    OURS = "ours"
    """Keep the present version."""
    THEIRS = "theirs"
    MARKERS = "markers"
    """Write both sides of lines into the file, between markers."""


class Reason(StrEnum):
    """Reason for a conflict, as printed."""

    CONTENT = "its contents changed on both sides"
    MODE = "its mode changed on both sides"
    OWNER = "its owner changed on both sides"
    ATTRIBUTES = "its extended attributes changed on both sides"
    REMOVED_NOW = "changed there, removed since"
    REMOVED_THERE = "changed since, and would be removed"
    CREATED = "removed there, created again since"
    KIND = "a file on one side, a directory on the other"
    PACKAGE = "the package changed on both sides"
    DATABASE = "the database or its log changed on both sides"


class Sides(NamedTuple):
    """A path in the three snapshots; `base` as it compares with each of the two others."""

    base: Entry | None
    other: Entry | None
    base_now: Entry | None
    now: Entry | None


class TextMerge(NamedTuple):
    """The entry of a merged text, and whether both sides changed the same lines."""

    entry: Entry
    is_conflict: bool


MergeText = Callable[[EnvPath, Sides, Prefer], TextMerge | None]
"""Merge the lines of a plain file; None if they cannot be merged."""
T = TypeVar("T")
UnitOf = Callable[[bytes, EnvPath], "Unit | None"]


class Unit(NamedTuple):
    """Files that are taken from one side together."""

    root: bytes
    path: EnvPath
    """The path that is printed for the unit."""
    reason: Reason

    @property
    def shown(self) -> EnvPath:
        """Return the path as it is displayed."""
        return shown_path(self.root, self.path)


def no_unit(root: bytes, path: EnvPath) -> Unit | None:
    """Return None: each path is merged alone."""
    return None


def _state(entry: Entry | None) -> object:
    if entry is None:
        return None
    content = (entry.kind, entry.oid, entry.stored, entry.device)
    return (*content, entry.mode, entry.uid, entry.gid, entry.xattrs)


def is_same(one: Entry | None, other: Entry | None) -> bool:
    """Return whether two entries are equal but for times and hard links."""
    if one is not None and other is not None and one.kind is other.kind is EntryKind.DIRECTORY:
        return True
    return _state(one) == _state(other)


class MergedEntry(NamedTuple):
    """The merged entry of a path, and why it is a conflict."""

    entry: Entry | None
    reason: Reason | None = None


def merge_entry(sides: Sides, text: Callable[[], TextMerge | None], prefer: Prefer) -> MergedEntry:
    """Merge the three versions of a path that is a directory on no side."""
    base, other, base_now, now = sides
    if is_same(base, other):
        return MergedEntry(_with_time(sides, now))
    if is_same(base_now, now):
        return MergedEntry(other)
    if is_same(now, other):
        return MergedEntry(now)
    if now is None or other is None or base is None or base_now is None:
        return _preferred(sides, _existence(sides), prefer)
    return _merge_attributes(sides, text, prefer)


def _existence(sides: Sides) -> Reason:
    if sides.base is None:
        return Reason.CREATED
    return Reason.REMOVED_NOW if sides.now is None else Reason.REMOVED_THERE


def _preferred(sides: Sides, reason: Reason, prefer: Prefer) -> MergedEntry:
    if prefer is Prefer.OURS:
        return MergedEntry(sides.now)
    return MergedEntry(sides.other) if prefer is Prefer.THEIRS else MergedEntry(sides.now, reason)


def _with_time(sides: Sides, entry: Entry | None) -> Entry | None:
    """Return an entry of now with the time of the other side, if the step alone changed the time."""
    base, other, base_now, now = sides
    if entry is None or base is None or other is None or base_now is None or now is None:
        return entry
    if base_now.mtime_ns == now.mtime_ns and base.mtime_ns != other.mtime_ns and same_content(base_now, now):
        return replace(entry, mtime_ns=other.mtime_ns)
    return entry


def _merge_attributes(sides: Sides, text: Callable[[], TextMerge | None], prefer: Prefer) -> MergedEntry:
    """Merge content, mode, owner and attributes one by one; all sides exist."""
    base, other, base_now, now = sides
    assert base is not None
    assert other is not None
    assert base_now is not None
    assert now is not None
    reason: Reason | None = None
    if same_content(base, other) or same_content(now, other):
        found = now
    elif same_content(base_now, now):
        found = other
    elif (merged := text()) is not None:
        found = merged.entry
        if merged.is_conflict and prefer is Prefer.NEITHER:
            reason = Reason.CONTENT
    else:
        found = other if prefer is Prefer.THEIRS else now
        reason = None if prefer in (Prefer.OURS, Prefer.THEIRS) else Reason.CONTENT
    versions = (base, other, base_now, now)
    mode, mode_differs = _pick(prefer, *(one.mode for one in versions))
    owner, owner_differs = _pick(prefer, *((one.uid, one.gid) for one in versions))
    xattrs, attributes_differ = _pick(prefer, *(one.xattrs for one in versions))
    differing = (
        (mode_differs, Reason.MODE),
        (owner_differs, Reason.OWNER),
        (attributes_differ, Reason.ATTRIBUTES),
    )
    reason = reason or next((why for differs, why in differing if differs), None)
    if reason is not None:
        return MergedEntry(now, reason)
    return MergedEntry(replace(found, mode=mode, uid=owner[0], gid=owner[1], xattrs=xattrs))


def _pick(prefer: Prefer, base: T, other: T, base_now: T, now: T) -> tuple[T, bool]:
    """Return the merged value, and whether both sides changed it and no side is preferred."""
    if other in (base, now):
        return now, False
    if now == base_now or prefer is Prefer.THEIRS:
        return other, False
    return now, prefer is not Prefer.OURS


NOTHING: dict[bytes, Entry] = {}


def _entries(listing: DirectoryListing | None) -> Mapping[bytes, Entry]:
    return NOTHING if listing is None else listing.entries


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is EntryKind.DIRECTORY


def is_cache(path: bytes) -> bool:
    """Return whether a path is in a directory that programs fill again by themselves."""
    return not CACHE_DIRECTORIES.isdisjoint(path.split(b"/"))


@dataclass(slots=True)
class UnitChanges:
    """The changes of the files of a unit."""

    by_step: bool = False
    since: bool = False
    paths: list[EnvPath] = field(default_factory=list)
    """The changed files, as they are displayed."""

    @property
    def is_conflict(self) -> bool:
        return self.by_step and self.since


@dataclass(slots=True)
class ThreeWayMerge:
    """Merge the directories that a step changed with those that changed since."""

    step: Mapping[Key, DirectoryPair]
    """The directories that differ between `base` and `other`."""
    since: Mapping[Key, DirectoryPair]
    """The directories that differ between `base` and now."""
    text: MergeText
    prefer: Prefer = Prefer.NEITHER
    unit_of: UnitOf = no_unit
    conflicts: list[Conflict] = field(default_factory=list)
    _results: dict[Key, DirectoryPair] = field(default_factory=dict)
    _units: dict[Unit, UnitChanges] = field(default_factory=dict)

    def pairs(self) -> list[DirectoryPair]:
        """Return the directories that differ between now and the result."""
        self._find_units()
        for key in sorted(self.step, key=lambda key: key[1].count(b"/") + bool(key[1]), reverse=True):
            self._merge_directory(key)
        found = [unit for unit, changes in self._units.items() if changes.is_conflict]
        if self.prefer is not Prefer.OURS:
            self.conflicts += [Conflict(unit.shown, unit.reason) for unit in found]
        self.conflicts.sort(key=lambda conflict: conflict.path)
        return list(self._results.values())

    def paths_of(self, conflict: Conflict) -> list[EnvPath]:
        """Return the paths that a conflict is about: those of a unit, or its own."""
        units = (changes.paths for unit, changes in self._units.items() if unit.shown == conflict.path)
        return next(units, [conflict.path])

    def _sides(self, key: Key, name: bytes) -> Sides:
        step, since = self.step.get(key), self.since.get(key)
        if step is None:
            # The step did not change this directory, so `other` is as `base`.
            assert since is not None
            base = _entries(since.before).get(name)
            return Sides(base, base, base, _entries(since.after).get(name))
        base, other = _entries(step.before).get(name), _entries(step.after).get(name)
        if since is None or (name not in _entries(since.before) and name not in _entries(since.after)):
            return Sides(base, other, base, base if self._is_now(step, since) else None)
        base_now, now = _entries(since.before).get(name), _entries(since.after).get(name)
        if name not in _entries(step.before) and name not in _entries(step.after):
            base = other = base_now
        return Sides(base, other, base_now, now)

    @staticmethod
    def _is_now(step: DirectoryPair, since: DirectoryPair | None) -> bool:
        side = step.before if since is None else since.after
        return side is not None

    def _names(self, key: Key) -> list[bytes]:
        listings = [side for pairs in (self.step, self.since) if key in pairs for side in pairs[key][2:4]]
        return sorted({name for listing in listings for name in _entries(listing)})

    def _unit(self, key: Key, path: EnvPath) -> Unit | None:
        return self.unit_of(key[0], path)

    def _find_units(self) -> None:
        for key in {*self.step, *self.since}:
            for name in self._names(key):
                path = _join(key[1], name)
                unit = self._unit(key, path)
                sides = self._sides(key, name)
                if unit is None or is_cache(path) or any(map(_is_directory, sides)):
                    continue
                if is_same(sides.now, sides.other):
                    continue
                changes = self._units.setdefault(unit, UnitChanges())
                changes.by_step |= not is_same(sides.base, sides.other)
                changes.since |= not is_same(sides.base_now, sides.now)
                changes.paths.append(shown_path(key[0], path))

    def _is_held(self, key: Key, path: EnvPath) -> bool:
        """Return whether a path belongs to a unit that is a conflict."""
        unit = self._unit(key, path)
        return unit is not None and unit in self._units and self._units[unit].is_conflict

    def _merge_directory(self, key: Key) -> None:
        step, since = self.step[key], self.since.get(key)
        now_own = (since.after if since is not None else step.before) or None
        before: dict[bytes, Entry] = {}
        after: dict[bytes, Entry] = {}
        for name in self._names(key):
            sides = self._sides(key, name)
            if now_own is not None and sides.now is not None:
                before[name] = sides.now
            found = self._merge_name(key, name, sides)
            if found is not None:
                after[name] = found
        own = self._own(key, now_own.own if now_own is not None else None, after)
        self._results[key] = DirectoryPair(
            *key,
            None if now_own is None else DirectoryListing(now_own.own, before),
            None if own is None else DirectoryListing(own, after),
        )

    def _own(self, key: Key, now: Entry | None, after: dict[bytes, Entry]) -> Entry | None:
        """Return the merged directory itself; None if the result does not have it."""
        step, since = self.step[key], self.since.get(key)
        if step.after is None:
            return now if now is not None and not self._drop_caches(key, after) else None
        if now is None:
            is_new_and_empty = step.before is None and not step.after.entries
            return step.after.own if after or is_new_and_empty else None
        if step.before is None:
            return now
        base_now = since.before.own if since is not None and since.before is not None else step.before.own
        sides = Sides(step.before.own, step.after.own, base_now, now)
        merged = _merge_attributes(sides, lambda: None, self.prefer)
        if merged.reason is not None:
            self.conflicts.append(Conflict(shown_path(*key), merged.reason))
        assert merged.entry is not None
        is_time_of_step = base_now.mtime_ns == now.mtime_ns
        return replace(merged.entry, mtime_ns=step.after.own.mtime_ns) if is_time_of_step else merged.entry

    def _drop_caches(self, key: Key, after: dict[bytes, Entry]) -> bool:
        """Empty a directory that would only contain caches; return whether it is empty now.

        The step created it, so nothing is left in it that could use the caches.
        """
        is_inside = is_cache(key[1])
        if not all(is_inside or name in CACHE_DIRECTORIES for name in after):
            return False
        for name, entry in after.items():
            if _is_directory(entry):
                self._drop_below((key[0], _join(key[1], name)))
        after.clear()
        return True

    def _drop_below(self, top: Key) -> None:
        prefix = top[1] + b"/"
        for pairs in (self.since, self.step):
            for key, pair in pairs.items():
                if key[0] == top[0] and (key[1] == top[1] or key[1].startswith(prefix)):
                    known = self._results.get(key)
                    before = known.before if known is not None else pair.after
                    self._results[key] = DirectoryPair(*key, before, None)

    def _merge_name(self, key: Key, name: bytes, sides: Sides) -> Entry | None:
        path = _join(key[1], name)
        if any(map(_is_directory, sides)):
            return self._merge_child(key, path, sides)
        if self._is_held(key, path):
            return sides.now
        if is_cache(path) and not is_same(sides.base, sides.other) and not is_same(sides.base_now, sides.now):
            # Remove the cache file: programs create it again. A file of either side could look newer than its source.
            return None if sides.other is None else sides.now
        merged = merge_entry(sides, lambda: self._text(key, path, sides), self.prefer)
        if merged.reason is not None:
            self.conflicts.append(Conflict(shown_path(key[0], path), merged.reason))
        return _renumbered(merged.entry, sides)

    def _text(self, key: Key, path: EnvPath, sides: Sides) -> TextMerge | None:
        entries = (sides.base, sides.other, sides.base_now, sides.now)
        if self._unit(key, path) is not None:
            return None
        if not all(one is not None and _is_plain_file(one) for one in entries):
            return None
        return self.text(shown_path(key[0], path), sides, self.prefer)

    def _merge_child(self, key: Key, path: EnvPath, sides: Sides) -> Entry | None:
        """Merge a path that is a directory on a side; its contents are merged already."""
        child = (key[0], path)
        now, other = sides.now, sides.other
        result = self._results.get(child)
        if result is None:
            is_kept = is_same(sides.base, other) or is_same(sides.base_now, now)
            return now if is_kept else self._note_kinds(child, now)
        if now is None or _is_directory(now):
            if result.after is None:
                if other is None or _is_directory(other):
                    return None
                return other if now is not None else self._note_kinds(child, now)
            if other is None or _is_directory(other):
                return result.after.own
        elif is_same(sides.base_now, now):
            return _own_of(result) if _is_directory(other) else other
        self._results[child] = result._replace(after=result.before)
        return self._note_kinds(child, now)

    def _note_kinds(self, key: Key, now: Entry | None) -> Entry | None:
        """Keep the present version of a path that is a file on one side and a directory on the other."""
        if self.prefer is not Prefer.OURS:
            self.conflicts.append(Conflict(shown_path(*key), Reason.KIND))
        return now


def _own_of(pair: DirectoryPair) -> Entry | None:
    return None if pair.after is None else pair.after.own


def _renumbered(entry: Entry | None, sides: Sides) -> Entry | None:
    """Return an entry with the link group of its snapshot."""
    if entry is None or entry.link_group is None or entry is sides.now:
        return entry
    if sides.now is not None and entry.link_group == sides.now.link_group and same_content(entry, sides.now):
        return entry
    return replace(entry, link_group=entry.link_group + LINKS_OF_OTHER)


def _is_plain_file(entry: Entry) -> bool:
    return entry.kind is EntryKind.FILE and entry.stored is StoredAs.PLAIN and not entry.notes


def _join(directory: EnvPath, name: bytes) -> EnvPath:
    return EnvPath(directory + b"/" + name if directory else name)


def database_units(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[Key, Unit]]:
    """Yield each database that has a log or a journal on some side, and these files, with their unit."""
    for pair in pairs:
        for listing in (pair.before, pair.after):
            for name in _entries(listing):
                database = database_of_sidecar(name)
                if database is not None:
                    unit = Unit(pair.root, _join(pair.path, database), Reason.DATABASE)
                    yield (pair.root, _join(pair.path, name)), unit
                    yield (pair.root, unit.path), unit
