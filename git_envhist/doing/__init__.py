"""What is being done on a timeline beside its files: tasks of a piece of work, and what happens outside the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.doing.effects import Effects
    from git_envhist.doing.observing import Observations
    from git_envhist.doing.tasks import Tasks


class Doing:
    """The part of a history that tells of it."""

    @property
    def tasks(self: EnvHistory) -> Tasks:  # type: ignore[misc]
        """The tasks of this timeline."""
        from git_envhist.doing.tasks import Tasks  # loaded late: most commands know of none

        return Tasks(self)

    @property
    def effects(self: EnvHistory) -> Effects:  # type: ignore[misc]
        """What was done outside the machine."""
        from git_envhist.doing.effects import Effects  # loaded late: likewise

        return Effects(self)

    @property
    def observed(self: EnvHistory) -> Observations:  # type: ignore[misc]
        """Checkpoints of the platform below us that were made without us."""
        from git_envhist.doing.observing import Observations  # loaded late: likewise

        return Observations(self)
