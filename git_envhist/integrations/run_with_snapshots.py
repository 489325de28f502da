"""Run a command between two snapshots, and record its output.

The command runs as a shell would run it. With a terminal on standard input and output it gets a terminal of its own,
so that pagers, editors and password prompts work; otherwise its standard output and standard error are copied
separately. Output is passed through and its beginning and end are kept. Nothing is run if the snapshot before the
command fails.
"""

from __future__ import annotations

import fcntl
import os
import select
import shlex
import signal
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from git_envhist.child_command import NOT_EXECUTABLE, ChildCommand, OutputTail
from git_envhist.errors import EnvhistError, in_words
from git_envhist.history.timeline import subject
from git_envhist.model import CaptureResult, RunResult, Trigger
from git_envhist.secrets.masking import mask_text

if TYPE_CHECKING:
    from git_envhist.capture.pipeline import CaptureKeywords


IN, OUT, ERR = 0, 1, 2
HEAD, TAIL = 1 << 20, 3 << 20
"""Number of bytes kept from the beginning and from the end of the output."""
NOT_FOUND = 127
BY_SIGNAL = 128
"""The exit status of a command that a signal killed is this plus the signal number."""
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""The terminal sends these signals to the command as well."""
FORWARDED = (signal.SIGTERM, signal.SIGHUP)

Take = Callable[[bytes], None]


class HeadAndTail:
    """The beginning and the end of a text; the bytes between them are only counted."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self._head_limit = head
        self._head = bytearray()
        self._tail = OutputTail(tail)

    def take(self, data: bytes) -> None:
        free = self._head_limit - len(self._head)
        self._head += data[:free]
        self._tail.take(data[free:])

    @property
    def text(self) -> bytes:
        omitted = self._tail.omitted
        gap = b"\n[%d bytes omitted]\n" % omitted if omitted else b""
        return bytes(self._head) + gap + self._tail.text


def run_passing_output(words: Sequence[str], keep: Take, out: int = OUT) -> int:
    """Run a command with our terminal, directory and environment; return its exit status as a shell would.

    `out` is the descriptor that gets its standard output.
    """
    if out != OUT or not (os.isatty(0) and os.isatty(OUT)):
        return _by_pipes(words, keep, out)

    return run_on_terminal(words, keep)


def _by_pipes(words: Sequence[str], keep: Take, out: int) -> int:
    _flush()
    try:
        child = ChildCommand.start(words, stdin=IN, stderr=subprocess.PIPE)
    except OSError as error:
        return print_not_started(words, error)
    targets = dict(zip(child.outputs, (out, ERR), strict=True))

    def take(source: int, data: bytes) -> None:
        keep(data)
        write_all(targets[source], data)

    with child, forwarding_signals(child.process):
        child.follow(take)
        return status_of(child.wait())


def run_quietly(words: Sequence[str], keep: Take, directory: str, environ: Mapping[str, str]) -> int:
    """Run a program without a terminal to its end and return its status; `keep` gets all of its output."""
    try:
        child = ChildCommand.start(words, directory=directory, environ=environ)
    except (OSError, ValueError) as error:
        # ValueError: a word contains a NUL, or half of a surrogate pair.
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise EnvhistError(f"cannot run '{words[0]}': {reason}") from error
    with child:
        child.follow(lambda _source, data: keep(data))
        return status_of(child.wait())


def print_not_started(words: Sequence[str], error: OSError) -> int:
    """Print why a command could not be started, and return the exit status that a shell uses."""
    with suppress(OSError):
        write_all(ERR, os.fsencode(f"{words[0]}: {(error.strerror or str(error)).lower()}\n"))
    return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


def write_all(target: int, data: bytes) -> None:
    """Write all data; ignore a closed pipe, because the command must keep running."""
    view = memoryview(data)
    with suppress(BrokenPipeError):
        while view:
            try:
                view = view[os.write(target, view) :]
            except BlockingIOError:
                select.select([], [target], [])


@contextmanager
def forwarding_signals(process: int) -> Iterator[None]:
    """Forward signals that ask us to terminate to the command, which decides how to react."""

    def forward(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(process, number)

    before = {number: signal.signal(number, _ignore) for number in FROM_TERMINAL}
    before |= {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore(_number: int, _frame: object) -> None:
    """Do nothing. A function, because a command would inherit `SIG_IGN`."""


def status_of(code: int) -> int:
    """Return an exit status as a shell reports it."""
    return code if code >= 0 else BY_SIGNAL - code


def exec_command(words: Sequence[str]) -> NoReturn:
    """Replace this forked process by the command."""
    try:
        os.execvp(words[0], list(words))
    except OSError as error:
        os._exit(print_not_started(words, error))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


# Snapshots before and after the command.

Capture = Callable[[str, "CaptureKeywords"], CaptureResult]
"""Takes a snapshot with this intent."""
Through = Callable[[Sequence[str], Take], int]
"""Runs a command, passes its output to a function and returns its exit status."""
MAX_LENGTH = 1000
"""Number of characters of the command line that are stored with the snapshot."""
OUTPUT = "output"
"""The name under which the output of the command is attached."""
NOT_CAPTURED = "no snapshot was taken after the command"


def run_with_snapshots(
    capture: Capture, words: Sequence[str], intent: str | None, verify: str | None, through: Through
) -> RunResult:
    """Capture, run a command with `through`, capture again.

    If the first capture fails, the command is not run, because it may destroy data that is in no snapshot. If the
    second capture fails, the result still has the exit status of the command, and a warning.
    """
    command = mask_text(shlex.join(words))[:MAX_LENGTH]
    intent = intent or command
    before = capture(f"before: {subject(intent)}", {"trigger": Trigger.RUN, "if_changed": True, "verify": ""})
    kept, started = HeadAndTail(), time.monotonic()
    status = through(words, kept.take)
    duration = round((time.monotonic() - started) * 1000)
    text = kept.text
    keywords: CaptureKeywords = {
        "trigger": Trigger.RUN,
        "verify": verify,
        "meta": (("command", command), ("exit", str(status)), ("duration-ms", str(duration))),
        "attached": ((OUTPUT, text),) if text else (),
    }
    try:
        return RunResult(status, before, capture(intent, keywords), (), text)
    except (EnvhistError, OSError) as error:
        return RunResult(status, before, None, (f"{NOT_CAPTURED}: {in_words(error)}",), text)


# A pseudo-terminal for the command. Our own terminal is in raw mode and passes every key (the inner terminal turns
# Ctrl-C into a signal), and the inner one has the same size.

SIZE = 8


def run_on_terminal(words: Sequence[str], keep: Take) -> int:
    """Run a command on a terminal of its own; return its exit status as a shell would."""
    attributes = termios.tcgetattr(IN)

    def become() -> None:
        termios.tcsetattr(IN, termios.TCSANOW, attributes)
        _copy_size(IN, OUT)
        exec_command(words)

    with ChildCommand.start_on_terminal(become) as child:
        (master,) = child.outputs

        def take(source: int, data: bytes) -> None:
            if source == IN:
                write_all(master, data)
            else:
                keep(data)
                write_all(OUT, data)

        with forwarding_signals(child.process), _same_size(master), _raw_mode(attributes):
            child.follow(take, typed=IN)
            return status_of(child.wait())


@contextmanager
def _raw_mode(attributes: list[Any]) -> Iterator[None]:
    tty.setraw(IN)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(IN, termios.TCSADRAIN, attributes)


@contextmanager
def _same_size(master: int) -> Iterator[None]:
    _copy_size(OUT, master)
    before = signal.signal(signal.SIGWINCH, lambda *_: _copy_size(OUT, master))
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _copy_size(source: int, target: int) -> None:
    with suppress(OSError):
        fcntl.ioctl(target, termios.TIOCSWINSZ, fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(SIZE)))
