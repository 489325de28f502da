"""What is being done on a timeline beside its files: tasks of a piece of work, and what happens outside the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from git_envhist.api import EnvHistory
    from git_envhist.doing.effects import Effects
    from git_envhist.doing.tasks import Tasks
    from git_envhist.model import Snapshot


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

    def attachments(self: EnvHistory, revision: str | Snapshot = "@") -> tuple[tuple[str, bytes], ...]:  # type: ignore[misc]
        """(name, bytes) of what was attached to a moment (`capture(attached=…)`): a conversation, outputs of tools."""
        from git_envhist.doing.said import attachments_of  # loaded late: likewise

        return attachments_of(self, self._snapshot(revision))
