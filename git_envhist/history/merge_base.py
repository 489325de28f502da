"""Find the snapshot that two timelines have in common (pure).

A snapshot has what the snapshots before it on its timeline had, what the snapshot had that its timeline was forked
from, and what was merged or restored from another timeline, unless that was undone or none of your keys signed it. Of
the snapshots that both have, a merge begins at the one that continues all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from git_envhist.errors import Refused
from git_envhist.history.timeline import PRINTED_ID, Catalog, Position
from git_envhist.history.titles import is_in_part
from git_envhist.model import RestoreRole, Snapshot

Find = Callable[[str], Position | None]
"""Return the place of a snapshot, given its id; None if no timeline has it."""
Judge = Callable[[Snapshot], Snapshot]
"""Return a snapshot with the result of checking its signature."""
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


def common_snapshot(
    ours: Position, theirs: Position, find: Find, judge: Judge = lambda snapshot: snapshot
) -> Snapshot | None:
    """Return the newest snapshot that both have, or None; raise `Refused` if two are the newest.

    `judge`: checks the signature of a snapshot that refers to another timeline. An unsigned fork counts, because
    nothing else shows where it began: see `is_claimed`.
    """
    known = {snapshot.id for snapshot in ancestors(ours, find, judge)}
    common = [snapshot for snapshot in ancestors(theirs, find, judge) if snapshot.id in known]
    newest = _newest_of(common, find, judge)
    if len(newest) > 1:
        first, second, *_ = sorted(snapshot.id[:PRINTED_ID] for snapshot in newest)
        raise Refused(
            f"the timelines merged each other: they have '{first}' and '{second}' in common, "
            "and neither continues the other",
            hint=f"name the one to begin at: git envlog merge --base {first} {theirs.snapshot.id[:PRINTED_ID]}",
        )
    return newest[0] if newest else None


def is_claimed(common: Snapshot, ours: Position, theirs: Position, find: Find, judge: Judge) -> bool:
    """Return whether only an unsigned snapshot says that a side began at the common snapshot."""

    sides = (ours, theirs)
    return not all(
        any(one.id == common.id for one in ancestors(side, find, judge, only_signed_forks=True))
        for side in sides
    )


def _newest_of(common: Sequence[Snapshot], find: Find, judge: Judge) -> list[Snapshot]:
    """Return the snapshots that no other one continues; clocks may differ."""
    found: dict[str, Snapshot] = {}
    older: set[str] = set()
    for snapshot in common:
        if snapshot.id in older:
            continue
        position = find(snapshot.id)
        before = {one.id for one in ancestors(position, find, judge)} if position is not None else set()
        older |= before - {snapshot.id}
        found = {name: one for name, one in found.items() if name not in older}
        found[snapshot.id] = snapshot
    return list(found.values())


def ancestors(
    start: Position,
    find: Find,
    judge: Judge = lambda snapshot: snapshot,
    *,
    only_signed_forks: bool = False,
) -> Iterator[Snapshot]:
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
        forks = (
            one
            for one in chain
            if one.forked_from and not (only_signed_forks and judge(one).trusted is False)
        )
        origins = (one.forked_from for one in forks if one.forked_from is not None)
        others = (find(source) for source in (*_sources(chain, judge), *origins) if source not in seen)
        waiting += [found for found in others if found is not None]


def _sources(chain: Sequence[Snapshot], judge: Judge) -> Iterator[str]:
    """Yield the ids of snapshots of other timelines that a chain (newest first) merged or restored."""
    places: dict[str, int] = {snapshot.id: place for place, snapshot in enumerate(chain)}
    place = 0
    while place < len(chain):
        snapshot = chain[place]
        place += 1
        if snapshot.merged is not None and judge(snapshot).trusted is not False:
            yield snapshot.merged
        if snapshot.restored_from is None or snapshot.restore not in STEPS_BACK or is_in_part(snapshot):
            continue
        target = places.get(snapshot.restored_from)
        if target is None and judge(snapshot).trusted is not False:
            yield snapshot.restored_from
        # Snapshots between a restore and its target were undone, and with them their merges.
        place = place if target is None else max(place, target)
