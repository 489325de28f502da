"""The same verbs for a program that lives in `asyncio`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from git_envhist.doing.effects import Effects
from git_envhist.doing.observing import Observations
from git_envhist.doing.tasks import Tasks
from git_envhist.library.awaiting import AsyncWrapper, around, await_uninterrupted, awaited, in_a_thread
from git_envhist.library.events import Forget, Handler
from git_envhist.library.history import EnvHistory

if TYPE_CHECKING:
    import os
    from typing import Self, Unpack

    from git_envhist.beginning import InitKeywords
    from git_envhist.capturing.request import CaptureKeywords
    from git_envhist.library.rounds import GuardedWork
    from git_envhist.model import (
        AgentName,
        CaptureProgress,
        CaptureResult,
        Moment,
        RestorePlan,
        RestoreResult,
    )
    from git_envhist.restoring.wish import RestoreKeywords, RestoreOptions

P = ParamSpec("P")
R = TypeVar("R")
LONGEST = 0.2
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
        revision: Moment,
        *,
        dry_run: Literal[True],
        wish: RestoreOptions | None = None,
        **wished: Unpack[RestoreKeywords],
    ) -> RestorePlan: ...

    @overload
    async def restore(
        self,
        revision: Moment,
        *,
        dry_run: Literal[False] = False,
        verify: bool | str = False,
        wish: RestoreOptions | None = None,
        **wished: Unpack[RestoreKeywords],
    ) -> RestoreResult: ...

    async def restore(
        self,
        revision: Moment,
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
        revision: Moment,
        directory: str | os.PathLike[str],
        *,
        branch: str | None = None,
        relocate: bool = False,
        foreign: bool = False,
        progress: Callable[[CaptureProgress], None] | None = None,
    ) -> AsyncEnvHistory:
        """As `EnvHistory.fork`."""
        how: dict[str, Any] = {
            "branch": branch,
            "relocate": relocate,
            "foreign": foreign,
            "progress": progress,
        }
        return AsyncEnvHistory(await in_a_thread(lambda: self._held.fork(revision, directory, **how)))

    async def watch(self, *, settle: float = 2.0) -> AsyncIterator[CaptureResult]:
        """As `EnvHistory.watch`; it ends with the task that goes through it, or with `aclose()`."""
        looks = self._held.watched(settle, LONGEST)
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
