"""Verbs as coroutines: each runs in a thread, and is waited for to its end.

A verb that was begun cannot be stopped half way, so whoever is cancelled while waiting for one is told so only when it
has ended: nothing happens to the environment behind anybody's back.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from git_envhist.library.rounds import GuardedWork

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
