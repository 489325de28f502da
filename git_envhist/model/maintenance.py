"""Values for gc, fsck and disk usage."""

from __future__ import annotations

from git_envhist.lazy import dataclass
from git_envhist.model.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class GcResult:
    """The result of a garbage collection."""

    packs_before: int
    packs: int
    bytes_before: int
    bytes: int
    removed: int
    """Unreachable objects that were deleted."""
    kept: int
    """Unreachable objects that were kept because they may have been used recently."""
    damaged: tuple[str, ...] = ()
    """Problems of packs that were not changed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A damaged file or object."""

    kind: str
    """`pack`, `ref`, `notes`, `cache` or `snapshot`; `gone` for a timeline whose ref is missing; `timeline` for the
    file that names the timeline of this working tree."""
    subject: str
    why: str


@dataclass(frozen=True, slots=True)
class BrokenSnapshot:
    """An incomplete snapshot."""

    commit: str
    timeline: str
    snapshot: Snapshot | None
    """None if the commit itself cannot be read."""
    paths: tuple[str, ...]
    """Paths that cannot be read; empty if nothing can."""


@dataclass(frozen=True, slots=True)
class FsckReport:
    """The result of a check of the history."""

    quick: bool
    snapshots: int
    packs: int
    objects: int
    bytes: int
    faults: tuple[Fault, ...] = ()
    broken: tuple[BrokenSnapshot, ...] = ()
    repaired: tuple[str, ...] = ()
    """Repairs that were made, one sentence each."""
    unreached: int = 0
    """The intact snapshots that no ref leads to, because of damage."""
    damaged_packs: int = 0
    lost_objects: int = 0
    """The objects in damaged packs that cannot be read; `objects` counts the others."""

    @property
    def is_whole(self) -> bool:
        return not self.faults and not self.broken


@dataclass(frozen=True, slots=True)
class SpaceUser:
    """A snapshot, directory or class, and the space it uses."""

    name: str
    """An id, path or class."""
    holds: int
    """Its bytes in the packs, including those shared with others."""
    frees: int
    """The bytes that nothing else uses, which its removal would free."""
    timeline: str = ""
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """The space used by a history."""

    bytes: int
    packs: int
    snapshots: int
    in_trash: int
    trash_frees: int
    by_snapshot: tuple[SpaceUser, ...]
    """Sorted by the space that is freed."""
    by_directory: tuple[SpaceUser, ...]
    """Sorted by the space that is used."""
    by_class: tuple[SpaceUser, ...]
    together: int | None = None
    """The space that removing all requested snapshots together would free."""
