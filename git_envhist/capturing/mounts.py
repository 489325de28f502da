"""Which mount points there are to be met: asked of the kernel, so that none of them has to be touched to be known.

A mount may hang (a network that is gone, an automounter) as soon as anybody asks for its stat.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from git_envhist.system import SYSTEM

MOUNTINFO = "/proc/self/mountinfo"
ESCAPE = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of mountinfo."""

    number: bytes
    parent: bytes
    point: bytes


def read_mounts(table: str = MOUNTINFO) -> tuple[bytes, ...] | None:
    """Every mount point that a path of this process leads to, or None where the system does not tell."""
    if not SYSTEM.proc:
        return None
    try:
        with open(table, "rb") as file:
            mounts = [_parse(line) for line in file]
    except (OSError, IndexError):
        return None
    return visible_points(mounts)


def visible_points(mounts: list[Mount]) -> tuple[bytes, ...]:
    """The points that are not below something mounted over them later: such a path is an ordinary one again."""
    by_number = {mount.number: mount for mount in mounts}
    beside: dict[bytes, list[bytes]] = {}
    for mount in mounts:
        beside.setdefault(mount.parent, []).append(mount.point)
    return tuple(mount.point for mount in mounts if not _is_hidden(mount, by_number, beside))


def _is_hidden(mount: Mount, by_number: dict[bytes, Mount], beside: dict[bytes, list[bytes]]) -> bool:
    seen: set[bytes] = set()
    current: Mount | None = mount
    while current is not None and current.number not in seen:
        seen.add(current.number)
        # Mounted on the same mount and further up: what is below can only have been there before.
        if any(_is_below(current.point, point) for point in beside[current.parent]):
            return True
        current = by_number.get(current.parent)
    return False


def _is_below(point: bytes, other: bytes) -> bool:
    return point != other and point.startswith(other.rstrip(b"/") + b"/")


def _parse(line: bytes) -> Mount:
    fields = line.split(b" ")
    return Mount(fields[0], fields[1], ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), fields[4]))
