"""A timeline as it stands, what it is to be, and what was made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from git_envhist.store.packs import StagedPack
from git_envhist.store.relinking import CommitChange, cut_off_in
from git_envhist.store.repository import RefUpdate
from git_envhist.store.retelling import ChainCommit
from git_envhist.store.staging import Staging
from git_envhist.store.trash import TrashEntry
from git_envhist.values import dataclass, field


@dataclass(frozen=True, slots=True)
class TimelineState:
    """A timeline and its trash as they stand."""

    timeline: str
    tip: str | None
    notes: str | None
    """Seen before anything is decided: whoever says something of a snapshot meanwhile is heard."""
    links: tuple[ChainCommit, ...]
    trash: tuple[TrashEntry, ...]
    """Without what is on the chain, too."""
    doubled: tuple[TrashEntry, ...] = ()
    """Those of which something is: a kill came between the refs."""


@dataclass(frozen=True, slots=True)
class TimelineTarget:
    """What they are to be."""

    links: tuple[ChainCommit, ...]
    """The chain, oldest first: links of the chain, and of the trash."""
    trash: tuple[tuple[TrashEntry, tuple[ChainCommit, ...]], ...] = ()
    """The bundles that change, and what is to be left in each."""
    more: Mapping[str, bytes] = field(default_factory=dict)
    """By commit, lines for its note."""
    changes: Mapping[str, CommitChange] = field(default_factory=dict)
    """By commit, of the chain or the trash, what is to be another in it."""
    packs: tuple[StagedPack, ...] = ()
    """In the staging, with the trees of these."""
    begins: bool = False  # with the oldest, though that names one before it which is gone

    def is_as(self, stand: TimelineState) -> bool:
        """Whether nothing is to change."""
        is_cut_off = self.begins and cut_off_in(self.links) is not None
        return self.links == stand.links and not (self.trash or self.changes or is_cut_off)


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What a rewrite came to."""

    now: dict[str, str]
    """By the commit that a snapshot was the one that it is, on the chain."""
    gone: tuple[ChainCommit, ...] = ()
    """What was let go."""
    warnings: tuple[str, ...] = ()


class NewTimeline(NamedTuple):
    """What was written, and the refs that are to lead there."""

    now: dict[str, str]
    gone: tuple[ChainCommit, ...]
    refs: tuple[RefUpdate, ...]
    packs: list[StagedPack]
    other_trees: bool
    """What is remembered of working trees holds no longer."""


Decide = Callable[[TimelineState, Staging], TimelineTarget]
"""What is decided may be written into the staging, in packs of its own."""
