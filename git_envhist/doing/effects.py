"""What is done outside the machine: noted before it happens, and how it ended; a restore tells of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

from git_envhist.doing.tasks import HistoryContext, current_snapshot, new_mark, without_tokens
from git_envhist.errors import Refused
from git_envhist.history.doings import effect_record, effects_of, effects_since
from git_envhist.history.timeline import subject
from git_envhist.model import Effect, Snapshot
from git_envhist.values import replace

Approve = Callable[[Effect], bool]
"""Asked before something irreversible happens."""


def approve_all(_effect: Effect) -> bool:
    """Approve every effect."""
    return True


def refuse_all(_effect: Effect) -> bool:
    """Refuse every effect: the decision of a program that gave no `approve`."""
    return False


class Effects:
    """What was done outside the machine."""

    def __init__(self, history: HistoryContext) -> None:
        self._history = history

    def all(self) -> tuple[Effect, ...]:
        """Return all effects, oldest first; refused ones are among them."""
        return effects_of(self._history.log())

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.all())

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
        act: Callable[[], int | None],
        *,
        command: str | None = None,
        irreversible: bool = False,
        approve: Approve | None = None,
    ) -> Effect:
        """Call `act` and note the effect with the exit status that it returns (None: 0).

        An irreversible effect happens only if `approve` returns true for it; a program that wants no question gives
        `approve_all`. A refused one is noted as refused, and raises Refused. TypeError if `act` or `approve` cannot be
        called: nothing is noted then.
        """
        _refuse_uncallable(act, approve)
        effect = self._begin(text, irreversible, command)
        if irreversible and not self._is_approved(effect, approve or refuse_all):
            raise Refused(
                f"not approved, and not done: '{subject(effect.text)}'",
                hint="--yes, if no person can be asked" if approve else "give approve=, which decides",
            )
        # The effect may have happened even if this process ends before the record is written.
        self._tell(effect)
        status = act()
        ended = replace(effect, exit_code=0 if status is None else int(status))
        self._tell(ended)
        return ended

    def _is_approved(self, effect: Effect, approve: Approve) -> bool:
        """Ask; note the effect as refused unless it is approved."""
        try:
            approved = approve(effect)
        except BaseException:
            self._tell(replace(effect, refused=True))
            raise
        if not approved:
            self._tell(replace(effect, refused=True))
        return approved

    def _begin(self, text: str, irreversible: bool, command: str | None) -> Effect:
        text, command = without_tokens(text), None if command is None else without_tokens(command)
        snapshot = current_snapshot(self._history, f"before: {subject(text)}")
        return Effect(new_mark(), text, self._history.now, irreversible, command, None, snapshot.id)

    def _tell(self, effect: Effect) -> None:
        assert effect.stands_on is not None
        self._history.tell(self._history.resolve(effect.stands_on), effect_record(effect, new_mark()))


def _refuse_uncallable(act: object, approve: object) -> None:
    for name, function, arguments in (("act", act, ()), ("approve", approve, (None,))):
        if function is None and name == "approve":
            continue
        if not callable(function):
            raise TypeError(f"perform() needs a function as '{name}', not {type(function).__name__}")
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"perform() cannot wait for '{name}': it is a coroutine function")
        try:
            signature = inspect.signature(function)
        except ValueError:  # a built-in function without one
            continue
        try:
            signature.bind(*arguments)
        except TypeError as error:
            raise TypeError(f"perform() cannot call '{name}': {error}") from None
