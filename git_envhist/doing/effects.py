"""What is done outside the machine: noted before it happens, and how it ended; a restore tells of it."""

from __future__ import annotations

from collections.abc import Callable

from git_envhist.doing.tasks import History, checked, new_mark, standing
from git_envhist.errors import Refused
from git_envhist.history.doings import effect_record, effects_of, effects_since
from git_envhist.history.timeline import subject
from git_envhist.model import Effect, Snapshot
from git_envhist.values import replace

Approve = Callable[[Effect], bool]
"""Asked before something irreversible happens."""


def approve_all(_effect: Effect) -> bool:
    """Nobody wants to be asked."""
    return True


class Effects:
    """What was done outside the machine."""

    def __init__(self, history: History) -> None:
        self._history = history

    def all(self) -> tuple[Effect, ...]:
        """All of it, the oldest first."""
        return effects_of(self._history.log())

    def since(self, target: Snapshot) -> tuple[Effect, ...]:
        """What a restore to a moment of this timeline does not undo."""
        return effects_since(self._history.log(), target.id)

    def note(self, text: str, *, irreversible: bool = False) -> Effect:
        """Note what was done."""
        effect = self._begin(text, irreversible, None)
        self._tell(effect)
        return effect

    def perform(
        self,
        text: str,
        act: Callable[[], int],
        *,
        command: str | None = None,
        irreversible: bool = False,
        approve: Approve = approve_all,
    ) -> Effect:
        """Do it, and note it with the status that it ended with; where it cannot be undone, `approve` may refuse it."""
        effect = self._begin(text, irreversible, command)
        if irreversible and not approve(effect):
            raise Refused(
                f"not approved, and not done: '{subject(effect.text)}'",
                hint="--yes, where nobody can be asked",
            )
        # Whatever becomes of us while it happens: it may have happened.
        self._tell(effect)
        ended = replace(effect, exit_code=act())
        self._tell(ended)
        return ended

    def _begin(self, text: str, irreversible: bool, command: str | None) -> Effect:
        text, command = checked(text), None if command is None else checked(command)
        snapshot = standing(self._history, f"before: {subject(text)}")
        return Effect(new_mark(), text, self._history.now, irreversible, command, None, snapshot.id)

    def _tell(self, effect: Effect) -> None:
        assert effect.stands_on is not None
        self._history.tell(self._history.resolve(effect.stands_on), effect_record(effect, new_mark()))
