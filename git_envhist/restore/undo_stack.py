"""Undo and redo: the states to step through, and the current one (pure).

States are read from the chain of snapshots, which only grows. A capture is a state; so is the environment that a
restore replaced, unless a capture has it already, and the environment after a restore. Undo and redo move a cursor
along the states. New work replaces the states ahead of the cursor: redo does not reach them any longer, but they stay
on the timeline.

States with equal contents may differ: owners and attributes make another state; times and hard links only if a restore
set them, because every build changes times. A replaced environment that differs only in caches is no new state, because
compiling a module is no change that a user wants to undo. Of snapshots with the same state, undo names and restores the
newest capture; the copy that a restore saves of it has a title that says nothing about the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple

from git_envhist.diff.path_classes import CACHE_DIRECTORIES
from git_envhist.diff.snapshot_walker import differing_directories, same_environment
from git_envhist.errors import EnvhistError
from git_envhist.history.titles import is_in_part
from git_envhist.lazy import dataclass, field
from git_envhist.model import DirectoryListing, DirectoryPair, Entry, RestoreRole, Snapshot, SnapshotId
from git_envhist.objects.object_readers import ObjectReader
from git_envhist.restore.plan_steps import same_content

MOVES = (RestoreRole.UNDO, RestoreRole.REDO)


class Difference(IntEnum):
    """The degree of difference between two environments."""

    NONE = 0
    TIMES = 1
    """Only in times, hard links or caches."""
    MORE = 2


class State(NamedTuple):
    """An environment: `Env-Content`, and the tree that also has its metadata."""

    content: str
    tree: str

    @classmethod
    def of(cls, snapshot: Snapshot) -> State:
        return cls(snapshot.content, snapshot.tree)


Compare = Callable[[State, State], Difference]
"""Return how two states of the same content differ."""
CompareCaches = Callable[[State, State], bool]
"""Return whether two states of different content differ only in caches."""


def _never(one: State, other: State) -> bool:
    return False


@dataclass(slots=True)
class UndoStack:
    """The states, oldest first, and the current one."""

    compare: Compare
    stops: list[Snapshot] = field(default_factory=list)
    """Each state by its newest snapshot; a restore's copy counts only if it differs in times or HEAD."""
    cursor: int = -1
    cut_off: tuple[Snapshot, ...] = ()
    """States that redo would have reached, had nothing new come after the last undo."""
    arrived: Snapshot | None = None
    """The result of the last step, which may differ from its stop in an owner that could not be set, or in a key."""
    caches_alone: CompareCaches = _never
    _places: dict[str, int] = field(default_factory=dict)
    _members: list[list[SnapshotId]] = field(default_factory=list)
    """The snapshots of each state."""

    @property
    def current(self) -> Snapshot | None:
        return self.stops[self.cursor] if self.stops else None

    def back(self, steps: int, now: State) -> Snapshot | None:
        """Return the state `steps` before the given one; None if there are fewer."""
        return self._at(self.cursor - steps + self.is_new(now)) if steps > 0 else None

    def forward(self, steps: int, now: State) -> Snapshot | None:
        """Return the state `steps` after the given one; None if there are fewer."""
        return None if self.is_new(now) else self._at(self.cursor + steps)

    def is_new(self, now: State) -> bool:
        """Return whether no snapshot of the current state has this one."""
        return self._difference(now, with_caches=True) is Difference.MORE

    def _at(self, place: int) -> Snapshot | None:
        return self.stops[place] if 0 <= place < len(self.stops) else None

    def _difference(self, state: State, *, with_caches: bool = False) -> Difference:
        """Return the difference from the current state, or from where the last step led if that is less."""
        found = min(
            (self._compared(one, state) for one in (self.current, self.arrived)), default=Difference.MORE
        )
        if with_caches and found is Difference.MORE and self.current is not None:
            known = State.of(self.current)
            if known.content != state.content and self.caches_alone(known, state):
                return Difference.TIMES
        return found

    def _compared(self, one: Snapshot | None, state: State) -> Difference:
        if one is None or one.content != state.content:
            return Difference.MORE
        return Difference.NONE if one.tree == state.tree else self.compare(State.of(one), state)

    def take(self, snapshot: Snapshot) -> None:
        """Add the next snapshot of the timeline."""
        place = self._places.get(snapshot.restored_from) if snapshot.restored_from else None
        if snapshot.restore in MOVES and place is not None:
            self._move(place, snapshot)
        else:
            self._add(snapshot)

    def _move(self, place: int, arrived: Snapshot) -> None:
        stop = self.stops[place]
        is_there = arrived.content == stop.content or arrived.key != stop.key
        # A restore of a part, or one that skipped a path, results in a new state.
        self.arrived = arrived if is_there and not is_in_part(arrived) else None
        self.cursor, self.cut_off = place, ()

    def _add(self, snapshot: Snapshot) -> None:
        state = State.of(snapshot)
        difference = self._difference(state, with_caches=snapshot.restore is RestoreRole.BEFORE)
        # An undo to a state that retention removed is where a restore led, too.
        is_led_to = snapshot.restore not in (None, RestoreRole.BEFORE)
        if difference is Difference.MORE or (difference is Difference.TIMES and is_led_to):
            self._append(snapshot)
        elif snapshot.restore is None or self._copy_differs(snapshot):
            self.stops[self.cursor] = snapshot
        self._places[snapshot.id] = self.cursor
        self._members[self.cursor].append(snapshot.id)

    def _copy_differs(self, copy: Snapshot) -> bool:
        """Return whether a restore's copy of the current state has other times, caches or another commit of HEAD."""
        if self._compared(self.current, State.of(copy)) is not Difference.NONE:
            return True
        return self.current is not None and copy.head is not None and copy.head != self.current.head

    def _append(self, snapshot: Snapshot) -> None:
        self.cursor += 1
        ahead = tuple(self.stops[self.cursor :])
        for ids in self._members[self.cursor :]:
            for member in ids:
                self._places.pop(member, None)
        self.stops[self.cursor :] = [snapshot]
        self._members[self.cursor :] = [[]]
        self.cut_off, self.arrived = ahead or self.cut_off, None


def read_undo_stack(
    oldest_first: Iterable[Snapshot], compare: Compare, caches_alone: CompareCaches = _never
) -> UndoStack:
    """Return the states of a timeline, with the cursor at its last snapshot."""
    walk = UndoStack(compare, caches_alone=caches_alone)
    for snapshot in oldest_first:
        walk.take(snapshot)
    return walk


# Compare two states of an environment.


class States:
    """Compare states by their manifests; each two of them once."""

    def __init__(self, contents: ObjectReader) -> None:
        self._contents = contents
        self._known: dict[tuple[str, str], Difference] = {}
        self._known_caches: dict[tuple[str, str], bool] = {}

    def __call__(self, one: State, other: State) -> Difference:
        """Return the difference; NONE if a snapshot cannot be read."""
        trees = (one.tree, other.tree)
        if trees not in self._known:
            try:
                self._known[trees] = self._compare(*map(bytes.fromhex, trees))
            except EnvhistError:
                self._known[trees] = Difference.NONE
        return self._known[trees]

    def caches_alone(self, one: State, other: State) -> bool:
        """Return whether the states differ only in caches, as far as they can be read."""
        trees = (one.tree, other.tree)
        if trees not in self._known_caches:
            try:
                pairs = differing_directories(self._contents, *map(bytes.fromhex, trees))
                self._known_caches[trees] = not any(map(_differs_outside_caches, pairs))
            except EnvhistError:
                self._known_caches[trees] = False
        return self._known_caches[trees]

    def _compare(self, one: bytes, other: bytes) -> Difference:
        if same_environment(self._contents, one, other):
            return Difference.NONE
        pairs = differing_directories(self._contents, one, other)
        return Difference.MORE if any(map(_differs, pairs)) else Difference.TIMES


def _differs(pair: DirectoryPair) -> bool:
    """Return whether a directory or an entry of it differs in more than times and hard links."""
    if pair.before is None or pair.after is None:
        return True
    before, after = _entries(pair.before), _entries(pair.after)
    if before.keys() != after.keys():
        return True
    return any(not _is_like(entry, after[name]) for name, entry in before.items())


def _differs_outside_caches(pair: DirectoryPair) -> bool:
    """Return whether a directory, or an entry of it, differs in more than times, and is in no cache.

    A removed cache is a difference: programs fill caches, users remove them.
    """
    if not CACHE_DIRECTORIES.isdisjoint(pair.path.split(b"/")):
        return False
    if pair.before is None or pair.after is None:
        return True
    before, after = _entries(pair.before), _entries(pair.after)
    if any(name not in after for name in before):
        return True
    return any(
        name not in CACHE_DIRECTORIES and (name not in before or not _is_like(before[name], entry))
        for name, entry in after.items()
    )


def _entries(listing: DirectoryListing) -> dict[bytes, Entry]:
    return {**listing.entries, b"": listing.own}


def _is_like(one: Entry, other: Entry) -> bool:
    owners = (one.uid, one.gid) == (other.uid, other.gid)
    return owners and same_content(one, other) and (one.mode, one.xattrs) == (other.mode, other.xattrs)
