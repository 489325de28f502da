"""The same verbs for a program that lives in `asyncio`: each runs in a thread, and is waited for to its end.

A verb that was begun cannot be stopped half way, so whoever is cancelled while waiting for one is told so only when it
has ended: nothing happens to the environment behind anybody's back.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from git_envhist.library.events import Forget, Handler
from git_envhist.library.history import EnvHistory
from git_envhist.library.rounds import Round

if TYPE_CHECKING:
    import os
    from typing import Self, Unpack

    from git_envhist.capturing.request import Asked
    from git_envhist.library.rounds import Round
    from git_envhist.model import Moment, Plan, Restored
    from git_envhist.restoring.wish import Wish, Wished

P = ParamSpec("P")
R = TypeVar("R")


async def in_a_thread(verb: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """What a verb gives; a cancellation is heeded once it has ended."""
    running = asyncio.ensure_future(asyncio.to_thread(verb, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


@asynccontextmanager
async def around(begun: Round) -> AsyncIterator[Round]:
    """A piece of work between two moments."""
    await in_a_thread(begun.__enter__)
    try:
        yield begun
    except BaseException as error:
        await in_a_thread(begun.__exit__, type(error), error, error.__traceback__)
        raise
    await in_a_thread(begun.__exit__, None, None, None)


def _awaited(
    verb: Callable[Concatenate[EnvHistory, P], R],
) -> Callable[Concatenate[AsyncEnvHistory, P], Coroutine[Any, Any, R]]:
    @functools.wraps(verb)
    async def awaited(self: AsyncEnvHistory, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await in_a_thread(verb, self.history, *args, **kwargs)

    return awaited


class AsyncEnvHistory:
    """An `EnvHistory` whose verbs are coroutines.

    >>> import asyncio
    >>> from git_envhist import AsyncEnvHistory
    >>> async def work() -> str:
    ...     history = await AsyncEnvHistory.open(".")
    ...     async with history.around("refactor", rollback=True) as moment:
    ...         pass
    ...     return (await history.log(limit=1))[0].intent
    >>> asyncio.run(work())
    'refactor'
    """

    def __init__(self, history: EnvHistory) -> None:
        self.history = history
        """The same, for whoever does not wait."""

    @classmethod
    async def open(cls, *args: Any, **kwargs: Any) -> Self:
        """As `EnvHistory.open`."""
        return cls(await in_a_thread(EnvHistory.open, *args, **kwargs))

    @classmethod
    async def init(cls, *args: Any, **kwargs: Any) -> Self:
        """As `EnvHistory.init`."""
        return cls(await in_a_thread(EnvHistory.init, *args, **kwargs))

    capture = _awaited(EnvHistory.capture)
    log = _awaited(EnvHistory.log)
    recent = _awaited(EnvHistory.recent)
    timelines = _awaited(EnvHistory.timelines)
    resolve = _awaited(EnvHistory.resolve)
    get = _awaited(EnvHistory.get)
    diff = _awaited(EnvHistory.diff)
    read_file = _awaited(EnvHistory.read_file)
    name = _awaited(EnvHistory.name)
    remove_name = _awaited(EnvHistory.remove_name)
    note = _awaited(EnvHistory.note)
    attach = _awaited(EnvHistory.attach)
    attachments = _awaited(EnvHistory.attachments)
    foresee = _awaited(EnvHistory.foresee)
    write_to = _awaited(EnvHistory.write_to)
    undo = _awaited(EnvHistory.undo)
    redo = _awaited(EnvHistory.redo)
    finish_restore = _awaited(EnvHistory.finish_restore)
    take_back_restore = _awaited(EnvHistory.take_back_restore)
    verify = _awaited(EnvHistory.verify)
    bisect = _awaited(EnvHistory.bisect)
    run = _awaited(EnvHistory.run)
    push = _awaited(EnvHistory.push)
    fetch = _awaited(EnvHistory.fetch)
    export = _awaited(EnvHistory.export)
    import_ = _awaited(EnvHistory.import_)
    drop = _awaited(EnvHistory.drop)
    undrop = _awaited(EnvHistory.undrop)
    prune = _awaited(EnvHistory.prune)
    purge = _awaited(EnvHistory.purge)
    gc = _awaited(EnvHistory.gc)
    du = _awaited(EnvHistory.du)
    fsck = _awaited(EnvHistory.fsck)
    install = _awaited(EnvHistory.install)
    uninstall = _awaited(EnvHistory.uninstall)
    status = _awaited(EnvHistory.status)

    @overload
    async def restore(
        self,
        revision: Moment,
        *,
        dry_run: Literal[True],
        wish: Wish | None = None,
        **wished: Unpack[Wished],
    ) -> Plan: ...

    @overload
    async def restore(
        self,
        revision: Moment,
        *,
        dry_run: Literal[False] = False,
        wish: Wish | None = None,
        **wished: Unpack[Wished],
    ) -> Restored: ...

    async def restore(
        self,
        revision: Moment,
        *,
        dry_run: bool = False,
        wish: Wish | None = None,
        **wished: Unpack[Wished],
    ) -> Restored | Plan:
        """As `EnvHistory.restore`."""
        restore = self.history.restore
        if dry_run:
            return await in_a_thread(lambda: restore(revision, dry_run=True, wish=wish, **wished))
        return await in_a_thread(lambda: restore(revision, wish=wish, **wished))

    async def fork(self, revision: Moment, directory: str | os.PathLike[str]) -> AsyncEnvHistory:
        """As `EnvHistory.fork`."""
        return AsyncEnvHistory(await in_a_thread(self.history.fork, revision, str(directory)))

    @asynccontextmanager
    async def around(
        self, intent: str, *, rollback: bool = False, **asked: Unpack[Asked]
    ) -> AsyncIterator[Round]:
        """As `EnvHistory.around`."""
        begun = self.history.around(intent, rollback=rollback, **asked)
        async with around(begun) as moment:
            yield moment

    @property
    def tool(self) -> Any:
        """As `EnvHistory.tool`: it decorates coroutines as well as functions."""
        return self.history.tool

    def on(self, event: str, handler: Handler) -> Forget:
        """As `EnvHistory.on`; the handler is called, and a coroutine of its making awaited, in this very loop."""
        loop = asyncio.get_running_loop()

        def call(*about: object) -> None:
            done = handler(*about)
            if asyncio.iscoroutine(done):
                task = loop.create_task(done)
                waiting.add(task)
                task.add_done_callback(waiting.discard)

        waiting: set[asyncio.Task[object]] = set()
        return self.history.on(event, lambda *about: loop.call_soon_threadsafe(call, *about))
