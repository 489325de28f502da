"""Limit the connections of clients that have not sent the token.

Every account of the machine can connect. Connections without the token are therefore limited in number and time: a new
one closes the oldest, so that a client with the token is accepted while another account opens connections, and the
server keeps descriptors for its own work.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import HANDLED_SIGNALS

Address = tuple[str, int]
"""The address of a client, whose port names one connection."""

MAX_UNKNOWN = 128
"""Connections without the token; fewer if the process may have few descriptors."""
LEAST_UNKNOWN = 16
SHARE = 8
"""The part of all descriptors that connections without the token may use is one of this number."""
BATCHES = 8
"""One turn of the event loop accepts at most one of this number of them.

A client that sends its header at once is known three turns after it was accepted, before newer connections close it.
"""
HEADER_TIMEOUT = 10.0
"""Seconds until a connection without the token is closed."""
QUEUE = 1024
"""Connections that the kernel keeps until the server accepts them."""


class ConnectionLimiter:
    """The open connections without the token, oldest first."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._unknown: dict[asyncio.Transport, float] = {}

    @property
    def batch(self) -> int:
        """The number of connections to accept at once."""
        return max(1, self._limit // BATCHES)

    def add(self, transport: asyncio.Transport) -> None:
        """Add a connection; close the oldest one if there are too many."""
        self._unknown[transport] = self._clock()
        if len(self._unknown) > self._limit:
            self._close(next(iter(self._unknown)))

    def remove(self, transport: asyncio.Transport) -> None:
        """Forget a connection that was closed."""
        self._unknown.pop(transport, None)

    def accept(self, client: Address) -> None:
        """Keep the connection of a client that sent the token."""
        for transport in [one for one in self._unknown if one.get_extra_info("peername") == client]:
            self.remove(transport)

    async def close_expired(self) -> None:
        """Close connections that did not send the token in time."""
        oldest = self._clock() - HEADER_TIMEOUT
        for transport in [one for one, since in self._unknown.items() if since <= oldest]:
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        self.remove(transport)
        # Unsent bytes are discarded: a client that reads nothing would keep the connection open.
        transport.abort()

    def protocol(self) -> type[H11Protocol]:
        """Return the protocol of HTTP whose connections are counted here."""
        connections = self

        class CountedProtocol(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                connections.add(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                connections.remove(self.transport)
                super().connection_lost(exc)

        return CountedProtocol


def max_unknown() -> int:
    """Return the number of connections without the token, by the limit of descriptors of this process."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return MAX_UNKNOWN
    return max(LEAST_UNKNOWN, min(MAX_UNKNOWN, descriptors // SHARE))


class LoopbackServer(uvicorn.Server):
    """A server that no error of its event loop ends."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(_report)
        # The handlers of the server are installed now; a signal that waits reaches them.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)
        await super().startup(sockets)
        # The event loop accepts as many connections at once as its queue is long, so it was given a short one.
        for listening in sockets or ():
            listening.listen(QUEUE)


NO_DESCRIPTOR = frozenset((errno.EMFILE, errno.ENFILE))


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error of the event loop; never raise one, which would end the server.

    If no connection can be accepted for lack of descriptors, the loop tries again after a second. Nothing is reported
    then: a report can load a module, which fails for the same reason.
    """
    error = cast("BaseException | None", context.get("exception"))
    if isinstance(error, OSError) and error.errno in NO_DESCRIPTOR:
        return
    with suppress(Exception):
        loop.default_exception_handler(context)
