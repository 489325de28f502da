"""Find the snapshot that two timelines have in common (pure).

A snapshot has what the snapshots before it on its timeline had, what the snapshot had that its timeline was forked
from, and what was merged or restored from another timeline, unless that was undone. Of the snapshots that both have, a
merge begins at the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from git_envhist.history.timeline import Catalog, Position
from git_envhist.history.titles import is_in_part
from git_envhist.model import RestoreRole, Snapshot

Find = Callable[[str], Position | None]
"""Return the place of a snapshot, given its id; None if no timeline has it."""
STEPS_BACK = (RestoreRole.TO, RestoreRole.UNDO, RestoreRole.REDO)


def find_position(catalog: Catalog, snapshot_id: str) -> Position | None:
    """Return the place of a snapshot on the first timeline that has it; our own is searched first."""
    for timeline in catalog.timelines():
        for position in timeline.positions():
            if position.snapshot.id == snapshot_id:
                return position
    return None


def position_of(catalog: Catalog, snapshot: Snapshot) -> Position | None:
    """Return the place of a snapshot on its own timeline, else on any."""
    timeline = catalog.timeline(snapshot.timeline)
    for position in timeline.positions() if timeline is not None else ():
        if position.snapshot.id == snapshot.id:
            return position
    return find_position(catalog, snapshot.id)


def common_snapshot(ours: Position, theirs: Position, find: Find) -> Snapshot | None:
    """Return the newest snapshot that both have, or None."""
    known = {snapshot.id for snapshot in ancestors(ours, find)}
    common = [snapshot for snapshot in ancestors(theirs, find) if snapshot.id in known]
    last = max((snapshot.at for snapshot in common), default=None)
    newest = [snapshot for snapshot in common if snapshot.at == last]
    # Snapshots of the same second: the one that continues the others.
    return max(newest, key=lambda snapshot: _count_ancestors(snapshot, newest, find), default=None)


def _count_ancestors(snapshot: Snapshot, others: Sequence[Snapshot], find: Find) -> int:
    position = find(snapshot.id) if len(others) > 1 else None
    known = {one.id for one in ancestors(position, find)} if position is not None else set()
    return sum(one.id in known for one in others)


def ancestors(start: Position, find: Find) -> Iterator[Snapshot]:
    """Yield the snapshots that a snapshot continues, itself first, the nearest timeline first."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        position = waiting.pop(0)
        chain = position.timeline.snapshots[position.index :]
        for snapshot in chain:
            if snapshot.id in seen:
                break
            seen.add(snapshot.id)
            yield snapshot
        others = (find(source) for source in _sources(chain) if source not in seen)
        waiting += [found for found in others if found is not None]


def _sources(chain: Sequence[Snapshot]) -> Iterator[str]:
    """Yield the ids of snapshots of other timelines that a chain (newest first) continues."""
    places: dict[str, int] = {snapshot.id: place for place, snapshot in enumerate(chain)}
    place = 0
    while place < len(chain):
        snapshot = chain[place]
        place += 1
        if snapshot.merged is not None:
            yield snapshot.merged
        if snapshot.restored_from is None or snapshot.restore not in STEPS_BACK or is_in_part(snapshot):
            continue
        target = places.get(snapshot.restored_from)
        if target is None:
            yield snapshot.restored_from
        # Snapshots between a restore and its target were undone, and with them their merges.
        place = place if target is None else max(place, target)
    yield from (snapshot.forked_from for snapshot in chain if snapshot.forked_from is not None)
