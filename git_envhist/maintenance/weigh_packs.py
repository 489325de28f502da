"""What each pack of ours holds that is still needed, and which of them are worth being written anew (decided here).

A pack is written anew where it holds what nobody needs any more, where it was never tried to store its objects as
differences of each other, and where packs are to become few: each at least twice as large as all smaller ones
together, so that every byte is copied only so often.

What nothing reaches any more is kept as long as its pack was used of late: git touches a pack in which it finds what
somebody adds. To give that a bound, it is put in a pack of its own, which keeps the time and is not added to. Those of
one week become one: every git that looks an object up looks in every pack.

**The time of a pack is kept beside it.** `git gc` follows what nothing reaches from packs as young as two weeks,
wherever that leads; a moment that was let go leads to much that is gone already, and each time git looks through all
packs again (six seconds where it had taken 0.2). So packs written here say that they are old, until git touches one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress

from git_envhist.disk import Durability, replace_file
from git_envhist.lazy import dataclass
from git_envhist.objects.pack_reader import PackFile
from git_envhist.platform import open_file_only

FACTOR = 2
WORTH = 0.1
"""So much of a pack nobody may need before it is written anew, where nobody asked for it."""
WEEK = 7 * 24 * 3600.0
MANY_APART = 4
"""So many packs of what nothing reaches become one while their week lasts; any two when it is over."""
STATE = "packs.json"
DELTIFIED, SET_APART = "deltified", "apart"
LONG_AGO = 946684800.0
"""What packs written here give as their time."""


@dataclass(frozen=True, slots=True)
class PackUsage:
    """A pack, and what of it is needed."""

    path: str
    size: int
    used: float
    """When it was written, or an object in it last found by somebody who added it."""
    kind: str
    """`deltified`, `apart` (only what nothing reaches), or nothing: as captures write it."""
    needed: int
    """Bytes."""
    dead: tuple[bytes, ...]
    """The ids of what nothing reaches."""
    oldest: float = float("inf")
    """When the first was used of the packs that this one was made of; its own time where it was made of one."""

    @property
    def wasted(self) -> int:
        return max(0, self.size - self.needed)


@dataclass(frozen=True, slots=True)
class RepackDecision:
    """What is to be done."""

    keep_since: float
    """What nothing reaches stays where its pack was used after that."""
    thorough: bool
    """Somebody asked for it; else only what is worth it."""


def weigh(pack: PackFile, told: str, needed: Container[bytes], now: float) -> PackUsage:
    """How much of a pack is needed; its index has to be sound. `told`: what stands in the list of packs."""
    seen = os.stat(pack.path)
    kind, *said = told.split() or [""]
    times = [float(word) for word in said if word.isdecimal()]
    # Where the list is lost nothing is known to be old.
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


def choose(packs: Sequence[PackUsage], policy: RepackDecision) -> list[PackUsage]:
    """Which packs are to be written anew, or to go."""
    # Whatever its age: merged by the captures, the packs of a week are one that is a minute old.
    chosen = [pack for pack in packs if _is_wasteful(pack, policy) or not pack.kind]
    if not policy.thorough and sum(pack.size for pack in chosen) * FACTOR**4 < _largest(packs):
        chosen = [pack for pack in chosen if _is_wasteful(pack, policy)]
    chosen += _of_one_week([pack for pack in packs if pack.kind == SET_APART and pack not in chosen])
    # Nobody waits for what comes by itself, and all of it together costs most: yesterday's are joined tomorrow.
    total = sum(pack.needed for pack in chosen if policy.thorough or pack.kind == DELTIFIED)
    rest = [pack for pack in packs if pack not in chosen and pack.kind == DELTIFIED]
    return [*chosen, *_to_be_joined(sorted(rest, key=lambda pack: pack.size), total)]


def _to_be_joined(smallest_first: Sequence[PackUsage], total: int) -> Sequence[PackUsage]:
    """With as many bytes as are written anyhow: the packs that are not twice as large as all smaller ones together."""
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
        if len(some) >= (MANY_APART if number == len(weeks) else 2)
        for pack in some
    ]


def _weeks(apart: Iterable[PackUsage]) -> list[list[PackUsage]]:
    """In groups of which none spans more than a week, however often its packs were joined: one day each is old."""
    weeks: list[list[PackUsage]] = []
    for pack in sorted(apart, key=lambda pack: min(pack.oldest, pack.used)):
        if weeks and pack.used - min(weeks[-1][0].oldest, weeks[-1][0].used) < WEEK:
            weeks[-1].append(pack)
        else:
            weeks.append([pack])
    return weeks


def to_be_set_apart(chosen: Iterable[PackUsage], policy: RepackDecision) -> list[list[PackUsage]]:
    """The packs of which what nothing reaches has to stay, such as may share a pack together."""
    young = [pack for pack in chosen if pack.dead and pack.used > policy.keep_since]
    others = [pack for pack in young if pack.kind != SET_APART]
    return [*_weeks(pack for pack in young if pack.kind == SET_APART), *([others] if others else [])]


def times_of(group: Iterable[PackUsage]) -> str:
    """What the list says of a pack of what nothing reaches: when it was used last, and what it was made of first."""
    packs = list(group)
    used = max(pack.used for pack in packs)
    first = min(min(pack.oldest, pack.used) if pack.kind == SET_APART else used for pack in packs)
    return f"{SET_APART} {int(used)} {int(first)}"


def _is_wasteful(pack: PackUsage, policy: RepackDecision) -> bool:
    if not pack.dead or pack.used > policy.keep_since:
        return False
    return policy.thorough or pack.wasted >= WORTH * pack.size


def _largest(packs: Iterable[PackUsage]) -> int:
    return max((pack.size for pack in packs), default=0)


def read_kinds(common_state: str) -> dict[str, str]:
    """name -> kind and the second of its use, for the packs that were written here; to lose it costs only time."""
    with suppress(OSError, ValueError):
        with open(os.path.join(common_state, STATE), encoding="ascii", opener=open_file_only) as file:
            told = json.load(file)
        if isinstance(told, dict):
            return {str(name): str(kind) for name, kind in told.items()}
    return {}


def write_kinds(common_state: str, kinds: Mapping[str, str]) -> None:
    """Keep what the packs are."""
    # One at a time: whoever calls holds the lock of the upkeep.
    data = json.dumps(dict(kinds), indent=0).encode("ascii")
    replace_file(os.path.join(common_state, STATE), data, durability=Durability.FULL)
