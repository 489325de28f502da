"""Ask the watcher of a working tree what may have changed. Without a watcher, or with any doubt, everything has.

A request and its answer are one JSON object each, over a socket in the private state directory of the working tree.
Paths in them are bytes written as Latin-1, because the two processes may have different encodings for paths.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from git_envhist._version import __version__
from git_envhist.disk import Durability, replace_file
from git_envhist.peers import CREDENTIALS, SO_PEERCRED, SOL_SOCKET, is_alike, with_short_path

if TYPE_CHECKING:
    from _socket import socket

SOCKET = "watcher"
LOCK = "watcher.lock"
TIMEOUT = 0.75
"""Seconds in which the watcher answers."""
SILENT = "watcher-silent"
"""The file whose time is that of the last request without an answer in time."""
ASK_AGAIN = 10.0
"""Seconds after such a request in which captures do not ask."""
STOPPED = frozenset((b"T", b"t"))
"""States of a process that a signal or a debugger stopped."""
MAX_ANSWER = 64 << 20


class WatcherAnswer(NamedTuple):
    """The answer of the watcher before a capture looks."""

    token: str
    """Names the state of now; a capture that was asked with it may keep it with its stat cache."""
    directories: list[bytes] | None
    """Directories that may have changed since the stat cache was written; None if any may have."""
    reason: str = ""
    """Why any may have."""


def socket_path(state: str) -> str:
    """Return the path of the socket at which the watcher of a working tree answers."""
    return os.path.join(state, SOCKET)


def begin_asking(state: str) -> str:
    """Let the watcher list open files while the caller prepares its question; return the name of the question.

    The list may be older than the token: a file that is opened later is still open when the next capture asks, or its
    end is an event after the token.
    """
    if not os.path.exists(socket_path(state)) or _was_silent(state):
        return ""
    question = os.urandom(8).hex()
    return question if exchange(state, {"op": "begin", "question": question}) is not None else ""


def ask_changes(
    state: str, question: str, cache: str, naming: str, bases: Mapping[bytes, bytes]
) -> WatcherAnswer | None:
    """Return what may have changed since the stat cache with this id was written; None without a watcher."""
    if not question:
        return None
    try:
        roots = [[text_of_path(name), *_identity(base)] for name, base in sorted(bases.items())]
    except OSError:
        return None
    answer = exchange(
        state, {"op": "since", "question": question, "cache": cache, "naming": naming, "roots": roots}
    )
    return None if answer is None else _read_answer(answer)


def text_of_path(path: bytes) -> str:
    """Return a path as it is written in a message."""
    return path.decode("latin-1")


def path_of_text(text: str) -> bytes:
    """Return the path that a message names; raise ValueError if the text is none."""
    return text.encode("latin-1")


def _read_answer(answer: Mapping[str, Any]) -> WatcherAnswer | None:
    token, found = answer.get("token"), answer.get("directories")
    if not isinstance(token, str):
        return None
    try:
        directories = [path_of_text(text) for text in found] if isinstance(found, list) else None
    except (AttributeError, ValueError):
        return None
    return WatcherAnswer(token, directories, str(answer.get("reason", "")))


def keep_token(state: str, token: str, cache: str) -> None:
    """Tell the watcher that the stat cache with this id contains everything up to a token."""
    exchange(state, {"op": "keep", "token": token, "cache": cache})


def carry_token(state: str, before: str, cache: str) -> None:
    """Tell the watcher that a stat cache replaced another one and contains nothing newer without an event."""
    if os.path.exists(socket_path(state)):
        exchange(state, {"op": "carry", "before": before, "cache": cache})


def exchange(state: str, request: Mapping[str, object], timeout: float = TIMEOUT) -> dict[str, Any] | None:
    """Send a request to the watcher and return its answer; None if there is none, whatever the reason."""
    import json  # loaded late: only with a watcher
    from _socket import AF_UNIX, SOCK_STREAM, socket  # loaded late: only with a watcher

    with suppress(OSError, ValueError):
        connection = socket(AF_UNIX, SOCK_STREAM)
        try:
            connection.settimeout(timeout)
            with_short_path(socket_path(state), connection.connect)
            if _is_stopped(connection) or not is_alike(connection):
                return None
            asked = {**request, "version": __version__}
            connection.sendall(json.dumps(asked).encode("ascii") + b"\n")
            answer = json.loads(_receive(connection))
        except TimeoutError:
            replace_file(os.path.join(state, SILENT), b"", durability=Durability.NONE)
            return None
        finally:
            connection.close()
        return answer if isinstance(answer, dict) else None
    return None


def _was_silent(state: str) -> bool:
    try:
        return abs(time.time() - os.lstat(os.path.join(state, SILENT)).st_mtime) < ASK_AGAIN
    except OSError:
        return False


def _is_stopped(connection: socket) -> bool:
    """Return whether the process at the other end cannot answer because it was stopped, e.g. by SIGSTOP."""
    found = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, CREDENTIALS)
    with open(f"/proc/{int.from_bytes(found[:4], sys.byteorder)}/stat", "rb", buffering=0) as file:
        return file.read().rpartition(b")")[2].split()[0] in STOPPED


def _receive(connection: socket) -> bytes:
    parts: list[bytes] = []
    size = 0
    while data := connection.recv(1 << 18):
        parts.append(data)
        size += len(data)
        if size > MAX_ANSWER:
            raise ValueError("the answer is too long")
    return b"".join(parts)


def _identity(directory: bytes) -> tuple[int, int]:
    seen = os.stat(directory)
    return seen.st_dev, seen.st_ino
