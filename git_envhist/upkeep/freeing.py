"""What comes back when some objects go: a cleaning without them, whose packs are counted and not kept.

What stays may be stored as a difference of what goes. git then holds it against others, or stores it whole, which may
take as much as what went; and where one version less stands between two, it may store one whole that it need not any
more. No sum tells that. So what stood at the same paths is packed once as a cleaning would, without what goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from git_envhist.store.ledger import PackedSizes
from git_envhist.store.reaching import reachable_objects
from git_envhist.store.repacking import packed_size
from git_envhist.store.repository import Repository

OURS = ("--glob=refs/envhist/*", "--glob=refs/notes/envhist/*")
MOST = 64 << 20
"""More packed bytes are not packed to be counted: it would take as long as the cleaning."""


def bytes_freed(repository: Repository, sizes: PackedSizes, going: Collection[bytes], estimate: int) -> int:
    """How many bytes less our packs take without some objects; `estimate`: what sums say, where it is too much."""
    lost = sum(sizes.of[oid] for oid in going if oid in sizes.of)
    hanging = frozenset(_hanging(sizes, going))
    if hanging.issubset(going):
        return lost
    # As a cleaning comes to them: that order decides what is held against what.
    found = reachable_objects(repository.git, sizes.of.__contains__, roots=OURS)
    paths = {found[oid] for oid in hanging if oid in found}
    left = _beside(found, paths, going)
    before = sum(sizes.once(oid) for oid in left)
    if before > MOST:
        return estimate
    return max(0, lost + before - packed_size(repository.git, left, repository.hash_length))


def _hanging(sizes: PackedSizes, going: Collection[bytes]) -> Iterator[bytes]:
    """All that hangs together, by differences, with what goes."""
    waiting, seen = list(going), set(going)
    while waiting:
        oid = waiting.pop()
        beside = {*sizes.differences.get(oid, ()), sizes.bases.get(oid, oid)} - {oid}
        if beside:
            yield oid
        waiting += beside - seen
        seen |= beside


def _beside(
    found: Mapping[bytes, bytes], paths: Collection[bytes], going: Collection[bytes]
) -> dict[bytes, bytes]:
    return {oid: path for oid, path in found.items() if path in paths and oid not in going}
