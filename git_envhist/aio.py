"""The same verbs for a program that lives in `asyncio`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from git_envhist.api import EnvHistory
from git_envhist.around import Forget, Handler
from git_envhist.tracking.effects import Effects, Observations
from git_envhist.tracking.tasks import Tasks

if TYPE_CHECKING:
    import os
    from typing import Self, Unpack

    from git_envhist.api import GuardedWork
    from git_envhist.capture.pipeline import CaptureKeywords
    from git_envhist.discovery import InitKeywords
    from git_envhist.model import (
        AgentName,
        CaptureProgress,
        CaptureResult,
        RestorePlan,
        RestoreResult,
        SnapshotRef,
    )
    from git_envhist.restore.options import RestoreKeywords, RestoreOptions


# Verbs as coroutines: each runs in a thread, and is waited for to its end.
#
# A verb that was begun cannot be stopped half way, so whoever is cancelled while waiting for one is told so only when
# it has ended: nothing happens to the environment behind anybody's back.

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
H_co = TypeVar("H_co", covariant=True)
V = TypeVar("V")


async def in_a_thread(
    verb: Callable[Parameters, Result], /, *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """What a verb gives; a cancellation is heeded once it has ended."""
    return await await_uninterrupted(asyncio.ensure_future(asyncio.to_thread(verb, *args, **kwargs)))


async def await_uninterrupted(running: asyncio.Future[Result]) -> Result:
    """What comes of it; a cancellation is heeded once it is there."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # However often somebody asks: a loop that ends asks once more.
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise


class AsyncWrapper(Generic[H_co]):
    """Something whose verbs are coroutines here."""

    def __init__(self, held: H_co) -> None:
        self._held = held


def awaited(
    verb: Callable[Concatenate[V, Parameters], Result],
) -> Callable[Concatenate[AsyncWrapper[V], Parameters], Coroutine[Any, Any, Result]]:
    """The same verb, for whoever waits."""

    @functools.wraps(verb)
    async def waited(self: AsyncWrapper[V], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return await in_a_thread(verb, self._held, *args, **kwargs)

    return waited


@asynccontextmanager
async def around(begun: GuardedWork) -> AsyncIterator[GuardedWork]:
    """A piece of work between two moments."""
    await in_a_thread(begun.__enter__)
    try:
        yield begun
    except BaseException as error:
        await in_a_thread(begun.__exit__, type(error), error, error.__traceback__)
        raise
    await in_a_thread(begun.__exit__, None, None, None)


P = ParamSpec("P")
R = TypeVar("R")
MAX_LENGTH = 0.2
"""Whoever stops watching is heard after so many seconds."""


class AsyncTasks(AsyncWrapper[Tasks]):
    """The tasks of a timeline."""

    all = awaited(Tasks.all)
    add = awaited(Tasks.add)
    set = awaited(Tasks.set)
    resume = awaited(Tasks.resume)


class AsyncEffects(AsyncWrapper[Effects]):
    """What was done outside the machine."""

    all = awaited(Effects.all)
    since = awaited(Effects.since)
    note = awaited(Effects.note)
    perform = awaited(Effects.perform)


class AsyncObservations(AsyncWrapper[Observations]):
    """Checkpoints of the platform below us that were made without us."""

    all = awaited(Observations.all)
    find = awaited(Observations.find)
    note = awaited(Observations.note)
    look = awaited(Observations.look)


class AsyncEnvHistory(AsyncWrapper[EnvHistory]):
    """An `EnvHistory` whose verbs are coroutines.

    >>> import asyncio
    >>> from git_envhist import AsyncEnvHistory
    >>> async def work() -> str:
    ...     history = await AsyncEnvHistory.open(".")
    ...     async with history.around("refactor", rollback=True) as moment:
    ...         pass
    ...     await history.tasks.add("write the server")
    ...     return (await history.log(limit=1))[0].intent
    >>> asyncio.run(work())
    'refactor'
    """

    def __repr__(self) -> str:
        return f"Async{self._held!r}"

    @classmethod
    async def open(
        cls,
        directory: str | os.PathLike[str] = ".",
        *,
        environ: Mapping[str, str] | None = None,
        workers: str = "spawn",
        agent: AgentName | None = None,
        bare: bool = False,
    ) -> Self:
        """As `EnvHistory.open`."""
        return cls(
            await in_a_thread(
                EnvHistory.open, directory, environ=environ, workers=workers, agent=agent, bare=bare
            )
        )

    @classmethod
    async def init(
        cls,
        directory: str | os.PathLike[str] = ".",
        *,
        workers: str = "spawn",
        agent: AgentName | None = None,
        **wish: Unpack[InitKeywords],
    ) -> Self:
        """As `EnvHistory.init`."""
        return cls(await in_a_thread(EnvHistory.init, directory, workers=workers, agent=agent, **wish))

    @property
    def history(self) -> EnvHistory:
        """The same, for whoever does not wait."""
        return self._held

    @property
    def timeline(self) -> str | None:
        """The name of this working tree's timeline; None before its first capture."""
        return self._held.timeline

    @property
    def agent(self) -> AgentName | None:
        """The agent in whose name this history is used; None where a person does."""
        return self._held.agent

    @property
    def tasks(self) -> AsyncTasks:
        """The tasks of this timeline."""
        return AsyncTasks(self._held.tasks)

    @property
    def effects(self) -> AsyncEffects:
        """What was done outside the machine."""
        return AsyncEffects(self._held.effects)

    @property
    def observed(self) -> AsyncObservations:
        """Checkpoints of the platform below us that were made without us."""
        return AsyncObservations(self._held.observed)

    capture = awaited(EnvHistory.capture)
    log = awaited(EnvHistory.log)
    recent = awaited(EnvHistory.recent)
    page = awaited(EnvHistory.page)
    timelines = awaited(EnvHistory.timelines)
    resolve = awaited(EnvHistory.resolve)
    get = awaited(EnvHistory.get)
    diff = awaited(EnvHistory.diff)
    read_file = awaited(EnvHistory.read_file)
    name = awaited(EnvHistory.name)
    remove_name = awaited(EnvHistory.remove_name)
    note = awaited(EnvHistory.note)
    attach = awaited(EnvHistory.attach)
    attachments = awaited(EnvHistory.attachments)
    foresee = awaited(EnvHistory.foresee)
    write_to = awaited(EnvHistory.write_to)
    plan_fork = awaited(EnvHistory.plan_fork)
    undo = awaited(EnvHistory.undo)
    redo = awaited(EnvHistory.redo)
    finish_restore = awaited(EnvHistory.finish_restore)
    take_back_restore = awaited(EnvHistory.take_back_restore)
    verify = awaited(EnvHistory.verify)
    bisect = awaited(EnvHistory.bisect)
    run = awaited(EnvHistory.run)
    push = awaited(EnvHistory.push)
    fetch = awaited(EnvHistory.fetch)
    export = awaited(EnvHistory.export)
    import_ = awaited(EnvHistory.import_)
    drop = awaited(EnvHistory.drop)
    undrop = awaited(EnvHistory.undrop)
    prune = awaited(EnvHistory.prune)
    purge = awaited(EnvHistory.purge)
    gc = awaited(EnvHistory.gc)
    du = awaited(EnvHistory.du)
    fsck = awaited(EnvHistory.fsck)
    install = awaited(EnvHistory.install)
    uninstall = awaited(EnvHistory.uninstall)
    status = awaited(EnvHistory.status)

    @overload
    async def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: Literal[True],
        wish: RestoreOptions | None = None,
        **wished: Unpack[RestoreKeywords],
    ) -> RestorePlan: ...

    @overload
    async def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: Literal[False] = False,
        verify: bool | str = False,
        wish: RestoreOptions | None = None,
        **wished: Unpack[RestoreKeywords],
    ) -> RestoreResult: ...

    async def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: bool = False,
        verify: bool | str = False,
        wish: RestoreOptions | None = None,
        **wished: Unpack[RestoreKeywords],
    ) -> RestoreResult | RestorePlan:
        """As `EnvHistory.restore`."""
        restore = self._held.restore
        if dry_run:
            return await in_a_thread(lambda: restore(revision, dry_run=True, wish=wish, **wished))
        return await in_a_thread(lambda: restore(revision, verify=verify, wish=wish, **wished))

    async def fork(
        self,
        revision: SnapshotRef,
        directory: str | os.PathLike[str],
        *,
        branch: str | None = None,
        relocate: bool = False,
        allow_unsigned: bool = False,
        progress: Callable[[CaptureProgress], None] | None = None,
    ) -> AsyncEnvHistory:
        """As `EnvHistory.fork`."""
        how: dict[str, Any] = {
            "branch": branch,
            "relocate": relocate,
            "allow_unsigned": allow_unsigned,
            "progress": progress,
        }
        return AsyncEnvHistory(await in_a_thread(lambda: self._held.fork(revision, directory, **how)))

    async def watch(self, *, settle: float = 2.0) -> AsyncIterator[CaptureResult]:
        """As `EnvHistory.watch`; it ends with the task that goes through it, or with `aclose()`."""
        looks = self._held.watched(settle, MAX_LENGTH)
        # One thread from the first look to the last: the lock of a watch is held by the thread that took it.
        with ThreadPoolExecutor(1, "git-envhist-watch") as thread:
            try:
                while True:
                    found = await await_uninterrupted(asyncio.wrap_future(thread.submit(next, looks)))
                    if found is not None:
                        yield found
            finally:
                await await_uninterrupted(asyncio.wrap_future(thread.submit(looks.close)))

    @asynccontextmanager
    async def around(
        self, intent: str, *, rollback: bool = False, **asked: Unpack[CaptureKeywords]
    ) -> AsyncIterator[GuardedWork]:
        """As `EnvHistory.around`."""
        begun = self._held.around(intent, rollback=rollback, **asked)
        async with around(begun) as moment:
            yield moment

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

    def tool(self, function: Callable[..., Any] | None = None, /, **asked: Any) -> Callable[..., Any]:
        """As `EnvHistory.tool`: it decorates coroutines as well as functions."""
        return self._held.tool(**asked) if function is None else self._held.tool(function)

    def on(self, event: str, handler: Handler) -> Forget:
        """As `EnvHistory.on`; the handler is called, and a coroutine of its making awaited, in this very loop."""
        loop = asyncio.get_running_loop()
        failed = self._held.handlers.failed
        waiting: set[asyncio.Task[None]] = set()

        async def until_told(told: Coroutine[Any, Any, object]) -> None:
            try:
                await told
            except Exception as error:
                failed(event, error)

        def call(*about: object) -> None:
            try:
                told = handler(*about)
            except Exception as error:
                failed(event, error)
                return
            if asyncio.iscoroutine(told):
                task = loop.create_task(until_told(told))
                waiting.add(task)
                task.add_done_callback(waiting.discard)

        return self._held.on(event, lambda *about: loop.call_soon_threadsafe(call, *about))
