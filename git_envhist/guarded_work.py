"""Work around the verbs: handlers of events, a snapshot before and after a piece of work, tools of agents.

`Handlers` has the functions that a program wants called for an event; one that raises becomes a warning. `GuardedWork`
captures before and after a `with` block, and restores the first snapshot if the block fails and that was asked for.
`wrap_tool` does so around each call of a function, a coroutine or a generator. `in_thread` runs a verb for a program
in asyncio: a cancellation takes effect when the verb has ended, so that nothing runs on in the background.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

from git_envhist.errors import EnvhistError, UsageError
from git_envhist.history.timeline import subject
from git_envhist.model import VerdictStatus

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType

    from git_envhist.capture.pipeline import CaptureKeywords
    from git_envhist.model import CaptureResult, RestoreResult, Snapshot

Handler = Callable[..., object]
"""Called with what the event is about."""
Forget = Callable[[], None]
"""Removes the handler that it was returned for."""
P = ParamSpec("P")
R = TypeVar("R")

# Events.


class HistoryEvent(StrEnum):
    """The events of a history, and the arguments of their handlers."""

    CAPTURED = "captured"
    """A `CaptureResult`; also if nothing had changed and no snapshot was made."""
    VERIFIED = "verified"
    """A `CheckResult`."""
    RESTORED = "restored"
    """A `RestoreResult`: of a restore, an undo or a redo."""
    FORKED = "forked"
    """The history of the fork."""
    NOTED = "noted"
    """A `Snapshot`, and the records added to its note: names, remarks, tasks, effects, attachments."""
    PROGRESS = "progress"
    """A `CaptureProgress`, many times during one capture or restore."""
    WAITING = "waiting"
    """A text: the process that a push, a fetch, an export or an import waits for."""


class Handlers:
    """The handlers of one history."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        # Each handler has a key of its own, so that any thread can add or remove one in a single step.
        self._by_event: dict[str, dict[object, Handler]] = {event: {} for event in HistoryEvent}

    def add(self, event: str, handler: Handler) -> Forget:
        """Call a handler from now on; return the function that removes it. `UsageError` for an unknown event."""
        handlers = self._by_event.get(event)
        if handlers is None:
            known = ", ".join(map(str, HistoryEvent))
            raise UsageError(f"no such event: '{event}'", hint=f"the events are: {known}")
        key = object()
        handlers[key] = handler

        def forget() -> None:
            handlers.pop(key, None)

        return forget

    def has(self, event: str) -> bool:
        """Return whether an event has a handler."""
        return bool(self._by_event[event])

    def call(self, event: str, *about: object) -> None:
        """Call the handlers of an event, one after another."""
        for handler in list(self._by_event[event].values()):
            try:
                handler(*about)
            except Exception as error:
                self.warn_failed(event, error)

    def warn_failed(self, event: str, error: Exception) -> None:
        """Report an exception of a handler as a warning."""
        self._warn(f"a handler of '{event}' failed: {type(error).__name__}: {error}")


# A piece of work between two snapshots.

OF_THE_RESULT = frozenset(
    ("verify", "attach", "attached", "conversation", "tool_outputs", "name", "external_id")
)
"""Keywords that apply to the snapshot after the work only."""

Capture = Callable[[str, "CaptureKeywords"], "CaptureResult"]
"""Capture under an intent."""


class GuardedWork:
    """A piece of work: `with history.around("refactor") as work:`."""

    def __init__(
        self,
        capture: Capture,
        resolve: Callable[[str], Snapshot],
        restore: Callable[[Snapshot], RestoreResult],
        intent: str,
        rollback: bool,
        keywords: CaptureKeywords,
    ) -> None:
        self._capture = capture
        self._resolve = resolve
        self._restore = restore
        self.intent = intent
        self._rollback = rollback
        self._keywords = keywords
        self._before: Snapshot | None = None
        self.after: CaptureResult | None = None
        """The capture after the work, failed or not; None while the work runs."""
        self.restored: RestoreResult | None = None
        """The result of the rollback, if there was one."""

    @property
    def before(self) -> Snapshot:
        """The snapshot before the work; raise `EnvhistError` if the work has not begun."""
        if self._before is None:
            raise EnvhistError(
                "the work has not begun: nothing is captured", hint="with history.around(…) as work:"
            )
        return self._before

    @property
    def passed(self) -> bool | None:
        """Return whether the check passed; None if there was no check."""
        verdict = self.after.verdict if self.after else None
        return None if verdict is None else verdict.status is VerdictStatus.PASS

    def __enter__(self) -> GuardedWork:
        captured = self._capture(f"before: {subject(self.intent)}", self._without(OF_THE_RESULT))
        self._before = captured.snapshot or self._resolve("@")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        # A caller that stops iterating over a generator closes it: that is no failure.
        if error is None or isinstance(error, GeneratorExit):
            self.after = self._capture(self.intent, self._keywords)
            if self._rollback and self.passed is False:
                self.restored = self._restore(self.before)
            return False
        try:
            self._handle_failure(error)
        except EnvhistError as failure:
            # The caller gets the exception of the work; ours is a note on it.
            error.add_note(
                f"git-envhist: {failure}; to restore the state before: git envrestore {self.before.id[:7]}"
            )
        return False

    def _handle_failure(self, error: BaseException) -> None:
        from git_envhist.capture.pipeline import pairs  # loaded late: with the capture itself

        keywords = self._without(frozenset(("verify",)))
        keywords["meta"] = (*pairs(keywords.get("meta", ())), ("failed", type(error).__name__))
        # The failed state is captured as well, so that the rollback loses nothing.
        self.after = self._capture(f"{self.intent}\n\nfailed: {type(error).__name__}", keywords)
        if self._rollback:
            self.restored = self._restore(self.before)

    def _without(self, names: frozenset[str]) -> CaptureKeywords:
        kept = {name: value for name, value in self._keywords.items() if name not in names}
        return cast("CaptureKeywords", {**kept, "if_changed": True})


# Tools: functions that an agent calls.

Begin = Callable[[tuple[object, ...], dict[str, object]], GuardedWork]
"""Make the guarded work of one call from its arguments."""
MAX_CALL_LENGTH = 200
"""Characters of a call in the intent of its snapshot."""


def wrap_tool(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Return the function with a capture before and after each call; a call of a generator ends with its last step."""
    import inspect  # loaded late: only a tool needs it

    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Any:
            with begin(args, kwargs):
                return (yield from function(*args, **kwargs))

        return generate

    if inspect.isasyncgenfunction(function):

        @wraps(function)
        async def stream(*args: Any, **kwargs: Any) -> Any:
            from contextlib import aclosing  # loaded late: only a tool in asyncio needs it

            async with work_in_thread(begin(args, kwargs)), aclosing(function(*args, **kwargs)) as values:
                async for value in values:
                    yield value

        return stream

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def wait(*args: Any, **kwargs: Any) -> Any:
            async with work_in_thread(begin(args, kwargs)):
                return await function(*args, **kwargs)

        return wait

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with begin(args, kwargs):
            return function(*args, **kwargs)

    return call


def call_text(name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    """Return a call as Python text, cut to `MAX_CALL_LENGTH`, with the secret part of each token masked."""
    from git_envhist.secrets.masking import mask_text  # loaded late: only a tool needs it

    arguments = [*map(_short_repr, args), *(f"{key}={_short_repr(value)}" for key, value in kwargs.items())]
    text = mask_text(f"{name}({', '.join(arguments)})")
    return text if len(text) <= MAX_CALL_LENGTH else text[: MAX_CALL_LENGTH - 1] + "…"


def _short_repr(value: object) -> str:
    # Much longer than the limit: a token cut in two would not be recognized and masked.
    if isinstance(value, str | bytes):
        value = value[: 4 * MAX_CALL_LENGTH]
    try:
        return repr(value)[: 8 * MAX_CALL_LENGTH]
    except Exception:
        # An argument whose `__repr__` raises must not make the call fail.
        return f"<{type(value).__name__}>"


# Verbs in asyncio.


async def in_thread(verb: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of a verb that runs in a thread; a cancellation is raised when the verb has ended."""
    import asyncio  # loaded late: its caller runs in asyncio

    return await await_to_end(asyncio.ensure_future(asyncio.to_thread(verb, *args, **kwargs)))


async def await_to_end(running: asyncio.Future[R]) -> R:
    """Return the result of a future; a cancellation is raised when it is done."""
    import asyncio  # loaded late: its caller runs in asyncio

    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # A loop that ends cancels its tasks a second time.
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise


@asynccontextmanager
async def work_in_thread(work: GuardedWork) -> AsyncIterator[GuardedWork]:
    """Begin and end a piece of work in a thread."""
    await in_thread(work.__enter__)
    try:
        yield work
    except BaseException as error:
        await in_thread(work.__exit__, type(error), error, error.__traceback__)
        raise
    await in_thread(work.__exit__, None, None, None)
