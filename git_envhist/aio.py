"""AsyncEnvHistory: the verbs of `EnvHistory` as coroutines.

Each verb runs in a thread. It cannot be stopped, so a cancellation is raised when the verb has ended: nothing changes
the environment after the caller continues.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from git_envhist.api import EnvHistory
from git_envhist.guarded_work import Forget, GuardedWork, Handler, await_to_end, in_thread, work_in_thread
from git_envhist.tracking.effects import Effects, Observations
from git_envhist.tracking.tasks import Tasks

if TYPE_CHECKING:
    import os
    from typing import Self, Unpack

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

P = ParamSpec("P")
R = TypeVar("R")
Wrapped_co = TypeVar("Wrapped_co", covariant=True)
W = TypeVar("W")
WATCH_TIMEOUT = 0.2
"""Seconds until a watch notices that its caller stopped."""


class AsyncWrapper(Generic[Wrapped_co]):
    """An object with verbs, and the same verbs as coroutines."""

    def __init__(self, wrapped: Wrapped_co) -> None:
        self._wrapped = wrapped


def as_coroutine(
    verb: Callable[Concatenate[W, P], R],
) -> Callable[Concatenate[AsyncWrapper[W], P], Coroutine[Any, Any, R]]:
    """Return a verb as a coroutine of the wrapper."""

    @functools.wraps(verb)
    async def run(self: AsyncWrapper[W], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await in_thread(verb, self._wrapped, *args, **kwargs)

    return run


class AsyncTasks(AsyncWrapper[Tasks]):
    """`Tasks` with coroutines."""

    all = as_coroutine(Tasks.all)
    add = as_coroutine(Tasks.add)
    set = as_coroutine(Tasks.set)
    resume = as_coroutine(Tasks.resume)


class AsyncEffects(AsyncWrapper[Effects]):
    """`Effects` with coroutines."""

    all = as_coroutine(Effects.all)
    since = as_coroutine(Effects.since)
    note = as_coroutine(Effects.note)
    perform = as_coroutine(Effects.perform)


class AsyncObservations(AsyncWrapper[Observations]):
    """`Observations` with coroutines."""

    all = as_coroutine(Observations.all)
    find = as_coroutine(Observations.find)
    note = as_coroutine(Observations.note)
    look = as_coroutine(Observations.look)


class AsyncEnvHistory(AsyncWrapper[EnvHistory]):
    """An `EnvHistory` with coroutines as verbs.

    >>> import asyncio
    >>> from git_envhist import AsyncEnvHistory
    >>> async def work() -> str:
    ...     history = await AsyncEnvHistory.open(".")
    ...     async with history.around("refactor", rollback=True) as work:
    ...         pass
    ...     await history.tasks.add("write the server")
    ...     return (await history.log(limit=1))[0].intent
    >>> asyncio.run(work())
    'refactor'
    """

    def __repr__(self) -> str:
        return f"Async{self._wrapped!r}"

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
            await in_thread(
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
        **keywords: Unpack[InitKeywords],
    ) -> Self:
        """As `EnvHistory.init`."""
        return cls(await in_thread(EnvHistory.init, directory, workers=workers, agent=agent, **keywords))

    @property
    def history(self) -> EnvHistory:
        """The history itself, with blocking verbs."""
        return self._wrapped

    @property
    def timeline(self) -> str | None:
        """The name of this working tree's timeline; None before its first capture."""
        return self._wrapped.timeline

    @property
    def agent(self) -> AgentName | None:
        """The agent that uses this history; None for a person."""
        return self._wrapped.agent

    @property
    def tasks(self) -> AsyncTasks:
        """The tasks of this timeline."""
        return AsyncTasks(self._wrapped.tasks)

    @property
    def effects(self) -> AsyncEffects:
        """The effects outside the machine."""
        return AsyncEffects(self._wrapped.effects)

    @property
    def observed(self) -> AsyncObservations:
        """Checkpoints that the platform below took without us."""
        return AsyncObservations(self._wrapped.observed)

    capture = as_coroutine(EnvHistory.capture)
    log = as_coroutine(EnvHistory.log)
    why = as_coroutine(EnvHistory.why)
    why_failed = as_coroutine(EnvHistory.why_failed)
    blame = as_coroutine(EnvHistory.blame)
    recent = as_coroutine(EnvHistory.recent)
    page = as_coroutine(EnvHistory.page)
    timelines = as_coroutine(EnvHistory.timelines)
    resolve = as_coroutine(EnvHistory.resolve)
    get = as_coroutine(EnvHistory.get)
    diff = as_coroutine(EnvHistory.diff)
    read_file = as_coroutine(EnvHistory.read_file)
    name = as_coroutine(EnvHistory.name)
    remove_name = as_coroutine(EnvHistory.remove_name)
    note = as_coroutine(EnvHistory.note)
    attach = as_coroutine(EnvHistory.attach)
    attachments = as_coroutine(EnvHistory.attachments)
    preview = as_coroutine(EnvHistory.preview)
    write_to = as_coroutine(EnvHistory.write_to)
    plan_fork = as_coroutine(EnvHistory.plan_fork)
    undo = as_coroutine(EnvHistory.undo)
    revert = as_coroutine(EnvHistory.revert)
    merge = as_coroutine(EnvHistory.merge)
    redo = as_coroutine(EnvHistory.redo)
    continue_restore = as_coroutine(EnvHistory.continue_restore)
    abort_restore = as_coroutine(EnvHistory.abort_restore)
    verify = as_coroutine(EnvHistory.verify)
    bisect = as_coroutine(EnvHistory.bisect)
    run = as_coroutine(EnvHistory.run)
    push = as_coroutine(EnvHistory.push)
    fetch = as_coroutine(EnvHistory.fetch)
    export = as_coroutine(EnvHistory.export)
    import_ = as_coroutine(EnvHistory.import_)
    drop = as_coroutine(EnvHistory.drop)
    undrop = as_coroutine(EnvHistory.undrop)
    prune = as_coroutine(EnvHistory.prune)
    purge = as_coroutine(EnvHistory.purge)
    gc = as_coroutine(EnvHistory.gc)
    du = as_coroutine(EnvHistory.du)
    fsck = as_coroutine(EnvHistory.fsck)
    install = as_coroutine(EnvHistory.install)
    uninstall = as_coroutine(EnvHistory.uninstall)
    status = as_coroutine(EnvHistory.status)

    @overload
    async def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: Literal[True],
        options: RestoreOptions | None = None,
        **keywords: Unpack[RestoreKeywords],
    ) -> RestorePlan: ...

    @overload
    async def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: Literal[False] = False,
        verify: bool | str = False,
        options: RestoreOptions | None = None,
        **keywords: Unpack[RestoreKeywords],
    ) -> RestoreResult: ...

    async def restore(
        self,
        revision: SnapshotRef,
        *,
        dry_run: bool = False,
        verify: bool | str = False,
        options: RestoreOptions | None = None,
        **keywords: Unpack[RestoreKeywords],
    ) -> RestoreResult | RestorePlan:
        """As `EnvHistory.restore`."""
        restore = self._wrapped.restore
        if dry_run:
            return await in_thread(lambda: restore(revision, dry_run=True, options=options, **keywords))
        return await in_thread(lambda: restore(revision, verify=verify, options=options, **keywords))

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
        keywords: dict[str, Any] = {
            "branch": branch,
            "relocate": relocate,
            "allow_unsigned": allow_unsigned,
            "progress": progress,
        }
        return AsyncEnvHistory(await in_thread(lambda: self._wrapped.fork(revision, directory, **keywords)))

    async def watch(self, *, settle: float = 2.0) -> AsyncIterator[CaptureResult]:
        """As `EnvHistory.watch`; it ends with the task that iterates over it, or with `aclose()`."""
        found = self._wrapped.watch_or_timeout(settle, WATCH_TIMEOUT)
        # One thread for all steps: the thread that took the lock of a watch must release it.
        with ThreadPoolExecutor(1, "git-envhist-watch") as thread:
            try:
                while True:
                    captured = await await_to_end(asyncio.wrap_future(thread.submit(next, found)))
                    if captured is not None:
                        yield captured
            finally:
                await await_to_end(asyncio.wrap_future(thread.submit(found.close)))

    @asynccontextmanager
    async def around(
        self, intent: str, *, rollback: bool = False, **keywords: Unpack[CaptureKeywords]
    ) -> AsyncIterator[GuardedWork]:
        """As `EnvHistory.around`."""
        begun = self._wrapped.around(intent, rollback=rollback, **keywords)
        async with work_in_thread(begun) as work:
            yield work

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
        **keywords: Unpack[CaptureKeywords],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def tool(self, function: Callable[..., Any] | None = None, /, **keywords: Any) -> Callable[..., Any]:
        """As `EnvHistory.tool`: it decorates coroutines as well as functions."""
        return self._wrapped.tool(**keywords) if function is None else self._wrapped.tool(function)

    def on(self, event: str, handler: Handler) -> Forget:
        """As `EnvHistory.on`; the handler is called in this loop, and a coroutine that it returns is awaited."""
        loop = asyncio.get_running_loop()
        warn_failed = self._wrapped.handlers.warn_failed
        waiting: set[asyncio.Task[None]] = set()

        async def wait(result: Coroutine[Any, Any, object]) -> None:
            try:
                await result
            except Exception as error:
                warn_failed(event, error)

        def call(*about: object) -> None:
            try:
                result = handler(*about)
            except Exception as error:
                warn_failed(event, error)
                return
            if asyncio.iscoroutine(result):
                task = loop.create_task(wait(result))
                waiting.add(task)
                task.add_done_callback(waiting.discard)

        return self._wrapped.on(event, lambda *about: loop.call_soon_threadsafe(call, *about))
