"""A working tree that is to be restored, and what that takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from git_envhist.capturing.capture import CapturePipeline
from git_envhist.capturing.leftovers import restore_directory
from git_envhist.capturing.survey import CaptureScope
from git_envhist.model import EnvPath, Snapshot
from git_envhist.store.contents import ObjectReader
from git_envhist.store.git import Git
from git_envhist.values import dataclass, replace

if TYPE_CHECKING:
    from git_envhist.restoring.carrying import RestoreTarget

UNLIMITED = 1 << 62
Choose = Callable[["Now | None"], Snapshot]
"""Return the snapshot to restore; None: nothing is known yet of the environment now."""
Judge = Callable[[Snapshot], Snapshot]
Find = Callable[[str], Snapshot]
Unseal = Callable[[EnvPath, bytes], bytes]


class Now(NamedTuple):
    """The environment now, captured and not yet published."""

    content: str
    tree: str
    git: Git
    """Reads its objects, too."""
    further: int = 0
    """How many more states back undo has to look, because a restore would change nothing in those between."""


@dataclass(frozen=True, slots=True)
class RestoreContext:
    """Whose environment it is, who judges a moment, finds one by its id, and opens what is sealed."""

    capturing: CapturePipeline
    judge: Judge
    unseal: Unseal
    find: Find

    @property
    def how(self) -> str:
        return "fork" if self.capturing.how == "fork" else "here"

    def unbounded(self) -> CapturePipeline:
        """What captures here; what a restore saves is saved whole, whatever a capture may add."""
        mine = self.capturing
        settings = replace(mine.settings, budget=UNLIMITED)
        return CapturePipeline(mine.repository, settings, mine.keys, mine.how, mine.environ)

    def place(self, extent: CaptureScope) -> RestoreTarget:
        """Where the environment stands, and where a restore of it works."""
        from git_envhist.restoring.carrying import RestoreTarget  # loaded late: while the workers look
        from git_envhist.restoring.planning import forbidden_places  # loaded late: likewise

        repository = self.capturing.repository
        return RestoreTarget(
            restore_directory(repository.state),
            extent.bases,
            forbidden_places(extent),
            lambda: self.contents(repository.git),
            self.how,
        )

    def contents(self, git: Git, made: Mapping[bytes, bytes] | None = None) -> ObjectReader:
        """The objects of snapshots; `made`: blobs that stand in none."""
        repository = self.capturing.repository
        return ObjectReader(git, repository.pack_dir, repository.object_format, self.unseal, made=made)
