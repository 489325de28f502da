"""A piece of work between two moments: what was there before it, what came of it, and the way back where it failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, overload

from git_envhist.api import EnvHistory
from git_envhist.capturing.identity import current_actor
from git_envhist.errors import EnvhistError
from git_envhist.history.timeline import subject
from git_envhist.model import CaptureResult, RestoreResult, Snapshot, Trigger, VerdictStatus
from git_envhist.values import replace

if TYPE_CHECKING:
    from typing import Unpack

    from git_envhist.capturing.request import CaptureKeywords

P = ParamSpec("P")
R = TypeVar("R")
LONGEST = 200
"""So much of the words of a call stands with the moments around it."""


class GuardedWork:
    """One piece of work; `with history.around("refactor") as moment:` gives it."""

    def __init__(self, history: EnvHistory, intent: str, rollback: bool, asked: CaptureKeywords) -> None:
        self._history = history
        self.intent = intent
        self._rollback = rollback
        self._asked = asked
        self._before: Snapshot | None = None
        self.after: CaptureResult | None = None
        """What is there afterwards, failed or not; None while the work goes on."""
        self.restored: RestoreResult | None = None
        """How it went back, where it did."""

    @property
    def before(self) -> Snapshot:
        """What was there before; it has to be begun."""
        if self._before is None:
            raise EnvhistError(
                "the work has not begun: nothing is captured", hint="with history.around(…) as moment:"
            )
        return self._before

    @property
    def passed(self) -> bool | None:
        """Whether the check passed; None where there was none."""
        verdict = self.after.verdict if self.after else None
        return None if verdict is None else verdict.status is VerdictStatus.PASS

    def __enter__(self) -> GuardedWork:
        asked = self._less(AFTER)
        taken = self._history.capture(f"before: {subject(self.intent)}", **asked)
        self._before = taken.snapshot or self._history.resolve("@")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        # Whoever goes through a generator and stops has heard enough: nothing failed.
        if error is None or isinstance(error, GeneratorExit):
            self.after = self._history.capture(self.intent, **self._asked)
            if self._rollback and self.passed is False:
                self.restored = self._history.restore(self.before)
            return False
        try:
            self._failed(error)
        except EnvhistError as failed:
            # What the work raised is what its caller waits for.
            error.add_note(
                f"git-envhist: {failed}; what was here before: git envrestore {self.before.id[:7]}"
            )
        return False

    def _failed(self, error: BaseException) -> None:
        from git_envhist.capturing.request import pairs  # loaded late: with the capture itself

        asked = self._less(frozenset(("verify",)))
        asked["meta"] = (*pairs(asked.get("meta", ())), ("failed", type(error).__name__))
        # What it left is kept as well: the way back is no reason to lose it.
        self.after = self._history.capture(f"{self.intent}\n\nfailed: {type(error).__name__}", **asked)
        if self._rollback:
            self.restored = self._history.restore(self.before)

    def _less(self, keys: frozenset[str]) -> CaptureKeywords:
        kept = {key: value for key, value in self._asked.items() if key not in keys}
        return cast("CaptureKeywords", {**kept, "if_changed": True})


AFTER = frozenset(("verify", "attach", "attached", "conversation", "tool_outputs", "name", "external_id"))
"""What is said of a piece of work is said of the moment after it."""


class Rounds(EnvHistory):
    """Work between two moments."""

    def as_tool(self, name: str) -> CaptureKeywords:
        """What a capture is asked that an agent's tool is the cause of."""
        actor = replace(current_actor(self.settings, self._environ), tool=name)
        return {"trigger": Trigger.AGENT, "actor": actor}

    def around(self, intent: str, *, rollback: bool = False, **asked: Unpack[CaptureKeywords]) -> GuardedWork:
        """Capture before and after a piece of work, also where it fails.

        `rollback`: where it raises, or the check of `verify` does not pass, what was there before is restored; what it
        left is kept as a moment all the same. Everything else that is asked is what `capture` takes.

        >>> from pathlib import Path
        >>> with history.around("refactor", verify="test -f app.py") as moment:
        ...     _ = Path("app.py").write_text("refactored")
        >>> moment.before.intent, moment.after.snapshot.intent, moment.passed
        ('before: refactor', 'refactor', True)
        >>> with history.around("go too far", rollback=True) as moment:
        ...     _ = Path("app.py").write_text("broken")
        ...     raise ValueError("that was wrong")
        Traceback (most recent call last):
            ...
        ValueError: that was wrong
        >>> Path("app.py").read_text(), moment.restored.exact
        ('refactored', True)
        """
        return GuardedWork(self, intent, rollback, asked)

    @overload
    def tool(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        called: str | None = None,
        rollback: bool = False,
        **asked: Unpack[CaptureKeywords],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        called: str | None = None,
        rollback: bool = False,
        **asked: Unpack[CaptureKeywords],
    ) -> Callable[..., Any]:
        """A decorator: what an agent calls has a moment before and after each call.

        It may be a function, a coroutine, or a generator of either kind: then from its first step to its end.

        Nothing is captured where nothing changed. The call stands in the intent, and with the actor the tool: `called`,
        or the name of the function.

        >>> from pathlib import Path
        >>> @history.tool(rollback=True)
        ... def write_file(path: str, text: str) -> int:
        ...     return Path(path).write_text(text)
        >>> write_file("app.py", text="by a tool")
        9
        >>> history.log(limit=1)[0].intent
        "write_file('app.py', text='by a tool')"
        """

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            tool = called or str(getattr(function, "__name__", "tool"))

            def begin(args: tuple[object, ...], kwargs: dict[str, object]) -> GuardedWork:
                whole = cast("CaptureKeywords", {**self.as_tool(tool), "if_changed": True, **asked})
                return self.around(call_words(tool, args, kwargs), rollback=rollback, **whole)

            return _wrapped(function, begin)

        return decorate if function is None else decorate(function)


def _wrapped(
    function: Callable[..., Any], begin: Callable[[tuple[object, ...], dict[str, object]], GuardedWork]
) -> Callable[..., Any]:
    import inspect  # loaded late: only a tool needs it

    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def yielded(*args: Any, **kwargs: Any) -> Any:
            # It works as it is gone through: what it came to is there at its end.
            with begin(args, kwargs):
                return (yield from function(*args, **kwargs))

        return yielded

    if inspect.isasyncgenfunction(function):
        return _wrapped_stream(function, begin)

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            from git_envhist.library.awaiting import around  # loaded late: its host has asyncio already

            async with around(begin(args, kwargs)):
                return await function(*args, **kwargs)

        return awaited

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with begin(args, kwargs):
            return function(*args, **kwargs)

    return called


def _wrapped_stream(
    function: Callable[..., Any], begin: Callable[[tuple[object, ...], dict[str, object]], GuardedWork]
) -> Callable[..., Any]:
    @wraps(function)
    async def streamed(*args: Any, **kwargs: Any) -> Any:
        from contextlib import aclosing  # loaded late: its host has asyncio already

        from git_envhist.library.awaiting import around  # loaded late: likewise

        async with around(begin(args, kwargs)), aclosing(function(*args, **kwargs)) as stream:
            async for one in stream:
                yield one

    return streamed


def call_words(name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    """A call in the words of Python, cut where it is long; without the secret part of any token."""
    from git_envhist.capture.masking import mask_text  # loaded late: only a tool needs it

    told = [*map(_short, args), *(f"{key}={_short(value)}" for key, value in kwargs.items())]
    words = mask_text(f"{name}({', '.join(told)})")
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"


def _short(value: object) -> str:
    # Longer than what is shown, so that no token is cut in two and not known as one any more.
    if isinstance(value, str | bytes):
        value = value[: 4 * LONGEST]
    try:
        return repr(value)[: 8 * LONGEST]
    except Exception:
        # What a tool is given is no business of ours to fail at.
        return f"<{type(value).__name__}>"
