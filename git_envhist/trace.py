"""GIT_ENVHIST_TRACE: print each step of a command with its time, as GIT_TRACE does for git.

`1` writes to standard error, an absolute path appends to that file. If it is not set, nothing is measured, and a
decorated function is returned unchanged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import ParamSpec, TypeVar

from git_envhist.lazy import pattern

P = ParamSpec("P")
T = TypeVar("T")

VARIABLE = "GIT_ENVHIST_TRACE"
TARGET = os.environ.get(VARIABLE, "")
ON = TARGET.lower() not in ("", "0", "false", "no", "off")
STDERR = 2
MAX_LENGTH = 200
USER = pattern(r"://[^\s/'\"]*@")


def now() -> float:
    return time.monotonic() if ON else 0.0


def trace(text: str, began: float | None = None) -> None:
    """Write a line: time of day, duration, text."""
    if not ON:
        return
    time_now = time.time()
    clock = f"{time.strftime('%H:%M:%S', time.localtime(time_now))}.{int(time_now % 1 * 1_000_000):06d}"
    took = "           " if began is None else f"{time.monotonic() - began:9.4f} s"
    text = "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_LENGTH])
    text = USER.sub("://***@", text)
    line = f"{clock} envhist[{os.getpid()}] {took}  {text}\n".encode("utf-8", "backslashreplace")
    with suppress(OSError):
        if not TARGET.startswith("/"):
            os.write(STDERR, line)
            return
        target = os.open(TARGET, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(target, line)
        finally:
            os.close(target)


def trace_git(words: Sequence[str | bytes], began: float | None = None, status: int = 0) -> None:
    """Write a line for a git command, without the options that all our git commands begin with."""
    if not ON:
        return
    named = [os.fsdecode(word) for word in words]
    while "-c" in named[:2]:
        named[1:3] = []
    trace(f"{' '.join(named)}{f' (status {status})' if status else ''}", began)


def trace_step(text: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that writes a line for each call of a function."""

    def mark(function: Callable[P, T]) -> Callable[P, T]:
        if not ON:
            return function

        @wraps(function)
        def marked(*args: P.args, **named: P.kwargs) -> T:
            began = now()
            try:
                return function(*args, **named)
            finally:
                trace(text, began)

        return marked

    return mark
