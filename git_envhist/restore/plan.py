"""What a restore is going to do (pure): two sides of every directory that differs become steps.

A directory that stands on both sides is never replaced, its entries are. One that comes is a single step with all that
is in it; one that goes is emptied first. What the target never captured, and what the side before does not hold byte
for byte, is left alone, and so is everything above it that would have to go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
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

# Which hard links a restore has to make anew (pure).
#
# Two snapshots number the same links differently once a restore made new files of them, so not numbers are compared
# but which names are one file. Where that differs, or anything about the file does, all of its names are written anew:
# to link to what is there would need nobody else to have a name of it, and to write to it everybody to agree.

Key = tuple[bytes, EnvPath]
"""A root and a path in it."""


class LeafPair(NamedTuple):
    """What stands at a path on the two sides, where it is no directory."""

    before: Entry | None
    after: Entry | None


def same_content(before: Entry, after: Entry) -> bool:
    """Whether the bytes (or the pipe, the device) are the same."""
    return (
        before.kind is after.kind
        and before.oid == after.oid
        and before.stored is after.stored
        and before.device == after.device
    )


def same_metadata(before: Entry, after: Entry) -> bool:
    """Whether mode, time, owner and attributes are the same."""
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
    """What the names of one file have in common; a capture may have met a file that was just being written."""
    return (entry.link_group, entry.kind, entry.mode, entry.mtime_ns, entry.uid, entry.gid, entry.xattrs)


def check_links(leaves: Mapping[Key, LeafPair]) -> None:
    """`Damaged` where the target says that a link and a file are one: whoever linked to the one would get the other."""
    check_kinds(leaf.after for leaf in leaves.values() if leaf.after is not None)


def check_kinds(entries: Iterable[Entry]) -> None:
    """The same, of the entries of the target."""
    kinds: dict[int, EntryKind] = {}
    for after in entries:
        if after.link_group is None:
            continue
        if kinds.setdefault(after.link_group, after.kind) is not after.kind:
            raise Damaged("a snapshot has hard links of things of two kinds", hint="restore another snapshot")


def links_to_renew(leaves: Mapping[Key, LeafPair]) -> set[Key]:
    """The names that must be written anew though each by itself may be as it was; given all that have links."""
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
        if len(members) > 1 and not _stands_as_it_is(members, leaves, befores, shared):
            renewed.update(members)
    for members in befores.values():
        staying = [key for key in members if leaves[key].after is not None]
        if len(staying) > 1:
            renewed.update(key for key in staying if key not in shared)
    return renewed


def _stands_as_it_is(
    members: list[Key], leaves: Mapping[Key, LeafPair], befores: Mapping[int, list[Key]], shared: set[Key]
) -> bool:
    """Whether the names are one file already, unchanged, and no other name of the target is that file."""
    groups = set()
    for key in members:
        before, after = leaves[key]
        if before is None or after is None or before.link_group is None or not same(before, after):
            return False
        groups.add(before.link_group)
    if len(groups) != 1:
        return False
    others = set(befores[groups.pop()]).difference(members)
    # A name that shall be a file of its own is written anew itself; one of another group cannot be told apart so.
    return not others.intersection(shared)


# Databases and what belongs to them: replaced together, or not at all (pure).
#
# Between two renames a new database would stand beside the old one's log, and whoever opened it then would apply the
# one to the other. So a log goes before its database is replaced, and the new one comes after it.


def split_units(removals: Iterable[PlanStep], arrivals: Iterable[PlanStep]) -> tuple[PlanStep, ...]:
    """All steps in their order, those of a unit with its number; a sidecar that is replaced goes and comes."""
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
    # What goes by itself may hold the directory that it stands in: it stays in its place, behind these.
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
"""Where a restore works, at the top of an environment: never a part of it."""
WITH_BYTES = (EntryKind.FILE, EntryKind.LINK)

SKIP_OWN_FILES = "ours"
OTHER_TREE = "another working tree"
NEW = "new, and kept"
NOT_CAPTURED = "not captured then"
NOT_SAVED = "its bytes are not saved"
NOT_CHOSEN = ""
"""The caller did not ask for it, so there is no reason to report."""
HOLDS_KEPT = "holds what is left alone"


def _nothing(*_: object) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class PlanRules:
    """What must be left alone, beside what the plan sees by itself."""

    keep: Callable[[EnvPath, bool], str | None] = _nothing
    """A path as people see it, and whether it is a directory -> why it stays as it is, with all below it; None where
    it may be changed."""
    keep_new: bool = False
    """What came after the moment stays."""
    holds: Callable[[EnvPath], str | None] = _nothing
    """A directory as people see it -> why it cannot go, for something in it that neither moment holds."""


def make_plan(pairs: Iterable[DirectoryPair], rules: PlanRules | None = None) -> RestorePlan:
    """The steps from the side before to the side after."""
    planner = _Planner(pairs, rules or PlanRules())
    planner.look_at_entries()
    planner.look_at_directories_that_go()
    return planner.plan()


def skip_reason(after: Entry) -> str | None:
    """Why an entry of the target is not written even where nothing is; None where it is."""
    if after.kind is EntryKind.BOUNDARY:
        return OTHER_TREE
    return NOT_CAPTURED if _lacks_bytes(after) else None


class _Planner:
    def __init__(self, pairs: Iterable[DirectoryPair], rules: PlanRules) -> None:
        listed = sorted(pairs, key=lambda pair: (pair.root, pair.path.split(b"/")))
        self._pairs: dict[Key, DirectoryPair] = {(pair.root, pair.path): pair for pair in listed}
        self._rules = rules
        linked = dict(_linked(listed))
        check_links(linked)
        self._renewed = links_to_renew(linked)
        self._kept: set[Key] = set()
        self._holding: set[Key] = set()
        self._going: dict[Key, Entry | None] = {}
        self._touched: set[Key] = set()
        self._removals: list[PlanStep] = []
        self._arrivals: list[PlanStep] = []
        self._left: list[SkippedPath] = []

    def look_at_entries(self) -> None:
        """Decide about all that is no directory, from the top down."""
        for key, pair in self._pairs.items():
            if key in self._kept or (key[1] and (key[0], _parent(key[1])) in self._kept):
                self._kept.add(key)
            elif not self._is_kept(key, pair) and (pair.before is not None or not pair.path):
                self._look_into(key, pair)

    def look_at_directories_that_go(self) -> None:
        """Decide about directories that are none in the target, the deepest first."""
        for key in sorted(self._going, key=_depth, reverse=True):
            root, path = key
            own, after = self._before(key).own, self._going[key]
            if key not in self._kept and key not in self._holding and self._holds(key):
                continue
            if key not in self._kept and key not in self._holding:
                action = PlanAction.REMOVE if after is None else PlanAction.REPLACE
                self._add(PlanStep(root, path, action, own, after))
                continue
            self._holding.add((root, _parent(path)))
            if after is not None:
                self._left.append(SkippedPath(shown_path(root, path), HOLDS_KEPT))

    def _holds(self, key: Key) -> bool:
        """Whether a directory stays for what is in it."""
        why = self._rules.holds(shown_path(*key))
        if why is not None:
            self._leave(*key, why)
            self._holding.add(key)
        return why is not None

    def plan(self) -> RestorePlan:
        removals = sorted(self._removals, key=lambda step: (step.root, -step.path.count(b"/"), step.path))
        arrivals = sorted(self._arrivals, key=lambda step: (step.root, step.path.split(b"/")))
        return RestorePlan(
            split_units(removals, arrivals),
            tuple(self._directories()),
            tuple(sorted(self._left, key=lambda left: left.path)),
        )

    def _is_kept(self, key: Key, pair: DirectoryPair) -> bool:
        root, path = key
        why = self._rules.keep(shown_path(root, path), True)
        if why is None and not path and pair.after is None:
            why = NOT_CAPTURED
        if why is None and self._rules.keep_new and self._going.get(key, path) is None:
            why = NEW
        # What only the target has is asked about where it would be written.
        if why is None or (pair.before is None and path):
            return False
        self._leave(root, path, why)
        self._kept.add(key)
        return True

    def _look_into(self, key: Key, pair: DirectoryPair) -> None:
        before, after = _entries(pair.before), _entries(pair.after)
        for name in sorted(before.keys() | after.keys()):
            path = EnvPath(pair.path + b"/" + name if pair.path else name)
            if path == PRIVATE:
                self._leave(key[0], path, SKIP_OWN_FILES)
                self._kept.add((key[0], path))
            else:
                self._look_at((key[0], path), before.get(name), after.get(name))

    def _look_at(self, key: Key, before: Entry | None, after: Entry | None) -> None:
        if before is not None and before.kind is EntryKind.DIRECTORY:
            if after is None or after.kind is not EntryKind.DIRECTORY:
                self._let_go(key, after)
            return
        if before is not None and after is not None and same(before, after) and key not in self._renewed:
            return
        why = self._why_left(key, before, after)
        if why is not None:
            self._leave(*key, why)
        elif after is not None and after.kind is EntryKind.DIRECTORY:
            self._bring(key, before)
        else:
            self._add(PlanStep(*key, self._action(key, before, after), before, after))

    def _let_go(self, key: Key, after: Entry | None) -> None:
        why = None if after is None else self._why_left(key, None, after)
        # A file that was not chosen does not come; what was chosen in the directory goes all the same.
        if why is not None and why != NOT_CHOSEN:
            self._leave(*key, why)
            self._kept.add(key)
        self._going[key] = None if why is not None else after

    def _bring(self, key: Key, before: Entry | None) -> None:
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
                why = self._why_left((root, entry.path), None, entry)
                if why is not None:
                    self._leave(root, entry.path, why)
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
        # A file with more names than one may have some outside, and these shall not change.
        if before.link_group is None and key not in self._renewed and same_content(before, after):
            return PlanAction.ADJUST
        return PlanAction.REPLACE

    def _why_left(self, key: Key, before: Entry | None, after: Entry | None) -> str | None:
        if any(side is not None and side.kind is EntryKind.BOUNDARY for side in (before, after)):
            return OTHER_TREE
        is_directory = any(side is not None and side.kind is EntryKind.DIRECTORY for side in (before, after))
        why = self._rules.keep(shown_path(*key), is_directory)
        if why is not None:
            return why
        if after is not None and (why := skip_reason(after)) is not None:
            return why
        if before is not None and _lacks_bytes(before):
            return NOT_SAVED
        return NEW if after is None and self._rules.keep_new else None

    def _leave(self, root: bytes, path: EnvPath, why: str) -> None:
        self._left.append(SkippedPath(shown_path(root, path), why))
        if path:
            self._holding.add((root, _parent(path)))

    def _add(self, step: PlanStep) -> None:
        (self._removals if step.action is PlanAction.REMOVE else self._arrivals).append(step)
        if step.action is not PlanAction.ADJUST:
            self._touched.add((step.root, _parent(step.path)))

    def _directories(self) -> Iterator[PlannedDirectory]:
        found = [*self._standing(), *self._coming(), *self._leaving()]
        # The deepest first: what is set above must not be undone by what is set below.
        return iter(sorted(found, key=lambda own: (_depth((own.root, own.path)), own.path), reverse=True))

    def _standing(self) -> Iterator[PlannedDirectory]:
        for key, pair in self._pairs.items():
            if pair.after is None or (pair.before is None and pair.path) or key in self._kept:
                continue
            before, after = pair.before.own if pair.before else None, pair.after.own
            if key in self._touched or before is None or not same(before, after):
                yield PlannedDirectory(*key, before, after)

    def _coming(self) -> Iterator[PlannedDirectory]:
        for step in self._arrivals:
            if step.after is not None and step.after.kind is EntryKind.DIRECTORY:
                yield PlannedDirectory(step.root, step.path, None, step.after)

    def _leaving(self) -> Iterator[PlannedDirectory]:
        for key in self._going:
            if key not in self._kept:
                own = self._before(key).own
                yield PlannedDirectory(*key, own, own if key in self._holding else None)

    def _before(self, key: Key) -> DirectoryListing:
        before = self._pairs[key].before
        assert before is not None
        return before


def _entries(listing: DirectoryListing | None) -> dict[bytes, Entry]:
    return listing.entries if listing is not None else {}


def _linked(pairs: Iterable[DirectoryPair]) -> Iterator[tuple[Key, LeafPair]]:
    for pair in pairs:
        before, after = _entries(pair.before), _entries(pair.after)
        # Hardly any entry has links: those that do are found in one quick run.
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
