"""A terminal of its own for a program that is run in between: ours shows what comes there, and hands it what is typed.

Ours hands over every key as it is (Ctrl-C, too: the inner one makes a signal of it), and the inner one has ours' size.
"""

from __future__ import annotations

import fcntl
import os
import signal
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from git_envhist.triggers.passing import (
    OUT,
    Take,
    copy_until_exit,
    end_here,
    handing_on,
    status_of,
    write_all,
)

IN = 0
SIZE = 8


def run_on_terminal(words: Sequence[str], keep: Take) -> int:
    """Run a program to its end on a terminal of its own; its status as a shell tells it."""
    manner = termios.tcgetattr(IN)
    process, master = os.forkpty()
    if process == 0:
        termios.tcsetattr(IN, termios.TCSANOW, manner)
        _hand_size(IN, OUT)
        end_here(words)

    def take(source: int, data: bytes) -> None:
        if source == IN:
            write_all(master, data)
        else:
            keep(data)
            write_all(OUT, data)

    try:
        with handing_on(process), _same_size(master), _every_key(manner):
            copy_until_exit(process, (master,), take, typed=IN)
            return status_of(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    finally:
        os.close(master)


@contextmanager
def _every_key(manner: list[Any]) -> Iterator[None]:
    tty.setraw(IN)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(IN, termios.TCSADRAIN, manner)


@contextmanager
def _same_size(master: int) -> Iterator[None]:
    _hand_size(OUT, master)
    before = signal.signal(signal.SIGWINCH, lambda *_: _hand_size(OUT, master))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _hand_size(source: int, target: int) -> None:
    with suppress(OSError):
        fcntl.ioctl(target, termios.TIOCSWINSZ, fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(SIZE)))
