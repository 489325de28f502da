"""Who wants to hear what happens: handlers by event. What a handler raises breaks no verb; it becomes a warning."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from git_envhist.errors import UsageError

Handler = Callable[..., object]
"""Called with what the event is about."""
Forget = Callable[[], None]
"""Called, the handler is not called any more."""


class HistoryEvent(StrEnum):
    """What can be heard of, and what its handler is given."""

    CAPTURED = "captured"
    """A `CaptureResult`; also where nothing had changed and no snapshot was made."""
    VERIFIED = "verified"
    """A `CheckResult`."""
    RESTORED = "restored"
    """A `RestoreResult`: by a restore, an undo or a redo."""
    FORKED = "forked"
    """The history of the fork."""
    TOLD = "told"
    """The `Snapshot` of which something was said, and what: names, remarks, tasks, effects, attachments as records."""
    PROGRESS = "progress"
    """A `CaptureProgress`, many times during one capture or restore."""
    WAITING = "waiting"
    """For whom a push, a fetch, an export, an import or contents on demand have to wait, in words."""


class Handlers:
    """Those of one history."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        # By a key for each time that somebody asked: one is put in or taken out in a single step, whichever threads do.
        self._by_event: dict[str, dict[object, Handler]] = {event: {} for event in HistoryEvent}

    def add(self, event: str, handler: Handler) -> Forget:
        """Call it from now on; given back is what ends that."""
        heard = self._by_event.get(event)
        if heard is None:
            known = ", ".join(map(str, HistoryEvent))
            raise UsageError(f"no such event: '{event}'", hint=f"there are: {known}")
        key = object()
        heard[key] = handler

        def forget() -> None:
            heard.pop(key, None)

        return forget

    def has(self, event: str) -> bool:
        """Whether anybody wants to hear of it."""
        return bool(self._by_event[event])

    def tell(self, event: str, *about: object) -> None:
        """Call those of an event, one after another."""
        for handler in list(self._by_event[event].values()):
            try:
                handler(*about)
            except Exception as error:
                self.failed(event, error)

    def failed(self, event: str, error: Exception) -> None:
        """What a handler raised, told where whoever cares looks."""
        self._warn(f"a handler of '{event}' failed: {type(error).__name__}: {error}")
