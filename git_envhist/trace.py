"""GIT_ENVHIST_TRACE: each step of a command with its time, as GIT_TRACE has it for git.

`1` writes to standard error, an absolute path appends to that file. Where it is not set nothing is measured: a marked
function is that function.
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
WANTED = os.environ.get(VARIABLE, "")
ON = WANTED.lower() not in ("", "0", "false", "no", "off")
STDERR = 2
MAX_LENGTH = 200
USER = pattern(r"://[^\s/'\"]*@")


def now() -> float:
    return time.monotonic() if ON else 0.0


def tell(what: str, began: float | None = None) -> None:
    """One line: the time of day, how long it took, and what it was."""
    if not ON:
        return
    moment = time.time()
    clock = f"{time.strftime('%H:%M:%S', time.localtime(moment))}.{int(moment % 1 * 1_000_000):06d}"
    took = "           " if began is None else f"{time.monotonic() - began:9.4f} s"
    told = "".join(letter if letter.isprintable() else "?" for letter in what[:MAX_LENGTH])
    told = USER.sub("://***@", told)
    line = f"{clock} envhist[{os.getpid()}] {took}  {told}\n".encode("utf-8", "backslashreplace")
    with suppress(OSError):
        if not WANTED.startswith("/"):
            os.write(STDERR, line)
            return
        target = os.open(WANTED, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(target, line)
        finally:
            os.close(target)


def tell_git(words: Sequence[str | bytes], began: float | None = None, status: int = 0) -> None:
    """A git command, ended where it is said when it began; what all of ours begin with is left out."""
    if not ON:
        return
    named = [os.fsdecode(word) for word in words]
    while "-c" in named[:2]:
        named[1:3] = []
    tell(f"{' '.join(named)}{f' (status {status})' if status else ''}", began)


def step(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Mark a function as a step that is worth a line."""

    def mark(function: Callable[P, T]) -> Callable[P, T]:
        if not ON:
            return function

        @wraps(function)
        def marked(*args: P.args, **named: P.kwargs) -> T:
            began = now()
            try:
                return function(*args, **named)
            finally:
                tell(what, began)

        return marked

    return mark
