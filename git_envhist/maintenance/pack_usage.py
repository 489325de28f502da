"""Measure how much of each of our packs is still needed, and decide which packs gc rewrites.

A pack is rewritten if it contains too much that is not needed, if its objects were never stored as deltas, or to keep
the number of packs small: each is at least twice as large as all smaller ones together, so that each byte is copied a
bounded number of times.

Unreachable objects are kept as long as their pack was used recently: git touches a pack in which it finds an object
that is added. To bound that, they are moved to packs of their own, which keep the time and get no new objects. Those
of one week are merged, because git searches every pack.

**The time of a pack is stored in `packs.json`.** `git gc` follows unreachable objects from packs younger than two
weeks. A dropped snapshot leads to many removed objects, and git searches all packs for each (six seconds instead of
0.2). So packs written here get an old modification time, until git touches one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress

from git_envhist.disk import Durability, replace_file
from git_envhist.lazy import dataclass
from git_envhist.objects.pack_file import PackFile
from git_envhist.platform import open_file_only

FACTOR = 2
WORTH = 0.1
"""The share of a pack that must be unneeded before the daily gc rewrites it."""
WEEK = 7 * 24 * 3600.0
MAX_APART = 4
"""This many packs of unreachable objects are merged while their week lasts; any two when it is over."""
STATE = "packs.json"
DELTIFIED, SET_APART = "deltified", "apart"
LONG_AGO = 946684800.0
"""The modification time of packs written here."""


@dataclass(frozen=True, slots=True)
class PackUsage:
    """A pack and how much of it is needed."""

    path: str
    size: int
    used: float
    """When it was written, or when an object in it was last added again."""
    kind: str
    """`deltified`, `apart` (only unreachable objects), or empty: as captures write it."""
    needed: int
    """Bytes."""
    dead: tuple[bytes, ...]
    """The ids of the unreachable objects."""
    oldest: float = float("inf")
    """When the oldest of the packs merged into this one was used; its own time if it was not merged."""

    @property
    def wasted(self) -> int:
        return max(0, self.size - self.needed)


@dataclass(frozen=True, slots=True)
class RepackPolicy:
    """The rules of one gc run."""

    keep_since: float
    """Unreachable objects stay if their pack was used after this."""
    thorough: bool
    """The user asked for it; otherwise only wasteful packs are rewritten."""


def measure_usage(pack: PackFile, entry: str, needed: Container[bytes], now: float) -> PackUsage:
    """Measure how much of a pack is needed; its index must be intact.

    `entry`: the pack's entry in the list of kinds.
    """
    seen = os.stat(pack.path)
    kind, *words = entry.split() or [""]
    times = [float(word) for word in words if word.isdecimal()]
    # If the list is lost, no pack is known to be old.
    time = seen.st_mtime if seen.st_mtime > LONG_AGO or not times else times[0]
    time, oldest = (time, times[-1] if times else time) if time > LONG_AGO else (now, now)
    names, offsets = pack.index.names(), pack.index.offsets()
    order = sorted(range(len(names)), key=offsets.__getitem__)
    ends = [*(offsets[number] for number in order[1:]), seen.st_size - len(names[0])] if names else []
    size, dead = 0, []
    for number, end in zip(order, ends, strict=True):
        if names[number] in needed:
            size += end - offsets[number]
        else:
            dead.append(names[number])
    return PackUsage(pack.path, seen.st_size, time, kind, size, tuple(dead), min(oldest, time))


def choose_packs_to_rewrite(packs: Sequence[PackUsage], policy: RepackPolicy) -> list[PackUsage]:
    """Return the packs to rewrite or remove."""
    # Regardless of age: packs merged after captures look a minute old.
    chosen = [pack for pack in packs if _is_wasteful(pack, policy) or not pack.kind]
    if not policy.thorough and sum(pack.size for pack in chosen) * FACTOR**4 < _largest(packs):
        chosen = [pack for pack in chosen if _is_wasteful(pack, policy)]
    chosen += _of_one_week([pack for pack in packs if pack.kind == SET_APART and pack not in chosen])
    # The daily gc limits how many old packs it merges by the bytes that it writes anyway; the next day it merges more.
    total = sum(pack.needed for pack in chosen if policy.thorough or pack.kind == DELTIFIED)
    rest = [pack for pack in packs if pack not in chosen and pack.kind == DELTIFIED]
    return [*chosen, *_to_merge(sorted(rest, key=lambda pack: pack.size), total)]


def _to_merge(smallest_first: Sequence[PackUsage], total: int) -> Sequence[PackUsage]:
    """Return the packs to merge into those that are written anyway.

    A pack is chosen if it is smaller than twice `total`, the bytes to write; each chosen pack adds to `total`.
    """
    split = 0
    for number, pack in enumerate(smallest_first):
        if pack.size < FACTOR * total:
            split = number + 1
        total += pack.needed
    return smallest_first[:split]


def _of_one_week(apart: Iterable[PackUsage]) -> list[PackUsage]:
    weeks = _weeks(apart)
    return [
        pack
        for number, some in enumerate(weeks, 1)
        if len(some) >= (MAX_APART if number == len(weeks) else 2)
        for pack in some
    ]


def _weeks(apart: Iterable[PackUsage]) -> list[list[PackUsage]]:
    """Group packs so that no group spans more than a week, however often they were merged."""
    weeks: list[list[PackUsage]] = []
    for pack in sorted(apart, key=lambda pack: min(pack.oldest, pack.used)):
        if weeks and pack.used - min(weeks[-1][0].oldest, weeks[-1][0].used) < WEEK:
            weeks[-1].append(pack)
        else:
            weeks.append([pack])
    return weeks


def packs_to_set_apart(chosen: Iterable[PackUsage], policy: RepackPolicy) -> list[list[PackUsage]]:
    """Return the packs with unreachable objects that must stay, in groups that may share a pack."""
    young = [pack for pack in chosen if pack.dead and pack.used > policy.keep_since]
    others = [pack for pack in young if pack.kind != SET_APART]
    return [*_weeks(pack for pack in young if pack.kind == SET_APART), *([others] if others else [])]


def times_of(group: Iterable[PackUsage]) -> str:
    """Return the list entry of a pack of unreachable objects: when it was last used, and the oldest use in it."""
    packs = list(group)
    used = max(pack.used for pack in packs)
    first = min(min(pack.oldest, pack.used) if pack.kind == SET_APART else used for pack in packs)
    return f"{SET_APART} {int(used)} {int(first)}"


def _is_wasteful(pack: PackUsage, policy: RepackPolicy) -> bool:
    if not pack.dead or pack.used > policy.keep_since:
        return False
    return policy.thorough or pack.wasted >= WORTH * pack.size


def _largest(packs: Iterable[PackUsage]) -> int:
    return max((pack.size for pack in packs), default=0)


def read_kinds(common_state: str) -> dict[str, str]:
    """Return name -> kind and times of the packs written by gc. Losing the file only costs time."""
    with suppress(OSError, ValueError):
        with open(os.path.join(common_state, STATE), encoding="ascii", opener=open_file_only) as file:
            stored = json.load(file)
        if isinstance(stored, dict):
            return {str(name): str(kind) for name, kind in stored.items()}
    return {}


def write_kinds(common_state: str, kinds: Mapping[str, str]) -> None:
    """Store the kinds of packs."""
    # The caller holds the upkeep lock.
    data = json.dumps(dict(kinds), indent=0).encode("ascii")
    replace_file(os.path.join(common_state, STATE), data, durability=Durability.FULL)
