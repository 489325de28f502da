"""Serve over HTTP to clients of this machine that know a token.

The socket is bound to the loopback address. A web page in a browser can reach that address too, so the protocol's
package checks `Host` and `Origin`, and each request needs the token.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import HANDLED_SIGNALS

from git_envhist.errors import EnvhistError, UsageError
from git_envhist.mcp.confirm_plans import HistoryServer
from git_envhist.mcp.limit_connections import Address, ConnectionLimiter, LoopbackServer, max_unknown
from git_envhist.mcp.run_programs import TOKEN

LOOPBACK = "127.0.0.1"
SHORTEST_TOKEN = 24
TOKEN_BYTES = 32
STOP_SECONDS = 5
"""Seconds for which a server that stops waits for open connections."""


class CannotListen(EnvhistError):
    """The port cannot be used."""

    code = "cannot-listen"
    usual_hint = "use --http 0 for any free port"


def serve_http(server: HistoryServer, port: int, announce: Callable[[str], None]) -> None:
    """Serve on a port of the loopback address until a signal arrives; `announce` gets the address and the token."""
    given = os.environ.get(TOKEN)
    token = read_token(given)
    listening = _listen(port)
    # A signal between the announcement and the handlers of the server could be lost, and the server would never end.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    announce(f"serving on http://{LOOPBACK}:{listening.getsockname()[1]}/mcp")
    if given is None:
        announce(f"token: {token}")
    connections = ConnectionLimiter(max_unknown())
    app = TokenGate(server.streamable_http_app(host=LOOPBACK), token, connections.accept)
    with listening:
        LoopbackServer(_configure(app, connections)).run(sockets=[listening])


def _configure(app: ASGIApp, connections: ConnectionLimiter) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=connections.protocol(),
        ws="none",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        backlog=connections.batch,
        callback_notify=connections.close_expired,
        timeout_notify=1,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


def read_token(given: str | None) -> str:
    """Return the token that the user chose, or a random one; raise `UsageError` if it can be guessed."""
    if given is None:
        return secrets.token_urlsafe(TOKEN_BYTES)
    if len(given) < SHORTEST_TOKEN or not (given.isascii() and given.isprintable()):
        raise UsageError(
            f"{TOKEN} is too short, or not ASCII", hint=f"use at least {SHORTEST_TOKEN} random characters"
        )
    return given


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        # A client may connect as soon as it reads the address.
        listening.listen()
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotListen(f"cannot listen on port {port}: {reason}") from error
    return listening


class TokenGate:
    """Pass on requests with the token; answer all others with 401."""

    def __init__(self, app: ASGIApp, token: str, accept: Callable[[Address], None]) -> None:
        """`accept` is called with the address of each client that sent the token."""
        self._app = app
        self._accept = accept
        self._expected = f"Bearer {token}".encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and not self._is_known(scope):
            refusal = PlainTextResponse("a token is needed", 401, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, send)
            return
        if scope.get("client"):
            self._accept(tuple(scope["client"]))
        await self._app(scope, receive, send)

    def _is_known(self, scope: dict[str, Any] | Scope) -> bool:
        found = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        return len(found) == 1 and secrets.compare_digest(found[0], self._expected)
