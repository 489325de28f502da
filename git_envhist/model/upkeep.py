"""The words for keeping a history: what a cleaning did, what is damaged, what holds the space."""

from __future__ import annotations

from git_envhist.model.moments import Snapshot
from git_envhist.values import dataclass


@dataclass(frozen=True, slots=True)
class GcResult:
    """What a cleaning did."""

    packs_before: int
    packs: int
    bytes_before: int
    bytes: int
    removed: int
    """Objects that nothing reached."""
    kept: int
    """Objects that nothing reaches, kept because they may have been used of late."""
    damaged: tuple[str, ...] = ()
    """What is wrong with packs that were left as they are."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something of the store that is not as it was written."""

    kind: str
    """`pack`, `ref`, `notes`, `cache`, `snapshot`, `gone`: a timeline without its ref, or
    `timeline`: the file with the name of this working tree's timeline."""
    subject: str
    why: str


@dataclass(frozen=True, slots=True)
class BrokenSnapshot:
    """A snapshot that is not whole."""

    commit: str
    timeline: str
    snapshot: Snapshot | None
    """None where the commit itself cannot be read."""
    paths: tuple[str, ...]
    """What of it cannot be had; empty where nothing can."""


@dataclass(frozen=True, slots=True)
class FsckReport:
    """What a check of the history found."""

    quick: bool
    snapshots: int
    packs: int
    objects: int
    bytes: int
    faults: tuple[Fault, ...] = ()
    broken: tuple[BrokenSnapshot, ...] = ()
    repaired: tuple[str, ...] = ()
    """What was done about it, a sentence each."""

    @property
    def is_whole(self) -> bool:
        return not self.faults and not self.broken


@dataclass(frozen=True, slots=True)
class SpaceUser:
    """A moment, a directory or a class, and the space that it holds."""

    name: str
    """An id, a path, a class."""
    holds: int
    """Bytes as they stand in the packs, also those that others hold too."""
    frees: int
    """Those that nothing else holds: what goes with it."""
    timeline: str = ""
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """What holds the space of a history."""

    bytes: int
    packs: int
    moments: int
    in_trash: int
    trash_frees: int
    by_moment: tuple[SpaceUser, ...]
    """What frees most first."""
    by_directory: tuple[SpaceUser, ...]
    """What holds most first."""
    by_class: tuple[SpaceUser, ...]
    together: int | None = None
    """What was asked for, gone together, would free."""
