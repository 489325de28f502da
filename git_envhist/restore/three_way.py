"""Merge three snapshots into the directory pairs of a restore (pure).

`base` and `other` are the two sides of a step, `now` is the environment. The result takes from `other` each path that
the step changed and that is now as in `base`, and keeps all others. A path that differs in both is merged by
attributes and lines, or is a conflict. Files that only make sense together (a package, a database with its log) are
units: if the step and later work changed a unit, the unit is a conflict as a whole, and versions are never mixed.

Times and hard links never conflict: a file gets the time of the side that its content came from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, TypeVar

from git_envhist.diff.path_classes import CACHE_DIRECTORIES
from git_envhist.lazy import dataclass, field, replace
from git_envhist.model import (
    SQLITE_SIDECARS,
    DirectoryListing,
    DirectoryPair,
    Entry,
    EntryKind,
    EnvPath,
    MergeConflict,
    StoredAs,
    shown_path,
)
from git_envhist.model.entries import database_of_sidecar
from git_envhist.restore.plan_steps import Key, same_content

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
    BOTH = "both"
    """Keep the present version, and write the other one beside it."""
    SKIP = "skip"
    """Leave the path as it is and report it; merge the others."""


DECIDED = (Prefer.OURS, Prefer.THEIRS, Prefer.MARKERS)
"""The sides that `merge_entry` takes itself."""


class ConflictReason(StrEnum):
    """ConflictReason for a conflict, as printed."""

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


class ContentMerge(NamedTuple):
    """The entry of a file with merged content, and the reason of each conflict in the content."""

    entry: Entry
    conflicts: tuple[str, ...] = ()


MergeContent = Callable[[EnvPath, Sides, Prefer], ContentMerge | None]
"""Merge the content of a file, given its displayed path; None if it cannot be merged."""
NameBeside = Callable[[bytes, EnvPath, Collection[bytes]], bytes | None]
"""Return the name under which the other version of a path is written beside it; None if it must not be.

Given the names of the directory on any side, which are taken.
"""


class DatabaseMerge(NamedTuple):
    """The database of a unit now and merged, and the reason of each conflict in it. The merged one has no log."""

    now: Entry
    merged: Entry
    conflicts: tuple[str, ...] = ()
    logs: Mapping[bytes, Entry] = {}
    """The log and the journal now, by name, also if they are equal on all sides."""


T = TypeVar("T")
UnitOf = Callable[[bytes, EnvPath], "Unit | None"]


class Unit(NamedTuple):
    """Files that are taken from one side together."""

    root: bytes
    path: EnvPath
    """The path that is printed for the unit."""
    reason: ConflictReason

    @property
    def shown(self) -> EnvPath:
        """Return the path as it is displayed."""
        return shown_path(self.root, self.path)


def no_database(unit: Unit, prefer: Prefer) -> DatabaseMerge | None:
    """Return None: databases with a log are taken from one side."""
    return None


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
    """The merged entry of a path, and the reasons for which it is a conflict."""

    entry: Entry | None
    reasons: tuple[str, ...] = ()


def merge_entry(sides: Sides, content: Callable[[], ContentMerge | None], prefer: Prefer) -> MergedEntry:
    """Merge the three versions of a path that is a directory on no side."""
    base, other, base_now, now = sides
    if is_same(base, other):
        return MergedEntry(_with_time(sides, now))
    if is_same(base_now, now):
        return MergedEntry(other)
    if is_same(now, other):
        return MergedEntry(now)
    if now is None or other is None or base is None or base_now is None:
        is_text = prefer is Prefer.MARKERS and base is None and now is not None and other is not None
        merged = content() if is_text else None
        if merged is not None and not merged.conflicts:
            reasons = _differing_attributes(now, other)
            return MergedEntry(now, reasons) if reasons else MergedEntry(merged.entry)
        return _preferred(sides, _existence(sides), prefer)
    return _merge_attributes(sides, content, prefer)


def _differing_attributes(one: Entry | None, other: Entry | None) -> tuple[str, ...]:
    """Return the first reason for which a file that both sides created is no merge of lines alone."""
    assert one is not None
    assert other is not None
    differing = (
        (one.mode != other.mode, ConflictReason.MODE),
        ((one.uid, one.gid) != (other.uid, other.gid), ConflictReason.OWNER),
        (one.xattrs != other.xattrs, ConflictReason.ATTRIBUTES),
    )
    return tuple(why for differs, why in differing if differs)[:1]


def _existence(sides: Sides) -> ConflictReason:
    if sides.base is None:
        return ConflictReason.CREATED
    return ConflictReason.REMOVED_NOW if sides.now is None else ConflictReason.REMOVED_THERE


def _preferred(sides: Sides, reason: ConflictReason, prefer: Prefer) -> MergedEntry:
    if prefer is Prefer.OURS:
        return MergedEntry(sides.now)
    return MergedEntry(sides.other) if prefer is Prefer.THEIRS else MergedEntry(sides.now, (reason,))


def _with_time(sides: Sides, entry: Entry | None) -> Entry | None:
    """Return an entry of now with the time of the other side, if the step alone changed the time."""
    base, other, base_now, now = sides
    if entry is None or base is None or other is None or base_now is None or now is None:
        return entry
    if base_now.mtime_ns == now.mtime_ns and base.mtime_ns != other.mtime_ns and same_content(base_now, now):
        return replace(entry, mtime_ns=other.mtime_ns)
    return entry


def _merge_attributes(
    sides: Sides, content: Callable[[], ContentMerge | None], prefer: Prefer
) -> MergedEntry:
    """Merge content, mode, owner and attributes one by one; all sides exist."""
    base, other, base_now, now = sides
    assert base is not None
    assert other is not None
    assert base_now is not None
    assert now is not None
    reasons: tuple[str, ...] = ()
    if same_content(base, other) or same_content(now, other):
        found = now
    elif same_content(base_now, now):
        found = other
    elif (merged := content()) is not None:
        found, reasons = merged
    else:
        found = other if prefer is Prefer.THEIRS else now
        reasons = () if prefer in (Prefer.OURS, Prefer.THEIRS) else (ConflictReason.CONTENT,)
    return with_attributes((base, other, base_now, now), found, reasons, prefer)


def with_attributes(
    versions: tuple[Entry, Entry, Entry, Entry], found: Entry, reasons: tuple[str, ...], prefer: Prefer
) -> MergedEntry:
    """Return an entry with merged content, with the mode, owner and attributes merged one by one.

    `versions`: base, other, base as it compares with now, and now.
    """
    now = versions[3]
    mode, mode_differs = _pick(prefer, *(one.mode for one in versions))
    owner, owner_differs = _pick(prefer, *((one.uid, one.gid) for one in versions))
    xattrs, attributes_differ = _pick(prefer, *(one.xattrs for one in versions))
    differing = (
        (mode_differs, ConflictReason.MODE),
        (owner_differs, ConflictReason.OWNER),
        (attributes_differ, ConflictReason.ATTRIBUTES),
    )
    reasons = reasons or tuple([why for differs, why in differing if differs][:1])
    if reasons:
        return MergedEntry(now, reasons)
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
    """The changed files, and the database of a log, as they are displayed."""
    is_merged: bool = False
    reasons: tuple[str, ...] = ()
    """The reason of each conflict in the unit, if they are known."""

    @property
    def is_conflict(self) -> bool:
        return self.by_step and self.since and not self.is_merged


@dataclass(slots=True)
class ThreeWayMerge:
    """Merge the directories that a step changed with those that changed since."""

    step: Mapping[Key, DirectoryPair]
    """The directories that differ between `base` and `other`."""
    since: Mapping[Key, DirectoryPair]
    """The directories that differ between `base` and now."""
    merge_content: MergeContent
    prefer: Prefer = Prefer.NEITHER
    unit_of: UnitOf = no_unit
    merge_database: Callable[[Unit, Prefer], DatabaseMerge | None] = no_database
    side_of: Callable[[EnvPath], Prefer] | None = None
    """The side of the conflict about a displayed path; without it `prefer` decides all."""
    beside: NameBeside | None = None
    links: int = LINKS_OF_OTHER
    conflicts: list[MergeConflict] = field(default_factory=list)
    skipped: list[MergeConflict] = field(default_factory=list)
    """The conflicts that are left as they are."""
    beside_paths: list[tuple[EnvPath, EnvPath]] = field(default_factory=list)
    """Each path that is kept in both versions, and the path of the other version, as they are displayed."""
    _results: dict[Key, DirectoryPair] = field(default_factory=dict)
    _units: dict[Unit, UnitChanges] = field(default_factory=dict)
    _beside: dict[Key, dict[bytes, Entry]] = field(default_factory=dict)
    _databases: dict[Key, dict[bytes, DatabaseMerge]] = field(default_factory=dict)
    """The merged databases by directory and name."""

    def pairs(self) -> list[DirectoryPair]:
        """Return the directories that differ between now and the result."""
        self._find_units()
        self._merge_databases()
        for key in sorted(self.step, key=lambda key: key[1].count(b"/") + bool(key[1]), reverse=True):
            self._merge_directory(key)
        for unit, changes in self._units.items():
            if changes.is_conflict:
                self._note(unit.shown, changes.reasons or (unit.reason,))
        self.conflicts.sort(key=lambda conflict: conflict.path)
        return list(self._results.values())

    def _side(self, shown: EnvPath) -> Prefer:
        return self.prefer if self.side_of is None else self.side_of(shown)

    def _note(self, shown: EnvPath, reasons: Iterable[str]) -> None:
        """Note the conflicts of a path, for which the present version is kept."""
        side = self._side(shown)
        if side is not Prefer.OURS:
            noted = self.skipped if side is Prefer.SKIP else self.conflicts
            noted += [MergeConflict(shown, reason) for reason in reasons]

    def paths_of(self, conflict: MergeConflict) -> list[EnvPath]:
        """Return the paths that a conflict is about: those of a unit, or its own."""
        units = (changes.paths for unit, changes in self._units.items() if unit.shown == conflict.path)
        return next(units, [conflict.path])

    def together(self) -> Iterator[Collection[EnvPath]]:
        """Yield the displayed paths that are only right together: those of a unit, or of two versions of a file."""
        yield from (changes.paths for changes in self._units.values() if changes.by_step)
        yield from self.beside_paths

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
                # A database is named by its own path, also if only its log changed.
                own = [unit.shown] if unit.reason is ConflictReason.DATABASE else []
                changes = self._units.setdefault(unit, UnitChanges(paths=own))
                changes.by_step |= not is_same(sides.base, sides.other)
                changes.since |= not is_same(sides.base_now, sides.now)
                if shown_path(key[0], path) not in own:
                    changes.paths.append(shown_path(key[0], path))

    def _merge_databases(self) -> None:
        """Merge the databases with a log that changed on both sides."""
        for unit, changes in self._units.items():
            if unit.reason is not ConflictReason.DATABASE or not changes.is_conflict:
                continue
            merged = self.merge_database(unit, self._decided(unit.shown))
            if merged is None:
                continue
            changes.is_merged, changes.reasons = not merged.conflicts, merged.conflicts
            if changes.is_merged:
                directory, _, name = unit.path.rpartition(b"/")
                self._databases.setdefault((unit.root, EnvPath(directory)), {})[name] = merged

    def _is_held(self, key: Key, path: EnvPath) -> bool:
        """Return whether a path belongs to a unit that is a conflict or merged as a whole."""
        unit = self._unit(key, path)
        changes = None if unit is None else self._units.get(unit)
        return changes is not None and (changes.is_conflict or changes.is_merged)

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
        after.update(self._beside.pop(key, {}))
        self._put_databases(key, before, after)
        own = self._own(key, now_own.own if now_own is not None else None, after)
        self._results[key] = DirectoryPair(
            *key,
            None if now_own is None else DirectoryListing(now_own.own, before),
            None if own is None else DirectoryListing(own, after),
        )

    def _put_databases(self, key: Key, before: dict[bytes, Entry], after: dict[bytes, Entry]) -> None:
        for name, merged in self._databases.get(key, {}).items():
            before[name], after[name] = merged.now, merged.merged
            before.update(merged.logs)
            for sidecar in SQLITE_SIDECARS:
                after.pop(name + sidecar, None)

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
        merged = _merge_attributes(sides, lambda: None, self._decided(shown_path(*key)))
        self._note(shown_path(*key), merged.reasons)
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
        shown = shown_path(key[0], path)
        merged = merge_entry(sides, lambda: self._content(key, path, sides), self._decided(shown))
        if not (merged.reasons and self._put_beside(key, path, sides)):
            self._note(shown, merged.reasons)
        return self._renumbered(merged.entry, sides)

    def _decided(self, shown: EnvPath) -> Prefer:
        side = self._side(shown)
        return side if side in DECIDED else Prefer.NEITHER

    def _put_beside(self, key: Key, path: EnvPath, sides: Sides) -> bool:
        """Add the other version of a file under another name; return whether that decides the conflict."""
        if self._side(shown_path(key[0], path)) is not Prefer.BOTH or self.beside is None:
            return False
        if sides.other is None:
            return True
        if sides.other.stored is StoredAs.SEALED or self._unit(key, path) is not None:
            # The contents of a sealed file belong to its path.
            return False
        beside = self._beside.setdefault(key, {})
        name = self.beside(key[0], path, {*self._names(key), *beside})
        if name is None:
            return False
        entry = replace(sides.other, path=_join(key[1], name), link_group=None)
        beside[name] = entry
        self.beside_paths.append((shown_path(key[0], path), shown_path(key[0], entry.path)))
        return True

    def _content(self, key: Key, path: EnvPath, sides: Sides) -> ContentMerge | None:
        if self._unit(key, path) is not None:
            return None
        if not all(one is not None and has_whole_content(one) for one in (sides.other, sides.now)):
            return None
        if not all(one is None or has_whole_content(one) for one in (sides.base, sides.base_now)):
            return None
        shown = shown_path(key[0], path)
        return self.merge_content(shown, sides, self._decided(shown))

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
        self._keep_below(child)
        return self._note_kinds(child, now)

    def _keep_below(self, top: Key) -> None:
        """Keep a directory and all directories below it as they are now."""
        prefix = top[1] + b"/"
        for key, result in self._results.items():
            if key == top or (key[0] == top[0] and key[1].startswith(prefix)):
                self._results[key] = result._replace(after=result.before)

    def _renumbered(self, entry: Entry | None, sides: Sides) -> Entry | None:
        """Return an entry with the link group of its snapshot."""
        if entry is None or entry.link_group is None or entry is sides.now:
            return entry
        now = sides.now
        if now is not None and entry.link_group == now.link_group and same_content(entry, now):
            return entry
        return replace(entry, link_group=entry.link_group + self.links)

    def _note_kinds(self, key: Key, now: Entry | None) -> Entry | None:
        """Keep the present version of a path that is a file on one side and a directory on the other."""
        self._note(shown_path(*key), (ConflictReason.KIND,))
        return now


def _own_of(pair: DirectoryPair) -> Entry | None:
    return None if pair.after is None else pair.after.own


def has_whole_content(entry: Entry) -> bool:
    """Return whether an entry is a file whose content is stored as it was, so that it can be merged."""
    return entry.kind is EntryKind.FILE and entry.stored is not StoredAs.FINGERPRINT and not entry.notes


def _join(directory: EnvPath, name: bytes) -> EnvPath:
    return EnvPath(directory + b"/" + name if directory else name)


def database_units(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[Key, Unit]]:
    """Yield each database that has a log or a journal on some side, and these files, with their unit."""
    for pair in pairs:
        for listing in (pair.before, pair.after):
            for name in _entries(listing):
                database = database_of_sidecar(name)
                if database is not None:
                    unit = Unit(pair.root, _join(pair.path, database), ConflictReason.DATABASE)
                    yield (pair.root, _join(pair.path, name)), unit
                    yield (pair.root, unit.path), unit
